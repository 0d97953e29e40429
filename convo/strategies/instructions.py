"""Instructions as developer messages, for models that append the field `instructions` to the input.

Such a model (`convo.usage.model_info`) bills the field uncached with every request. There the instructions are an item
of the history, before the first input, and a change appends another one: nothing before it changes, so the cache and
the reasoning stay usable. As an item it is sent once where the endpoint owns the history, and keeps its place under
every owner. The stored records still have the text as `instructions`. A request whose history lacks it has the field.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from convo.history.items import Item, developer_message, item_text, item_type
from convo.history.tree import derive, where
from convo.strategies.strategy import ConversationState, RequestInput

ENDED_INSTRUCTIONS = "The earlier instructions no longer apply."
"""Text of the message that removes earlier instructions: the history of an owner cannot be edited."""


def build_instruction_message(
    items: Sequence[Item], instructions: str | None, previous: str | None, *, as_message: bool
) -> Item | None:
    """Return the developer message that precedes the next input; None if the history needs none.

    previous:    the instructions of the turn before
    as_message:  the model appends the field; for another model a message is appended only where an earlier one would
                 contradict the field
    """
    if instructions == previous and not as_message:
        return None
    current = find_last_instructions(items)
    is_in_messages = previous is not None and current == previous
    text = instructions or (ENDED_INSTRUCTIONS if is_in_messages else None)
    return developer_message(text) if text and text != current and (as_message or is_in_messages) else None


def choose_field(instructions: str | None, items: Sequence[Item], *, is_appended: bool) -> str | None:
    """Return the field `instructions` of a request; None if the last developer message of its input says the same.

    items:        the model's input
    is_appended:  the model appends the field
    """
    is_repeated = is_appended and instructions and find_last_instructions(items) == instructions
    return None if is_repeated else instructions


def omit_repeated_message(
    request_input: RequestInput, state: ConversationState, instructions: str | None, *, is_appended: bool
) -> RequestInput:
    """Leave out the message with the instructions where the field has them and the client owns the history.

    Of several messages all stay: their order says which instructions apply.
    """
    if is_appended or not instructions or state.is_server_side:
        return request_input
    items, indexes = request_input.items, derive(request_input.items, _DEVELOPER_MESSAGES)
    if len(indexes) != 1 or item_text(items[indexes[0]]) != instructions:
        return request_input
    return replace(request_input, items=(*items[: indexes[0]], *items[indexes[0] + 1 :]))


def drop_instruction_messages(items: Iterable[Item], texts: Container[str | None]) -> list[Item]:
    """Return `items` without the messages that have one of these instructions."""
    return [item for item in items if not (is_developer_message(item) and item_text(item) in texts)]


def find_last_instructions(items: Sequence[Item]) -> str | None:
    """Return the text of the last developer message; None without one."""
    indexes = derive(items, _DEVELOPER_MESSAGES)
    return item_text(items[indexes[-1]]) if indexes else None


def is_developer_message(item: Item) -> bool:
    return item_type(item) == "message" and item.get("role") == "developer"


_DEVELOPER_MESSAGES = where(is_developer_message)
