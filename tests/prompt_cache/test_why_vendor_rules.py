"""`convo why` of recorded requests to servers that enforce the vendors' published rules: the cause, and the bill."""

import copy
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.command_runner import Convo
from tests.prompt_cache.test_why_recorded import START_TIME, record
from tests.recording.exchanges import make_response
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.anthropic_server import AnthropicRules
from tests.vendor_rules.openai_server import OpenAIRules

Body = dict[str, Any]
Change = Callable[[Body], object]

OPENAI, CLAUDE = "gpt-6.1-sol", "claude-opus-5-5"
PAGE = "Oslo lies at the end of a fjord. " * 200
TURNS = 4


def openai_tool(name: str, text: str = "") -> Body:
    return {"type": "function", "name": name, "parameters": {"type": "object", "description": text}}


def claude_tool(name: str, text: str = "") -> Body:
    return {"name": name, "input_schema": {"type": "object", "description": text}}


class Vendor(NamedTuple):
    """A vendor's server, and a request without history."""

    protocol: Any
    answer: Callable[[Body, float], Any]
    body: Body
    history: str
    output: str


def start_openai() -> Vendor:
    price = openai_server.Price(Decimal(2), Decimal(10))
    tools = [openai_tool("a"), openai_tool("b"), openai_tool("c")]
    body = {"model": OPENAI, "instructions": "You know Oslo.", "tools": tools, "store": False, "input": []}
    rules = OpenAIRules({OPENAI: [price], "gpt-6-sol": [price]})
    return Vendor("responses", rules.answer, body, "input", "output")


def start_claude() -> Vendor:
    price = anthropic_server.Price(Decimal(4), Decimal(20))
    tools = [claude_tool("a"), claude_tool("b"), claude_tool("c")]
    cache = {"cache_control": {"type": "ephemeral"}}
    body = {"model": CLAUDE, "max_tokens": 99, "system": "You know Oslo.", "tools": tools, "messages": [], **cache}
    rules = AnthropicRules({CLAUDE: [price], "claude-sonnet-5": [price]})
    return Vendor("messages", rules.answer, body, "messages", "content")


VENDORS = {"openai": start_openai, "anthropic": start_claude}


def converse(start: Callable[[], Vendor], change: Change, seconds: float) -> tuple[Vendor, list[Any], Any]:
    """Send the turns of a conversation, the last one changed and so many seconds after the one before it.

    Returns the exchanges, and the bill of the last one.
    """
    vendor = start()
    exchanges, body, at, id_, answer = [], vendor.body, 0.0, None, None
    for turn in range(TURNS):
        is_last = turn == TURNS - 1
        at += seconds if is_last else 60.0
        body = copy.deepcopy(body)
        text = {"type": "text" if vendor.protocol == "messages" else "input_text", "text": f"{turn}: {PAGE}"}
        body[vendor.history].append({"role": "user", "content": [text]})
        if vendor.protocol == "messages":
            body["diagnostics"] = {"previous_message_id": id_}
        elif id_:
            body["prompt_cache_options"] = {"comparison_response_id": id_}
        if is_last:
            change(body)
        answer = vendor.answer(body, START_TIME + at)
        id_, output = answer.response["id"], answer.response[vendor.output]
        exchanges.append((body, make_response(answer.response), at))
        said = [{"role": "assistant", "content": output}] if vendor.protocol == "messages" else output
        body = {**body, vendor.history: [*body[vendor.history], *said]}
    assert answer is not None
    return vendor, exchanges, answer.bill


def bill_input(bill: Any, vendor: str) -> float:
    """Return the price of the input alone, in dollars; the writes here are the shortest."""
    read, price = (Decimal("0.05"), Decimal(2)) if vendor == "openai" else (Decimal("0.05"), Decimal(4))
    written = bill.written_30m if vendor == "openai" else bill.written_5m
    return float((bill.uncached + bill.cached * read + written * Decimal("1.25")) * price / 1_000_000)


def history_of(body: Body) -> Any:
    return body.get("input") or body["messages"]


def edit_first(body: Body) -> None:
    history_of(body)[0]["content"][0]["text"] = f"9: {PAGE}"


def swap_tools(body: Body) -> None:
    body["tools"] = body["tools"][::-1]


def change_instructions(body: Body) -> None:
    body["instructions" if "input" in body else "system"] = "You know Oslo well."


def change_effort(body: Body) -> None:
    if "input" in body:
        body["reasoning"] = {"effort": "low"}
    else:
        body["output_config"] = {"effort": "low"}


def change_format(body: Body) -> None:
    body["text"] = {"format": {"type": "json_object"}}


def drop_first(body: Body) -> None:
    del history_of(body)[0:2]


def swap_items(body: Body) -> None:
    history = history_of(body)
    first, second, *_ = (index for index, item in enumerate(history) if item.get("role") == "user")
    history[first], history[second] = history[second], history[first]


def add_blocks(body: Body) -> None:
    history_of(body)[-1]["content"] = [{"type": "text", "text": PAGE[:280]} for _ in range(25)]


def add_block(body: Body) -> None:
    """Add the same text in one block, with as many tokens."""
    history_of(body)[-1]["content"] = [{"type": "text", "text": PAGE[:280] * 25 + " " * 25 * 28}]


def keep(body: Body) -> None:
    pass


BOTH = ("openai", "anthropic")

CASES: dict[str, tuple[Change, float, str, tuple[str, ...]]] = {
    "a tool removed": (lambda body: body["tools"].pop(), 60.0, "tools_changed", BOTH),
    "tools in another order": (swap_tools, 60.0, "tools_reordered", BOTH),
    "instructions": (change_instructions, 60.0, "instructions_changed", BOTH),
    "effort": (change_effort, 60.0, "reasoning_effort_changed", BOTH),
    "format": (change_format, 60.0, "text_format_changed", ("openai",)),
    "an item edited": (edit_first, 60.0, "item_edited", BOTH),
    "items in another order": (swap_items, 60.0, "items_reordered", BOTH),
    "an hour later": (keep, 3_700.0, "ttl_expired", BOTH),
    "many blocks": (add_blocks, 60.0, "breakpoint_too_far", ("anthropic",)),
}


@pytest.mark.parametrize(("name", "vendor"), [(name, one) for name, case in CASES.items() for one in case[3]])
def test_the_cause_and_the_money_are_those_of_the_server(convo: Convo, home: Path, name: str, vendor: str) -> None:
    change, seconds, cause, _ = CASES[name]
    sent, exchanges, bill = converse(VENDORS[vendor], change, seconds)
    record(home, sent.protocol, exchanges)
    got = convo("why", "@recorded", "--json").json()
    *_, usual = converse(VENDORS[vendor], add_block if change is add_blocks else keep, 60.0)
    lost = bill_input(bill, vendor) - bill_input(usual, vendor)
    assert got["cause"] == cause
    assert got["cost_usd"] == pytest.approx(lost, rel=0.02)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_client_that_appends_hits(convo: Convo, home: Path, vendor: str) -> None:
    sent, exchanges, _ = converse(VENDORS[vendor], keep, 60.0)
    record(home, sent.protocol, exchanges)
    assert convo("why", "@recorded", "--json").json()["outcome"] == "hit"
