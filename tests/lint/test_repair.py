"""Repaired histories: items, their order, and the response from which a chain continues."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.errors import Unrepairable
from convo.history.items import Item, item_type
from convo.history.records import Strategy
from convo.lint import repair
from convo.lint.calls import INTERRUPTED_MESSAGE
from convo.lint.model import LintView, RepairChange, lint_view_of_conversation, lint_view_of_file, without_id
from convo.lint.repair import RepairResult, repair_for_file, repair_for_session
from convo.lint.rules import LINT_RULES, lint_history
from tests.inspect.conversation_builder import build_chain
from tests.lint.lint_views import (
    ACME,
    CHAIN,
    CONVERSATION,
    DAY_S,
    OPENAI,
    SESSION,
    answer,
    call,
    make_lint_view,
    output,
    sealed_reasoning,
    turn,
    unsealed_reasoning,
    user,
)

COMPACTION = {"type": "compaction", "encrypted_content": "convo1:openai/o3:0:x"}


def shape(items: tuple[Item, ...]) -> list[str]:
    """Return the types of items with their call ids."""
    return [" ".join(filter(None, (item_type(item), item.get("call_id")))) for item in items]


def list_changes(repair: RepairResult) -> list[tuple[str, str, int | None]]:
    return [(one.code, one.action, one.source_index) for one in repair.changes]


def test_interrupted_outputs_come_after_the_batch_in_the_order_of_the_calls() -> None:
    view = lint_view_of_file([user(), call("a"), call("b"), call("c"), output("b"), answer(), user()])
    repaired = repair_for_file(view)
    assert shape(repaired.view.items)[1:7] == [
        *("function_call a", "function_call b", "function_call c", "function_call_output b"),
        *("function_call_output a", "function_call_output c"),
    ]
    assert repaired.view.items[5] == {"type": "function_call_output", "call_id": "a", "output": INTERRUPTED_MESSAGE}
    assert list_changes(repaired) == [("call-without-output", "added", 1), ("call-without-output", "added", 3)]


CLOSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": INTERRUPTED_MESSAGE},
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "sed", "input": "s/a/b/"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": INTERRUPTED_MESSAGE},
    ),
    (
        {"type": "local_shell_call", "id": "c", "call_id": "c", "action": {}, "status": "completed"},
        {"type": "local_shell_call_output", "id": "c", "output": json.dumps({"output": INTERRUPTED_MESSAGE})},
    ),
    (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "", "stderr": INTERRUPTED_MESSAGE, "outcome": {"type": "exit", "exit_code": 130}}],
        },
    ),
    (
        {"type": "apply_patch_call", "call_id": "c", "operation": {}, "status": "completed"},
        {"type": "apply_patch_call_output", "call_id": "c", "output": INTERRUPTED_MESSAGE, "status": "failed"},
    ),
]


@pytest.mark.parametrize(("made_call", "closed"), CLOSED, ids=[made_call["type"] for made_call, _ in CLOSED])
def test_an_interrupted_call_is_closed_by_an_output_of_its_own_type(
    made_call: dict[str, Any], closed: dict[str, Any]
) -> None:
    repaired = repair_for_file(lint_view_of_file([user(), made_call, user("and now?")]))
    assert repaired.view.items[2] == closed


def test_an_open_call_of_a_chain_is_closed_by_new_input() -> None:
    view = make_lint_view(CHAIN, turn([user()], [answer()]), turn([user()], [call()]), unconfirmed=[user("and now?")])
    repaired = repair_for_session(view).view
    assert (repaired.strategy, repaired.server_count, repaired.anchor) == (CHAIN, 4, view.anchor)
    assert shape(repaired.items) == [
        *("message", "message", "message", "function_call c1"),
        *("function_call_output c1", "message"),
    ]


def test_a_chain_moves_back_to_the_last_valid_response_and_keeps_unconfirmed_items() -> None:
    view = make_lint_view(
        CHAIN,
        turn([user("1")], [answer("one")]),
        turn([user("2")], [answer("two")], is_stored=False),
        turn([user("3")], [answer("three")]),
        unconfirmed=[user("4")],
    )
    repaired = repair_for_session(view)
    assert repaired.view.anchor
    assert repaired.view.anchor.id == "resp_1"
    assert (repaired.view.items, repaired.view.server_count) == ((user("1"), answer("one"), user("4")), 2)
    assert list_changes(repaired) == [
        ("store-false-in-chain", "anchor", None),
        *(("store-false-in-chain", "dropped", number) for number in (2, 3, 4, 5)),
    ]


def test_a_chain_without_a_valid_response_becomes_local_and_its_items_are_repaired_too() -> None:
    view = make_lint_view(CHAIN, turn([user()], [sealed_reasoning(), call()]), scope=OPENAI, age_s=31 * DAY_S)
    repaired = repair_for_session(view)
    assert (repaired.view.strategy, repaired.view.server_count, repaired.view.anchor) == (SESSION, 0, None)
    assert list_changes(repaired) == [("anchor-expired", "owner", None), ("call-without-output", "added", 2)]


def test_a_chain_does_not_move_back_to_an_expiring_response() -> None:
    old = {"created_at": 1_700_000_000.0 - 29 * DAY_S}
    view = make_lint_view(
        CHAIN, turn([user()], [answer()], **old), turn([user()], [answer()], is_stored=False), scope=OPENAI
    )
    repaired = repair_for_session(view)
    assert (repaired.view.strategy, len(repaired.view.items)) == (SESSION, 4)
    assert list_changes(repaired) == [("store-false-in-chain", "owner", None)]


def test_a_response_without_an_answer_is_skipped() -> None:
    builder = build_chain(1)
    builder.turn("resp_2", "again", None, after="resp_1")
    chain_view = builder.view("resp_2")
    view = lint_view_of_conversation(replace(chain_view, confirmed_head=builder.paths["resp_1"].head), 0.0)
    assert (view.handle, view.anchor and view.anchor.id, view.server_count) == ("resp_1", "resp_1", 2)


def test_a_conversation_is_left_to_its_endpoint_and_repaired_in_the_local_store() -> None:
    view = make_lint_view(CONVERSATION, turn([user()], [sealed_reasoning(), call()]))
    repaired = repair_for_session(view)
    assert (repaired.view.strategy, repaired.view.server_count) == (SESSION, 0)
    assert list_changes(repaired) == [("", "owner", None), ("call-without-output", "added", 2)]


def test_lost_instructions_are_added_to_the_record() -> None:
    lost = turn([user()], [answer()], parameters={"instructions": "Be brief."})
    repaired = repair_for_session(make_lint_view(CHAIN, lost, turn([user()], [answer()])))
    assert (repaired.view.instructions, repaired.view.strategy) == ("Be brief.", CHAIN)


def test_a_pending_approval_is_closed_in_a_copy() -> None:
    view = replace(
        make_lint_view(SESSION, turn([user()], [call("a"), call("b", arguments="{")])), pending_call_ids=frozenset("ab")
    )
    assert [one.code for one in lint_history(view)] == ["invalid-arguments"]
    assert shape(repair_for_session(view).view.items)[-2:] == ["function_call_output a", "function_call_output b"]


def test_items_after_removed_reasoning_lose_the_ids_that_require_it() -> None:
    view = lint_view_of_file(
        [user(), unsealed_reasoning(), call(id="fc_1"), answer(id="msg_1"), output(), answer(id="msg_2")]
    )
    repaired = repair_for_file(view).view
    assert [item.get("id") for item in repaired.items] == [None, None, None, None, "msg_2"]


def test_foreign_reasoning_is_removed_and_a_foreign_encrypted_history_is_not() -> None:
    view = make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()], scope=OPENAI), scope=ACME)
    encrypted_view = make_lint_view(
        SESSION, turn([user()], [sealed_reasoning(), answer()], scope=OPENAI), unconfirmed=[COMPACTION], scope=ACME
    )
    assert shape(repair_for_session(view).view.items) == ["message", "message"]
    with pytest.raises(Unrepairable) as error:
        repair_for_session(encrypted_view)
    assert [code for code, _ in error.value.findings] == ["sealed-elsewhere"]


def test_a_pair_that_a_compaction_splits_is_removed_completely() -> None:
    repaired = repair_for_file(lint_view_of_file([user(), call("a"), COMPACTION, output("a"), call("b"), output("b")]))
    assert shape(repaired.view.items) == ["message", "compaction", "function_call b", "function_call_output b"]


def test_of_two_items_with_one_id_a_copy_is_removed_and_a_different_one_loses_the_id() -> None:
    view = lint_view_of_file(
        [user(), answer("one", id="msg_1"), user(), answer("one", id="msg_1"), answer("two", id="msg_1")]
    )
    repaired = repair_for_file(view)
    assert repaired.view.items == (user(), answer("one", id="msg_1"), user(), answer("two"))
    assert list_changes(repaired) == [("duplicate-item-id", "dropped", 3), ("duplicate-item-id", "replaced", 4)]


def test_reasoning_is_kept_where_a_server_may_accept_it() -> None:
    summary = unsealed_reasoning(summary=[{"type": "summary_text", "text": "hm"}])
    view = lint_view_of_file([user(), summary, call(), output(), sealed_reasoning(2), answer()])
    repaired = repair_for_file(view)
    assert repaired.view.items == (*view.items[:4], without_id(sealed_reasoning(2)), answer())
    assert list_changes(repaired) == [
        ("reasoning-without-follower", "replaced", 4),
        ("reasoning-id-replayed", "kept", 1),
    ]


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}
ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}


@pytest.mark.parametrize(
    ("part", "own_part"),
    [
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "input_text", "text": "a"}),
        ({"type": "image_url", "image_url": {"url": IMAGE["image_url"]}}, IMAGE),
        (
            {"type": "input_image", "image_url": {"url": "https://x", "detail": "low"}},
            {**IMAGE, "image_url": "https://x", "detail": "low"},
        ),
        (ANTHROPIC_IMAGE, IMAGE),
        ({"type": "image", "source": {"type": "url", "url": "https://x"}}, {**IMAGE, "image_url": "https://x"}),
    ],
)
def test_texts_and_images_of_other_apis_are_converted(part: dict[str, Any], own_part: dict[str, Any]) -> None:
    view = lint_view_of_file([{"role": "user", "content": [part]}, call(), output(output=[part])])
    assert [(one.code, one.issue.item_index) for one in lint_history(view)] == [
        ("foreign-part", 0),
        ("foreign-part", 2),
    ]
    repaired = repair_for_file(view).view.items
    assert [repaired[0]["content"], repaired[2]["output"]] == [[own_part], [own_part]]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
        {"type": "thinking", "thinking": "hm", "signature": "x"},
    ],
)
def test_blocks_of_other_apis_are_found_and_never_removed(item: dict[str, Any]) -> None:
    view = lint_view_of_file([user(), item])
    assert [(one.code, one.issue.item_index) for one in lint_history(view)] == [("foreign-part", 1)]
    with pytest.raises(Unrepairable):
        repair_for_file(view)


def test_phases_follow_from_the_position_in_the_turn() -> None:
    repaired = repair_for_file(
        lint_view_of_file([answer(phase="final_answer"), user(), answer(), call(), output(), answer()])
    )
    assert [item.get("phase") for item in repaired.view.items] == [
        *("final_answer", None, "commentary", None, None, "final_answer")
    ]


def test_a_request_stays_a_request_and_server_side_items_are_unchanged() -> None:
    view = lint_view_of_file([output("held"), call("new"), user()], {"previous_response_id": "resp_1"})
    repaired = repair_for_file(view)
    assert (repaired.view.strategy, repaired.view.has_unread_items) == (CHAIN, True)
    assert shape(repaired.view.items) == [
        *("function_call_output held", "function_call new", "function_call_output new", "message")
    ]


def repaired_arguments(arguments: Any) -> str:
    """Repair a history with one call and return the arguments of that call."""
    items = repair_for_file(lint_view_of_file([user(), call("a", arguments=arguments), output("a")])).view.items
    return str(items[1]["arguments"])


@pytest.mark.parametrize(
    ("broken", "complete"),
    [
        ('{"a": 1, "b": ', '{"a": 1}'),
        ('{"a": 1, "b', '{"a": 1}'),
        ('{"a": "hel', '{"a": "hel"}'),
        ('{"a": [1, {"b": "c\\', '{"a": [1, {"b": "c"}]}'),
        ('{"a": "\\"', '{"a": "\\""}'),
        ('{"a": {"b": 1}, ', '{"a": {"b": 1}}'),
        ('{"a": {"b": [{"c": tru', '{"a": {"b": [{}]}}'),
        ('{"a": 1}{"a": 1}', '{"a": 1}'),
        ('{"a": "x"}}', '{"a": "x"}'),
        ("{", "{}"),
        ("", "{}"),
        ("no JSON", "{}"),
        ("[1, 2", "{}"),
        (None, "{}"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_truncated_arguments_are_closed_after_their_last_complete_value(broken: Any, complete: str) -> None:
    assert repaired_arguments(broken) == complete


@given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.text(),
        lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
        max_leaves=12,
    ),
    some.integers(min_value=0, max_value=400),
)
def test_arguments_truncated_anywhere_are_closed_to_an_object(value: Any, cut: int) -> None:
    assert isinstance(json.loads(repaired_arguments(json.dumps({"value": value})[:cut])), dict)


def test_a_repair_without_effect_is_not_repeated_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of a plugin could have a fix that does not match the rule."""
    idle = [
        rule._replace(fix=lambda view, faults: (view, [RepairChange("x", "dropped", "x", 0)])) for rule in LINT_RULES
    ]
    monkeypatch.setattr(repair, "LINT_RULES", idle)
    with pytest.raises(Unrepairable):
        repair_for_file(lint_view_of_file([user(), call()]))


