"""The output of an agent file goes to stderr; stdout contains only the answer or the JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo, Launch

PRINTING_AGENTS = """
import asyncio, sys
from convo.agents import Agent, Guardrail
from convo.tools import tool

print("imported")

@tool
async def look_up(order: str) -> str:
    "Find an order."
    print("looked up")
    await asyncio.sleep(0)
    sys.stdout.buffer.write(b"looked twice\\n")
    return "500 cents"

def costly(context, arguments):
    print("asked for approval")
    return False

@tool(needs_approval=costly)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    print("paid", flush=True)
    return "paid"

class Words:
    def __str__(self):
        print("put into words")
        return "words"

@tool
def odd() -> object:
    "Give something odd."
    return Words()

def instructions(context):
    print("instructed")
    return "Help."

def polite(context, said):
    print("guarded")

def values(held):
    print("valued")
    return {}

def shorter(data):
    print("filtered")
    return data

tools, guards = (look_up, refund, odd), (Guardrail("polite", polite),)
desk = Agent("desk", instructions=instructions, tools=tools, input_guardrails=guards)
"""

PRINTED = {
    *("imported", "looked up", "looked twice", "asked for approval", "paid", "instructed", "guarded", "valued"),
    *("filtered", "put into words"),
}

ODD_CALL = {"call": {"name": "odd", "call_id": "c9", "arguments": {}}}


def flags() -> tuple[str, ...]:
    options = ("--input-filter", "bot.py:shorter", "--context", "bot.py:values")
    return (*agent_flags(text=PRINTING_AGENTS), *options, *scripted_flags(LOOK_UP, REFUND, ODD_CALL, PAID_BACK))


@pytest.mark.parametrize("form", ["--json", "--jsonl", "--no-stream"])
def test_output_that_an_agent_file_prints_is_not_part_of_the_answer(form: str, convo: Convo, home: Path) -> None:
    got = convo("chat", *flags(), form, "pay back")
    assert got.exit == 0, got.err
    assert set(got.err.splitlines()) >= PRINTED
    output: list[Any] = got.out.splitlines() if form == "--no-stream" else [*map(json.loads, got.out.splitlines())]
    text = output[-1] if form == "--no-stream" else output[-1]["output_text" if form == "--json" else "output"]
    assert text == "Paid back."
    assert (len(output) == 1) is (form != "--jsonl")


def test_in_another_process_printed_output_is_not_part_of_the_answer_either(launch: Launch, home: Path) -> None:
    got = launch("chat", *flags(), "--json", "pay back")
    assert (got.exit, got.json()["output_text"]) == (0, "Paid back.")
    assert set(got.err.splitlines()) >= PRINTED


def test_printed_output_is_not_part_of_an_error_object(convo: Convo, home: Path) -> None:
    got = convo("chat", "--from", "nobody", *agent_flags(text=PRINTING_AGENTS), "--json", "hi")
    assert (got.exit, got.json()["error"]["code"], got.err) == (5, "not_found", "imported\n")
