"""Views of a conversation as values: tree, token use, cost, diff, redaction, JSON.

Read `view` first: `ConversationView` holds everything that was read about one handle; every screen and
JSON document is made from it.
"""
