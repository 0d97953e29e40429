"""Sessions and conversations as rows.

What queries ask for stands in columns, the rest of a session's record as JSON. A conversation's
row of ids is not written again with every item: only an id that the conversation itself gave is
kept, beside the node that it was given to.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from convo.errors import NotFound
from convo.history import Key, Session
from convo.stores import rules
from convo.stores.contract import Conversation, Outline
from convo.stores.forms import record_of, session_of
from convo.stores.sqlite import links, names
from convo.stores.sqlite.tenant import Row, Tenant, asked
from convo.stores.sqlite.tree import NOWHERE, decoded, item, node
from convo.stores.sqlite.unneeded import drop_link
from convo.stores.verbatim import dumps, loads

SESSIONS = """
SELECT sessions.id, sessions.name, head.key, mark.key, written.key, links.id, sessions.used_at, sessions.record,
    sessions.used
FROM sessions
    JOIN nodes AS head ON head.n = sessions.head
    JOIN nodes AS mark ON mark.n = sessions.mark
    LEFT JOIN nodes AS written ON written.n = sessions.written
    LEFT JOIN links ON links.n = sessions.link
"""

RECORDED = """
SELECT sessions.n, head.key, links.id, links.saw IS NULL, sessions.name, sessions.head, mark, written, sessions.link,
    used_at, used
FROM sessions
    JOIN nodes AS head ON head.n = sessions.head
    LEFT JOIN links ON links.n = sessions.link
WHERE sessions.tenant = ? AND sessions.id = ?
"""

USED_LAST = "SELECT coalesce(max(used), 0) FROM sessions WHERE tenant = ? AND id <> ?"

CALLED_SO = "SELECT 1 FROM sessions WHERE tenant = ? AND name = ? AND id <> ?"

STANDING = """
SELECT conversations.n, head, length, key FROM conversations JOIN nodes ON nodes.n = head
WHERE conversations.tenant = ? AND id = ?
"""

MEMBERS = """
WITH RECURSIVE up (n, parent, item, erased) AS (
    SELECT n, parent, item, erased FROM nodes WHERE n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, nodes.erased FROM up JOIN nodes ON nodes.n = up.parent WHERE up.n <> ?
)
SELECT up.n, members.id, up.erased, CASE WHEN members.id IS NULL THEN items.body END,
    up.item
FROM up LEFT JOIN items ON items.n = up.item
    LEFT JOIN members ON members.conversation = ? AND members.node = up.n
"""
"""The nodes from a head back to another one or to the root, both included, and what names each."""

BACK = """
WITH RECURSIVE up (n, parent) AS (
    SELECT n, parent FROM nodes WHERE n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent FROM up JOIN nodes ON nodes.n = up.parent
)
SELECT n FROM up
"""
"""The nodes from a head back to the root, without what stands in them."""


# -- sessions -------------------------------------------------------------------------------------


def session(t: Tenant, name_or_id: str) -> Session | None:
    by_id = t.row(SESSIONS + "WHERE sessions.tenant = ? AND sessions.id = ?", t.n, asked(name_or_id))
    found = by_id or t.row(SESSIONS + "WHERE sessions.tenant = ? AND sessions.name = ?", t.n, asked(name_or_id))
    return session_of(found) if found else None


def numbered_session(t: Tenant, n: int) -> Session:
    """The session whose row is number `n`."""
    found = t.row(SESSIONS + "WHERE sessions.n = ?", n)
    assert found is not None
    return session_of(found)


def sessions(t: Tenant, limit: int | None) -> Sequence[Session]:
    newest_first = "WHERE sessions.tenant = ? ORDER BY used DESC NULLS FIRST, used_at DESC, sessions.n DESC LIMIT ?"
    return [session_of(row) for row in t.all(SESSIONS + newest_first, t.n, -1 if limit is None else limit)]


def outline(t: Tenant, session_id: str) -> Outline:
    """A session in figures. raises: NotFound"""
    found = t.row(
        "SELECT n, head, mark FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL", t.n, asked(session_id)
    )
    if found is None:
        raise NotFound("session", session_id)
    n, head, mark = found
    *back, _ = [number for (number,) in t.all(BACK, head)]
    answered = "SELECT count(*) FROM links WHERE session = ? AND status IN (?, ?)"
    return Outline(
        items=len(back),
        waiting=back.index(mark) if mark in back else len(back),
        turns=t.one(answered, n, *rules.ANSWERED),
        first=item(t, back[-1]) if back else None,
    )


class Recorded(NamedTuple):
    """The row of a session's record, as a change finds it.

    key:   of the node at its head
    link:  the number of its link, whose id is `linked`; `bare` where nothing else is known of that one
    """

    n: int
    key: bytes
    linked: str | None
    bare: bool
    name: str
    head: int
    mark: int
    written: int | None
    link: int | None
    used_at: float
    used: int | None


def check_session(t: Tenant, new: Session, expected: rules.Expected) -> Recorded | None:
    """The record that is there, if `new` may be written over it. raises: Conflict"""
    found = t.row(RECORDED, t.n, new.id)
    there = Recorded(*found) if found else None
    rules.expect(f"session {new.name!r}", expected, Key(there.key.hex()) if there else None)
    if not (there and there.name == new.name) and t.one(CALLED_SO, t.n, new.name, new.id):
        raise rules.name_taken(new.name)
    if there:
        t.numbers["sessions", new.id] = there.n
        t.numbers["nodes", there.key.hex()] = there.head
    if there and there.linked is not None and there.link is not None:
        t.numbers["links", there.linked] = there.link
    return there


def put_session(t: Tenant, new: Session, there: Recorded | None) -> tuple[int, ...]:
    """Write a record over the one that `check_session` found; the nodes that it stood on before."""
    row: dict[str, object] = {
        "name": new.name,
        "head": node(t, new.head),
        "mark": node(t, new.mark),
        "written": node(t, new.written) if new.written else None,
        "link": links.number(t, new.link),
        "used_at": new.used_at,
        "used": _place(t, new, there),
        "record": record_of(new),
    }
    if there is None:
        n = t.number("sessions", new.id)
        if n is None:
            t.insert("sessions", new.id, row)
        else:  # only a name so far, or again
            t.update("sessions", n, {**row, "removed": 0}, {})
        return ()
    t.update("sessions", there.n, row, _columns(there))
    if there.link is not None and there.bare:
        drop_link(t, there.link)
    return tuple(n for n in (there.head, there.mark, there.written) if n is not None)


def _columns(there: Recorded) -> dict[str, object]:
    """The columns of a session's row as they are."""
    return {
        "name": there.name,
        "head": there.head,
        "mark": there.mark,
        "written": there.written,
        "link": there.link,
        "used_at": there.used_at,
        "used": there.used,
    }


