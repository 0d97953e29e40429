"""Which kind an item is, and which items belong together.

A kind that is not named here is still an item: it is stored, sent and shown. What is known of a
kind is only whether it asks for an output or is one, because a call and its output travel as a
pair and a history with half a pair is refused by every server.
"""

from convo.items.shapes import Item

ANSWERED_BY = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""Calls that the client answers, and the kind of item that answers each."""

OUTPUTS = frozenset(ANSWERED_BY.values())


def kind(item: Item) -> str:
    """The item's type; a message in the easy form says none and is a message all the same."""
    return str(item.get("type") or ("message" if "role" in item else "unknown"))


def is_call(item: Item) -> bool:
    """Whether the client owes this item an output."""
    return kind(item) in ANSWERED_BY


def is_output(item: Item) -> bool:
    return kind(item) in OUTPUTS


def call_id(item: Item) -> str | None:
    """The provider's string that ties a call to its output, or None for other kinds."""
    found = item.get("call_id")
    return found if isinstance(found, str) else None


def is_user(item: Item) -> bool:
    return kind(item) == "message" and item.get("role") == "user"


def is_assistant(item: Item) -> bool:
    return kind(item) == "message" and item.get("role") == "assistant"
