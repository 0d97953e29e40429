"""`convo store`: check, back up, recover, migrate, measure and prune the database.

Works on all tenants. `prune_tenants` only counts without --yes.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple, TypeAlias

from convo.cli.deps import get_store_url, read_from_store
from convo.cli.output import print_json, print_line, print_notice
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import Settings
from convo.config.storage import EPHEMERAL_STORE_TYPES
from convo.config.values import InvalidValue, parse_duration
from convo.errors import InvalidUsage, NotFound
from convo.history.items import Json
from convo.runtime import SystemClock
from convo.stores.base import (
    NamedSession,
    PruneResult,
    ReportProgress,
    Store,
    StoreCheckReport,
    TenantStats,
    TruncatedSession,
)
from convo.terminal import list_views
from convo.terminal.terminal import detect_display, escape_control_chars, format_count

ConfigPath: TypeAlias = Path | None
"""A settings file of the user."""


class PruneOptions(NamedTuple):
    """The arguments of one `convo store prune`.

    older_than:    a duration as it was typed
    tenant:        None for all tenants
    is_confirmed:  remove the data, instead of only counting it
    """

    older_than: str
    tenant: str | None = None
    is_confirmed: bool = False


class SchemaSqlOptions(NamedTuple):
    """The statements to print: with `partitions` partitions, of the migrations after `after_migration`."""

    partitions: int
    after_migration: int


def print_schema_sql(config: ConfigPath, flags: SettingFlags, options: SchemaSqlOptions, *, as_json: bool) -> None:
    """Print the statements that create the store's tables. Raises InvalidUsage or InvalidSettings."""
    from convo.stores.factory import store_schema_sql

    statements = store_schema_sql(get_store_url(_load_durable_settings(config, flags).storage), **options._asdict())
    sys.stdout.write(json.dumps({"sql": statements}) + "\n" if as_json else statements)


