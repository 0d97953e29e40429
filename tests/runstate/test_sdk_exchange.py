"""Convo pauses and the SDK finishes, and the reverse: the same result as if one of them had run everything.

Request by request, for each owner of the history: parallel calls, handoffs, tools in namespaces,
deferred tools, hosted tools; approved, rejected with a reason, and each as a sticky decision.
"""

from typing import Any

import agents as sdk
import pytest
from agents import RunConfig, Runner, RunState, SQLiteSession

from convo.history.items import Item
from convo.runs.machine import step_run
from convo.runs.state import ApprovalDecided, Run, create_run
from convo.runstate.approvals import apply_verdict
from convo.runstate.export import export_run_state
from convo.runstate.format import ApprovalVerdict, iter_states
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state, run_state_summary_to_json
from convo.runstate.relabel import relabel_state
from convo.runstate.run_items import ModelCall, RunTranscript
from convo.runstate.writer import serialize_run_state
from tests.combinations import rotated_combinations
from tests.runstate import story_runs
from tests.runstate.sdk import Script, graph
from tests.runstate.story_runs import Model, StoryRun, story_owner
from tests.runstate.test_import import meant
from tests.runstate.test_sdk_decisions import quiet
from tests.runstate.test_sdk_pause_and_finish import STORIES as TOLD
from tests.runstate.test_sdk_pause_and_finish import VERDICTS, call, spec, tool
from tests.runstate.test_sdk_pause_and_finish import Run as SdkRun

__all__ = ["quiet"]

Spec = dict[str, Any]

OVER: Spec = spec(
    "ba",
    {"a": {"handoffs": ["b"], "tools": [tool("drop"), tool("auto", asks=False)]}, "b": {"tools": [tool("drop")]}},
    [
        [call(0, "auto", {}), call(1, "drop", {"id": 1}), call(2, "transfer_to_b", {})],
        [call(3, "drop", {"id": 2})],
    ],
)
THOUGHTFUL: Spec = spec(
    "a",
    {"a": {"tools": [tool("drop"), tool("auto", asks=False)]}},
    [
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
            call(0, "auto", {}),
        ],
        [
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_9",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "one moment", "annotations": []}],
            },
            call(1, "drop", {"id": 1}),
        ],
    ],
)
STORIES = {**TOLD, "a handoff beside a call that waits": OVER, "thoughts and words beside calls": THOUGHTFUL}

ASKED = "an approved agent that pauses inside"
INSIDE = {
    ASKED,
    "agents used as tools in one another",
    "two agents used as tools beside calls of one's own",
}
"""Stories whose pending calls are in an agent used as a tool."""

OURS = [name for name in STORIES if name not in INSIDE]


def by_convo(run: Run, verdict: ApprovalVerdict) -> Run:
    for one in run.pending:
        if one in run.pending:
            run, _ = step_run(run, ApprovalDecided(one.id, verdict.approve, verdict.message, verdict.always))
    return run


def paused(spec: Spec) -> StoryRun:
    """Run a story with convo up to its first pause."""
    server = spec["run"].get("conversation_id") or spec["run"].get("auto_previous_response_id")
    begun: list[Item] = [{"role": "user", "content": spec["input"]}]
    story = StoryRun(
        create_run(story_runs.story_graph({"spec": spec})), begun, Model(spec["script"]), 0 if server else None
    )
    story.start()
    return story


def account(spec: Spec, story: StoryRun, **more: Any) -> RunTranscript:
    strategy, handle = story_owner(spec, story.model.asked)
    return RunTranscript([{"role": "user", "content": spec["input"]}], story.turns, strategy, handle, **more)


class Sdk:
    """The SDK with the agents, tools and script of a story."""

    def __init__(self, spec: Spec, asked: int = 0) -> None:
        self.spec, self.model = spec, Script(spec["script"], asked)
        self.root = graph({"spec": spec}, self.model)
        self.settings = RunConfig(tracing_disabled=True)
        if spec.get("deferred"):
            self.root.tools[0].defer_loading = True  # type: ignore[union-attr]
            self.root.tools.append(sdk.ToolSearchTool())

    async def pause(self) -> str:
        session = SQLiteSession("s") if self.spec.get("session") else None
        result: Any = await Runner.run(
            self.root, self.spec["input"], run_config=self.settings, session=session, **self.spec["run"]
        )
        assert result.interruptions
        return str(result.to_state().to_string())

    async def finish(self, words: str, verdict: ApprovalVerdict) -> tuple[Any, ...]:
        """Resume the serialized state to the end with one verdict at every pause; return output and requests."""
        result: Any = await Runner.run(
            self.root, await RunState.from_string(self.root, words), run_config=self.settings
        )
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                if verdict.approve:
                    state.approve(item, always_approve=verdict.always)
                else:
                    state.reject(item, always_reject=verdict.always, rejection_message=verdict.message)
            result = await Runner.run(self.root, state, run_config=self.settings)
        return result.final_output, self.model.requests


