"""The four state strategies: what a request sends, and what a response changes.

Read `state` first (`ConversationState` and `RequestInput`), then `requests`. Pure functions over frozen values: no I/O.
"""
