"""An item as readable passages, and its title."""

import pytest

from convo.compaction.window import summary_message
from convo.history.items import Item, Json, user_message
from convo.inspect.serialize import Passage, item_passages, item_title, replace_unprintable


@pytest.mark.parametrize(
    ("item", "title"),
    [
        ({"role": "user"}, "user"),
        (summary_message("They talked."), "summary"),
        ({"type": "message", "role": "assistant"}, "assistant"),
        ({"type": "function_call", "call_id": "c", "name": "weather"}, "call of weather"),
        ({"type": "local_shell_call", "call_id": "c"}, "call of local_shell_call"),
        ({"type": "function_call_output", "call_id": "c"}, "output of c"),
        ({"type": "local_shell_call_output", "id": "c"}, "output of local_shell_call_output"),
        ({"type": "web_search_call"}, "web_search_call"),
        ({"type": "x", "role": "a\x1bb"}, "a\ufffdb"),
        ({"type": "function_call", "name": "a\u202eb"}, "call of a\ufffdb"),
        ({"type": "function_call_output", "call_id": "a\u200bb"}, "output of a\ufffdb"),
    ],
)
def test_a_title_is_the_role_or_the_kind(item: Item, title: str) -> None:
    assert item_title(item) == title


@pytest.mark.parametrize(
    ("item", "passages"),
    [
        ({"role": "user", "content": "hi"}, [("prose", "hi")]),
        ({"role": "user", "content": [{"text": "a"}, {"refusal": "b"}]}, [("prose", "a"), ("prose", "b")]),
        ({"role": "user", "content": {"a": 1}}, [("code", '{\n  "a": 1\n}')]),
        ({"role": "user", "content": ["\u00fc"]}, [("code", '"\u00fc"')]),
        ({"role": "user", "content": None}, [("aside", "empty")]),
        ({"role": "user", "content": ""}, [("aside", "empty")]),
        (user_message("", {"type": "input_image", "image_url": "https://a/b"}), [("image", "https://a/b")]),
        (user_message("", {"type": "input_image", "file_id": "file-1"}), [("aside", "a file: file-1")]),
        (
            user_message("", {"type": "input_file", "filename": "a.pdf", "file_id": "f", "file_url": "u"}),
            [("aside", "a file: a.pdf")],
        ),
        (user_message("", {"type": "input_file", "file_id": "f", "file_url": "u"}), [("aside", "a file: f")]),
        (user_message("", {"type": "input_file", "file_url": "u"}), [("aside", "a file: u")]),
        (user_message("", {"type": "input_file"}), [("aside", "a file: unnamed")]),
        (user_message("", {"type": "odd"}), [("code", '{\n  "type": "odd"\n}')]),
        ({"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": "x"}, [("thought", "hm")]),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, [("aside", "encrypted reasoning")]),
        ({"type": "reasoning", "summary": []}, [("aside", "reasoning without text")]),
        ({"type": "function_call", "arguments": '{"a": "\\u00fc"}'}, [("code", '{"a": "\u00fc"}')]),
        ({"type": "custom_tool_call", "input": "s/a/b/"}, [("code", "s/a/b/")]),
        ({"type": "shell_call"}, [("code", '{\n  "type": "shell_call"\n}')]),
        ({"type": "function_call_output", "output": "rain"}, [("code", "rain")]),
        ({"type": "function_call_output", "output": [{"text": "rain"}]}, [("prose", "rain")]),
        ({"type": "compaction"}, [("aside", "compaction of the items before this one; encrypted")]),
        ({"type": "x"}, [("code", '{\n  "type": "x"\n}')]),
        ({"role": "user", "content": "a\r\nb\tc\x1b[0m"}, [("prose", "a\nb\tc\ufffd[0m")]),
    ],
)
def test_an_item_is_a_list_of_passages(item: Item, passages: list[tuple[str, str]]) -> None:
    assert [tuple(passage) for passage in item_passages(item)] == passages
    assert all(isinstance(passage, Passage) for passage in item_passages(item))


@pytest.mark.parametrize("text", ["plain\n\ttext", "\u00e9\u65e5\U0001f389", "e\u0301"])
def test_text_is_not_replaced(text: Json) -> None:
    assert replace_unprintable(text) == text


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\x9f", "\ud800", "\u202e", "\u2066", "\ufeff", "\r"])
def test_a_character_that_is_no_text_is_replaced(character: str) -> None:
    assert replace_unprintable(f"a{character}b") == "a\ufffdb"
