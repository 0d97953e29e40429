"""The SDK resumes a state that convo imported and exported like the original, request by request."""

import pytest

from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import index, snapshot, story
from tests.runstate.test_import import of_story, refused, written
from tests.runstate.test_sdk_decisions import ends, quiet, wanted

__all__ = ["quiet"]

PARTS = 12
FULL = [pytest.param(part, marks=[] if part == 0 else pytest.mark.full) for part in range(PARTS)]
"""Every twelfth snapshot; the marker `full` adds the others."""


@pytest.mark.parametrize("part", FULL)
async def test_the_sdk_resumes_a_rewritten_state_like_the_original(part: int) -> None:
    for entry in index()[part::PARTS]:
        if refused(entry) or entry["scenario"] == "duplicate_agent_names":
            continue
        state = parse_run_state(snapshot(entry["file"]))
        again = written(of_story(entry, state), state)
        end = await resume_in_sdk(
            story(entry["file"]),
            serialize_run_state(apply_verdict(again, again.pending, ApprovalVerdict(approve=True))),
        )
        assert ends(end) == wanted(entry), entry["file"]
