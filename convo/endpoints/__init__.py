"""Responses and Conversations behind one seam, whoever keeps the state.

Read `contract` first; `remote` is the openai package against any base URL, `embedded` is convo's
own behaviour over a store and models. `open` chooses by provider, `late` puts it off. `errors` is an error as the API
writes it, `on_behalf` a model that a server asks with its own key.
"""
