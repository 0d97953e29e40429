"""Tools of the Agents SDK that are no functions: the executor that the agent brings performs their calls."""

import asyncio
import json
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI

from convo.cli.agent_options import load_python_file
from tests.cli.test_sdk_agents import normalize_request, run_with_sdk
from tests.command_runner import Convo
from tests.loopback_server import KEY, LoopbackServer

EXECUTOR_FILE = """
import agents as sdk

DONE = []

async def execute(request):
    DONE.append(request.data.action)
    return sdk.ShellResult([sdk.ShellCommandOutput(stdout="hi", outcome=sdk.ShellCallOutcome("exit", 0))])

class Editor:
    def create_file(self, operation):
        DONE.append(operation.path)
        return sdk.editor.ApplyPatchResult(output=f"Created {operation.path}")
    update_file = delete_file = create_file

def shout(context, text):
    DONE.append(text)
    return text.upper()

def run_locally(request):
    DONE.append(request.data.action.command)
    return "hi"

def decide(context, item):
    return {"approve": DECISION, "reason": "as told"}

DECISION = True
NEED = True
"""

EXECUTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "shell": (
        "sdk.ShellTool(executor=execute{})",
        {"type": "shell_call", "id": "sh_1", "action": {"commands": ["echo hi"]}, "status": "completed"},
    ),
    "apply_patch": (
        "sdk.ApplyPatchTool(editor=Editor(){})",
        {
            "type": "apply_patch_call",
            "id": "ap_1",
            "status": "completed",
            "operation": {"type": "create_file", "path": "a.md", "diff": "+hi\n"},
        },
    ),
    "custom": (
        "sdk.CustomTool(name='shout', description='Shouts.', on_invoke_tool=shout{})",
        {"type": "custom_tool_call", "id": "ctc_1", "name": "shout", "input": "hi"},
    ),
    "local_shell": (
        "sdk.LocalShellTool(executor=run_locally)",
        {
            "type": "local_shell_call",
            "id": "ls_1",
            "status": "completed",
            "action": {"type": "exec", "command": ["echo", "hi"], "env": {}},
        },
    ),
}
"""Tools that are no functions, with the executor that the agent brings, and a call of each."""

APPROVALS = ("", ", needs_approval=True, on_approval=decide", ", needs_approval=True")

CASES = [(kind, approval) for kind in EXECUTORS for approval in APPROVALS if kind != "local_shell" or not approval]
"""A local shell has no approval."""

STATE_PARTS = ("last_processed_response", "current_step", "generated_items", "tool_use_tracker")


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize(("kind", "approval"), CASES)
def test_a_tool_with_the_executor_of_the_agent_runs_as_in_the_sdk(
    kind: str, approve: bool, approval: str, convo: Convo, server: LoopbackServer, home: Path
) -> None:
    expression, item = EXECUTORS[kind]
    settings = "model_settings=sdk.ModelSettings(tool_choice='required')"
    Path("desk.py").write_text(
        f"{EXECUTOR_FILE}DECISION = {approve}\n"
        f"desk = sdk.Agent(name='desk', model='gpt-4o', {settings}, tools=[{expression.format(approval)}])\n"
    )
    desk = load_python_file(Path("desk.py").resolve())
    replies = ({"output": [{**item, "call_id": "c1"}]}, {"text": "Done."})

    async def run() -> Any:
        async with AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
            config = sdk.RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)
            result = await sdk.Runner.run(desk.desk, "hello", run_config=config)
            if not result.interruptions:
                return None
            state = result.to_state()
            document = state.to_json()
            (state.approve if approve else state.reject)(result.interruptions[0])
            await sdk.Runner.run(desk.desk, state, run_config=config)
            return document

    server.replies(*replies)
    paused = asyncio.run(run())
    expected, performed = [normalize_request(body) for body in server.bodies], list(desk.DONE)
    assert len(expected) == len(replies)

    desk.DONE.clear()
    server.replies(*replies)
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-4o", "--state", "paused.json", "hello")
    assert got.exit == (0 if paused is None else 3), got.err
    if paused is not None:
        state = json.loads(Path("paused.json").read_text())
        assert {part: without_ids(state[part]) for part in STATE_PARTS} == {
            part: without_ids(paused[part]) for part in STATE_PARTS
        }
        assert state["context"]["tool_invocations"] == paused["context"]["tool_invocations"]
        decision = "--approve" if approve else "--reject"
        resumed = convo("resume", "paused.json", "--agent", "desk.py:desk", decision, "c1")
        assert resumed.exit == 0, resumed.err
    own = [normalize_request(body) for body in server.bodies[len(expected) :]]
    assert (own, desk.DONE) == (expected, performed)


@pytest.mark.parametrize("approve", [True, False])
def test_the_approval_function_of_a_hosted_mcp_tool_answers_as_in_the_sdk(
    approve: bool, convo: Convo, server: LoopbackServer, home: Path
) -> None:
    Path("desk.py").write_text(
        "import agents as sdk\n"
        "config = {'type': 'mcp', 'server_label': 'wiki', 'server_url': 'https://x.org'}\n"
        "def decide(request):\n"
        f"    return {{'approve': {approve}, 'reason': request.data.name}}\n"
        "tools = [sdk.HostedMCPTool(tool_config=config, on_approval_request=decide)]\n"
        "tools += [sdk.function_tool(lambda: 'now', name_override='clock')]\n"
        "desk = sdk.Agent(name='desk', model='gpt-4o', tools=tools)\n"
    )
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki", "name": "ask", "arguments": "{}"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "clock", "arguments": "{}"}
    replies = ({"output": [call, request]}, {"text": "Done."})
    agent = load_python_file(Path("desk.py").resolve()).desk
    server.replies(*replies)
    asyncio.run(run_with_sdk(agent, server))
    expected = [normalize_request(body) for body in server.bodies]
    server.replies(*replies)
    got = convo("chat", "--agent", "desk.py:desk", "-m", "openai/gpt-4o", "hello")
    assert (got.exit, got.out) == (0, "Done.\n"), got.err
    assert [normalize_request(body) for body in server.bodies[len(expected) :]] == expected


def without_ids(value: Any) -> Any:
    """Return a part of a state without empty values, which the SDK writes for fields of its classes."""
    if isinstance(value, dict):
        members = {name: without_ids(member) for name, member in value.items() if member is not None}
        return {name: member for name, member in members.items() if member not in ([], {})}
    return [without_ids(member) for member in value] if isinstance(value, list) else value
