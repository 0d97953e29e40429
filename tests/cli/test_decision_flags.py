"""The decisions that flags make: precedence, conflicts, calls with an unknown outcome, and the notes about them."""

import sys
from pathlib import Path

import pytest

from convo.cli.decision_flags import (
    CallDecision,
    RequestedDecisions,
    build_decision_events,
    choose_decisions,
    format_decision,
    format_unchanged_decision,
    iter_unchanged_decision_notes,
    rank_match,
    select_best_matches,
)
from convo.errors import ConvoError, InvalidUsage, NotFound
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
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


def test_an_id_is_more_exact_than_a_tool_and_a_tool_than_all() -> None:
    assert [rank_match(selector, "c1") for selector in ("c1", "refund", "all")] == [2, 1, 0]
    assert rank_match("all", "all") == 2


def test_the_most_exact_match_of_a_call_wins_in_any_order() -> None:
    matches = [("c1", 1, "tool"), ("c1", 2, "id"), ("c1", 0, "all"), ("c1", 2, "id"), ("c2", 0, "all")]
    assert select_best_matches(matches) == {"c1": "id", "c2": "all"}
    assert select_best_matches(reversed(matches)) == {"c1": "id", "c2": "all"}


def test_two_equally_exact_matches_that_differ_are_refused() -> None:
    with pytest.raises(InvalidUsage) as excinfo:
        select_best_matches([("c1", 1, "yes"), ("c1", 1, "no")])
    assert (excinfo.value.message, excinfo.value.hint) == (
        "two flags give different decisions on c1",
        "name it in one flag only",
    )


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
        (RequestedDecisions(approve=("c1", "c1")), {"c1": APPROVE}),
    ],
)
def test_flags_select_calls(requested: RequestedDecisions, decisions: dict[str, CallDecision]) -> None:
    assert choose_decisions(requested, CALLS) == decisions


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
            "two flags give different decisions on c1",
            "name it in one flag only",
        ),
        (
            RequestedDecisions(reject=("c1=a", "c1=b")),
            InvalidUsage,
            "two flags give different decisions on c1",
            "name it in one flag only",
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
    assert choose_decisions(requested, calls) == decisions


def test_an_alternative_is_checked_against_the_undecided_calls_only() -> None:
    decided = [pending_call("c1", approved=True), pending_call("c2")]
    assert choose_decisions(RequestedDecisions(reject=("refund",)), decided) == {"c2": REJECT}
    assert choose_decisions(RequestedDecisions(reject=("refund",)), decided[:1]) == {}


def test_the_events_are_in_the_order_of_the_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "editor.py").write_text("import sys; open(sys.argv[1], 'w').write('{\"n\": 2}')")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")
    requested = RequestedDecisions(
        approve=("c2", "no"), edit=("c1",), reject=("m1=later", "yes"), output=("u1=sent",), always=True
    )
    assert build_decision_events(requested, CALLS) == [
        ApprovalDecided("c1", True, None, always=True, arguments='{"n": 2}'),
        ApprovalDecided("c2", True, None, always=True),
        ApprovalDecided("m1", False, "later", always=True),
        ToolOutputSupplied("u1", "sent"),
        ApprovalDecided("yes", False, None, always=True),
        ApprovalDecided("no", True, None, always=True),
    ]


@pytest.mark.parametrize(
    ("requested", "event"),
    [
        (RequestedDecisions(rerun=("u1",), always=True), ApprovalDecided("u1", True)),
        (RequestedDecisions(reject=("u1",), always=True), ApprovalDecided("u1", False)),
        (RequestedDecisions(approve=("c1",)), ApprovalDecided("c1", True)),
    ],
)
def test_a_decision_on_a_call_with_an_unknown_outcome_is_for_that_call_only(
    requested: RequestedDecisions, event: ApprovalDecided
) -> None:
    assert build_decision_events(requested, CALLS) == [event]


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
    assert list(iter_unchanged_decision_notes(requested, CALLS)) == notes


@pytest.mark.parametrize(
    ("approve", "previous", "is_edited", "always", "text"),
    [
        (True, None, False, False, "approved refund (c1)"),
        (True, True, False, False, "approved refund (c1)"),
        (True, False, True, True, "approved refund (c1), with other arguments, always, was rejected"),
        (False, True, False, False, "rejected refund (c1), was approved"),
        (False, None, False, True, "rejected refund (c1), always"),
    ],
)
def test_a_decision_is_one_line(approve: bool, previous: bool | None, is_edited: bool, always: bool, text: str) -> None:
    assert (
        format_decision("refund", "c1", approve=approve, previous=previous, is_edited=is_edited, always=always) == text
    )
    assert format_decision("refund", "c1", approve=True, previous=None) == "approved refund (c1)"


def test_an_unchanged_decision_names_the_flag_that_changes_it() -> None:
    assert format_unchanged_decision("pay", "yes", previous=True) == REMAINS_APPROVED
    assert format_unchanged_decision("pay", "no", previous=False) == REMAINS_REJECTED


def test_the_values_of_all_flags_name_calls() -> None:
    requested = RequestedDecisions(("a",), ("r",), ("e",), ("again",), ("o=x",))
    assert (requested.call_values, requested.has_any) == (("a", "r", "e", "again", "o=x"), True)
    assert (RequestedDecisions(always=True, abort=True).call_values, RequestedDecisions(abort=True).has_any) == (
        (),
        False,
    )
