"""What every store decides alike, whatever it keeps its rows in.

Three stores that each decided by themselves would come to differ in what nobody tries: which of two
links stands, when a head is stale, what a name may be. Here it is decided once, over values; a
store only asks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from convo.errors import Conflict, InputFault, NotCanonical, NotFound
from convo.history import Key, Link
from convo.items import Event, Item
from convo.stores.contract import AgentRun, AnyHead, Change, Conversation
from convo.stores.verbatim import encodes

Expected: TypeAlias = Key | AnyHead | None
"""Where a head must stand: there, anywhere, or nowhere yet."""

ANSWERED = ("completed", "incomplete")
"""How a link ended that has an answer."""

UNFINISHED = ("queued", "in_progress")
"""How a link stands that may still be written anew."""

LARGEST = 2**63 - 1
"""The largest number that a database takes."""

PLACE = re.compile(r"(?:^|[^0-9a-f])([0-9a-f]{32,64})\Z")
"""The digits that an item's id ends in when it names a place."""


def written(there: Link | None, new: Link) -> Link:
    """The link that stands after `new` was written over `there`.

    One that is unfinished is replaced. A final one stays what it is; a session may claim it, and its
    parent and first token may become known.
    """
    if there is None or there.status in UNFINISHED:
        return new
    return replace(
        there,
        session=there.session or new.session,
        parent=there.parent or new.parent,
        first_token_s=new.first_token_s if there.first_token_s is None else there.first_token_s,
    )


def expect(what: str, expected: Expected, there: Key | None) -> None:
    """Make sure that the head of `what` stands where a change expects it; None: no record.

    raises:  Conflict
    """
    if isinstance(expected, AnyHead) or expected == there:
        return
    if there is None:
        raise Conflict(f"{what} is gone", hint="convo sessions")
    raise Conflict(f"{what} is there already" if expected is None else f"{what} moved since it was read")


def expect_revision(new: AgentRun, there: int) -> None:
    """Make sure that a run follows the revision that is there; 0: there is no such run. raises: Conflict"""
    if new.revision == there + 1:
        return
    if not there:
        raise Conflict(f"{new.id} is gone", hint="convo approvals")
    raise Conflict(f"{new.id} went on since it was read" if new.revision > 1 else f"{new.id} is there already")


def places(change: Change) -> Iterator[Key]:
    """Every place that `change` says something stands at."""
    for link in change.links:
        yield from (link.saw, link.head)
    if change.session:
        yield from (change.session.head, change.session.mark)
        yield from (change.session.written,) if change.session.written else ()
    if change.conversation:
        yield change.conversation.head


def names(change: Change) -> Iterator[str]:
    """Every name that `change` brings: they stand in columns and not in JSON."""
    for link in change.links:
        yield from (link.id, *((link.parent,) if link.parent else ()), *((link.session,) if link.session else ()))
    if change.session:
        yield from (change.session.id, change.session.name, change.session.link or "")
    if change.conversation:
        yield change.conversation.id
    if change.agent_run:
        yield from (change.agent_run.id, change.agent_run.session, change.agent_run.state or "")
    for call in change.calls:
        yield from (call.run, call.call_id)


def check_names(change: Change) -> None:
    for name in names(change):
        check_name(name)


def check_name(name: str) -> None:
    """Make sure that `name` is text. raises: NotCanonical  UTF-8 cannot carry it"""
    if not encodes(name):
        raise NotCanonical(f"{name!a} cannot be a name")


def check_ids(conversation: Conversation, length: int) -> None:
    """Make sure that a conversation names each of its items. raises: InputFault"""
    if len(conversation.ids) != length:
        raise InputFault(f"{conversation.id} has {length} items, but {len(conversation.ids)} ids for them")


def last_number(events: Sequence[Event], kept: int) -> int:
    """The sequence number of the last of `events`, which are to stand behind number `kept`.

    raises:  Conflict    one is not behind the one before it
             InputFault  one has no number
    """
    for event in events:
        number = event.get("sequence_number")
        if type(number) is not int or not 0 <= number <= LARGEST:
            raise InputFault("an event has no sequence number")
        if number <= kept:
            raise Conflict(f"event {number} comes after event {kept}")
        kept = number
    return kept


def own_id(item: Item) -> str:
    """The id that an item came with; "" when it has none."""
    found = item.get("id")
    return found if isinstance(found, str) else ""


def place_in(item_id: str) -> str:
    """The first digits, 32 or more, of the key of the place that an item's id names; "" when it names none."""
    found = PLACE.search(item_id)
    return found[1] if found else ""


def not_running(response_id: str) -> Conflict:
    return Conflict(f"{response_id!a} is not running")


def no_agent_run(run_id: str) -> NotFound:
    return NotFound("run", run_id, hint="convo approvals")


def no_place(key: Key) -> NotFound:
    return NotFound("place in a history", key[:12])


def not_through(key: Key) -> Conflict:
    return Conflict(f"this history does not pass through {key[:12]!a}")


def name_taken(name: str) -> Conflict:
    return Conflict(f"another session is called {name!r}", hint="choose another name")
