"""Every snapshot of a release is parsed, has the meaning that its index entry says, and round-trips unchanged."""

import json
from typing import Any

import pytest

from convo.runstate.reader import parse_run_state, run_state_summary_to_json
from convo.runstate.versions import LABELS, VERSIONS
from convo.runstate.writer import serialize_run_state
from tests.runstate.snapshots import entries_of_label, index, newest_state, snapshot

INDEX_KEYS = (
    *("pending", "conversation_id", "previous_response_id", "auto_previous_response_id"),
    *("model_responses", "usage", "current_turn", "max_turns"),
)


def expected_summary(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the index entry of a snapshot in the terms of `convo inspect --json`."""
    summary = {key: entry[key] for key in INDEX_KEYS}
    summary["pending"] = [{key: one[key] for key in one if key != "raw_type"} for one in entry["pending"]]
    return {**summary, "schema_version": entry["schema"], "current_agent": entry["current_agent"]["name"]}


def expected_decisions(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the decisions of a snapshot; a message that its label cannot store is None."""
    return [
        {
            "call_id": one["call_id"],
            "decision": one["decision"],
            "always": one.get("always", False),
            "message": one.get("message") if one.get("message_stored") else None,
        }
        for one in entry["decisions"]
    ]


def test_there_are_831_snapshots_of_16_labels() -> None:
    assert (len(index()), {entry["schema"] for entry in index()}) == (831, set(LABELS))


@pytest.mark.parametrize("label", LABELS)
def test_every_snapshot_of_a_label_means_the_same_as_its_index_entry(label: str) -> None:
    for entry in entries_of_label(label):
        summary = run_state_summary_to_json(parse_run_state(snapshot(entry["file"])))
        decisions = [
            {key: one[key] for key in ("call_id", "decision", "always", "message")} for one in summary["decisions"]
        ]
        assert {key: summary[key] for key in expected_summary(entry)} == expected_summary(entry), entry["file"]
        assert decisions == expected_decisions(entry), entry["file"]


@pytest.mark.parametrize("label", LABELS)
def test_every_snapshot_of_a_label_round_trips(label: str) -> None:
    for entry in entries_of_label(label):
        data = snapshot(entry["file"])
        serialized = serialize_run_state(parse_run_state(data)).encode()
        again = serialize_run_state(parse_run_state(serialized)).encode()
        assert json.loads(serialized) == json.loads(data), entry["file"]
        assert again == serialized, entry["file"]


@pytest.mark.parametrize(
    ("label", "authenticated"),
    [("1.0", False), ("1.6", False), ("1.13", False), ("1.15", True), ("1.18", True), ("1.21", True)],
)
def test_decisions_are_authenticated_from_1_15_on_and_not_before(label: str, authenticated: bool) -> None:
    summary = run_state_summary_to_json(newest_state("sticky_approve", label))
    assert [one["authenticated"] for one in summary["decisions"]] == [authenticated]


def test_a_decision_on_a_finished_call_is_a_past_one() -> None:
    summary = run_state_summary_to_json(newest_state("second_pause", "1.6"))
    assert (summary["decisions"], [one["decision"] for one in summary["past_decisions"]]) == ([], ["approve"])


def test_every_label_has_one_line_of_description() -> None:
    assert len({version.summary for version in VERSIONS}) == len(VERSIONS)
    assert all(version.summary and "\n" not in version.summary for version in VERSIONS)


def test_no_snapshot_has_a_key_that_is_newer_than_its_label() -> None:
    """The members that each version lists as new agree with the files of the releases."""
    first = {label: position for position, label in enumerate(LABELS)}
    for entry in index():
        document = json.loads(snapshot(entry["file"]))
        early_keys = [v.label for v in VERSIONS[first[entry["schema"]] + 1 :] if any(v.iter_own_members(document))]
        assert early_keys == [], entry["file"]
