"""Responses of Plano, from its table `conversation_states` in the same database.

A row has the whole history of one response: the request's items, those before it, and the output. Plano writes a
function call of the model as an assistant message with the call's text, and older versions write the model's text as
`input_text`. The table is read only.
"""

import re
from collections import deque
from collections.abc import Iterable

from convo.errors import DamagedRow
from convo.history.items import Item, get_call_id, is_assistant_message, item_text, item_type
from convo.history.records import Link, Strategy
from convo.history.tree import Path
from convo.stores.base import AppendItems, Transaction
from convo.stores.codec import UNDECODABLE, decode_json
from convo.stores.postgres.tenant_rows import TenantConnection, escape_name

SELECT_HAS_TABLE = """
SELECT count(*) = 5 FROM pg_attribute WHERE attrelid = to_regclass('conversation_states') AND NOT attisdropped
    AND attname IN ('response_id', 'input_items', 'created_at', 'model', 'provider')
    AND has_table_privilege(attrelid, 'SELECT')
"""

SELECT_STATE = """
SELECT input_items::text, created_at::float8, model, provider FROM conversation_states WHERE response_id = $1
"""

_CALL_TEXT = re.compile(r"Called function: (?P<name>\S+) with arguments: (?P<arguments>.*)", re.DOTALL)
"""Plano's text of a function call."""


async def has_plano_table(t: TenantConnection) -> bool:
    """Return whether this role can read a table of Plano on its search path."""
    row = await (await t.db.execute(SELECT_HAS_TABLE)).fetchone()
    return bool(row and row[0])


async def select_plano_response(t: TenantConnection, response_id: str) -> Transaction | None:
    """Return the transaction that stores a copy of Plano's response; None if there is no such row.

    Raises DamagedRow if its items are not a list of objects.
    """
    row = await (await t.db.execute(SELECT_STATE, (escape_name(response_id),))).fetchone()
    if row is None:
        return None
    text, created_at, model, provider = row
    items = _restore_calls(map(_restore_message, _decode_items(response_id, text)))
    input_count = len(items)
    while input_count and is_assistant_message(items[input_count - 1]):
        input_count -= 1
    root = Path(t.root)
    link = Link(
        id=response_id,
        input_head=root.append(items[:input_count]).head,
        head=root.append(items).head,
        sent_count=input_count,
        model=next((name for name in (model, provider) if "/" in name), f"{provider}/{model}"),
        strategy=Strategy.CHAIN,
        status="completed",
        created_at=created_at,
    )
    return Transaction(appends=(AppendItems(t.root, tuple(items)),), links=(link,))


def _decode_items(response_id: str, text: str) -> list[Item]:
    try:
        items = decode_json(text)
    except UNDECODABLE as error:
        raise DamagedRow("response", response_id, "its items in conversation_states cannot be decoded") from error
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DamagedRow("response", response_id, "its items in conversation_states are not a list of objects")
    return items


def _restore_message(item: Item) -> Item:
    """Return a message as the Responses API has it: no null fields, and the text of the model is `output_text`."""
    content = item.get("content")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return item
    parts = [{name: value for name, value in part.items() if value is not None} for part in content]
    if is_assistant_message(item):
        parts = [part | {"type": "output_text"} if part.get("type") == "input_text" else part for part in parts]
    return {**item, "content": parts}


def _restore_calls(items: Iterable[Item]) -> list[Item]:
    """Return `items` with function calls in place of their texts; an API refuses a tool output without its call.

    The id of a call is known from its output: the outputs follow their calls, in the same order.
    """
    restored: list[Item] = []
    call_ids: set[str | None] = set()
    texts: deque[tuple[int, re.Match[str]]] = deque()
    for index, item in enumerate(items):
        restored.append(item)
        call_id = get_call_id(item)
        if item_type(item) == "function_call":
            call_ids.add(call_id)
        elif item_type(item) == "function_call_output" and call_id not in call_ids and texts:
            position, text = texts.popleft()
            restored[position] = {"type": "function_call", "call_id": call_id, **text.groupdict()}
        elif is_assistant_message(item) and (text_match := _CALL_TEXT.fullmatch(item_text(item))):
            texts.append((index, text_match))
    return restored
