"""A state is written under another label: the members that move, the losses, and the SDK resumes it."""

from itertools import pairwise
from typing import Any

import pytest

from convo.errors import InvalidUsage
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict, RelabelLoss
from convo.runstate.reader import build_state_report, parse_run_state
from convo.runstate.relabel import relabel_state
from convo.runstate.run_state import RunState
from convo.runstate.versions import LABELS, NEWEST_VERSION, VERSION_BY_LABEL, VERSIONS
from convo.runstate.writer import serialize_run_state
from tests.runstate import snapshots
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import WITHOUT_NESTED_STATE, entries_of_label, index, load_scenario, snapshot
from tests.runstate.test_sdk_decisions import expected_outcome, no_logging, run_outcome

__all__ = ["no_logging"]

YES = ApprovalVerdict(approve=True)


def relabeled(scenario: str, start: str, end: str) -> tuple[RunState, tuple[RelabelLoss, ...]]:
    return relabel_state(snapshots.newest_state(scenario, start), end)


def unwritable(entry: dict[str, Any], label: str) -> bool:
    """Return whether a label cannot store the pending calls of a snapshot, or its own label did not."""
    number = LABELS.index(label)
    if entry["scenario"] in WITHOUT_NESTED_STATE:
        return "1.0" in (label, entry["schema"])
    return entry["scenario"] == "custom_tool_approval" and number < LABELS.index("1.9")


def test_a_label_that_no_release_wrote_is_refused() -> None:
    for label in ("1.3", "9.9", ""):
        with pytest.raises(InvalidUsage, match=f"^no release wrote the label '{label}'$") as error:
            relabeled("single_approval", "1.21", label)
        assert error.value.hint == f"use one of {', '.join(LABELS)}"
    with pytest.raises(InvalidUsage, match=f"^no release wrote the label '{'9' * 20}'$"):
        relabeled("single_approval", "1.21", "9" * 21)


def test_the_same_label_changes_nothing() -> None:
    for label in ("1.0", "1.21"):
        state = snapshots.newest_state("single_approval", label)
        assert relabel_state(state, label) == (state, ())


@pytest.mark.parametrize("label", LABELS)
def test_every_snapshot_can_be_written_under_every_label_and_means_the_same(label: str) -> None:
    keys = ("pending", "current_agent", "usage", "current_turn", "conversation_id", "previous_response_id")
    for entry in [*index()[::13], *entries_of_label("1.21")[::2]]:
        if unwritable(entry, label):
            continue
        before = parse_run_state(snapshot(entry["file"]))
        after, _ = relabel_state(before, label)
        again = parse_run_state(serialize_run_state(after).encode())
        assert (again.label, again.document) == (label, after.document), entry["file"]
        assert [getattr(build_state_report(again), key) for key in keys] == [
            getattr(build_state_report(before), key) for key in keys
        ], entry["file"]


# -- members that move ---------------------------------------------------------------------------------


def test_decisions_are_moved_to_the_location_of_the_label_and_back() -> None:
    for label in ("1.0", "1.6", "1.13", "1.15", "1.17"):
        newest = snapshots.newest_state("parallel_mixed_decided", "1.21")
        older, _ = relabel_state(newest, label)
        again, _ = relabel_state(older, "1.21")
        assert "function_tool_approvals" not in older.document["context"]
        verdicts = [[(one.call_id, one.approve) for one in each.decisions] for each in (newest, older, again)]
        assert verdicts[0] == verdicts[1] == verdicts[2]


def test_a_decision_in_an_agent_tool_moves_outside_below_1_15_and_back_inside() -> None:
    older, _ = relabeled("nested_decided", "1.21", "1.13")
    call = older.pending[0].id
    assert older.document["context"]["approvals"]["refund_funds"]["rejected"] == [call]
    newer, _ = relabel_state(older, "1.21")
    assert newer.document["context"].get("approvals") == {}
    assert [(one.call_id, one.approve) for one in newer.decisions] == [(call, False)]


def test_a_hosted_decision_moves_under_its_tool_and_back() -> None:
    state = snapshots.newest_state("hosted_mcp_approval", "1.21")
    older, _ = relabel_state(apply_verdict(state, state.pending, YES), "1.13")
    assert older.document["context"]["approvals"] == {
        state.pending[0].call.tool_name: {"approved": [state.pending[0].id], "rejected": []}
    }
    newer, _ = relabel_state(older, "1.21")
    assert [one.approve for one in newer.decisions] == [True]


