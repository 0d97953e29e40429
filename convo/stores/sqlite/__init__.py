"""The default store: one SQLite file, one connection in one worker thread.

Read `migrations/0001_tree.sql` first, then `connection`, `tree` and `store`.
"""
