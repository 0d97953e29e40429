"""A decision changes the document where the readers of its label expect it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from convo.errors import InvalidRunState, InvalidUsage
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import build_state_report, parse_run_state, run_state_from_json
from convo.runstate.run_state import PendingCall, RunState
from convo.runstate.writer import serialize_run_state
from tests.runstate import snapshots
from tests.runstate.snapshots import document, entries_of_label, index, snapshot

YES, NO = ApprovalVerdict(approve=True), ApprovalVerdict(approve=False)


def state(scenario: str = "single_approval", label: str = "1.21") -> RunState:
    return snapshots.newest_state(scenario, label)


def changes(before: Any, after: Any, path: str = "$") -> Iterator[str]:
    """Yield the paths at which two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from changes(before.get(key), after.get(key), f"{path}.{key}")
    elif before != after:
        yield path


def one(found: RunState) -> PendingCall:
    return found.pending[0]


def approvals(found: RunState) -> Any:
    return found.document["context"]["approvals"]


def owned(found: RunState) -> Any:
    return found.document["context"]["function_tool_approvals"]


# -- where a decision is stored, by label --------------------------------------------------------------


@pytest.mark.parametrize("label", ["1.0", "1.6", "1.13"])
def test_up_to_1_14_an_approval_is_stored_below_its_tool_by_call(label: str) -> None:
    before = state(label=label)
    call = one(before)
    after = apply_verdict(before, [call], YES)
    assert approvals(after) == {call.call.tool_name: {"approved": [call.id], "rejected": []}}
    assert set(changes(before.document, after.document)) == {f"$.context.approvals.{call.call.tool_name}"}


def test_from_1_15_on_the_ledger_binds_it_with_the_digests_of_the_release() -> None:
    before = state(label="1.15")
    ledger = before.document["context"]["tool_invocations"]
    bare = run_state_from_json({**before.document, "context": {**before.document["context"], "tool_invocations": {}}})
    after = apply_verdict(bare, bare.pending, YES)
    assert after.document["context"]["tool_invocations"] == ledger
    assert approvals(after)[one(before).call.tool_name]["approved"] == [one(before).id]


@pytest.mark.parametrize("label", ["1.18", "1.21"])
def test_from_1_18_on_it_belongs_to_the_agent(label: str) -> None:
    before = state(label=label)
    after = apply_verdict(before, before.pending, YES)
    assert owned(after) == [
        {
            "agent": before.document["current_agent"],
            "tool_key": one(before).call.tool_name,
            "decision": {"approved": [one(before).id], "rejected": []},
        }
    ]
    assert set(changes(before.document, after.document)) == {"$.context.function_tool_approvals"}


def test_calls_that_are_no_functions_stay_below_their_tool() -> None:
    for scenario, tool in (("shell_approval", "shell"), ("apply_patch_approval", "apply_patch")):
        after = apply_verdict(state(scenario), state(scenario).pending, YES)
        assert set(approvals(after)) == {tool}


def test_a_hosted_tool_has_its_own_record_and_one_by_name() -> None:
    before = state("hosted_mcp_approval")
    call = one(before).call
    after = apply_verdict(before, before.pending, YES)
    label, tool = call.raw["server_label"], call.tool_name
    assert [record["identity"] for record in after.document["context"]["hosted_mcp_approvals"]] == [
        {"type": "server_tool", "server_label": label, "tool_name": tool},
        {"type": "query", "tool_name": tool, "request_id": one(before).id},
    ]
    assert len(after.decisions) == 1


def test_a_namespaced_tool_is_named_with_its_namespace() -> None:
    after = apply_verdict(state("namespaced_tool"), state("namespaced_tool").pending, YES)
    assert owned(after)[0]["tool_key"] == "crm4.refund_card7"


