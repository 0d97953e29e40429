"""From a handle to a history that can be linted: what the store knows, what an endpoint tells, a file.

A file that no record knows is read as it is, in any of its forms, a paused run among them; it needs no
keys, no tree and no figures.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from convo.cli.known import Where, is_path, is_there, known_of
from convo.cli.states import PIPE, state_at
from convo.cli.wiring import from_store
from convo.clock import SystemClock
from convo.config import load
from convo.engine.finding import absolute, by_handle, find
from convo.engine.item_file import ItemFile, read_items, understood
from convo.engine.open_runs import OPEN
from convo.engine.state_file import judged, means_to_be_a_state
from convo.engine.whole_file import why
from convo.errors import ItemDeleted, NotFound, Unreadable, Usage
from convo.history import Strategy
from convo.inspection import Known
from convo.inspection.linting import Report, View, bare, exposed_in, report, viewed
from convo.inspection.linting.lines import lines
from convo.items import call_id, is_call, is_output, is_user
from convo.runstate import State
from convo.stores.contract import Store
from convo.transfer.run_states import items_of

__all__ = ["Subject", "Where", "subject"]

PIPED = "what is piped in"


@dataclass(frozen=True)
class Subject:
    """One history that was asked about.

    known:   what a store or an endpoint knows of it; None for a file
    file:    what was read, where it is a file of items
    state:   the paused run, where it is one
    places:  the JSON path of each item, where it is not the item's number
    """

    handle: str
    view: View
    known: Known | None = None
    file: ItemFile | None = None
    state: State | None = None
    places: Sequence[str] = field(default=())

    @property
    def paths(self) -> Sequence[str]:
        """The JSON path of each item."""
        return self.places or [f"$[{at}]" for at in range(len(self.view.items))]

    def report(self) -> Report:
        """What linting says of it."""
        found = report(self.handle, self.view, places=self.paths)
        if self.known:
            kept = self.handle if self.known.strategy is Strategy.REPLAY and is_path(self.handle) else None
            return replace(found, keys=self.known.path.keys, file=kept)
        begun = _begun(self.file) if self.file and found.findings else ()
        return replace(found, file=None if self.handle == PIPE else self.handle, lines=begun)


def _begun(file: ItemFile) -> Sequence[int]:
    """The line of each item; lines that also hold links are not counted."""
    return () if file.exported and not file.member else lines(file.text, file.member)


def subject(handle: str, where: Where) -> Subject:
    """What `handle` names.

    raises:  NotFound, AmbiguousHandle, Unreadable, BadState, and what an endpoint that is asked answers
             ItemDeleted  the history lost an item, so nothing can be said of it
    """
    if handle == PIPE:
        return _of_pipe()
    state = state_at(handle, where.config)
    if state:
        return _of_state(handle, state)
    if _is_bare(handle, where):
        return _of_file(handle, read_items(handle))
    (known,) = asyncio.run(known_of([handle], where))
    if known.lost:
        raise ItemDeleted(known.lost)
    view = viewed(known, SystemClock().now())
    return Subject(handle, replace(view, waiting=_waiting(known, where)), known)


def _waiting(known: Known, where: Where) -> frozenset[str]:
    """The ids of the calls that a run of agents is working on in this session, or that wait for a person there."""
    session = known.session
    last = known.path.items[-1:]
    if session is None or not last or not (is_call(last[0]) or is_output(last[0])):
        return frozenset()

    async def read(store: Store) -> bool:
        rows = await store.agent_runs(session=session.id, limit=1)
        return bool(rows) and rows[0].status in OPEN

    if not from_store(load(where.config), read):
        return frozenset()
    turn = takewhile(lambda item: not is_user(item), reversed(known.path.items))
    return frozenset(name for item in turn if is_call(item) and (name := call_id(item)))


def _is_bare(handle: str, where: Where) -> bool:
    """Whether a handle is a file, and none of a record."""

    async def read(store: Store) -> bool:
        if not is_path(handle):
            try:
                await find(store, handle)
            except NotFound:
                return is_there(handle)
            return False
        return await by_handle(store, Strategy.REPLAY, absolute(handle)) is None

    if not is_path(handle) and not os.path.isfile(os.path.expanduser(handle)):
        return False
    return from_store(load(where.config), read)


def _of_file(handle: str, file: ItemFile) -> Subject:
    places = [f"$.{file.member}[{at}]" for at in range(len(file.items))] if file.member else ()
    return Subject(handle, bare(file.items, file.request), file=file, places=places)


def _of_pipe() -> Subject:
    """What is piped in: a paused run, or items in any of the forms that a file may have."""
    if sys.stdin.isatty():
        raise Usage("- stands for items that are piped in", hint="convo lint - < request.json")
    data = sys.stdin.buffer.read()
    if means_to_be_a_state(data):
        return _of_state(PIPE, judged(data, PIPED))
    try:
        return _of_file(PIPE, understood(PIPED, data.decode("utf-8-sig")))
    except UnicodeDecodeError as wrong:
        raise Unreadable(f"{PIPED} cannot be read: {why(wrong)}") from wrong


def _of_state(handle: str, state: State) -> Subject:
    """A paused run: what it waits for is no fault of it, and its owner may hold what came before."""
    waiting = frozenset(one.id for one in state.pending)
    owner = {"previous_response_id": state.document.get("previous_response_id")}
    owner["conversation"] = state.document.get("conversation_id")
    view = replace(bare(items_of(state), owner), waiting=waiting, exposed=exposed_in(state.document))
    return Subject(handle, view, state=state, places=_places(state))


def _places(state: State) -> list[str]:
    """Where each item of a run stands in its document."""
    asked = state.document["original_input"]
    said = ["$.original_input"] if isinstance(asked, str) else [f"$.original_input[{at}]" for at in range(len(asked))]
    made = enumerate(state.document.get("generated_items") or [])
    return said + [f"$.generated_items[{at}].raw_item" for at, item in made if item.get("type") != APPROVAL]


APPROVAL = "tool_approval_item"
"""Stands for a call once more, because somebody has to decide on it."""