def test_endlessly_nested_arguments_are_given_up_at_once() -> None:
    assert repaired_arguments('{"a": ' + "[" * 500_000) == "{}"


PIECES: list[dict[str, Any]] = [
    user(),
    answer(id="msg_1"),
    answer(phase="final_answer"),
    answer("half", status="incomplete"),
    call("a", id="fc_1"),
    call("a"),
    call("a", status="incomplete"),
    {"type": "local_shell_call", "call_id": "a", "action": {}},
    call("b", arguments="{"),
    call("c", status="incomplete", arguments='{"x": "'),
    {"type": "computer_call", "call_id": "d"},
    output("a"),
    output("b"),
    {"type": "computer_call_output", "call_id": "d", "output": {}},
    sealed_reasoning(1),
    sealed_reasoning(2, summary=None),
    unsealed_reasoning(3),
    {"type": "item_reference", "id": "rs_4"},
    {"type": "compaction", "encrypted_content": "convoseal1:x"},
    {"type": "compaction_trigger"},
    {"type": "web_search_call", "id": "ws_1"},
    {"role": "tool", "content": "x"},
    {"text": "nothing"},
]

HISTORY = some.lists(some.sampled_from(PIECES), max_size=12)


@given(HISTORY, HISTORY, HISTORY, some.sampled_from(Strategy))
def test_any_broken_history_is_clean_after_repair(
    asked: list[Item], answered: list[Item], waiting: list[Item], strategy: Strategy
) -> None:
    view: LintView = make_lint_view(strategy, turn([user()], [answer()]), turn(asked, answered), unconfirmed=waiting)
    for repaired in (repair_for_session(view), repair_for_file(view)):
        assert lint_history(repaired.view) == ()
        assert len(repaired.view.source_indexes) == len(repaired.view.items)
