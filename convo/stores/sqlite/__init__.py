"""The default store: one SQLite file, one connection in one thread.

Read `migrations/0001_tree.sql` first, then `tree` (items and nodes), `links` and `records` (what
stands on them), `changing` (one change, one transaction), `names` (items by their ids), `runs`,
`agents` and `searching`; `removing`, `pruning` and `unneeded` take away, and `traces` is what that
leaves. `database` is the connection, `lane` its thread, `tenant` one tenant's rows, `leases` the
right to write, `schema` how a file comes to be ours, with what `filling` works out from older rows;
`faults` is what can go wrong, `examining` what a file is like. `store` is the contract over all of
these, `upkeep` what concerns every tenant.
"""

from convo.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
