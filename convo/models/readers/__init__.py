"""One reader for each protocol: parses the values of a server's stream, or its whole body.

`chat` and `messages` yield pieces, which `convo.models.answer` writes as events; `responses` yields events. Gateway,
chats, `tap` and recordings read with them.
"""
