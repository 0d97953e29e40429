"""What a row is for that only others name, and when it goes.

A link that was removed leaves its name while children or a session hold it, and so does a session
while links do; a route or parameters stay while a call has them. Each is looked at when somebody
lets go of it, and costs the same however much is kept.
"""

from convo.stores.sqlite import names
from convo.stores.sqlite.tenant import Tenant
from convo.stores.verbatim import loads

LINK = """
DELETE FROM links WHERE n = ? AND saw IS NULL
    AND NOT EXISTS (SELECT 1 FROM links AS children WHERE children.parent = links.n)
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.link = links.n)
"""

SESSION = """
DELETE FROM sessions WHERE n = ? AND record IS NULL
    AND NOT EXISTS (SELECT 1 FROM links WHERE links.session = sessions.n)
"""

REPEATED = """
DELETE FROM repeated WHERE n = ?
    AND NOT EXISTS (SELECT 1 FROM links WHERE route = repeated.n)
    AND NOT EXISTS (SELECT 1 FROM links WHERE parameters = repeated.n)
RETURNING body
"""


def drop_link(t: Tenant, n: int) -> None:
    """Take a link that is only a name, if nobody holds it."""
    t.delete(LINK, n)


def drop_session(t: Tenant, n: int) -> None:
    """Take a session that is only a name, if nobody holds it."""
    t.delete(SESSION, n)


def drop_repeated(t: Tenant, n: int) -> None:
    """Take a route or parameters that no call has."""
    for (body,) in t.all(REPEATED, n):
        if isinstance(route := loads(body), list):
            names.drop_route(t, route, n)


def drop_held(t: Tenant, parent: int | None, session: int | None, *repeated: int | None) -> None:
    """Take of what a link held that which nobody else does."""
    if parent is not None:
        drop_link(t, parent)
    if session is not None:
        drop_session(t, session)
    for n in repeated:
        if n is not None:
            drop_repeated(t, n)
