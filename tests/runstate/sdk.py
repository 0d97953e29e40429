"""Resume a run state with the installed Agents SDK, using the agents, tools and scripted model of its scenario.

Everything is deterministic: a tool returns its name and its arguments. When its script has ended, the
model returns a message with all tool outputs of the request, so that the final output identifies the
last request. The requests are kept for comparison.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import agents
from agents import Agent, FunctionTool, RunConfig, Runner, RunState, SQLiteSession
from agents.editor import ApplyPatchResult
from agents.items import ModelResponse, TResponseInputItem
from agents.mcp import MCPServer
from agents.models.interface import Model
from agents.tool import CustomTool, ShellCallOutcome, ShellCommandOutput, ShellResult
from agents.usage import Usage
from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult, TextContent
from mcp.types import Tool as McpTool
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItem
from pydantic import TypeAdapter

Scenario = dict[str, Any]
Decide = Callable[[str], str]

MAX_OUTPUT_CHARACTERS = 400
"""The final message contains a digest of the outputs if their JSON is longer than this, in characters."""

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)


@dataclass(frozen=True)
class RunResult:
    """The result of a run: its final output or its error, the requests, and the total tokens of the run.

    `rounds` has the number of pending calls at each pause."""

    output: str | None
    error: tuple[str, str] | None
    requests: list[dict[str, Any]]
    tokens: int | None
    rounds: list[int]


@dataclass
class Script(Model):
    """A model that returns the responses of a scenario's script, from call `at` on."""

    turns: list[list[dict[str, Any]]]
    at: int
    usages: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        *args: Any,
        **more: Any,
    ) -> ModelResponse:
        index, items = self.at, input_items(input)
        self.at += 1
        _, tools, _, handoffs = args[:4] if args else (None, more["tools"], None, more["handoffs"])
        self.requests.append(
            {
                "index": index,
                "system_instructions": system_instructions,
                "input": items,
                "previous_response_id": more.get("previous_response_id"),
                "conversation_id": more.get("conversation_id"),
                "tools": [tool.name for tool in tools],
                "handoffs": [handoff.tool_name for handoff in handoffs],
            }
        )
        output = self.turns[index] if index < len(self.turns) else [final_message(index, system_instructions, items)]
        return ModelResponse(
            output=[ITEM.validate_python(item) for item in output],
            usage=self._usage(index),
            response_id=f"resp_{index:03}",
        )

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002
        *args: Any,
        **more: Any,
    ) -> AsyncIterator[ResponseCompletedEvent]:
        answer = await self.get_response(system_instructions, input, *args, **more)
        usage = answer.usage
        response = Response.model_construct(
            id=answer.response_id,
            output=answer.output,
            usage=_response_usage(usage),
            object="response",
            created_at=0,
            model="script",
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    def _usage(self, index: int) -> Usage:
        usage = self.usages[index] if index < len(self.usages) else {}
        sent, got = usage.get("input_tokens", 10 + index), usage.get("output_tokens", 3 + index)
        return Usage(requests=1, input_tokens=sent, output_tokens=got, total_tokens=sent + got)


def _response_usage(usage: Usage) -> Any:
    from openai.types.responses import ResponseUsage

    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens=usage.output_tokens,
        output_tokens_details=usage.output_tokens_details,
        total_tokens=usage.total_tokens,
    )


def input_items(input_: str | list[TResponseInputItem]) -> list[dict[str, Any]]:
    """Return the input of a request as plain JSON."""
    if isinstance(input_, str):
        return [{"content": input_, "role": "user"}]
    found: list[dict[str, Any]] = json.loads(json.dumps(input_, default=_plain))
    return found


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True)


