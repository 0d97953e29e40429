"""An answer that has to fit a schema.

What is no object travels inside one, under `response`, because a strict schema's root is an object.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from convo.errors import InputFault
from convo.items import Json
from convo.tools import Mismatch, form, made_by

WRAPPED = "response"


@dataclass(frozen=True, slots=True)
class Output:
    """A final answer's schema, and how its value is read from the model's words.

    read:  raises Mismatch where the words are not what the schema says; `value` is what asks it
    """

    schema: Mapping[str, Json]
    read: Callable[[str], object]
    strict: bool = True

    def value(self, words: str) -> object:
        """What the words say. raises: Mismatch  they do not fit, whatever `read` raised"""
        return made_by(self.read, "", words)

    @property
    def format(self) -> dict[str, Json]:
        """The request's `text.format`."""
        return {"type": "json_schema", "name": "final_output", "schema": dict(self.schema), "strict": self.strict}


def plain_json(value: object) -> Json:
    """The JSON form of a value: models, dataclasses, sets and enums as what they hold; what has none, as its `str`."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Json:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, set | frozenset):
        return list(value)
    return value.value if isinstance(value, Enum) else str(value)


def output(kind: Any, *, strict: bool = True) -> Output | None:
    """The output that a type, or a JSON schema as a mapping, describes; None for plain text.

    raises:  InputFault  a schema cannot say the type
    """
    if kind is None or kind is str:
        return None
    if isinstance(kind, Mapping):
        if kind.get("type") != "object":
            raise InputFault("an output's schema has no object at its root", hint='{"type": "object", ...}')
        return Output(kind, _json, strict)
    made = form(kind, "the output", strict=strict)
    if made.schema.get("type") == "object":
        return Output(made.schema, lambda words: made.read(_json(words), ""), strict)
    schema = {"type": "object", "properties": {WRAPPED: made.schema}, "required": [WRAPPED]}
    return Output({**schema, "additionalProperties": False}, lambda words: made.read(_unwrapped(words), ""), strict)


def _json(words: str) -> Json:
    try:
        return json.loads(words)
    except (ValueError, RecursionError) as wrong:
        raise Mismatch("the answer is not JSON") from wrong


def _unwrapped(words: str) -> Json:
    value = _json(words)
    if not isinstance(value, dict) or WRAPPED not in value:
        raise Mismatch(f"the answer has no field {WRAPPED!r}")
    return value[WRAPPED]