def run_migrations(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> None:
    """Run the migrations that the store lacks, and print them.

    Raises StoreFault, InvalidUsage or InvalidSettings.
    """
    settings = _load_durable_settings(config, flags)

    async def missing(store: Store) -> Sequence[int]:
        return await store.admin.migrate()

    ran = list(read_from_store(settings, missing))
    where = str(settings.storage)
    if as_json:
        print_json({"store": where, "ran": ran})
    else:
        print_line(
            escape_control_chars(f"{where}: " + (f"ran migrations {', '.join(map(str, ran))}" if ran else "up to date"))
        )


def print_tenant_stats(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> None:
    """Print the stored data of each tenant. Raises StoreFault, InvalidUsage or InvalidSettings."""

    async def everybody(store: Store) -> Sequence[TenantStats]:
        return await store.admin.tenant_stats()

    settings = _load_durable_settings(config, flags)
    kept = read_from_store(settings, everybody)
    if as_json:
        print_json([_tenant_stats_to_json(one) for one in kept])
    elif kept:
        print_line(list_views.render_tenant_stats(kept, detect_display(sys.stdout, os.environ)))
        if settings.storage.path is not None:
            place = settings.storage.path
            print_notice(
                f"stored in {place}, which is incomplete without its -wal; back it up with convo store backup FILE"
            )
    else:
        print_notice("the store is empty")


def print_store_check(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> bool:
    """Check every row and print the problems; return whether there are none.

    Raises NotFound, StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.stores.factory import check_store

    settings = _load_durable_settings(config, flags)
    with progress_line("checking") as progress:
        found = asyncio.run(check_store(get_store_url(settings.storage), progress))
    where, well = str(settings.storage), not found.problems
    if as_json:
        print_json({"store": where, "ok": well, **_check_to_json(found)})
    else:
        for problem in found.problems:
            print_line(escape_control_chars(f"{problem.code}: {problem.example}" + _format_more(problem.count)))
        for session in found.damaged_sessions:
            print_line(escape_control_chars(f"affected session: {session.name}" + _format_tenant(session)))
        if found.skipped_reason:
            print_notice(
                f"not checked: {found.skipped_reason}" + ("; convo store migrate, then check again" if well else "")
            )
        rows = ", ".join(f"{count:,} {table}" for table, count in found.row_counts.items() if count)
        count = sum(one.count for one in found.problems)
        said = "no problems found" if well else f"{count:,} problem{'' if count == 1 else 's'}"
        print_notice(f"{where}: {said} ({rows or 'no rows'})")
        if not well and settings.storage.type == "sqlite":
            named = f" --store {quote(where)}" if flags.store else ""
            print_notice(f"  try: convo store recover NEW.db{named}, to copy every readable row into a new file")
    return well


def _format_more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""


def _format_tenant(session: NamedSession | TruncatedSession) -> str:
    return "" if session.tenant == "local" else f" (tenant {session.tenant})"


def _check_to_json(found: StoreCheckReport) -> dict[str, Json]:
    return {
        "rows": dict(found.row_counts),
        "problems": [{"code": one.code, "count": one.count, "example": one.example} for one in found.problems],
        "sessions": [_named_session_to_json(one) for one in found.damaged_sessions],
        "unchecked": found.skipped_reason,
    }


def _named_session_to_json(one: NamedSession) -> dict[str, Json]:
    return {"tenant": one.tenant, "name": one.name}


def _truncated_session_to_json(one: TruncatedSession) -> dict[str, Json]:
    return {
        "tenant": one.tenant,
        "name": one.name,
        "items": one.item_count,
        "rest": one.rest_name,
        "rest_items": one.rest_item_count,
    }


def _prune_result_to_json(one: PruneResult) -> dict[str, Json]:
    return {"sessions": one.sessions, "responses": one.responses, "conversations": one.conversations}


@contextmanager
def progress_line(label: str) -> Iterator[ReportProgress]:
    """Report progress in one line on a terminal, which is cleared at the end; elsewhere report nothing."""
    if not sys.stderr.isatty():
        yield lambda step, done, most: None
        return

    def report(step: str, done: int, most: int) -> None:
        share = f" {min(done, most):,} of {most:,}" if most else ""
        sys.stderr.write(f"\r\x1b[K{label}: {step}{share}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def copy_to_backup(config: ConfigPath, flags: SettingFlags, file: Path, *, as_json: bool) -> None:
    """Copy the database into `file`; for a server print the command that does so.

    Raises StoreFault, InvalidUsage or NotFound.
    """
    from convo.config.storage import strip_postgres_passwords
    from convo.stores import factory

    settings = _load_durable_settings(config, flags)
    where = str(settings.storage)
    if settings.storage.url:
        server = strip_postgres_passwords(settings.storage.url.reveal())
        command = f"pg_dump --format=custom --schema=convo --file={quote(str(file))} {quote(server)}"
        if as_json:
            print_json({"store": where, "file": None, "bytes": None, "command": command})
        else:
            print_line(escape_control_chars(command))
            print_notice("run this command; set a password in PGPASSWORD or ~/.pgpass")
        return
    with progress_line("copying") as progress:
        size = factory.backup_store(get_store_url(settings.storage), file, progress)
    if as_json:
        print_json({"store": where, "file": str(file), "bytes": size, "command": None})
    else:
        print_line(escape_control_chars(f"{where}: copied to {file}, {list_views.format_bytes(size)}"))
        print_notice(f"to inspect the copy: CONVO_STORE={quote(f'sqlite:{file}')} convo sessions")


def copy_readable_rows(config: ConfigPath, flags: SettingFlags, file: Path, *, as_json: bool) -> bool:
    """Copy the readable rows of the database into `file`; return whether every session is complete.

    Raises StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.stores import factory

    settings = _load_durable_settings(config, flags)
    with progress_line("recovering") as progress:
        found = factory.recover_store(get_store_url(settings.storage), file, progress)
    whole = not (found.truncated_sessions or found.lost_sessions or found.recreated_sessions)
    if as_json:
        sessions = {
            "whole": [_named_session_to_json(one) for one in found.complete_sessions],
            "cut": [_truncated_session_to_json(one) for one in found.truncated_sessions],
            "lost": [_named_session_to_json(one) for one in found.lost_sessions],
            "made": [_named_session_to_json(one) for one in found.recreated_sessions],
        }
        where = {"store": str(settings.storage), "file": str(file)}
        print_json({**where, "ok": whole, "rows": dict(found.row_counts), "sessions": sessions})
        return whole
    for session in found.complete_sessions:
        print_line(escape_control_chars(f"complete   {session.name}{_format_tenant(session)}"))
    for cut in found.truncated_sessions:
        rest = f"; the {cut.rest_item_count:,} after the gap are in {cut.rest_name}" if cut.rest_name else ""
        print_line(
            escape_control_chars(
                f"truncated  {cut.name}{_format_tenant(cut)}: {format_count(cut.item_count)} recovered{rest}"
            )
        )
    for session in found.lost_sessions:
        print_line(escape_control_chars(f"lost       {session.name}{_format_tenant(session)}"))
    for session in found.recreated_sessions:
        print_line(
            escape_control_chars(f"recreated  {session.name}{_format_tenant(session)}: its session record is lost")
        )
    rows = ", ".join(f"{count:,} {table}" for table, count in found.row_counts.items() if count)
    print_notice(f"{settings.storage}: copied to {file} ({rows or 'no rows'}); the old file is unchanged")
    print_notice(f"check it with convo store check --store {quote(f'sqlite:{file}')}")
    print_notice("to use it, move away the damaged file with its -wal and -shm, and move this file to its place")
    return whole


def prune_tenants(config: ConfigPath, flags: SettingFlags, options: PruneOptions, *, as_json: bool) -> None:
    """Count the data that was unused for the given time, or remove it.

    Raises NotFound, StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.cli.paused_files import delete_run_files, list_named_files, list_runs_with_files

    before = SystemClock().now() - _parse_older_than(options.older_than)
    settings = _load_durable_settings(config, flags)
    folder = settings.paths.paused_runs

    async def taken(store: Store) -> tuple[list[tuple[str, PruneResult]], list[str]]:
        names = [one.tenant for one in await store.admin.tenant_stats()]
        if options.tenant is not None and options.tenant not in names:
            raise NotFound("tenant", options.tenant, hint="convo store stats")
        chosen = names if options.tenant is None else [options.tenant]
        runs = await list_runs_with_files(store, folder)
        done = [(name, await store.admin.prune(name, before, dry_run=not options.is_confirmed)) for name in chosen]
        return done, [run for run in runs if not await store.agent_run(run)]

    done, gone = read_from_store(settings, taken)
    found = [(name, pruned) for name, pruned in done if any(pruned)]
    if as_json:
        tenants = [{"tenant": name, **_prune_result_to_json(pruned)} for name, pruned in found]
        print_json({"before": before, "removed": options.is_confirmed, "tenants": tenants})
    elif found:
        print_line(list_views.render_prune_results(found, detect_display(sys.stdout, os.environ)))
    print_notice(_format_prune_result(options, has_matches=bool(found)))
    for place in list_named_files(folder, gone):
        print_notice(f"the file {place} is kept")
    delete_run_files(folder, gone)


def _format_prune_result(options: PruneOptions, *, has_matches: bool) -> str:
    if not has_matches:
        return f"no data was unused for {options.older_than}"
    return "removed" if options.is_confirmed else "dry run, nothing removed; pass --yes to remove this data"


def _load_durable_settings(config: ConfigPath, flags: SettingFlags) -> Settings:
    """Load the settings of a store that keeps data after the process.

    Raises InvalidUsage for another store, and InvalidSettings.
    """
    settings = load_settings(config, flags)
    if settings.storage.type in EPHEMERAL_STORE_TYPES:
        raise InvalidUsage(
            f"the store is {settings.storage.type}, which keeps nothing after the process",
            hint="--store sqlite:PATH or postgresql://...",
        )
    return settings


def _parse_older_than(text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidValue as unfit:
        raise InvalidUsage(f"--older-than {unfit}", hint="--older-than 30d") from unfit


def _tenant_stats_to_json(one: TenantStats) -> dict[str, Json]:
    """Return the stored data of a tenant for a program; times are seconds since 1970."""
    return {
        "tenant": one.tenant,
        "rows": dict(one.row_counts),
        "bytes": one.size_bytes,
        "oldest": one.oldest_at,
        "newest": one.newest_at,
    }
