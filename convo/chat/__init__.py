"""A conversation: open it, run a turn, look it up, preview the next request.

Read `conversation` for the operations on an open conversation and `turn` for one request and its
response; `session_record` commits both.
`endpoint_factory` opens the endpoint of a provider.
"""