def final_message(index: int, instructions: str | None, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the final message, which contains every tool output of the request."""
    outputs = [
        [item.get("call_id") or item.get("approval_request_id"), item.get("output", item.get("approve"))]
        for item in items
        if str(item.get("type")).endswith(("_output", "mcp_approval_response"))
    ]
    text = json.dumps(outputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(text) > MAX_OUTPUT_CHARACTERS:
        text = "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    content = [{"type": "output_text", "text": f"FINAL<{instructions}>{text}", "annotations": []}]
    return {"type": "message", "id": f"msg_{index:03}", "role": "assistant", "status": "completed", "content": content}


# -- the agents of a scenario --------------------------------------------------------------------------


def graph(scenario: Scenario, model: Model) -> Agent[Any]:
    """Create the agents of a scenario in its order; return the agent that starts the run."""
    spec = scenario["spec"]
    made_agents: dict[str, Agent[Any]] = {}
    for name in spec["order"]:
        made_agents[name] = _agent(spec["agents"][name], made_agents, model)
    return made_agents[spec["root"]]


def _agent(spec: dict[str, Any], made_agents: dict[str, Agent[Any]], model: Model) -> Agent[Any]:
    tools: list[Any] = []
    servers: list[Any] = []
    for tool in spec.get("tools", []):
        if tool["kind"] == "local_mcp":
            servers.append(LocalServer(tool))
        else:
            tools += TOOLS[tool["kind"]](tool, made_agents)
    return Agent(
        name=spec["name"],
        instructions=spec["instructions"],
        model=model,
        tools=tools,
        mcp_servers=servers,
        handoffs=[_handoff(one, made_agents) for one in spec.get("handoffs", [])],
        tool_use_behavior=spec.get("tool_use_behavior", "run_llm_again"),
        input_guardrails=[agents.InputGuardrail(guardrail_function=_passes)] if spec.get("input_guardrail") else [],
        output_guardrails=[agents.OutputGuardrail(guardrail_function=_passes)] if spec.get("output_guardrail") else [],
    )


async def _passes(*args: Any) -> agents.GuardrailFunctionOutput:
    return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


def _handoff(spec: Any, made_agents: dict[str, Agent[Any]]) -> Any:
    if isinstance(spec, str):
        return made_agents[spec]
    return agents.handoff(made_agents[spec["agent"]], tool_name_override=spec["tool_name"])


def _function(spec: dict[str, Any], made_agents: dict[str, Agent[Any]]) -> list[Any]:
    name = spec["name"]

    async def invoke(context: Any, arguments: str) -> Any:
        return function_output(spec, arguments)

    tool = FunctionTool(
        name=name,
        description=f"{name} tool",
        params_json_schema={"type": "object", "properties": {}, "additionalProperties": True},
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=spec.get("needs_approval", False),
    )
    space = spec.get("namespace")
    return list(agents.tool_namespace(name=space, description=f"{space} tools", tools=[tool])) if space else [tool]


def function_output(spec: dict[str, Any], arguments: str) -> Any:
    """Return the output of a function tool of a scenario."""
    values = json.loads(arguments) if arguments else {}
    match spec.get("output"):
        case "dict":
            return {"tool": spec["name"], "args": values, "n": 3, "ok": True, "none": None, "pi": 3.25}
        case "empty":
            return ""
        case "structured":
            return [
                agents.ToolOutputText(text=f"{spec['name']} text"),
                agents.ToolOutputImage(image_url="https://example.invalid/a.png", detail="low"),
            ]
    return echo(spec["name"], values)


def echo(name: str, arguments: Any) -> str:
    return f"{name}=>" + json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _agent_tool(spec: dict[str, Any], agents: dict[str, Agent[Any]]) -> list[Any]:
    needs = spec.get("needs_approval", False)
    return [
        agents[spec["agent"]].as_tool(
            tool_name=spec["name"], tool_description=f"{spec['name']} tool", needs_approval=needs
        )
    ]


def _shell(spec: dict[str, Any], made_agents: dict[str, Agent[Any]]) -> list[Any]:
    def run(request: Any) -> ShellResult:
        outcome = ShellCallOutcome(type="exit", exit_code=0)
        return ShellResult(output=[ShellCommandOutput(stdout="shell ok", stderr="", outcome=outcome)])

    return [agents.ShellTool(executor=run, needs_approval=spec["needs_approval"])]


class Editor:
    """An editor that reports a change of each file and changes none."""

    def create_file(self, operation: Any) -> ApplyPatchResult:
        return ApplyPatchResult(output=f"created {operation.path}")

    def update_file(self, operation: Any) -> ApplyPatchResult:
        return ApplyPatchResult(output=f"updated {operation.path}")

    def delete_file(self, operation: Any) -> ApplyPatchResult:
        return ApplyPatchResult(output=f"deleted {operation.path}")


def _apply_patch(spec: dict[str, Any], made_agents: dict[str, Agent[Any]]) -> list[Any]:
    return [agents.ApplyPatchTool(editor=Editor(), needs_approval=spec["needs_approval"])]


def _custom(spec: dict[str, Any], agents: dict[str, Agent[Any]]) -> list[Any]:
    async def invoke(context: Any, arguments: str) -> str:
        return f"{spec['name']}=>{arguments}"

    return [
        CustomTool(
            name=spec["name"],
            description=f"{spec['name']} tool",
            on_invoke_tool=invoke,
            needs_approval=spec["needs_approval"],
        )
    ]


def _hosted(spec: dict[str, Any], made_agents: dict[str, Agent[Any]]) -> list[Any]:
    config: Any = {
        "type": "mcp",
        "server_label": spec["server_label"],
        "server_url": "https://example.invalid/mcp",
        "require_approval": "always",
    }
    return [agents.HostedMCPTool(tool_config=config)]


TOOLS = {
    "function": _function,
    "agent_tool": _agent_tool,
    "shell": _shell,
    "apply_patch": _apply_patch,
    "custom": _custom,
    "hosted_mcp": _hosted,
}


class LocalServer(MCPServer):
    """An in-process MCP server whose tools return their arguments."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(require_approval="always" if spec["needs_approval"] else None)
        self._spec = spec

    @property
    def name(self) -> str:
        return str(self._spec["server_label"])

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *args: Any, **more: Any) -> list[McpTool]:
        schema = {"type": "object", "properties": {"q": {"type": "string"}}}
        tools = ({"name": name, "description": f"{name} tool", "inputSchema": schema} for name in self._spec["tools"])
        return [McpTool.model_validate(tool) for tool in tools]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None, meta: Any = None) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=echo(tool_name, arguments or {}))])

    async def list_prompts(self) -> ListPromptsResult:
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise NotImplementedError


