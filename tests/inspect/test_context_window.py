"""The token counts of the parts of a request, and the free tokens of the context window."""

from typing import Any

import pytest

from convo.chat.next_request import NextRequest, build_next_request_report
from convo.compaction.window import summary_message
from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.inspect.context_window import (
    COUNTED_BY_ENDPOINT,
    COUNTED_BY_ESTIMATE,
    category_parts,
    request_parts,
    sum_context_usage,
)
from convo.report import to_json
from convo.usage.counting import TOKENIZER_ENCODING, count_tokens
from convo.usage.model_info import ModelWindow

KNOWN = ModelWindow(1_000, counted=TOKENIZER_ENCODING)
NEAR = ModelWindow(1_000)
TOOL: dict[str, Any] = {"type": "function", "name": "tea", "parameters": {}}
CALL = {"type": "function_call", "call_id": "c", "name": "tea", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "hot"}
THOUGHT = {"type": "reasoning", "summary": [], "encrypted_content": "x" * 400}


def test_each_part_of_a_request_names_its_source() -> None:
    body = {"model": "m", "instructions": "Be brief.", "tools": [TOOL, TOOL], "input": [user_message("two")]}
    parts = request_parts([user_message("one"), assistant_message("first")], "held by resp_1", body, KNOWN)
    assert [(part.name, part.item_count) for part in parts] == [
        ("tools", 2),
        ("instructions", 1),
        ("held by resp_1", 2),
        ("input", 1),
    ]
    assert all(part.tokens.tokens for part in parts)


def test_an_empty_field_is_no_part() -> None:
    body = {"model": "m", "tools": [], "instructions": "", "input": []}
    assert [part.name for part in request_parts([], "held by resp_1", body, KNOWN)] == ["input"]


def test_a_context_window_by_item_type_has_every_item_in_one_part() -> None:
    items = [
        user_message("a"),
        {"role": "developer", "content": "b"},
        THOUGHT,
        CALL,
        OUTPUT,
        assistant_message("c"),
        user_message("d"),
    ]
    compactions = [{"type": "compaction", "encrypted_content": "x"}, summary_message("They talked.")]
    parts = category_parts([*items, *compactions], {}, KNOWN)
    assert {part.name: part.item_count for part in parts} == {
        "your messages": 2,
        "answers": 1,
        "reasoning": 1,
        "compaction": 2,
        "system messages": 1,
        "calls and outputs": 2,
    }
    assert sum(part.item_count for part in parts) == len(items) + 2


def test_a_count_with_the_tokenizer_of_the_model_is_exact_and_names_it() -> None:
    usage = sum_context_usage(request_parts([], "", {"input": [user_message("one two three")]}, KNOWN), KNOWN)
    assert (usage.total, usage.counted_by, usage.free_tokens) == ((7, False), TOKENIZER_ENCODING, 993)


@pytest.mark.parametrize("window", [None, NEAR], ids=["no window", "another vocabulary"])
def test_a_count_with_another_tokenizer_is_an_estimate(window: ModelWindow | None) -> None:
    usage = sum_context_usage(request_parts([], "", {"input": [user_message("one two three")]}, window), window)
    assert (usage.total.is_estimate, usage.counted_by) == (True, COUNTED_BY_ESTIMATE)


def test_an_item_that_cannot_be_counted_makes_the_total_an_estimate() -> None:
    usage = sum_context_usage(
        request_parts([THOUGHT], "held by conv_1", {"input": [user_message("one")]}, KNOWN), KNOWN
    )
    assert (usage.total.is_estimate, usage.counted_by) == (True, COUNTED_BY_ESTIMATE)
    assert usage.total.tokens > 75


def test_a_count_by_the_endpoint_replaces_the_total() -> None:
    usage = sum_context_usage(request_parts([], "", {"input": [user_message("one")]}, None), None, endpoint_count=77)
    assert (usage.total, usage.counted_by, usage.free_tokens) == ((77, False), COUNTED_BY_ENDPOINT, None)


def test_an_exceeded_context_window_has_no_free_tokens() -> None:
    assert sum_context_usage((), ModelWindow(10), endpoint_count=77).free_tokens == 0


def test_the_json_has_each_part_and_the_total() -> None:
    body = {"input": [user_message("one two three")]}
    usage = sum_context_usage(request_parts([], "", body, KNOWN), KNOWN)
    request = NextRequest("mine", Strategy.SESSION, None, (), "x/m", None, body, usage, {})
    shape = to_json(build_next_request_report(request))
    assert {name: shape[name] for name in ("parts", "tokens", "estimated", "counted_by", "window", "left")} == {
        "parts": [{"part": "input", "items": 1, "tokens": 7, "estimated": False}],
        "tokens": 7,
        "estimated": False,
        "counted_by": TOKENIZER_ENCODING,
        "window": 1_000,
        "left": 993,
    }


def test_the_json_has_the_complete_request() -> None:
    body = {"model": "m", "tools": [TOOL], "input": [user_message("one")]}
    nodes = Path(root_key("local")).append([user_message("before")]).nodes[:]
    usage = sum_context_usage((), None, endpoint_count=5)
    request = NextRequest(
        "mine", Strategy.CHAIN, "resp_1", nodes, "x/m", "https://a/v1", body, usage, {"a": "b"}, "KEY"
    )
    assert to_json(build_next_request_report(request)) == {
        "handle": "mine",
        "strategy": "chain",
        "model": "x/m",
        "method": "POST",
        "url": "https://a/v1",
        "before": {"owner": "resp_1", "items": [user_message("before")]},
        "body": body,
        "parts": [],
        "tokens": 5,
        "estimated": False,
        "counted_by": "the endpoint",
        "window": None,
        "left": None,
        "fits": None,
        "prefix": None,
    }


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ({"tools": [TOOL], "instructions": "Be brief."}, [("tools", 1), ("instructions", 1), ("input", 0)]),
        ({"instructions": "Be brief.", "input": None}, [("instructions", 1), ("input", 0)]),
    ],
)
def test_each_part_is_counted_by_itself(body: dict[str, Any], counts: list[tuple[str, int]]) -> None:
    parts = request_parts([], "", body, KNOWN)
    assert [(part.name, part.item_count) for part in parts] == counts
    tokens = {part.name: part.tokens for part in parts}
    assert tokens["instructions"] == count_tokens((), "Be brief.")
    assert tokens["input"] == (0, False)
    assert tokens.get("tools", count_tokens((), tools=[TOOL])) == count_tokens((), tools=[TOOL])
    by_category = {part.name: part.tokens for part in category_parts([], body, KNOWN)}
    assert by_category == {name: count for name, count in tokens.items() if name != "input"}


def test_a_full_window_has_no_free_token() -> None:
    usages = [sum_context_usage((), ModelWindow(77), endpoint_count=tokens) for tokens in (76, 77, 78)]
    assert [usage.free_tokens for usage in usages] == [1, 0, 0]
    assert sum_context_usage((), KNOWN).counted_by == TOKENIZER_ENCODING
