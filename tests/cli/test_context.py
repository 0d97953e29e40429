"""The context of a run: a mapping is stored and restored; any other type needs a function of the user."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents import Agent, Runner

from tests.cli.agent_files import AGENTS, PAID_BACK, REFUND, agent_flags
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo
from tests.runstate.sdk import Script
from tests.runstate.test_sdk_decisions import no_logging

__all__ = ["no_logging"]

WHO_CALL = {"call": {"name": "who", "call_id": "w1"}}

CONTEXT_FUNCTIONS = """
def customer(held):
    return {"customer": held["name"].upper()}

def broken(held):
    return held["nobody"]

"""

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "refund", "status": "completed"}


@dataclass
class Customer:
    name: str


def write_paused_state(context: Any) -> None:
    """Write the state of a paused run of the Agents SDK with this context to state.json."""

    async def refund(order: str, cents: int) -> str:
        return ""

    calls = [[{**CALL, "arguments": '{"order": "A1", "cents": 500}'}]]
    tool = sdk.function_tool(refund, needs_approval=True)
    agent = Agent[Any](name="desk", instructions="Help.", tools=[tool], model=Script(calls, at=0))
    result = asyncio.run(Runner.run(agent, "pay A1 back", context=context))
    Path("state.json").write_text(result.to_state().to_string())


def read_context(path: str) -> Any:
    return json.loads(Path(path).read_text())["context"]["context"]


def test_context_values_are_kept_in_every_later_process_and_in_every_state(convo: Convo, home: Path) -> None:
    Path("values.json").write_text('{"customer": "Ada"}')
    second_refund = {"call": {**REFUND["call"], "call_id": "c2"}}
    model = scripted_flags(REFUND, WHO_CALL, second_refund, WHO_CALL, PAID_BACK)
    convo("chat", *agent_flags(), *model, "--context", "values.json", "-n", "mine", "pay A1 back")
    exported = convo("export", "mine", "--format", "runstate", *agent_flags())
    assert exported.json()["context"]["context"] == {"customer": "Ada"}
    for call in ("c1", "c2"):
        got = convo("resume", "mine", *agent_flags(), *model, "--approve", call, "-o", "state.json")
        assert "who returned Ada" in got.err
    assert (got.exit, read_context("state.json")) == (0, {"customer": "Ada"})


def test_context_values_of_an_imported_state_are_kept_after_the_next_pause(convo: Convo, home: Path) -> None:
    write_paused_state({"customer": "Ada"})
    second_refund = {"call": {**REFUND["call"], "call_id": "c2"}}
    model = scripted_flags(REFUND, second_refund, WHO_CALL, PAID_BACK)
    got = convo("resume", "state.json", *agent_flags(), *model, "--approve", "c1", "-o", "next.json")
    assert (got.exit, read_context("next.json")) == (3, {"customer": "Ada"}), got.err
    assert "who returned Ada" in convo("resume", "next.json", *agent_flags(), *model, "--approve", "c2").err


def test_a_context_that_is_not_a_mapping_needs_a_function_that_creates_it(convo: Convo, home: Path) -> None:
    write_paused_state(Customer("Ada"))
    flags = (
        *agent_flags(text=AGENTS + CONTEXT_FUNCTIONS),
        *scripted_flags(REFUND, WHO_CALL, PAID_BACK),
        "--approve",
        "c1",
    )
    refused = convo("resume", "state.json", *flags)
    assert refused.exit == 2
    assert "the context of this run was Customer, which cannot be restored from a state" in refused.err
    assert "try: pass it with --context FILE.json, or FILE.py:NAME" in refused.err
    got = convo("resume", "state.json", *flags, "--context", "bot.py:customer")
    assert (got.exit, "who returned ADA" in got.err) == (0, True), got.err


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "bot.py:51: KeyError: 'nobody'"),
        ("nobody", "no name 'nobody' in bot.py"),
    ],
)
def test_an_invalid_context_function_is_refused(function: str, message: str, convo: Convo, home: Path) -> None:
    write_paused_state(Customer("Ada"))
    flags = (*agent_flags(text=AGENTS + CONTEXT_FUNCTIONS), *scripted_flags(REFUND, PAID_BACK))
    got = convo("resume", "state.json", *flags, "--approve", "c1", "--context", f"bot.py:{function}")
    assert (got.exit, got.out) == (2 if function != "nobody" else 5, "")
    assert message in got.err
