"""What `llm` keeps beside its messages: attachments and fragments, as content parts and as text."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from convo.items import Json

if TYPE_CHECKING:
    from convo.transfer.databases import Database


def attachment(database: "Database", attachment_id: str) -> dict[str, Json]:
    """One attachment as a content part; a file that stayed on its own disk is only named."""
    found = database.rows("SELECT type, path, url, content FROM attachments WHERE id = ?", attachment_id)
    return part(found[0]) if found else _named(f"an attachment that is gone: {attachment_id}")


def part(row: Mapping[str, Any]) -> dict[str, Json]:
    kind, content = row["type"] or "application/octet-stream", row["content"]
    if content:
        url = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    elif row["url"]:
        url = row["url"]
    else:
        return _named(f"an attachment that was not kept: {row['path']}")
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if content:
        return {"type": "input_file", "filename": "attachment", "file_data": url}
    return {"type": "input_file", "file_url": url}


def fragment(database: "Database", fragment_id: int) -> str:
    found = database.rows("SELECT content FROM fragments WHERE id = ?", fragment_id)
    return found[0]["content"] if found else ""


def seconds(datetime_utc: str | None, database: "Database") -> float | None:
    """A time of `llm`'s as seconds since 1970."""
    return (
        database.rows("SELECT CAST(strftime('%s', ?) AS INTEGER) AS at", datetime_utc)[0]["at"]
        if datetime_utc
        else None
    )


def _named(words: str) -> dict[str, Json]:
    return {"type": "input_text", "text": f"[{words}]"}
