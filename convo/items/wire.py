"""What items look like when they are sent: new ones, and old ones that are sent again.

An item that a server made carries that server's id. Sent again with `store=false`, the id points
at nothing that the server kept, and it answers 400; so ids are left out of what the client owns.
A partial answer goes back as the plain words that the person saw.
"""

from convo.items.kinds import is_output, kind
from convo.items.shapes import Item, Json
from convo.items.text import text

ID_IS_OPTIONAL = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "compaction",
    }
)
"""Kinds whose id a client may leave out; every other kind keeps the id it needs."""


def user(words: str, *more: Json) -> dict[str, Json]:
    """A user's message; `more` are further content parts, images and files for instance."""
    content = [{"type": "input_text", "text": words}, *more] if words or not more else list(more)
    return {"type": "message", "role": "user", "content": content}


def assistant(words: str) -> dict[str, Json]:
    """An assistant's message without id or status, as a client may write one itself."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def plain(item: Item) -> Item | None:
    """`item` as it may be sent to a server that never confirmed it; None when nothing is left.

    A partial answer becomes its words. A partial call or half a thought says nothing that a
    server would take, and is left out. What a client's tool gave out is whole, even where it
    says that the tool failed.
    """
    if item.get("status") in (None, "completed") or is_output(item):
        return item
    if kind(item) == "message" and text(item):
        return assistant(text(item)) if item.get("role") == "assistant" else item
    return None


def resendable(item: Item) -> Item | None:
    """`item` as a client that owns the history sends it again; None when it must stay behind.

    Reasoning that is not sealed lives only at the server that made it.
    """
    named = kind(item)
    if named == "reasoning" and not item.get("encrypted_content"):
        return None
    if "id" not in item or named not in ID_IS_OPTIONAL:
        return item
    sent = dict(item)
    del sent["id"]
    return sent
