"""One reader for each protocol: from the values of a server's stream, or its whole body, to what they say.

`chat` and `messages` yield pieces, which `convo.models.answer` writes as events; `responses` yields events. Gateway,
chats, `tap` and recordings read with them.
"""
