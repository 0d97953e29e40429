"""What `convo store` does once its arguments are read.

For whoever runs the database, so it works across tenants. What would be removed is counted first,
and only --yes removes it.
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

from convo.cli.saying import note, say, say_json
from convo.cli.wiring import from_store, url_of
from convo.clock import SystemClock
from convo.config import Flags, Settings, load
from convo.config.checks import Unfit
from convo.config.durations import duration
from convo.errors import NotFound, Usage
from convo.items import Json
from convo.stores.contract import Store
from convo.stores.upkeep import CutSession, Holdings, NamedSession, Progress, Pruned, StoreCheck
from convo.ui import holdings
from convo.ui.answer import safe
from convo.ui.medium import medium_of

Config: TypeAlias = Path | None
"""A settings file of the user's own."""


class Pruning(NamedTuple):
    """What was asked for.

    older_than:  a duration as somebody wrote it
    tenant:      whose; None: everybody's
    yes:         remove it, and do not only count
    """

    older_than: str
    tenant: str | None = None
    yes: bool = False


class Parts(NamedTuple):
    """Which statements of a schema are printed: spread over `partitions`, those behind migration `above`."""

    partitions: int
    above: int


def print_schema(config: Config, flags: Flags, parts: Parts, *, as_json: bool) -> None:
    """Print the statements that make the store's tables. raises: Usage, BadSettings"""
    from convo.stores.open import schema_sql

    statements = schema_sql(url_of(_kept(config, flags).storage), **parts._asdict())
    sys.stdout.write(json.dumps({"sql": statements}) + "\n" if as_json else statements)


def migrate(config: Config, flags: Flags, *, as_json: bool) -> None:
    """Run the migrations that the store lacks, and say which. raises: StoreFault, Usage, BadSettings"""
    settings = _kept(config, flags)

    async def missing(store: Store) -> Sequence[int]:
        return await store.upkeep.migrate()

    ran = list(from_store(settings, missing))
    where = str(settings.storage)
    if as_json:
        say_json({"store": where, "ran": ran})
    else:
        say(safe(f"{where}: " + (f"ran {', '.join(map(str, ran))}" if ran else "up to date")))


def stats(config: Config, flags: Flags, *, as_json: bool) -> None:
    """Print what each tenant keeps. raises: StoreFault, Usage, BadSettings"""

    async def everybody(store: Store) -> Sequence[Holdings]:
        return await store.upkeep.holdings()

    settings = _kept(config, flags)
    kept = from_store(settings, everybody)
    if as_json:
        say_json([_as_record(one) for one in kept])
    elif kept:
        say(holdings.listed(kept, medium_of(sys.stdout, os.environ)))
        if settings.storage.path is not None:
            place = settings.storage.path
            note(f"in {place}, which is incomplete without its -wal: copy it with convo store backup FILE")
    else:
        note("nothing is kept yet")


def check(config: Config, flags: Flags, *, as_json: bool) -> bool:
    """Print what a check of every row found; whether nothing is wrong. raises: NotFound, StoreFault, Usage"""
    from convo.stores.open import check_store

    settings = _kept(config, flags)
    with progress_line("checking") as progress:
        found = asyncio.run(check_store(url_of(settings.storage), progress))
    where, well = str(settings.storage), not found.problems
    if as_json:
        say_json({"store": where, "ok": well, **_check_as_record(found)})
    else:
        for problem in found.problems:
            say(safe(f"{problem.code}: {problem.example}" + _more(problem.count)))
        for session in found.sessions:
            say(safe(f"affected session: {session.name}" + _of_tenant(session)))
        if found.unchecked:
            note(f"not checked: {found.unchecked}" + ("; convo store migrate, then check again" if well else ""))
        rows = ", ".join(f"{count:,} {table}" for table, count in found.rows.items() if count)
        count = sum(one.count for one in found.problems)
        said = "no problems found" if well else f"{count:,} problem{'' if count == 1 else 's'}"
        note(f"{where}: {said} ({rows or 'no rows'})")
        if not well and settings.storage.type == "sqlite":
            named = f" --store {quote(where)}" if flags.store else ""
            note(f"  try: convo store recover NEW.db{named}, which copies every row that can be read into a new file")
    return well


def _more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""


def _of_tenant(session: NamedSession | CutSession) -> str:
    return "" if session.tenant == "local" else f" (tenant {session.tenant})"


def _check_as_record(found: StoreCheck) -> dict[str, Json]:
    return {
        "rows": dict(found.rows),
        "problems": [{"code": one.code, "count": one.count, "example": one.example} for one in found.problems],
        "sessions": [_session_record(one) for one in found.sessions],
        "unchecked": found.unchecked,
    }


def _session_record(one: NamedSession) -> dict[str, Json]:
    return {"tenant": one.tenant, "name": one.name}


def _cut_record(one: CutSession) -> dict[str, Json]:
    return {
        "tenant": one.tenant,
        "name": one.name,
        "items": one.items,
        "rest": one.rest,
        "rest_items": one.rest_items,
    }


def _pruned_record(one: Pruned) -> dict[str, Json]:
    return {"sessions": one.sessions, "responses": one.responses, "conversations": one.conversations}


