"""Checks of a history before it is sent to a model: calls with outputs, and incomplete items."""

from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.responses_api.history import check_call_pairs, remove_incomplete_items
from tests.endpoints.endpoint_calls import user_item


def call(item_type: str = "function_call", **fields: Any) -> dict[str, Any]:
    return {"type": item_type, "call_id": "c1", **fields}


def output(item_type: str = "function_call_output", **fields: Any) -> dict[str, Any]:
    return {"type": item_type, "call_id": "c1", "output": "x", **fields}


def test_a_local_shell_call_is_identified_by_its_item_id() -> None:
    shell_output = {"type": "local_shell_call_output", "id": "c1", "output": "x"}
    check_call_pairs([call("local_shell_call"), shell_output])
    with pytest.raises(RequestRefused):
        check_call_pairs([{**shell_output, "id": "c2"}])


def test_an_incomplete_call_needs_no_output_and_is_omitted() -> None:
    incomplete = call(status="incomplete", arguments='{"ci')
    check_call_pairs([incomplete, user_item("go on")])
    assert remove_incomplete_items([incomplete, user_item("go on")]) == (user_item("go on"),)


@pytest.mark.parametrize(
    "item",
    [
        output(status="incomplete"),
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "no such file"},
        {"type": "image_generation_call", "id": "ig_1", "status": "failed", "result": None},
        {"role": "user", "status": "incomplete", "content": [{"type": "input_image", "image_url": "data:,"}]},
    ],
)
def test_a_failed_item_and_a_user_item_are_sent(item: dict[str, Any]) -> None:
    assert remove_incomplete_items([item]) == (item,)


def test_a_partial_answer_is_sent_as_its_text() -> None:
    partial = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "incomplete",
        "content": [{"type": "output_text", "text": "Half an", "annotations": []}],
    }
    assert remove_incomplete_items(
        [partial, {"type": "reasoning", "id": "rs_1", "summary": [], "status": "incomplete"}]
    ) == ({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Half an"}]},)
