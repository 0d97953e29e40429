"""The older layout of `llm`'s logs: a row for each response, with its prompt and its words in columns."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from convo.inspection.document import Document
from convo.items import Item, assistant, user
from convo.transfer.llm_attached import fragment, part, seconds
from convo.transfer.llm_messages import call, output

if TYPE_CHECKING:
    from convo.transfer.databases import Database

RESPONSES = "SELECT * FROM responses WHERE conversation_id = ? ORDER BY datetime_utc, id"

FRAGMENTS = 'SELECT fragment_id FROM {table} WHERE response_id = ? ORDER BY "order"'

ATTACHMENTS = """
SELECT a.type, a.path, a.url, a.content FROM prompt_attachments p JOIN attachments a ON a.id = p.attachment_id
WHERE p.response_id = ? ORDER BY p."order"
"""


def conversations(database: "Database", besides: Collection[str]) -> dict[str, Document]:
    """Every conversation by its id, without `besides`."""
    rows = database.rows("SELECT id, name FROM conversations ORDER BY id")
    return {row["id"]: _document(database, row) for row in rows if row["id"] not in besides}


def _document(database: "Database", conversation: Mapping[str, Any]) -> Document:
    responses = database.rows(RESPONSES, conversation["id"])
    items = tuple(item for response in responses for item in _turn(database, response))
    return Document(
        items=items,
        acknowledged=len(items),
        name=conversation["name"],
        instructions=next((said for one in responses if (said := _system(database, one))), None),
        created_at=seconds(responses[0]["datetime_utc"], database) if responses else None,
    )


def _turn(database: "Database", response: Mapping[str, Any]) -> Iterator[Item]:
    """What was asked and what was answered, with the outputs of the calls before and the calls after."""
    for at, row in enumerate(_rows(database, "tool_results", response["id"])):
        yield output(row["tool_call_id"] or f"call_{row['name']}_{at}", row["output"])
    asked = "\n".join(filter(None, [*_fragments(database, "prompt_fragments", response), response["prompt"]]))
    along = database.rows(ATTACHMENTS, response["id"]) if "prompt_attachments" in database.tables else []
    if asked or along:
        yield user(asked, *(part(row) for row in along))
    if thought := response.get("reasoning"):
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}
    if response["response"]:
        yield assistant(response["response"])
    for at, row in enumerate(_rows(database, "tool_calls", response["id"])):
        yield call(row["tool_call_id"] or f"call_{row['name']}_{at}", row["name"], row["arguments"])


def _system(database: "Database", response: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, [*_fragments(database, "system_fragments", response), response["system"]]))


def _fragments(database: "Database", table: str, response: Mapping[str, Any]) -> list[str]:
    if table not in database.tables:
        return []
    rows = database.rows(FRAGMENTS.format(table=table), response["id"])
    return [fragment(database, row["fragment_id"]) for row in rows]


def _rows(database: "Database", table: str, response_id: str) -> list[Mapping[str, Any]]:
    """The rows of a table that older versions did not have."""
    if table not in database.tables:
        return []
    return database.rows(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY id", response_id)  # noqa: S608  our own names
