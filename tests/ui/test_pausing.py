"""The screen of a paused run, laid out for a medium."""

from convo.runstate import Loss, Verdict, decided, of
from convo.ui.medium import Medium, width
from convo.ui.pausing import lost, paused
from tests.runstate import snapshots

STATE = snapshots.of("parallel_mixed_decided", "1.21")


def test_no_line_is_wider_than_the_terminal() -> None:
    for columns in (60, 80, 120):
        lines = paused(STATE, "state.json", Medium(width=columns)).splitlines()
        assert max(map(width, lines)) <= columns
        assert any("charge_order5" in line for line in lines)


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    document = snapshots.document("single_approval", "1.6")
    for shown in (
        document["current_step"]["data"]["interruptions"][0]["raw_item"],
        document["last_processed_response"]["functions"][0]["tool_call"],
    ):
        shown["arguments"] = '{"a": "\x1b[2J"}'
    screen = paused(of(document), "\x1b]0;x\x07.json", Medium())
    assert "\x1b" not in screen
    assert "\\x1b[2J" in screen


def test_a_decision_stands_beside_its_call() -> None:
    state = snapshots.of("single_approval", "1.21")
    said = decided(state, state.pending, Verdict(approve=False, always=True))
    assert "rejected for good" in paused(said, "state.json", Medium()).splitlines()[-1]
    assert " -  " in paused(state, "state.json", Medium()).splitlines()[-1]


def test_owners_and_limits_are_named() -> None:
    assert "Conversations API (conv_" in paused(snapshots.of("conversation_id", "1.13"), "x", Medium())
    assert "Responses API (resp_" in paused(snapshots.of("auto_previous_response_id", "1.21"), "x", Medium())
    assert "of any number" in paused(snapshots.of("max_turns_none", "1.21"), "x", Medium())
    assert "for nothing" in paused(snapshots.of("run_again_cancelled", "1.21"), "x", Medium())


def test_a_loss_is_one_line() -> None:
    assert list(lost([Loss("$.a", "b", "c")])) == ["lost: $.a (b): c"]
