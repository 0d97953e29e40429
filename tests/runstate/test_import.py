"""A run that the SDK paused resumes in convo: the same calls, the same decisions, the same next request."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.agents.graph import Graph, graph
from convo.errors import ConvoError, InputFault, InvalidRunState, NotFound, StateFault, Unsupported
from convo.history.canonical import digest
from convo.history.items import Item, is_client_output, item_type
from convo.history.records import Strategy
from convo.runs.state import Phase, Run, Stage
from convo.runstate.approvals import apply_verdict
from convo.runstate.calls import SDK_RESUME_HINT
from convo.runstate.export import export_run_state
from convo.runstate.format import ApprovalVerdict
from convo.runstate.import_ import ImportedRun, import_run_state
from convo.runstate.reader import build_state_report, parse_run_state, run_state_from_json
from convo.runstate.run_items import RunTranscript
from convo.runstate.run_state import RunState
from convo.runstate.writer import serialize_run_state
from convo.strategies.strategy import STRATEGIES
from convo.tools.tool import Tool
from tests.runstate import snapshots
from tests.runstate.scenario_runs import resume_scenario, scenario_graph
from tests.runstate.snapshots import WITHOUT_NESTED_STATE, entries_of_label, index, load_scenario, snapshot

PARTS = 3
FULL = [pytest.param(part, marks=[] if part == 0 else pytest.mark.full) for part in range(PARTS)]
"""Every third snapshot, including the newest label's; the marker `full` adds the others."""

UNSUPPORTED_CALLS = {
    "shell_approval": "shell_call",
    "apply_patch_approval": "apply_patch_call",
    "custom_tool_approval": "custom_tool_call",
}
"""Scenarios with pending calls that convo cannot run: it decides on them, and the SDK resumes them."""

EXTERNAL_OUTPUT = ("local_mcp_approval", "agent_tool_itself_needs_approval")
"""Scenarios whose output comes from another server or another agent, so that the requests differ in it."""

SUMMARY_KEYS = ("pending", "conversation_id", "previous_response_id", "auto_previous_response_id", "usage", "max_turns")
STABLE_KEYS = (*SUMMARY_KEYS, "current_agent", "current_turn", "model_responses")


def entries(part: int) -> list[dict[str, Any]]:
    return [entry for entry in index()[part::PARTS] if not is_refused(entry)]


def is_refused(entry: dict[str, Any]) -> bool:
    return entry["scenario"] in UNSUPPORTED_CALLS or (
        entry["scenario"] in WITHOUT_NESTED_STATE and entry["schema"] == "1.0"
    )


def import_entry(entry: dict[str, Any], state: RunState) -> ImportedRun:
    return import_run_state(state, scenario_graph(load_scenario(entry["file"])), context_values(entry))


def innermost(run: Run, items: Sequence[Item]) -> tuple[Run, Sequence[Item]]:
    """Return the run that resumes first and its history: a nested run, if there is one."""
    nested = [call.nested_run for call in run.calls if call.nested_run]
    return innermost(nested[0].run, nested[0].items) if nested else (run, items)


