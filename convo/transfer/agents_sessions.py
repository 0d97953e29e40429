"""Sessions of the Agents SDK: `SQLiteSession` keeps one item a row, as JSON, as its runner sent it.

    agent_sessions   session_id, created_at, updated_at
    agent_messages   id, session_id, message_data, created_at

source: agents/memory/sqlite_session.py of openai-agents 0.24
"""

import json
from typing import TYPE_CHECKING

from convo.errors import InputFault
from convo.inspection.document import Document
from convo.items import Json, kind

if TYPE_CHECKING:
    from convo.transfer.databases import Database


def documents(database: "Database") -> list[Document]:
    """Every session in it. raises: InputFault  a row holds no item"""
    rows = database.rows(
        "SELECT session_id, CAST(strftime('%s', created_at) AS INTEGER) AS created"
        " FROM agent_sessions ORDER BY created_at, session_id"
    )
    return [_document(database, row["session_id"], row["created"]) for row in rows]


def _document(database: "Database", session: str, created: int | None) -> Document:
    rows = database.rows("SELECT id, message_data FROM agent_messages WHERE session_id = ? ORDER BY id", session)
    items = tuple(_item(row["message_data"], f"message {row['id']} of {session!r}") for row in rows)
    return Document(items=items, acknowledged=len(items), name=session, created_at=created)


def _item(data: str, where: str) -> dict[str, Json]:
    try:
        item = json.loads(data)
    except (ValueError, RecursionError, TypeError) as wrong:
        raise InputFault(f"{where} is not JSON: {wrong}") from wrong
    if not isinstance(item, dict) or kind(item) == "unknown":
        raise InputFault(f"{where} is no item")
    return item
