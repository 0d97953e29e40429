"""Everything in a store that can be looked at, newest first.

A session is the record of a chat. What other clients asked the store's own endpoint for has no record:
it is found by its newest response, or by its conversation, which is then as good a handle.
"""

from collections.abc import Sequence
from typing import NamedTuple

from convo.engine.glance import Glance, as_record, glance
from convo.history import Link, Session
from convo.items import Json
from convo.stores.contract import Found, Store


class Other(NamedTuple):
    """A conversation without a record.

    handle:   the last response of a chain, or the conversation
    status:   of its last response; "" where it has none
    used_at:  seconds since 1970
    words:    the first words of what is found there
    """

    handle: str
    strategy: str
    status: str
    used_at: float
    words: str


class Directory(NamedTuple):
    """What was found; `more` says that there is more than was asked for."""

    sessions: Sequence[Glance]
    others: Sequence[Other]
    more: bool


async def directory(store: Store, limit: int) -> Directory:
    """The newest of what `store` holds: at most `limit` sessions, and what other clients did last."""
    sessions = await store.sessions(limit=limit + 1)
    responses = await _kind(store, "response", "resp_", limit)
    conversations = await _kind(store, "conversation", "conv_", limit)
    theirs = await _theirs(store, responses)
    found = [*_chains(theirs, responses), *await _conversations(store, theirs, conversations, sessions)]
    return Directory(
        [await glance(store, session) for session in sessions[:limit]],
        sorted(found, key=lambda other: other.used_at, reverse=True),
        len(sessions) > limit or limit in (len(responses), len(conversations)),
    )


async def _kind(store: Store, kind: str, prefix: str, limit: int) -> Sequence[Found]:
    return [found for found in await store.find(prefix, limit=limit) if found.kind == kind]


async def _theirs(store: Store, responses: Sequence[Found]) -> Sequence[Link]:
    """The links among `responses` that no session made, newest first."""
    links = [await store.link(found.id) for found in responses]
    return [link for link in links if link is not None and link.session is None]


def _chains(links: Sequence[Link], responses: Sequence[Found]) -> list[Other]:
    """The ends of chains: what nothing went on from."""
    words = {found.id: found.words for found in responses}
    gone_on = {link.parent for link in links}
    ends = [link for link in links if link.id not in gone_on and link.conversation_id is None]
    return [Other(link.id, str(link.strategy), link.status, link.created_at, words[link.id]) for link in ends]


async def _conversations(
    store: Store, links: Sequence[Link], conversations: Sequence[Found], sessions: Sequence[Session]
) -> list[Other]:
    recorded = {session.handle for session in sessions}
    found: list[Other] = []
    for one in conversations:
        kept = None if one.id in recorded else await store.conversation(one.id)
        if kept is not None:
            last = next((link for link in links if link.conversation_id == one.id), None)
            status, at = (last.status, last.created_at) if last else ("", kept.created_at)
            found.append(Other(one.id, "conversation", status, at, one.words))
    return found


def as_list(found: Directory) -> dict[str, Json]:
    """The object that the inspector page gets; sessions as `convo sessions --json` has them."""
    others = [
        {
            "id": other.handle,
            "name": other.handle,
            "strategy": other.strategy,
            "status": other.status,
            "used_at": other.used_at,
            "first_words": other.words,
        }
        for other in found.others
    ]
    return {"sessions": [as_record(one) for one in found.sessions], "others": others, "more": found.more}
