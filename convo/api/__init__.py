"""The Python API: sessions of the store, states of the Agents SDK, and the gateway as an ASGI application.

`convo/__init__.py` has the public names; `.github/API.md` describes them.
"""
