"""`convo store`: check, back up, recover, migrate, measure and prune the database.

Works on all tenants. `prune_tenants` only counts without --yes.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple, TypeAlias

from typer import Exit

from convo.cli.deps import read_from_store
from convo.cli.output import print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import Settings
from convo.config.storage import EPHEMERAL_STORE_TYPES, get_store_url
from convo.config.values import InvalidValue, parse_duration
from convo.errors import DamagedRow, InvalidUsage, NotFound, RowKind
from convo.report import FLAT, Count, Wire
from convo.runtime import SystemClock, track_progress
from convo.stores.base import (
    NamedSession,
    PruneResult,
    Store,
    StoreCheckReport,
    TenantStats,
    TruncatedSession,
)
from convo.terminal import list_views
from convo.terminal.statuses import DONE, FAILED, WARNING, format_line_start
from convo.terminal.terminal import detect_display, escape_control_chars, format_count

ConfigPath: TypeAlias = Path | None
"""A settings file of the user."""


class MigrationReport(NamedTuple):
    """The migrations that were run."""

    store: str
    ran: Sequence[Count]


class SchemaSqlReport(NamedTuple):
    """With --print-sql: the statements of the schema."""

    sql: str


class RowReport(NamedTuple):
    """A row that cannot be read.

    key:  name or id
    """

    table: RowKind
    key: str
    problem: str


class StoreReport(NamedTuple):
    """The result of a check.

    ok:            whether no problem was found
    damaged_rows:  the first rows that cannot be read, at most 100; the problem "row" has their number
    """

    store: str
    ok: bool
    result: Annotated[StoreCheckReport, FLAT]
    damaged_rows: Sequence[RowReport]


class BackupReport(NamedTuple):
    """A copy of the database.

    file:     the copy; null if the store is a server
    command:  for a server: the backup command, without the password
    """

    store: str
    file: str | None
    bytes: Count | None
    command: str | None


class RecoveredSessions(NamedTuple):
    """The sessions in a new database.

    complete:   sessions with their complete history
    truncated:  sessions with a part of their history
    lost:       sessions of which only the record is left
    recreated:  new sessions for histories whose session record is lost
    """

    complete: Annotated[Sequence[NamedSession], Wire("whole")]
    truncated: Annotated[Sequence[TruncatedSession], Wire("cut")]
    lost: Sequence[NamedSession]
    recreated: Annotated[Sequence[NamedSession], Wire("made")]


class RecoverReport(NamedTuple):
    """The readable rows of a database, in a new one.

    file:      the new database
    ok:        whether every session is complete, and no row was repaired or left out
    rows:      number of rows in the new database, by table
    repaired:  damaged rows that were repaired: what could not be read has a default
    left_out:  damaged rows that are not in the new database
    """

    store: str
    file: str
    ok: bool
    rows: Mapping[str, Count]
    sessions: RecoveredSessions
    repaired: Sequence[RowReport]
    left_out: Sequence[RowReport]


class TenantPruneReport(NamedTuple):
    """The unused data of one tenant."""

    tenant: str
    result: Annotated[PruneResult, FLAT]


class PruneReport(NamedTuple):
    """Data that was unused.

    before:   the cutoff, in seconds since 1970
    removed:  whether the data was deleted; false without --yes
    """

    before: float
    removed: bool
    tenants: Sequence[TenantPruneReport]


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
    if as_json:
        print_json(SchemaSqlReport(statements))
    else:
        sys.stdout.write(statements)


def run_migrations(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> None:
    """Run the migrations that the store lacks, and print them.

    Raises StoreFault, InvalidUsage or InvalidSettings.
    """
    settings = _load_durable_settings(config, flags)

    async def migrate(store: Store) -> Sequence[int]:
        return await store.admin.migrate()

    with show_progress("migrating", settings):
        migrations = list(read_from_store(settings, migrate))
    location = str(settings.storage)
    if as_json:
        print_json(MigrationReport(location, migrations))
    else:
        print_line(
            escape_control_chars(
                f"{location}: " + (f"ran migrations {', '.join(map(str, migrations))}" if migrations else "up to date")
            )
        )


def print_tenant_stats(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> None:
    """Print the stored data of each tenant. Raises StoreFault, InvalidUsage or InvalidSettings."""

    async def read(store: Store) -> Sequence[TenantStats]:
        return await store.admin.tenant_stats()

    settings = _load_durable_settings(config, flags)
    with show_progress("counting", settings):
        tenants = read_from_store(settings, read)
    if as_json:
        print_json(tenants)
        return
    path = settings.storage.path
    if tenants:
        print_line(list_views.render_tenant_stats(tenants, detect_display(sys.stdout, os.environ)))
        if path is not None:
            print_notice(
                f"stored in {path}, which is incomplete without its -wal; back it up with convo store backup FILE"
            )
    else:
        is_missing = path is not None and not path.exists()
        print_notice(f"the store is empty: {path} does not exist yet" if is_missing else "the store is empty")


def print_store_check(config: ConfigPath, flags: SettingFlags, *, as_json: bool) -> bool:
    """Check every row and print the problems; return whether there are none.

    Raises NotFound, StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.stores.factory import check_store

    settings = _load_durable_settings(config, flags)
    with _explain_missing_database(flags), show_progress("checking", settings) as report:
        checked = asyncio.run(check_store(get_store_url(settings.storage), report))
    location, is_ok = str(settings.storage), not checked.problems
    if as_json:
        print_json(StoreReport(location, is_ok, checked, _report_rows(checked.damaged_rows)))
    else:
        display = detect_display(sys.stdout, os.environ)
        failed, affected = format_line_start(FAILED, display), format_line_start(WARNING, display)
        for problem in checked.problems:
            if problem.code != "row":
                line = f"{problem.code}: {problem.example}" + _format_more(problem.count)
                print_line(failed + escape_control_chars(line))
                continue
            for row in checked.damaged_rows:
                print_line(failed + escape_control_chars(f"row: {row.message}"))
            if problem.count > len(checked.damaged_rows):
                print_line(f"{failed}row: {problem.count - len(checked.damaged_rows):,} more")
        for session in checked.damaged_sessions:
            print_line(affected + escape_control_chars(f"affected session: {session.name}" + _format_tenant(session)))
        if checked.skipped_reason:
            print_notice(
                f"not checked: {checked.skipped_reason}" + ("; convo store migrate, then check again" if is_ok else "")
            )
        rows = _format_row_counts(checked.row_counts)
        count = sum(problem.count for problem in checked.problems)
        summary = "no problems found" if is_ok else f"{count:,} problem{'' if count == 1 else 's'}"
        mark = (WARNING if checked.skipped_reason else DONE) if is_ok else FAILED
        sys.stderr.write(format_line_start(mark, detect_display(sys.stderr, os.environ)))
        print_notice(f"{location}: {summary} ({rows or 'no rows'})")
        if not is_ok and settings.storage.type == "sqlite":
            store_option = f" --store {quote(location)}" if flags.store else ""
            print_notice(f"  try: convo store recover NEW.db{store_option}, to copy every readable row into a new file")
    return is_ok


