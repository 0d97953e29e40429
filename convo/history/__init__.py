"""Conversation history: items, the tree they are stored in, sessions and links.

Read `tree` first (keys, nodes and paths), then `records` (strategy, session, link) and `items` (item types and texts).
"""
