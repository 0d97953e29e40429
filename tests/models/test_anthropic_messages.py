"""Histories are converted to messages of the Messages API."""

import base64
from typing import Any

import pytest

from convo.errors import ConvoError, InputFault, Unsupported
from convo.history.items import Item, assistant_message, user_message
from convo.models.anthropic_messages import build_anthropic_messages, build_system_blocks, split_system_items
from convo.models.readers.messages import encode_thinking_block
from tests.models.anthropic_model import ISSUER_TAG, text_block

MODEL_NAME = "anthropic/claude-opus-5"
PNG: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}


def anthropic_messages(*items: Item) -> list[Any]:
    return build_anthropic_messages(items, MODEL_NAME, ISSUER_TAG)


def content_block(part: dict[str, Any]) -> Any:
    """Return the content block of one part of a user message."""
    return anthropic_messages({"type": "message", "role": "user", "content": [part]})[0]["content"][0]


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_system_prompts_have_the_instructions_first_and_keep_the_order() -> None:
    history = [
        {"role": "developer", "content": "never shout"},
        user_message("hi"),
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "it is noon"}]},
    ]

    system_items, others = split_system_items(history, has_system_messages=True)
    assert build_system_blocks(system_items, MODEL_NAME, "be brief") == [
        text_block("be brief"),
        text_block("never shout"),
        text_block("it is noon"),
    ]
    assert anthropic_messages(*others) == [{"role": "user", "content": [text_block("hi")]}]


@pytest.mark.parametrize(
    ("roles", "has_system_messages", "first", "sent"),
    [
        ("user assistant developer user", True, 0, "user assistant user system"),
        ("user assistant developer user assistant user", True, 0, "user assistant user system assistant user"),
        ("user assistant user developer assistant", True, 0, "user assistant user system assistant"),
        ("user assistant developer assistant user", True, 1, "user assistant user"),
        ("user assistant developer", True, 1, "user assistant"),
        ("developer user developer user assistant", True, 2, "user assistant"),
        ("user assistant developer user", False, 1, "user assistant user"),
    ],
)
def test_a_later_system_message_stands_between_the_user_and_the_assistant_or_in_front(
    roles: str, has_system_messages: bool, first: int, sent: str
) -> None:
    history = [{"type": "message", "role": role, "content": role} for role in roles.split()]
    system_items, others = split_system_items(history, has_system_messages=has_system_messages)
    messages = anthropic_messages(*others)
    assert (len(system_items), [message["role"] for message in messages]) == (first, sent.split())
    assert all(message["content"][0] == text_block("developer") for message in messages if message["role"] == "system")


def test_consecutive_items_of_one_role_are_one_message() -> None:
    assert anthropic_messages(
        user_message("a"),
        user_message("b"),
        assistant_message("c"),
        assistant_message("d"),
        {"role": "user", "content": "e"},
    ) == [
        {"role": "user", "content": [text_block("a"), text_block("b")]},
        {"role": "assistant", "content": [text_block("c"), text_block("d")]},
        {"role": "user", "content": [text_block("e")]},
    ]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "input_image", "image_url": "data:image/png;base64,iVBO"}, PNG),
        (
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "high"},
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "input_file", "file_url": "https://a.example/a.pdf"},
            {"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}},
        ),
        (
            {"type": "input_file", "file_data": f"data:text/plain;charset=utf-8;base64,{encode('né'.encode())}"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "né"}},
        ),
        ({"type": "refusal", "refusal": "No."}, text_block("No.")),
        ({"type": "text", "text": "a"}, text_block("a")),
        *(
            (
                {"type": "input_image", "image_url": f"data:IMAGE/{kind};base64,iVBO"},
                {"type": "image", "source": {**PNG["source"], "media_type": f"image/{kind.lower()}"}},
            )
            for kind in ("jpeg", "PNG", "gif", "webp")
        ),
        (
            {"type": "input_image", "image_url": "http://a.example/b.png"},
            {"type": "image", "source": {"type": "url", "url": "http://a.example/b.png"}},
        ),
        (
            {"type": "input_file", "filename": "", "file_data": "data:application/pdf;base64,JVBE"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
        ),
    ],
)
def test_content_parts_become_blocks(part: dict[str, Any], block: dict[str, Any]) -> None:
    assert content_block(part) == block


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"},
        {"type": "input_image", "image_url": "file:///etc/passwd"},
        {"type": "input_image", "image_url": "x;base64,AAAA"},
        {"type": "input_image", "image_url": "data:image/png,AAAA"},
        {"type": "later", "text": "x"},
        {"type": "input_file", "file_id": "file_1"},
        {"type": "input_file", "file_data": "data:application/zip;base64,AAAA"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_a_part_that_claude_does_not_support_is_refused_with_its_type(part: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=f"{part['type']} parts of this form") as error:
        content_block(part)

    assert error.value.param == "input"


@pytest.mark.parametrize("data", ["no base64!", encode(b"\xff")])
def test_a_text_file_that_is_not_text_is_refused(data: str) -> None:
    with pytest.raises(InputFault) as error:
        content_block({"type": "input_file", "file_data": f"data:text/plain;base64,{data}"})

    assert error.value.message == "a text/plain file does not contain text"


def test_empty_text_is_omitted() -> None:
    assert anthropic_messages(user_message(""), user_message("hi"), assistant_message("")) == [
        {"role": "user", "content": [text_block("hi")]}
    ]


def test_an_output_may_contain_images_and_its_failed_status() -> None:
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBO"}]
    call = {"type": "function_call", "call_id": "c", "name": "shot", "arguments": ""}
    output = {"type": "function_call_output", "call_id": "c", "output": parts, "status": "incomplete"}

    assert anthropic_messages(user_message("?"), call, output)[-1] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": [text_block("see"), PNG], "is_error": True}],
    }


