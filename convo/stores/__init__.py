"""Storage of sessions, histories and runs.

Read `base` first: it has the `Store` contract and the `Transaction` that every write is. `sqlite` is
the default, `memory` the same without a file, `postgres` the one for several machines. `factory` opens a
store by its URL.
"""
