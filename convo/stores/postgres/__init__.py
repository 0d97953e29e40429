"""One PostgreSQL for many machines.

Read `migrations/0001_tree.sql` first, then `planning` (what a change would make, decided without
the database), `looking` (what the database has to say about it) and `changing` (one change, one
transaction, two round trips). `tree`, `links`, `records`, `runs`, `agents` and `searching` read,
`removing`, `pruning` and `collecting` take away; `bodies` and `names` are values as columns hold
them. `database` is the pool and its transactions, `tenant` one connection with one tenant's eyes,
`leases` the right to write, `schema` how the tables come to be; `faults` is what can go wrong,
`reaching` why nobody answers, `examining` what a server is like. `store` and `upkeep` are the
contract over all of these.

Nothing here holds a lock, a setting or a prepared statement longer than a transaction, so a pooler
that hands a connection to somebody else after each one may stand in between.
"""

from convo.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
