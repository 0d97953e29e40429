"""The four state strategies: the input of a request, and the state after a response.

Read `strategy` first: `ConversationState`, and one class for each strategy, which has everything that depends on the
owner. `selection` decides the owner from flags and handles, `requests` builds the body and decides about retries,
`branching` undoes and rewinds, `conversion` decides which items another owner can receive. Pure: no I/O.
"""
