"""The SDK resumes a state that convo decided on like a state that it decided on itself."""

import logging
from collections.abc import Iterator
from typing import Any

import agents as sdk
import pytest

from convo.errors import InvalidRunState
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.runstate.versions import LABELS, NEWEST_VERSION
from convo.runstate.writer import serialize_run_state
from tests.runstate.scenario_runs import scenario_graph
from tests.runstate.sdk import Decide, RunResult, Script, graph, resume_in_sdk
from tests.runstate.snapshots import entries_of_label, index, load_scenario, snapshot

STICKY = "sticky_approve"
"""A scenario with sticky decisions; from 0.23.1 on, the SDK asks again for those written before 1.18."""

NOT_RESUMABLE = ("nested_agent_tool_approval", "nested_decided")
"""Scenarios that cannot be resumed under 1.0, which does not store the state of an agent used as a tool."""


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    """Turn off logging: the SDK logs the values that it cannot restore, which the scenarios expect."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def approve_all(text: str) -> str:
    """Approve all pending calls of a serialized state with convo; return its text."""
    state = parse_run_state(text.encode())
    return serialize_run_state(apply_verdict(state, state.pending, ApprovalVerdict(approve=True)))


async def resume_state(entry: dict[str, Any], text: str, decide: Decide | None = None) -> RunResult:
    return await resume_in_sdk(load_scenario(entry["file"]), text, decide)


def run_outcome(end: RunResult) -> tuple[Any, ...]:
    return end.output, end.error, end.requests, end.tokens


def expected_outcome(entry: dict[str, Any]) -> tuple[Any, ...]:
    expected = load_scenario(entry["file"])["resume_0_24_0"]
    error = (expected["error"]["type"], expected["error"]["message"]) if expected["error"] else None
    return expected["final_output"], error, expected.get("requests") or [], expected["usage_total"]


async def check(entry: dict[str, Any]) -> None:
    end = await resume_state(entry, approve_all(snapshot(entry["file"]).decode()))
    assert run_outcome(end) == expected_outcome(entry), entry["file"]
    again = entry["scenario"] == STICKY and LABELS.index(entry["schema"]) < LABELS.index("1.18")
    rounds = load_scenario(entry["file"])["resume_0_24_0"]["approval_rounds"]
    assert rounds is None or end.rounds == ([1, *rounds] if again else rounds), entry["file"]


SAMPLE = [
    *entries_of_label("1.21")[::3],
    *(entry for label in LABELS[:-1] for entry in entries_of_label(label)[::17]),
    *(entry for label in LABELS for entry in entries_of_label(label) if entry["scenario"] in (*NOT_RESUMABLE, STICKY)),
]


@pytest.mark.parametrize("part", range(4))
async def test_the_sdk_ends_as_if_it_had_approved_everything_itself(part: int) -> None:
    """A third of the snapshots of the newest label and some of every other; the next test covers all of them."""
    for entry in SAMPLE[part::4]:
        await check(entry)


@pytest.mark.full
@pytest.mark.parametrize("label", LABELS)
async def test_the_sdk_ends_every_snapshot_as_if_it_had_approved_everything_itself(label: str) -> None:
    for entry in entries_of_label(label):
        await check(entry)


async def test_every_later_pause_can_be_decided_by_convo_too() -> None:
    """The SDK writes a new state at each pause, and convo decides on each."""
    for entry in entries_of_label(NEWEST_VERSION.label):
        if len(entry["resume_0_24_0"]["approval_rounds"] or []) > 1:
            end = await resume_state(entry, approve_all(snapshot(entry["file"]).decode()), approve_all)
            assert run_outcome(end) == expected_outcome(entry), entry["file"]


async def test_a_state_that_the_sdk_wrote_without_its_nested_state_is_read_and_not_resumed() -> None:
    """Decisions in states of older releases are asked for again, and then 0.24.0 leaves the nested state out."""
    labels = set()
    for entry in index():
        if entry["scenario"] != "nested_decided" or entry["schema"] == "1.0":
            continue
        scenario, text = load_scenario(entry["file"]), snapshot(entry["file"]).decode()
        root = graph(scenario, Script(scenario["spec"]["script"], scenario["expected"]["model_calls_made"], []))
        result = await sdk.Runner.run(root, await sdk.RunState.from_string(root, text))
        if not result.interruptions or "agent_run_state" in (again := result.to_state().to_string()):
            continue
        state = parse_run_state(again.encode())
        labels.add(entry["schema"])
        assert [(call.id, call.agent) for call in state.pending] == [
            (item.call_id, item.agent.name) for item in result.interruptions
        ]
        with pytest.raises(InvalidRunState, match="is a pending call of a nested agent, whose state is missing"):
            import_run_state(state, scenario_graph(scenario))
    assert {"1.1", "1.13"} <= labels