@pytest.mark.parametrize(("story", "verdict"), rotated_combinations(OURS, VERDICTS))
async def test_the_sdk_finishes_what_convo_paused_as_if_it_had_paused_itself(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    mine = paused(spec)
    words = serialize_run_state(export_run_state(by_convo(mine.run, said), account(spec, mine)))
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert await Sdk(spec, mine.model.asked).finish(words, said) == (output, requests[mine.model.asked :])


@pytest.mark.parametrize(("story", "verdict"), rotated_combinations(OURS, VERDICTS))
async def test_convo_finishes_what_the_sdk_paused_as_if_the_sdk_had_resumed_it(story: str, verdict: str) -> None:
    """Every request has the items of the SDK's request, with the outputs in the order of their calls."""
    spec, said = STORIES[story], VERDICTS[verdict]
    mine, _ = await resumed(spec)
    while mine.run.pending:
        mine.run = by_convo(mine.run, said)
        mine.resume()
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    theirs = requests[len(requests) - len(mine.model.requests) :]
    assert [meant(one) for one in mine.model.requests] == [meant(one["input"]) for one in theirs]
    assert sorted(str(mine.run.output)) == sorted(output)


@pytest.mark.parametrize("story", OURS)
async def test_a_run_that_changes_sides_at_every_pause_ends_the_same(story: str) -> None:
    """The SDK pauses; convo resumes, and pauses again or ends; the SDK parses that state and resumes it."""
    spec, said = STORIES[story], VERDICTS["approved"]
    mine, base = await resumed(spec)
    mine.run = by_convo(mine.run, said)
    mine.resume()
    written = export_run_state(mine.run, account(spec, mine, base=base))
    again = parse_run_state(serialize_run_state(written).encode())
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    calls, tokens = len(requests), sum(13 + 2 * number for number in range(mine.model.asked))
    assert (run_state_summary_to_json(again)["current_turn"], again.usage["total_tokens"]) == (mine.model.asked, tokens)
    if mine.run.pending:
        finished = serialize_run_state(export_run_state(by_convo(mine.run, said), account(spec, mine, base=base)))
        end, later = await Sdk(spec, mine.model.asked).finish(finished, said)
        assert sorted(end) == sorted(output)
        assert len(later) == calls - mine.model.asked
    else:
        assert (again.document["current_step"], mine.model.asked) == (None, calls)
        assert await RunState.from_string(Sdk(spec).root, serialize_run_state(written))


async def resumed(spec: Spec) -> tuple[StoryRun, Any]:
    """Pause a story with the SDK and import the state; return the story in convo and the original state."""
    base = parse_run_state((await Sdk(spec).pause()).encode())
    found = import_run_state(base, story_runs.story_graph({"spec": spec}))
    (*_, last) = base.document["model_responses"]
    known = found.confirmed_count if found.handle else None
    story = StoryRun(found.run, list(found.items), Model(spec["script"], len(found.response_ids)), known)
    story.turns.append(ModelCall(found.run.agent, last["output"]))
    return story, base


# -- agents used as tools ---------------------------------------------------------------------------


@pytest.mark.parametrize(("story", "verdict"), rotated_combinations(sorted(INSIDE), VERDICTS))
async def test_convo_finishes_agent_tools_that_the_sdk_paused(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    mine, base = await resumed(spec)
    asked = sum(len(one.value["model_responses"]) for one in iter_states(base.document))
    mine.model = Model(spec["script"], asked)
    while mine.run.pending:
        mine.run = by_convo(mine.run, said)
        mine.resume()
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert sorted(map(meant, mine.model.requests)) == sorted(meant(one["input"]) for one in requests[asked:])
    assert sorted(str(mine.run.output)) == sorted(output)


@pytest.mark.parametrize(("story", "verdict"), rotated_combinations(sorted(INSIDE - {ASKED}), VERDICTS))
async def test_the_sdk_finishes_agent_tools_that_convo_paused(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    mine = paused(spec)
    state = export_run_state(by_convo(mine.run, said), account(spec, mine))
    assert len(list(iter_states(state.document))) > 1
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    end, later = await Sdk(spec, mine.model.asked).finish(serialize_run_state(state), said)
    assert end == output
    theirs = sorted(meant(one["input"]) for one in requests[mine.model.asked :])
    assert sorted(meant(one["input"]) for one in later) == theirs


@pytest.mark.parametrize("story", sorted(INSIDE))
async def test_undecided_agent_tools_round_trip_between_the_sdk_and_convo(story: str) -> None:
    """Convo decides and exports over the SDK's state; the SDK resumes it like the original."""
    spec, said = STORIES[story], VERDICTS["approved"]
    mine, base = await resumed(spec)
    asked = sum(len(one.value["model_responses"]) for one in iter_states(base.document))
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    written = export_run_state(by_convo(mine.run, said), account(spec, mine, base=base))
    assert await Sdk(spec, asked).finish(serialize_run_state(written), said) == (output, requests[asked:])


@pytest.mark.parametrize("label", ["1.15", "1.18", "1.21"])
def test_a_sticky_decision_in_an_agent_tool_does_not_apply_to_the_outer_agent(label: str) -> None:
    """Both agents have a tool of that name."""
    spec = STORIES[ASKED]
    mine = paused(spec)
    mine.run = by_convo(mine.run, VERDICTS["approved"])
    mine.resume()
    state, _ = relabel_state(export_run_state(mine.run, account(spec, mine)), label)
    (waits,) = state.list_undecided()
    run = import_run_state(apply_verdict(state, (waits,), VERDICTS["approved for good"]), mine.run.graph).run
    (call,) = run.calls
    assert call.nested_run
    assert (run.sticky_decisions, call.nested_run.run.sticky_decisions) == ({}, {("B", ("bare", "drop")): True})
