"""Decisions on a stored run without its agents equal decisions on the run itself."""

import json
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.errors import ConvoError, IllegalTransition, InputFault, InvalidRunState, UnknownSchema
from convo.history.items import Json, assistant_message
from convo.runs.serialize import recover_run, run_from_json, run_to_json
from convo.runs.state import ApprovalDecided, Run, RunResumed, RunStarted, ToolOutputSupplied, ToolReturned
from convo.runs.stored_approvals import (
    apply_decisions,
    list_decidable_approvals,
    list_pending_approvals,
    match_decisions,
    pending_approval_from_call,
)
from tests.call_count import CallCount
from tests.runs.run_steps import FREE, GUARDED, apply_events, call, make_run, model_response

MCP = {"type": "mcp_approval_request", "id": "m1", "server_label": "crm", "name": "drop", "arguments": "{}"}
NEW_ARGUMENTS = '{"text": "other"}'
NOT_AN_OBJECT = "the arguments for g1 are not a JSON object"
CHANGED_CODE = "resume with the code that the run was stored with, or start a new run"
ONE_CALL = "arguments can be changed only for one approved function call"
HINTS = {
    NOT_AN_OBJECT: "pass a JSON object; nothing was changed",
    ONE_CALL: "approve the call without --always",
}


def paused(*calls: Any) -> Run:
    """A run in which these calls are pending."""
    run, _ = apply_events(make_run(Agent("shop", tools=(FREE, GUARDED))), RunStarted())
    return apply_events(run, model_response(run, *(calls or (call("g1", "guarded"), call("g2", "guarded"), MCP))))[0]


def unknown_outcome() -> Run:
    """A run whose process was killed after a call had started."""
    run, _ = apply_events(make_run(Agent("shop", tools=(FREE,))), RunStarted())
    run, _ = apply_events(run, model_response(run, call("u1")))
    return recover_run(run, {})[0]


def document(run: Run) -> dict[str, Json]:
    loaded: dict[str, Json] = json.loads(json.dumps(run_to_json(run)))
    return loaded


def test_pending_approvals_are_read_from_the_document_alone() -> None:
    approvals = list_pending_approvals(document(paused()))
    assert [(one.call_id, one.tool, one.agent, one.arguments) for one in approvals] == [
        ("g1", "guarded", "shop", '{"text": "x"}'),
        ("g2", "guarded", "shop", '{"text": "x"}'),
        ("m1", "crm.drop", "shop", "{}"),
    ]
    assert [(one.outcome_unknown, one.is_hosted) for one in approvals] == [
        (False, False),
        (False, False),
        (False, True),
    ]
    assert [(one.call_id, one.outcome_unknown) for one in list_pending_approvals(document(unknown_outcome()))] == [
        ("u1", True)
    ]


def test_a_run_that_is_not_paused_has_no_pending_approvals() -> None:
    run, _ = apply_events(make_run(Agent("shop")), RunStarted())
    assert list_pending_approvals(document(run)) == ()
    assert list_pending_approvals(document(apply_events(run, model_response(run, assistant_message("done")))[0])) == ()


@pytest.mark.parametrize(
    "event",
    [
        ApprovalDecided("g1", approve=True),
        ApprovalDecided("g1", approve=False),
        ApprovalDecided("g1", approve=False, message="not on a Friday"),
        ApprovalDecided("g1", approve=True, always=True),
        ApprovalDecided("g2", approve=False, message="never", always=True),
        ApprovalDecided("g1", approve=True, always=True, message="not for the model"),
        ApprovalDecided("g1", approve=True, arguments=NEW_ARGUMENTS),
        ApprovalDecided("m1", approve=True),
        ApprovalDecided("m1", approve=True, message="not for the model"),
        ApprovalDecided("m1", approve=False, message="no"),
        ApprovalDecided("m1", approve=True, always=True),
    ],
    ids=str,
)
def test_a_decision_on_the_document_equals_a_decision_on_the_run(event: ApprovalDecided) -> None:
    run = paused()
    changed = apply_decisions(document(run), [event])
    assert changed == document(apply_events(run, event)[0])
    assert run_from_json(changed, run.graph) == apply_events(run, event)[0]


@pytest.mark.parametrize(
    "event", [ToolOutputSupplied("u1", "42"), ApprovalDecided("u1", approve=True), ApprovalDecided("u1", approve=False)]
)
def test_an_output_supplied_to_the_document_equals_one_supplied_to_the_run(
    event: ApprovalDecided | ToolOutputSupplied,
) -> None:
    run = unknown_outcome()
    assert apply_decisions(document(run), [event]) == document(apply_events(run, event)[0])


