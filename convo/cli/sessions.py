"""`convo sessions`: the conversations that this machine has a record of.

The list is what people wait for most often, so this module imports what a list needs; the other
commands import the rest themselves.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convo.cli.shape import App, call_of
from convo.cli.wiring import store_of
from convo.config import load
from convo.engine.glance import Glance, glance, unacknowledged
from convo.errors import Usage
from convo.history import Session
from convo.items import Json
from convo.stores.contract import Hit, Store
from convo.ui import listing
from convo.ui.answer import safe
from convo.ui.labelled import counted
from convo.ui.medium import medium_of

if TYPE_CHECKING:
    from convo.engine.keeping import Gone

app = App()

EXAMPLES = """
Examples:
  convo sessions                                   the ones used last
  convo sessions search monad haskell              where these words were said
  convo sessions rename @last monads
  convo sessions rm monads what-is-a-monad --yes
"""

AT_ONCE = 20
ALL = 1_000_000

Handle = Annotated[
    str, typer.Argument(metavar="HANDLE", help="A session's name or id, the beginning of one, or @last.")
]
Many = Annotated[int, typer.Option("-n", "--limit", metavar="N", min=0, help="At most N of them; 0 for all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def sessions(ctx: typer.Context, limit: Many = AT_ONCE, as_json: AsJson = False) -> None:
    """List, search, rename and remove conversations."""
    if ctx.invoked_subcommand is None:
        asyncio.run(_list(call_of(ctx).config, limit, as_json))


@app.command("list")
def list_(ctx: typer.Context, limit: Many = AT_ONCE, as_json: AsJson = False) -> None:
    """List them, last used first."""
    asyncio.run(_list(call_of(ctx).config, limit, as_json))


@app.command()
def show(ctx: typer.Context, handle: Handle, as_json: AsJson = False) -> None:
    """Show what the record of one says."""
    asyncio.run(_show(call_of(ctx).config, handle, as_json))


@app.command()
def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All of them are in what is found.")],
    limit: Many = AT_ONCE,
    as_json: AsJson = False,
) -> None:
    """Find where words were said."""
    asyncio.run(_search(call_of(ctx).config, " ".join(words), limit, as_json))


@app.command()
def rename(
    ctx: typer.Context, handle: Handle, name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")]
) -> None:
    """Give one another name."""
    asyncio.run(_rename(call_of(ctx).config, handle, name))


@app.command()
def rm(
    ctx: typer.Context,
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE...", help="Sessions, as for show.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove some, with all that only they hold."""
    asyncio.run(_remove(call_of(ctx).config, handles, yes))


async def _list(config: Path | None, limit: int, as_json: bool) -> None:
    async with store_of(load(config)) as store:
        newest = await store.sessions(limit=limit + 1 if limit else None)
        there = [await glance(store, session) for session in newest[: limit or None]]
    if as_json:
        _print(json.dumps([as_record(one) for one in there]))
    elif there:
        _print(listing.listed(there, medium_of(sys.stdout, os.environ)))
    else:
        _note('no sessions yet; convo chat "hello" begins one')
    if len(newest) > len(there):
        _note("there are more; -n 0 lists all")


async def _show(config: Path | None, handle: str, as_json: bool) -> None:
    from convo.engine.finding import the_session

    async with store_of(load(config)) as store:
        session = await the_session(store, handle)
        one, said = await glance(store, session), await unacknowledged(store, session)
    if as_json:
        _print(json.dumps(as_record(one)))
    else:
        _print(listing.record(one, said, medium_of(sys.stdout, os.environ)))


async def _search(config: Path | None, words: str, limit: int, as_json: bool) -> None:
    async with store_of(load(config)) as store:
        hits = await store.search(words, limit=limit or ALL)
        places = [await placed(store, hit, words) for hit in hits]
    if as_json:
        _print(json.dumps([as_found(hit, place) for hit, place in zip(hits, places, strict=True)]))
    elif places:
        _print(listing.found(places, medium_of(sys.stdout, os.environ)))
    else:
        _note(f"nothing holds {words!r}")


async def _rename(config: Path | None, handle: str, name: str) -> None:
    from convo.engine import keeping
    from convo.engine.finding import the_session

    async with store_of(load(config)) as store:
        session = await the_session(store, handle)
        await keeping.rename(store, session, name)
    _note(f"{session.name} is now {name}")


async def _remove(config: Path | None, handles: Sequence[str], yes: bool) -> None:
    from convo.engine import keeping
    from convo.engine.finding import the_session

    async with store_of(load(config)) as store:
        named = [await the_session(store, handle) for handle in handles]
        there = list({session.id: session for session in named}.values())
        if not yes and not agreed(there):
            _note("nothing was removed")
            raise typer.Exit(1)
        for gone in await keeping.remove(store, there):
            _note(removed(gone))


def agreed(sessions: Sequence[Session]) -> bool:
    """Whether the person at the terminal wants them gone. raises: Usage  there is nobody to ask"""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage("rm asks before it removes, and there is nobody to ask", hint="--yes removes without asking")
    names = ", ".join(session.name for session in sessions)
    sys.stderr.write(safe(f"remove {names}? [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def removed(gone: "Gone") -> str:
    """What went, and what stays elsewhere, in a sentence."""
    went = f"{counted(gone.links, 'response')} and {counted(gone.items)}"
    return f"removed {gone.session.name}: {went}" + (f"; {gone.kept}" if gone.kept else "")


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


def as_record(one: Glance) -> dict[str, Json]:
    """A session's record for a program."""
    session = one.session
    return {
        "id": session.id,
        "name": session.name,
        "strategy": str(session.strategy),
        "handle": session.handle,
        "endpoint": str(session.scope),
        "model": session.model,
        "head": session.head,
        "mark": session.mark,
        "items": one.items,
        "unacknowledged": one.waiting,
        "turns": one.turns,
        "response_id": session.link,
        "instructions": session.instructions,
        "created_at": session.created_at,
        "used_at": session.used_at,
        "first_words": one.words,
    }


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


def _print(words: str) -> None:
    sys.stdout.write(words + "\n")


def _note(words: str) -> None:
    """Tell the person something that is not the answer."""
    sys.stderr.write(safe(words) + "\n")
