"""Stateless models behind one seam: full input and parameters in, Responses events out.

Read `contract` first, then `stream` (how an adapter writes events in the right order), then one
adapter: `chat` with its translations (`chat_request`, `chat_messages`, `chat_chunks`), `anthropic`
with its own (`anthropic_request`, `anthropic_messages`, `anthropic_thinking`, `anthropic_events`),
`responses`, which has little to translate (`responses_request`, `responses_events`), `scripted`, or
`local`, which is `chat` with a process behind it. All of them share `turns` (a history as two sides
that take turns), `sealed` (who is given whose reasoning), `account` (who asks where), `line` (how a
stream is asked for and read), `catalogue` (which models a server has) and `foreign`, which puts
what goes wrong outside into our words. `open` chooses the adapter by provider and imports nothing
else.
"""
