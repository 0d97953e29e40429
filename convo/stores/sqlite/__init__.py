"""The default store: one SQLite file, one connection in one thread.

Read `migrations/0001_tree.sql` first, then `tree` (items and nodes), `links` and `records` (what
stands on them), `changing` (one change, one transaction), `names` (items by their ids), `runs`, `agents` and
`searching`; `removing`, `pruning` and `unneeded` take away. `database` is the connection and its
thread, `schema` how a file comes to be ours, `faults` what can go wrong with it. `store` is the
contract over all of these, `upkeep` what concerns every tenant.
"""

from convo.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