@pytest.mark.parametrize(("label", "count"), [("1.13", 2), ("1.21", 1)])
def test_a_call_of_an_agent_tool_is_decided_where_its_readers_look(label: str, count: int) -> None:
    """Before 1.15, old releases read the outer state and new ones the inner state; from 1.15 on, all read the inner."""
    after = apply_verdict(
        state("nested_agent_tool_approval", label), state("nested_agent_tool_approval", label).pending, YES
    )
    assert len(after.records) == count
    assert {(found.approve, found.agent) for found in after.decisions} == {(True, "Inner")}
    assert after.list_undecided() == ()


def test_every_ledger_entry_of_every_release_is_reproduced_exactly() -> None:
    """The entries of pending calls are computed again and compared with those of the document."""
    compared_count = 0
    for entry in index():
        found = parse_run_state(snapshot(entry["file"]))
        if found.is_bound and found.pending:
            compared_count += sum(_same(found, call) for call in found.pending)
    assert compared_count == 208


def _same(found: RunState, call: PendingCall) -> bool:
    document = found.document
    for step in call.state_path:
        document = document[step]
    ledger = document["context"]["tool_invocations"]
    binding = call.call.binding()
    assert binding is not None
    entry = ledger[call.id]
    assert (entry["approval_scope"], entry["fingerprint"]) == (binding.scope, binding.fingerprint)
    return True


# -- the content of a decision -------------------------------------------------------------------------


def test_a_rejection_replaces_an_approval_and_the_other_way_round() -> None:
    before = state()
    twice = apply_verdict(apply_verdict(before, before.pending, YES), before.pending, NO)
    assert owned(twice)[0]["decision"] == {"approved": [], "rejected": [one(before).id]}
    again = apply_verdict(twice, before.pending, YES)
    assert owned(again)[0]["decision"] == {"approved": [one(before).id], "rejected": []}


def test_a_reason_is_stored_by_call_and_removed_with_a_new_decision() -> None:
    before = state()
    reason = apply_verdict(before, before.pending, ApprovalVerdict(approve=False, message="not today"))
    assert owned(reason)[0]["decision"]["rejection_messages"] == {one(before).id: "not today"}
    assert "rejection_messages" not in owned(apply_verdict(reason, before.pending, YES))[0]["decision"]


@pytest.mark.parametrize("label", ["1.0", "1.5"])
def test_a_label_without_a_field_for_a_reason_is_reported(label: str) -> None:
    with pytest.raises(InvalidUsage) as error:
        apply_verdict(state(label=label), state(label=label).pending, ApprovalVerdict(approve=False, message="no"))
    assert error.value.message == f"a state with label {label} cannot contain the reason of a rejection"
    assert error.value.hint == "remove the reason, or write a newer label with --schema 1.6"


@pytest.mark.parametrize(("label", "has_scope"), [("1.0", False), ("1.13", False), ("1.15", True), ("1.21", True)])
def test_a_sticky_decision_is_bound_to_its_tool_where_the_label_supports_it(label: str, has_scope: bool) -> None:
    before = state(label=label)
    after = apply_verdict(before, before.pending, ApprovalVerdict(approve=True, always=True))
    record = after.records[0][1].record
    assert (record["approved"], record["rejected"], "sticky_scope" in record) == (True, [], has_scope)
    assert [(found.always, found.call_id) for found in after.decisions] == [(True, one(before).id)]


def test_a_sticky_rejection_keeps_its_reason_for_later_calls() -> None:
    before = state()
    after = apply_verdict(before, before.pending, ApprovalVerdict(approve=False, message="never", always=True))
    record = owned(after)[0]["decision"]
    assert (record["approved"], record["rejected"], record["sticky_rejection_message"]) == (False, True, "never")
    assert record["rejection_messages"] == {one(before).id: "never"}


