"""Every snapshot of a release is parsed, has the meaning that its index entry says, and round-trips unchanged."""

import json
from typing import Any

import pytest

from convo.report import to_json
from convo.runstate.reader import build_state_report, parse_run_state
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
        summary = to_json(build_state_report(parse_run_state(snapshot(entry["file"]))))
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
    summary = build_state_report(newest_state("sticky_approve", label))
    assert [one.is_bound for one in summary.decisions] == [authenticated]


def test_a_decision_on_a_finished_call_is_a_past_one() -> None:
    summary = build_state_report(newest_state("second_pause", "1.6"))
    assert (summary.decisions, [one.decision for one in summary.past_decisions]) == ([], ["approve"])


def test_every_label_has_one_line_of_description() -> None:
    assert [(version.label, version.release, version.summary) for version in VERSIONS] == [
        ("1.0", "0.8.0", "a run, its items, and its decisions by tool and call"),
        ("1.1", "0.9.1", "an agent used as a tool has its own paused run; readers accept older labels from here on"),
        ("1.2", "0.9.2", "whether reasoning items are sent again with their ids"),
        ("1.4", "0.10.2", "a model response has the id of its request"),
        ("1.5", "0.11.0", "tools are identified by namespace, and deferred tools are marked"),
        ("1.6", "0.12.1", "a rejection has a message for the model"),
        (
            *("1.9", "0.14.0"),
            "agents with the same name have identities; calls have the origin of their tool; "
            "custom tools and sandboxes",
        ),
        ("1.10", "0.16.0", "a run can have no limit of turns"),
        ("1.11", "0.17.6", "a tool's output can have data that the model does not receive"),
        ("1.12", "0.18.1", "usage has the tokens written to the prompt cache"),
        ("1.13", "0.19.0", "items that a nested history repeats have digests; programs can call tools"),
        (
            *("1.15", "0.20.0"),
            "a decision is bound to its call by a fingerprint; input can be pending; "
            "hosted tools have their own decisions",
        ),
        ("1.16", "0.21.1", "approving one call overrides the permanent rejection of its tool; no new key"),
        ("1.17", "0.22.1", "pending session writes; the items of the current response; runs that cannot be resumed"),
        (
            "1.18",
            "0.23.1",
            "decisions on functions belong to an agent; calls to local MCP servers are bound to the server",
        ),
        (
            *("1.21", "0.24.0"),
            "session writes can be delayed until guardrails passed; "
            "output guardrails have their response (1.19 to 1.21)",
        ),
    ]


def test_no_snapshot_has_a_key_that_is_newer_than_its_label() -> None:
    """The members that each version lists as new agree with the files of the releases."""
    first = {label: position for position, label in enumerate(LABELS)}
    for entry in index():
        document = json.loads(snapshot(entry["file"]))
        early_keys = [v.label for v in VERSIONS[first[entry["schema"]] + 1 :] if any(v.iter_own_members(document))]
        assert early_keys == [], entry["file"]
