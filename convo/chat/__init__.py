"""A conversation: open it, run a turn, look it up, preview the next request.

Read `conversation` for what can be done with an open one and `turn` for one request and its
response; `session_record` commits both.
`endpoint_factory` opens the endpoint of a provider.
"""
