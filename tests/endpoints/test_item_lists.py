"""Item lists: ids, the form of the API, pages, and the checks of items before a model call."""

from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.history.items import Item
from convo.history.tree import Path, root_key
from convo.responses_api.history import (
    check_call_pairs,
    check_strict_input,
    id_prefix,
    own_id,
    paginate_items,
    remove_incomplete_items,
    resolve_item_ids,
    select_new_items,
    to_api_item,
)
from tests.endpoints.endpoint_calls import error_fields, user_item


def call(call_id: str = "c1", item_type: str = "function_call", **fields: Any) -> dict[str, Any]:
    return {"type": item_type, "call_id": call_id, **fields}


def output(call_id: str = "c1", item_type: str = "function_call_output", **fields: Any) -> dict[str, Any]:
    return {"type": item_type, "call_id": call_id, "output": "x", **fields}


# -- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "prefix"),
    [
        (user_item("a"), "msg"),
        ({"role": "user", "content": "a"}, "msg"),
        ({"type": "reasoning"}, "rs"),
        ({"type": "compaction"}, "cmp"),
        (call(), "fc"),
        (output(), "fc"),
        (call(item_type="custom_tool_call"), "ctc"),
        (output(item_type="custom_tool_call_output"), "ctc"),
        ({"type": "web_search_call"}, "item"),
    ],
    ids=str,
)
def test_an_item_without_an_id_gets_one_with_the_prefix_of_its_type(item: Item, prefix: str) -> None:
    assert id_prefix(item) == prefix
    path = Path(root_key("local")).append([item])
    (built,) = resolve_item_ids(path)
    assert built == f"{prefix}_{path.head[:48]}"
    assert len(built) == len(prefix) + 49


def test_the_id_of_an_item_takes_precedence_over_its_id_in_the_conversation() -> None:
    path = Path(root_key("local")).append(
        [{**user_item("a"), "id": "msg_own"}, user_item("b"), {**user_item("c"), "id": ""}]
    )
    conversation_ids = {key: f"msg_{number}" for number, key in enumerate(path.keys)}
    assert resolve_item_ids(path, conversation_ids) == ("msg_own", "msg_1", "msg_2")


@pytest.mark.parametrize(
    ("item", "item_id"), [({"id": "msg_1"}, "msg_1"), ({"id": ""}, None), ({"id": 7}, None), ({}, None)]
)
def test_the_id_of_an_item_is_text_that_is_not_empty(item: Item, item_id: str | None) -> None:
    assert own_id(item) == item_id


# -- the form of the API --------------------------------------------------------------------------

PARTS = [{"type": "input_text", "text": "a"}]


@pytest.mark.parametrize(
    ("item", "api_item"),
    [
        (
            {"role": "user", "content": "a"},
            {"role": "user", "content": PARTS, "type": "message", "id": "x", "status": "completed"},
        ),
        (
            {"type": "message", "role": "user", "content": PARTS, "status": "incomplete", "id": "old"},
            {"type": "message", "role": "user", "content": PARTS, "status": "incomplete", "id": "x"},
        ),
        (call(status=None), {**call(), "id": "x", "status": "completed"}),
        (output(), {**output(), "id": "x", "status": "completed"}),
        (call(item_type="custom_tool_call"), {**call(item_type="custom_tool_call"), "id": "x"}),
        ({"type": "reasoning", "content": "a"}, {"type": "reasoning", "content": "a", "id": "x"}),
    ],
    ids=str,
)
def test_a_list_shows_an_item_in_the_form_of_the_api(item: Item, api_item: dict[str, Any]) -> None:
    assert to_api_item(item, "x") == api_item


# -- pages ----------------------------------------------------------------------------------------

ITEMS = [user_item(letter) for letter in "abcde"]
IDS = [f"msg_{letter}" for letter in "abcde"]


def page(**query: Any) -> tuple[str, bool]:
    result = paginate_items(ITEMS, IDS, **{"after": None, "limit": 20, "order": "asc", **query})
    return "".join(str(item["id"])[-1] for item in result.items), result.has_more