@pytest.mark.parametrize("approve", [True, False])
def test_an_approval_before_the_start_of_a_call_is_not_applied_to_its_unknown_outcome(approve: bool) -> None:
    run, _ = apply_events(paused(call("g1", "guarded")), ApprovalDecided("g1", approve=True), RunResumed())
    run, _ = recover_run(run, {})
    event = ApprovalDecided("g1", approve=approve)
    assert apply_decisions(document(run), [event]) == document(apply_events(run, event)[0])
    assert "verdict" not in apply_decisions(document(run), [event])["batch"][0]


def test_several_decisions_are_all_stored_in_the_document() -> None:
    run, events = (
        paused(),
        [
            ApprovalDecided("g1", approve=True),
            ApprovalDecided("m1", approve=False),
            ApprovalDecided("g2", approve=False),
        ],
    )
    changed = apply_decisions(document(run), events)
    assert changed == document(apply_events(run, *events)[0])
    assert list_pending_approvals(changed) == ()


def test_four_times_the_decisions_take_about_four_times_as_long() -> None:
    call_counts = []
    for count in (50, 200):
        before = document(paused(*(call(f"g{n}", "guarded") for n in range(count))))
        with CallCount() as calls:
            changed = apply_decisions(before, [ApprovalDecided(f"g{n}", approve=True) for n in range(count)])
        call_counts.append(calls.total)
        assert list_pending_approvals(changed) == ()
    assert call_counts[1] < 5 * call_counts[0]


def test_a_later_sticky_decision_replaces_an_earlier_one() -> None:
    (rejection,) = apply_decisions(document(paused()), [ApprovalDecided("g1", approve=False, always=True)])["always"]
    other = {**rejection, "lookup": ["bare", "free"]}
    before = {**document(paused()), "always": [rejection, other]}
    changed = apply_decisions(before, [ApprovalDecided("g1", approve=True, always=True)])
    assert (rejection["approve"], changed["always"]) == (False, [other, {**rejection, "approve": True}])


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (
            ApprovalDecided("nobody", approve=True),
            IllegalTransition,
            "a run that is paused does not accept ApprovalDecided: there is no call nobody",
        ),
        (
            ToolOutputSupplied("g1", "42"),
            IllegalTransition,
            "a run that is paused does not accept ToolOutputSupplied: call g1: pending approval",
        ),
        (ApprovalDecided("g1", approve=True, arguments="[]"), InputFault, NOT_AN_OBJECT),
        (ApprovalDecided("g1", approve=True, arguments="{"), InputFault, NOT_AN_OBJECT),
        (ApprovalDecided("g1", approve=True, arguments="[" * 99_999), InputFault, NOT_AN_OBJECT),
        (ApprovalDecided("g1", approve=False, arguments="{}"), InputFault, ONE_CALL),
        (ApprovalDecided("g1", approve=True, always=True, arguments="{}"), InputFault, ONE_CALL),
        (ApprovalDecided("m1", approve=True, arguments="{}"), InputFault, ONE_CALL),
    ],
)
def test_an_invalid_decision_is_refused_and_changes_nothing(
    event: ApprovalDecided | ToolOutputSupplied, error: type[ConvoError], message: str
) -> None:
    before = document(paused())
    with pytest.raises(error, match=message) as caught:
        apply_decisions(before, [ApprovalDecided("g2", approve=True), event])
    assert caught.value.hint == HINTS.get(message, error.hint)
    assert before == document(paused())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ApprovalDecided("g1", approve=True), ApprovalDecided("g1", approve=False, message="no")),
        (ApprovalDecided("g1", approve=False), ApprovalDecided("g1", approve=True)),
        (ApprovalDecided("g1", approve=True, arguments=NEW_ARGUMENTS), ApprovalDecided("g1", approve=False)),
        (ApprovalDecided("m1", approve=True), ApprovalDecided("m1", approve=False, message="no")),
        (ApprovalDecided("g1", approve=False, always=True, message="no"), ApprovalDecided("g1", approve=True)),
    ],
    ids=str,
)
def test_a_decision_can_be_changed_until_the_run_is_resumed(first: ApprovalDecided, second: ApprovalDecided) -> None:
    run = paused()
    changed = apply_decisions(document(run), [first, second])
    after, _ = apply_events(run, first, second)
    assert changed == document(after)
    assert run_from_json(changed, run.graph) == after
    (one,) = [one for one in list_decidable_approvals(changed) if one.call_id == second.call_id]
    assert one.approved is second.approve
    assert second.call_id not in [one.call_id for one in list_pending_approvals(changed)]


def test_a_decision_on_an_unknown_outcome_is_final() -> None:
    changed = apply_decisions(document(unknown_outcome()), [ApprovalDecided("u1", approve=False)])
    assert list_decidable_approvals(changed) == ()
    with pytest.raises(IllegalTransition, match="call u1: done"):
        apply_decisions(changed, [ApprovalDecided("u1", approve=True)])


