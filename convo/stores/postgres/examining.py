"""What a server, a database and a role are like: one look each, nothing is changed.

The catalogue is asked and not the tables, so that whoever lacks a right to them is told which one.
"""

from convo.errors import StoreTooNew
from convo.stores.condition import ServerCondition
from convo.stores.postgres import schema
from convo.stores.postgres.database import Database
from convo.stores.postgres.tenant import Connection, Row

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

WAIT_S = 4.0
"""How long a server has to let somebody in."""

ROLE = """
SELECT current_user, has_database_privilege(current_database(), 'CREATE'),
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'
"""

TABLES = """
SELECT has_schema_privilege(pg_namespace.oid, 'USAGE'),
    pg_class.oid IS NOT NULL, coalesce(has_table_privilege(pg_class.oid, 'SELECT'), false)
FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = 'migrations'
WHERE nspname = 'convo'
"""

LACKED = """
SELECT privilege FROM unnest($1::text[]) privilege WHERE EXISTS (
    SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'convo' AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'migrations'
    AND NOT has_table_privilege(pg_class.oid, privilege))
"""


async def examine(url: str) -> ServerCondition:
    """raises: StoreFault  nobody is let in, or a newer convo made the tables"""
    database = Database(url, wait_s=WAIT_S)
    async with database.alone() as db:
        return await _examined(db, database.place)


async def _examined(db: Connection, place: str) -> ServerCondition:
    role, may_create, read_only = await _row(db, ROLE) or ("", False, False)
    usage, migrated, readable = await _row(db, TABLES) or (True, False, False)
    found = await schema.applied(db) if usage and readable else None if migrated else 0
    if found is not None and found > schema.SCHEMA:
        raise StoreTooNew(place, found, schema.SCHEMA)
    lacking = [] if usage else ["USAGE"]
    if migrated:
        lacking += [row[0] for row in await (await db.execute(LACKED, (list(RIGHTS),))).fetchall()]
    return ServerCondition(
        place=place,
        version=db.info.server_version,
        role=role,
        schema=found,
        known=schema.SCHEMA,
        may_create=may_create,
        lacking=lacking,
        read_only=read_only,
        tls=db.pgconn.ssl_in_use,
    )


async def _row(db: Connection, sql: str) -> Row | None:
    return await (await db.execute(sql)).fetchone()
