"""Forecasts of the next request agree with the bills of servers that enforce the vendors' published rules."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import mean
from typing import Any

import pytest

from convo.config.sections import Price
from convo.history.tree import Path
from convo.prompt_cache.next_usage import NextUsage, compare_usage, forecast_usage
from convo.usage.counting import count_tokens
from convo.usage.model_info import find_model_window, find_price
from tests.prompt_cache.branches import Branch, Item, message
from tests.prompt_cache.test_forecast_rules import NOVEMBER_28, Anthropic, OpenAI
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.rules_server import Tokenizer

PROSE = (
    "The ferry from Oslo leaves at the end of the fjord , because the weather in the mountains is better there than "
    "on the other side ; a ticket for two persons and a car costs 42 dollars , and the office opens at seven"
)
WORDS = PROSE.split()


def write_tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"town": {"type": "string", "description": PROSE[:50]}}}
    return {"type": "function", "name": name, "description": PROSE, "parameters": parameters}


TOOLS = [write_tool(name) for name in ("search", "read", "book", "cancel")]


def write_text(choose: random.Random, least: int, most: int) -> str:
    return " ".join(choose.choices(WORDS, k=choose.randint(least, most)))


MAX_ERROR = 0.03

OLDER_PRICES = {f"openai/{name}": Price(2.0, 10.0, 0.2) for name in ("gpt-5.5", "gpt-5.4")}
"""Models that round the number of cached tokens, and do not report what they write."""


STRUCTURE = {"type", "role", "status", "id", "call_id", "tool_use_id"}


def list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value if isinstance(value, list) else ():
        yield from list_texts(each)
    for name, each in value.items() if isinstance(value, dict) else ():
        yield from () if name in STRUCTURE else list_texts(each)


def make_counter(factor: float) -> Tokenizer:
    """The counter of a server whose tokenizer makes `factor` tokens of one of OpenAI's.

    Tools are JSON; another item has its texts, and four tokens.
    """

    def count(value: Any) -> int:
        is_tool = isinstance(value, dict) and "parameters" in value
        text = json.dumps(value) if is_tool else "\n".join(list_texts(value))
        return round(factor * (count_tokens((), text).tokens + 4))

    return count


UNSTATED_COUNTS = ("minimum_of", "kept_beyond_ttl_s", "hidden_in_usage", "minimum_tokens")
"""What decides about counts of tokens, and no page states."""


class Case:
    """A conversation with a vendor, and the bill of its last request."""

    def __init__(self, seed: int, *, is_offline: bool = True) -> None:
        self.is_offline = is_offline
        self.choose = random.Random(seed)
        vendor_types: list[Any] = [OpenAI, Anthropic]
        self.vendor = self.choose.choice(vendor_types)(self.choose)
        if isinstance(self.vendor, Anthropic):
            self.vendor.behavior = {"prefix_mismatch_behavior": "drop_block"}
        named = {name: f"{self.vendor.provider}/{name}" for name in self.vendor.models}
        self.models = [name for name, model in named.items() if find_price(model, OLDER_PRICES)]
        # No forecast of tokens covers what no page states: the servers behave in the simplest way.
        simplest = type(self.vendor.rules.unstated)()
        values = {name: getattr(simplest, name) for name in UNSTATED_COUNTS if hasattr(simplest, name)}
        self.vendor.rules.unstated = replace(self.vendor.rules.unstated, **values)
        if is_offline:
            self.vendor.rules.count = make_counter(self.choose.uniform(0.8, 1.4))
        prices: Any = anthropic_server if isinstance(self.vendor, Anthropic) else openai_server
        self.vendor.rules.prices = {
            name: [prices.Price(*self.price_of(f"{self.vendor.provider}/{name}"))] for name in self.models
        }
        parameters = {"instructions": write_text(self.choose, 400, 900), "tools": TOOLS[: self.choose.randint(1, 4)]}
        model = f"{self.vendor.provider}/{self.choose.choice(self.models)}"
        self.branch = Branch(model, parameters, now=NOVEMBER_28)

    def price_of(self, model: str) -> tuple[Decimal, Decimal]:
        price = find_price(model, OLDER_PRICES)
        assert price is not None
        return Decimal(str(price.input)), Decimal(str(price.output))

    def add_turn(self) -> None:
        """Send a message, and then the outputs of as many calls as the model makes."""
        choose, branch = self.choose, self.branch
        new: list[Item] = [message(write_text(choose, 5, 600))]
        while new:
            branch.path = branch.path.append(new)
            reply: list[Any] = [{"type": "reasoning", "summary": [], "tokens": choose.randint(30, 300)}]
            new = []
            if choose.random() < 0.4:
                call_id = f"call_{choose.random()}"
                reply.append({"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"})
                new = [{"type": "function_call_output", "call_id": call_id, "output": write_text(choose, 5, 2_000)}]
            else:
                text = {"type": "output_text", "text": write_text(choose, 5, 400), "annotations": []}
                reply.append({"type": "message", "role": "assistant", "status": "completed", "content": [text]})
            output, _, usage = self.vendor.send(branch, reply)
            branch.answer(output, usage)

    def change(self) -> None:
        """Change some of the items, the tools, the instructions and the model; or nothing."""
        choose, branch = self.choose, self.branch
        changes = [self.drop, self.remove_tool, self.use_model]
        # With older models, no source says whether the tools before the instructions stay cached if they are short.
        changes += [] if branch.model in OLDER_PRICES else [self.instruct]
        for change in choose.sample(changes, choose.choice([0, 1, 1, 2])):
            change()
        branch.now += choose.choice([0, 0, 0, 200, 86_500])

    def drop(self) -> None:
        items: list[Item] = list(self.branch.path.items)
        index = self.choose.choice([n for n, item in enumerate(items) if item["type"] != "reasoning"])
        dropped = {index}
        if items[index].get("call_id"):
            dropped = {n for n, item in enumerate(items) if item.get("call_id") == items[index]["call_id"]}
        self.branch.path = Path(self.branch.path.root).append([i for n, i in enumerate(items) if n not in dropped])

    def remove_tool(self) -> None:
        self.branch.parameters = {**self.branch.parameters, "tools": self.branch.parameters["tools"][1:]}

    def instruct(self) -> None:
        self.branch.parameters = {**self.branch.parameters, "instructions": write_text(self.choose, 400, 900)}

    def use_model(self) -> None:
        self.branch.model = f"{self.vendor.provider}/{self.choose.choice(self.models)}"

    def compare(self) -> list[float]:
        """Return the errors of the forecast: tokens as a part of the input, and the cost of the input.

        Where no source says whether the model receives reasoning, the forecast knows what the server does.
        """
        branch = self.branch
        branch.path = branch.path.append([message(write_text(self.choose, 5, 200))])
        prefix, planned = branch.forecast(), branch.plan()
        _, drops, usage = self.vendor.send(branch)
        if prefix is not None:
            seals = [branch.path.items[item.item_index]["encrypted_content"] for item in prefix.lost_reasoning]
            lost = zip(prefix.lost_reasoning, seals, strict=True)
            prefix = prefix._replace(
                lost_reasoning=[item._replace(certainty="yes") for item, seal in lost if seal in drops]
            )
        window, counted = find_model_window(branch.model), None if self.is_offline else usage["input_tokens"]
        found = forecast_usage(branch.links, planned, branch.index, OLDER_PRICES, window, prefix, counted)
        details, tokens, bill = usage["input_tokens_details"], usage["input_tokens"], self.vendor.bill
        input_usd = float(bill.cost) - bill.output * float(self.price_of(planned.model)[1]) / 1e6
        assert found.input_usd is not None
        return [
            abs(found.input_tokens - tokens) / tokens,
            abs(found.cached_tokens - details["cached_tokens"]) / tokens,
            abs(found.cache_write_tokens - details["cache_write_tokens"]) / tokens,
            abs(found.input_usd - input_usd) / input_usd,
        ]


MANY = pytest.param(range(25, 225), marks=pytest.mark.full, id="200 cases")


@pytest.mark.parametrize("seeds", [pytest.param(range(25), id="25 cases"), MANY])
@pytest.mark.parametrize("is_offline", [True, False], ids=["offline", "counted by the endpoint"])
def test_the_tokens_and_the_cost_of_the_next_request_are_those_of_the_bill(
    is_offline: bool, seeds: Sequence[int]
) -> None:
    errors = []
    for seed in seeds:
        case = Case(seed, is_offline=is_offline)
        for _ in range(case.choose.randint(1, 9)):
            case.add_turn()
        case.change()
        errors.append(case.compare())
    names = ("input", "cached", "written", "cost")
    figures = {name: (max(each), mean(each)) for name, each in zip(names, zip(*errors, strict=True), strict=True)}
    print({name: f"max {worst:.2%}, mean {middle:.2%}" for name, (worst, middle) in figures.items()})
    assert max(worst for worst, _ in figures.values()) < MAX_ERROR, figures


def make_usage(read: int, written: int, read_price: float) -> NextUsage:
    """The usage of a request at 1 USD a token, with the later requests that only read it."""
    tokens = read + written
    cost_usd = read_price * read + 1.25 * written
    return NextUsage("openai/m", tokens, read, written, 0, None, 0, 0, cost_usd, 0.0, read_price * tokens)


@pytest.mark.parametrize(("read_price", "expected"), [(0.1, 91), (0.05, 191)])
def test_a_shorter_history_pays_after_the_second_write_of_what_follows_the_change(
    read_price: float, expected: int
) -> None:
    """10,000 tokens less before 80,000 others: (1.25 - r) * 80,000 / (r * 10,000) requests, this one included."""
    unchanged, changed = make_usage(110_000, 0, read_price), make_usage(20_000, 80_000, read_price)
    assert compare_usage(unchanged, changed).break_even_requests == expected
    assert compare_usage(changed, unchanged).break_even_requests is None
    assert compare_usage(unchanged, unchanged).break_even_requests == 0
