"""What `convo store` does once its arguments are read.

For whoever runs the database, so it works across tenants. What would be removed is counted first,
and only --yes removes it.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
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
from convo.stores.upkeep import Holdings, Pruned
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

    kept = from_store(_kept(config, flags), everybody)
    if as_json:
        say_json([_as_record(one) for one in kept])
    elif kept:
        say(holdings.listed(kept, medium_of(sys.stdout, os.environ)))
    else:
        note("nothing is kept yet")


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
        tenants = [{"tenant": name, **pruned._asdict()} for name, pruned in found]
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
