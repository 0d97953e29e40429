"""Histories are converted to messages of chat completions."""

import pytest

from convo.errors import InputFault, Unsupported
from convo.history.items import Item, Json, assistant_message, user_message
from convo.models.base import make_issuer_tag
from convo.models.chat_messages import build_chat_messages, encode_returned_fields, list_media_types


def call(call_id: str, name: str = "weather", arguments: str = "{}") -> Item:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, content: Json = "12 degrees") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def chat_tool_call(call_id: str, name: str = "weather", arguments: str = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user_chat_message(*parts: Json) -> Item:
    return {"role": "user", "content": list(parts)}


ONE_MESSAGE = {
    "a message in the short form": ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}),
    "text parts": (
        user_chat_message({"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}),
        {"role": "user", "content": "a\nb"},
    ),
    "a message without content": ({"role": "user", "content": []}, {"role": "user", "content": ""}),
    "a system message": ({"role": "system", "content": "be brief"}, {"role": "system", "content": "be brief"}),
    "a developer message": ({"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
    "an answer as output": (
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}],
        },
        {"role": "assistant", "content": "yes"},
    ),
    "an answer in the short form": ({"role": "assistant", "content": "yes"}, {"role": "assistant", "content": "yes"}),
    "a refusal": (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]},
        {"role": "assistant", "content": "I will not"},
    ),
    "an image": (
        user_chat_message(
            {"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": "data:x", "detail": "low"}
        ),
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what?"},
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
            ],
        },
    ),
    "an inline file": (
        user_chat_message({"type": "input_file", "filename": "a.pdf", "file_data": "data:y"}),
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:y"}}]},
    ),
    "audio": (
        user_chat_message({"type": "input_audio", "input_audio": {"data": "zz", "format": "wav"}}),
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "zz", "format": "wav"}}]},
    ),
    "a file without a name": (
        user_chat_message({"type": "input_file", "file_data": "data:y"}),
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:y"}}]},
    ),
    "parts of two types": (
        user_chat_message({"type": "text", "text": "a"}, {"type": "input_text", "text": None}),
        {"role": "user", "content": "a\n"},
    ),
    "a call without arguments": (
        call("c1", arguments=""),
        {"role": "assistant", "content": None, "tool_calls": [chat_tool_call("c1")]},
    ),
    "a tool output in parts": (
        output("c1", [{"type": "input_text", "text": "12"}, {"type": "input_text", "text": "degrees"}]),
        {"role": "tool", "tool_call_id": "c1", "content": "12\ndegrees"},
    ),
}


@pytest.mark.parametrize(("item", "message"), ONE_MESSAGE.values(), ids=ONE_MESSAGE)
def test_each_item_type_becomes_one_message(item: Item, message: Json) -> None:
    assert build_chat_messages([item], "m") == [message]


def test_instructions_come_first_as_a_system_message() -> None:
    messages = build_chat_messages([user_message("hi")], "m", "be brief")

    assert messages == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


def test_parallel_calls_of_one_answer_are_one_message_with_its_text() -> None:
    messages = build_chat_messages(
        [user_message("?"), assistant_message("I look."), call("c1"), call("c2"), output("c1"), output("c2")], "m"
    )

    assert messages[1:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": [chat_tool_call("c1"), chat_tool_call("c2")]},
        {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"},
        {"role": "tool", "tool_call_id": "c2", "content": "12 degrees"},
    ]


def test_text_between_calls_does_not_separate_a_call_from_its_output() -> None:
    messages = build_chat_messages(
        [call("c1"), assistant_message("And another."), call("c2"), output("c1"), output("c2")], "m"
    )

    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert messages[0] == {
        "role": "assistant",
        "content": "And another.",
        "tool_calls": [chat_tool_call("c1"), chat_tool_call("c2")],
    }


def test_calls_of_two_answers_are_two_messages() -> None:
    messages = build_chat_messages([call("c1"), output("c1"), call("c2"), output("c2")], "m")

    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]
    assert messages[0]["content"] is None


def test_two_answers_without_calls_are_two_messages() -> None:
    assert build_chat_messages([assistant_message("half an"), assistant_message("a whole one")], "m") == [
        {"role": "assistant", "content": "half an"},
        {"role": "assistant", "content": "a whole one"},
    ]


def test_reasoning_is_omitted_and_does_not_separate_an_answer_from_its_calls() -> None:
    reasoning_item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }

    assert build_chat_messages([reasoning_item, assistant_message("I look."), reasoning_item, call("c1")], "m") == [
        {"role": "assistant", "content": "I look.", "tool_calls": [chat_tool_call("c1")]}
    ]


