"""What a migration works out from rows that were there before it."""

import sqlite3

from convo.stores import rules
from convo.stores.sqlite import names
from convo.stores.sqlite.tenant import Tenant
from convo.stores.verbatim import loads


def of_2(db: sqlite3.Connection) -> None:
    """What has a name that must be found."""
    for (name,) in db.execute("SELECT name FROM tenants").fetchall():
        t = Tenant.known(db, name)
        for n, body in t.all("SELECT n, body FROM items WHERE tenant = ?", t.n):
            names.put(t, rules.own_id(loads(body)), n)
        for node, item in t.all("SELECT n, item FROM members JOIN nodes ON n = node WHERE members.tenant = ?", t.n):
            if item is not None:
                names.put_given(t, node, item)
        for n, body in t.all("SELECT n, body FROM repeated WHERE n IN (SELECT route FROM links WHERE tenant = ?)", t.n):
            names.put_route(t, loads(body), n)


FILLS = {2: of_2}
"""What is done behind the statements of a migration, by its number."""
