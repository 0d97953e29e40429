"""Runs stored by an older release: they load, serialize to the same bytes, and continue."""

import json
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import pytest

from convo.errors import IllegalTransition, InvalidRunState
from convo.runs.machine import step_run
from convo.runs.serialize import run_from_json, run_to_json
from convo.runs.state import (
    TERMINAL_PHASES,
    ApprovalDecided,
    CancelRequested,
    Phase,
    Run,
    RunResumed,
    RunStarted,
    Stage,
)
from convo.runs.stored_approvals import apply_decisions, list_pending_approvals
from tests.runs.stored_runs import DECIDED, GRAPH, RUNS, StoredRun, without_verdicts

FOLDER = File(__file__).parent / "stored"
CASES = [("without_verdicts", name) for name in RUNS] + [("with_verdicts", name) for name in DECIDED]


def read_stored(form: str, name: str) -> str:
    return (FOLDER / form / f"{name}.json").read_text("utf-8")


def expected(form: str, name: str) -> tuple[Run, StoredRun]:
    """The run of a file, and how it continues."""
    row = {"without_verdicts": RUNS, "with_verdicts": DECIDED}[form][name]
    run = row.make()
    return (without_verdicts(run) if form == "without_verdicts" else run), row


def serialize(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def member_strings(document: Any, name: str) -> Iterator[str]:
    """All strings of the member `name`, including those of nested runs."""
    if isinstance(document, list):
        for element in document:
            yield from member_strings(element, name)
    elif isinstance(document, dict):
        yield from (value for key, value in document.items() if key == name and isinstance(value, str))
        for value in document.values():
            yield from member_strings(value, name)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_a_stored_run_round_trips_byte_for_byte(form: str, name: str) -> None:
    text, (run, _) = read_stored(form, name), expected(form, name)
    assert run_from_json(json.loads(text), GRAPH) == run
    assert serialize(run_to_json(run)) == text
    assert serialize(run_to_json(run_from_json(json.loads(text), GRAPH))) == text


@pytest.mark.parametrize(("form", "name"), CASES)
def test_a_stored_run_continues(form: str, name: str) -> None:
    run, (built, row) = run_from_json(json.loads(read_stored(form, name)), GRAPH), expected(form, name)
    if row.event is None:
        assert run.phase in TERMINAL_PHASES
        for event in (RunStarted(), RunResumed(), CancelRequested()):
            with pytest.raises(IllegalTransition):
                step_run(run, event)
        return
    after, effects = step_run(run, row.event)
    assert after.phase is row.phase
    assert (after, effects) == step_run(built, row.event)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_pending_calls_are_listed_without_the_agents(form: str, name: str) -> None:
    document, (run, _) = json.loads(read_stored(form, name)), expected(form, name)
    pending = [(one.id, agent, one.stage is Stage.OUTCOME_UNKNOWN) for agent, one in run.pending_with_agents]
    assert [(one.call_id, one.agent, one.outcome_unknown) for one in list_pending_approvals(document)] == (
        pending if run.phase is Phase.PAUSED else []
    )


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("name", ["paused", "paused_for_provider", "paused_unknown", "paused_inside"])
def test_a_decision_without_the_agents_writes_the_same_document(name: str, approve: bool) -> None:
    document = json.loads(read_stored("without_verdicts", name))
    event = ApprovalDecided(list_pending_approvals(document)[0].call_id, approve=approve)
    assert serialize(apply_decisions(document, [event])) == serialize(
        run_to_json(step_run(run_from_json(document, GRAPH), event)[0])
    )


def test_every_phase_and_every_stage_has_a_stored_file() -> None:
    """There are as many stored phase and stage names as phases and stages, and each name occurs in a file."""
    documents = [json.loads(read_stored(form, name)) for form, name in CASES]
    runs = [run_from_json(document, GRAPH) for document in documents]
    calls = [call for run in runs for call in run.calls]
    assert {run.phase for run in runs} == set(Phase)
    assert {call.stage for call in calls} == set(Stage)
    assert len(set(member_strings(documents, "phase"))) == len(Phase)
    assert len(set(member_strings(documents, "stage"))) == len(Stage)


def test_every_stored_file_is_tested() -> None:
    assert {(file.parent.name, file.stem) for file in FOLDER.glob("*/*.json")} == set(CASES)


@pytest.mark.parametrize("limits", [{}, {"parallel": 3}, {"max_turns": None}])
def test_limits_that_are_not_stored_have_their_defaults(limits: dict[str, Any]) -> None:
    run = run_from_json({**json.loads(read_stored("without_verdicts", "new")), "limits": limits}, GRAPH)
    assert {"max_turns": run.limits.max_turns, "parallel": run.limits.max_parallel_calls} == {
        "max_turns": 10,
        "parallel": 8,
        **limits,
    }


@pytest.mark.parametrize(
    "members",
    [
        {"limits": {"max_turns": 6, "parallel": 2, "budget": 1}},
        {"limits": None},
        {"limits": []},
        {"failure": {"code": "max_turns"}},
        {"failure": {"code": "max_turns", "message": "", "cause": ""}},
        {"failure": "max_turns"},
        {"phase": "failed"},
        {"phase": ["FAILED"]},
    ],
)
def test_unknown_and_missing_members_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidRunState, match=r"not a complete run|^\$\.\w+ must be "):
        run_from_json({**json.loads(read_stored("without_verdicts", "failed")), **members}, GRAPH)
