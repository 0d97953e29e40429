"""Stateless models behind one seam: full input and parameters in, Responses events out.

Read `contract` first, then `stream` (how an adapter writes events in the right order), then one
adapter: `chat` with its three translations, `scripted`, or `local`, which is `chat` with a process
behind it. `foreign` puts what goes wrong outside into our words. `open` chooses the adapter by
provider and imports nothing else.
"""
