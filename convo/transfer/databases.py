"""Import from SQLite databases of other programs, opened read-only.

    Agents SDK    agent_sessions, agent_messages                  agents/memory/sqlite_session.py of openai-agents 0.24
    llm >= 0.36   threads -> messages (by parent_hash) -> parts   llm/migrations.py and llm/logs.py of llm 0.36
    llm older     conversations -> responses -> tool_calls, tool_results, prompt_fragments, prompt_attachments

A conversation found in both layouts of llm is read from the newer one. Reasoning without text and calls
marked `server_executed` are left out. A row that cannot be read affects its conversation only.
"""

import base64
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from convo.errors import InputFault
from convo.history.canonical import describe_json_error
from convo.history.items import Item, Json, assistant_message, item_text, item_type, user_message
from convo.inspect.serialize import ConversationDocument
from convo.runtime import track_progress

if TYPE_CHECKING:
    import sqlite3


def read_agents_sessions(database: "ForeignDatabase") -> list[ConversationDocument]:
    """Read all sessions."""
    rows = database.rows(
        "SELECT session_id, CAST(strftime('%s', created_at) AS INTEGER) AS created"
        " FROM agent_sessions ORDER BY created_at, session_id"
    )
    return list(database.read_each("sessions", rows, "session_id", _agents_session_document).values())


def _agents_session_document(database: "ForeignDatabase", row: "DatabaseRow") -> ConversationDocument:
    """Read one session. Raises InputFault for a row that is no item."""
    session = row["session_id"]
    rows = database.rows("SELECT id, message_data FROM agent_messages WHERE session_id = ? ORDER BY id", session)
    items = tuple(_parse_item(row["message_data"], f"message {row['id']} of {session!r}") for row in rows)
    return ConversationDocument(items=items, confirmed_count=len(items), name=session, created_at=row["created"])


def _parse_item(data: str, location: str) -> dict[str, Json]:
    try:
        item = json.loads(data)
    except (ValueError, RecursionError, TypeError) as error:
        raise InputFault(f"{location} is not JSON: {describe_json_error(error)}") from error
    if not isinstance(item, dict) or item_type(item) == "unknown":
        raise InputFault(f"{location} is not an item")
    return item


def read_llm_logs(database: "ForeignDatabase") -> list[ConversationDocument]:
    """Read all conversations that have items, oldest first."""
    threads = read_llm_threads(database) if "threads" in database.tables else {}
    conversations = read_llm_conversations(database, excluded_ids=threads)
    documents = [document for document in (*conversations.values(), *threads.values()) if document.items]
    return sorted(documents, key=lambda document: document.created_at or 0)


DatabaseRow = Mapping[str, Any]


ReportFault: TypeAlias = Callable[[str, InputFault], None]
"""Takes the name of a conversation that cannot be read, and why."""


