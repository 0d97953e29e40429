"""Decision records: a verdict is added, two records are merged, and the message of a rejection is found."""

from collections.abc import Mapping
from typing import Any

import pytest

from convo.runstate.format import (
    ApprovalVerdict,
    add_verdict,
    get_rejection_message,
    get_sticky_decision,
    list_decided_call_ids,
    merge_decision_records,
)

Record = Mapping[str, Any]

APPROVE, REJECT = ApprovalVerdict(approve=True), ApprovalVerdict(approve=False)
ALWAYS, NEVER = ApprovalVerdict(approve=True, always=True), ApprovalVerdict(approve=False, always=True)
LATE = ApprovalVerdict(approve=False, message="too late")


@pytest.mark.parametrize(
    ("record", "calls", "verdict", "expected"),
    [
        ({}, ["a", "b", "a"], APPROVE, {"approved": ["a", "b"], "rejected": []}),
        ({}, ["a"], REJECT, {"approved": [], "rejected": ["a"]}),
        ({"approved": ["a", "b"]}, ["a"], REJECT, {"approved": ["b"], "rejected": ["a"]}),
        ({"approved": ["a", "b"], "rejected": []}, ["a", "c"], APPROVE, {"approved": ["b", "a", "c"], "rejected": []}),
        ({"approved": False, "rejected": True}, ["a"], APPROVE, {"approved": ["a"], "rejected": True}),
        ({"approved": False, "rejected": True}, ["a"], REJECT, {"approved": False, "rejected": True}),
        ({"approved": True, "rejected": []}, ["a"], REJECT, {"approved": True, "rejected": ["a"]}),
        ({}, ["a"], LATE, {"approved": [], "rejected": ["a"], "rejection_messages": {"a": "too late"}}),
        (
            {"rejected": ["a", "b"], "rejection_messages": {"a": "no", "b": "never"}},
            ["a"],
            APPROVE,
            {"approved": ["a"], "rejected": ["b"], "rejection_messages": {"b": "never"}},
        ),
        ({"rejected": ["a"], "rejection_messages": {"a": "no"}}, ["a"], REJECT, {"approved": [], "rejected": ["a"]}),
        ({}, ["a"], ALWAYS, {"approved": True, "rejected": []}),
        ({}, ["a"], NEVER, {"approved": False, "rejected": True}),
        ({"approved": ["a", "b"]}, ["a"], NEVER, {"approved": ["b"], "rejected": True}),
        (
            {"rejected": ["a", "b"], "rejection_messages": {"a": "no", "b": "never"}, "sticky_rejection_message": "x"},
            ["a"],
            ALWAYS,
            {"approved": True, "rejected": ["b"], "rejection_messages": {"b": "never"}},
        ),
        ({"sticky_rejection_message": "x"}, ["a"], NEVER, {"approved": False, "rejected": True}),
    ],
)
def test_a_verdict_replaces_earlier_decisions_on_its_calls_only(
    record: Record, calls: list[str], verdict: ApprovalVerdict, expected: Record
) -> None:
    assert add_verdict(record, calls, verdict, None) == expected


def test_a_sticky_verdict_has_the_scope_of_its_tool_and_the_message_for_later_calls() -> None:
    verdict = ApprovalVerdict(approve=False, message="never", always=True)
    assert add_verdict({"x": 1}, ["a"], verdict, "scope") == {
        "x": 1,
        "approved": False,
        "rejected": True,
        "sticky_scope": "scope",
        "sticky_rejection_message": "never",
        "rejection_messages": {"a": "never"},
    }
    assert "sticky_scope" not in add_verdict({}, ["a"], APPROVE, "scope")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"approved": ["a"]}, {"approved": ["b", "a"]}, {"approved": ["a", "b"], "rejected": []}),
        ({"approved": True}, {"approved": ["a"], "rejected": ["b"]}, {"approved": True, "rejected": ["b"]}),
        ({"approved": True, "rejected": ["b"]}, {"rejected": True}, {"approved": [], "rejected": True}),
        ({"approved": ["a"], "rejected": True}, {"approved": True}, {"approved": ["a"], "rejected": True}),
        (
            {"rejected": ["a"], "rejection_messages": {"a": "no"}},
            {"rejected": ["b"], "rejection_messages": {"b": "never"}, "y": 2},
            {"approved": [], "rejected": ["a", "b"], "rejection_messages": {"a": "no", "b": "never"}, "y": 2},
        ),
    ],
)
def test_of_two_records_of_one_tool_a_rejection_of_all_calls_wins(
    first: Record, second: Record, expected: Record
) -> None:
    assert merge_decision_records(first, second) == expected


@pytest.mark.parametrize(
    ("record", "sticky", "messages"),
    [
        ({}, None, (None, None)),
        ({"approved": True, "sticky_rejection_message": "x"}, True, (None, None)),
        ({"rejected": ["a"], "rejection_messages": {"a": "no"}}, None, ("no", None)),
        ({"rejected": ["a"], "rejection_messages": ["no"]}, None, (None, None)),
        ({"rejected": True, "sticky_rejection_message": "never"}, False, ("never", "never")),
        (
            {"rejected": True, "rejection_messages": {"a": "no"}, "sticky_rejection_message": "never"},
            False,
            ("no", "never"),
        ),
        ({"rejected": True}, False, (None, None)),
    ],
)
def test_a_rejection_has_the_message_of_its_call_or_else_of_its_tool(
    record: Record, sticky: bool | None, messages: tuple[str | None, str | None]
) -> None:
    assert get_sticky_decision(record) is sticky
    assert (get_rejection_message(record, "a"), get_rejection_message(record, None)) == messages


@pytest.mark.parametrize(("decided", "ids"), [(["a", 1, "b"], ["a", "b"]), (True, []), (None, []), ("a", [])])
def test_the_ids_of_decided_calls_are_texts(decided: object, ids: list[str]) -> None:
    assert list_decided_call_ids({"approved": decided, "rejected": ["z"]}, "approved") == ids
