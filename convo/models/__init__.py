"""Stateless models behind one seam: full input and parameters in, Responses events out.

Read `contract` first, then `stream` (how an adapter writes events in the right order), then one
adapter: `chat` with its translations, `anthropic` with its own, `responses`, which has little to
translate, `scripted`, or `local`, which is `chat` with a process behind it. All of them share
`turns` (a history as two sides that take turns), `sealed` (who is given whose reasoning), `account`
(who asks where) and `foreign`, which puts what goes wrong outside into our words. `open` chooses
the adapter by provider and imports nothing else.
"""
