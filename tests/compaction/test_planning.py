"""Which way a compaction takes, by owner, mode and endpoint; what is folded and what stays."""

from collections.abc import Mapping

import pytest

from convo.compaction import Mode, Standing, Way, Wish, instead, plan, windows
from convo.errors import StateFault, Usage
from convo.history import Key, Path, Strategy, root
from convo.items import Item, assistant, text, user

START = Path(root("local"))
TALK: tuple[Item, ...] = (
    {"type": "message", "role": "system", "content": "Be brief."},
    user("one"),
    assistant("first"),
    user("two"),
    assistant("second"),
)
SEALED: Item = {"type": "compaction", "encrypted_content": "x"}


def standing(strategy: Strategy, *items: Item, here: bool = True, stored: bool = False) -> Standing:
    path = START.grow(items or TALK)
    known: Mapping[Key, str] = {path.head: "resp_1"} if stored else {}
    return Standing(strategy, path, here, known)


@pytest.mark.parametrize(
    ("strategy", "mode", "here", "stored", "way"),
    [
        (Strategy.SESSION, Mode.AUTO, True, False, Way.SUMMARY),
        (Strategy.SESSION, Mode.AUTO, False, False, Way.INPUT),
        (Strategy.SESSION, Mode.AUTO, False, True, Way.INPUT),
        (Strategy.SESSION, Mode.PREVIOUS, False, True, Way.PREVIOUS),
        (Strategy.REPLAY, Mode.INPUT, False, False, Way.INPUT),
        (Strategy.CHAIN, Mode.AUTO, False, True, Way.PREVIOUS),
        (Strategy.CHAIN, Mode.AUTO, False, False, Way.INPUT),
        (Strategy.CHAIN, Mode.INPUT, True, True, Way.SUMMARY),
        (Strategy.CONVERSATION, Mode.AUTO, False, False, Way.IN_PLACE),
        (Strategy.CONVERSATION, Mode.INPUT, False, False, Way.INPUT),
    ],
)
def test_the_way_follows_from_the_owner_and_what_can_be_looked_up(
    strategy: Strategy, mode: Mode, here: bool, stored: bool, way: Way
) -> None:
    assert plan(standing(strategy, here=here, stored=stored), Wish(mode)).way is way


def test_what_is_sealed_is_left_to_whoever_can_open_it() -> None:
    there = standing(Strategy.SESSION, SEALED, *TALK)
    assert plan(there, Wish()).way is Way.INPUT
    with pytest.raises(Usage, match="sealed"):
        plan(there, Wish(focus="names"))


def test_turns_that_stay_are_counted_from_the_end() -> None:
    made = plan(standing(Strategy.SESSION), Wish(keep=1))
    assert [text(item) for item in made.kept] == ["two", "second"]
    assert [text(item) for item in made.folded] == ["Be brief.", "one", "first"]


@pytest.mark.parametrize("keep", [2, 3])
def test_where_every_turn_stays_there_is_nothing_to_fold(keep: int) -> None:
    with pytest.raises(Usage, match="nothing to compact"):
        plan(standing(Strategy.SESSION), Wish(keep=keep))


def test_an_earlier_response_of_the_chain_is_named_where_turns_stay() -> None:
    path = START.grow(TALK)
    there = Standing(Strategy.CHAIN, path, here=False, stored={path.first(3).head: "resp_1", path.head: "resp_2"})
    made = plan(there, Wish(keep=1))
    assert (made.way, made.previous) == (Way.PREVIOUS, "resp_1")


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call"])
def test_a_call_without_its_output_defers_it(kind: str) -> None:
    call: Item = {"type": kind, "call_id": "call_1", "name": "look"}
    with pytest.raises(StateFault, match="call_1"):
        plan(standing(Strategy.SESSION, *TALK, call), Wish())
    output: Item = {"type": f"{kind}_output", "call_id": "call_1", "output": "seen"}
    assert plan(standing(Strategy.SESSION, *TALK, call, output), Wish()).folded


def test_a_summary_alone_is_as_short_as_it_gets() -> None:
    made = plan(standing(Strategy.SESSION), Wish())
    (fuller, bare) = windows(made, [1] * len(TALK), "They counted.")
    assert [text(item).split("\n")[-1] for item in fuller] == ["Be brief.", "one", "two", "They counted."]
    assert [text(item).split("\n")[-1] for item in bare] == ["Be brief.", "They counted."]
    with pytest.raises(Usage, match="nothing to compact"):
        plan(standing(Strategy.SESSION, *fuller), Wish())


def test_a_chain_that_is_gone_is_folded_from_the_items() -> None:
    made = plan(standing(Strategy.CHAIN, stored=True), Wish())
    assert instead(made, here=True).way is Way.SUMMARY
    assert instead(made, here=False).way is Way.INPUT
    assert instead(made, here=False).previous is None
