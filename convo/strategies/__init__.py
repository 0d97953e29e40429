"""The four state strategies: the input of a request, and the state after a response.

Read `state` first (`ConversationState` and `RequestInput`), then `requests`. Pure functions over frozen values: no I/O.
"""
