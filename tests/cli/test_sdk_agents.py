"""An agent of the Agents SDK has the same requests and the same context in convo as with the SDK's own runner."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import agents as sdk
import pytest
from agents.models import _openai_shared as shared
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI

from convo.agents.sdk import from_object
from convo.cli.agent_options import load_python_file
from convo.errors import InputFault
from convo.history.canonical import digest
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo
from tests.loopback_server import KEY, LoopbackServer

AGENT_FILE_HEAD = """
import json, pathlib
from dataclasses import dataclass
from typing import Any
import agents as sdk
from agents import (Agent, AgentOutputSchema, CodeInterpreterTool, FileSearchTool, HostedMCPTool, ModelSettings,
    ShellTool, ToolSearchTool, WebSearchTool, function_tool, handoff, tool_namespace)
from agents.tool_context import ToolContext
from openai.types.shared import Reasoning
from pydantic import BaseModel

class Paid(BaseModel):
    cents: int
    to: str = "Kim"

@dataclass
class Line:
    words: str

@function_tool
def look(order: str) -> dict:
    "Find an order."
    return {"order": order, "paid": True}

@function_tool(name_override="picture")
def look_at(order: str) -> sdk.ToolOutputImage:
    return sdk.ToolOutputImage(image_url="https://x.org/1.png", detail="low")

@function_tool(defer_loading=True)
def later(order: str) -> str:
    return order
"""

RUNNER_FIELDS = ("stream", "store", "include_usage")
"""Request fields that each runner sets by its own rules: streaming, storage and usage."""


def write_agent(folder: Path, agent: str) -> Any:
    """Write an agent expression into the file that convo loads; returns the agent."""
    file = folder / "desk.py"
    file.write_text(f"{AGENT_FILE_HEAD}\ndesk = {agent}\n", encoding="utf-8")
    return load_python_file(file).desk


async def run_with_sdk(
    agent: Any, server: LoopbackServer, user_input: Any = "hello", context: Any = None, **options: Any
) -> Any:
    """Run the agent with the SDK's own runner against the same server."""
    async with AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
        provider = OpenAIProvider(openai_client=client, use_responses=True)
        config = sdk.RunConfig(model_provider=provider, tracing_disabled=True, **options)
        return await sdk.Runner.run(agent, user_input, context=context, run_config=config)


def normalize_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """Normalize a request: items as digests, without empty values and without fields that each runner sets."""
    fields = {name: value for name, value in body.items() if name not in RUNNER_FIELDS}
    fields["input"] = [digest(item) for item in fields["input"]]
    fields["include"] = sorted(set(fields.get("include") or ()) - {"reasoning.encrypted_content"})
    return {name: value for name, value in fields.items() if value not in ([], None)}


