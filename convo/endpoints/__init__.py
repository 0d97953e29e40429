"""Endpoints: one protocol for the Responses and Conversations API, local or remote.

Read `base` first, the contract of an endpoint. `remote` uses a server; `convo.responses_api` is the local endpoint.
"""
