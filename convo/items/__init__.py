"""What was said: items of the Responses API, exactly as they travelled.

Read `shapes` for what travels, `canonical` for how an item is named, `kinds` for which items belong
together, `text` for what a person reads in them, `wire` for what they look like when they are sent
again. `partial` gathers what has come of an answer so far, from events that are `wellformed`. `ids`
says which ids are well formed.
"""

from convo.items.canonical import Digest, Hash, digest, hash_of, normal
from convo.items.kinds import call_id, is_assistant, is_call, is_output, is_user, kind
from convo.items.shapes import Event, Item, Json, Response
from convo.items.text import first_words, searchable, text, with_characters
from convo.items.wire import assistant, plain, resendable, user

__all__ = [
    "Digest",
    "Event",
    "Hash",
    "Item",
    "Json",
    "Response",
    "assistant",
    "call_id",
    "digest",
    "first_words",
    "hash_of",
    "is_assistant",
    "is_call",
    "is_output",
    "is_user",
    "kind",
    "normal",
    "plain",
    "resendable",
    "searchable",
    "text",
    "user",
    "with_characters",
]
