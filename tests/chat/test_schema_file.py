"""Schema files, and the schemas that the API can enforce strictly."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from convo.chat.files import load_text_format
from convo.errors import Unreadable

CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def text_format(folder: Path, schema: Any, name: str = "schema.json") -> dict[str, Any]:
    path = folder / name
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    result: dict[str, Any] = load_text_format(str(path))["format"]
    return result


def test_a_schema_is_sent_unchanged(tmp_path: Path) -> None:
    assert text_format(tmp_path, CLOSED) == {"type": "json_schema", "name": "schema", "schema": CLOSED, "strict": True}


@pytest.mark.parametrize(
    ("title", "file", "name"),
    [
        ("Weather report", "x.json", "Weather_report"),
        (None, "größe 1.json", "gr__e_1"),
        (7, "x.json", "7"),
        ("", "x.json", "x"),
        ("t" * 99, "x.json", "t" * 64),
    ],
)
def test_the_name_of_a_schema_is_valid_for_the_api(title: Any, file: str, name: str, tmp_path: Path) -> None:
    schema = CLOSED if title is None else {**CLOSED, "title": title}
    assert text_format(tmp_path, schema, file)["name"] == name


def closed_schema(**properties: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": properties, "required": [*properties]}


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        closed_schema(list={"type": "array", "items": CLOSED}),
        closed_schema(one={"anyOf": [CLOSED, {"type": "null"}]}),
        {**closed_schema(ref={"$ref": "#/$defs/n"}), "$defs": {"n": CLOSED}},
        closed_schema(**{"not": {"type": "string"}, "properties": {"type": "string"}, "type": {"type": "string"}}),
        closed_schema(word={"enum": [{"type": "object"}], "default": {"properties": {}}}),
        {**CLOSED, "required": ["n"], "properties": {"n": True}},
        {**CLOSED, "type": ["object", "null"]},
        closed_schema(word={"type": "string"}, anything=True),
        {**CLOSED, "$defs": {"not": CLOSED}, "definitions": {"if": CLOSED}},
        *(closed_schema(word={name: {"type": "object"}}) for name in ("enum", "const", "default", "examples")),
    ],
)
def test_a_schema_that_requires_all_properties_and_allows_no_others_is_strict(
    schema: dict[str, Any], tmp_path: Path
) -> None:
    assert text_format(tmp_path, schema)["strict"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": CLOSED},
        {**CLOSED, "additionalProperties": True},
        {**CLOSED, "required": []},
        {**CLOSED, "required": ["n", "m"]},
        {"type": "object"},
        {"properties": {}},
        closed_schema(open={"type": ["object", "null"]}),
        closed_schema(list={"type": "array", "items": {"type": "object"}}),
        closed_schema(one={"anyOf": [{"type": "object"}]}),
        {**CLOSED, "$defs": {"n": {"type": "object"}}},
        {**CLOSED, "allOf": [CLOSED]},
        closed_schema(no={"not": {"type": "string"}}),
        {**CLOSED, "if": {}},
        {**CLOSED, "then": {}},
        {**CLOSED, "else": {}},
        {**CLOSED, "dependentRequired": {}},
        {**CLOSED, "dependentSchemas": {}},
        {**CLOSED, "definitions": {"n": {"type": "object"}}},
        {**CLOSED, "additionalItems": {"type": "object"}},
        {**CLOSED, "title": [{"type": "object"}]},
        {"type": "object", "properties": [{}], "required": [{}]},
        {"type": "object", "properties": 5, "required": None, "additionalProperties": False},
        {**CLOSED, "required": [{}]},
    ],
)
def test_every_other_schema_is_not_strict(schema: dict[str, Any], tmp_path: Path) -> None:
    assert not text_format(tmp_path, schema)["strict"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON"),
        ('{"type"', "is not JSON"),
        ('{"minimum": -Infinity}', "-Infinity is not a JSON number"),
        ("[]", "is not a JSON schema: it is not an object"),
        ("true", "is not a JSON schema: it is not an object"),
        ('{"items": ' * 50_000 + "1" + "}" * 50_000, "is nested too deeply"),
    ],
    ids=["empty", "half", "infinite", "list", "boolean", "deep"],
)
def test_a_file_that_is_not_a_schema_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=reason):
        text_format(tmp_path, text)


@pytest.mark.parametrize("depth", [100, 400, 700, 950])
def test_a_deeply_nested_schema_is_accepted_or_refused(depth: int, tmp_path: Path) -> None:
    with suppress(Unreadable):
        assert not text_format(tmp_path, '{"items": ' * depth + "{}" + "}" * depth)["strict"]


def test_a_missing_or_binary_schema_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b'{"a": "\xe9"}')
    for path, reason in (("nope", "no such file"), (".", "is a directory"), ("bytes", "it is not UTF-8")):
        with pytest.raises(Unreadable, match=reason):
            load_text_format(str(tmp_path / path))
    with pytest.raises(Unreadable, match="larger than 16 MB"):
        load_text_format("/dev/zero")


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(CLOSED).encode())
    assert load_text_format(str(tmp_path / "schema.json"))["format"]["schema"] == CLOSED


def test_an_object_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    nested = '{"items": ' * 5000 + "{}" + "}" * 5000
    schema = json.dumps(CLOSED).replace('{"type": "integer"}', nested)
    assert len(schema) > 5000
    with pytest.raises(Unreadable) as caught:
        text_format(tmp_path, schema)
    assert caught.value.message == f"{tmp_path / 'schema.json'} is nested too deeply"
