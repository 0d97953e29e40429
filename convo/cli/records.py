"""What `convo sessions` does once its arguments are read.

The list is what people wait for most often: nothing is imported here that it does not need.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from typer import Exit

from convo.cli.saying import note, say, say_json
from convo.cli.wiring import from_store, store_of
from convo.config import load
from convo.engine.glance import Glance, as_record, glance, others_answered, unacknowledged
from convo.errors import Usage
from convo.history import Session
from convo.items import Item, Json
from convo.stores.contract import Hit, Store
from convo.ui import listing
from convo.ui.answer import safe
from convo.ui.medium import medium_of

if TYPE_CHECKING:
    from convo.engine.keeping import Gone
    from convo.inspection.open_run import OpenRun

Config: TypeAlias = Path | None
"""A settings file of the user's own."""

ALL = 1_000_000


def list_sessions(config: Config, limit: int, *, as_json: bool) -> None:
    """Print the sessions, last used first; `limit` is how many at most, 0 for all."""

    async def newest(store: Store) -> tuple[list[Glance], bool, str]:
        found = await store.sessions(limit=limit + 1 if limit else None)
        shown = [await glance(store, session) for session in found[: limit or None]]
        return shown, len(found) > len(shown), "" if found else await others_answered(store)

    there, more, others = from_store(load(config), newest)
    if as_json:
        say_json([as_record(one) for one in there])
    elif there:
        say(listing.listed(there, medium_of(sys.stdout, os.environ)))
    else:
        note("no sessions yet; " + (others or 'convo chat "hello" begins one'))
    if more:
        note("there are more; -n 0 lists all")


def show_session(config: Config, handle: str, *, as_json: bool) -> None:
    """Print what one record says. raises: NotFound, AmbiguousHandle"""
    from convo.engine.finding import the_session
    from convo.engine.open_runs import open_run

    async def one(store: Store) -> tuple[Glance, Sequence[Item], "OpenRun | None"]:
        session = await the_session(store, handle)
        return await glance(store, session), await unacknowledged(store, session), await open_run(store, session)

    seen, said, run = from_store(load(config), one)
    if as_json:
        say_json(as_record(seen))
    else:
        say(listing.record(seen, said, medium_of(sys.stdout, os.environ), run))


def search_sessions(config: Config, words: str, limit: int, *, as_json: bool) -> None:
    """Print where all of `words` were said."""

    async def places(store: Store) -> list[tuple[Hit, listing.Place]]:
        hits = await store.search(words, limit=limit or ALL)
        return [(hit, await placed(store, hit, words)) for hit in hits]

    found = from_store(load(config), places)
    if as_json:
        say_json([as_found(hit, place) for hit, place in found])
    elif found:
        say(listing.found([place for _, place in found], medium_of(sys.stdout, os.environ)))
    else:
        note(f"nothing holds {words!r}")


async def rename_session(config: Config, handle: str, name: str) -> None:
    """Give a session another name. raises: NotFound, AmbiguousHandle; as `keeping.rename`"""
    from convo.engine import keeping
    from convo.engine.finding import the_session

    async with store_of(load(config)) as store:
        session = await the_session(store, handle)
        await keeping.rename(store, session, name)
    note(f"{session.name} is now {name}")


async def remove_sessions(config: Config, handles: Sequence[str], *, yes: bool) -> None:
    """Remove sessions; all are looked for before the first is removed.

    yes:     do not ask
    raises:  NotFound, AmbiguousHandle, Busy;  Exit  the person does not want it
             StoreFault  they are removed, and a file of theirs is not
    """
    from convo.cli.paused_files import forget, named
    from convo.engine import keeping
    from convo.engine.finding import the_session

    settings = load(config)
    async with store_of(settings) as store:
        meant = [await the_session(store, handle) for handle in handles]
        there = list({session.id: session for session in meant}.values())
        if not yes and not agreed(there):
            note("nothing was removed")
            raise Exit(1)
        went = await keeping.remove(store, there)
    folder = settings.places.paused
    for gone in went:
        note(removed(gone, named(folder, gone.runs)))
    forget(folder, [run for gone in went for run in gone.runs])


def agreed(sessions: Sequence[Session]) -> bool:
    """Whether the person at the terminal wants them gone. raises: Usage  there is nobody to ask"""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage("rm asks before it removes, and there is nobody to ask", hint="--yes removes without asking")
    names = ", ".join(session.name for session in sessions)
    sys.stderr.write(safe(f"remove {names}? [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def removed(gone: "Gone", files: Sequence[str]) -> str:
    """What went, and what stays elsewhere, in a sentence; `files`: of states, where they were named."""
    from convo.ui.labelled import counted

    went = f"{counted(gone.links, 'response')} and {counted(gone.items)}"
    stays = [*(f"the file {place} stays" for place in files), *filter(None, [gone.kept])]
    return "; ".join([f"removed {gone.session.name}: {went}", *stays])


async def placed(store: Store, hit: Hit, words: str) -> listing.Place:
    """Where on its session's path a search found something."""
    from convo.inspection import snippet
    from convo.items import kind, searchable

    path = await store.path(hit.session.head)
    here = path.passes(hit.key)
    return listing.Place(
        session=hit.session,
        at=path.place(hit.key) if here else len(await store.path(hit.key)),
        of=len(path) if here else None,
        who=str(hit.item.get("role") or kind(hit.item)),
        snippet=snippet(searchable(hit.item), words),
    )


def as_found(hit: Hit, place: listing.Place) -> dict[str, Json]:
    """A place that a search found for a program; `of` is null on a branch that was left."""
    return {
        "session": hit.session.name,
        "session_id": hit.session.id,
        "key": hit.key,
        "at": place.at,
        "of": place.of,
        "by": place.who,
        "snippet": place.snippet,
    }
