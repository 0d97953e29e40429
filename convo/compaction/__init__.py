"""Compaction: replace a history by a shorter one that keeps the information for the next turn.

Read `window` first (cut points and the model's input), then `planning`. No I/O.
"""
