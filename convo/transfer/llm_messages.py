"""The newer layout of `llm`'s logs: messages in a tree, each made of parts.

A thread names its last message, and each message the one before it; so a history is read from its
end, and threads that begin alike share what they have in common, as ours do.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from convo.errors import InputFault
from convo.inspection.document import Document
from convo.items import Item, Json, text
from convo.transfer.llm_attached import attachment, fragment, seconds

if TYPE_CHECKING:
    from convo.transfer.databases import Database

CHAIN = """
WITH RECURSIVE chain(hash, parent, role, depth) AS (
    SELECT hash, parent_hash, role, 0 FROM messages WHERE hash = ?
    UNION ALL
    SELECT m.hash, m.parent_hash, m.role, depth + 1 FROM messages m JOIN chain ON m.hash = chain.parent
    LIMIT ?
)
SELECT hash, role FROM chain ORDER BY depth DESC
"""

PARTS = "SELECT id, type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"


def threads(database: "Database") -> dict[str, Document]:
    """Every thread by its id, which is the one of the conversation that it came from. raises: InputFault"""
    most = database.rows("SELECT COUNT(*) AS many FROM messages")[0]["many"]
    rows = database.rows("SELECT id, name, tip_message_hash AS tip, datetime_utc FROM threads ORDER BY id")
    return {row["id"]: _document(database, row, most) for row in rows}


def _document(database: "Database", thread: Mapping[str, Any], most: int) -> Document:
    messages = database.rows(CHAIN, thread["tip"], most + 1)
    if len(messages) > most:
        raise InputFault(f"the messages of thread {thread['id']} go in a circle")
    items = tuple(item for message in messages for item in _items(database, message))
    system = text(items[0]) if items and items[0].get("role") == "system" else None
    items = items if system is None else items[1:]
    return Document(
        items=items,
        acknowledged=len(items),
        name=thread["name"],
        instructions=system,
        created_at=seconds(thread["datetime_utc"], database),
    )


def _items(database: "Database", message: Mapping[str, Any]) -> Iterator[Item]:
    """The items of one message: what stands between calls, outputs and thoughts is one message of ours."""
    content: list[dict[str, Json]] = []
    for row in database.rows(PARTS, message["hash"]):
        payload = json.loads(row["payload"]) if row["payload"] else {}
        part = {**payload, "type": row["type"], "id": row["id"]}
        if row["text"] is not None:
            part["text"] = row["text"]
        alone = ALONE.get(part["type"])
        if alone is None:
            content += _content(database, part, message["role"])
            continue
        if content:
            yield _message(message["role"], content)
            content = []
        yield from alone(part)
    if content:
        yield _message(message["role"], content)


def _message(role: str, content: list[dict[str, Json]]) -> Item:
    known = role if role in ("user", "assistant", "system", "developer") else "user"
    return {"type": "message", "role": known, "content": content}


def _content(database: "Database", part: Mapping[str, Json], role: str) -> Iterator[dict[str, Json]]:
    if part["type"] == "attachment":
        named = (part.get("attachment") or {}).get("id")
        if named:
            yield attachment(database, named)
        return
    words = part.get("text")
    if words is None:
        words = "".join(_piece(database, piece) for piece in part.get("text_ref") or ())
    if words:
        yield {"type": "output_text" if role == "assistant" else "input_text", "text": words}


def _piece(database: "Database", piece: Mapping[str, Json]) -> str:
    """Words that were said, or that a fragment lent."""
    return fragment(database, piece["fragment"]) if "fragment" in piece else str(piece.get("literal", ""))


def _thought(part: Mapping[str, Json]) -> Iterator[Item]:
    if part.get("text"):
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": part["text"]}]}


def _call(part: Mapping[str, Json]) -> Iterator[Item]:
    if not part.get("server_executed"):
        yield call(part.get("tool_call_id") or f"call_{part['id']}", part["name"], part.get("arguments"))


def _result(part: Mapping[str, Json]) -> Iterator[Item]:
    if not part.get("server_executed"):
        yield output(part.get("tool_call_id") or f"call_{part['id']}", part.get("output"))


ALONE = {"reasoning": _thought, "tool_call": _call, "tool_result": _result}
"""Parts that are an item of their own."""


def call(call_id: str, name: str, arguments: Json) -> Item:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": written}


def output(call_id: str, said: Json) -> Item:
    words = said if isinstance(said, str) else json.dumps(said)
    return {"type": "function_call_output", "call_id": call_id, "output": words}