# -- resume --------------------------------------------------------------------------------------------


MAX_ROUNDS = 6
"""A run that pauses again after this many rounds of approvals is not resumed."""


async def resume_in_sdk(scenario: Scenario, text: str, decide: Decide | None = None) -> RunResult:
    """Resume the decided state `text` until the run ends.

    decide:  returns the text of a later pause with decisions; without it the SDK approves the
             pending calls in this process
    """
    async with _filled_session(scenario) as session:
        return await _resume_with_session(scenario, text, decide, session)


async def _resume_with_session(
    scenario: Scenario, text: str, decide: Decide | None, session: SQLiteSession | None
) -> RunResult:
    spec = scenario["spec"]
    model = Script(spec["script"], scenario["expected"]["model_calls_made"], spec.get("usages", []))
    root = graph(scenario, model)
    settings = RunConfig(tracing_disabled=True, nest_handoff_history=spec["run"].get("nest_handoff_history", False))
    rounds = [pending_count(text)]
    try:
        state: Any = await RunState.from_string(root, text)
        while True:
            result = await _resume(root, state, settings, session, streamed=spec["run"].get("stream", False))
            if not result.interruptions or len(rounds) == MAX_ROUNDS:
                break
            rounds.append(len(result.interruptions))
            state = await _decide(root, result, decide)
    except agents.AgentsException as error:
        return RunResult(None, (type(error).__name__, str(error)), model.requests, None, rounds)
    output = None if result.final_output is None else str(result.final_output)
    return RunResult(output, None, model.requests, result.context_wrapper.usage.total_tokens, rounds)


def pending_count(text: str) -> int:
    """Return the number of pending calls of a state."""
    step = json.loads(text)["current_step"] or {}
    return len(step.get("data", {}).get("interruptions", []))


async def _decide(root: Agent[Any], result: Any, decide: Decide | None) -> Any:
    state = result.to_state()
    if decide:
        return await RunState.from_string(root, decide(state.to_string()))
    for item in result.interruptions:
        state.approve(item)
    return state


async def _resume(root: Agent[Any], state: Any, settings: RunConfig, session: Any, *, streamed: bool) -> Any:
    if not streamed:
        return await Runner.run(root, state, run_config=settings, session=session)
    result = Runner.run_streamed(root, state, run_config=settings, session=session)
    async for _ in result.stream_events():
        pass
    return result


@asynccontextmanager
async def _filled_session(scenario: Scenario) -> AsyncIterator[SQLiteSession | None]:
    spec = scenario["spec"]
    with memory_session(spec) as session:
        if session is not None:
            before = scenario["expected"].get("session_before")
            await session.add_items(before if before is not None else spec["session"]["history"])
        yield session


@contextmanager
def memory_session(spec: dict[str, Any]) -> Iterator[SQLiteSession | None]:
    """Open the session of a scenario in memory; None if it has none."""
    if not spec.get("session"):
        yield None
        return
    with closing(SQLiteSession(spec["session"]["id"])) as session:
        yield session