def test_a_run_stored_by_an_older_release_keeps_its_decisions() -> None:
    changed = apply_decisions(document(paused()), [ApprovalDecided("g1", approve=True)])
    old = {**changed, "batch": [{k: v for k, v in one.items() if k != "verdict"} for one in changed["batch"]]}
    assert [one.call_id for one in list_decidable_approvals(old)] == ["g2", "m1"]
    with pytest.raises(IllegalTransition, match="call g1: ready to run"):
        apply_decisions(old, [ApprovalDecided("g1", approve=False)])


def test_the_reason_of_a_sticky_rejection_is_applied_to_later_calls() -> None:
    run, _ = apply_events(
        paused(),
        *(ApprovalDecided(one, approve=False, message="never", always=True) for one in ("g1", "m1")),
        RunResumed(),
    )
    run = run_from_json(document(run), run.graph)
    run, _ = apply_events(run, model_response(run, call("g3", "guarded"), {**MCP, "id": "m3"}, call("f3", "free")))
    outputs = {one.id: one.output for one in run.calls if one.output}
    assert (outputs["g3"]["output"], outputs["m3"]["reason"]) == ("never", "never")


@pytest.mark.parametrize(
    ("invalid", "error", "message", "hint"),
    [
        (
            {"version": 9},
            UnknownSchema,
            "$.version is 9, which this version of convo does not support; supported: 1",
            "upgrade convo-state if a newer release wrote it",
        ),
        (
            {"version": "9" * 30},
            UnknownSchema,
            f"$.version is '{'9' * 19}, which this version of convo does not support; supported: 1",
            UnknownSchema.hint,
        ),
        ({"version": 1}, InvalidRunState, "$ is not a complete run (KeyError('phase'))", CHANGED_CODE),
        (
            {"version": 1, "phase": "PAUSED"},
            InvalidRunState,
            "$ is not a complete run (KeyError('batch'))",
            CHANGED_CODE,
        ),
    ],
)
def test_an_invalid_document_is_refused(
    invalid: dict[str, Json], error: type[ConvoError], message: str, hint: str
) -> None:
    for operation in (list_pending_approvals, list_decidable_approvals, lambda document: apply_decisions(document, [])):
        with pytest.raises(error) as caught:
            operation(invalid)
        assert caught.value.message == message
        assert caught.value.hint == hint


@pytest.mark.parametrize(
    "events",
    [
        (),
        (ApprovalDecided("g1", approve=True), ApprovalDecided("m1", approve=False)),
        (ApprovalDecided("g2", approve=False), ApprovalDecided("g1", approve=True, always=True)),
    ],
)
def test_a_call_of_a_loaded_run_is_described_as_in_its_document(events: tuple[ApprovalDecided, ...]) -> None:
    invalid_arguments = paused(call("x1", arguments="{}"), call("g1", "guarded"), call("g2", "guarded"), MCP)
    for run in (apply_events(paused(), *events)[0], apply_events(invalid_arguments, *events)[0], unknown_outcome()):
        assert "x1" not in [one.id for _, one in run.decidable_with_agents]
        described = [pending_approval_from_call(one, agent) for agent, one in run.decidable_with_agents]
        assert described == list(list_decidable_approvals(document(run)))
    assert apply_decisions(document(paused()), events) == document(apply_events(paused(), *events)[0])


def test_a_call_that_has_run_cannot_be_decided_again() -> None:
    run, _ = apply_events(paused(), ApprovalDecided("g1", approve=True), RunResumed(), ToolReturned("g1", "done"))
    assert [one.id for _, one in run.decidable_with_agents] == ["g2", "m1"]
    assert pending_approval_from_call(run.calls[0], "shop").approved is None


def test_the_calls_that_a_decision_changed_are_matched_with_it() -> None:
    before = document(paused())
    sticky = ApprovalDecided("g2", approve=False, message="no", always=True)
    edited = ApprovalDecided("g1", approve=True, arguments=NEW_ARGUMENTS)
    hosted = ApprovalDecided("m1", approve=True)

    def matches(*events: ApprovalDecided, start: dict[str, Json] = before) -> list[tuple[str, str, ApprovalDecided]]:
        changed = apply_decisions(start, events)
        return [(call.call_id, call.arguments, event) for call, event in match_decisions(start, changed, events)]

    assert matches(edited, hosted) == [("g1", NEW_ARGUMENTS, edited), ("m1", "{}", hosted)]
    assert matches(sticky) == [("g1", '{"text": "x"}', sticky), ("g2", '{"text": "x"}', sticky)]
    decided = apply_decisions(before, [edited])
    assert matches(sticky, start=decided) == [("g2", '{"text": "x"}', sticky)]
    again = ApprovalDecided("g1", approve=True)
    assert matches(again, start=decided) == [("g1", NEW_ARGUMENTS, again)]
    outcome = ApprovalDecided("u1", approve=True)
    assert matches(outcome, start=document(unknown_outcome())) == [("u1", '{"text": "x"}', outcome)]