def test_a_sticky_decision_keeps_its_meaning_under_a_newer_label() -> None:
    newer, _ = relabeled("sticky_approve", "1.13", "1.21")
    assert newer.decisions[0].always


def test_decisions_on_tools_without_a_pending_call_are_reported_as_lost() -> None:
    document = snapshots.document("single_approval", "1.13")
    document["context"]["approvals"] |= {
        "other": {"approved": True, "rejected": []},
        "third": {"approved": ["x"], "rejected": []},
        "fourth": {"approved": False},
    }
    state = RunState(document, snapshots.newest_state("single_approval", "1.13").version)
    newer, losses = relabel_state(parse_run_state(serialize_run_state(state).encode()), "1.21")
    unbound = (
        "no call of this tool is pending, so the decision cannot be bound to it; the next call needs approval again"
    )
    ended = "from 1.15 on a decision needs its call; these calls have ended, so the decision is not needed"
    assert newer.decisions == ()
    assert losses == (
        RelabelLoss("$.context.approvals.other", "a permanent decision on other", unbound),
        RelabelLoss("$.context.approvals.third", "decisions on calls of third", ended),
        RelabelLoss("$.context.approvals.fourth", "a permanent decision on fourth", unbound),
    )


# -- losses --------------------------------------------------------------------------------------------

NESTED_STATE = "$.last_processed_response.functions[0].agent_run_state"


def cannot_store(path: str, description: str, label: str) -> RelabelLoss:
    return RelabelLoss(path, description, f"labels before {label} cannot store it")


def bound_calls(count: int, state: str = "$") -> RelabelLoss:
    reason = "labels before 1.15 approve a call by its id alone, also with other arguments"
    return RelabelLoss(f"{state}.context.tool_invocations", f"{count} bound calls", reason)


OWNERSHIP = cannot_store("$.current_response_generated_item_ownership", "3 entries", "1.17")
FOUR_INDEXES = cannot_store("$.generated_session_item_indexes", "4 entries", "1.13")
TWO_INDEXES = cannot_store("$.generated_session_item_indexes", "2 entries", "1.13")
OF_ONE_AGENT = RelabelLoss(
    "$.context.function_tool_approvals[0].decision",
    "that restart_server belongs to Research Desk",
    "labels before 1.18 have no agent here: the decision applies to every agent with this tool",
)
SCOPE = "25f22aa15f35aa1be77b4194a2e5e3b38a8942aa0fcd02a4da0e5347d38…"
INTERRUPTED = "$.current_step.data.interruptions[0]"
PLANNED = "$.last_processed_response"

