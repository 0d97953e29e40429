"""Convo pauses and the SDK finishes, and the other way round: as if one of them had done it alone.

Request by request, for each owner of the history, with parallel calls, handoffs, tools in
namespaces and deferred ones, hosted tools; approved, rejected with a reason, and both for good.
"""

import json
from dataclasses import replace
from typing import Any

import agents as sdk
import pytest
from agents import RunConfig, Runner, RunState, SQLiteSession

from convo.agents import Agent, graph
from convo.errors import InputFault, StateFault, Usage
from convo.history import Strategy
from convo.items import Item
from convo.run import Begin, Decided, Given, Limits, Returned, Run, Said, begin, decide, recover
from convo.runstate import LABELS, State, Verdict, edited, read, relabelled, summary, text
from convo.runstate.making import Account, Turn, made
from convo.runstate.nested import children, states
from convo.runstate.paths import at
from convo.runstate.state import view
from convo.runstate.taking import Taken, taken
from tests.run.driving import GUARDED, answer, call, run_of, says, told
from tests.run.driving import made as tool_made
from tests.runstate import snapshots, stories
from tests.runstate.sdk import Script
from tests.runstate.sdk import graph as sdk_graph
from tests.runstate.stories import Model, Told, owner
from tests.runstate.test_both_directions import STORIES, VERDICTS
from tests.runstate.test_both_directions import Run as SdkRun
from tests.runstate.test_sdk import quiet
from tests.runstate.test_taking import meant

__all__ = ["quiet"]

INSIDE = {
    "an approved agent that pauses inside",
    "agents used as tools in one another",
    "two agents used as tools beside calls of one's own",
}
"""What waits there, waits inside an agent used as a tool."""

OURS = [name for name in STORIES if name not in INSIDE]

Spec = dict[str, Any]


def by_convo(run: Run, verdict: Verdict) -> Run:
    for one in run.pending:
        if one in run.pending:
            run, _ = decide(run, Decided(one.id, verdict.approve, verdict.message, verdict.always))
    return run


def paused(spec: Spec) -> Told:
    """A story up to its first pause, told by convo."""
    server = spec["run"].get("conversation_id") or spec["run"].get("auto_previous_response_id")
    begun: list[Item] = [{"role": "user", "content": spec["input"]}]
    story = Told(begin(stories.agents({"spec": spec})), begun, Model(spec["script"]), 0 if server else None)
    story.begin()
    return story


def account(spec: Spec, story: Told, **more: Any) -> Account:
    strategy, handle = owner(spec, story.model.asked)
    return Account([{"role": "user", "content": spec["input"]}], story.turns, strategy, handle, **more)


