"""Items of requests, in full or as short lines for comparisons."""

from collections.abc import Iterable, Mapping
from typing import Any

from convo.history.items import Item, item_text, user_message

STATE_FIELDS = ("previous_response_id", "conversation", "store", "include")


def user_messages(*text: str) -> list[dict[str, Any]]:
    """User messages in the form in which convo sends them."""
    return [user_message(one) for one in text]


def assistant_answer(text: str) -> dict[str, Any]:
    """An answer of the scripted model as a client that owns the history resends it, without its id."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part], "status": "completed"}


def partial_answer(text: str) -> dict[str, Any]:
    """A partial answer in the form in which it is sent: the received text only."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def message_lines(items: Iterable[Item]) -> list[str]:
    """Messages as "role: text"."""
    return [f"{item['role']}: {item_text(item)}" for item in items]


def state_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that refer to its history."""
    return {name: body[name] for name in STATE_FIELDS if name in body}
