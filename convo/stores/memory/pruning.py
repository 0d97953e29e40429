"""What is old enough to go.

It is chosen whole before the first of it goes, so that a dry run says what a real one does.
"""

from collections.abc import Iterator
from typing import NamedTuple

from convo.history import Link, Session
from convo.stores.contract import Conversation
from convo.stores.memory.tenant import Tenant
from convo.stores.upkeep import Pruned


class Old(NamedTuple):
    """What a pruning takes, by id."""

    sessions: list[str]
    links: list[str]
    conversations: list[str]


def prune(mine: Tenant, before: float, *, dry: bool) -> Pruned:
    """Take what was last used before this moment; only count it when `dry`."""
    old = _old(mine, before)
    if not dry:
        for take, names in zip((mine.take_session, mine.take_link, mine.take_conversation), old, strict=True):
            for name in names:
                take(name)
        mine.tidy()
    return Pruned(*map(len, old))


def _old(mine: Tenant, before: float) -> Old:
    running = [mine.links[name] for name in mine.runs.open()]
    kept = [one for one in mine.sessions.values() if one.used_at >= before or _made(one, running)]
    return Old(
        [name for name in mine.sessions if name not in {session.id for session in kept}],
        list(_links(mine, before, kept)),
        [one.id for one in mine.conversations.values() if not _lives(one, mine, before, kept)],
    )


def _made(session: Session, links: list[Link]) -> bool:
    return any(link.session == session.id for link in links)


def _links(mine: Tenant, before: float, kept: list[Session]) -> Iterator[str]:
    """The links that nobody holds: those of sessions that went or go, and old ones that no session made."""
    holders, held = {session.id for session in kept}, {*mine.chained(kept), *mine.runs.open()}
    for link in mine.links.values():
        orphan = link.session in mine.removed or link.session in mine.sessions or link.created_at < before
        if link.session not in holders and link.id not in held and orphan:
            yield link.id


def _lives(one: Conversation, mine: Tenant, before: float, kept: list[Session]) -> bool:
    """Whether a session holds a conversation, or it was made or answered since, or is answered now."""
    running = mine.runs.open()
    answered = (link for link in mine.links.values() if link.conversation_id == one.id)
    return (
        one.created_at >= before
        or one.id in {session.handle for session in kept}
        or any(link.created_at >= before or link.id in running for link in answered)
    )
