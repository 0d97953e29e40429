"""The screen of a paused run, in the width and characters of its output."""

from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict, RelabelLoss
from convo.runstate.reader import run_state_from_json
from convo.terminal.run_state_view import loss_lines, render_paused_state
from convo.terminal.terminal import DisplayOptions, text_width
from tests.runstate import snapshots

STATE = snapshots.newest_state("parallel_mixed_decided", "1.21")


def test_no_line_is_wider_than_the_terminal() -> None:
    for columns in (60, 80, 120):
        lines = render_paused_state(STATE, "state.json", DisplayOptions(width=columns)).splitlines()
        assert max(map(text_width, lines)) <= columns
        assert any("charge_order5" in line for line in lines)


def test_control_characters_are_escaped() -> None:
    document = snapshots.document("single_approval", "1.6")
    for call in (
        document["current_step"]["data"]["interruptions"][0]["raw_item"],
        document["last_processed_response"]["functions"][0]["tool_call"],
    ):
        call["arguments"] = '{"a": "\x1b[2J"}'
    screen = render_paused_state(run_state_from_json(document), "\x1b]0;x\x07.json", DisplayOptions())
    assert "\x1b" not in screen
    assert "\\x1b[2J" in screen


def test_a_decision_is_shown_beside_its_call() -> None:
    state = snapshots.newest_state("single_approval", "1.21")
    decided = apply_verdict(state, state.pending, ApprovalVerdict(approve=False, always=True))
    assert "rejected always" in render_paused_state(decided, "state.json", DisplayOptions()).splitlines()[-1]
    assert " -  " in render_paused_state(state, "state.json", DisplayOptions()).splitlines()[-1]


def test_owners_and_limits_are_named() -> None:
    assert "Conversations API (conv_" in render_paused_state(
        snapshots.newest_state("conversation_id", "1.13"), "x", DisplayOptions()
    )
    assert "Responses API (resp_" in render_paused_state(
        snapshots.newest_state("auto_previous_response_id", "1.21"), "x", DisplayOptions()
    )
    assert ", no limit" in render_paused_state(snapshots.newest_state("max_turns_none", "1.21"), "x", DisplayOptions())
    assert "pending  none" in render_paused_state(
        snapshots.newest_state("run_again_cancelled", "1.21"), "x", DisplayOptions()
    )


def test_a_loss_is_one_line() -> None:
    assert list(loss_lines([RelabelLoss("$.a", "b", "c")])) == ["lost: $.a (b): c"]


def test_decisions_on_other_calls_are_rows_of_their_own() -> None:
    document = snapshots.document("single_approval", "1.6")
    document["context"]["approvals"] = {
        "look_up": {"approved": ["call_old"], "rejected": []},
        "refund": {"approved": True, "rejected": []},
    }
    del document["context"]["usage"]
    assert render_paused_state(run_state_from_json(document), "state.json", DisplayOptions()).splitlines() == [
        "state.json",
        "  state    RunState 1.6, written by 0.12.1 or later: a rejection has a message for the model",
        "  agent    Research Desk",
        "  owner    this file",
        "  turns    1 of 10",
        "  usage    0 requests, 0 input, 0 output, 0 total tokens",
        "  pending  1 call",
        "  decided  look_up (call_old): approved",
        "  decided  refund: approved always",
        "  note     a decision is not bound to its call: before 1.15 it names only the call id, not the tool or"
        " arguments",
        "",
        "call            agent          decision  tool          arguments",
        'fc-call-M29k5q  Research Desk  -         restart_user  {"id": 7099, "city": "Cusco", "dry": false}',
    ]
