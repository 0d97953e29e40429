"""A RunState as a conversation: what was said in a run, from its input on.

The run itself is not in it: what it waits for, and what was decided, is gone on with from the file
alone. Where an endpoint holds the history, a state has only the newest part of it, and half of a
conversation is none.
"""

from convo.errors import InputFault
from convo.inspection.document import Document
from convo.items import Item, Json
from convo.runstate import State, of

OWNERS = ("conversation_id", "previous_response_id")
"""Where a state names what its endpoint holds."""


def document(found: Json) -> Document:
    """The conversation of a state. raises: BadState; InputFault  an endpoint holds it"""
    state = of(found)
    owner = next((name for key in OWNERS if (name := state.document.get(key))), None)
    if owner:
        raise InputFault(f"its history is held by {owner}", hint=f"convo convert {owner} --to session")
    items = tuple(items_of(state))
    return Document(items=items, acknowledged=len(items))


def items_of(state: State) -> list[Item]:
    """What was said in a run, from its input on."""
    asked = state.document["original_input"]
    said = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
    return [*said, *(item["raw_item"] for item in state.document.get("generated_items") or [] if not _asks(item))]


def _asks(item: Item) -> bool:
    """Whether it stands for a call once more, because somebody has to decide on it."""
    return item.get("type") == "tool_approval_item"
