"""The HTTP server: the Responses and Conversations API, and the inspector page.

Read `routes` (every route), `app` (one request) and `server` (the process).
"""