AGENT_EXPRESSIONS = {
    "plain": 'Agent(name="a", instructions="Be brief.")',
    "dynamic": 'Agent(name="a", instructions=lambda context, agent: f"{agent.name} {context.usage.requests}")',
    "settings": 'Agent(name="a", model_settings=ModelSettings(temperature=0.5, top_p=0.9, max_tokens=90,'
    'verbosity="high", truncation="auto", metadata={"a": "b"}, reasoning=Reasoning(effort="low"),'
    'parallel_tool_calls=True, top_logprobs=2, response_include=["web_search_call.action.sources"],'
    'extra_body={"user": "kim"}))',
    "tools": 'Agent(name="a", tools=[look, look_at], model_settings=ModelSettings(tool_choice="look",'
    "parallel_tool_calls=False))",
    "stop": 'Agent(name="a", tools=[look], tool_use_behavior="stop_on_first_tool")',
    "no_reset": 'Agent(name="a", tools=[look], model_settings=ModelSettings(tool_choice="required"),'
    "reset_tool_choice=False)",
    "off": 'Agent(name="a", tools=[function_tool(lambda: 1, name_override="off", is_enabled=lambda context, agent:'
    ' agent.name != "a"), look])',
    "model": 'Agent(name="a", output_type=Paid)',
    "list": 'Agent(name="a", output_type=list[int])',
    "line": 'Agent(name="a", output_type=Line)',
    "loose": 'Agent(name="a", output_type=AgentOutputSchema(dict[str, Any], strict_json_schema=False))',
    "handoff": 'Agent(name="a", handoffs=[Agent(name="b", handoff_description="Pays.", instructions="Pay."),'
    ' handoff(Agent(name="c"), tool_name_override="c", is_enabled=lambda context, agent: agent.name == "x")])',
    "empty": 'Agent(name="a", instructions="")',
    "penalties": 'Agent(name="a", model_settings=ModelSettings(frequency_penalty=0.1, presence_penalty=0.2))',
    "as_tool": 'Agent(name="a", tools=[Agent(name="b", instructions="Look.").as_tool("ask", "Ask b.")])',
    "files": 'Agent(name="a", tools=[FileSearchTool(vector_store_ids=["v"], include_search_results=True,'
    ' max_num_results=3, ranking_options={"ranker": "auto"}, filters={"type": "eq", "key": "k", "value": "v"})])',
    "web": 'Agent(name="a", tools=[WebSearchTool(search_content_types=["text", "image"], image_settings={"max_results":'
    ' 2}, filters={"allowed_domains": ["x.org"]}, user_location={"type": "approximate", "city": "Oslo"},'
    " external_web_access=False)])",
    "hosted": 'Agent(name="a", tools=[HostedMCPTool(tool_config={"type": "mcp", "server_label": "x", "server_url":'
    ' "https://x.org", "require_approval": "never"}), CodeInterpreterTool(tool_config={"type": "code_interpreter",'
    ' "container": {"type": "auto"}}), sdk.ImageGenerationTool(tool_config={"type": "image_generation"}),'
    ' ShellTool(environment={"type": "container_auto"})], model_settings=ModelSettings(tool_choice="shell"))',
    "own": 'Agent(name="a", model="gpt-5.4-pro", handoffs=[])',
    "unnamed": 'Agent(name="a", model="gpt-5.1", handoffs=[Agent(name="b")], tools=[Agent(name="c").as_tool("ask",'
    ' "Ask c.")])',
    "choice": 'Agent(name="a", model_settings=ModelSettings(tool_choice="shell"), tools=[function_tool(lambda: 1,'
    ' name_override="shell")])',
    "mcp": 'Agent(name="a", model_settings=ModelSettings(tool_choice=sdk.model_settings.MCPToolChoice("x", "y")))',
    "search": 'Agent(name="a", tools=[later, *tool_namespace(name="crm", description="customers", tools=[look]),'
    " ToolSearchTool()])",
}
"""Agents whose requests must be equal, as expressions with the names of AGENT_FILE_HEAD."""

LOOK = {"call": {"name": "look", "call_id": "c1", "arguments": {"order": "1"}}}
PICTURE = {"call": {"name": "picture", "call_id": "c2", "arguments": {"order": "2"}}}
DONE = {"text": "Done."}

REPLIES: Mapping[str, list[dict[str, Any]]] = {
    "tools": [LOOK, PICTURE, DONE],
    "no_reset": [LOOK, DONE],
    "stop": [LOOK],
    "model": [{"text": '{"cents": 3, "to": "Kim"}'}],
    "list": [{"text": '{"response": [1]}'}],
    "line": [{"text": '{"response": {"words": "hi"}}'}],
    "loose": [{"text": '{"a": 1}'}],
    "handoff": [{"call": {"name": "transfer_to_b", "call_id": "c1", "arguments": {}}}, {"text": "Paid."}],
    "unnamed": [
        {"call": {"name": "ask", "call_id": "c1", "arguments": {"input": "look"}}},
        DONE,
        {"call": {"name": "transfer_to_b", "call_id": "c2", "arguments": {}}},
        {"text": "Paid."},
    ],
    "choice": [{"call": {"name": "shell", "call_id": "c1", "arguments": {}}}, DONE],
    "as_tool": [{"call": {"name": "ask", "call_id": "c1", "arguments": {"input": "look"}}}, DONE],
}