def test_an_empty_output_is_sent() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": ""}

    assert anthropic_messages(call, output)[-1]["content"] == [{"type": "tool_result", "tool_use_id": "c"}]


@pytest.mark.parametrize("arguments", ['{"city": "Os', "[1]", "7"])
def test_arguments_that_are_no_json_object_are_sent_as_text(arguments: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}

    assert anthropic_messages(call)[0]["content"][0]["input"] == {"arguments": arguments}


def test_reasoning_without_an_answer_is_omitted() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    encrypted = {"type": "reasoning", "summary": [], "encrypted_content": ISSUER_TAG + encode_thinking_block(block)}

    assert anthropic_messages(user_message("hi"), encrypted, user_message("go on")) == [
        {"role": "user", "content": [text_block("hi"), text_block("go on")]}
    ]
    assert anthropic_messages(encrypted, assistant_message("a"), encrypted)[0]["content"] == [block, text_block("a")]


@pytest.mark.parametrize(
    "seal", [f"{ISSUER_TAG}not base64", f"{ISSUER_TAG}AAAA", f"{ISSUER_TAG}{encode(b'[1]')}", "gAAAA", None]
)
def test_encrypted_content_without_an_anthropic_thinking_block_is_omitted(seal: str | None) -> None:
    history = [{"type": "reasoning", "summary": [], "encrypted_content": seal}, assistant_message("a")]

    assert anthropic_messages(*history)[0]["content"] == [text_block("a")]


@pytest.mark.parametrize(
    ("item", "fault", "text"),
    [
        ({"type": "computer_call", "call_id": "c"}, Unsupported, "computer_call items"),
        ({"type": "computer_call_output", "call_id": "c"}, Unsupported, "computer_call_output items"),
        ({"type": "web_search_call", "id": "ws"}, Unsupported, "web_search_call items"),
        ({"type": "message", "role": "critic", "content": "no"}, Unsupported, "messages with the role 'critic'"),
        ({"type": "function_call", "call_id": "c"}, InputFault, "an item of type function_call has no 'name'"),
        ({"type": "message", "role": "user", "content": 7}, InputFault,
         "a message's content is neither text nor a list of parts"),
        ({"type": "message", "role": "user", "content": ["hi"]}, InputFault,
         "a message's content contains a part that is not an object"),
    ],
)  # fmt: skip
def test_an_item_that_claude_does_not_support_is_refused(
    item: dict[str, Any], fault: type[ConvoError], text: str
) -> None:
    with pytest.raises(fault) as error:
        anthropic_messages(item)

    assert text in error.value.message


def test_an_image_in_a_system_message_is_refused() -> None:
    part = {"type": "input_image", "image_url": "data:image/png;base64,iVBO"}

    with pytest.raises(Unsupported, match="image parts in a system message"):
        build_system_blocks([{"role": "system", "content": [part]}], MODEL_NAME)