def context_values(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return new context values for a scenario whose context was not a mapping."""
    return {} if entry["scenario"].startswith("context_") else None


def item_digests(items: Iterable[Item]) -> list[list[str]]:
    """Return digests of items; adjacent outputs are sorted, because the SDK sends them in order of completion."""
    pairs = [(is_client_output(item) or item_type(item) == "mcp_approval_response", digest(item)) for item in items]
    return [
        sorted(one for _, one in run) if outputs else [one for _, one in run]
        for outputs, run in groupby(pairs, itemgetter(0))
    ]


def unsent_items(found: ImportedRun) -> Sequence[Item]:
    """Return the items that the next request sends: all, or those that the server does not have."""
    return found.items[found.confirmed_count if STRATEGIES[found.strategy].is_server_side else 0 :]


@pytest.mark.parametrize("part", FULL)
def test_once_everything_is_approved_the_next_request_equals_that_of_the_sdk(part: int) -> None:
    """Covers every snapshot; where the SDK fails or calls no model again, convo does the same."""
    for entry in entries(part):
        expected = load_scenario(entry["file"])
        state = parse_run_state(snapshot(entry["file"]))
        state = apply_verdict(state, state.pending, ApprovalVerdict(approve=True))
        found = import_entry(entry, state)
        resumed_run, unsent = innermost(found.run, unsent_items(found))
        if resumed_run.phase is Phase.DONE:
            assert entry["scenario"] in ("completed_terminal", "run_again_cancelled"), entry["file"]
            continue
        run, added = resume_scenario(resumed_run)
        requests = expected["resume_0_24_0"].get("requests")
        if requests and entry["scenario"] not in EXTERNAL_OUTPUT:
            assert item_digests([*unsent, *added]) == item_digests(requests[0]["input"]), entry["file"]
        elif entry["scenario"] == "max_turns_reached_on_resume":
            assert run.failure is not None
            assert run.failure.code == "max_turns"
        elif entry["scenario"] == "stop_on_first_tool":
            assert str(run.output) == expected["resume_0_24_0"]["final_output"]


@pytest.mark.parametrize("part", FULL)
def test_an_imported_state_is_exported_with_the_same_meaning(part: int) -> None:
    for entry in entries(part):
        state = parse_run_state(snapshot(entry["file"]))
        found = import_entry(entry, state)
        if found.run.graph.duplicates:
            with pytest.raises(
                InputFault, match=r"^several agents are named .*, and only the Agents SDK can number them$"
            ):
                export_state(found, state)
            continue
        again = parse_run_state(serialize_run_state(export_state(found, state)).encode())
        assert [getattr(build_state_report(again), key) for key in STABLE_KEYS] == [
            getattr(build_state_report(state), key) for key in STABLE_KEYS
        ], entry["file"]
        assert model_items(again) == model_items(state), entry["file"]
        restored = import_run_state(again, found.run.graph, context_values(entry))
        assert replace(restored, source_hash=found.source_hash) == found, entry["file"]


def export_state(found: ImportedRun, state: RunState) -> RunState:
    """Export an imported state, with the original state as its base."""
    context = state.document["context"].get("context") or {}
    return export_run_state(
        found.run, RunTranscript((), (), found.strategy, found.handle, context_values=context, base=state)
    )


def model_items(state: Any) -> list[Any]:
    decisions = build_state_report(state).decisions
    return [one._replace(is_bound=False) for one in decisions]


@pytest.mark.parametrize("scenario", UNSUPPORTED_CALLS)
def test_unsupported_state_is_refused_by_name(scenario: str) -> None:
    kind = UNSUPPORTED_CALLS[scenario]
    text = f"convo does not support the pending calls of this state: calls of type {kind} are not supported"
    for entry in index():
        if entry["scenario"] == scenario:
            with pytest.raises(Unsupported) as error:
                import_entry(entry, parse_run_state(snapshot(entry["file"])))
            assert (error.value.message, error.value.hint) == (text, SDK_RESUME_HINT)


def test_pending_calls_in_an_agent_tool_need_that_agent() -> None:
    state, agents = import_newest("nested_agent_tool_approval")
    tools = tuple(Tool(one.name, one.description, one.parameters, one.run) for one in agents["Outer"].functions)
    with pytest.raises(
        Unsupported, match=r"^convo does not support a pending call of the nested agent of tool 'ask_inner'$"
    ):
        import_run_state(state, graph(replace(agents["Outer"], tools=tools)))
    for entry in snapshots.entries_of_label("1.0"):
        if entry["scenario"] in WITHOUT_NESTED_STATE:
            with pytest.raises(
                InvalidRunState, match=r"is a pending call of a nested agent, whose state label 1\.0 does not store$"
            ) as error:
                import_entry(entry, parse_run_state(snapshot(entry["file"])))
            assert error.value.hint == "start the run again with a newer release; this one cannot be resumed"


# -- one state with a graph of other agents or tools ------------------------------------------------


def import_newest(scenario: str) -> tuple[Any, Graph]:
    state = snapshots.newest_state(scenario, "1.21")
    entry = next(one for one in index() if (one["schema"], one["scenario"]) == ("1.21", scenario))
    return state, scenario_graph(load_scenario(entry["file"]))


def changed(graph: Graph, **fields: Any) -> Graph:
    """Return the graph with these fields of every tool replaced."""
    return Graph(
        graph.start,
        {
            identity: replace(agent, tools=tuple(replace(tool, **fields) for tool in agent.functions))
            for identity, agent in graph.agents.items()
        },
    )


def test_an_unknown_agent_is_refused() -> None:
    state, _ = import_newest("single_approval")
    with pytest.raises(NotFound, match="no agent") as error:
        import_run_state(state, graph(Agent("somebody else")))
    assert error.value.hint == "add this agent, which the state needs; known agents: somebody else"


def test_an_unknown_tool_is_refused() -> None:
    state, agents = import_newest("single_approval")
    with pytest.raises(NotFound, match=f"no tool '{state.pending[0].call.tool_name}'") as error:
        import_run_state(state, graph(Agent(state.agent)))
    assert error.value.hint == f"add it: agent '{state.agent}' called it before the run was paused"
    with pytest.raises(NotFound, match="no tool"):
        import_run_state(state, changed(agents, name="else"))


def test_a_tool_with_changed_parameters_is_refused_and_a_changed_description_is_not() -> None:
    state, graph = import_newest("single_approval")
    other = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
    with pytest.raises(InvalidRunState) as error:
        import_run_state(state, changed(graph, parameters=other))
    assert error.value.message == (
        "$.last_processed_response.functions[0].tool.paramsJsonSchema differs from the schema of tool "
        f"'{state.pending[0].call.tool_name}', so the approved call is not the call that would run"
    )
    assert error.value.hint == "resume with the tools that the run was paused with"
    same = {"type": "object", "title": "Args", "properties": {}, "required": [], "additionalProperties": True}
    assert import_run_state(state, changed(graph, parameters=same, description="Other words.")).run.pending


def test_existing_outputs_wait_for_the_others_of_their_batch() -> None:
    found = import_run_state(*import_newest("server_parallel_partial"))
    assert [call.stage for call in found.run.calls] == [Stage.DONE, Stage.PENDING]
    assert not any(is_client_output(item) for item in found.items)
    assert (found.strategy, found.confirmed_count) == (Strategy.CONVERSATION, len(found.items))


def test_a_chain_continues_from_the_last_response_that_has_an_id() -> None:
    for scenario in ("auto_previous_response_id", "previous_response_id"):
        state, graph = import_newest(scenario)
        found = import_run_state(state, graph)
        last_id = state.document["model_responses"][-1]["response_id"]
        assert (found.strategy, found.handle) == (Strategy.CHAIN, last_id)


def test_decisions_in_the_state_are_imported() -> None:
    found = import_run_state(*import_newest("parallel_mixed_decided"))
    assert [call.stage for call in found.run.calls] == [Stage.READY, Stage.DONE]
    rejected = found.run.calls[1].output
    assert rejected is not None
    assert rejected["output"].startswith("Denied by Cusco policy")


def test_a_sticky_decision_applies_to_the_agent_and_its_tool() -> None:
    found = import_run_state(*import_newest("sticky_approve"))
    (call,) = found.run.calls
    assert (call.stage, dict(found.run.sticky_decisions)) == (Stage.READY, {(found.run.agent, call.lookup): True})


def test_a_sticky_decision_after_a_decision_on_one_call_applies_too() -> None:
    entry = next(one for one in entries_of_label("1.6") if one["scenario"] == "sticky_approve")
    document = json.loads(snapshot(entry["file"]))
    document["context"]["approvals"] = {
        "another": {"approved": ["call_ended"], "rejected": []},
        **document["context"]["approvals"],
    }
    found = import_entry(entry, run_state_from_json(document))
    assert list(found.run.sticky_decisions.values()) == [True]


def test_a_sticky_decision_bound_to_another_tool_is_refused() -> None:
    _, graph = import_newest("sticky_approve")
    document = snapshots.document("sticky_approve", "1.21")
    document["context"]["function_tool_approvals"][0]["decision"]["sticky_scope"] = "0" * 64
    with pytest.raises(
        InvalidRunState, match=r"^\$\.context\..*\.sticky_scope is not the digest of tool restart_server$"
    ):
        import_run_state(run_state_from_json(document), graph)


def test_a_planned_call_asks_for_approval_if_its_tool_needs_it() -> None:
    """Without its interruption, the state would run the call without approval."""
    _, graph = import_newest("parallel_mixed_decided")
    document = snapshots.document("parallel_mixed_decided", "1.21")
    document["current_step"]["data"]["interruptions"].pop()
    document["context"]["function_tool_approvals"] = []
    found = import_run_state(run_state_from_json(document), graph)
    assert [call.stage for call in found.run.calls] == [Stage.PENDING, Stage.PENDING]


def test_a_planned_call_that_the_model_never_made_is_refused() -> None:
    _, graph = import_newest("parallel_mixed_decided")
    document = snapshots.document("parallel_mixed_decided", "1.21")
    output = document["model_responses"][-1]["output"]
    call_index = next(index for index, item in enumerate(output) if item["type"] == "function_call")
    del output[call_index]
    with pytest.raises(
        InvalidRunState, match=r"functions\[\d\]\.tool_call is not a call of the last response in model_responses$"
    ):
        import_run_state(run_state_from_json(document), graph)


def test_staged_input_follows_the_outputs() -> None:
    found = import_run_state(*import_newest("pending_input"))
    assert [item["role"] for item in found.run.staged_items] == ["user", "user"]
    _, added = resume_scenario(found.run)
    assert [is_client_output(item) for item in added] == [True, False, False]


def test_a_run_without_pending_calls_calls_its_model_next() -> None:
    found = import_run_state(*import_newest("run_again_cancelled"))
    assert (found.run.phase, found.run.calls) == (Phase.PAUSED, ())
    assert is_client_output(found.items[-1])
    run, _ = resume_scenario(found.run)
    assert (run.phase, run.turn) == (Phase.CALLING_MODEL, found.run.turn + 1)


def test_a_finished_run_stays_finished() -> None:
    state, graph = import_newest("completed_terminal")
    run = import_run_state(state, graph).run
    assert (run.phase, str(run.output)[:6]) == (Phase.DONE, "FINAL<")
    document = {**snapshots.document("completed_terminal", "1.21"), "terminal_unrecoverable": True}
    with pytest.raises(StateFault, match=r"^this run cannot be resumed: its last response was blocked$"):
        import_run_state(run_state_from_json(document), graph)


def test_context_values_that_were_no_mapping_must_be_given_again() -> None:
    assert import_run_state(*import_newest("context_dict")).context_values["user_id"] == 224
    for scenario in ("context_dataclass", "context_object_omitted"):
        with pytest.raises(
            InputFault, match=r"^the context of this run was .+, which cannot be restored from a state$"
        ) as error:
            import_run_state(*import_newest(scenario))
        assert error.value.hint == "pass it with --context FILE.json, or FILE.py:NAME for an object or function"
        assert import_run_state(*import_newest(scenario), {"user": "kim"}).context_values == {"user": "kim"}


# -- agents with the same name ----------------------------------------------------------------------


def test_of_agents_of_one_name_the_handoff_decides_which_one_resumes() -> None:
    """The number in the SDK's identity is not used: the state says whether Root called `to_x` or `to_y`."""
    for entry in index():
        if entry["scenario"] == "duplicate_agent_names":
            expected = load_scenario(entry["file"])
            found = import_run_state(parse_run_state(snapshot(entry["file"])), scenario_graph(expected))
            assert found.run.current_agent.instructions == f"You are {expected['spec']['picked']}.", entry["file"]


@pytest.mark.parametrize("key", ["session_items", "generated_items"])
def test_the_handoff_is_found_in_the_session_or_in_the_generated_items(key: str) -> None:
    """A filter of a handoff removes items of the generated ones; older labels have no session items."""
    (entry,) = (one for one in entries_of_label("1.21") if one["scenario"] == "duplicate_agent_names")
    expected, document = load_scenario(entry["file"]), json.loads(snapshot(entry["file"]))
    other = "session_items" if key == "generated_items" else "generated_items"
    document[other] = [item for item in document[other] if not item["type"].startswith("handoff_")]
    document[other] = document[other] if other == "generated_items" else []
    document["generated_session_item_indexes"] = [None for _ in document["generated_items"]]
    found = import_run_state(run_state_from_json(document), scenario_graph(expected))
    assert found.run.current_agent.instructions == f"You are {expected['spec']['picked']}."


def test_an_ambiguous_agent_is_refused() -> None:
    agents = import_newest("single_approval")[1].agents
    state, _ = import_newest("single_approval")
    (one,) = (agent for agent in agents.values() if agent.name == state.agent)
    duplicates = Graph(one.name, {one.name: one, f"{one.name}#2": replace(one, instructions="Otherwise.")})
    with pytest.raises(InputFault) as error:
        import_run_state(state, duplicates)
    assert error.value.message == (
        f"2 agents are named '{one.name}', and the state does not identify the one that continues"
    )
    assert error.value.hint == "give each agent a unique name"
    other = replace(one, tools=())
    with pytest.raises(NotFound, match=f"no agent '{one.name}'") as missing:
        import_run_state(state, Graph(one.name, {one.name: other, f"{one.name}#2": other}))
    assert missing.value.hint == "add the tools that the state calls to an agent with this name"
    assert (
        import_run_state(state, Graph(one.name, {one.name: other, f"{one.name}#2": one})).run.agent == f"{one.name}#2"
    )


BROKEN: tuple[Any, ...] = (None, [], {}, "x", 7)


def test_every_refusal_is_an_error_of_convo() -> None:
    """Each member of the state is replaced by broken values; any error is a ConvoError."""
    document = snapshots.document("parallel_mixed_decided", "1.21")
    _, graph = import_newest("parallel_mixed_decided")
    refused_count = 0
    for key in sorted(document):
        for broken in BROKEN:
            try:
                import_run_state(run_state_from_json(json.loads(json.dumps({**document, key: broken}))), graph)
            except ConvoError:
                refused_count += 1
    assert refused_count > 20
    assert all(isinstance(tool, Tool) for agent in graph.agents.values() for tool in agent.tools)
