"""The SDK resumes a state that convo imported and exported like the original, request by request."""

import pytest

from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import index, load_scenario, snapshot
from tests.runstate.test_import import export_state, import_entry, is_refused
from tests.runstate.test_sdk_decisions import expected_outcome, no_logging, run_outcome

__all__ = ["no_logging"]

PARTS = 12
FULL = [pytest.param(part, marks=[] if part == 0 else pytest.mark.full) for part in range(PARTS)]
"""Every twelfth snapshot; the marker `full` adds the others."""


@pytest.mark.parametrize("part", FULL)
async def test_the_sdk_resumes_a_rewritten_state_like_the_original(part: int) -> None:
    for entry in index()[part::PARTS]:
        if is_refused(entry) or entry["scenario"] == "duplicate_agent_names":
            continue
        state = parse_run_state(snapshot(entry["file"]))
        again = export_state(import_entry(entry, state), state)
        end = await resume_in_sdk(
            load_scenario(entry["file"]),
            serialize_run_state(apply_verdict(again, again.pending, ApprovalVerdict(approve=True))),
        )
        assert run_outcome(end) == expected_outcome(entry), entry["file"]
