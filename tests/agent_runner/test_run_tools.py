"""Tools in a run: parallel calls and their limit, timeouts, failures, and the outputs that the model receives."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agents.agent import Agent, output
from convo.errors import RequestRefused, RunFailed
from convo.history.records import Strategy
from convo.runs.state import RunLimits
from convo.tools.tool import Context, tool
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
    read_events,
    request_inputs,
    scripted_model,
    send_message,
    stored_items,
    tool_calls,
)
from tests.chat.conftest import ChatHarness
from tests.chat.recording_endpoint import EndpointFault
from tests.chat.tool_log import ToolLog


async def run_tools(harness: ChatHarness, *tools: Any, reply: dict[str, Any] | None = None) -> list[str]:
    """Run one batch of calls; returns the outputs that the model received."""
    harness.model = scripted_model(harness.folder, reply or tool_calls(*(one.name for one in tools)), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=tuple(tools)))
    await send_message(one, "hello")
    return [item["output"] for item in harness.bodies[-1]["input"] if item.get("type") == "function_call_output"]


async def test_a_tool_may_be_sync_or_async_and_gets_the_context_of_its_caller(harness: ChatHarness) -> None:
    @tool
    def plain(context: Context) -> dict[str, str]:
        return {"agent": context.agent, "call": context.call_id}

    @tool
    async def waiting(context: Context) -> str:
        await asyncio.sleep(0)
        return context.tool

    assert await run_tools(harness, plain, waiting) == ['{"agent": "desk", "call": "call_1"}', "waiting"]


async def test_a_parameter_of_a_tool_may_have_any_name(harness: ChatHarness) -> None:
    @tool
    def reply(function: str, thread: str, work: str, args: str) -> str:
        return " ".join((function, thread, work, args))

    @tool
    async def forward(function: str, thread: str) -> str:
        return f"{function} {thread}"

    given = {"function": "say", "thread": "t1", "work": "now", "args": "all"}
    both = tool_calls(("call_1", "reply", given), ("call_2", "forward", {"function": "send", "thread": "t2"}))
    assert await run_tools(harness, reply, forward, reply=both) == ["say t1 now all", "send t2"]


async def test_tools_run_in_parallel_and_their_outputs_are_sent_in_the_order_of_the_calls(
    harness: ChatHarness,
) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    @tool
    async def one() -> str:
        first.set()
        await second.wait()
        return "one"

    @tool
    async def two() -> str:
        await first.wait()
        second.set()
        return "two"

    assert await run_tools(harness, one, two) == ["one", "two"]


async def test_no_more_tools_run_concurrently_than_the_limit_allows(harness: ChatHarness) -> None:
    counts: list[int] = [0, 0]

    @tool
    async def busy() -> str:
        counts[0] += 1
        counts[1] = max(counts)
        await asyncio.sleep(0)
        counts[0] -= 1
        return "done"

    harness.model = scripted_model(
        harness.folder, tool_calls(*[(f"c{n}", "busy") for n in range(7)]), {"text": "Done."}
    )
    one = await open_runner(harness, Agent("desk", tools=(busy,)), RunConfig(RunLimits(max_parallel_calls=2)))
    await send_message(one, "hello")
    assert counts == [0, 2]


async def test_the_model_gets_an_error_message_for_a_tool_that_raised_or_timed_out(harness: ChatHarness) -> None:
    @tool
    def broken() -> str:
        raise ValueError("secret")

    @tool(failure=lambda raised: f"it said {raised}")
    def worded() -> str:
        raise ValueError("sorry")

    @tool(timeout_s=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    def strange() -> list[dict[str, object]]:
        return [{"type": "input_text", "text": float("nan")}]

    outputs = await run_tools(harness, broken, worded, slow, strange)
    assert outputs[0] == outputs[3] == "An error occurred while running the tool. Please try again."
    assert outputs[1:3] == ["it said sorry", "Tool 'slow' timed out after 0.01 seconds."]


async def test_a_tool_without_a_failure_message_fails_the_run_and_the_conversation_can_be_continued(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    @tool(failure=None)
    def broken() -> str:
        raise ValueError("sorry")

    harness.model = scripted_model(harness.folder, tool_calls("broken", ("call_2", "look")), {"text": "Fine."})
    one = await open_runner(
        harness, Agent("desk", tools=(broken, tool_log.tool("look"))), RunConfig(RunLimits(max_parallel_calls=1))
    )
    with pytest.raises(RunFailed, match="tool 'broken' raised ValueError: sorry") as error:
        await send_message(one, "hello")
    assert (error.value.code, tool_log.ran, type(error.value.__cause__)) == ("tool_failed", [], RunFailed)
    assert one.run_row
    assert one.run_row.status == "failed"

    await send_message(one, "again")
    unknown, not_run = "The tool was started, and its outcome is unknown.", "The run ended before this tool was called."
    assert request_inputs(harness)[-1][3:] == [f"call_1: {unknown}", f"call_2: {not_run}", "user: again"]


class Leaving:
    def __str__(self) -> str:
        raise SystemExit(0)


class Mute(BaseException):
    def __str__(self) -> str:
        raise ValueError


async def leaves() -> str:
    raise SystemExit(0)


def says_nothing() -> object:
    return Leaving()


async def wordless() -> str:
    raise Mute


@pytest.mark.parametrize(
    ("function", "kind"), [(leaves, "SystemExit: 0"), (says_nothing, "SystemExit: 0"), (wordless, "Mute")]
)
async def test_a_tool_that_exits_the_program_fails_only_its_run(function: Any, kind: str, harness: ChatHarness) -> None:
    with pytest.raises(RunFailed, match=f"raised {kind}$"):
        await run_tools(harness, tool(function))


@pytest.mark.parametrize(("returned", "expected"), [(None, "null"), (float("nan"), "nan"), ({"why": 1}, '{"why": 1}')])
async def test_a_failure_message_that_is_no_text_is_converted_to_text(
    returned: Any, expected: str, harness: ChatHarness
) -> None:
    @tool(failure=lambda raised: returned)
    def broken() -> str:
        raise ValueError("sorry")

    assert await run_tools(harness, broken) == [expected]


async def test_a_tool_whose_failure_function_raises_fails_the_run(harness: ChatHarness) -> None:
    @tool(failure=lambda raised: str(1 // 0))
    def broken() -> str:
        raise ValueError("sorry")

    with pytest.raises(
        RunFailed, match=r"'broken' raised ValueError: sorry, and its failure function raised ZeroDivisionError"
    ):
        await run_tools(harness, broken)


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("perhaps")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"needs_approval": lambda context, arguments: Undecided()}, "the approval rule of tool 'look' raised"),
        ({"enabled": lambda context: Undecided()}, "the enabled rule of a tool raised"),
    ],
)
async def test_a_function_that_returns_no_boolean_fails_the_run(
    settings: dict[str, Any], text: str, harness: ChatHarness, tool_log: ToolLog
) -> None:
    with pytest.raises(RunFailed, match=f"{text} ValueError: perhaps"):
        await run_tools(harness, replace(tool_log.tool("look"), **settings))
    assert tool_log.ran == []


async def test_an_answer_that_a_user_class_rejects_fails_the_run_and_is_stored(harness: ChatHarness) -> None:
    @dataclass
    class Sum:
        cents: int

        def __post_init__(self) -> None:
            if self.cents < 0:
                raise LookupError("no debts")

    one = await open_runner(harness, Agent("desk", output=output(Sum)))
    with pytest.raises(RunFailed, match=r"does not match its schema: it: LookupError\('no debts'\)"):
        await send_message(one, '{"cents": -1}')
    assert item_lines(await stored_items(harness)) == ['user: {"cents": -1}', 'assistant: {"cents": -1}']


async def test_a_timeout_may_fail_the_run(harness: ChatHarness) -> None:
    @tool(timeout_s=0.01, on_timeout="fail")
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(RunFailed, match=r"Tool 'slow' timed out after 0\.01 seconds"):
        await run_tools(harness, slow)


async def test_a_disabled_tool_or_handoff_is_neither_offered_nor_called(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    async def off(context: Context) -> bool:
        return False

    harness.model = scripted_model(harness.folder, tool_calls("hidden"))
    agent = Agent("desk", tools=(tool_log.tool("hidden", enabled=off), tool_log.tool("look")))
    one = await open_runner(harness, agent)
    with pytest.raises(RunFailed, match="Tool hidden not found in agent desk") as error:
        await send_message(one, "hello")
    assert [found["name"] for found in harness.bodies[0]["tools"]] == ["look"]
    assert (error.value.code, tool_log.ran) == ("model_behavior", [])


@pytest.mark.parametrize("strategy", Strategy)
async def test_the_credentials_of_a_hosted_tool_are_sent_and_not_stored(
    harness: ChatHarness, strategy: Strategy
) -> None:
    files = {"type": "mcp", "server_label": "files", "authorization": "hunter2", "headers": {"X-Key": "hunter2"}}
    agent = Agent("desk", tools=(files,))
    one = await open_runner(harness, agent, strategy=strategy)
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await send_message(one, "hello")
    await read_events(one.resume())

    assert [body["tools"] for body in harness.bodies] == [[files], [files]]
    links = await harness.store.links(one.chat.session.id)
    assert [link.parameters["tools"] for link in links] == [[{"type": "mcp", "server_label": "files"}]] * 2
    assert "hunter2" not in str(await harness.store.agent_runs())
