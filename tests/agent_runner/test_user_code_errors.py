"""Functions of the user that raise or return a wrong value: the message, the hint and the code of the failed run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.user_code import (
    IN_USER_CODE,
    CallOutcome,
    capture,
    capture_async,
    format_exception,
    user_code_scope,
)
from convo.agents.agent import Agent, Guardrail, Handoff
from convo.agents.handoffs import HandoffDefaults
from convo.agents.sdk import ForeignInputFilter
from convo.errors import ConvoError, InputFault, InvalidUsage, RunFailed
from convo.tools.tool import tool
from tests.chat.agent_runs import open_runner, scripted_model, send_message, tool_calls
from tests.chat.conftest import ChatHarness


def broken(*arguments: object) -> Any:
    raise ValueError("no")


@tool(failure=None, name="look")
def broken_tool() -> str:
    return str(broken())


@tool(failure=broken, name="look")
def doubly_broken_tool() -> str:
    return str(broken())


@tool(name="look")
def look() -> str:
    return "seen"


@tool(name="look", needs_approval=broken)
def look_with_rule() -> str:
    return "seen"


@tool(name="look", timeout_s=0.01, on_timeout="fail")
async def stuck() -> None:
    await asyncio.Event().wait()


def desk(**settings: Any) -> Agent:
    return Agent("desk", **settings)


def hand_over(**settings: Any) -> Agent:
    return Agent("desk", handoffs=(Handoff(Agent("billing"), tool_name="look", **settings),))


LOOK = tool_calls("look")

IN_MEMORY = pytest.mark.parametrize("store", ["memory"], indirect=True)


@IN_MEMORY
@pytest.mark.parametrize(
    ("agent", "config", "code", "message"),
    [
        (desk(instructions=broken), {}, "instructions", "the instructions of agent 'desk' raised ValueError: no"),
        (
            desk(instructions=lambda context: 7),
            {},
            "instructions",
            "the instructions of agent 'desk' are not text",
        ),
        (
            desk(input_guardrails=(Guardrail("strict", broken),)),
            {},
            "guardrail_failed",
            "guardrail 'strict' raised ValueError: no",
        ),
        (desk(tools=(broken_tool,)), {}, "tool_failed", "tool 'look' raised ValueError: no"),
        (
            desk(tools=(doubly_broken_tool,)),
            {},
            "tool_failed",
            "tool 'look' raised ValueError: no, and its failure function raised ValueError: no",
        ),
        (desk(tools=(look_with_rule,)), {}, "tool_failed", "the approval rule of tool 'look' raised ValueError: no"),
        (desk(tools=(stuck,)), {}, "tool_timeout", "Tool 'look' timed out after 0.01 seconds"),
        (hand_over(taken=broken), {}, "handoff", "the handoff to 'billing' raised ValueError: no"),
        (hand_over(filter=broken), {}, "handoff", "a handoff's input filter raised ValueError: no"),
        (hand_over(enabled=broken), {}, "tool_failed", "the enabled rule of a tool raised ValueError: no"),
        (
            hand_over(nest=True),
            {"handoff_defaults": HandoffDefaults(mapper=broken)},
            "handoff",
            "the history mapper raised ValueError: no",
        ),
        (desk(), {"input_filter": broken}, "input_filter", "the input filter raised ValueError: no"),
        (
            desk(),
            {"input_filter": ForeignInputFilter(broken, {})},
            "input_filter",
            "the input filter raised ValueError: no",
        ),
    ],
)
async def test_a_function_that_raises_fails_the_run(
    harness: ChatHarness, agent: Agent, config: dict[str, Any], code: str, message: str
) -> None:
    harness.model = scripted_model(harness.folder, LOOK, {"text": "Done."})
    runner = await open_runner(harness, agent, RunConfig(**config))
    with pytest.raises(RunFailed) as raised:
        await send_message(runner, "hello")
    assert (raised.value.code, raised.value.message) == (code, message)


@IN_MEMORY
@pytest.mark.parametrize(
    ("config", "error", "message", "hint"),
    [
        (
            RunConfig(session_input_callback=broken),
            RunFailed,
            "the session input callback raised ValueError: no",
            None,
        ),
        (
            RunConfig(session_input_callback=lambda earlier, new: [*new, "more"]),
            InputFault,
            "the session input callback did not return a list of items",
            "return a list of items",
        ),
    ],
)
async def test_a_session_input_callback_that_fails_starts_no_run(
    harness: ChatHarness, config: RunConfig, error: type[ConvoError], message: str, hint: str | None
) -> None:
    runner = await open_runner(harness, desk(), config)
    with pytest.raises(error) as raised:
        await send_message(runner, "hello")
    assert raised.value.message == message
    assert hint is None or raised.value.hint == hint
    assert (runner.run_row, harness.bodies) == (None, [])


@IN_MEMORY
@pytest.mark.parametrize("result", [[], "all", ModelInput(["text"], None)])  # type: ignore[list-item]
async def test_the_result_of_an_input_filter_must_be_a_model_input(harness: ChatHarness, result: object) -> None:
    runner = await open_runner(harness, desk(), RunConfig(input_filter=lambda data: result))
    with pytest.raises(InputFault) as raised:
        await runner.preview_request()
    assert raised.value.message == "the input filter did not return a ModelInput"
    assert raised.value.hint == "return ModelInput(items, instructions)"


# -- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    ("function", "outcome"),
    [(IN_USER_CODE.get, True), (lambda: asyncio.sleep(0, IN_USER_CODE.get()), None)],
)
async def test_code_is_marked_as_the_users_while_it_runs(
    function: Callable[[], object], outcome: object, in_thread: bool
) -> None:
    result = await capture_async(function, in_thread=in_thread)
    assert result == CallOutcome(True if outcome is None else outcome)
    assert not IN_USER_CODE.get()
    assert capture(IN_USER_CODE.get) == CallOutcome(True)
    assert not IN_USER_CODE.get()


def test_the_mark_of_user_code_ends_with_its_outermost_block() -> None:
    with user_code_scope():
        with user_code_scope():
            assert IN_USER_CODE.get()
        assert IN_USER_CODE.get()
    assert not IN_USER_CODE.get()


async def test_a_cancelled_call_ends_before_its_cancellation_is_raised() -> None:
    started, ended = asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("closed")

    task = asyncio.ensure_future(capture_async(work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["closed"]


async def test_a_function_that_cancels_itself_has_that_as_its_outcome() -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    async def exits() -> None:
        raise SystemExit(3)

    cancelled, ended = await capture_async(cancels), await capture_async(exits)
    assert isinstance(cancelled.exception, asyncio.CancelledError)
    assert isinstance(ended.exception, SystemExit)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("no"), "ValueError: no"), (ValueError(), "ValueError"), (InvalidUsage("bad"), "InvalidUsage: bad")],
)
def test_an_exception_is_named_with_its_message(error: Exception, text: str) -> None:
    assert format_exception(error) == text
