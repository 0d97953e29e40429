"""A file that says in which form the answer should come."""

import json
import re
from pathlib import Path

from convo.errors import Unreadable
from convo.items import Json


def text_format(place: str) -> dict[str, Json]:
    """The `text` parameter that asks for this JSON schema. raises: Unreadable

    Strict where the schema allows it: the API takes `strict` only of schemas that close every
    object and require every property.
    """
    path = Path(place).expanduser()
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {(wrong.strerror or str(wrong)).lower()}") from wrong
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(f"{path} is not JSON: {wrong}") from wrong
    if not isinstance(schema, dict):
        raise Unreadable(f"{path} is not a JSON schema: it is not an object")
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or path.stem))[:64] or "answer"
    return {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": strict(schema)}}


def strict(schema: Json) -> bool:
    """Whether every object in `schema` is closed and requires all it names."""
    if isinstance(schema, list):
        return all(strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        named, required = set(schema.get("properties", {})), set(schema.get("required", []))
        if schema.get("additionalProperties") is not False or named != required:
            return False
    return all(strict(part) for part in schema.values())
