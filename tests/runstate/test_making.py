"""Convo pauses, the SDK finishes: as if the SDK had paused itself, request by request."""

from typing import Any

import agents as sdk
import pytest
from agents import RunConfig, Runner, RunState

from convo.history import Strategy
from convo.run import Decided, begin, decide
from convo.runstate import Verdict, read, text
from convo.runstate.making import Account, made
from tests.runstate import stories
from tests.runstate.sdk import Script, graph
from tests.runstate.stories import Told
from tests.runstate.test_both_directions import STORIES, VERDICTS
from tests.runstate.test_both_directions import Run as SdkRun
from tests.runstate.test_sdk import quiet

__all__ = ["quiet"]

OURS = [name for name, spec in STORIES.items() if "agent" not in name.split(" ")[0] and "agents" not in name]


def owner(spec: dict[str, Any], answers: int) -> tuple[Strategy, str | None]:
    if spec["run"].get("conversation_id"):
        return Strategy.CONVERSATION, spec["run"]["conversation_id"]
    if spec["run"].get("auto_previous_response_id"):
        return Strategy.CHAIN, f"resp_{answers - 1:03}"
    return Strategy.SESSION, None


def paused(spec: dict[str, Any], verdict: Verdict) -> tuple[str, int]:
    """The state that convo writes at the story's first pause, decided by its run; and the model calls so far."""
    told = Told(begin(stories.agents({"spec": spec})))
    told.until_it_pauses(spec["script"])
    run = told.run
    for call in run.pending:
        if run.call(call.id) in run.pending:
            run, _ = decide(run, Decided(call.id, verdict.approve, verdict.message, verdict.always))
    strategy, handle = owner(spec, len(told.turns))
    before = [{"role": "user", "content": spec["input"]}]
    return text(made(run, Account(before, told.turns, strategy, handle))), len(told.turns)


async def finished(spec: dict[str, Any], words: str, asked: int, verdict: Verdict) -> tuple[Any, ...]:
    model = Script(spec["script"], asked)
    root = graph({"spec": spec}, model)
    if spec.get("deferred"):
        root.tools[0].defer_loading = True  # type: ignore[union-attr]
        root.tools.append(sdk.ToolSearchTool())
    settings = RunConfig(tracing_disabled=True)
    result: Any = await Runner.run(root, await RunState.from_string(root, words), run_config=settings)
    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            if verdict.approve:
                state.approve(item, always_approve=verdict.always)
            else:
                state.reject(item, always_reject=verdict.always, rejection_message=verdict.message)
        result = await Runner.run(root, state, run_config=settings)
    return result.final_output, model.requests


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("story", OURS)
async def test_the_sdk_finishes_what_convo_paused_as_if_it_had_paused_itself(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    words, asked = paused(spec, said)
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert await finished(spec, words, asked, said) == (output, requests[asked:])
    assert read(words.encode()).agent == read(words.encode()).document["current_agent"]["name"]
