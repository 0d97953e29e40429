"""Which way a compaction takes, by owner, mode and endpoint; what is folded and what stays."""

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
TALK: tuple[Item, ...] = (
    {"type": "message", "role": "system", "content": "Be brief."},
    user_message("one"),
    assistant_message("first"),
    user_message("two"),
    assistant_message("second"),
)
SEALED: Item = {"type": "compaction", "encrypted_content": "x"}


def standing(strategy: Strategy, *items: Item, here: bool = True, stored: bool = False) -> HistorySnapshot:
    path = START.append(items or TALK)
    known: Mapping[Key, str] = {path.head: "resp_1"} if stored else {}
    return HistorySnapshot(strategy, path, here, known)


@pytest.mark.parametrize(
    ("strategy", "mode", "here", "stored", "way"),
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
    strategy: Strategy, mode: CompactionMode, here: bool, stored: bool, way: CompactionMethod
) -> None:
    assert plan_compaction(standing(strategy, here=here, stored=stored), CompactionOptions(mode)).method is way


def test_encrypted_items_are_left_to_the_endpoint_that_can_decrypt_them() -> None:
    there = standing(Strategy.SESSION, SEALED, *TALK)
    assert plan_compaction(there, CompactionOptions()).method is CompactionMethod.INPUT
    with pytest.raises(InvalidUsage, match="encrypted"):
        plan_compaction(there, CompactionOptions(focus="names"))


def test_remaining_turns_are_counted_from_the_end() -> None:
    made = plan_compaction(standing(Strategy.SESSION), CompactionOptions(keep_turns=1))
    assert [item_text(item) for item in made.kept_items] == ["two", "second"]
    assert [item_text(item) for item in made.compacted_items] == ["Be brief.", "one", "first"]


@pytest.mark.parametrize("keep", [2, 3])
def test_when_every_turn_remains_there_is_nothing_to_compact(keep: int) -> None:
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        plan_compaction(standing(Strategy.SESSION), CompactionOptions(keep_turns=keep))


def test_an_earlier_response_of_the_chain_is_used_where_turns_remain() -> None:
    path = START.append(TALK)
    there = HistorySnapshot(
        Strategy.CHAIN, path, is_embedded=False, stored_responses={path.first(3).head: "resp_1", path.head: "resp_2"}
    )
    made = plan_compaction(there, CompactionOptions(keep_turns=1))
    assert (made.method, made.previous_response_id) == (CompactionMethod.PREVIOUS, "resp_1")


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call"])
def test_a_call_without_its_output_postpones_the_compaction(kind: str) -> None:
    call: Item = {"type": kind, "call_id": "call_1", "name": "look"}
    with pytest.raises(StateFault, match="call_1"):
        plan_compaction(standing(Strategy.SESSION, *TALK, call), CompactionOptions())
    output: Item = {"type": f"{kind}_output", "call_id": "call_1", "output": "seen"}
    assert plan_compaction(standing(Strategy.SESSION, *TALK, call, output), CompactionOptions()).compacted_items


def test_a_summary_alone_cannot_be_compacted() -> None:
    made = plan_compaction(standing(Strategy.SESSION), CompactionOptions())
    (fuller, bare) = build_replacements(made, [1] * len(TALK), "They counted.")
    assert [item_text(item).split("\n")[-1] for item in fuller] == ["Be brief.", "one", "two", "They counted."]
    assert [item_text(item).split("\n")[-1] for item in bare] == ["Be brief.", "They counted."]
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        plan_compaction(standing(Strategy.SESSION, *fuller), CompactionOptions())


def test_a_deleted_chain_is_compacted_from_the_items() -> None:
    made = plan_compaction(standing(Strategy.CHAIN, stored=True), CompactionOptions())
    assert plan_from_items(made, is_embedded=True).method is CompactionMethod.SUMMARY
    assert plan_from_items(made, is_embedded=False).method is CompactionMethod.INPUT
    assert plan_from_items(made, is_embedded=False).previous_response_id is None
