"""The context values of an application in a state."""

from dataclasses import dataclass
from typing import Any

import agents as sdk
import pytest
from agents import RunContextWrapper
from agents.run_state import RunState
from pydantic import BaseModel

from convo.errors import InputFault
from convo.runstate.run_items import build_context_members

NONE = {"original_type": "none", "serialized_via": "none", "requires_deserializer": False, "omitted": False}
MAPPING = {"original_type": "mapping", "serialized_via": "mapping", "requires_deserializer": False, "omitted": False}


@pytest.mark.parametrize(
    ("values", "base", "members"),
    [
        ({}, None, {"context": None, "context_meta": NONE}),
        ({"a": 1}, None, {"context": {"a": 1}, "context_meta": MAPPING}),
        ({"a": 1}, {"context": {"a": 2}, "context_meta": {"x": 1}}, {"context": {"a": 1}, "context_meta": MAPPING}),
        (
            {"a": 1},
            {"context": {"a": 1}, "context_meta": {"x": 1}, "usage": {}},
            {"context": {"a": 1}, "context_meta": {"x": 1}},
        ),
        ({}, {"context": None, "usage": {}}, {"context": None}),
        ({}, {"usage": {}}, {}),
    ],
)
def test_equal_values_are_written_as_they_were_read(values: Any, base: Any, members: dict[str, Any]) -> None:
    assert build_context_members(values, base) == members


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": 1, "b": object()}, "the context's 'b' is not JSON, so it cannot be restored"),
        ({"a": float("nan")}, "the context's 'a' is not JSON, so it cannot be restored"),
    ],
)
def test_values_that_cannot_be_restored_are_refused(values: Any, message: str) -> None:
    with pytest.raises(InputFault) as error:
        build_context_members(values)
    assert error.value.message == message


@dataclass
class Shop:
    name: str
    lines: Any = 0


class Basket(BaseModel):
    size: int = 1
    owner: str = "kim"


class Clerk:
    name = "Ada"


OBJECTS = {
    "a dataclass": (Shop("north"), None),
    "a dataclass that is not JSON": (Shop("north", object()), None),
    "a pydantic model, whose set fields are stored": (Basket(size=2), None),
    "another object": (Clerk(), None),
    "another object with a serializer": (Clerk(), lambda clerk: {"name": clerk.name}),
    "a dataclass with a serializer": (Shop("north"), lambda shop: {"name": shop.name}),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.filterwarnings("ignore")
def test_an_object_is_written_as_the_sdk_writes_it(name: str) -> None:
    context, serializer = OBJECTS[name]
    agent = sdk.Agent(name="a")
    state = RunState(RunContextWrapper(context), "hello", agent, 3)
    written = state.to_json(context_serializer=serializer)["context"]
    expected = {key: written[key] for key in ("context", "context_meta")}
    assert build_context_members(context, None, serializer) == expected
    if not expected["context_meta"]["omitted"]:
        base = {"context": expected["context"], "context_meta": {"of": "another program"}}
        assert build_context_members(context, base, serializer) == base


def test_a_serializer_that_returns_no_mapping_is_refused() -> None:
    with pytest.raises(InputFault, match="the context was serialized to a list"):
        build_context_members(Clerk(), None, lambda clerk: [clerk])
