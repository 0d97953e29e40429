"""Support for tests of agents on the command line: an agent file, scripts of the model, reads of the store.

The tools append each of their runs to a file, so that a test sees a tool that ran twice, in any process.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from convo.history.records import AgentRun
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE

Result = TypeVar("Result")

AGENTS = """
import pathlib
from convo.agents import Agent, Guardrail, Handoff, agent_tool
from convo.tools import Context, tool

RAN = pathlib.Path(__file__).parent / "ran.txt"

def note(words):
    with RAN.open("a") as file:
        file.write(words + "\\n")

@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    note(f"refund {order} {cents}")
    return f"paid {cents} cents back for {order}"

@tool
def look_up(order: str) -> str:
    "Find an order."
    note(f"look_up {order}")
    return f"{order} cost 500 cents"

@tool
def who(context: Context) -> str:
    "Say who asks."
    return context.values.get("customer", "nobody")

def no_insults(context, items):
    return "an insult" if "fool" in str(items) else None

def shout(data):
    from convo.agent_runner.config import ModelInput
    return ModelInput(data.items, (data.instructions or "") + " Shout.")

def last_two(history):
    return history[-2:]

billing = Agent("billing", instructions="Pay back.", tools=(refund, look_up))
triage = Agent("triage", instructions="Send them on.", handoffs=(billing,))
desk = Agent("desk", instructions="Help.", tools=(refund, look_up, who))
guarded = Agent("guarded", input_guardrails=(Guardrail("no_insults", no_insults, parallel=False),))
payments = Agent("payments", tools=(look_up,), output_guardrails=(Guardrail("no_debts", no_insults),))
gate = Agent("gate", handoffs=(payments,), input_guardrails=(Guardrail("no_insults", no_insults),))
final = Agent("final", tools=(look_up,), after_tools="first output")
"""

REFUND = {"call": {"name": "refund", "call_id": "c1", "arguments": {"order": "A1", "cents": 500}}}
LOOK_UP = {"call": {"name": "look_up", "call_id": "c0", "arguments": {"order": "A1"}}}
HANDOFF = {"call": {"name": "transfer_to_billing", "call_id": "h0"}}
PAYMENTS_HANDOFF = {"call": {"name": "transfer_to_payments", "call_id": "h1"}}
ASK_DESK = {"call": {"name": "ask_desk", "call_id": "a1", "arguments": {"input": "Pay A1 back."}}}
PAID_BACK = {"text": "Paid back."}

SDK = """
from agents import Agent, function_tool

@function_tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    return f"paid {cents} cents back for {order}"

desk = Agent(name="desk", instructions="Help.", tools=[refund])
"""


def agent_flags(name: str = "desk", text: str = AGENTS) -> tuple[str, str]:
    """Write the agent file bot.py to the current folder; return the flags that select an agent in it."""
    Path("bot.py").write_text(text, encoding="utf-8")
    return "--agent", f"bot.py:{name}"


def nested_agent_flags(*, outer: tuple[str, str], inner: tuple[str, str]) -> tuple[str, str]:
    """Write an agent file whose agent "boss" has the agent "desk" as a tool; return the flags.

    Each of the two agents has its own model.
    """
    clerk = f'clerk = Agent("desk", model={inner[1]!r}, tools=(refund, look_up))\n'
    desk_tool = 'agent_tool(clerk, "ask_desk", "Ask the desk.")'
    return agent_flags(
        "boss", AGENTS + clerk + f'boss = Agent("boss", model={outer[1]!r}, tools=({desk_tool}, refund))\n'
    )


def two_refund_calls(*after: dict[str, Any]) -> tuple[str, str]:
    """Return the flags of a model whose first response calls `refund` twice; the replies in `after` follow."""
    calls = [
        {
            "type": "function_call",
            "call_id": f"c{number}",
            "name": "refund",
            "arguments": json.dumps({"order": f"A{number}", "cents": number * 100}),
        }
        for number in (1, 2)
    ]
    return scripted_flags({"output": calls}, *(after or (PAID_BACK,)))


def tool_runs() -> list[str]:
    """Return the runs that the tools recorded, in order."""
    path = Path("ran.txt")
    return path.read_text().splitlines() if path.exists() else []


def read_from_store(home: Path, read: Callable[[Store], Awaitable[Result]]) -> Result:
    async def read_store() -> Result:
        store = open_store(f"sqlite:{home / DATABASE}")
        try:
            return await read(store)
        finally:
            await store.aclose()

    return asyncio.run(read_store())


def stored_runs(home: Path) -> list[AgentRun]:
    """Return the agent runs in the store, most recently changed first."""

    async def read(store: Store) -> list[AgentRun]:
        return list(await store.agent_runs())

    return read_from_store(home, read)


def paused_files(home: Path) -> list[Path]:
    return sorted((home / "data" / "paused").glob("*"))
