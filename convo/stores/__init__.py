"""Histories on disk, or in memory, behind one seam.

Read `contract` first; `memory` is the shortest true store, `sqlite` the default, `postgres` the one
for many machines. `open` chooses by URL and imports nothing else.
"""
