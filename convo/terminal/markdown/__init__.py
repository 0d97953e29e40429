"""Markdown rendered in a terminal while it streams.

Finished rows are printed once; only the last few open rows are redrawn. The result does not depend on how the
text was split into deltas, and each step reads only the open part of the text.
Read `stream` first (finished text, and the time of redraws), then `render` (blocks and inline text as rows).
"""
