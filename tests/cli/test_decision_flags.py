"""The decisions that flags make: precedence, conflicts, calls with an unknown outcome, and the notes about them."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from convo.cli.decision_flags import (
    CallDecision,
    RequestedDecisions,
    choose_decisions,
    format_decision,
    iter_unchanged_decision_notes,
    make_decision,
)
from convo.errors import ConvoError, InvalidUsage, NotFound
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import PendingApproval


def pending_call(
    call_id: str, tool: str = "refund", *, unknown: bool = False, approved: bool | None = None
) -> PendingApproval:
    return PendingApproval(call_id, tool, '{"n": 1}', "desk", unknown, is_hosted=False, approved=approved)


CALLS = [
    pending_call("c1"),
    pending_call("c2"),
    pending_call("m1", "mail"),
    pending_call("u1", "mail", unknown=True),
    pending_call("yes", "pay", approved=True),
    pending_call("no", "pay", approved=False),
]
APPROVE, REJECT = CallDecision("approve"), CallDecision("reject")


def decisions_by_id(requested: RequestedDecisions, calls: Sequence[PendingApproval]) -> dict[str, CallDecision]:
    return {calls[index].call_id: decision for index, decision in choose_decisions(requested, calls).items()}


@pytest.mark.parametrize(
    ("requested", "decisions"),
    [
        (RequestedDecisions(), {}),
        (RequestedDecisions(approve=("c1",)), {"c1": APPROVE}),
        (RequestedDecisions(approve=("refund",)), {"c1": APPROVE, "c2": APPROVE}),
        (RequestedDecisions(approve=("all",)), {"c1": APPROVE, "c2": APPROVE, "m1": APPROVE}),
        (RequestedDecisions(approve=("mail",)), {"m1": APPROVE}),
        (RequestedDecisions(edit=("mail",)), {"m1": CallDecision("edit")}),
        (RequestedDecisions(reject=("mail",)), {"m1": REJECT, "u1": REJECT}),
        (
            RequestedDecisions(reject=("all=no = never",)),
            {call_id: CallDecision("reject", "no = never") for call_id in ("c1", "c2", "m1", "u1")},
        ),
        (RequestedDecisions(reject=("c1=",)), {"c1": REJECT}),
        (RequestedDecisions(rerun=("all",)), {"u1": CallDecision("rerun")}),
        (RequestedDecisions(rerun=("mail",)), {"u1": CallDecision("rerun")}),
        (RequestedDecisions(output=("u1=a=b",)), {"u1": CallDecision("output", "a=b")}),
        (RequestedDecisions(output=("mail=",)), {"u1": CallDecision("output", "")}),
        (RequestedDecisions(approve=("pay",)), {}),
        (
            RequestedDecisions(approve=("no",), reject=("yes=late",)),
            {"no": APPROVE, "yes": CallDecision("reject", "late")},
        ),
        (RequestedDecisions(approve=("all",), reject=("c2",)), {"c1": APPROVE, "c2": REJECT, "m1": APPROVE}),
        (RequestedDecisions(approve=("c2",), reject=("refund",)), {"c1": REJECT, "c2": APPROVE}),
        (
            RequestedDecisions(approve=("all",), reject=("refund=no", "c1", "c2")),
            {"c1": REJECT, "c2": REJECT, "m1": APPROVE},
        ),
        (RequestedDecisions(approve=("mail",), can_approve_unknown=True), {"m1": APPROVE, "u1": APPROVE}),
        (RequestedDecisions(approve=("c1", "c1")), {"c1": APPROVE}),
    ],
)
def test_flags_select_calls(requested: RequestedDecisions, decisions: dict[str, CallDecision]) -> None:
    assert decisions_by_id(requested, CALLS) == decisions


@pytest.mark.parametrize(
    ("requested", "error", "message", "hint"),
    [
        (
            RequestedDecisions(approve=("nobody",)),
            NotFound,
            "no pending call 'nobody'",
            "one of c1, c2, m1, u1, yes, no",
        ),
        (
            RequestedDecisions(approve=("c1",), reject=("c1",)),
            InvalidUsage,
            "c1 is given two different decisions",
            "name it once",
        ),
        (
            RequestedDecisions(reject=("c1=a", "c1=b")),
            InvalidUsage,
            "c1 is given two different decisions",
            "name it once",
        ),
        *(
            (
                requested,
                InvalidUsage,
                "u1 was started and its outcome is unknown",
                "--rerun u1, --output u1=TEXT, or --abort",
            )
            for requested in (RequestedDecisions(approve=("u1",)), RequestedDecisions(edit=("u1",)))
        ),
        *(
            (
                requested,
                InvalidUsage,
                "c1 was not started, so it has no output",
                "--approve or --reject c1",
            )
            for requested in (
                RequestedDecisions(rerun=("c1",)),
                RequestedDecisions(rerun=("refund",)),
                RequestedDecisions(output=("c1=x",)),
            )
        ),
        (
            RequestedDecisions(output=("u1",)),
            InvalidUsage,
            "--output 'u1' does not contain the output of the call",
            "--output CALL=TEXT",
        ),
    ],
)
def test_flags_that_fit_no_call_are_refused(
    requested: RequestedDecisions, error: type[ConvoError], message: str, hint: str
) -> None:
    with pytest.raises(error) as excinfo:
        choose_decisions(requested, CALLS)
    assert (excinfo.value.message, excinfo.value.hint) == (message, hint)


def test_a_run_without_pending_calls_has_no_ids_to_suggest() -> None:
    with pytest.raises(NotFound) as excinfo:
        choose_decisions(RequestedDecisions(approve=("c1",)), [])
    assert (excinfo.value.message, excinfo.value.hint) == (
        "no pending call 'c1': this run has no pending calls",
        "convo approvals",
    )


@pytest.mark.parametrize(
    ("requested", "decisions"),
    [
        (RequestedDecisions(reject=("a=b",)), {"a=b": REJECT}),
        (RequestedDecisions(reject=("a=b=no",)), {"a=b": CallDecision("reject", "no")}),
        (RequestedDecisions(reject=("a=no",)), {"a": CallDecision("reject", "no")}),
        (RequestedDecisions(output=("a=b=x",)), {"a=b": CallDecision("output", "x")}),
        (RequestedDecisions(output=("a=x",)), {"a": CallDecision("output", "x")}),
        (RequestedDecisions(output=("a=b",)), {"a": CallDecision("output", "b")}),
    ],
)
def test_an_id_with_an_equals_sign_is_not_split(
    requested: RequestedDecisions, decisions: dict[str, CallDecision]
) -> None:
    calls = [pending_call("a", unknown=bool(requested.output)), pending_call("a=b", unknown=bool(requested.output))]
    assert decisions_by_id(requested, calls) == decisions


def test_calls_of_two_nested_runs_with_one_id_are_decided_each_for_itself() -> None:
    calls = [pending_call("c1", approved=True), pending_call("c1", "mail"), pending_call("all", "pay")]
    assert choose_decisions(RequestedDecisions(reject=("c1",)), calls) == {0: REJECT, 1: REJECT}
    assert choose_decisions(RequestedDecisions(reject=("mail",)), calls) == {1: REJECT}
    assert choose_decisions(RequestedDecisions(reject=("all",)), calls) == {2: REJECT}


def test_a_tool_has_several_names_in_a_run_state() -> None:
    calls = [replace(pending_call("c1"), aliases=("crm.refund",))]
    assert choose_decisions(RequestedDecisions(approve=("crm.refund",)), calls) == {0: APPROVE}


def test_an_alternative_is_checked_against_the_undecided_calls_only() -> None:
    decided = [pending_call("c1", approved=True), pending_call("c2")]
    assert choose_decisions(RequestedDecisions(reject=("refund",)), decided) == {1: REJECT}
    assert choose_decisions(RequestedDecisions(reject=("refund",)), decided[:1]) == {}


def made_decisions(requested: RequestedDecisions) -> list[ApprovalDecided]:
    choices = choose_decisions(requested, CALLS)
    return [make_decision(CALLS[index], choice, requested) for index, choice in sorted(choices.items())]


def test_the_decisions_are_in_the_order_of_the_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "editor.py").write_text("import sys; open(sys.argv[1], 'w').write('{\"n\": 2}')")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")
    requested = RequestedDecisions(approve=("c2", "no"), edit=("c1",), reject=("m1=later", "yes"), always=True)
    assert made_decisions(requested) == [
        ApprovalDecided("c1", True, None, always=True, arguments='{"n": 2}'),
        ApprovalDecided("c2", True, None, always=True),
        ApprovalDecided("m1", False, "later", always=True),
        ApprovalDecided("yes", False, None, always=True),
        ApprovalDecided("no", True, None, always=True),
    ]


@pytest.mark.parametrize(
    ("requested", "decision"),
    [
        (RequestedDecisions(rerun=("u1",), always=True), ApprovalDecided("u1", True)),
        (RequestedDecisions(reject=("u1",), always=True), ApprovalDecided("u1", False)),
        (RequestedDecisions(approve=("c1",)), ApprovalDecided("c1", True)),
    ],
)
def test_a_decision_on_a_call_with_an_unknown_outcome_is_for_that_call_only(
    requested: RequestedDecisions, decision: ApprovalDecided
) -> None:
    assert made_decisions(requested) == [decision]


REMAINS_APPROVED = "pay (yes) remains approved; to change it: --reject yes"
REMAINS_REJECTED = "pay (no) remains rejected; to change it: --approve no"


@pytest.mark.parametrize(
    ("requested", "notes"),
    [
        (RequestedDecisions(approve=("all",)), [REMAINS_REJECTED]),
        (RequestedDecisions(edit=("pay",)), [REMAINS_REJECTED]),
        (RequestedDecisions(rerun=("all",)), [REMAINS_REJECTED]),
        (RequestedDecisions(output=("all=x",)), [REMAINS_REJECTED]),
        (RequestedDecisions(reject=("all=why",)), [REMAINS_APPROVED]),
        (RequestedDecisions(reject=("pay",)), [REMAINS_APPROVED]),
        (RequestedDecisions(approve=("all",), reject=("pay",)), [REMAINS_APPROVED, REMAINS_REJECTED]),
        (RequestedDecisions(approve=("pay", "no")), []),
        (RequestedDecisions(approve=("refund",)), []),
        (RequestedDecisions(), []),
    ],
)
def test_a_name_notes_the_earlier_decisions_that_it_leaves_unchanged(
    requested: RequestedDecisions, notes: list[str]
) -> None:
    assert list(iter_unchanged_decision_notes(requested, CALLS, choose_decisions(requested, CALLS))) == notes


@pytest.mark.parametrize(
    ("previous", "decision", "text"),
    [
        (None, ApprovalDecided("c1", True), "approved refund (c1)"),
        (True, ApprovalDecided("c1", True), "approved refund (c1)"),
        (
            False,
            ApprovalDecided("c1", True, always=True, arguments="{}"),
            "approved refund (c1), with other arguments, always, was rejected",
        ),
        (True, ApprovalDecided("c1", False), "rejected refund (c1), was approved"),
        (None, ApprovalDecided("c1", False, always=True), "rejected refund (c1), always"),
    ],
)
def test_a_decision_is_one_line(previous: bool | None, decision: ApprovalDecided, text: str) -> None:
    assert format_decision(pending_call("c1", approved=previous), decision) == text


def test_the_values_of_all_flags_name_calls() -> None:
    requested = RequestedDecisions(("a",), ("r",), ("e",), ("again",), ("o=x",))
    assert requested.call_values == ("a", "r", "e", "again", "o=x")
    assert RequestedDecisions(always=True, abort=True).call_values == ()
