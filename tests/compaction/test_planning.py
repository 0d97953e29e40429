"""Compaction plans: the method by strategy, mode and endpoint, and the items to summarize or keep."""

from collections.abc import Mapping

import pytest

from convo.compaction.planning import (
    CompactionMethod,
    CompactionMode,
    CompactionOptions,
    HistorySnapshot,
    build_replacements,
    plan_compaction,
    plan_from_items,
)
from convo.errors import InvalidUsage, StateFault
from convo.history.items import Item, assistant_message, item_text, user_message
from convo.history.records import Strategy
from convo.history.tree import Key, Path, root_key

START = Path(root_key("local"))
MESSAGES: tuple[Item, ...] = (
    {"type": "message", "role": "system", "content": "Be brief."},
    user_message("one"),
    assistant_message("first"),
    user_message("two"),
    assistant_message("second"),
)
ENCRYPTED: Item = {"type": "compaction", "encrypted_content": "x"}


def make_snapshot(strategy: Strategy, *items: Item, is_embedded: bool = True, stored: bool = False) -> HistorySnapshot:
    path = START.append(items or MESSAGES)
    responses: Mapping[Key, str] = {path.head: "resp_1"} if stored else {}
    return HistorySnapshot(strategy, path, is_embedded, responses)


@pytest.mark.parametrize(
    ("strategy", "mode", "is_embedded", "stored", "way"),
    [
        (Strategy.SESSION, CompactionMode.AUTO, True, False, CompactionMethod.SUMMARY),
        (Strategy.SESSION, CompactionMode.AUTO, False, False, CompactionMethod.INPUT),
        (Strategy.SESSION, CompactionMode.AUTO, False, True, CompactionMethod.INPUT),
        (Strategy.SESSION, CompactionMode.PREVIOUS, False, True, CompactionMethod.PREVIOUS),
        (Strategy.REPLAY, CompactionMode.INPUT, False, False, CompactionMethod.INPUT),
        (Strategy.CHAIN, CompactionMode.AUTO, False, True, CompactionMethod.PREVIOUS),
        (Strategy.CHAIN, CompactionMode.AUTO, False, False, CompactionMethod.INPUT),
        (Strategy.CHAIN, CompactionMode.INPUT, True, True, CompactionMethod.SUMMARY),
        (Strategy.CONVERSATION, CompactionMode.AUTO, False, False, CompactionMethod.IN_PLACE),
        (Strategy.CONVERSATION, CompactionMode.INPUT, False, False, CompactionMethod.INPUT),
    ],
)
def test_the_method_follows_from_the_strategy_and_the_available_history(
    strategy: Strategy, mode: CompactionMode, is_embedded: bool, stored: bool, way: CompactionMethod
) -> None:
    assert (
        plan_compaction(make_snapshot(strategy, is_embedded=is_embedded, stored=stored), CompactionOptions(mode)).method
        is way
    )


def test_encrypted_items_are_left_to_the_endpoint_that_can_decrypt_them() -> None:
    snapshot = make_snapshot(Strategy.SESSION, ENCRYPTED, *MESSAGES)
    assert plan_compaction(snapshot, CompactionOptions()).method is CompactionMethod.INPUT
    with pytest.raises(InvalidUsage, match="encrypted"):
        plan_compaction(snapshot, CompactionOptions(focus="names"))


def test_remaining_turns_are_counted_from_the_end() -> None:
    plan = plan_compaction(make_snapshot(Strategy.SESSION), CompactionOptions(keep_turns=1))
    assert [item_text(item) for item in plan.kept_items] == ["two", "second"]
    assert [item_text(item) for item in plan.compacted_items] == ["Be brief.", "one", "first"]


@pytest.mark.parametrize("keep", [2, 3])
def test_when_every_turn_remains_there_is_nothing_to_compact(keep: int) -> None:
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        plan_compaction(make_snapshot(Strategy.SESSION), CompactionOptions(keep_turns=keep))


