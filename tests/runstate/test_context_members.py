"""The context values of an application in a state."""

from typing import Any

import pytest

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
        ([1], "the context is a list, but only a mapping can be restored"),
        ({"a": 1, "b": object()}, "the context's 'b' is not JSON, so it cannot be restored"),
        ({"a": float("nan")}, "the context's 'a' is not JSON, so it cannot be restored"),
    ],
)
def test_values_that_cannot_be_restored_are_refused(values: Any, message: str) -> None:
    with pytest.raises(InputFault) as error:
        build_context_members(values)
    assert error.value.message == message