class ForeignDatabase:
    """An open database: its tables and their rows."""

    def __init__(self, connection: "sqlite3.Connection", report_fault: ReportFault | None) -> None:
        self._connection, self._report_fault = connection, report_fault
        self.tables = frozenset(row["name"] for row in self.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"))

    def rows(self, statement: str, *values: object) -> list[DatabaseRow]:
        return [dict(row) for row in self._connection.execute(statement, values)]

    def read_each(
        self,
        label: str,
        rows: Sequence[DatabaseRow],
        id_column: str,
        read: Callable[["ForeignDatabase", DatabaseRow], ConversationDocument],
    ) -> dict[str, ConversationDocument]:
        """Read the conversation of each row, by its id. Raises InputFault for the first fault that is not reported.

        A value of a wrong type is a fault, since a column of SQLite accepts any type.
        """
        import sqlite3

        documents: dict[str, ConversationDocument] = {}
        for row in track_progress(label, rows):
            try:
                document = read(self, row)
                if not isinstance(document.name, str | None) or not isinstance(document.instructions, str | None):
                    raise InputFault("a conversation in the database has a name that is not text")
                documents[row[id_column]] = document
            except InputFault as error:
                self._report(row, id_column, error)
            except sqlite3.Error as error:
                self._report(row, id_column, InputFault(f"the database cannot be read: {error}"))
            # Caught for each row: one that was not JSON made the import refuse every session of the database.
            except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
                self._report(row, id_column, InputFault("a row of the database has an unknown form"))
        return documents

    def _report(self, row: DatabaseRow, id_column: str, fault: InputFault) -> None:
        if self._report_fault is None:
            raise fault
        self._report_fault(str(row.get("name") or row[id_column]), fault)


def read_database(file: Path, report_fault: ReportFault | None = None) -> list[ConversationDocument]:
    """Read all conversations, oldest first.

    report_fault:  gets the faults of single conversations; without it they are raised, too

    Raises InputFault for a database that is unknown or damaged.
    """
    with _open_read_only(file, report_fault) as database:
        for tables, read in DATABASE_READERS:
            if tables <= database.tables:
                return read(database)
    raise InputFault(
        "the database is not from llm or the Agents SDK",
        hint="choose a database of llm or the Agents SDK; convo sessions lists the sessions of convo",
    )


DATABASE_READERS: Sequence[tuple[frozenset[str], Callable[[ForeignDatabase], list[ConversationDocument]]]] = (
    (frozenset({"agent_sessions", "agent_messages"}), read_agents_sessions),
    (frozenset({"conversations", "responses"}), read_llm_logs),
)


@contextmanager
def _open_read_only(file: Path, report_fault: ReportFault | None) -> Iterator[ForeignDatabase]:
    import sqlite3

    # Without it SQLite creates -wal and -shm beside a file in WAL mode, also with mode=ro.
    immutable_option = "" if os.path.exists(f"{file}-wal") else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro{immutable_option}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield ForeignDatabase(connection, report_fault)
    except sqlite3.Error as error:
        raise InputFault(f"the database cannot be read: {error}") from error


MESSAGES_SQL = """
WITH RECURSIVE chain(hash, parent, role, depth) AS (
    SELECT hash, parent_hash, role, 0 FROM messages WHERE hash = ?
    UNION ALL
    SELECT m.hash, m.parent_hash, m.role, depth + 1 FROM messages m JOIN chain ON m.hash = chain.parent
    LIMIT ?
)
SELECT hash, role FROM chain ORDER BY depth DESC
"""

PARTS_SQL = "SELECT id, type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"


def read_llm_threads(database: ForeignDatabase) -> dict[str, ConversationDocument]:
    """Read all threads by id; a thread has the id of the conversation that it was migrated from."""
    message_count = database.rows("SELECT COUNT(*) AS many FROM messages")[0]["many"]
    rows = database.rows("SELECT id, name, tip_message_hash AS tip, datetime_utc FROM threads ORDER BY id")
    return database.read_each("threads", rows, "id", partial(_thread_document, message_count))


def _thread_document(message_count: int, database: ForeignDatabase, thread: DatabaseRow) -> ConversationDocument:
    messages = database.rows(MESSAGES_SQL, thread["tip"], message_count + 1)
    # Only a cycle has more messages than the table; LIMIT ends it.
    if len(messages) > message_count:
        raise InputFault(f"the messages of thread {thread['id']} have a cycle")
    items = tuple(item for message in messages for item in _message_items(database, message))
    system = item_text(items[0]) if items and items[0].get("role") == "system" else None
    items = items if system is None else items[1:]
    return ConversationDocument(
        items=items,
        confirmed_count=len(items),
        name=thread["name"],
        instructions=system,
        created_at=parse_llm_time(thread["datetime_utc"], database),
    )


def _message_items(database: ForeignDatabase, message: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the items of one message: the parts between calls, outputs and reasoning make one message item."""
    content: list[dict[str, Json]] = []
    for row in database.rows(PARTS_SQL, message["hash"]):
        payload = json.loads(row["payload"]) if row["payload"] else {}
        part = {**payload, "type": row["type"], "id": row["id"]}
        if row["text"] is not None:
            part["text"] = row["text"]
        build_items = ITEM_BUILDERS.get(part["type"])
        if build_items is None:
            content += _content_parts(database, part, message["role"])
            continue
        if content:
            yield _build_message(message["role"], content)
            content = []
        yield from build_items(part)
    if content:
        yield _build_message(message["role"], content)


def _build_message(role: str, content: list[dict[str, Json]]) -> Item:
    known_role = role if role in ("user", "assistant", "system", "developer") else "user"
    return {"type": "message", "role": known_role, "content": content}


def _content_parts(database: ForeignDatabase, part: Mapping[str, Json], role: str) -> Iterator[dict[str, Json]]:
    if part["type"] == "attachment":
        attachment_id = (part.get("attachment") or {}).get("id")
        if attachment_id:
            yield read_attachment(database, attachment_id)
        return
    text = part.get("text")
    if text is None:
        text = "".join(_resolve_text_ref(database, piece) for piece in part.get("text_ref") or ())
    if text:
        yield {"type": "output_text" if role == "assistant" else "input_text", "text": text}


def _resolve_text_ref(database: ForeignDatabase, reference: Mapping[str, Json]) -> str:
    """Return literal text, or the text of a fragment."""
    return (
        read_fragment(database, reference["fragment"]) if "fragment" in reference else str(reference.get("literal", ""))
    )


def _reasoning_items(part: Mapping[str, Json]) -> Iterator[Item]:
    if part.get("text"):
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": part["text"]}]}


def _call_items(part: Mapping[str, Json]) -> Iterator[Item]:
    if not part.get("server_executed"):
        yield function_call_item(part.get("tool_call_id") or f"call_{part['id']}", part["name"], part.get("arguments"))


def _result_items(part: Mapping[str, Json]) -> Iterator[Item]:
    if not part.get("server_executed"):
        yield function_call_output_item(part.get("tool_call_id") or f"call_{part['id']}", part.get("output"))


ITEM_BUILDERS = {"reasoning": _reasoning_items, "tool_call": _call_items, "tool_result": _result_items}
"""Parts that become an item of their own."""


def function_call_item(call_id: str, name: str, arguments: Json) -> Item:
    arguments_json = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments_json}


def function_call_output_item(call_id: str, output: Json) -> Item:
    text = output if isinstance(output, str) else json.dumps(output)
    return {"type": "function_call_output", "call_id": call_id, "output": text}


RESPONSES_SQL = "SELECT * FROM responses WHERE conversation_id = ? ORDER BY datetime_utc, id"

FRAGMENTS_SQL = 'SELECT fragment_id FROM {table} WHERE response_id = ? ORDER BY "order"'

ATTACHMENTS_SQL = """
SELECT a.type, a.path, a.url, a.content FROM prompt_attachments p JOIN attachments a ON a.id = p.attachment_id
WHERE p.response_id = ? ORDER BY p."order"
"""


def read_llm_conversations(database: ForeignDatabase, excluded_ids: Collection[str]) -> dict[str, ConversationDocument]:
    """Read all conversations by id, except those in `excluded_ids`."""
    rows = database.rows("SELECT id, name FROM conversations ORDER BY id")
    remaining = [row for row in rows if row["id"] not in excluded_ids]
    return database.read_each("conversations", remaining, "id", _conversation_document)


def _conversation_document(database: ForeignDatabase, conversation: Mapping[str, Any]) -> ConversationDocument:
    responses = database.rows(RESPONSES_SQL, conversation["id"])
    items = tuple(item for response in responses for item in _response_items(database, response))
    return ConversationDocument(
        items=items,
        confirmed_count=len(items),
        name=conversation["name"],
        instructions=next((prompt for row in responses if (prompt := _system_prompt(database, row))), None),
        created_at=parse_llm_time(responses[0]["datetime_utc"], database) if responses else None,
    )


def _response_items(database: ForeignDatabase, response: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the items of a response: outputs of earlier calls, prompt, reasoning, answer, calls."""
    for index, row in enumerate(_rows_if_table(database, "tool_results", response["id"])):
        yield function_call_output_item(row["tool_call_id"] or f"call_{row['name']}_{index}", row["output"])
    prompt = "\n".join(filter(None, [*_fragment_texts(database, "prompt_fragments", response), response["prompt"]]))
    attachments = database.rows(ATTACHMENTS_SQL, response["id"]) if "prompt_attachments" in database.tables else []
    if prompt or attachments:
        yield user_message(prompt, *(attachment_part(row) for row in attachments))
    if reasoning := response.get("reasoning"):
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": reasoning}]}
    if response["response"]:
        yield assistant_message(response["response"])
    for index, row in enumerate(_rows_if_table(database, "tool_calls", response["id"])):
        yield function_call_item(row["tool_call_id"] or f"call_{row['name']}_{index}", row["name"], row["arguments"])


def _system_prompt(database: ForeignDatabase, response: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, [*_fragment_texts(database, "system_fragments", response), response["system"]]))


def _fragment_texts(database: ForeignDatabase, table: str, response: Mapping[str, Any]) -> list[str]:
    if table not in database.tables:
        return []
    rows = database.rows(FRAGMENTS_SQL.format(table=table), response["id"])
    return [read_fragment(database, row["fragment_id"]) for row in rows]


def _rows_if_table(database: ForeignDatabase, table: str, response_id: str) -> list[Mapping[str, Any]]:
    """Read the rows of a table that older versions lack."""
    if table not in database.tables:
        return []
    return database.rows(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY id", response_id)  # noqa: S608  our own names


def read_attachment(database: ForeignDatabase, attachment_id: str) -> dict[str, Json]:
    """Return an attachment as a content part; of a file that is not in the database only the path is given."""
    rows = database.rows("SELECT type, path, url, content FROM attachments WHERE id = ?", attachment_id)
    return attachment_part(rows[0]) if rows else _placeholder_part(f"an attachment that is gone: {attachment_id}")


def attachment_part(row: Mapping[str, Any]) -> dict[str, Json]:
    kind, content = row["type"] or "application/octet-stream", row["content"]
    if content:
        url = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    elif row["url"]:
        url = row["url"]
    else:
        return _placeholder_part(f"an attachment that was not kept: {row['path']}")
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if content:
        return {"type": "input_file", "filename": "attachment", "file_data": url}
    return {"type": "input_file", "file_url": url}


def read_fragment(database: ForeignDatabase, fragment_id: int) -> str:
    rows = database.rows("SELECT content FROM fragments WHERE id = ?", fragment_id)
    return rows[0]["content"] if rows else ""


def parse_llm_time(datetime_utc: str | None, database: ForeignDatabase) -> float | None:
    """Return a time of `llm` in seconds since 1970."""
    return (
        database.rows("SELECT CAST(strftime('%s', ?) AS INTEGER) AS at", datetime_utc)[0]["at"]
        if datetime_utc
        else None
    )


def _placeholder_part(text: str) -> dict[str, Json]:
    return {"type": "input_text", "text": f"[{text}]"}
