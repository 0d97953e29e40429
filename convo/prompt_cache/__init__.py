"""Prompt caches of the vendors: what keeps a prefix, what a change of it loses, and what each item costs.

Nothing here sends or stores anything. What no source of a vendor states is unknown (None) or "may", never a guess.
"""
