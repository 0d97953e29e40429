"""The embedded endpoint over HTTP.

In reading order: `routes` (every route, as data), `responses`, `conversations` and `standing` (what
each does), `asked` (what a handler gets and gives), `application` (the way of one request),
`exchange` (its messages), `relaying` (events as they come), `documents` and `queries` (how it is
read), `refusals` (what is wrong with it), `keys` and `callers` (who may ask), `metrics`, `protocol`
and `serving` (the socket). Beside it stand `websocket`, `websocket_messages` and
`websocket_protocol` (many turns over one connection), `openapi` with its `schemas` (the document
that describes all this), and `page`, the inspector in a browser: `inspecting` is what it is told,
`going` knows the answers that are being given.
"""
