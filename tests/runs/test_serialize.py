"""Serialized runs: loading restores an equal run, and refuses invalid documents and changed agents."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.agents.agent import Agent, output
from convo.agents.graph import Graph, graph
from convo.errors import ConvoError, InvalidRunState, NotCanonical, NotFound, UnknownSchema
from convo.history.items import Json, assistant_message
from convo.runs.serialize import PHASE_WORDS, STAGE_WORDS, run_from_json, run_to_json
from convo.runs.state import (
    ApprovalDecided,
    CancelRequested,
    EffectFailed,
    GuardrailPassed,
    ModelResponded,
    Phase,
    Run,
    RunEvent,
    RunLimits,
    RunResumed,
    RunStarted,
    Stage,
    ToolReturned,
)
from convo.tools.tool import Namespace
from tests.runs.run_steps import FREE, GUARDED, apply_events, call, make_run, make_tool, model_response
from tests.runs.stored_runs import Receipt
from tests.runs.test_random_events import (
    ENDING_EVENTS,
    FIRST,
    RESPONSES,
    SECOND,
    UNEXPECTED_EVENTS,
    Log,
    apply_and_log,
    expected_event,
    step,
)


def round_trip(run: Run, agents: Graph | None = None) -> Run:
    """Serialize `run` to JSON text and load it."""
    return run_from_json(json.loads(json.dumps(run_to_json(run), allow_nan=False)), agents or run.graph)


@given(st.lists(RESPONSES, min_size=3, max_size=15), st.lists(st.one_of(UNEXPECTED_EVENTS, ENDING_EVENTS), max_size=20))
def test_state_to_json_to_state_is_the_identity_in_every_phase(
    responses: list[list[tuple[str, str]]], events: list[RunEvent]
) -> None:
    run, log = make_run(FIRST, max_turns=6, max_parallel_calls=2), Log()
    assert round_trip(run) == run
    for calls in responses:
        run = apply_and_log(log, run, expected_event(log, run, calls))
        assert round_trip(run) == run
    for event in events:
        result = step(run, event)
        run = result[0] if result else run
        assert round_trip(run) == run


@given(st.lists(RESPONSES, max_size=8))
def test_a_run_that_is_serialized_after_every_event_behaves_identically(responses: list[list[tuple[str, str]]]) -> None:
    run, log, other = make_run(FIRST, max_turns=6), Log(), make_run(FIRST, max_turns=6)
    for calls in responses:
        event = expected_event(log, run, calls)
        if event is None:
            break
        result = step(round_trip(other), event)
        run = apply_and_log(log, run, event)
        other = result[0] if result else other
        assert other == run


def test_a_final_output_that_is_a_python_object_is_parsed_from_the_answer_again() -> None:
    run = make_run(replace(FIRST, output=output(Receipt), input_guardrails=()))
    run, _ = apply_events(run, RunStarted())
    run, _ = apply_events(run, model_response(run, assistant_message('{"cents": 7}')))
    assert (run.phase, run.output) == (Phase.CHECKING_OUTPUT, Receipt(7))
    assert round_trip(run) == run
    assert round_trip(apply_events(run, GuardrailPassed(0), GuardrailPassed(1))[0]).output == Receipt(7)
    with pytest.raises(
        InvalidRunState, match=r"^\$\.text does not match the output schema of agent 'first': the output"
    ):
        round_trip(run, graph(replace(FIRST, output=output(list[int]))))
    with pytest.raises(InvalidRunState, match=r"^\$\.output needs the output schema that agent 'first' no longer has$"):
        round_trip(run, graph(FIRST))
    with pytest.raises(NotCanonical, match="the output of agent 'first' is not JSON: Receipt"):
        run_to_json(replace(run, graph=graph(FIRST)))
    with pytest.raises(NotCanonical, match="the output of agent 'first' is not JSON: Receipt"):
        run_to_json(replace(run, text=None))


@pytest.mark.parametrize("value", [None, "x", 1, True, 1.5, [1, {"a": ["b", None]}], {"a": [{}]}, [], {}])
def test_a_final_output_that_is_json_is_stored_itself(value: Json) -> None:
    run = replace(done_run(), output=value)
    assert run_to_json(run)["output"] == {"value": value}
    assert round_trip(run) == run


@pytest.mark.parametrize("value", [float("nan"), [1, float("inf")], {"a": {1}}, {1: "a"}, {"a": [object()]}, (1,)])
def test_a_final_output_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(NotCanonical, match=f"^the output of agent 'desk' is not JSON: {type(value).__name__}$"):
        run_to_json(replace(done_run(), output=value))


def done_run() -> Run:
    run, _ = apply_events(make_run(Agent("desk")), RunStarted())
    return apply_events(run, model_response(run, assistant_message("done")))[0]


def test_a_cancelled_run_does_not_need_its_guardrails() -> None:
    run, _ = apply_events(make_run(FIRST), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))
    run, _ = apply_events(run, model_response(run, assistant_message("hi")), CancelRequested())
    document = run_to_json(run)
    assert [guard["place"] for guard in document["guards"]] == [0, 1]
    unguarded = replace(FIRST, input_guardrails=(), output_guardrails=())
    assert round_trip(run, graph(unguarded, SECOND)).open_guardrails == run.open_guardrails
    fewer_guardrails = replace(run, graph=graph(replace(FIRST, input_guardrails=FIRST.input_guardrails[:1]), SECOND))
    assert [guard["name"] for guard in run_to_json(fewer_guardrails)["guards"]] == ["beside", None]


def test_a_sticky_decision_on_a_tool_of_a_removed_agent_is_stored_without_a_schema() -> None:
    run = replace(paused_run(), sticky_decisions={("gone", ("bare", "guarded")): True})
    assert run_to_json(run)["always"] == [
        {"agent": "gone", "lookup": ["bare", "guarded"], "tool": None, "approve": True}
    ]


def paused_run() -> Run:
    run, _ = apply_events(make_run(Agent("desk", tools=(FREE, GUARDED))), RunStarted())
    return apply_events(run, model_response(run, call("c1", "guarded"), call("c2")), ToolReturned("c2", "two"))[0]


def test_sticky_decisions_and_finished_outputs_are_stored() -> None:
    run, _ = apply_events(round_trip(paused_run()), ApprovalDecided("c1", approve=True, always=True))
    run, _ = apply_events(round_trip(run), RunResumed())
    run, _ = apply_events(round_trip(run), ToolReturned("c1", "one"))
    assert round_trip(run) == run
    run, _ = apply_events(run, model_response(run, call("c3", "guarded")))
    assert run.phase is Phase.RUNNING_TOOLS


def desk_graph(*tools: Any) -> Graph:
    return graph(Agent("desk", tools=tools))


CHANGED_TOOL = make_tool("guarded", needs_approval=True)
CHANGED_TOOL = replace(CHANGED_TOOL, parameters={**CHANGED_TOOL.parameters, "required": []})


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (graph(Agent("shop")), NotFound, "no agent 'desk'"),
        (desk_graph(FREE), NotFound, "no tool 'guarded'"),
        (
            desk_graph(FREE, CHANGED_TOOL),
            InvalidRunState,
            r"\$\.batch\[0\] is a call of tool 'guarded', whose schema has changed",
        ),
    ],
)
def test_a_changed_agent_graph_is_refused(changed: Graph, error: type[ConvoError], message: str) -> None:
    with pytest.raises(error, match=message):
        round_trip(paused_run(), changed)


def test_a_removed_tool_is_named_with_its_namespace() -> None:
    namespaced = make_tool("open", needs_approval=True, namespace=Namespace("crm", ""))
    run, _ = apply_events(make_run(Agent("desk", tools=(namespaced,))), RunStarted())
    run, _ = apply_events(run, model_response(run, call("c1", "open", namespace="crm")))
    with pytest.raises(NotFound, match=r"^no tool 'crm.open'$") as caught:
        round_trip(run, desk_graph(FREE))
    assert caught.value.hint == "add it: agent 'desk' had it when the run was stored"


def test_a_tool_with_a_sticky_approval_must_be_unchanged() -> None:
    run, _ = apply_events(
        paused_run(), ApprovalDecided("c1", approve=True, always=True), RunResumed(), ToolReturned("c1", "one")
    )
    with pytest.raises(InvalidRunState, match=r"\$\.always\[0\]"):
        round_trip(run, desk_graph(FREE, CHANGED_TOOL))


def test_a_tool_with_another_function_and_the_same_definition_is_accepted() -> None:
    other = replace(GUARDED, run=str, description="Other words.", timeout_s=1.0)
    assert round_trip(paused_run(), desk_graph(FREE, other)).calls[0].tool == other


def test_a_guardrail_that_has_not_finished_must_be_at_the_same_position() -> None:
    run, _ = apply_events(make_run(FIRST), RunStarted())
    reordered = replace(FIRST, input_guardrails=FIRST.input_guardrails[::-1])
    with pytest.raises(InvalidRunState, match=r"\$\.guards\[1\] is guardrail 'before', which no longer exists"):
        round_trip(run, graph(reordered, SECOND))


def without_key(key: str) -> Callable[[dict[str, Json]], Json]:
    return lambda document: {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    "damage",
    [without_key("batch"), without_key("limits"), lambda document: {**document, "phase": "NOWHERE"}],
    ids=["no batch", "no limits", "no such phase"],
)
def test_an_incomplete_document_is_refused(damage: Callable[[dict[str, Json]], Json]) -> None:
    with pytest.raises(InvalidRunState, match=r"^\$ is not a complete run \(KeyError\('") as caught:
        run_from_json(damage(run_to_json(paused_run())), paused_run().graph)
    assert caught.value.hint == "resume with the code that the run was stored with, or start a new run"


@pytest.mark.parametrize(
    ("document", "label"),
    [
        (None, "None"),
        ([], "[]"),
        ({}, "None"),
        ({"version": 2}, "2"),
        ({"version": "1"}, "'1'"),
        (["x" * 30], f"['{'x' * 18}"),
    ],
)
def test_another_version_of_the_document_is_refused(document: Json, label: str) -> None:
    with pytest.raises(UnknownSchema) as caught:
        run_from_json(document, paused_run().graph)
    assert caught.value.message.startswith(f"$.version is {label}, which this version of convo does not support")
    assert caught.value.message.endswith("; supported: 1")
    assert (caught.value.path, caught.value.label) == ("$.version", label)


def test_an_answer_that_waits_for_a_guardrail_is_stored_with_its_calls() -> None:
    run, _ = apply_events(make_run(FIRST), RunStarted(), GuardrailPassed(1))
    run, _ = apply_events(run, ModelResponded((call("c1"),), model_response(run).tools))
    assert run.has_response
    assert round_trip(run) == run
    assert apply_events(round_trip(run), GuardrailPassed(0))[0].phase is Phase.RUNNING_TOOLS


# -- stored words ---------------------------------------------------------------------------------


def test_the_stored_words_of_phases_and_stages_never_change() -> None:
    assert {str(phase): word for phase, word in PHASE_WORDS.items()} == {
        "new": "NEW",
        "checking the input": "GUARDING",
        "calling the model": "ASKING",
        "checking approvals": "CLEARING",
        "running tools": "WORKING",
        "paused": "PAUSED",
        "handing off": "HANDING",
        "checking the output": "CHECKING",
        "done": "DONE",
        "failed": "FAILED",
        "cancelled": "STOPPED",
    }
    assert {str(stage): word for stage, word in STAGE_WORDS.items()} == {
        "checking whether it needs approval": "JUDGING",
        "pending approval": "WAITING",
        "ready to run": "READY",
        "running": "STARTED",
        "started, outcome unknown": "UNKNOWN",
        "nested run paused for approval": "INSIDE",
        "done": "DONE",
        "handoff after the other calls": "HANDOFF",
    }
    assert (set(PHASE_WORDS), set(STAGE_WORDS)) == (set(Phase), set(Stage))


STORED_CALL = {"type": "function_call", "name": "guarded", "arguments": '{"text": "x"}'}
STORED_DOCUMENT: dict[str, Json] = {
    "version": 1,
    "agent": "desk",
    "limits": {"max_turns": 10, "parallel": 8},
    "phase": "PAUSED",
    "turn": 1,
    "batch": [
        {
            "item": {**STORED_CALL, "call_id": "c1"},
            "id": "c1",
            "stage": "WAITING",
            "lookup": ["bare", "guarded"],
            "tool": "h1:f4e06936c0ce5c29f5e13395a537e856f169f4c9e2620d28b4b5429d0d90dc86",
            "to": None,
            "arguments": '{"text": "x"}',
            "output": None,
            "ran": False,
            "inner": None,
        },
        {
            "item": {**STORED_CALL, "name": "free", "call_id": "c2"},
            "id": "c2",
            "stage": "DONE",
            "lookup": ["bare", "free"],
            "tool": "h1:8920bc517103c2293d2352757d7422e7f3fbefc51132ccbfbd4eb3daf27ac11e",
            "to": None,
            "arguments": '{"text": "x"}',
            "output": {"type": "function_call_output", "call_id": "c2", "output": "two"},
            "ran": True,
            "inner": None,
        },
    ],
    "guards": [],
    "answered": True,
    "text": None,
    "used": {"desk": ["guarded", "free"]},
    "always": [],
    "staged": [],
    "output": {"value": None},
    "failure": None,
}
"""A run as earlier releases stored it."""


def test_a_stored_run_has_the_same_document_in_every_release() -> None:
    assert run_to_json(paused_run()) == STORED_DOCUMENT
    assert run_from_json(STORED_DOCUMENT, paused_run().graph) == paused_run()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"limits": {"max_turns": 1, "tokens": 2}}, "TypeError(\"unknown member 'tokens'\")"),
        ({"failure": {"code": "a", "message": "b", "why": "c"}}, "TypeError(\"unknown member 'why'\")"),
        ({"failure": {"code": "a"}}, "KeyError('message')"),
    ],
)
def test_a_document_with_other_members_is_refused(changed: dict[str, Json], reason: str) -> None:
    with pytest.raises(InvalidRunState) as raised:
        run_from_json({**STORED_DOCUMENT, **changed}, paused_run().graph)
    assert raised.value.message == f"$ is not a complete run ({reason})"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"used": []}, "$.used must be lists of tools"),
        ({"used": {"desk": [1]}}, "$.used must be lists of tools"),
        ({"turn": True}, "$.turn must be a number of turns"),
        ({"staged": [{"text": "x"}]}, "$.staged must be a list of items with types"),
        ({"failure": {"code": "a", "message": 1}}, "$.failure.message must be a text"),
        ({"limits": {"max_turns": -1}}, "$.limits must be two numbers"),
        ({"limits": {"parallel": 0}}, "$.limits must be two numbers"),
    ],
)
def test_a_document_with_members_of_other_types_is_refused(changed: dict[str, Json], message: str) -> None:
    with pytest.raises(InvalidRunState) as raised:
        run_from_json({**STORED_DOCUMENT, **changed}, paused_run().graph)
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, RunLimits(10, 8)),
        ({"max_turns": None}, RunLimits(None, 8)),
        ({"parallel": 3}, RunLimits(10, 3)),
        ({"max_turns": 2, "parallel": 1}, RunLimits(2, 1)),
    ],
)
def test_a_missing_limit_has_its_default(limits: dict[str, Json], expected: RunLimits) -> None:
    assert run_from_json({**STORED_DOCUMENT, "limits": limits}, paused_run().graph).limits == expected


def test_a_failed_run_and_a_sticky_rejection_are_stored() -> None:
    rejected = ApprovalDecided("c1", approve=False, message="too dear", always=True)
    run, _ = apply_events(paused_run(), rejected, RunResumed(), EffectFailed("x", "lost"))
    document = run_to_json(run)
    assert document["failure"] == {"code": "x", "message": "lost"}
    (decision,) = document["always"]
    assert decision == {
        "agent": "desk",
        "lookup": ["bare", "guarded"],
        "tool": "h1:f4e06936c0ce5c29f5e13395a537e856f169f4c9e2620d28b4b5429d0d90dc86",
        "approve": False,
        "message": "too dear",
    }
    assert round_trip(run) == run


@pytest.mark.parametrize(
    ("stage", "approved", "has_run", "expected"),
    [
        (Stage.READY, True, False, True),
        (Stage.DONE, False, False, True),
        (Stage.READY, None, False, False),
        (Stage.DONE, True, True, False),
        (Stage.RUNNING, True, False, False),
        (Stage.PENDING, True, False, False),
        (Stage.OUTCOME_UNKNOWN, True, False, False),
    ],
)
def test_a_decision_can_be_changed_until_the_call_runs(
    stage: Stage, approved: bool | None, has_run: bool, expected: bool
) -> None:
    first, second = paused_run().calls
    decided = replace(first, stage=stage, approved=approved, has_run=has_run)
    assert decided.is_decided is expected
    run = replace(paused_run(), calls=(decided, second))
    is_pending = stage in (Stage.PENDING, Stage.OUTCOME_UNKNOWN)
    assert run.decidable_with_agents == ((("desk", decided),) if expected or is_pending else ())
    assert run.pending_with_agents == ((("desk", decided),) if is_pending else ())