class Sdk:
    """The SDK with a story's agents, tools and script."""

    def __init__(self, spec: Spec, asked: int = 0) -> None:
        self.spec, self.model = spec, Script(spec["script"], asked)
        self.root = sdk_graph({"spec": spec}, self.model)
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

    async def finish(self, words: str, verdict: Verdict) -> tuple[Any, ...]:
        """The end of what `words` holds, all that comes later decided alike."""
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


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("story", OURS)
async def test_the_sdk_finishes_what_convo_paused_as_if_it_had_paused_itself(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    mine = paused(spec)
    words = text(made(by_convo(mine.run, said), account(spec, mine)))
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert await Sdk(spec, mine.model.asked).finish(words, said) == (output, requests[mine.model.asked :])


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("story", OURS)
async def test_convo_finishes_what_the_sdk_paused_as_if_the_sdk_had_gone_on(story: str, verdict: str) -> None:
    """Round by round: every request holds what the SDK's holds, outputs in the order of their calls."""
    spec, said = STORIES[story], VERDICTS[verdict]
    mine, _ = await resumed(spec)
    while mine.run.pending:
        mine.run = by_convo(mine.run, said)
        mine.go_on()
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    theirs = requests[len(requests) - len(mine.model.requests) :]
    assert [meant(one) for one in mine.model.requests] == [meant(one["input"]) for one in theirs]
    assert sorted(str(mine.run.output)) == sorted(output)


@pytest.mark.parametrize("story", OURS)
async def test_a_run_changes_hands_at_every_pause_and_ends_as_it_would_have(story: str) -> None:
    """The SDK pauses, convo goes on and pauses again or ends, the SDK reads that and goes on."""
    spec, said = STORIES[story], VERDICTS["approved"]
    mine, base = await resumed(spec)
    mine.run = by_convo(mine.run, said)
    mine.go_on()
    written = made(mine.run, account(spec, mine, base=base))
    again = read(text(written).encode())
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    calls, tokens = len(requests), sum(13 + 2 * number for number in range(mine.model.asked))
    assert (summary(again)["current_turn"], again.usage["total_tokens"]) == (mine.model.asked, tokens)
    if mine.run.pending:
        finished = text(made(by_convo(mine.run, said), account(spec, mine, base=base)))
        end, later = await Sdk(spec, mine.model.asked).finish(finished, said)
        assert sorted(end) == sorted(output)
        assert len(later) == calls - mine.model.asked
    else:
        assert (again.document["current_step"], mine.model.asked) == (None, calls)
        assert await RunState.from_string(Sdk(spec).root, text(written))


async def resumed(spec: Spec) -> tuple[Told, Any]:
    """A story that the SDK paused, as convo takes it up; and the state that it comes from."""
    base = read((await Sdk(spec).pause()).encode())
    found = taken(base, stories.agents({"spec": spec}))
    (*_, last) = base.document["model_responses"]
    known = found.acknowledged if found.handle else None
    story = Told(found.run, list(found.items), Model(spec["script"], len(found.responses)), known)
    story.turns.append(Turn(found.run.agent, last["output"]))
    return story, base


# -- agents used as tools ---------------------------------------------------------------------------


class Nested:
    """A run, and those of the agents behind its tools, one model for all of them."""

    def __init__(self, found: Taken, last: Any, model: Model) -> None:
        self.found, self.told = found, Told(found.run, list(found.items), model)
        self.told.turns.append(Turn(found.run.agent, last["model_responses"][-1]["output"]))
        self.inner = {
            call: Nested(one, action["agent_run_state"], model)
            for call, one in found.inside.items()
            for action in last["last_processed_response"]["functions"]
            if action["tool_call"]["call_id"] == call
        }

    def decide(self, verdict: Verdict) -> None:
        for one in self.told.run.pending:
            if one.id not in self.inner:
                event = Decided(one.id, verdict.approve, verdict.message, verdict.always)
                self.told.run, _ = decide(self.told.run, event)
        for nested in self.inner.values():
            nested.decide(verdict)

    def finish(self) -> None:
        """Go on to the end; the output of an agent used as a tool is that of its call."""
        for outer, nested in self.inner.items():
            nested.finish()
            self.told.run, _ = decide(self.told.run, Given(outer, nested.told.run.output))
        self.told.go_on()

    def written(self, state: State) -> State:
        inside = {
            call: nested.written(view(place.value))
            for call, nested in self.inner.items()
            for place in children(state.document)
            if at(state.document, (*place.steps[:-1], "tool_call", "call_id")) == call
        }
        return made(self.told.run, Account((), (), base=state, inside=inside))


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("story", sorted(INSIDE - {"an approved agent that pauses inside"}))
async def test_convo_finishes_agents_used_as_tools_that_the_sdk_paused(story: str, verdict: str) -> None:
    spec, said = STORIES[story], VERDICTS[verdict]
    state = read((await Sdk(spec).pause()).encode())
    asked = sum(len(one.value["model_responses"]) for one in states(state.document))
    found = taken(state, stories.agents({"spec": spec}), inside=stories.inside({"spec": spec}))
    nested = Nested(found, state.document, Model(spec["script"], asked))
    nested.decide(said)
    nested.finish()
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert sorted(map(meant, nested.told.model.requests)) == sorted(meant(one["input"]) for one in requests[asked:])
    assert sorted(str(nested.told.run.output)) == sorted(output)


@pytest.mark.parametrize("story", sorted(INSIDE - {"an approved agent that pauses inside"}))
async def test_the_sdk_finishes_agents_used_as_tools_on_which_a_run_of_convo_decided(story: str) -> None:
    spec, said = STORIES[story], VERDICTS["approved"]
    state = read((await Sdk(spec).pause()).encode())
    asked = sum(len(one.value["model_responses"]) for one in states(state.document))
    found = taken(state, stories.agents({"spec": spec}), inside=stories.inside({"spec": spec}))
    nested = Nested(found, state.document, Model(spec["script"], asked))
    nested.decide(said)
    words = text(nested.written(state))
    output, requests, _ = await SdkRun(spec).tell(said, convo=False)
    assert await Sdk(spec, asked).finish(words, said) == (output, requests[asked:])


# -- what a state of convo's own says ---------------------------------------------------------------

STORY = "a handoff under replay"
UNSAID = ("context.tool_invocations", "generated_session_item_indexes")
"""What older labels have no place for, and what nobody misses there."""


@pytest.mark.parametrize("label", LABELS)
async def test_a_state_of_ours_is_read_under_every_label_and_leads_to_the_same_end(label: str) -> None:
    spec, said = STORIES[STORY], VERDICTS["approved"]
    mine = paused(spec)
    older, losses = relabelled(made(by_convo(mine.run, said), account(spec, mine)), label)
    end, _ = await Sdk(spec, mine.model.asked).finish(text(older), said)
    output, _, _ = await SdkRun(spec).tell(said, convo=False)
    assert end == output
    assert {loss.path for loss in losses} <= {f"$.{place}" for place in UNSAID}


async def test_words_that_came_at_a_pause_are_sent_at_the_same_place_under_every_label() -> None:
    spec = STORIES["the same tool twice, then again"]
    mine = paused(spec)
    late = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and quickly"}]}
    run, _ = decide(mine.run, Said((late,)))
    mine.run = by_convo(run, VERDICTS["approved"])
    mine.go_on()
    state = made(by_convo(mine.run, VERDICTS["approved"]), account(spec, mine))
    sent = []
    for label in ("1.21", "1.15", "1.13", "1.0"):
        _, requests = await Sdk(spec, mine.model.asked).finish(text(relabelled(state, label)[0]), VERDICTS["approved"])
        sent.append(requests[0]["input"])
    assert [item for item in sent[0] if item.get("role") == "user"][-1] == late
    assert sent[0] == sent[1] == sent[2] == sent[3]


async def test_arguments_that_a_person_changed_are_what_the_sdk_runs() -> None:
    spec = STORIES["the same tool twice, then again"]
    mine = paused(spec)
    run, _ = decide(mine.run, Decided("call_0", approve=True, arguments='{"id": 9}'))
    words = text(made(by_convo(run, VERDICTS["approved"]), account(spec, mine)))
    _, requests = await Sdk(spec, mine.model.asked).finish(words, VERDICTS["approved"])
    outputs = [item["output"] for item in requests[0]["input"] if "output" in item]
    assert outputs == ['drop=>{"id":9}', 'drop=>{"id":2}']
    with pytest.raises(Usage, match="a server holds the call"):
        made(run, replace(account(spec, mine), strategy=Strategy.CHAIN, handle="resp_000"))


def test_what_convo_does_not_model_stays_in_a_state_that_it_goes_on_from() -> None:
    document = snapshots.document("custom_data", "1.21")
    document |= {"sandbox": {"id": "box"}, "x_of_somebody": [1], "trace": {"id": "trace_1"}}
    document["context"]["x_of_somebody"] = {"a": 1}
    base = read(json.dumps(document).encode())
    entry = next(one for one in snapshots.of_label("1.21") if one["scenario"] == "custom_data")
    found = taken(base, stories.agents(snapshots.story(entry["file"])))
    (*_, last) = document["model_responses"]
    story = Told(by_convo(found.run, VERDICTS["approved"]), list(found.items), Model([]))
    story.turns.append(Turn(found.run.agent, last["output"]))
    story.go_on()
    after = made(story.run, Account((), story.turns, found.strategy, found.handle, base=base)).document
    for key in ("sandbox", "x_of_somebody", "trace", "original_input", "input_guardrail_results"):
        assert after[key] == document[key]
    assert after["context"]["x_of_somebody"] == {"a": 1}
    said = [item for item in document["generated_items"] if item["type"] != "tool_approval_item"]
    assert after["generated_items"][: len(said)] == said
    assert any("custom_data" in item for item in said)
    assert after["model_responses"][: len(document["model_responses"])] == document["model_responses"]


def test_the_applications_values_come_back_as_they_were_or_are_refused() -> None:
    mine = paused(STORIES[STORY])
    values = {"user": "kim", "ünï": [1, 2.5, None, {"a": True}]}
    state = read(text(made(mine.run, account(STORIES[STORY], mine, values=values))).encode())
    assert taken(state, mine.run.graph).values == values
    with pytest.raises(InputFault, match="the context's 'who' is not JSON"):
        made(mine.run, account(STORIES[STORY], mine, values={"who": object()}))


# -- what is not written --------------------------------------------------------------------------------


def test_a_graph_in_which_agents_share_a_name_is_never_written_for_the_sdk() -> None:
    twin = Agent("b", "Otherwise.")
    run = begin(graph(Agent("a", handoffs=(twin, Agent("b")))))
    with pytest.raises(InputFault, match="several agents are called 'b'") as refused:
        made(run, Account(()))
    assert refused.value.hint == "give each agent a name of its own"


def test_a_call_whose_outcome_is_unknown_is_not_handed_to_whoever_would_run_it_again() -> None:
    run, _ = told(run_of(Agent("desk", tools=(tool_made("free"),))), Begin())
    run, _ = told(run, answer(run, call("c1")))
    with pytest.raises(StateFault, match="a run that is running tools cannot be written"):
        made(run, Account(()))
    run, _ = recover(run, {})
    with pytest.raises(StateFault, match="call c1 was started and its outcome is unknown"):
        made(run, Account(()))


def test_a_run_between_two_turns_and_one_that_is_over_are_written_as_such() -> None:
    desk = Agent("desk", tools=(GUARDED,))
    run, _ = told(run_of(desk, max_turns=3), Begin())
    state = made(run, Account([{"role": "user", "content": "hi"}]))
    assert state.document["current_step"] == {"type": "next_step_run_again"}
    assert (state.document["current_turn"], state.document["max_turns"]) == (0, 3)
    back = taken(state, run.graph).run
    assert (back.batch, back.limits) == ((), Limits(max_turns=3))
    done, _ = told(run, answer(run, says("bye")))
    state = made(done, Account([{"role": "user", "content": "hi"}], [Turn("desk", [says("bye")])]))
    assert taken(state, run.graph).run.output == "bye"


def test_what_was_run_before_the_pause_is_not_run_again() -> None:
    desk = Agent("desk", tools=(GUARDED, tool_made("free")))
    run, _ = told(run_of(desk), Begin())
    output = [{**call("c1", "guarded"), "id": "fc_1"}, {**call("c2"), "id": "fc_2"}]
    run, _ = told(run, answer(run, *output), Returned("c2", "two"))
    state = made(run, Account([{"role": "user", "content": "hi"}], [Turn("desk", output)]))
    ledger = state.document["context"]["tool_invocations"]
    assert {name: one["completed"] for name, one in ledger.items()} == {"c1": False, "c2": True}
    assert taken(state, run.graph).run.batch == run.batch
    assert edited(state, state.pending[0], '{"text": "y"}').pending[0].call.arguments == '{"text": "y"}'
