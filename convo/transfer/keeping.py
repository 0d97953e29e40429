"""A document becomes a session of this store: the other half of an export.

The session is owned by the local store, whoever owned the conversation where it came from. Links come
along where the store has none of their ids, so that what a file says never replaces what is known.

The session's id follows from the document and the requested name. So an import that was killed, or one that is
made once a week, makes only the sessions that are missing, and two at once make each session once.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from os.path import commonprefix

from convo.engine.naming import fit, name_for
from convo.errors import InputFault, ItemDeleted, Unreadable, Usage
from convo.history import Link, Path, Scope, Session, Strategy, root
from convo.inspection.document import Document, link_of
from convo.items import user
from convo.stores.contract import Store
from convo.transfer.beside import Beside


@dataclass(frozen=True, slots=True)
class Answers:
    """Who answers in a conversation that was read from a file, unless the file says which model."""

    model: str
    scope: Scope


async def keep(document: Document, answers: Answers, beside: Beside, name: str | None = None) -> Session:
    """Store `document` as a new session.

    name:    None takes the one in the file, or its first words, with a number where it is taken
    raises:  Conflict  `name` is taken, or another process imports the same;  StoreFault
             Unreadable  an item or link cannot be kept
    """
    session_id, now = session_id_of(document, name, beside.store.tenant), beside.clock.now()
    there = await beside.store.session(session_id)
    if there and name is not None and there.name != name:
        session_id = beside.new_id("ses")  # that import was renamed since, and its name is asked for again
    path = Path(root(beside.store.tenant)).grow(document.items)
    links = await _new(document, path, session_id, beside)
    session = Session(
        id=session_id,
        name=name or wish(document),
        strategy=Strategy.SESSION,
        model=document.model or answers.model,
        head=path.head,
        mark=path.first(document.acknowledged).head,
        created_at=now if document.created_at is None else document.created_at,
        used_at=now,
        scope=answers.scope,
        instructions=document.instructions,
    )
    return await beside.write(session, path, name, links)


def session_id_of(document: Document, name: str | None, tenant: str) -> str:
    """The id that an import of `document` under the requested name gives its session."""
    head = Path(root(tenant)).grow(document.items).head
    own = [document.acknowledged, document.name, document.model, document.instructions, document.created_at]
    parts = [str(head), *own, [dict(link) for link in document.links], name]
    return f"ses_{sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


async def came_before(documents: Sequence[Document], store: Store, name: str | None = None) -> list[Session | None]:
    """For each document the session that it became before, also where that was continued since; else None.

    name:  the one requested for the only document; a session that is called otherwise is another one
    """
    found = [await store.session(session_id_of(one, name, store.tenant)) for one in documents]
    if name is not None:
        return [one if one and one.name == name else None for one in found]
    if len(documents) == 1:
        return list(found)
    begun: dict[float | None, list[Session]] = {}
    for session in await store.sessions():
        if session.strategy is Strategy.SESSION:
            begun.setdefault(session.created_at, []).append(session)
    return [
        there or await _same(begun.get(one.created_at, ()), one, store)
        for one, there in zip(documents, found, strict=True)
    ]


async def _same(sessions: Iterable[Session], document: Document, store: Store) -> Session | None:
    head = Path(root(store.tenant)).grow(document.items).head
    for session in sessions:
        with suppress(ItemDeleted):
            if session.head == head or (await store.path(session.head)).passes(head):
                return session
    return None


def wish(document: Document) -> str:
    """The name that a document asks for, as a session can have it."""
    if document.name is not None:
        try:
            return fit(document.name)
        except Usage:
            return name_for(user(document.name))
    return name_for(document.items[0]) if document.items else "chat"


async def _new(document: Document, path: Path, session_id: str, beside: Beside) -> list[Link]:
    """The links that the store does not have. raises: Unreadable"""
    try:
        links = [link_of(found, path, session_id) for found in document.links]
    except InputFault as wrong:
        raise Unreadable(wrong.message) from wrong
    common = commonprefix([link.id for link in links])  # noqa: RUF071  ids are compared sign by sign
    if not links or not await beside.store.find(common, limit=1):
        return links
    return [link for link in links if await beside.store.link(link.id) is None]
