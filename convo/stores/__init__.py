"""Histories on disk, or in memory, behind one seam.

Read `contract` first; `memory` is the shortest true store, `sqlite` the default. `open` chooses
by URL and imports nothing else.
"""
