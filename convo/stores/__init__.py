"""Histories on disk, or in memory, behind one seam.

Read `contract` first; `memory` is the shortest true store, `sqlite` the default, `postgres` the one
for many machines. `open` chooses by URL and imports nothing else.

What they share: `rules` (what every store decides alike), `forms` (records as rows), `verbatim`
(JSON as it is kept), `terms` (the words of a search), `leasing` (the right to write), `condition`
(what a place is like before it is opened) and `upkeep` (a whole database, across its tenants).
"""