MODELS = ("gpt-4o", "gpt-5.1", "gpt-5-mini", "gpt-5", "gpt-5.2-pro", "gpt-5.1-chat-latest")
CASES: list[tuple[str, str | None]] = [
    *(("own", model) for model in (None, "gpt-4o")),
    ("unnamed", None),
    *((name, "gpt-5.1") for name in AGENT_EXPRESSIONS),
    *(("plain", model) for model in MODELS if model != "gpt-5.1"),
]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_convo_sends_the_same_requests_as_the_agents_sdk(
    name: str, model: str | None, convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = write_agent(tmp_path, AGENT_EXPRESSIONS[name])
    replies = REPLIES.get(name, [{"text": "Hello."}])
    server.replies(*replies)
    asyncio.run(run_with_sdk(agent, server, model=model))
    expected, before = [normalize_request(body) for body in server.bodies], len(server.bodies)

    server.replies(*replies)
    model_flags = ("-m", f"openai/{model}") if model else ()
    got = convo("chat", "--agent", "desk.py:desk", *model_flags, "--json", "hello")

    assert got.exit == 0, got.out + got.err
    assert [normalize_request(body) for body in server.bodies[before:]] == expected


# -- the context of an agent's functions -----------------------------------------------------------

RECORDING_AGENT = """
SEEN = []

def seen(where, ctx, *more):
    call = getattr(ctx, "tool_call", None)
    SEEN.append({
        "where": where,
        "is": [isinstance(ctx, sdk.RunContextWrapper), isinstance(ctx, ToolContext)],
        "context": ctx.context,
        "usage": [ctx.usage.requests, len(ctx.usage.request_usage_entries), ctx.usage.total_tokens > 0],
        "details": [ctx.usage.input_tokens_details.cached_tokens, ctx.usage.output_tokens_details.reasoning_tokens],
        "turn_input": ctx.turn_input,
        "tool_input": ctx.tool_input,
        "tool": [getattr(ctx, name, None) for name in
            ("tool_name", "tool_call_id", "tool_arguments", "tool_namespace", "qualified_tool_name")],
        "call": call and [call.name, call.call_id, call.arguments, call.type],
        "agent": getattr(getattr(ctx, "agent", None), "name", None),
        "config": type(getattr(ctx, "run_config", None)).__name__,
        "more": [getattr(one, "name", one) for one in more],
    })
    return True

@function_tool(is_enabled=lambda ctx, agent: seen("tool is_enabled", ctx, agent))
def note(ctx: ToolContext, words: str) -> str:
    "Note it."
    seen("tool", ctx)
    if ctx.context is not None:
        ctx.context["noted"] = words
    return words

async def policy(ctx, arguments, call_id):
    seen("needs_approval", ctx, arguments, call_id)
    return False

@function_tool(needs_approval=policy)
def pay(ctx: sdk.RunContextWrapper, cents: int) -> str:
    "Pay."
    seen("paying tool", ctx)
    return str(cents)

def fail(ctx, error):
    seen("failure_error_function", ctx, type(error).__name__)
    return "it failed"

@function_tool(failure_error_function=fail)
def burn(ctx: ToolContext) -> str:
    "Burn."
    raise ValueError("no")

@sdk.input_guardrail
def polite(ctx, agent, said):
    seen("input guardrail", ctx, agent, said)
    return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

@sdk.output_guardrail
async def short(ctx, agent, said):
    seen("output guardrail", ctx, agent, said)
    return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

def told(ctx, agent):
    seen("instructions", ctx, agent)
    return "Be brief."

second = Agent(name="second", instructions=told, output_guardrails=[short])

def over(ctx):
    seen("on_handoff", ctx)

def make():
    SEEN.clear()
    return Agent(name="first", instructions=told, tools=[note, pay, burn], input_guardrails=[polite],
        handoffs=[handoff(second, on_handoff=over, is_enabled=lambda ctx, agent: seen("way is_enabled", ctx, agent))])

desk = make()
"""

CALLS: list[dict[str, Any]] = [
    {"call": {"name": "note", "call_id": "c1", "arguments": {"words": "hi"}}},
    {"call": {"name": "pay", "call_id": "c2", "arguments": {"cents": 3}}},
    {"call": {"name": "burn", "call_id": "c3", "arguments": {}}},
    {"call": {"name": "transfer_to_second", "call_id": "c4", "arguments": {}}},
    {"text": "Bye."},
]


@pytest.mark.parametrize("values", [None, {"customer": "A1"}])
def test_functions_get_the_same_context(
    values: dict[str, str] | None, convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(AGENT_FILE_HEAD + RECORDING_AGENT, encoding="utf-8")
    module = load_python_file(tmp_path / "desk.py")
    server.replies(*CALLS)
    asyncio.run(run_with_sdk(module.desk, server, context=None if values is None else dict(values), model="gpt-4o"))
    expected, module.SEEN[:] = list(module.SEEN), []

    server.replies(*CALLS)
    (tmp_path / "values.json").write_text(json.dumps(values), encoding="utf-8")
    flags = () if values is None else ("--context", "values.json")
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-4o", *flags, "hello")

    assert got.exit == 0, got.err
    assert distinct_records(module.SEEN) <= distinct_records(expected)
    repeated_calls = {"tool is_enabled", "way is_enabled"}  # the number of is_enabled calls differs between the runners
    assert all(
        json.loads(one)["where"] in repeated_calls for one in distinct_records(expected) - distinct_records(module.SEEN)
    )


def distinct_records(records: Sequence[Mapping[str, Any]]) -> set[str]:
    return {json.dumps(one, sort_keys=True) for one in records}


# -- output, hosted tools, context and cache keys --------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("Paid", '{"cents": 3, "to": "Kim"}', {"cents": 3, "to": "Kim"}),
        ("Line", '{"response": {"words": "hi"}}', {"words": "hi"}),
        ("list[Paid]", '{"response": [{"cents": 3, "to": "Kim"}]}', [{"cents": 3, "to": "Kim"}]),
    ],
)
def test_a_typed_final_output_is_printed_as_json(
    kind: str,
    text: str,
    value: Any,
    convo: Convo,
    server: LoopbackServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_agent(tmp_path, f'Agent(name="a", output_type={kind})')
    server.replies({"text": text})
    flags = ("--agent", "desk.py:desk", "-m", "openai/gpt-4o")
    assert convo("chat", *flags, "--json", "hello").json()["final_output"] == value
    (last,) = [one for one in lines(convo("chat", *flags, "--jsonl", "hello").out) if one["type"] == "convo.finished"]
    assert last["output"] == value
    assert json.loads(convo("chat", *flags, "hello").out) == json.loads(text)


def lines(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    "tool",
    [
        '{type = "local_shell"}',
        '{type = "shell"}',
        '{type = "apply_patch"}',
        '{type = "computer"}',
        '{type = "custom", name = "c"}',
        '{type = "tool_search", execution = "client"}',
    ],
)
def test_a_hosted_tool_whose_calls_cannot_be_executed_is_refused_before_any_request(
    tool: str, convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.toml").write_text(f"[agents.desk]\ntools = [{tool}]\n", encoding="utf-8")
    got = convo("chat", "--agent", "desk.toml", "-m", "openai/gpt-4o", "hello")
    assert (got.exit, server.bodies) == (1, [])
    assert "of agent 'desk'" in got.err


def test_a_hosted_shell_tool_is_sent_and_its_calls_are_executed_by_the_provider(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_agent(tmp_path, 'Agent(name="a", tools=[ShellTool(environment={"type": "container_auto"})])')
    output = [
        {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "shell_call_output", "id": "sho_1", "call_id": "c1", "output": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One file."}]},
    ]
    server.replies({"output": output})
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-4o", "hello")
    assert (got.exit, got.out.strip()) == (0, "One file.")
    assert server.bodies[0]["tools"] == [{"type": "shell", "environment": {"type": "container_auto"}}]


def test_a_context_that_a_tool_changed_is_stored_in_the_state_of_a_pause(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = RECORDING_AGENT.replace("needs_approval=policy", "needs_approval=True")
    (tmp_path / "desk.py").write_text(AGENT_FILE_HEAD + text, encoding="utf-8")
    (tmp_path / "values.json").write_text('{"customer": "A1"}', encoding="utf-8")
    server.replies(*CALLS)
    flags = ("--agent", "desk.py:desk", "-m", "openai/gpt-4o", "--context", "values.json")
    got = convo("chat", *flags, "--state", "run.json", "hello")
    assert got.exit == 3
    state = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert state["context"]["context"] == {"customer": "A1", "noted": "hi"}


def test_usage_is_kept_after_a_pause_in_another_command(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = RECORDING_AGENT.replace("needs_approval=policy", "needs_approval=True")
    (tmp_path / "desk.py").write_text(AGENT_FILE_HEAD + text, encoding="utf-8")
    module = load_python_file(tmp_path / "desk.py")
    server.replies(*CALLS)
    flags = ("--agent", "desk.py:desk", "-m", "openai/gpt-4o")
    assert convo("chat", *flags, "-n", "mine", "hello").exit == 3
    module.SEEN.clear()
    got = convo("resume", "mine", *flags, "--approve", "all")
    assert got.exit == 0, got.err
    record = next(one for one in module.SEEN if one["where"] == "paying tool")
    assert (record["usage"], record["turn_input"]) == ([2, 2, True], [{"content": "hello", "role": "user"}])
    assert [one["usage"][0] for one in module.SEEN if one["where"] == "output guardrail"] == [5]


def test_a_tool_that_decides_an_approval_fails_the_run_with_a_named_error(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        AGENT_FILE_HEAD
        + "@function_tool\ndef note(ctx: ToolContext) -> str:\n    ctx.approve_tool(None)\n    return 'x'\n"
    )
    (tmp_path / "desk.py").write_text(f"{text}\ndesk = Agent(name='a', tools=[note])\n", encoding="utf-8")
    server.replies({"call": {"name": "note", "arguments": {}}}, DONE)
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-4o", "hello")
    assert got.exit == 1
    assert "approve_tool and reject_tool of a run context" in got.err


def test_a_local_package_named_agents_is_not_the_agents_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("agents")
    agent_type = type("Agent", (), {"__module__": "agents.own", "name": "a", "handoffs": [], "tools": []})
    monkeypatch.setitem(sys.modules, "agents", module)
    with pytest.raises(InputFault, match="Agent is not an agent"):
        from_object(agent_type())


@pytest.mark.parametrize(
    ("settings", "url", "key"),
    [
        ("", "https://api.openai.com/v1", "agents-sdk:session:"),
        (', model_settings=ModelSettings(extra_args={"prompt_cache_key": "own"})', "https://api.openai.com/v1", "own"),
        ("", "http://api.openai.com/v1", ""),
        ("", "https://eu.api.openai.com/v1", ""),
        ("", "https://example.org/v1", ""),
    ],
)
def test_requests_to_openai_have_the_prompt_cache_key_of_the_session_as_in_the_sdk(
    convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, url: str, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    write_agent(tmp_path, f'Agent(name="desk"{settings})')
    assert convo("chat", "-m", "scripted/echo", "-n", "mine", "hello").exit == 0
    argv = ("next", "mine", "hi", "-m", "openai/gpt-5-mini", "--agent", f"{tmp_path / 'desk.py'}:desk", "--json")

    first, second = (convo(*argv).json()["body"].get("prompt_cache_key") for _ in range(2))

    session = convo("sessions", "show", "mine", "--json").json()["id"]
    session_key = f"agents-sdk:session:{sha256(session.encode()).hexdigest()[:32]}"
    assert first == second == (session_key if key.startswith("agents-sdk") else key or None)


def test_convo_agents_have_no_prompt_cache_key(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1")
    (tmp_path / "own.py").write_text('from convo.agents import Agent\ndesk = Agent("desk")\n')
    assert convo("chat", "-m", "scripted/echo", "-n", "mine", "hello").exit == 0

    argv = ("next", "mine", "hi", "-m", "openai/gpt-5-mini", "--agent", f"{tmp_path / 'own.py'}:desk", "--json")

    assert "prompt_cache_key" not in convo(*argv).json()["body"]


OWN_MODELS = {
    "an object": "desk.model = agents.OpenAIResponsesModel(model='m', openai_client=client)\n",
    "a provider": "run = agents.RunConfig(model_provider=OpenAIProvider(openai_client=client))\n",
    "a client for all agents": "desk.model = 'm'\nagents.set_default_openai_client(client)\n",
}


@pytest.mark.parametrize("kind", OWN_MODELS)
def test_a_model_that_the_agent_brings_makes_the_requests_as_in_the_sdk(
    kind: str, convo: Convo, server: LoopbackServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of HTTP requests are those of the SDK, and its retries too."""
    monkeypatch.setattr(shared, "_default_openai_client", None)
    head = f"import agents\nfrom openai import AsyncOpenAI\n{AGENT_FILE_HEAD}"
    head += "from agents.models.openai_provider import OpenAIProvider\n"
    head += f"client = AsyncOpenAI(base_url={server.url!r}, api_key={KEY!r}, max_retries=0)\n"
    head += "retry = agents.ModelRetrySettings(max_retries=1, policy=agents.retry_policies.http_status([503]))\n"
    head += "settings = ModelSettings(temperature=0.5, tool_choice='look', extra_headers={'x-a': '1'}, retry=retry)\n"
    head += "desk = Agent(name='desk', tools=[look], output_type=Paid, model_settings=settings)\n"
    Path("desk.py").write_text(head + OWN_MODELS[kind], encoding="utf-8")
    replies = (LOOK, {"text": '{"cents": 3, "to": "Kim"}'})

    server.replies(*replies)
    desk = load_python_file(Path("desk.py").resolve())
    asyncio.run(sdk.Runner.run(desk.desk, "hello", run_config=getattr(desk, "run", None)))
    expected = list(server.bodies)

    load_python_file.cache_clear()  # for a client of another event loop
    server.replies(*replies)
    options = ("--run-config", "desk.py:run") if kind == "a provider" else ()
    got = convo("chat", "--agent", "desk.py:desk", *options, "hello")

    assert (got.exit, json.loads(got.out)) == (0, {"cents": 3, "to": "Kim"}), got.err
    own = server.bodies[len(expected) :]
    assert [normalize_own(body) for body in own] == [normalize_own(body) for body in expected]
    assert len(own) == len(replies)


def normalize_own(body: Mapping[str, Any]) -> dict[str, Any]:
    """Normalize a request without the choice of a stream, which convo always reads."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options", "input")}


def test_settings_for_all_agents_that_have_no_effect_are_said_to_be_ignored(convo: Convo, home: Path) -> None:
    script = "import agents, agents.tracing\n"
    agent = "desk = agents.Agent(name='desk', tools=[fail], model_settings=settings)\n"
    tool = "@agents.function_tool\ndef fail() -> str:\n    raise ValueError('no')\n"
    flags = ("--agent", "desk.py:desk", *scripted_flags({"call": {"name": "fail", "call_id": "c1"}}, {"text": "Hi."}))
    try:
        text = f"{script}agents.set_default_openai_api('chat_completions')\nagents.set_trace_processors([object()])\n"
        text += "settings = agents.ModelSettings(retry=agents.ModelRetrySettings(max_retries=1))\n"
        Path("desk.py").write_text(text + tool + agent)
        got = convo("chat", *flags, "hello")
        assert (got.exit, got.out) == (0, "Hi.\n"), got.err
        assert "set_default_openai_api is ignored" in got.err
        assert "the model setting retry is ignored" in got.err
        assert "trace processors are not called" in got.err
        assert "active span" not in got.err
    finally:
        sdk.set_default_openai_api("responses")
        sdk.set_trace_processors([])