@pytest.mark.parametrize(
    ("query", "letters", "has_more"),
    [
        ({}, "abcde", False),
        ({"order": "desc"}, "edcba", False),
        ({"limit": 5}, "abcde", False),
        ({"limit": 4}, "abcd", True),
        ({"limit": 1}, "a", True),
        ({"limit": 100}, "abcde", False),
        ({"after": "msg_b"}, "cde", False),
        ({"after": "msg_b", "limit": 2}, "cd", True),
        ({"after": "msg_b", "limit": 3}, "cde", False),
        ({"after": "msg_e"}, "", False),
        ({"after": "msg_b", "order": "desc"}, "a", False),
        ({"before": "msg_d"}, "abc", False),
        ({"before": "msg_d", "limit": 2}, "bc", True),
        ({"before": "msg_d", "limit": 3}, "abc", False),
        ({"before": "msg_d", "order": "desc"}, "e", False),
        ({"before": "msg_a"}, "", False),
        ({"after": "msg_a", "before": "msg_e", "limit": 2}, "bc", True),
        ({"after": "msg_a", "before": "msg_e", "limit": 3}, "bcd", False),
        ({"after": "msg_d", "before": "msg_b"}, "", False),
    ],
    ids=str,
)
def test_a_page_is_cut_by_cursors_and_limit(query: dict[str, Any], letters: str, has_more: bool) -> None:
    assert page(**query) == (letters, has_more)


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ({"limit": 0}, "integer_below_min_value", "limit"),
        ({"limit": 101}, "integer_above_max_value", "limit"),
        ({"limit": True}, "invalid_type", "limit"),
        ({"order": "up"}, "invalid_value", "order"),
        ({"after": "msg_z"}, "invalid_value", "after"),
        ({"before": "msg_z"}, "invalid_value", "before"),
    ],
    ids=str,
)
def test_a_page_outside_its_limits_is_refused_by_name(query: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        page(**query)
    assert error_fields(caught.value) == (code, 400, param)


# -- new items ------------------------------------------------------------------------------------


def test_an_item_that_the_history_has_is_not_added_and_one_that_it_repeats_is_refused() -> None:
    first, other = {**user_item("a"), "id": "msg_1"}, {**user_item("b"), "id": "msg_2"}
    reference = {"type": "item_reference", "id": "msg_2"}
    assert select_new_items([first, reference, user_item("c"), user_item("c")], (), {"msg_2": other}) == (
        first,
        other,
        user_item("c"),
        user_item("c"),
    )
    assert select_new_items([reference, first], ["msg_2"], {}) == (first,)
    for items, known in (([first, first], ()), ([first], ("msg_1",))):
        with pytest.raises(RequestRefused, match="Duplicate item found with id msg_1"):
            select_new_items(items, known, {})
    assert select_new_items([reference, reference], (), {"msg_2": other}) == (other,)
    with pytest.raises(RequestRefused, match="Duplicate item found with id msg_2"):
        select_new_items([reference, other], (), {"msg_2": other})


# -- calls and outputs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([call("c1"), call("c2"), output("c2"), output("c1")], None),
        ([call(), output(), call(), output()], None),
        ([*[call()] * 3, *[output()] * 3], None),
        ([call(status="incomplete"), call(), output()], None),
        ([call(status="completed"), output()], None),
        ([{"type": "web_search_call", "call_id": "c1"}, {"type": "mcp_call", "id": "mcp_1"}], None),
        ([call(call_id=None)], None),  # type: ignore[arg-type]  # as another server stored it
        ([call(), output(), call()], "No tool output found for function call c1"),
        ([call(), call(), output()], "No tool output found for function call c1"),
        ([call("c1"), call("c2"), output("c1")], "No tool output found for function call c2"),
        ([call(), output(), output()], "Duplicate function call output for call_id c1."),
        ([output()], "No tool call found for function call output with call_id c1"),
        ([output(), call()], "No tool call found for function call output with call_id c1"),
        ([{"type": "tool_search_call", "call_id": "c1", "execution": "client"}, output()], None),
        ([{"type": "tool_search_call", "call_id": "c2"}, output()], "No tool call found for function call output"),
        (
            [{"type": "local_shell_call_output", "id": "c9", "output": "x"}],
            "No tool call found for local shell call output with call_id c9",
        ),
        ([{"type": "local_shell_call_output", "id": 9, "output": "x"}], None),
        ([{"type": "function_call_output", "id": "c9", "output": "x"}], None),
    ],
    ids=str,
)
def test_calls_and_outputs_are_paired_before_a_model_is_called(items: list[Item], message: str | None) -> None:
    if message is None:
        check_call_pairs(items)
        return
    with pytest.raises(RequestRefused) as caught:
        check_call_pairs(items)
    assert caught.value.message.startswith(message)


