"""Taking records out, and what only they held.

All in one transaction; what is left of it in the file's bytes is the business of `traces`.
"""

from collections.abc import Iterable

from convo.errors import NotFound
from convo.stores.sqlite import names, runs, traces
from convo.stores.sqlite.records import unname
from convo.stores.sqlite.tenant import Tenant, asked
from convo.stores.sqlite.tree import collect
from convo.stores.verbatim import loads

UNNEEDED = """
WITH RECURSIVE chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, links.saw, links.head FROM links JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND links.saw IS NOT NULL AND sessions.removed AND links.n NOT IN (SELECT n FROM chained)
"""
"""The links of removed sessions that no session's chain passes through."""

NAMES_OF_LINKS = """
DELETE FROM links WHERE tenant = ? AND saw IS NULL
    AND NOT EXISTS (SELECT 1 FROM links AS children WHERE children.parent = links.n)
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.link = links.n)
"""

NAMES_OF_SESSIONS = """
DELETE FROM sessions WHERE tenant = ? AND record IS NULL
    AND NOT EXISTS (SELECT 1 FROM links WHERE links.session = sessions.n)
"""

REPEATED = """
DELETE FROM repeated WHERE tenant = ? AND n NOT IN (
    SELECT route FROM links WHERE route IS NOT NULL UNION SELECT parameters FROM links WHERE parameters IS NOT NULL)
RETURNING n, body
"""


def remove_session(t: Tenant, session_id: str) -> None:
    """Take a session and the links that only it needs. raises: NotFound"""
    found = t.row(
        "SELECT n, head, mark, written FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL",
        *(t.n, asked(session_id)),
    )
    if found is None:
        raise NotFound("session", session_id)
    forget_session(t, found[0])
    unneeded = t.db.execute(UNNEEDED, {"tenant": t.n}).fetchall()
    for link, _, _ in unneeded:
        forget_link(t, link)
    tidy(t, [*found[1:], *(n for link in unneeded for n in link[1:])])


def remove_link(t: Tenant, link_id: str) -> None:
    """Take one link. raises: NotFound"""
    found = t.row("SELECT n, saw, head FROM links WHERE tenant = ? AND id = ? AND saw IS NOT NULL", t.n, asked(link_id))
    if found is None:
        raise NotFound("response", link_id)
    forget_link(t, found[0])
    tidy(t, found[1:])


def remove_conversation(t: Tenant, conversation_id: str) -> None:
    """Take a conversation and the ids it gave. raises: NotFound"""
    found = t.row("SELECT n, head FROM conversations WHERE tenant = ? AND id = ?", t.n, asked(conversation_id))
    if found is None:
        raise NotFound("conversation", conversation_id)
    forget_conversation(t, *found)
    tidy(t, found[1:])


def forget_session(t: Tenant, session: int) -> None:
    """Leave of a session its id, which links may hold."""
    t.run(
        "UPDATE sessions SET (name, head, mark, written, link, used_at, record, removed)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE n = ?",
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


def tidy(t: Tenant, nodes: Iterable[int | None]) -> None:
    """Take what nothing stands on any more."""
    collect(t, [n for n in nodes if n is not None])
    for unused in (NAMES_OF_LINKS, NAMES_OF_SESSIONS):
        t.run(unused, t.n)
    for n, body in t.all(REPEATED, t.n):
        if isinstance(route := loads(body), list):
            names.drop_route(t, route, n)
    traces.note(t.db)