def _format_row_counts(row_counts: Mapping[str, int]) -> str:
    """Format the tables that have rows: "3 items, 1 agent run"."""
    return ", ".join(
        format_count(count, table.removesuffix("s").replace("_", " ")) for table, count in row_counts.items() if count
    )


def _format_more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""


def _format_tenant(session: NamedSession | TruncatedSession) -> str:
    return "" if session.tenant == "local" else f" (tenant {session.tenant})"


def _report_rows(rows: Sequence[DamagedRow]) -> list[RowReport]:
    return [RowReport(row.table, row.key, row.problem) for row in rows]


def copy_to_backup(config: ConfigPath, flags: SettingFlags, file: Path, *, as_json: bool) -> None:
    """Copy the database into `file`; for a server print the command that does so.

    Raises StoreFault, InvalidUsage or NotFound.
    """
    from convo.config.storage import strip_postgres_passwords
    from convo.stores import factory

    settings = _load_durable_settings(config, flags)
    location = str(settings.storage)
    if settings.storage.url:
        server = strip_postgres_passwords(settings.storage.url.reveal())
        command = f"pg_dump --format=custom --schema=convo --file={quote(str(file))} {quote(server)}"
        if as_json:
            print_json(BackupReport(location, None, None, command))
        else:
            print_line(escape_control_chars(command))
            print_notice("run this command; set a password in PGPASSWORD or ~/.pgpass")
        return
    with _explain_missing_database(flags), show_progress("copying", settings) as report:
        size = factory.backup_store(get_store_url(settings.storage), file, report)
    if as_json:
        print_json(BackupReport(location, str(file), size, None))
    else:
        print_line(escape_control_chars(f"{location}: copied to {file}, {list_views.format_bytes(size)}"))
        print_notice(f"to inspect the copy: CONVO_STORE={quote(f'sqlite:{file}')} convo sessions")