LOSSES = [
    (
        "pending_input",
        "1.21",
        "1.13",
        [OWNERSHIP, bound_calls(1), cannot_store("$.pending_input", "2 entries", "1.15")],
    ),
    (
        "parallel_mixed_decided",
        "1.21",
        "1.5",
        [
            OWNERSHIP,
            bound_calls(2),
            FOUR_INDEXES,
            cannot_store("$.context.approvals.restart_order.rejection_messages", "1 entry", "1.6"),
        ],
    ),
    (
        "custom_data",
        "1.21",
        "1.10",
        [
            OWNERSHIP,
            bound_calls(2),
            FOUR_INDEXES,
            cannot_store("$.generated_items[1].custom_data", "2 entries", "1.11"),
            cannot_store("$.session_items[1].custom_data", "2 entries", "1.11"),
        ],
    ),
    (
        "max_turns_none",
        "1.21",
        "1.9",
        [
            OWNERSHIP,
            bound_calls(2),
            FOUR_INDEXES,
            RelabelLoss("$.max_turns", "no limit", "labels before 1.10 need a number, so it becomes 1,000,000"),
        ],
    ),
    (
        "duplicate_agent_names",
        "1.21",
        "1.6",
        [
            OWNERSHIP,
            bound_calls(2),
            FOUR_INDEXES,
            cannot_store("$.current_agent.identity", "Worker#2", "1.9"),
            cannot_store("$.generated_items[].agent.identity", "2 places", "1.9"),
            cannot_store("$.generated_items[1].target_agent.identity", "Worker#2", "1.9"),
            cannot_store("$.session_items[].agent.identity", "2 places", "1.9"),
            cannot_store("$.session_items[1].target_agent.identity", "Worker#2", "1.9"),
            cannot_store(f"{PLANNED}.new_items[0].agent.identity", "Worker#2", "1.9"),
            cannot_store(f"{PLANNED}.interruptions[0].agent.identity", "Worker#2", "1.9"),
            cannot_store(f"{INTERRUPTED}.agent.identity", "Worker#2", "1.9"),
        ],
    ),
    (
        "namespaced_tool",
        "1.21",
        "1.4",
        [
            OWNERSHIP,
            bound_calls(1),
            TWO_INDEXES,
            *(
                cannot_store(f"{place}.{key}", description, "1.5")
                for place in (
                    *("$.generated_items[1]", "$.session_items[1]", f"{PLANNED}.interruptions[0]", INTERRUPTED),
                )
                for key, description in (("tool_lookup_key", "3 entries"), ("tool_namespace", "crm4"))
            ),
            cannot_store(f"{PLANNED}.functions[0].tool.lookupKey", "3 entries", "1.5"),
            cannot_store(f"{PLANNED}.functions[0].tool.namespace", "crm4", "1.5"),
            cannot_store(f"{PLANNED}.functions[0].tool.qualifiedName", "crm4.refund_card7", "1.5"),
        ],
    ),
    (
        "pending_session_write",
        "1.21",
        "1.16",
        [
            cannot_store("$.pending_session_write.response_id", "resp_000", "1.18"),
            cannot_store("$.pending_session_write.has_local_tool_outputs", "True", "1.18"),
            cannot_store("$.pending_session_write", "4 entries", "1.17"),
        ],
    ),
    (
        "nested_agent_tool_approval",
        "1.21",
        "1.6",
        [
            cannot_store(f"{NESTED_STATE}.current_response_generated_item_ownership", "3 entries", "1.17"),
            bound_calls(1, NESTED_STATE),
            bound_calls(1),
            cannot_store(f"{NESTED_STATE}.generated_session_item_indexes", "2 entries", "1.13"),
            cannot_store("$.generated_session_item_indexes", "1 entry", "1.13"),
            cannot_store("$.generated_items[0].tool_origin", "3 entries", "1.9"),
            cannot_store("$.session_items[0].tool_origin", "3 entries", "1.9"),
            cannot_store(f"{PLANNED}.new_items[0].tool_origin", "3 entries", "1.9"),
        ],
    ),
    ("local_mcp_approval", "1.21", "1.17", [cannot_store(f"{PLANNED}.mcp_tool_bindings", "1 entry", "1.18")]),
    (
        "sticky_approve",
        "1.13",
        "1.21",
        [
            RelabelLoss(
                "$.context.approvals.refund_funds",
                "a decision on refund_funds for every agent",
                "from 1.18 on it applies to one agent, Ops; calls of other agents need approval",
            )
        ],
    ),
    ("sticky_approve", "1.21", "1.17", [OF_ONE_AGENT]),
    (
        "sticky_approve",
        "1.21",
        "1.13",
        [
            OF_ONE_AGENT,
            OWNERSHIP,
            bound_calls(1),
            cannot_store("$.context.approvals.restart_server.sticky_scope", SCOPE, "1.15"),
        ],
    ),
    ("parallel_mixed_decided", "1.13", "1.21", []),
]


@pytest.mark.parametrize(("scenario", "start", "end", "losses"), LOSSES)
def test_the_losses_of_another_label_are_reported_with_their_paths_and_reasons(
    scenario: str, start: str, end: str, losses: list[RelabelLoss]
) -> None:
    assert list(relabeled(scenario, start, end)[1]) == losses


def test_a_newer_label_loses_only_decisions_that_cannot_be_bound() -> None:
    for entry in index():
        if entry["scenario"] in WITHOUT_NESTED_STATE and entry["schema"] == "1.0":
            continue
        _, losses = relabel_state(parse_run_state(snapshot(entry["file"])), NEWEST_VERSION.label)
        assert all(loss.path.startswith("$.context.approvals.") for loss in losses), entry["file"]


def test_a_pause_that_1_0_did_not_store_cannot_be_relabelled() -> None:
    with pytest.raises(InvalidUsage, match="not the agent of a nested state"):
        relabeled("nested_agent_tool_approval", "1.0", "1.21")


def test_a_call_that_older_readers_would_drop_is_refused_for_them() -> None:
    """Custom tools exist since 1.9."""
    with pytest.raises(
        InvalidUsage, match=r"^the pending calls of this 1\.9 state cannot be written as 1\.6: "
    ) as error:
        relabeled("custom_tool_approval", "1.9", "1.6")
    assert error.value.hint == "choose a label closer to 1.9"


