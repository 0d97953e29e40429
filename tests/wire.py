"""What a request on the wire says: in full, or as short words that a test can list."""

from collections.abc import Iterable, Mapping
from typing import Any

from convo.history.items import Item, item_text, user_message

STATE = ("previous_response_id", "conversation", "store", "include")


def said(*words: str) -> list[dict[str, Any]]:
    """User messages as convo sends them."""
    return [user_message(one) for one in words]


def answered(words: str) -> dict[str, Any]:
    """An answer of the scripted model as a client that owns the history sends it again: without its id."""
    part = {"type": "output_text", "text": words, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part], "status": "completed"}


def cut_off(words: str) -> dict[str, Any]:
    """An answer that was never whole, as it is sent: the words that came, and nothing else."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def spoken(items: Iterable[Item]) -> list[str]:
    """Messages as "role: words"."""
    return [f"{item['role']}: {item_text(item)}" for item in items]


def state(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that say where its history is."""
    return {name: body[name] for name in STATE if name in body}