def copy_readable_rows(config: ConfigPath, flags: SettingFlags, file: Path, *, as_json: bool) -> bool:
    """Copy the readable rows of the database into `file`; return whether nothing is missing or replaced.

    Raises StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.stores import factory

    settings = _load_durable_settings(config, flags)
    with _explain_missing_database(flags), show_progress("recovering", settings) as report:
        result = factory.recover_store(get_store_url(settings.storage), file, report)
    is_complete = result.is_complete
    if as_json:
        sessions = RecoveredSessions(
            result.complete_sessions, result.truncated_sessions, result.lost_sessions, result.recreated_sessions
        )
        rows = _report_rows(result.repaired_rows), _report_rows(result.omitted_rows)
        print_json(RecoverReport(str(settings.storage), str(file), is_complete, result.row_counts, sessions, *rows))
        return is_complete
    for session in result.complete_sessions:
        print_line(escape_control_chars(f"complete   {session.name}{_format_tenant(session)}"))
    for part in result.truncated_sessions:
        rest = f"; the {part.rest_item_count:,} after the gap are in {part.rest_name}" if part.rest_name else ""
        print_line(
            escape_control_chars(
                f"truncated  {part.name}{_format_tenant(part)}: {format_count(part.item_count)} recovered{rest}"
            )
        )
    for session in result.lost_sessions:
        print_line(escape_control_chars(f"lost       {session.name}{_format_tenant(session)}"))
    for session in result.recreated_sessions:
        print_line(
            escape_control_chars(f"recreated  {session.name}{_format_tenant(session)}: its session record is lost")
        )
    for word, damaged_rows in (("repaired ", result.repaired_rows), ("left out ", result.omitted_rows)):
        for row in damaged_rows:
            print_line(escape_control_chars(f"{word}  {row.table} {row.key!r}: {row.problem}"))
    row_counts = _format_row_counts(result.row_counts)
    print_notice(f"{settings.storage}: copied to {file} ({row_counts or 'no rows'}); the old file is unchanged")
    print_notice(f"check it with convo store check --store {quote(f'sqlite:{file}')}")
    print_notice("to use it, move away the damaged file with its -wal and -shm, and move this file to its place")
    return is_complete


def prune_tenants(config: ConfigPath, flags: SettingFlags, options: PruneOptions, *, as_json: bool) -> None:
    """Count the data that was unused for the given time, or remove it.

    A damaged session that is kept may continue any conversation of its tenant, so nothing of that tenant is removed;
    the other tenants are pruned.

    Raises DamagedRow for such a tenant, NotFound, StoreFault, InvalidUsage or InvalidSettings.
    """
    from convo.cli.paused_files import delete_run_files, is_run_stored, list_named_files, list_runs_with_files

    cutoff = SystemClock().now() - _parse_older_than(options.older_than)
    settings = _load_durable_settings(config, flags)
    folder = settings.paths.paused_runs
    damaged_by_tenant: dict[str, DamagedRow] = {}

    async def prune(store: Store) -> tuple[list[tuple[str, PruneResult]], list[str]]:
        names = [stats.tenant for stats in await store.admin.tenant_stats()]
        if options.tenant is not None and options.tenant not in names:
            raise NotFound("tenant", options.tenant, hint="convo store stats")
        selected = names if options.tenant is None else [options.tenant]
        # Before the removal: the folder also has files of runs in other stores.
        runs = await list_runs_with_files(store, folder)
        results = []
        for name in track_progress("tenants", selected):
            try:
                results.append((name, await store.admin.prune(name, cutoff, dry_run=not options.is_confirmed)))
            except DamagedRow as error:
                damaged_by_tenant[name] = error
        return results, [run for run in runs if not await is_run_stored(store, run)]

    with show_progress("removing" if options.is_confirmed else "counting", settings):
        results, removed_runs = read_from_store(settings, prune)
    matches = [(name, pruned) for name, pruned in results if any(pruned)]
    has_result = bool(matches) or not damaged_by_tenant
    for name in damaged_by_tenant:
        reason = "a damaged session may continue any of the conversations, so none is removed"
        print_notice(f"tenant {name}: {reason}")
    if as_json and has_result:
        print_json(PruneReport(cutoff, options.is_confirmed, [TenantPruneReport(*match) for match in matches]))
    elif matches:
        print_line(list_views.render_prune_results(matches, detect_display(sys.stdout, os.environ)))
    if has_result:
        print_notice(_format_prune_result(options, has_matches=bool(matches)))
    for path in list_named_files(folder, removed_runs):
        print_notice(f"the file {path} is kept")
    delete_run_files(folder, removed_runs)
    if damaged_by_tenant:
        has_json_result = as_json and has_result  # the error would be a second JSON document
        raise Exit(1) if has_json_result else next(iter(damaged_by_tenant.values()))


def _format_prune_result(options: PruneOptions, *, has_matches: bool) -> str:
    if not has_matches:
        return f"no data was unused for {options.older_than}"
    return "removed" if options.is_confirmed else "dry run, nothing removed; pass --yes to remove this data"


@contextmanager
def _explain_missing_database(flags: SettingFlags) -> Iterator[None]:
    """Name --store in the hint of an error about a missing database: a chat would create another one."""
    try:
        yield
    except NotFound as error:
        if flags.store is not None:
            error.replace_hint("check the path of --store")
        raise


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
    except InvalidValue as error:
        raise InvalidUsage(f"--older-than {error}", hint="--older-than 30d") from error
