"""Validation of the configuration before a run starts: errors name the problem and the fix."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig, make_nested_config, validate_run_config
from convo.agents.agent import Agent, Guardrail, Handoff
from convo.agents.graph import agent_tool, graph
from convo.agents.handoffs import HandoffDefaults
from convo.chat.turn import RequestOptions
from convo.endpoints.base import Endpoint
from convo.errors import ConvoError, InputFault, InvalidUsage, Unsupported, WrongOwner
from convo.history.records import Scope, Strategy
from convo.runs.state import RunLimits
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.tools.tool import Tool, tool
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.embedded_endpoint import make_embedded_endpoint

OPTIONS = RequestOptions("openai/gpt-5", "gpt-5")
REMOVE_HINT = "remove it, or keep the history locally with --session or --replay"


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    store = open_store("memory")
    yield RecordingEndpoint(make_embedded_endpoint(store))
    await store.aclose()


def scratch_store() -> Store:
    return open_store("memory")


def look() -> str:
    return "seen"


def make_tool(name: str, **fields: Any) -> Tool:
    return tool(name=name, **fields)(look)


LIMIT = "a run needs at least one turn and one parallel call"


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        (RunConfig(RunLimits(max_turns=0)), LIMIT, "remove the limit"),
        (RunConfig(RunLimits(max_parallel_calls=0)), LIMIT, "remove the limit"),
        (RunConfig(session_limit=-1), "a session limit is 0 or more items", "use 0 to send no stored items"),
        (
            RunConfig(session_input_callback="all"),  # type: ignore[arg-type]
            "a session input callback must be a function",
            "name a function as file.py:name",
        ),
    ],
)
def test_a_limit_that_allows_nothing_is_refused(endpoint: Endpoint, config: RunConfig, message: str, hint: str) -> None:
    with pytest.raises(InvalidUsage) as error:
        validate_run_config(graph(Agent("desk")), config, Strategy.SESSION, OPTIONS, endpoint)
    assert (error.value.message, error.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(RunLimits(max_turns=1, max_parallel_calls=1), session_limit=0),
        RunConfig(RunLimits(max_turns=None), session_input_callback=lambda older, new: new),
    ],
)
def test_the_smallest_limits_are_allowed(endpoint: Endpoint, config: RunConfig) -> None:
    validate_run_config(graph(Agent("desk")), config, Strategy.SESSION, OPTIONS, endpoint)


@pytest.mark.parametrize(
    "hosted",
    [
        {"type": "function", "name": "look"},
        {"type": "local_shell"},
        {"type": "apply_patch"},
        {"type": "computer"},
        {"type": "computer_use_preview"},
        {"type": "custom", "name": "look"},
        {"type": "shell"},
        {"type": "shell", "environment": None},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "shell", "environment": {}},
        {"type": "tool_search", "execution": "client"},
    ],
    ids=str,
)
def test_a_hosted_tool_that_the_client_would_have_to_run_is_refused(endpoint: Endpoint, hosted: dict[str, Any]) -> None:
    agent = Agent("desk", tools=({"type": "web_search"}, hosted))
    with pytest.raises(Unsupported, match=f"a run.*the tool '{hosted['type']}' of agent 'desk'") as error:
        validate_run_config(graph(agent), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)
    assert error.value.hint == "use a function tool instead"


@pytest.mark.parametrize(
    "hosted",
    [
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "tool_search"},
        {"type": "tool_search", "execution": "server"},
        {"type": "mcp", "server_label": "files"},
    ],
    ids=str,
)
def test_a_hosted_tool_that_the_provider_runs_is_allowed(endpoint: Endpoint, hosted: dict[str, Any]) -> None:
    validate_run_config(graph(Agent("desk", tools=(hosted,))), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)


@pytest.mark.parametrize(
    "name", ["input", "model", "instructions", "tools", "previous_response_id", "conversation", "stream"]
)
def test_a_setting_that_only_the_run_can_set_is_refused(endpoint: Endpoint, name: str) -> None:
    agent = Agent("desk", settings={"temperature": 0, "tools": [], name: "x"})
    first = min("tools", name)
    with pytest.raises(WrongOwner) as error:
        validate_run_config(graph(agent), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)
    assert error.value.message == f"the settings of agent 'desk' contain {first!r}, which only the run can set"
    assert error.value.hint == "remove it; --session, --conversation and --chain choose the owner"


def test_settings_that_are_not_json_are_refused(endpoint: Endpoint) -> None:
    agent = Agent("desk", settings={"temperature": math.nan})
    with pytest.raises(InputFault, match=r"^the settings of agent 'desk' are not JSON: .*Out of range") as error:
        validate_run_config(graph(agent), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)
    assert error.value.hint == "use only JSON values: they become fields of a request"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (Agent("desk", tools=(make_tool("look"), make_tool("look"))), "two tools are named 'look'"),
        (
            Agent("desk", tools=(make_tool("look", deferred=True),)),
            "tool 'look' is deferred, but there is no tool search",
        ),
        (
            Agent("desk", handoffs=(Agent("a b"), Agent("a_b"))),
            "agent 'desk' has two tools named 'transfer_to_a_b'",
        ),
    ],
)
def test_tools_that_a_call_could_not_name_are_refused(endpoint: Endpoint, agent: Agent, message: str) -> None:
    with pytest.raises(InputFault) as error:
        validate_run_config(graph(agent), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)
    assert error.value.message == message


FILTERED = Agent("desk", handoffs=(Handoff(Agent("billing"), filter=lambda transcript: transcript),))
GUARDED = Agent("desk", output_guardrails=(Guardrail("strict", lambda context, output: None),))
REMOVE_FILTER_HINT = "remove the filter, or keep the history locally with --session or --replay"


@pytest.mark.parametrize(
    ("agent", "config", "subject", "hint"),
    [
        (FILTERED, RunConfig(), "the handoff desk -> billing has an input filter, but", REMOVE_FILTER_HINT),
        (
            Agent("desk", handoffs=(Agent("billing"),)),
            RunConfig(handoff_defaults=HandoffDefaults(filter=lambda transcript: transcript)),
            "the handoff desk -> billing has an input filter, but",
            REMOVE_FILTER_HINT,
        ),
        (GUARDED, RunConfig(), "an output guardrail (agent 'desk') cannot be used with", REMOVE_HINT),
        (
            Agent("desk"),
            RunConfig(session_limit=0),
            "a session limit or session input callback cannot be used with",
            REMOVE_HINT,
        ),
        (
            Agent("desk"),
            RunConfig(session_input_callback=lambda older, new: new),
            "a session limit or session input callback cannot be used with",
            REMOVE_HINT,
        ),
    ],
)
@pytest.mark.parametrize("strategy", Strategy)
def test_an_owner_that_stores_the_history_accepts_no_other_history(
    endpoint: Endpoint, strategy: Strategy, agent: Agent, config: RunConfig, subject: str, hint: str
) -> None:
    if strategy in (Strategy.REPLAY, Strategy.SESSION):
        validate_run_config(graph(agent), config, strategy, OPTIONS, endpoint)
        return
    with pytest.raises(WrongOwner) as error:
        validate_run_config(graph(agent), config, strategy, OPTIONS, endpoint)
    assert error.value.message.startswith(subject)
    assert error.value.message.endswith("stores the history")
    assert error.value.hint == hint


class OtherScopeEndpoint(RecordingEndpoint):
    """An endpoint at another base URL."""

    scope = Scope("https://elsewhere.example/v1")


@pytest.mark.parametrize(("model", "strategy"), [("openai/gpt-5", Strategy.CHAIN), ("gpt-5", Strategy.CHAIN)])
def test_an_agent_with_the_model_of_the_chat_needs_no_route(endpoint: Endpoint, model: str, strategy: Strategy) -> None:
    validate_run_config(graph(Agent("desk", model=model)), RunConfig(), strategy, OPTIONS, endpoint)


def test_a_model_without_a_route_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(InvalidUsage) as error:
        validate_run_config(
            graph(Agent("desk", model="openai/gpt-4")), RunConfig(), Strategy.SESSION, OPTIONS, endpoint
        )
    assert error.value.message == "agent 'desk' uses the model 'openai/gpt-4', but this run uses only 'openai/gpt-5'"
    assert error.value.hint == "remove its model, or choose that model with -m"


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_no_agent_may_leave_the_endpoint_that_stores_the_history(
    endpoint: Endpoint, strategy: Strategy, is_elsewhere: bool
) -> None:
    other: Any = OtherScopeEndpoint(endpoint) if is_elsewhere else RecordingEndpoint(endpoint)
    config = RunConfig(resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), other))
    agents = graph(Agent("desk", model="openai/gpt-4"))
    if not is_elsewhere or strategy in (Strategy.REPLAY, Strategy.SESSION):
        validate_run_config(agents, config, strategy, OPTIONS, endpoint)
        return
    with pytest.raises(WrongOwner) as error:
        validate_run_config(agents, config, strategy, OPTIONS, endpoint, "convert it")
    assert error.value.message == (
        f"agent 'desk' uses a model at https://elsewhere.example/v1, but {endpoint.scope} stores the history"
    )
    assert error.value.hint == "convert it"


AGENT_TOOL = agent_tool(GUARDED, "ask_desk")


def test_a_nested_run_needs_a_store(endpoint: Endpoint) -> None:
    with pytest.raises(InvalidUsage) as error:
        validate_run_config(graph(Agent("boss", tools=(AGENT_TOOL,))), RunConfig(), Strategy.SESSION, OPTIONS, endpoint)
    assert error.value.message == "the nested run of tool 'ask_desk' has no store"
    assert error.value.hint == "set open_scratch_store in the RunConfig"


@pytest.mark.parametrize("strategy", Strategy)
def test_a_nested_run_stores_its_own_history(endpoint: Endpoint, strategy: Strategy) -> None:
    config = RunConfig(open_scratch_store=scratch_store)
    validate_run_config(graph(Agent("boss", tools=(AGENT_TOOL,))), config, strategy, OPTIONS, endpoint)


@pytest.mark.parametrize(
    ("tool", "error", "message"),
    [
        (agent_tool(Agent("clerk"), max_turns=0), InvalidUsage, LIMIT),
        (agent_tool(Agent("clerk", model="a/b")), InvalidUsage, "agent 'clerk' uses the model 'a/b'"),
        (agent_tool(Agent("clerk", tools=({"type": "computer"},))), Unsupported, "of agent 'clerk'"),
    ],
)
def test_the_agents_of_a_nested_run_are_validated(
    endpoint: Endpoint, tool: Tool, error: type[ConvoError], message: str
) -> None:
    config = RunConfig(open_scratch_store=scratch_store)
    with pytest.raises(error, match=message):
        validate_run_config(graph(Agent("boss", tools=(tool,))), config, Strategy.SESSION, OPTIONS, endpoint)


def test_a_nested_run_has_its_own_turns_and_none_of_the_input_of_the_session() -> None:
    config = RunConfig(
        RunLimits(max_turns=2, max_parallel_calls=3),
        session_limit=4,
        session_input_callback=lambda older, new: new,
        values={"who": "Kim"},
        agents_source={"file": "desk.py"},
    )
    assert make_nested_config(agent_tool(Agent("clerk"), max_turns=5), config) == replace(
        config,
        limits=RunLimits(max_turns=5, max_parallel_calls=3),
        session_limit=None,
        session_input_callback=None,
        agents_source=None,
    )
