"""Stateless models behind one seam: full input and parameters in, Responses events out.

Read `contract` first, then `stream` (how an adapter writes events in the right order), then one
adapter. `open` chooses the adapter by provider and imports nothing else.
"""
