"""The form in which unconfirmed and resent items are sent."""

import pytest

from convo.history.items import Item, Json, assistant_message, to_resendable, to_sendable, user_message

DONE = {**assistant_message("whole"), "id": "msg_1", "status": "completed"}
INCOMPLETE = {**assistant_message("half an ans"), "id": "msg_2", "status": "incomplete"}
CALL: Item = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}


def test_a_partial_answer_is_sent_as_its_text() -> None:
    assert to_sendable(INCOMPLETE) == assistant_message("half an ans")


@pytest.mark.parametrize(
    "item",
    [
        {**CALL, "status": "incomplete"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "status": "in_progress"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "status": "in_progress"},
        {**assistant_message(""), "id": "msg_3", "status": "in_progress"},
    ],
)
def test_an_incomplete_item_without_text_is_omitted(item: Item) -> None:
    assert to_sendable(item) is None


@pytest.mark.parametrize(
    "item",
    [
        DONE,
        user_message("hi"),
        {**user_message("hi"), "status": "in_progress"},
        {"role": "user", "content": "easy"},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        {"type": "function_call_output", "call_id": "c", "status": "incomplete", "output": "42"},
        {"type": "something_new", "deep": {"er": [1]}},
        {**CALL, "status": "in_progress", "caller": {"type": "program", "caller_id": "p"}},
    ],
)
def test_a_complete_item_is_sent_unchanged(item: Item) -> None:
    assert to_sendable(item) == item


@pytest.mark.parametrize(
    "item", [DONE, {**CALL, "status": "completed"}, {"type": "reasoning", "id": "rs_1", "encrypted_content": "gA"}]
)
def test_an_item_of_the_local_history_is_sent_without_its_id(item: Item) -> None:
    assert to_resendable(item) == {key: value for key, value in item.items() if key != "id"}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a', '{"arguments": "{\\"a"}'),
        ("[1]", '{"arguments": "[1]"}'),
        ({"a": 1}, '{"a": 1}'),
        ("", "{}"),
        (None, "{}"),
        (' {"a":1}', ' {"a":1}'),
    ],
)
def test_arguments_are_sent_as_a_json_object(arguments: Json, sent: str) -> None:
    call = {**CALL, "arguments": arguments}
    for send in (to_sendable, to_resendable):
        form = send(call)
        assert form
        assert form["arguments"] == sent


def test_an_item_that_needs_its_id_keeps_it() -> None:
    found = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert to_resendable(found) == found


def test_unencrypted_reasoning_is_not_sent() -> None:
    assert to_resendable({"type": "reasoning", "id": "rs_1", "summary": []}) is None


def test_a_sent_message_has_its_text_and_its_attachments() -> None:
    image = {"type": "input_image", "image_url": "data:,"}

    assert user_message("look", image)["content"] == [{"type": "input_text", "text": "look"}, image]
    assert user_message("", image)["content"] == [image]
    assert user_message("")["content"] == [{"type": "input_text", "text": ""}]


@pytest.mark.parametrize("item", [user_message("hi"), {"role": "user", "content": "hi"}, {"type": "x", "id": "x_1"}])
def test_an_item_without_an_optional_id_travels_as_it_is(item: Item) -> None:
    assert to_resendable(item) is item
