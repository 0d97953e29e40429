"""A store in PostgreSQL, for several processes and machines.

Read `migrations/0001_tree.sql` first, then `connection` and `commit`. No lock, setting or prepared statement
outlives a transaction, so the store works behind a transaction pooler.
"""
