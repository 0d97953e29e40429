"""Storage of sessions, histories and runs.

Read `base` first: it has the `Store` contract and the `Transaction` that every write is. `memory` is the
shortest implementation, `sqlite` the default, `postgres` the one for several machines. `factory` opens a
store by its URL.
"""
