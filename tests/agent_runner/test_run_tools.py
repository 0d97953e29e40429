"""Tools in a run: side by side within a bound, in time or not, and what a model is told of them."""

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
from tests.chat.agents import calls, history, inputs, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Fault


async def ran(bench: Bench, *tools: Any, reply: dict[str, Any] | None = None) -> list[str]:
    """The outputs that the model got for one batch of calls."""
    bench.model = scripted(bench.folder, reply or calls(*(one.name for one in tools)), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=tuple(tools)))
    await say(one, "hello")
    return [item["output"] for item in bench.bodies[-1]["input"] if item.get("type") == "function_call_output"]


async def test_a_tool_may_be_sync_or_async_and_is_told_who_asks(bench: Bench) -> None:
    @tool
    def plain(context: Context) -> dict[str, str]:
        return {"agent": context.agent, "call": context.call_id}

    @tool
    async def waiting(context: Context) -> str:
        await asyncio.sleep(0)
        return context.tool

    assert await ran(bench, plain, waiting) == ['{"agent": "desk", "call": "call_1"}', "waiting"]


async def test_a_parameter_of_a_tool_may_have_any_name(bench: Bench) -> None:
    @tool
    def reply(function: str, thread: str, work: str, args: str) -> str:
        return " ".join((function, thread, work, args))

    @tool
    async def forward(function: str, thread: str) -> str:
        return f"{function} {thread}"

    given = {"function": "say", "thread": "t1", "work": "now", "args": "all"}
    both = calls(("call_1", "reply", given), ("call_2", "forward", {"function": "send", "thread": "t2"}))
    assert await ran(bench, reply, forward, reply=both) == ["say t1 now all", "send t2"]


async def test_tools_run_beside_each_other_and_their_outputs_are_sent_in_the_order_of_the_calls(bench: Bench) -> None:
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

    assert await ran(bench, one, two) == ["one", "two"]


async def test_no_more_tools_run_at_once_than_the_limit_says(bench: Bench) -> None:
    at_once: list[int] = [0, 0]

    @tool
    async def busy() -> str:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0)
        at_once[0] -= 1
        return "done"

    bench.model = scripted(bench.folder, calls(*[(f"c{n}", "busy") for n in range(7)]), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(busy,)), RunConfig(RunLimits(max_parallel_calls=2)))
    await say(one, "hello")
    assert at_once == [0, 2]


async def test_a_model_is_told_of_a_tool_that_raised_or_took_too_long(bench: Bench) -> None:
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

    outputs = await ran(bench, broken, worded, slow, strange)
    assert outputs[0] == outputs[3] == "An error occurred while running the tool. Please try again."
    assert outputs[1:3] == ["it said sorry", "Tool 'slow' timed out after 0.01 seconds."]


async def test_a_run_fails_with_a_tool_that_has_no_words_for_its_failure_and_the_conversation_goes_on(
    bench: Bench, ledger: Ledger
) -> None:
    @tool(failure=None)
    def broken() -> str:
        raise ValueError("sorry")

    bench.model = scripted(bench.folder, calls("broken", ("call_2", "look")), {"text": "Fine."})
    one = await running(
        bench, Agent("desk", tools=(broken, ledger.tool("look"))), RunConfig(RunLimits(max_parallel_calls=1))
    )
    with pytest.raises(RunFailed, match="tool 'broken' raised ValueError: sorry") as failed:
        await say(one, "hello")
    assert (failed.value.code, ledger.ran, type(failed.value.__cause__)) == ("tool_failed", [], RunFailed)
    assert one.run_row
    assert one.run_row.status == "failed"

    await say(one, "again")
    unknown, not_run = "The tool was started, and its outcome is unknown.", "The run ended before this tool was called."
    assert inputs(bench)[-1][3:] == [f"call_1: {unknown}", f"call_2: {not_run}", "user: again"]


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
async def test_a_tool_that_leaves_the_program_fails_its_run_and_nothing_else(
    function: Any, kind: str, bench: Bench
) -> None:
    with pytest.raises(RunFailed, match=f"raised {kind}$"):
        await ran(bench, tool(function))


