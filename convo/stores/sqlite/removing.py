"""Taking records out, and what only they held.

All in one transaction; what is left of it in the file's bytes is the business of `traces`.
"""

from collections.abc import Sequence
from typing import TypeAlias

from convo.errors import NotFound
from convo.stores.sqlite import agents, runs, traces
from convo.stores.sqlite.records import unname
from convo.stores.sqlite.tenant import Row, Tenant, asked
from convo.stores.sqlite.tree import collect
from convo.stores.sqlite.unneeded import drop_held, drop_link, drop_session

Rows: TypeAlias = Sequence[Row]

UNNEEDED = """
WITH RECURSIVE chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, saw, links.head, parent, session, route, parameters
FROM links JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND saw IS NOT NULL AND sessions.removed AND links.n NOT IN (SELECT n FROM chained)
"""
"""The links of removed sessions that no session's chain passes through."""

LINK = """
SELECT n, saw, head, parent, session, route, parameters FROM links WHERE tenant = ? AND id = ? AND saw IS NOT NULL
"""

SESSION = """
SELECT n, link, head, mark, written FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL
"""


def remove_session(t: Tenant, session_id: str) -> None:
    """Take a session and the links that only it needs. raises: NotFound"""
    found = t.row(SESSION, t.n, asked(session_id))
    if found is None:
        raise NotFound("session", session_id)
    forget_session(t, found[0])
    unneeded = t.db.execute(UNNEEDED, {"tenant": t.n}).fetchall()
    for link, *_ in unneeded:
        forget_link(t, link)
    tidy(t, sessions=[found], links=unneeded)


def remove_link(t: Tenant, link_id: str) -> None:
    """Take one link. raises: NotFound"""
    found = t.row(LINK, t.n, asked(link_id))
    if found is None:
        raise NotFound("response", link_id)
    forget_link(t, found[0])
    tidy(t, links=[found])


def remove_conversation(t: Tenant, conversation_id: str) -> None:
    """Take a conversation and the ids it gave. raises: NotFound"""
    found = t.row("SELECT n, head FROM conversations WHERE tenant = ? AND id = ?", t.n, asked(conversation_id))
    if found is None:
        raise NotFound("conversation", conversation_id)
    forget_conversation(t, *found)
    tidy(t, conversations=[found])


def forget_session(t: Tenant, session: int) -> None:
    """Leave of a session its id, which links may hold."""
    agents.drop(t, session)
    t.run(
        "UPDATE sessions SET (name, head, mark, written, link, used_at, used, record, removed)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE n = ?",
        session,
    )


def forget_conversation(t: Tenant, conversation: int, head: int) -> None:
    unname(t, conversation, head)
    t.run("DELETE FROM conversations WHERE n = ?", conversation)


def forget_link(t: Tenant, link: int) -> None:
    """Leave of a link its name, which its children may hold."""
    runs.drop(t.db, link)
    t.run(
        "UPDATE links SET (parent, session, saw, head, sent, route, status, created_at, previous, seconds,"
        " first_token_s, parameters, usage, error)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) WHERE n = ?",
        link,
    )


def tidy(t: Tenant, *, sessions: Rows = (), links: Rows = (), conversations: Rows = ()) -> None:
    """Take what nothing stands on any more, once these were forgotten.

    sessions:       number, link, head, mark, written
    links:          number, saw, head, parent, session, route, parameters
    conversations:  number, head
    """
    stood = [n for _, _, *nodes in sessions for n in nodes if n is not None]
    collect(t, [*stood, *(n for link in links for n in link[1:3]), *(head for _, head in conversations)])
    for n, _, _, *held in links:
        drop_held(t, *held)
        drop_link(t, n)
    for n, link, *_ in sessions:
        drop_session(t, n)
        if link is not None:
            drop_link(t, link)
    traces.note(t.db)
