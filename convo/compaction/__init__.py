"""Compaction: replace a history by a shorter one without losing what the next turn needs.

Read `window` first (where a history may be cut, and what the model is shown), then `planning`. No I/O.
"""
