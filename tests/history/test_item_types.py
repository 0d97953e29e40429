"""Item types and the properties that depend on them."""

import pytest

from convo.history.items import (
    SUMMARY_HEADING,
    Item,
    assistant_message,
    get_call_id,
    is_assistant_message,
    is_client_call,
    is_client_output,
    is_compaction,
    is_summary,
    is_user_message,
    is_valid_id,
    item_type,
    to_resendable,
    user_message,
)

CLIENT_CALLS = [
    "function_call",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
]
SUMMARY = user_message(f"{SUMMARY_HEADING}\n\nThey counted.")


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"role": "user"}, "message"),
        ({"type": None, "role": "user"}, "message"),
        ({"type": "reasoning", "role": "user"}, "reasoning"),
        ({"type": 7}, "7"),
        ({"content": "hi"}, "unknown"),
    ],
)
def test_an_easy_message_needs_no_type(item: Item, kind: str) -> None:
    assert item_type(item) == kind


@pytest.mark.parametrize("kind", CLIENT_CALLS)
def test_the_client_answers_these_calls(kind: str) -> None:
    call, output = {"type": kind}, {"type": f"{kind}_output"}
    assert (is_client_call(call), is_client_output(call)) == (True, False)
    assert (is_client_call(output), is_client_output(output)) == (False, True)


@pytest.mark.parametrize("kind", [None, 7, "message", "web_search_call", "tool_search_output", "mcp_approval_request"])
def test_other_items_need_no_output_of_the_client(kind: object) -> None:
    assert (is_client_call({"type": kind}), is_client_output({"type": kind})) == (False, False)


@pytest.mark.parametrize(("call_id", "found"), [("c", "c"), ("", ""), (7, None), (None, None)])
def test_a_call_id_is_text(call_id: object, found: str | None) -> None:
    assert get_call_id({"call_id": call_id}) == found


@pytest.mark.parametrize(
    ("item", "is_user", "is_assistant"),
    [
        ({"role": "user"}, True, False),
        (user_message("hi"), True, False),
        (assistant_message("hi"), False, True),
        ({"role": "system"}, False, False),
        ({"type": "other", "role": "user"}, False, False),
        ({"type": "other", "role": "assistant"}, False, False),
    ],
)
def test_a_message_has_a_role(item: Item, is_user: bool, is_assistant: bool) -> None:
    assert (is_user_message(item), is_assistant_message(item)) == (is_user, is_assistant)


@pytest.mark.parametrize(
    ("item", "summary", "compaction"),
    [
        (SUMMARY, True, True),
        ({"type": "compaction"}, False, True),
        ({**SUMMARY, "role": "assistant"}, False, False),
        (user_message(f"I quote: {SUMMARY_HEADING}"), False, False),
    ],
)
def test_a_summary_replaces_earlier_items(item: Item, summary: bool, compaction: bool) -> None:
    assert (is_summary(item), is_compaction(item)) == (summary, compaction)


def test_the_heading_of_stored_summaries_stays() -> None:
    """Summaries of earlier versions are recognized by their heading."""
    stored = "Summary of the conversation up to here, in place of its earlier messages:\n\nThey counted."
    assert is_summary({"role": "user", "content": stored})


@pytest.mark.parametrize(
    ("kind", "keeps_id"),
    [
        ("message", False),
        ("function_call", False),
        ("function_call_output", False),
        ("custom_tool_call", False),
        ("custom_tool_call_output", False),
        ("compaction", False),
        ("computer_call", True),
        ("item_reference", True),
        ("from_the_future", True),
    ],
)
def test_an_id_is_left_out_only_where_it_is_optional(kind: str, keeps_id: bool) -> None:
    item = {"type": kind, "id": "x_1", "arguments": "{}"}
    assert to_resendable(item) == (item if keeps_id else {"type": kind, "arguments": "{}"})
    assert item["id"] == "x_1"


@pytest.mark.parametrize("value", ["a", "resp_1", "a.b", "...", "AZaz09_.:=+~@$-", "x" * 512])
def test_a_well_formed_id(value: str) -> None:
    assert is_valid_id(value)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a b", "a\n", "ü", "x" * 513, None, 7, b"a"])
def test_a_malformed_id(value: object) -> None:
    assert not is_valid_id(value)
