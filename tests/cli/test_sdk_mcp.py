"""An agent of the Agents SDK with MCP servers: the requests of the SDK's own runner, and approvals that pause."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents.mcp import MCPServerManager

from convo.cli.agent_options import load_python_file
from tests.cli.chat_commands import scripted_flags
from tests.cli.test_sdk_agents import DONE, normalize_request, run_with_sdk
from tests.command_runner import ROOT, Convo
from tests.loopback_server import LoopbackServer

pytestmark = pytest.mark.needs("mcp")

FILE = """
import agents as sdk
from agents.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp, create_static_tool_filter

@sdk.function_tool
def look(order: str) -> str:
    "Find an order."
    return order

def is_short(context, tool):
    return context.agent.name == "a" and context.server_name == "math" and len(tool.name) < 5

def needs(context, agent, tool):
    return agent.name == "a" and tool.name == "add"

def server(**settings):
    settings = {{"name": "math", "client_session_timeout_seconds": 30, **settings}}
    return MCPServerStreamableHttp({{"url": {http!r}}}, **settings)

def agent(*servers, **settings):
    return sdk.Agent(name="a", mcp_servers=[*servers], **settings)

desk = {agent}
"""

AGENTS = {
    "http": "agent(server(), tools=[look])",
    "sse": 'agent(MCPServerSse({{"url": {sse!r}}}, name="math", client_session_timeout_seconds=30))',
    "stdio": 'agent(MCPServerStdio({{"command": {python!r}, "args": ["-m", "tests.mcp_server"], "cwd": {root!r}}},'
    ' name="math", client_session_timeout_seconds=30, cache_tools_list=True))',
    "static filter": 'agent(server(tool_filter=create_static_tool_filter(["add", "fail"], ["fail"])))',
    "callable filter": "agent(server(tool_filter=is_short))",
    "strict": 'agent(server(), mcp_config={{"convert_schemas_to_strict": True}})',
    "prefixed": 'agent(server(), server(name="more"), mcp_config={{"include_server_in_tool_names": True}})',
    "stop": 'agent(server(), tool_use_behavior={{"stop_at_tool_names": ["add"]}})',
    "structured": "agent(server(use_structured_content=True))",
}
"""Agents whose requests must be equal, as expressions with the names of `FILE`."""


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": name, "call_id": call_id, "arguments": arguments}}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    """Running MCP servers by transport."""
    from tests.mcp_server import run_mcp_server

    with ExitStack() as stack:
        yield {name: stack.enter_context(run_mcp_server(sse=name == "sse")) for name in ("http", "sse")}


def write_agent(servers: dict[str, Any], agent: str, name: str = "desk.py") -> Path:
    urls = {name: server.url for name, server in servers.items()}
    values = {**urls, "python": sys.executable, "root": str(ROOT)}
    Path(name).write_text(FILE.format(**values, agent=agent.format(**values)))
    return Path(name).absolute()


LONG = pytest.mark.full(every_commit=True)
"""A process that imports the mcp package takes seconds."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if name == "stdio" else ()) for name in AGENTS])
def test_the_requests_are_those_of_the_agents_sdk(
    name: str, servers: dict[str, Any], convo: Convo, server: LoopbackServer
) -> None:
    file = write_agent(servers, AGENTS[name])
    add = call("mcp_math__add" if name == "prefixed" else "add", a=2, b=3)
    fail = () if name in ("prefixed", "static filter") else (call("fail", "c2", reason="no"),)
    replies = (add, *fail, DONE)

    async def run() -> None:
        agent = load_python_file(file).desk
        async with MCPServerManager(agent.mcp_servers, strict=True, connect_in_parallel=True):
            await run_with_sdk(agent, server, model="gpt-5.1")

    server.replies(*replies)
    asyncio.run(run())
    expected, before = [normalize_request(body) for body in server.bodies], len(server.bodies)
    server.replies(*replies)
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-5.1", "hello")
    assert got.exit == 0, got.out + got.err
    assert "No active" not in got.err
    assert [normalize_request(body) for body in server.bodies[before:]] == expected


APPROVALS = ('"always"', '{{"always": {{"tool_names": ["add"]}}}}', '{{"add": "always"}}', "needs")


@pytest.mark.parametrize("policy", APPROVALS)
def test_a_call_pauses_by_require_approval_and_runs_once(policy: str, servers: dict[str, Any], convo: Convo) -> None:
    write_agent(servers, f"agent(server(require_approval={policy}))")
    calls = servers["http"].calls
    calls.clear()
    for name, decision, expected in (("yes", "--approve", ["add"]), ("no", "--reject", [])):
        model = scripted_flags(call("add", a=2, b=3), DONE)
        got = convo("chat", "--agent", "desk.py:desk", *model, "-n", name, "2 + 3?")
        assert (got.exit, calls) == (3, []), got.err
        resumed = convo("resume", name, decision, "c1")
        assert (resumed.exit, resumed.out, calls) == (0, "Done.\n", expected), resumed.err
        calls.clear()


def test_a_paused_run_moves_between_convo_and_the_sdk(
    servers: dict[str, Any], convo: Convo, server: LoopbackServer
) -> None:
    file = write_agent(servers, 'agent(server(require_approval="always"))')
    calls = servers["http"].calls
    calls.clear()
    server.replies(call("add", a=2, b=3), DONE)
    model = ("-m", "openai/gpt-5.1")
    assert convo("chat", "--agent", "desk.py:desk", *model, "--state", "ours.json", "2 + 3?").exit == 3

    async def run(state_text: str) -> tuple[str, str]:
        agent = load_python_file(file).desk
        async with MCPServerManager(agent.mcp_servers, strict=True, connect_in_parallel=True):
            state = await sdk.RunState.from_string(agent, state_text)
            state.approve(state.get_interruptions()[0])
            output = (await run_with_sdk(agent, server, state, model="gpt-5.1")).final_output
            paused = await run_with_sdk(agent, server, "2 + 3?", model="gpt-5.1")
            return str(output), paused.to_state().to_string()

    output, their_text = asyncio.run(run(Path("ours.json").read_text()))
    assert (output, calls) == ("Done.", ["add"])
    calls.clear()
    Path("theirs.json").write_text(their_text)
    state = json.loads(their_text)
    assert [*state["last_processed_response"]["mcp_tool_bindings"].values()] == [["math", "add", 0]]
    write_agent(servers, 'agent(server(name="other", require_approval="always"))', "other.py")
    got = convo("resume", "theirs.json", "--agent", "other.py:desk", *model, "--approve", "all")
    assert (got.exit != 0, calls) == (True, []), got.err
    assert "is for another MCP server or tool than tool 'add' now" in got.err
    got = convo("resume", "theirs.json", "--agent", "desk.py:desk", *model, "--approve", "all")
    assert (got.exit, got.out, calls) == (0, "Done.\n", ["add"]), got.err
