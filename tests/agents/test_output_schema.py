"""An output with a schema is parsed from the model's text, or refused with the reason."""

import json
from dataclasses import dataclass

import pytest
from agents import AgentOutputSchema

from convo.agents.agent import Output, output
from convo.errors import InputFault
from convo.tools.schema import Mismatch


@dataclass
class Paid:
    cents: int


def make_output(kind: object) -> Output:
    found = output(kind)
    assert found is not None
    return found


def test_plain_text_has_no_schema() -> None:
    assert output(None) is None
    assert output(str) is None


def test_an_object_is_the_root_and_other_types_are_below_response_as_in_the_agents_sdk() -> None:
    assert make_output(Paid).read('{"cents": 3}') == Paid(3)
    assert make_output(list[int]).read('{"response": [1]}') == [1]
    sdk_schema = AgentOutputSchema(list[int]).json_schema()
    assert list(sdk_schema["properties"]) == list(make_output(list[int]).schema["properties"])
    assert make_output(list[int]).format["name"] == "final_output"
    assert make_output(list[int]).format["strict"] is True


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Paid, "three", "the output is not JSON"),
        (Paid, '{"cents": "3"}', "cents: must be an integer, not '3'"),
        (list[int], "[1]", "the output has no field 'response'"),
        (list[int], '{"answer": [1]}', "the output has no field 'response'"),
        (int, '{"response": "1"}', "it: must be an integer, not '1'"),
        ({"type": "object"}, "[" * 100_000, "the output is not JSON"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_the_reason(kind: object, text: str, expected: str) -> None:
    with pytest.raises(Mismatch) as error:
        make_output(kind).read(text)
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        (bytes, "the output is bytes, which a strict schema cannot express", "use str, int, float, bool, Literal"),
        ({"type": "array"}, "an output schema must have an object at its root", '{"type": "object", ...}'),
        ({}, "an output schema must have an object at its root", '{"type": "object", ...}'),
    ],
)
def test_an_invalid_schema_is_refused(kind: object, message: str, hint: str) -> None:
    with pytest.raises(InputFault) as error:
        output(kind)
    assert error.value.message == message
    assert error.value.hint.startswith(hint)


PAID = {
    "type": "object",
    "properties": {"cents": {"type": "integer"}},
    "required": ["cents"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Paid, PAID),
        (PAID, PAID),
        (
            int,
            {
                "type": "object",
                "properties": {"response": {"type": "integer"}},
                "required": ["response"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_the_format_of_a_request_has_the_schema(kind: object, schema: dict[str, object], strict: bool) -> None:
    found = output(kind, strict=strict)
    assert found is not None
    assert found.format == {"type": "json_schema", "name": "final_output", "schema": schema, "strict": strict}


def test_a_schema_that_is_not_strict_may_be_open() -> None:
    found = output(dict[str, int], strict=False)
    assert found is not None
    assert found.value('{"a": 1}') == {"a": 1}
    with pytest.raises(Mismatch, match=r"^a: must be an integer, not 'b'$"):
        found.value('{"a": "b"}')


def test_an_error_of_the_output_type_is_the_reason() -> None:
    with pytest.raises(Mismatch, match=r"it: KeyError\('cents'\)"):
        Output({"type": "object"}, lambda text: json.loads(text)["cents"]).value("{}")
    with pytest.raises(Mismatch, match=r"cents: must be an integer"):
        make_output(Paid).value('{"cents": "3"}')
    assert make_output(Paid).value('{"cents": 3}') == Paid(3)
