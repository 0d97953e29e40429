"""What `convo diff` does once its arguments are read: find both sides, compare, print.

A side is a history, a request as it was sent, or what an owner says that it has; each is found
once, also where both are the same conversation. What differs is decided in `convo.inspection`.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from convo.cli.known import Search, Where, is_path, owner_handle
from convo.cli.saying import say, say_json
from convo.cli.wiring import store_of
from convo.config import load
from convo.engine.finding import with_turn
from convo.engine.looking import look
from convo.engine.sent_request import request_of
from convo.engine.turning import items_of
from convo.engine.whole_file import why
from convo.errors import ItemDeleted, Unreadable, Usage
from convo.history import HERE, OWNERS
from convo.inspection import Known
from convo.inspection.requests import Request, parted
from convo.inspection.requests import as_json as parted_as_json
from convo.inspection.sides import as_json as compared_as_json
from convo.inspection.sides import compared
from convo.items import Json
from convo.stores.contract import Store
from convo.strategies import at_turn
from convo.ui.differing import Side, histories, requests
from convo.ui.medium import medium_of


@dataclass(frozen=True, slots=True)
class Sides:
    """The arguments of one `convo diff`; `b` is None where the owner is the other side."""

    a: str
    b: str | None
    wire: bool = False
    server: bool = False
    provider: str | None = None
    config: Path | None = None


async def differ(sides: Sides, *, as_json: bool) -> bool:
    """Print how the two differ; returns whether they do.

    raises:  NotFound, AmbiguousHandle, Unreadable, ItemDeleted, and what an endpoint that is asked answers
    """
    settings = load(sides.config)
    async with store_of(settings) as store:
        search = Once(Search(settings, store, Where(sides.config, sides.provider)))
        if sides.wire:
            return _wire(await request(sides.a, search, store), await request(sides.b or "", search, store), as_json)
        if sides.server:
            return _histories(*await both(sides.a, search, store), as_json)
        return _histories(await side(sides.a, search, store), await side(sides.b or "", search, store), as_json)


class Once:
    """Looks for handles as `Search` does, and for each once: both sides are often the same conversation."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._found: dict[str, Known] = {}

    async def one(self, handle: str) -> Known:
        if handle not in self._found:
            self._found[handle] = await self._search.one(handle)
        return self._found[handle]

    async def owners(self, mirror: Known) -> Known:
        return await self._search.owners(mirror)


async def side(handle: str, search: Once, store: Store) -> Side:
    """What a handle names, up to the turn that it names."""
    known, number = await named(handle, search, store)
    if known.lost:
        raise ItemDeleted(known.lost)
    return Side(handle, OWNERS[known.strategy].words, items_of(known, number))


async def named(handle: str, search: Once, store: Store) -> tuple[Known, int | None]:
    """What a handle names, and the number behind it. A name or a file that ends so wins."""
    whole, number = await with_turn(store, handle)
    return await search.one(whole), number


async def both(handle: str, search: Once, store: Store) -> tuple[Side, Side]:
    """What is kept here of what an owner holds, and what it has. raises: Usage  nobody else holds it"""
    mirror, number = await named(handle, search, store)
    if number is not None:
        raise Usage("--server compares all that is held", hint=f"convo diff {at_turn(handle)[0]} --server")
    if not OWNERS[mirror.strategy].remembers:
        raise Usage(f"{handle} is held here, by {OWNERS[mirror.strategy].words}", hint=f"convo inspect {handle}")
    theirs = await _own_rows(mirror, store) if mirror.scope == HERE else await search.owners(mirror)
    here = Side("here", "the record's confirmed part", mirror.path.upto(mirror.mark).items)
    return here, Side("there", f"{theirs.handle} at {theirs.scope}", theirs.path.items)


async def _own_rows(mirror: Known, store: Store) -> Known:
    """What our own endpoint has: its rows lie in this store. raises: NotFound  it has nothing any more"""
    handle = mirror.session.handle if mirror.session else mirror.handle
    return await look(store, handle or owner_handle(mirror))


async def request(handle: str, search: Once, store: Store) -> Request:
    """The request that a handle names, or one that lies in a file as it travelled."""
    found = None if not is_path(handle) and await store.session(handle) else body_in(handle)
    if found is not None:
        return Request(handle, str(found.get("model") or ""), found)
    return request_of(*await named(handle, search, store))


def body_in(place: str) -> dict[str, Json] | None:
    """The request in a file; None for a file of something else, and where there is none. raises: Unreadable"""
    path = os.path.expanduser(place)
    if not os.path.isfile(path):
        return None
    try:
        found = json.loads(Path(path).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unreadable(f"{place} cannot be read: {why(wrong)}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(f"{place} is not JSON: {wrong}") from wrong
    return found if isinstance(found, dict) and "input" in found else None


def _histories(a: Side, b: Side, as_json: bool) -> bool:
    found = compared(a.items, b.items)
    if as_json:
        sides = {name: {"handle": side.name, "items": len(side.items)} for name, side in (("a", a), ("b", b))}
        say_json({**sides, **compared_as_json(found)})
    else:
        say(histories(a, b, found, medium_of(sys.stdout, os.environ)))
    return not found.alike


def _wire(a: Request, b: Request, as_json: bool) -> bool:
    found = parted(a, b)
    if as_json:
        say_json({"requests": [a.name, b.name], **parted_as_json(found)})
    else:
        say(requests(a, b, found, medium_of(sys.stdout, os.environ)))
    return found.byte is not None