def _place(t: Tenant, new: Session, there: Recorded | None) -> int | None:
    """The place of a session among the last used: its own where it has one, else the last when `new` is a use of it."""
    if new.use is not None:
        return new.use
    if there and there.used_at == new.used_at:
        return there.used
    others: int = t.one(USED_LAST, t.n, new.id)
    return there.used if there and there.used is not None and there.used > others else others + 1


# -- conversations --------------------------------------------------------------------------------


def conversation(t: Tenant, conversation_id: str) -> Conversation | None:
    found = t.row(
        "SELECT conversations.n, nodes.n, nodes.key, created_at, metadata FROM conversations"
        " JOIN nodes ON nodes.n = head WHERE conversations.tenant = ? AND id = ?",
        *(t.n, asked(conversation_id)),
    )
    if found is None:
        return None
    n, head, key, created_at, metadata = found
    rows = t.all(MEMBERS, head, NOWHERE, n)[-2::-1]
    own = iter(decoded([body for _, _, _, body, _ in rows if body is not None]))
    ids = tuple(rules.own_id(next(own)) if body is not None else given or erased for _, given, erased, body, _ in rows)
    return Conversation(conversation_id, Key(key.hex()), created_at, ids, _metadata(metadata))


def _metadata(text: str) -> Mapping[str, str]:
    found: dict[str, str] = loads(text)
    return found


class Standing(NamedTuple):
    """The row of a conversation, as a change finds it; `length` counts the items up to its head, which is at `key`."""

    n: int
    head: int
    length: int
    key: bytes


def check_conversation(t: Tenant, new: Conversation, expected: rules.Expected) -> Standing | None:
    """The conversation that is there, if it stands where it should. raises: Conflict"""
    found = t.row(STANDING, t.n, new.id)
    there = Standing(*found) if found else None
    rules.expect(new.id, expected, Key(there.key.hex()) if there else None)
    if there:
        t.numbers["nodes", there.key.hex()] = there.head
    return there


def put_conversation(t: Tenant, new: Conversation, there: Standing | None) -> tuple[int, ...]:
    """Write a conversation over the one that was found, and the ids it gave; the node that its head stood on before."""
    head = node(t, new.head)
    n, old, length, _ = there or (_make(t, new, head), NOWHERE, 0, b"")
    rows = t.all(MEMBERS, head, old, n)
    if rows[-1][0] == old:  # the head moved on, or stayed
        behind = rows[-2::-1]
    else:
        behind, length = rows[-2::-1], 0
        unname(t, n, old)
    rules.check_ids(new, length + len(behind))
    t.run(
        "UPDATE conversations SET head = ?, length = ?, created_at = ?, metadata = ? WHERE n = ?",
        *(head, len(new.ids), new.created_at, dumps(dict(new.metadata)), n),
    )
    _name(t, n, behind, new.ids[length:])
    return (old,) if there else ()


def unname(t: Tenant, conversation: int, head: int) -> None:
    """Forget the ids that a conversation gave to the items on its path."""
    for n, given, _, _, kept in t.all(MEMBERS, head, NOWHERE, conversation):
        if given is not None:
            t.run("DELETE FROM members WHERE node = ? AND conversation = ?", n, conversation)
            names.drop(t, given, kept)


def _make(t: Tenant, new: Conversation, head: int) -> int:
    return t.add(
        "INSERT INTO conversations (tenant, id, head, length, created_at, metadata) VALUES (?, ?, ?, 0, ?, '')",
        *(t.n, new.id, head, new.created_at),
    )


def _name(t: Tenant, conversation: int, nodes: Iterable[Row], ids: Iterable[str]) -> None:
    """Keep the ids that the items at `nodes` do not have themselves."""
    for (n, _, erased, body, kept), item_id in zip(nodes, ids, strict=True):
        rules.check_name(item_id)
        if item_id != (rules.own_id(loads(body)) if body else erased):
            t.run(
                "INSERT INTO members (tenant, conversation, node, id) VALUES (?, ?, ?, ?)",
                t.n,
                conversation,
                n,
                item_id,
            )
            if kept is not None:
                names.put(t, item_id, kept)