def test_a_sticky_rejection_that_releases_before_0_21_1_would_ignore_is_reported() -> None:
    verdict = ApprovalVerdict(approve=False, always=True)
    for label, is_refused in (("1.13", True), ("1.15", True), ("1.16", False), ("1.21", False)):
        before = state(label=label)
        against = apply_verdict(before, before.pending, verdict)
        if is_refused:
            with pytest.raises(InvalidUsage) as error:
                apply_verdict(against, before.pending, YES)
            tool, call_id = one(before).call.tool_name, one(before).id
            assert error.value.message == (
                f"{tool} is rejected always, and for readers of {label} that overrides {call_id}"
            )
            assert error.value.hint == "approve it with --always, or write a newer label with --schema 1.16"
            assert (
                apply_verdict(against, before.pending, ApprovalVerdict(approve=True, always=True)).decisions[0].approve
            )
        else:
            assert apply_verdict(against, before.pending, YES).decisions[0].approve


def test_decisions_are_read_back_unchanged() -> None:
    for entry in index():
        found = parse_run_state(snapshot(entry["file"]))
        after = parse_run_state(serialize_run_state(apply_verdict(found, found.pending, YES)).encode())
        decisions = build_state_report(after).decisions
        assert {call.call_id for call in decisions} >= {call.id for call in found.pending}, entry["file"]
        assert all(call.decision == "approve" for call in decisions if call.call_id), entry["file"]
        assert after.label == found.label


def test_only_decisions_and_the_ledger_change() -> None:
    keys = ("approvals", "tool_invocations", "hosted_mcp_approvals", "function_tool_approvals")
    for entry in entries_of_label("1.17"):
        found = parse_run_state(snapshot(entry["file"]))
        after = apply_verdict(found, found.pending, NO)
        assert all(any(f".context.{key}" in path for key in keys) for path in changes_deep(found, after)), entry["file"]


def changes_deep(before: RunState, after: RunState) -> list[str]:
    """Like `changes`, but compare lists element by element."""
    spread = [json.loads(json.dumps(one.document), object_hook=dict) for one in (before, after)]
    return list(changes(*map(_objects, spread)))


def _objects(value: Any) -> Any:
    if isinstance(value, list):
        return {str(index): _objects(one) for index, one in enumerate(value)}
    return {key: _objects(one) for key, one in value.items()} if isinstance(value, dict) else value


# -- selection of calls --------------------------------------------------------------------------------


def test_a_call_that_cannot_be_bound_is_not_decided() -> None:
    """A lone surrogate in the arguments is valid JSON and has no digest."""
    broken = document("single_approval", "1.21")
    broken["context"]["tool_invocations"] = {}
    for place in (
        broken["current_step"]["data"]["interruptions"][0]["raw_item"],
        broken["last_processed_response"]["functions"][0]["tool_call"],
    ):
        place["arguments"] = b'{"a": "\\ud800"}'.decode("unicode_escape")
    found = run_state_from_json(broken)
    with pytest.raises(InvalidRunState) as error:
        apply_verdict(found, found.pending, YES)
    assert error.value.message == (
        "$.current_step.data.interruptions[0].raw_item cannot be approved or rejected: "
        "its arguments contain a lone surrogate (half a character)"
    )


def test_a_hosted_call_without_its_server_is_approved_once_and_not_always() -> None:
    broken = document("hosted_mcp_approval", "1.13")
    del broken["current_step"]["data"]["interruptions"][0]["raw_item"]["server_label"]
    found = run_state_from_json(broken)
    assert apply_verdict(found, found.pending, YES).list_undecided() == ()
    with pytest.raises(InvalidUsage) as error:
        apply_verdict(found, found.pending, ApprovalVerdict(approve=True, always=True))
    message = f"{one(found).id} does not name its tool and server, so a decision cannot be permanent"
    assert error.value.message == message


def test_a_handwritten_state_of_ten_keys_is_read_and_decided() -> None:
    keys = (
        *("$schemaVersion", "current_turn", "current_agent", "original_input", "model_responses", "context"),
        *("max_turns", "generated_items", "current_step", "last_processed_response"),
    )
    for label in ("1.0", "1.21"):
        short = run_state_from_json(
            {key: value for key, value in document("single_approval", label).items() if key in keys}
        )
        assert apply_verdict(short, short.pending, YES).list_undecided() == ()