@contextmanager
def progress_line(doing: str) -> Iterator[Progress]:
    """Report progress in one line on a terminal, which is cleared at the end; elsewhere report nothing."""
    if not sys.stderr.isatty():
        yield lambda step, done, most: None
        return

    def report(step: str, done: int, most: int) -> None:
        share = f" {min(done, most):,} of {most:,}" if most else ""
        sys.stderr.write(f"\r\x1b[K{doing}: {step}{share}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def backup(config: Config, flags: Flags, file: Path, *, as_json: bool) -> None:
    """Copy the database into `file`; of a server print the command that does. raises: StoreFault, Usage, NotFound"""
    from convo.config.postgres import without_password
    from convo.stores import open as stores

    settings = _kept(config, flags)
    where = str(settings.storage)
    if settings.storage.url:
        server = without_password(settings.storage.url.reveal())
        command = f"pg_dump --format=custom --schema=convo --file={quote(str(file))} {quote(server)}"
        if as_json:
            say_json({"store": where, "file": None, "bytes": None, "command": command})
        else:
            say(safe(command))
            note("run this line; a password goes into PGPASSWORD or ~/.pgpass")
        return
    with progress_line("copying") as progress:
        size = stores.backup_store(url_of(settings.storage), file, progress)
    if as_json:
        say_json({"store": where, "file": str(file), "bytes": size, "command": None})
    else:
        say(safe(f"{where}: copied to {file}, {holdings.size(size)}"))
        note(f"to look into the copy: CONVO_STORE={quote(f'sqlite:{file}')} convo sessions")


def recover(config: Config, flags: Flags, file: Path, *, as_json: bool) -> bool:
    """Copy what can be read of the database into `file`; whether every session is whole. raises: StoreFault, Usage"""
    from convo.stores import open as stores

    settings = _kept(config, flags)
    with progress_line("recovering") as progress:
        found = stores.recover_store(url_of(settings.storage), file, progress)
    whole = not (found.cut or found.lost or found.made)
    if as_json:
        sessions = {
            "whole": [_session_record(one) for one in found.whole],
            "cut": [_cut_record(one) for one in found.cut],
            "lost": [_session_record(one) for one in found.lost],
            "made": [_session_record(one) for one in found.made],
        }
        where = {"store": str(settings.storage), "file": str(file)}
        say_json({**where, "ok": whole, "rows": dict(found.rows), "sessions": sessions})
        return whole
    for session in found.whole:
        say(safe(f"whole  {session.name}{_of_tenant(session)}"))
    for cut in found.cut:
        rest = f"; the {cut.rest_items:,} after the break are in {cut.rest}" if cut.rest else ""
        say(safe(f"cut    {cut.name}{_of_tenant(cut)}: {cut.items:,} items are left{rest}"))
    for session in found.lost:
        say(safe(f"lost   {session.name}{_of_tenant(session)}"))
    for session in found.made:
        say(safe(f"found  {session.name}{_of_tenant(session)}: a history whose session record is lost"))
    rows = ", ".join(f"{count:,} {table}" for table, count in found.rows.items() if count)
    note(f"{settings.storage}: copied to {file} ({rows or 'no rows'}); the old file is unchanged")
    note(f"check it with convo store check --store {quote(f'sqlite:{file}')}")
    note("to use it, move the damaged file with its -wal and -shm away, and this one into its place")
    return whole


def prune(config: Config, flags: Flags, asked: Pruning, *, as_json: bool) -> None:
    """Count what nobody used for so long, or remove it. raises: NotFound, StoreFault, Usage, BadSettings"""
    from convo.cli.paused_files import forget, named, with_files

    before = SystemClock().now() - _seconds(asked.older_than)
    settings = _kept(config, flags)
    folder = settings.places.paused

    async def taken(store: Store) -> tuple[list[tuple[str, Pruned]], list[str]]:
        names = [one.tenant for one in await store.upkeep.holdings()]
        if asked.tenant is not None and asked.tenant not in names:
            raise NotFound("tenant", asked.tenant, hint="convo store stats")
        chosen = names if asked.tenant is None else [asked.tenant]
        runs = await with_files(store, folder)
        done = [(name, await store.upkeep.prune(name, before, dry=not asked.yes)) for name in chosen]
        return done, [run for run in runs if not await store.agent_run(run)]

    done, gone = from_store(settings, taken)
    found = [(name, pruned) for name, pruned in done if any(pruned)]
    if as_json:
        tenants = [{"tenant": name, **_pruned_record(pruned)} for name, pruned in found]
        say_json({"before": before, "removed": asked.yes, "tenants": tenants})
    elif found:
        say(holdings.pruned(found, medium_of(sys.stdout, os.environ)))
    note(_outcome(asked, anything=bool(found)))
    for place in named(folder, gone):
        note(f"the file {place} stays")
    forget(folder, gone)


def _outcome(asked: Pruning, *, anything: bool) -> str:
    if not anything:
        return f"nothing was unused for {asked.older_than}"
    return "this was removed" if asked.yes else "this would go; --yes removes it"


def _kept(config: Config, flags: Flags) -> Settings:
    """The settings, of a store that outlives its process. raises: Usage, BadSettings"""
    settings = load(config, flags)
    if settings.storage.type in ("none", "memory"):
        raise Usage(
            f"the store is {settings.storage.type}: nothing of it outlives a process",
            hint="--store sqlite:PATH or postgresql://...",
        )
    return settings


def _seconds(written: str) -> float:
    try:
        return duration(written)
    except Unfit as unfit:
        raise Usage(f"--older-than {unfit}", hint="--older-than 30d") from unfit


def _as_record(one: Holdings) -> dict[str, Json]:
    """What a tenant keeps, for a program; times are seconds since 1970."""
    return {
        "tenant": one.tenant,
        "rows": dict(one.rows),
        "bytes": one.bytes,
        "oldest": one.oldest,
        "newest": one.newest,
    }
