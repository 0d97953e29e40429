"""Endpoints: one protocol for the Responses and Conversations API, local or remote.

Read `base` first: what an endpoint promises. `remote` speaks to a server; `convo.responses_api` is the local one.
"""