def test_an_earlier_response_of_the_chain_is_used_where_turns_remain() -> None:
    path = START.append(MESSAGES)
    snapshot = HistorySnapshot(
        Strategy.CHAIN, path, is_embedded=False, stored_responses={path.first(3).head: "resp_1", path.head: "resp_2"}
    )
    plan = plan_compaction(snapshot, CompactionOptions(keep_turns=1))
    assert (plan.method, plan.previous_response_id) == (CompactionMethod.PREVIOUS, "resp_1")


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call"])
def test_a_call_without_its_output_postpones_the_compaction(kind: str) -> None:
    call: Item = {"type": kind, "call_id": "call_1", "name": "look"}
    with pytest.raises(StateFault, match="call_1"):
        plan_compaction(make_snapshot(Strategy.SESSION, *MESSAGES, call), CompactionOptions())
    output: Item = {"type": f"{kind}_output", "call_id": "call_1", "output": "seen"}
    assert plan_compaction(
        make_snapshot(Strategy.SESSION, *MESSAGES, call, output), CompactionOptions()
    ).compacted_items


def test_a_summary_alone_cannot_be_compacted() -> None:
    plan = plan_compaction(make_snapshot(Strategy.SESSION), CompactionOptions())
    (with_turns, bare) = build_replacements(plan, [1] * len(MESSAGES), "They counted.")
    assert [item_text(item).split("\n")[-1] for item in with_turns] == ["Be brief.", "one", "two", "They counted."]
    assert [item_text(item).split("\n")[-1] for item in bare] == ["Be brief.", "They counted."]
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        plan_compaction(make_snapshot(Strategy.SESSION, *with_turns), CompactionOptions())


def test_a_deleted_chain_is_compacted_from_the_items() -> None:
    plan = plan_compaction(make_snapshot(Strategy.CHAIN, stored=True), CompactionOptions())
    assert plan_from_items(plan, is_embedded=True).method is CompactionMethod.SUMMARY
    assert plan_from_items(plan, is_embedded=False).method is CompactionMethod.INPUT
    assert plan_from_items(plan, is_embedded=False).previous_response_id is None


APPROVAL: Item = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}"}
CALL: Item = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}


@pytest.mark.parametrize(
    ("items", "message", "hint"),
    [
        ([CALL], "call call_1 of look has no output", "send a message or run convo repair, then compact"),
        (
            [{**CALL, "status": "completed"}],
            "call call_1 of look has no output",
            "send a message or run convo repair, then compact",
        ),
        (
            [{"type": "computer_call", "call_id": "c"}],
            "call c of computer_call has no output",
            "send a message or run convo repair, then compact",
        ),
        ([APPROVAL], "pay needs approval (mcpr_1)", "approve or reject it first, then compact"),
        (
            [APPROVAL, {"type": "mcp_approval_response", "approval_request_id": "mcpr_2"}],
            "pay needs approval (mcpr_1)",
            "approve or reject it first, then compact",
        ),
    ],
)
def test_an_open_call_is_named_with_the_next_step(items: list[Item], message: str, hint: str) -> None:
    with pytest.raises(StateFault) as error:
        plan_compaction(make_snapshot(Strategy.SESSION, *MESSAGES, *items), CompactionOptions())
    assert (error.value.message, error.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "items",
    [
        [APPROVAL, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}],
        [{**CALL, "status": "incomplete"}],
        [{**CALL, "status": "completed"}, OUTPUT],
        [{"type": "web_search_call", "id": "ws_1", "status": "completed"}],
    ],
)
def test_answered_and_incomplete_calls_are_compacted(items: list[Item]) -> None:
    plan = plan_compaction(make_snapshot(Strategy.SESSION, *MESSAGES, *items), CompactionOptions())
    assert plan.compacted_items == (*MESSAGES, *items)


