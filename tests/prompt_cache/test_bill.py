"""The bill of a conversation: what each item, tool, file and request cost, and that all of it sums to the bill."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Any, get_args

import pytest

from convo.compaction.window import is_instruction
from convo.config.sections import Price
from convo.history.items import Item, assistant_message, developer_message, is_user_message, item_preview, user_message
from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT, Link, Strategy
from convo.history.tree import Path
from convo.inspect.view import ConversationView, sum_link_usage
from convo.prompt_cache import Grouping
from convo.prompt_cache.bill import BillRow, build_bill
from convo.usage.counting import count_item_tokens, count_tokens
from convo.usage.model_info import find_price
from tests.call_count import CallCount
from tests.inspect.conversation_builder import ROOT, START_TIME, path_index_of

GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

MODELS = (
    "openai/gpt-6.1-terra",
    "openai/gpt-6.2-sol",
    "openai/gpt-5-mini",
    "anthropic/claude-haiku-5-5",
    "local/none",
    "local/mine",
)

PRICES = {"local/mine": Price(1.0, 10.0, 0.1, written=1.25)}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}


def make_usage(
    input_: int, output: int, *, cached: int = 0, written: int = 0, hour: int = 0, reasoning: int = 0
) -> Any:
    details = {"cached_tokens": cached, "cache_write_tokens": written, "cache_write_1h_tokens": hour}
    return {
        "input_tokens": input_,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


def make_link(id_: str, path: Path, usage: dict[str, Any], **fields: Any) -> Link:
    """A request without output at the end of `path`."""
    link = Link(id_, path.head, path.head, len(path), MODELS[0], Strategy.SESSION, "completed", START_TIME, usage=usage)
    return replace(link, **fields)


class Generator:
    """Makes a conversation with forks, compactions, tiers, long requests, tools, files and failures."""

    def __init__(self, seed: int, *, has_files: bool = True) -> None:
        self.random, self.has_files = Random(seed), has_files
        self.links: list[Link] = []
        self.paths: list[Path] = []
        self.instructions = self.random.choice([None, "Be brief. " * self.random.randint(1, 200)])
        self.tools = [tool(f"tool_{number}") for number in range(self.random.randint(0, 4))]

    def add_request(self) -> None:
        random = self.random
        parent = random.choice([*range(len(self.links)), *[len(self.links) - 1] * 6]) if self.links else None
        path = self.paths[parent] if parent is not None else Path(ROOT)
        if parent is not None and random.random() < 0.08:
            window = [
                user_message("Summary of the conversation up to here, in place of its earlier messages:\n\nshort")
            ]
            path = Path(ROOT).append([*window, *path.items[-2:]])
            self.add_link(path, path, parent, {"context_management": COMPACTION_CONTEXT_MANAGEMENT})
            return
        if random.random() < 0.05:
            path = path.append([{"type": "compaction", "encrypted_content": "x" * random.randint(10, 4_000)}])
        number = len(self.links)
        items: list[Item] = [user_message(f"question {number} " + "why " * random.randint(0, 300))]
        if random.random() < 0.2:
            items = [developer_message(f"from now on {number}"), *items]
        if self.tools and random.random() < 0.4:
            call = {"call_id": f"call_{number}", "name": random.choice(self.tools)["name"], "arguments": "{}"}
            output = {
                "type": "function_call_output",
                "call_id": f"call_{number}",
                "output": "data " * random.randint(1, 999),
            }
            items += [{"type": "function_call", **call}, output]
        if self.has_files and random.random() < 0.1:
            file: Item = {"type": "input_file", "file_id": f"file_{number}"}
            items.append(user_message("read", random.choice([file, {**file, "file_data": "A" * 4_000}])))
        path = path.append(items)
        answer: list[Item] = [assistant_message(f"answer {number} " + "so " * random.randint(0, 300))]
        if random.random() < 0.5:
            answer.insert(0, {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "y" * 99})
        parameters: dict[str, Any] = {"tools": self.tools} if self.tools else {}
        parameters |= {"instructions": self.instructions} if self.instructions and random.random() < 0.9 else {}
        self.add_link(path, path.append(answer) if random.random() < 0.95 else path, parent, parameters)

    def add_link(self, path: Path, head: Path, parent: int | None, parameters: dict[str, Any]) -> None:
        random = self.random
        tokens = random.choice(
            [random.randint(0, 3_000), random.randint(90_000, 110_000), random.randint(270_000, 290_000)]
        )
        cached = random.choice([0, random.randint(0, tokens), tokens])
        written = random.choice([0, random.randint(0, tokens - cached), tokens - cached])
        output = random.randint(0, 2_000)
        usage = make_usage(
            tokens,
            output,
            cached=cached,
            written=written,
            hour=random.choice([0, random.randint(0, written)]),
            reasoning=random.choice([0, random.randint(0, output)]),
        )
        link = make_link(f"resp_{len(self.links)}", path, usage, model=random.choice(MODELS), parameters=parameters)
        self.links.append(
            replace(
                link,
                head=head.head,
                created_at=START_TIME + 3_000 * len(self.links),
                parent_id=None if parent is None else f"resp_{parent}",
                usage=usage if random.random() < 0.95 else None,
                reported={"service_tier": random.choice(["default", "flex", "batch", "fast"])},
            )
        )
        self.paths.append(head)

    def view(self) -> ConversationView:
        return view_of(self.links, self.paths)


def view_of(links: Sequence[Link], paths: Sequence[Path]) -> ConversationView:
    path = paths[-1]
    index = path_index_of(paths)
    return ConversationView("talk", Strategy.SESSION, None, path, path.head, tuple(links), index, prices=PRICES)


def generate(seed: int, *, has_files: bool = True) -> Generator:
    generator = Generator(seed, has_files=has_files)
    while len(generator.links) < 40:
        generator.add_request()
    return generator


def cost_of(row: BillRow) -> float:
    return sum(charge.cost_usd for charge in (row.first, row.cached, row.uncached, row.output))


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(n, marks=pytest.mark.full) for n in range(10, 50))])
def test_the_rows_of_every_grouping_sum_to_the_cost_and_the_tokens_of_the_requests(seed: int) -> None:
    view = generate(seed).view()
    total = sum_link_usage(view.links, PRICES)
    assert total
    assert total.known_cost_usd
    for by in GROUPINGS:
        rows = build_bill(view, by=by)
        assert sum(row.cost_usd for row in rows) == pytest.approx(total.known_cost_usd, rel=1e-9)
        assert sum(map(cost_of, rows)) == pytest.approx(total.known_cost_usd, rel=1e-9)
        tokens = [sum(charge.tokens for charge in row[3:7]) for row in rows]
        assert sum(tokens) == pytest.approx(total.usage.input_tokens + total.usage.output_tokens, abs=4 * len(tokens))
    few = build_bill(view, max_rows=3)
    assert [row.kind == "others" for row in few] == [False, False, False, True]
    assert sum(row.cost_usd for row in few) == pytest.approx(total.known_cost_usd, rel=1e-9)


def shown_items(path: Path) -> list[Item]:
    """The items that a model receives: a compaction item replaces all before it but what users and developers wrote."""
    items = list(path.items)
    last = max((index for index, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    return [item for item in items[:last] if is_user_message(item) or is_instruction(item)] + items[last:]


def name_of(item: Item) -> str:
    return f"{item['name']} {item['arguments']}" if item.get("type") == "function_call" else item_preview(item)


DETAILS = ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens")


def charge_each_item(generator: Generator) -> dict[str, list[float]]:
    """Charge every part of every request by itself: tokens and USD of the input by name."""
    sums: dict[str, list[float]] = {}
    for link, head in zip(generator.links, generator.paths, strict=True):
        price = find_price(link.model, PRICES, link.service_tier) or Price(0.0, 0.0, 0.0)
        if link.usage is None or link.parameters.get("context_management"):
            continue
        cached, written, hour = (link.usage["input_tokens_details"][name] for name in DETAILS)
        total = link.usage["input_tokens"]
        factor = price.long_input_factors[0] if price.max_input_tokens and total > price.max_input_tokens else 1.0
        write, write_1h = price.write_prices()
        write_usd = (write * (written - hour) + write_1h * hour) / written if written else 0.0
        classes = [*[price.cached] * cached, *[write_usd] * written, *[price.input] * (total - cached - written)]
        sums_before = [0.0, *accumulate(classes)]
        items = shown_items(head.up_to(link.input_head))
        tools = [(each["name"], count_tokens((), tools=[each]).tokens) for each in link.parameters.get("tools", ())]
        text = link.parameters.get("instructions")
        instructions = [("instructions", count_tokens((), text).tokens)] if text else []
        shown = list(zip(map(name_of, items), count_item_tokens(items), strict=True))
        parts = (
            [*tools, *shown, *instructions] if link.model == "openai/gpt-6.2-sol" else [*tools, *instructions, *shown]
        )
        scale, position = total / sum(tokens for _, tokens in parts), 0.0
        for name, tokens in parts:
            start, position = position, min(total, position + tokens * scale)
            before = [interp(sums_before, each) for each in (start, position)]
            sum_ = sums.setdefault(name, [0.0, 0.0])
            sum_[0] += position - start
            sum_[1] += factor * (before[1] - before[0]) / 1e6
    return sums


def interp(values: Sequence[float], position: float) -> float:
    index = min(int(position), len(values) - 2)
    return values[index] + (position - index) * (values[index + 1] - values[index]) if len(values) > 1 else 0.0


@pytest.mark.parametrize("seed", range(5))
def test_each_item_is_charged_its_part_of_each_request_that_had_it(seed: int) -> None:
    generator = generate(seed, has_files=False)
    bill = build_bill(generator.view())
    expected = charge_each_item(generator)
    found: dict[str, list[float]] = {}
    for row in bill:
        name = "instructions" if row.kind == "instructions" else row.name
        if row.kind in ("unknown",) or name.startswith("requests for") or not any(row[3:6]):
            continue
        sum_ = found.setdefault(name, [0.0, 0.0])
        for charge in row[3:6]:
            sum_[0] += charge.tokens
            sum_[1] += charge.cost_usd
    assert {name for name, (tokens, _) in found.items() if tokens} <= set(expected)
    for name, (tokens, cost_usd) in expected.items():
        assert found.get(name, [0.0, 0.0])[0] == pytest.approx(tokens, abs=9), name
        assert found.get(name, [0.0, 0.0])[1] == pytest.approx(cost_usd, rel=1e-6, abs=1e-9), name


def test_the_number_of_calls_grows_in_proportion_to_the_requests() -> None:
    """1,000 requests have 500,000 pairs with an item."""
    counts = []
    for count in (100, 200):
        path, links = Path(ROOT), []
        for number in range(count):
            path = path.append([user_message(f"question {number}")])
            link = make_link(f"resp_{number}", path, make_usage(1_000 + number, 10, cached=500, written=number))
            path = path.append([assistant_message(f"answer {number}")])
            links.append(replace(link, head=path.head, created_at=number, parent_id=f"resp_{number - 1}"))
        with CallCount() as calls:
            build_bill(view_of(links, [path]), max_rows=10)
        counts.append(calls.total)
    assert counts[1] < 2.1 * counts[0]


def test_a_file_that_only_its_provider_has_is_charged_the_tokens_that_no_other_item_explains() -> None:
    question, file = user_message("one two three four"), {"type": "input_file", "file_id": "file_1"}
    first = Path(ROOT).append([question])
    second = first.append([user_message("read it", file)])
    tokens = count_item_tokens([question])[0]
    links = [
        make_link("resp_1", first, make_usage(10 * tokens, 0)),  # ten billed tokens for each that is counted here
        replace(make_link("resp_2", second, make_usage(10 * tokens + 60 + 5_000, 0)), created_at=START_TIME + 1),
    ]
    rows = {row.name: row for row in build_bill(view_of(links, [second]), by="file")}
    assert rows["file_1"].first.tokens == pytest.approx(5_000, abs=20)
    assert rows["no file"].first.tokens + rows["no file"].uncached.tokens == pytest.approx(20 * tokens + 60, abs=20)


def test_the_cache_miss_of_a_compaction_is_its_own() -> None:
    path = Path(ROOT).append([user_message("why " * 100)])
    compaction = {"parameters": {"context_management": COMPACTION_CONTEXT_MANAGEMENT}, "parent_id": "resp_1"}
    links = [
        make_link("resp_1", path, make_usage(9_000, 10, written=9_000)),
        make_link("resp_2", path, make_usage(9_000, 10), created_at=START_TIME + 60, **compaction),
    ]
    assert [row.name for row in build_bill(view_of(links, [path])) if row.missed_usd] == ["requests for compactions"]


def test_a_request_whose_items_were_deleted_is_a_row_of_its_own() -> None:
    path = Path(ROOT).append([user_message("hi")])
    link = make_link("resp_1", path, make_usage(1_000, 100, cached=400, reasoning=30))
    (unknown, output, reasoning) = build_bill(view_of([link], [Path(ROOT)]))
    assert (unknown.name, unknown.kind, unknown.first.tokens) == ("items that were deleted", "unknown", 1_000)
    assert (output.name, output.output.tokens) == ("output without an item", 70)
    assert (reasoning.name, reasoning.output.tokens) == ("reasoning without an item", 30)
