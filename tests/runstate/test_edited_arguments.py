"""Editing the arguments of a pending call changes them everywhere in the document."""

import pytest

from convo.errors import InvalidRunState, InvalidUsage
from convo.runstate.approvals import apply_verdict, edit_arguments
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state
from convo.runstate.run_state import RunState
from convo.runstate.versions import LABELS
from convo.runstate.writer import serialize_run_state
from tests.runstate import snapshots
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import entries_of_label, load_scenario
from tests.runstate.test_sdk_decisions import no_logging

__all__ = ["no_logging"]

CHANGED = '{"city": "Ghent", "id": 1}'


def changed(state: RunState, arguments: str = CHANGED) -> RunState:
    """Edit the first call, approve everything, serialize the state and parse it again."""
    after = edit_arguments(state, state.pending[0], arguments)
    return parse_run_state(
        serialize_run_state(apply_verdict(after, after.pending, ApprovalVerdict(approve=True))).encode()
    )


@pytest.mark.parametrize("label", LABELS)
async def test_the_sdk_runs_the_call_with_the_new_arguments(label: str) -> None:
    entries = [
        entry
        for entry in entries_of_label(label)
        if entry["scenario"] in ("single_approval", "second_pause", "many_items")
    ]
    for entry in entries:
        state = parse_run_state(snapshots.snapshot(entry["file"]))
        if not state.document["conversation_id"] and not state.document["previous_response_id"]:
            end = await resume_in_sdk(load_scenario(entry["file"]), serialize_run_state(changed(state)))
            outputs = [one for one in end.requests[0]["input"] if one.get("call_id") == state.pending[0].id]
            assert [one["type"] for one in outputs] == ["function_call", "function_call_output"], entry["file"]
            assert (outputs[0]["arguments"], end.error) == (CHANGED, None), entry["file"]
            assert outputs[1]["output"].endswith('=>{"city":"Ghent","id":1}'), entry["file"]


def test_arguments_without_a_digest_are_refused() -> None:
    state = snapshots.newest_state("single_approval", "1.21")
    with pytest.raises(InvalidRunState) as error:
        edit_arguments(state, state.pending[0], '{"a": "\\ud800"}')
    assert error.value.message == (
        "$.current_step.data.interruptions[0].raw_item has no ledger entry: "
        "its arguments contain a lone surrogate (half a character)"
    )


async def test_a_call_in_an_agent_tool_is_edited_in_every_state_that_contains_it() -> None:
    for label in ("1.13", "1.21"):
        entry = next(one for one in entries_of_label(label) if one["scenario"] == "nested_agent_tool_approval")
        state = changed(parse_run_state(snapshots.snapshot(entry["file"])))
        assert state.pending[0].call.arguments == CHANGED
        end = await resume_in_sdk(load_scenario(entry["file"]), serialize_run_state(state))
        assert "Ghent" in str(end.output)


def test_a_custom_tool_takes_any_text() -> None:
    state = changed(snapshots.newest_state("custom_tool_approval", "1.17"), "something else")
    assert state.pending[0].call.arguments == "something else"


def test_arguments_of_a_function_must_be_a_json_object() -> None:
    state = snapshots.newest_state("single_approval", "1.21")
    for text, reason in (
        ("", "JSON"),
        ("[]", "a JSON object"),
        ("nope", "JSON"),
        ("{", "JSON"),
        ("[" * 99_999, "JSON"),
    ):
        with pytest.raises(
            InvalidRunState, match=f"is the start of the edited arguments, which are not {reason}$"
        ) as error:
            edit_arguments(state, state.pending[0], text)
        assert (error.value.path, error.value.hint) == ("$", "pass a JSON object; nothing was changed")


@pytest.mark.parametrize("scenario", ["conversation_id", "previous_response_id", "auto_previous_response_id"])
def test_a_call_that_a_server_stores_cannot_be_edited(scenario: str) -> None:
    state = snapshots.newest_state(scenario, "1.13")
    call = state.pending[0]
    message = f"^the arguments of {call.id} cannot be edited: a server stores the original call$"
    with pytest.raises(InvalidUsage, match=message) as error:
        edit_arguments(state, call, CHANGED)
    assert error.value.hint == "reject the call, and give the arguments to use in the reason"


@pytest.mark.parametrize("scenario", ["shell_approval", "apply_patch_approval", "hosted_mcp_approval"])
def test_calls_without_text_arguments_or_run_elsewhere_cannot_be_edited(scenario: str) -> None:
    state = snapshots.newest_state(scenario, "1.21")
    (call,) = state.pending
    with pytest.raises(
        InvalidUsage, match=f"^the arguments of {call.id}, a {call.call.type}, cannot be edited$"
    ) as error:
        edit_arguments(state, call, CHANGED)
    assert error.value.hint == "approve or reject it"