def test_images_of_outputs_are_sent_after_the_last_output() -> None:
    image = {"type": "input_image", "image_url": "data:x"}
    shot = output("c1", [{"type": "input_text", "text": "done"}, image])

    messages = build_chat_messages([call("c1"), call("c2"), shot, output("c2", [image]), user_message("so?")], "m")

    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert [message["content"] for message in messages[1:3]] == ["done", "(shown in the next message)"]
    assert messages[3]["content"] == [
        {"type": "text", "text": "Shown by the tool call c1:"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
        {"type": "text", "text": "Shown by the tool call c2:"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
    ]


def test_a_late_output_is_sent_directly_after_its_call() -> None:
    messages = build_chat_messages([call("c1"), user_message("hurry"), output("c1")], "m")

    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]


DEEPSEEK = make_issuer_tag("deepseek", "v4", "https://api.deepseek.com")


def reasoning(text: str, by: str = DEEPSEEK) -> Item:
    content = [{"type": "reasoning_text", "text": text}]
    return {
        "type": "reasoning",
        "summary": [],
        "content": content,
        "encrypted_content": by + encode_returned_fields(message={"reasoning_content": text}),
    }


def test_a_server_that_needs_its_reasoning_back_gets_it_only_in_turns_with_calls() -> None:
    history = [
        *(user_message("hi"), reasoning("A greeting."), assistant_message("Hello.")),
        *(
            user_message("?"),
            reasoning("Né, "),
            reasoning("look."),
            call("c1"),
            output("c1"),
            reasoning("I see."),
            assistant_message("12."),
        ),
        user_message("thanks"),
    ]

    messages = build_chat_messages(history, "m", needs_reasoning=True, issuer=DEEPSEEK)

    reasoning_texts = [message.get("reasoning_content") for message in messages if message["role"] == "assistant"]
    assert reasoning_texts == [None, "Né, look.", "I see."]


@pytest.mark.parametrize(
    "omitted",
    [
        reasoning("Hm.", make_issuer_tag("deepseek", "v3", "https://api.deepseek.com")),
        {**reasoning(""), "encrypted_content": "x"},
    ],
    ids=["another model", "no issuer"],
)
def test_a_call_without_reasoning_of_that_model_gets_an_empty_reasoning_field(omitted: Item) -> None:
    messages = build_chat_messages(
        [user_message("?"), omitted, call("c1"), output("c1")], "m", needs_reasoning=True, issuer=DEEPSEEK
    )

    assert messages[1]["reasoning_content"] == ""


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "computer_call", "call_id": "c1"}, "computer_call items"),
        ({"type": "compaction", "encrypted_content": "xx"}, "compaction items"),
        ({"type": "item_reference", "id": "msg_1"}, "item_reference items"),
        ({"type": "tomorrows_kind"}, "tomorrows_kind items"),
        ({"role": "critic", "content": "bad"}, "messages with the role 'critic'"),
        (user_chat_message({"type": "tomorrows_part"}), "tomorrows_part parts"),
        (user_chat_message({"type": "input_image", "file_id": "file_1"}), "input_image parts"),
        (user_chat_message({"type": "input_file", "file_url": "https://example.org/a.pdf"}), "input_file parts"),
        ({"type": "computer_call_output", "call_id": "c1", "output": {}}, "computer_call_output items"),
        (user_chat_message({"type": "input_file", "filename": "a.pdf"}), "input_file parts of this form"),
        (
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "a"}, {"type": "input_image", "image_url": "x"}],
            },
            "image_url parts in an assistant message",
        ),
    ],
)
def test_an_item_that_chat_completions_does_not_support_is_refused_with_its_type(item: Item, expected: str) -> None:
    with pytest.raises(Unsupported, match=expected) as caught:
        build_chat_messages([user_message("hi"), item], "deepseek/m")
    assert caught.value.message.startswith("deepseek/m does not support ")
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (5, "a message's content is neither text nor a list of parts"),
        ({"type": "input_text", "text": "a"}, "a message's content is neither text nor a list of parts"),
        (["bare"], "a message's content contains a part that is not an object"),
    ],
)
def test_content_that_is_not_a_list_of_parts_is_refused(content: Json, message: str) -> None:
    with pytest.raises(InputFault) as caught:
        build_chat_messages([{"role": "user", "content": content}], "deepseek/m")
    assert caught.value.message == message


def test_a_message_without_content_is_empty() -> None:
    assert build_chat_messages([{"role": "user", "content": None}], "m") == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"type": "function_call", "call_id": "c1"}, "an item of type function_call has no 'name'"),
        ({"type": "function_call", "name": "f"}, "an item of type function_call has no 'call_id'"),
        ({"type": "function_call_output", "call_id": 7}, "an item of type function_call_output has no 'call_id'"),
    ],
)
def test_an_item_that_lacks_a_required_field_is_refused(item: Item, message: str) -> None:
    with pytest.raises(InputFault) as caught:
        build_chat_messages([item], "deepseek/m")
    assert caught.value.message == message


def test_a_turn_begins_with_the_user_message_after_the_outputs() -> None:
    """The reasoning of a turn with calls is sent, that of the next turn without calls is not."""
    history = [
        *(user_message("?"), reasoning("Look."), call("c1"), output("c1"), user_message("stop")),
        *(reasoning("Stop."), assistant_message("Well.")),
    ]

    assert build_chat_messages(history, "m", needs_reasoning=True, issuer=DEEPSEEK) == [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "reasoning_content": "Look.", "tool_calls": [chat_tool_call("c1")]},
        {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"},
        {"role": "user", "content": "stop"},
        {"role": "assistant", "content": "Well."},
    ]


def test_reasoning_that_was_modified_is_sent_as_an_empty_field() -> None:
    modified = {**reasoning("Hm."), "encrypted_content": f"{DEEPSEEK}no base64!"}
    assert (
        build_chat_messages([modified, call("c1")], "m", needs_reasoning=True, issuer=DEEPSEEK)[0]["reasoning_content"]
        == ""
    )


def test_the_parts_that_are_not_text_are_listed() -> None:
    items: list[Item] = [
        {"role": "user", "content": "a string"},
        {"role": "user", "content": ["bare", {"type": "input_text"}, {"type": "input_image"}, {"type": "later"}]},
        {"role": "assistant", "content": [{"type": "output_text"}, {"type": "refusal"}, {"type": "text"}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file"}, {}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_audio"}]},
    ]
    assert list(list_media_types(items)) == ["input_image", "later", "input_file", "None", "input_audio"]