@pytest.mark.parametrize("label", ["1.13", "1.0"])
def test_below_1_15_added_input_and_the_items_before_it_become_the_original_input(label: str) -> None:
    document = snapshots.document("single_approval", "1.21")
    call, approval = document["generated_items"]
    added = {"role": "user", "content": "Another thing."}
    output = {"type": "function_call_output", "call_id": call["raw_item"]["call_id"], "output": "x"}
    output_item = {"type": "tool_call_output_item", "raw_item": output, "agent": call["agent"], "output": "x"}
    input_item = {"type": "input_item", "raw_item": added, "agent": call["agent"]}
    document["generated_items"] = [call, output_item, approval, input_item, call]
    document["nested_history_owned_session_item_refs"] = [{"index": 0}]
    older, _ = relabel_state(RunState(document, NEWEST_VERSION), label)
    first = document["original_input"]
    assert older.document["original_input"] == [
        *([{"role": "user", "content": first}] if isinstance(first, str) else first),
        call["raw_item"],
        output,
        added,
    ]
    assert [item["raw_item"] for item in older.document["generated_items"]] == [call["raw_item"]]
    assert not {"generated_session_item_indexes", "nested_history_owned_session_item_refs"} & older.document.keys()


def test_the_reasons_of_rejections_are_lost_below_1_6() -> None:
    document = snapshots.document("single_approval", "1.6")
    document["context"]["approvals"] = {
        "refund": {
            "approved": False,
            "rejected": True,
            "rejection_messages": {"call_old": "no"},
            "sticky_rejection_message": "never",
        }
    }
    older, losses = relabel_state(RunState(document, VERSION_BY_LABEL["1.6"]), "1.5")
    assert older.document["context"]["approvals"] == {"refund": {"approved": False, "rejected": True}}
    assert losses == (
        cannot_store("$.context.approvals.refund.rejection_messages", "1 entry", "1.6"),
        cannot_store("$.context.approvals.refund.sticky_rejection_message", "never", "1.6"),
    )


def test_a_pending_write_is_not_released_by_an_older_label() -> None:
    document = snapshots.document("pending_session_write", "1.21")
    document["pending_session_write"] |= {"held": True, "before": None, "current_response": {"turn": 1, "start": 0}}
    state = RunState(document, NEWEST_VERSION)
    older, losses = relabel_state(state, "1.18")
    assert "pending_session_write" not in older.document
    delayed = "labels before 1.21 would write them before the guardrails pass"
    assert losses == (RelabelLoss("$.pending_session_write", "1 delayed item", delayed),)


# -- the SDK resumes the relabelled state --------------------------------------------------------------

EXPLAINED = {
    "pending_input": "pending_input",
    "guardrail_results": "current_response_generated_item_ownership",
    "local_mcp_approval": "mcp_tool_bindings",
    "duplicate_agent_names": "identity",
}
"""Scenarios that end differently under an older label, and a part of the path of the loss that explains it."""


async def check(entry: dict[str, Any], label: str) -> None:
    """Check that the SDK ends as it does from the original state, or that a loss explains the difference."""
    state, losses = relabel_state(parse_run_state(snapshot(entry["file"])), label)
    end = await resume_in_sdk(
        load_scenario(entry["file"]), serialize_run_state(apply_verdict(state, state.pending, YES))
    )
    is_same = run_outcome(end) == expected_outcome(entry)
    explanation = EXPLAINED.get(entry["scenario"], "nothing")
    assert is_same or any(explanation in loss.path for loss in losses), entry["file"]


@pytest.mark.parametrize("label", ["1.0", "1.13", "1.17"])
async def test_the_sdk_resumes_older_labels_unless_a_loss_is_reported(label: str) -> None:
    for entry in entries_of_label("1.21"):
        if not unwritable(entry, label):
            await check(entry, label)


async def test_the_sdk_resumes_the_newest_label_of_any_state() -> None:
    for entry in [*entries_of_label("1.2")[::3], *entries_of_label("1.13")[::4], *entries_of_label("1.17")[::4]]:
        await check(entry, "1.21")


@pytest.mark.full
@pytest.mark.parametrize("label", LABELS)
async def test_the_sdk_resumes_every_third_snapshot_under_every_label(label: str) -> None:
    for entry in index()[LABELS.index(label) % 3 :: 3]:
        if not unwritable(entry, label):
            await check(entry, label)


def test_each_label_names_the_first_release_that_wrote_it() -> None:
    """The corpus has states of real releases: all before that release have an older label, all from it on this one."""
    wrote = {
        version.label: [numbers(entry["sdk"]) for entry in entries_of_label(version.label)] for version in VERSIONS
    }
    for older, newer in pairwise(VERSIONS):
        assert max(wrote[older.label]) < numbers(newer.release) <= min(wrote[newer.label]), newer.label


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