@pytest.mark.parametrize(
    ("items", "keep", "message", "hint"),
    [
        ([user_message("one")], 0, "nothing to compact yet", "continue the conversation first"),
        ([ENCRYPTED, user_message("one")], 0, "nothing to compact yet", "continue the conversation first"),
        (
            [{"role": "developer", "content": "Be brief."}, user_message("one")],
            0,
            "nothing to compact yet",
            "continue the conversation first",
        ),
        (MESSAGES, 2, "nothing to compact before the kept turns", "use a smaller --keep-last"),
        (
            [assistant_message("hello"), user_message("one"), assistant_message("first")],
            2,
            "nothing to compact before the kept turns",
            "use a smaller --keep-last",
        ),
    ],
)
def test_there_must_be_something_to_compact(items: list[Item], keep: int, message: str, hint: str) -> None:
    with pytest.raises(InvalidUsage) as error:
        plan_compaction(make_snapshot(Strategy.SESSION, *items), CompactionOptions(keep_turns=keep))
    assert (error.value.message, error.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("strategy", "stored", "options", "message", "hint"),
    [
        (
            Strategy.CHAIN,
            True,
            CompactionOptions(CompactionMode.PREVIOUS, focus="names"),
            "--focus and --mode previous_response_id cannot be used together",
            "use --mode input",
        ),
        (
            Strategy.CONVERSATION,
            True,
            CompactionOptions(CompactionMode.PREVIOUS),
            "a conversation cannot be compacted by response id",
            "use --mode auto",
        ),
        (
            Strategy.CHAIN,
            False,
            CompactionOptions(CompactionMode.PREVIOUS),
            "the endpoint stores no response at the end of this history: it was edited, or sent with store=false",
            "use --mode input",
        ),
    ],
)
def test_a_mode_that_is_not_possible_is_refused(
    strategy: Strategy, stored: bool, options: CompactionOptions, message: str, hint: str
) -> None:
    with pytest.raises(InvalidUsage) as error:
        plan_compaction(make_snapshot(strategy, stored=stored), options)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_a_summary_cannot_focus_on_encrypted_items() -> None:
    with pytest.raises(InvalidUsage) as error:
        plan_compaction(make_snapshot(Strategy.SESSION, ENCRYPTED, *MESSAGES), CompactionOptions(focus="names"))
    assert error.value.message == "an earlier compaction is encrypted, so --focus cannot apply to it"
    assert error.value.hint == "compact without --focus"


def test_a_focus_needs_a_summary() -> None:
    for strategy, is_embedded in [(Strategy.SESSION, False), (Strategy.CONVERSATION, False), (Strategy.CHAIN, True)]:
        plan = plan_compaction(
            make_snapshot(strategy, is_embedded=is_embedded, stored=True), CompactionOptions(focus="names")
        )
        assert (plan.method, plan.focus, plan.previous_response_id) == (CompactionMethod.SUMMARY, "names", None)


def test_kept_turns_of_a_conversation_are_not_compacted_in_place() -> None:
    for is_embedded, method in [(True, CompactionMethod.SUMMARY), (False, CompactionMethod.INPUT)]:
        options = CompactionOptions(keep_turns=1)
        assert plan_compaction(make_snapshot(Strategy.CONVERSATION, is_embedded=is_embedded), options).method is method


def test_a_plan_from_items_keeps_the_turns_and_the_focus() -> None:
    plan = plan_compaction(make_snapshot(Strategy.SESSION), CompactionOptions(focus="names", keep_turns=1))
    again = plan_from_items(plan, is_embedded=True)
    assert again == plan
    encrypted_plan = plan_compaction(make_snapshot(Strategy.SESSION, ENCRYPTED, *MESSAGES), CompactionOptions())
    assert plan_from_items(encrypted_plan, is_embedded=True).method is CompactionMethod.INPUT


@pytest.mark.parametrize(("tokens", "is_kept"), [(20_000, True), (20_001, False)])
def test_twenty_thousand_tokens_of_the_users_own_messages_stay(tokens: int, is_kept: bool) -> None:
    plan = plan_compaction(
        make_snapshot(Strategy.SESSION, user_message("one"), assistant_message("1")), CompactionOptions()
    )
    replacements = build_replacements(plan, [tokens, 1], "They counted.")
    assert [len(items) for items in replacements] == ([2, 1] if is_kept else [1])


def test_replacements_end_with_the_kept_turns() -> None:
    plan = plan_compaction(make_snapshot(Strategy.SESSION), CompactionOptions(keep_turns=1))
    for items in build_replacements(plan, [1] * 3, "They counted."):
        assert items[-2:] == MESSAGES[-2:]
        assert item_text(items[-3]).endswith("They counted.")