@pytest.mark.parametrize(("said", "told"), [(None, "null"), (float("nan"), "nan"), ({"why": 1}, '{"why": 1}')])
async def test_words_for_a_failure_that_are_no_text_are_put_into_words(said: Any, told: str, bench: Bench) -> None:
    @tool(failure=lambda raised: said)
    def broken() -> str:
        raise ValueError("sorry")

    assert await ran(bench, broken) == [told]


async def test_a_run_fails_with_a_tool_whose_words_for_its_failure_raise(bench: Bench) -> None:
    @tool(failure=lambda raised: str(1 // 0))
    def broken() -> str:
        raise ValueError("sorry")

    with pytest.raises(
        RunFailed, match=r"'broken' raised ValueError: sorry, and its failure function raised ZeroDivisionError"
    ):
        await ran(bench, broken)


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("perhaps")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"needs_approval": lambda context, arguments: Undecided()}, "the approval rule of tool 'look' raised"),
        ({"enabled": lambda context: Undecided()}, "the enabled rule of a tool raised"),
    ],
)
async def test_a_function_that_says_neither_yes_nor_no_fails_the_run(
    how: dict[str, Any], words: str, bench: Bench, ledger: Ledger
) -> None:
    with pytest.raises(RunFailed, match=f"{words} ValueError: perhaps"):
        await ran(bench, replace(ledger.tool("look"), **how))
    assert ledger.ran == []


async def test_an_answer_that_somebodys_own_class_refuses_fails_the_run_and_is_kept(bench: Bench) -> None:
    @dataclass
    class Sum:
        cents: int

        def __post_init__(self) -> None:
            if self.cents < 0:
                raise LookupError("no debts")

    one = await running(bench, Agent("desk", output=output(Sum)))
    with pytest.raises(RunFailed, match=r"does not match its schema: it: LookupError\('no debts'\)"):
        await say(one, '{"cents": -1}')
    assert words(await history(bench)) == ['user: {"cents": -1}', 'assistant: {"cents": -1}']


async def test_a_timeout_may_fail_the_run(bench: Bench) -> None:
    @tool(timeout_s=0.01, on_timeout="fail")
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(RunFailed, match=r"Tool 'slow' timed out after 0\.01 seconds"):
        await ran(bench, slow)


async def test_a_tool_or_handoff_that_is_off_is_neither_offered_nor_called(bench: Bench, ledger: Ledger) -> None:
    async def off(context: Context) -> bool:
        return False

    bench.model = scripted(bench.folder, calls("hidden"))
    agent = Agent("desk", tools=(ledger.tool("hidden", enabled=off), ledger.tool("look")))
    one = await running(bench, agent)
    with pytest.raises(RunFailed, match="Tool hidden not found in agent desk") as failed:
        await say(one, "hello")
    assert [found["name"] for found in bench.bodies[0]["tools"]] == ["look"]
    assert (failed.value.code, ledger.ran) == ("model_behavior", [])


@pytest.mark.parametrize("strategy", Strategy)
async def test_what_a_hosted_tool_logs_in_with_reaches_the_endpoint_and_is_not_kept(
    bench: Bench, strategy: Strategy
) -> None:
    files = {"type": "mcp", "server_label": "files", "authorization": "hunter2", "headers": {"X-Key": "hunter2"}}
    agent = Agent("desk", tools=(files,))
    one = await running(bench, agent, strategy=strategy)
    bench.endpoint.faults = [Fault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await say(one, "hello")
    await read(one.resume())

    assert [body["tools"] for body in bench.bodies] == [[files], [files]]
    links = await bench.store.links(one.chat.session.id)
    assert [link.parameters["tools"] for link in links] == [[{"type": "mcp", "server_label": "files"}]] * 2
    assert "hunter2" not in str(await bench.store.agent_runs())
