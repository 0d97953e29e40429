"""Sessions and conversations as rows.

What queries ask for stands in columns, the rest of a session's record as JSON. A conversation's
row of ids is not written again with every item: only an id that the conversation itself gave is
kept, beside the node that it was given to.
"""

from collections.abc import Iterable, Mapping, Sequence

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
SELECT sessions.id, sessions.name, head.key, mark.key, written.key, links.id, sessions.used_at, sessions.record
FROM sessions
    JOIN nodes AS head ON head.n = sessions.head
    JOIN nodes AS mark ON mark.n = sessions.mark
    LEFT JOIN nodes AS written ON written.n = sessions.written
    LEFT JOIN links ON links.n = sessions.link
"""

WRITE = """
INSERT INTO sessions (tenant, id, name, head, mark, written, link, used_at, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET (name, head, mark, written, link, used_at, record, removed)
    = (excluded.name, excluded.head, excluded.mark, excluded.written, excluded.link, excluded.used_at,
    excluded.record, 0)
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
    newest_first = "WHERE sessions.tenant = ? ORDER BY sessions.used_at DESC, sessions.n DESC LIMIT ?"
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


def put_session(t: Tenant, new: Session) -> tuple[int, ...]:
    """Write a record; the nodes that it stood on before."""
    there = t.row("SELECT link, head, mark, written FROM sessions WHERE tenant = ? AND id = ?", t.n, new.id)
    t.run(
        WRITE,
        *(t.n, new.id, new.name, node(t, new.head), node(t, new.mark), node(t, new.written) if new.written else None),
        *(links.number(t, new.link), new.used_at, record_of(new)),
    )
    link, *nodes = there or (None,)
    if link is not None:
        drop_link(t, link)
    return tuple(n for n in nodes if n is not None)


def check_session(t: Tenant, new: Session, expected: rules.Expected) -> None:
    """Make sure that a record may be written. raises: Conflict"""
    head = t.one(
        "SELECT nodes.key FROM sessions JOIN nodes ON nodes.n = head WHERE sessions.tenant = ? AND id = ?", t.n, new.id
    )
    rules.expect(f"session {new.name!r}", expected, Key(head.hex()) if head else None)
    if t.one("SELECT 1 FROM sessions WHERE tenant = ? AND name = ? AND id <> ?", t.n, new.name, new.id):
        raise rules.name_taken(new.name)


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


def check_conversation(t: Tenant, new: Conversation, expected: rules.Expected) -> None:
    """Make sure that a conversation stands where it should. raises: Conflict"""
    key = t.one(
        "SELECT nodes.key FROM conversations JOIN nodes ON nodes.n = head WHERE conversations.tenant = ? AND id = ?",
        *(t.n, new.id),
    )
    rules.expect(new.id, expected, Key(key.hex()) if key else None)


def put_conversation(t: Tenant, new: Conversation) -> tuple[int, ...]:
    """Write a conversation and the ids it gave; the node that its head stood on before."""
    there = t.row("SELECT n, head, length FROM conversations WHERE tenant = ? AND id = ?", t.n, new.id)
    head = node(t, new.head)
    n, old, length = there or (_make(t, new, head), NOWHERE, 0)
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
