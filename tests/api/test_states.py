"""`RunState` reads, decides and writes a state that the Agents SDK then finishes."""

import json
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents.extensions.handoff_filters import nest_handoff_history
from agents.handoffs.history import default_handoff_history_mapper

from convo import RunState, handoff_history_mapper
from convo.errors import InvalidRunState, InvalidUsage, NotFound
from convo.runstate.signature import SIGNATURE_KEY
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import entries_of_label, load_scenario, snapshot
from tests.runstate.test_sdk_decisions import expected_outcome, no_logging, run_outcome

__all__ = ["no_logging"]

(ENTRY,) = [entry for entry in entries_of_label("1.21") if entry["scenario"] == "single_approval"]
TEXT = snapshot(ENTRY["file"]).decode()


async def test_the_sdk_finishes_a_state_that_was_read_decided_and_written(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(TEXT)
    state = RunState.read(tmp_path / "state.json")
    (call,) = state.pending
    decided = state.decide(approve=call.call_id)
    assert (decided.pending, len(state.pending)) == ([], 1)
    decided.write(tmp_path / "decided.json")
    written = (tmp_path / "decided.json").read_text()
    assert written == decided.to_json()
    assert run_outcome(await resume_in_sdk(load_scenario(ENTRY["file"]), written)) == expected_outcome(ENTRY)


def test_a_rejection_has_its_reason_and_may_hold_for_the_tool() -> None:
    state = RunState.read(TEXT)
    (call,) = state.pending
    rejected = json.loads(state.decide(reject={call.tool_name: "not today"}, always=True).to_json())
    again = RunState.read(json.dumps(rejected))
    assert (again.pending, again.agent, again.schema_version) == ([], state.agent, "1.21")
    assert "not today" in json.dumps(rejected)
    assert "sticky_scope" in json.dumps(rejected)


def test_a_decision_removes_the_signature() -> None:
    signed = RunState.read(json.dumps({**json.loads(TEXT), SIGNATURE_KEY: {"value": "x"}}))
    (call,) = signed.pending
    assert SIGNATURE_KEY in signed.to_json()
    assert SIGNATURE_KEY not in signed.decide(approve=[call.call_id]).to_json()


def test_what_cannot_be_read_or_decided_is_an_error() -> None:
    state = RunState.read(TEXT)
    (call,) = state.pending
    with pytest.raises(NotFound, match="no pending call 'nothing'"):
        state.decide(approve="nothing")
    with pytest.raises(InvalidUsage, match="another decision"):
        state.decide(approve=call.call_id, reject=call.tool_name)
    with pytest.raises(InvalidRunState):
        RunState.read("{}")
    with pytest.raises(NotFound, match="no file"):
        RunState.read("missing.json")


TRANSCRIPT: list[Any] = [
    {"role": "user", "content": "hello"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "yes"},
]


def test_the_history_mapper_is_the_sdks_with_markers_of_its_own() -> None:
    assert handoff_history_mapper()(TRANSCRIPT) == default_handoff_history_mapper(TRANSCRIPT)
    mapper = handoff_history_mapper("<<<", ">>>")
    (summary,) = mapper(TRANSCRIPT)
    assert summary["content"].splitlines()[1::4] == ["<<<", ">>>"]
    data = sdk.HandoffInputData((summary, TRANSCRIPT[0]), (), ())
    assert nest_handoff_history(data, history_mapper=mapper).input_history == tuple(
        mapper([*TRANSCRIPT, TRANSCRIPT[0]])
    )
    assert sdk.RunConfig(handoff_history_mapper=mapper).handoff_history_mapper is mapper