def test_an_incomplete_call_is_sent_only_with_its_output() -> None:
    incomplete, other = call("c1", status="incomplete"), call("c2", status="in_progress")
    assert remove_incomplete_items([incomplete, other, output("c2")]) == (other, output("c2"))
    items = [user_item("a"), call(), output()]
    assert remove_incomplete_items(items) is items


# -- strict input ---------------------------------------------------------------------------------

ANSWER = {"type": "message", "role": "assistant", "content": "hello"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
COMPACTION = {"type": "compaction", "encrypted_content": "x"}


def check_strict(items: list[Any], known_ids: tuple[str, ...] = (), history: tuple[Item, ...] = ()) -> None:
    check_strict_input(items, known_ids, [*history, *items])


@pytest.mark.parametrize("follower", [ANSWER, call(arguments="{}"), {"type": "web_search_call", "id": "ws_1"}], ids=str)
def test_reasoning_is_followed_by_an_output_of_the_model(follower: Item) -> None:
    check_strict([REASONING, follower, *([output()] if "call_id" in follower else [])])


@pytest.mark.parametrize(
    "follower",
    [
        user_item("a"),
        {"type": "mcp_approval_response"},
        {"type": "compaction_trigger"},
        {"role": "developer", "content": "b"},
    ],
    ids=str,
)
def test_reasoning_before_anything_else_is_refused_by_its_id_or_place(follower: Item) -> None:
    for item, name in ((REASONING, "rs_1"), ({**REASONING, "id": None}, "input[1]")):
        with pytest.raises(RequestRefused) as caught:
            check_strict([user_item("q"), item, follower])
        assert caught.value.message == (
            f"Item '{name}' of type 'reasoning' was provided without its required following item"
        )
        assert error_fields(caught.value) == ("invalid_request_error", 400, "input")


def test_reasoning_needs_a_summary_and_a_content_or_a_known_id() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    check_strict([reasoning, ANSWER], known_ids=("rs_1",))
    check_strict([{**reasoning, "content": [{"type": "reasoning_text", "text": "x"}]}, ANSWER])
    with pytest.raises(RequestRefused) as unknown:
        check_strict([reasoning, ANSWER], known_ids=("rs_2",))
    assert error_fields(unknown.value) == ("invalid_request_error", 404, "input")
    with pytest.raises(RequestRefused) as caught:
        check_strict([user_item("q"), {**REASONING, "summary": "x"}, ANSWER])
    assert error_fields(caught.value) == ("missing_required_parameter", 400, "input[1].summary")


@pytest.mark.parametrize("arguments", ["{", "[]", "7", "null", ""])
def test_arguments_are_the_text_of_an_object(arguments: str) -> None:
    check_strict([call(arguments='{"a": 1}'), output()])
    with pytest.raises(RequestRefused) as caught:
        check_strict([user_item("q"), call(arguments=arguments), output()])
    assert error_fields(caught.value) == ("invalid_type", 400, "input[1].arguments")
    assert caught.value.message == (
        "Invalid type for 'input[1].arguments': expected the text of a JSON object, but got something else instead"
    )


def test_a_compaction_replaces_the_calls_before_it_and_no_stored_history() -> None:
    check_strict([call(arguments="{}"), COMPACTION, user_item("a")])
    check_strict([call("c0", arguments="{}"), COMPACTION, call(arguments="{}"), output()])
    with pytest.raises(RequestRefused, match="No tool call found"):
        check_strict([call(arguments="{}"), COMPACTION, output()])
    with pytest.raises(RequestRefused) as caught:
        check_strict([user_item("q"), COMPACTION], history=(user_item("a"),))
    assert (caught.value.message, caught.value.param) == (
        "A compaction item cannot follow the history that it replaces",
        "input[1]",
    )


def test_an_item_whose_type_is_no_text_is_no_call() -> None:
    check_call_pairs([{"type": {"a": []}, "id": "msg_9"}, {"type": ["x"]}])
