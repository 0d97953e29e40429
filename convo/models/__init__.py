"""Model adapters: one stateless interface, full input in, Responses events out.

Read `base` first (the `Model` protocol), then `stream` (how an adapter writes events), `tool_mapping` (tools for models
that know only functions) and one adapter, `chat_completions`. `factory` imports only the adapter that a provider needs.
"""
