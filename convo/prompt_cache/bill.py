"""The bill of a conversation by item, tool, file, agent, model, day or kind, over all of its requests, forks included.

The prompt of a request is its tools, instructions and items, in this order. Its first tokens are read from the cache,
the next are written to it, the rest is uncached. The tokens of each part are counted here and scaled, so that their sum
is what the endpoint reported: the costs of all parts sum to the cost of the request.

Requests share the nodes of their history, and 1,000 of them have 500,000 pairs of a request and an item. So a request
is charged like a range in a difference array: its prices are added at the nodes where its cached and its written tokens
end, and `_Ledger.sum_charges` sums them up towards the root once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from convo.compaction.window import is_instruction
from convo.config.sections import Price
from convo.history.canonical import digest
from convo.history.items import (
    Item,
    Json,
    called_tools,
    get_call_id,
    is_user_message,
    item_preview,
    item_text,
    item_type,
)
from convo.history.records import Link, is_compaction_link
from convo.history.tree import Key
from convo.inspect.context_window import ITEM_CATEGORIES
from convo.inspect.run_timeline import RunTimeline
from convo.inspect.view import ConversationView
from convo.prompt_cache import Grouping
from convo.prompt_cache.compare import find_separate_instructions
from convo.prompt_cache.why import Miss, find_misses, has_cache_figures
from convo.report import Count
from convo.usage.cost import TOKENS_PER_PRICE, Usage
from convo.usage.counting import ITEM_OVERHEAD_TOKENS, count_item_tokens, count_tokens
from convo.usage.model_info import appends_instructions, find_price


class Charge(NamedTuple):
    """Billed tokens; `requests` is how often a part of the row was billed so."""

    requests: Count
    tokens: Count
    cost_usd: float


class BillRow(NamedTuple):
    """A row of the bill; the costs of all rows sum to the cost of the requests that have a known price.

    kind:        of an item, such as "tools" or "answers"; "others" for the sum of several rows; "" for another group
    key:         of the first node of an item; null for other rows
    first:       the first request that had it as input; 0 for an agent, a model or a day
    cached:      later requests that read it from the cache
    uncached:    later requests that sent it uncached, or wrote it to the cache again
    output:      responses that produced it
    missed_usd:  cost of the cache misses that a change of it caused; the costs of the rows include it
    response_id: of the response that produced an item, or of the first one that had it as input; null for other rows
    hit_rate:    the cached part of the input tokens of an agent, a model or a day, from 0 to 1; null for other rows
                 and where no endpoint reports cached tokens
    """

    name: str
    kind: str
    key: Key | None
    first: Charge
    cached: Charge
    uncached: Charge
    output: Charge
    cost_usd: float
    missed_usd: float
    response_id: str | None
    hit_rate: float | None


_Charges: TypeAlias = list[float]
"""Count, tokens and USD of each `Charge` of a row, in order; then the USD of the misses."""

_FIRST, _CACHED, _UNCACHED, _OUTPUT, _MISSED = 0, 3, 6, 9, 12


class _Part(NamedTuple):
    """A part of the bill: a tool, instructions, an item, or all requests of a model.

    identity:  the digest of an item: equal items on several branches are one part
    files:     the share of the tokens that each uploaded file has

    The key and the response are as in `BillRow`.
    """

    name: str
    kind: str = ""
    identity: str = ""
    key: Key | None = None
    response_id: str | None = None
    tool: str | None = None
    files: tuple[tuple[str, float], ...] = ()


def build_bill(
    view: ConversationView, *, by: Grouping = "item", max_rows: int | None = None, timelines: Sequence[RunTimeline] = ()
) -> list[BillRow]:
    """Split the cost of the requests of a conversation; the most expensive parts first, days in order.

    max_rows:   all further parts are one last row of the kind "others"; None for no limit
    timelines:  of the agent runs that made the requests, for their agents
    """
    name_of: Mapping[str, Callable[[Link], str]] = {
        "agent": lambda link: _find_agent(link.created_at, timelines) or "no agent",
        "model": lambda link: link.model,
        "day": lambda link: str(datetime.fromtimestamp(link.created_at, UTC).date()),
    }
    counted = _find_counted_names(view, name_of[by]) if by in name_of else set[str]()
    parts = _charge_requests(view, name_of[by]) if by in name_of else _group_parts(_Ledger(view).sum_charges(), by)
    sums: dict[tuple[str, ...], tuple[_Part, _Charges]] = {}
    for part, charges in parts:
        _add(sums.setdefault(part[:3], (part, _no_charges()))[1], charges)
    rows = [_build_row(part, charges, has_hit_rate=part.name in counted) for part, charges in sums.values()]
    rows.sort(key=lambda row: (row.cost_usd + row.missed_usd, sum(each.tokens for each in row[3:7])), reverse=True)
    shown, others = rows[:max_rows], rows[len(rows[:max_rows]) :]
    if by == "day":
        shown.sort(key=lambda row: row.name)
    if others:
        rest = _no_charges()
        for row in others:
            _add(rest, [*row.first, *row.cached, *row.uncached, *row.output, row.missed_usd])
        has_hit_rate = any(row.hit_rate is not None for row in others)
        shown.append(_build_row(_Part(f"{len(others):,} others", "others"), rest, has_hit_rate=has_hit_rate))
    return shown


def _build_row(part: _Part, charges: _Charges, *, has_hit_rate: bool) -> BillRow:
    # Sums of many floating-point numbers may be 1e-18 instead of 0.
    sums = [max(0.0, round(value, 12)) for value in charges]
    first, cached, uncached, output = (
        Charge(round(sums[start]), round(sums[start + 1]), sums[start + 2])
        for start in (_FIRST, _CACHED, _UNCACHED, _OUTPUT)
    )
    cost_usd = sum(sums[_FIRST + 2 : _MISSED : 3])
    charged, input_tokens = (first, cached, uncached, output), cached.tokens + uncached.tokens
    hit_rate = cached.tokens / input_tokens if has_hit_rate and input_tokens else None
    return BillRow(part.name, part.kind, part.key, *charged, cost_usd, sums[_MISSED], part.response_id, hit_rate)


def _no_charges() -> _Charges:
    return [0.0] * (_MISSED + 1)


def _add(charges: list[float], others: Sequence[float], start: int = 0, factor: float = 1.0) -> None:
    for index, value in enumerate(others, start):
        charges[index] += factor * value


def _group_parts(parts: Iterable[tuple[_Part, _Charges]], by: Grouping) -> Iterator[tuple[_Part, _Charges]]:
    for part, charges in parts:
        if by == "item":
            yield part, charges
        elif by != "file":
            yield _Part(part.kind if by == "kind" else part.tool or "no tool"), charges
        else:
            for name, share in (*part.files, ("no file", 1 - sum(share for _, share in part.files))):
                yield _Part(name), [share * charge for charge in charges]


def _find_counted_names(view: ConversationView, name: Callable[[Link], str]) -> set[str]:
    """Return the names of the rows with a request whose endpoint counts cached tokens."""
    usages = ((link.model, Usage.from_json(link.usage)) for link in view.links)
    cached_models = {model for model, usage in usages if usage and usage.cached_tokens}
    return {name(link) for link in view.links if has_cache_figures(link, cached_models)}


def _charge_requests(view: ConversationView, name_of: Callable[[Link], str]) -> Iterator[tuple[_Part, _Charges]]:
    misses = {miss.link.id: miss.cost_usd or 0.0 for miss in find_misses(view)}
    for link in view.links:
        if usage := Usage.from_json(link.usage):
            prompt, charges = _read_prompt(link, usage, view.prices), _no_charges()
            cached, cached_usd, other, other_usd = prompt.split(0, prompt.tokens)
            _add(charges, (cached > 0, cached, cached_usd, other > 0, other, other_usd), _CACHED)
            _add(charges, (1, usage.output_tokens, usage.output_tokens * prompt.output_usd), _OUTPUT)
            charges[_MISSED] = misses.get(link.id, 0.0)
            yield _Part(name_of(link)), charges


def _find_agent(time: float, timelines: Sequence[RunTimeline]) -> str | None:
    """Return the agent that made a request at this time."""
    for run in timelines:
        if run.started_at <= time <= run.changed_at:
            handoffs = [entry for entry in run.entries if entry.kind == "handoff"]
            agents = [entry.target for entry in handoffs if entry.started_at <= time]
            return agents[-1] if agents else handoffs[0].agent if handoffs else run.agent
    return None


class _Prompt(NamedTuple):
    """The input of one request: where its cached and its written tokens end, and the USD of a token of each class."""

    tokens: int
    cached_end: int
    written_end: int
    cached_usd: float
    written_usd: float
    uncached_usd: float
    output_usd: float

    def split(self, start: float, end: float) -> tuple[float, float, float, float]:
        """Return the cached tokens of a range and their USD, and the other tokens and their USD."""
        cached = min(end, self.cached_end) - min(start, self.cached_end)
        written = min(max(end, self.cached_end), self.written_end) - min(max(start, self.cached_end), self.written_end)
        uncached = end - start - cached - written
        other_usd = written * self.written_usd + uncached * self.uncached_usd
        return cached, cached * self.cached_usd, written + uncached, other_usd


def _read_prompt(link: Link, usage: Usage, prices: Mapping[str, Price]) -> _Prompt:
    """Return the classes of the input tokens; without a price they cost nothing."""
    price = find_price(link.model, prices, link.service_tier) or Price(0.0, 0.0, 0.0)
    price = price.at_length(usage.input_tokens)
    written, written_1h = price.write_prices()
    written += (written_1h - written) * usage.cache_write_1h_tokens / (usage.cache_write_tokens or 1)
    ends = usage.cached_tokens, usage.cached_tokens + usage.cache_write_tokens
    token_prices = (value / TOKENS_PER_PRICE for value in (price.cached, written, price.input, price.output))
    return _Prompt(usage.input_tokens, *ends, *token_prices)


_COMPACTIONS = _Part("requests for compactions", "compaction")

_ROUNDING = 1e-6
"""Positions in tokens that differ by less are equal."""


class _Ledger:
    """The charges of each part. Nodes have numbers, 0 is the root; a position in a path is a number of tokens.

    A compaction item replaces the items before it, except messages of the user and instructions. So a node has two
    positions and two sums: the `kept_` ones are for paths in which a compaction item follows it.
    """

    def __init__(self, view: ConversationView) -> None:
        self._index, self._prices = view.path_index, view.prices
        self._keys, self._parents, self._items = [view.path_index.root], [0], list[Item]([{}])
        self._numbers: dict[Key, int] = {view.path_index.root: 0}
        for number, (key, node) in enumerate(view.path_index, 1):
            self._numbers[key] = number
            self._keys.append(key)
            self._parents.append(self._numbers[node.parent])
            self._items.append(node.item)
        count = len(self._items)
        self._sizes = [0.0, *map(float, count_item_tokens(self._items[1:]))]
        self._is_visited = [True, *[False] * (count - 1)]
        self._is_compaction = [item_type(item) == "compaction" for item in self._items]
        self._is_kept = [is_user_message(item) or is_instruction(item) for item in self._items]
        self._starts, self._ends, self._kept_starts, self._kept_ends = ([0.0] * count for _ in range(4))
        # For each token up to the end of the node: cached tokens, USD, other tokens, USD; then the number of requests
        # that read it from the cache, and of all requests. `_single` has the same sums for one node alone.
        self._sums, self._kept_sums, self._single = ([[0.0] * 6 for _ in range(count)] for _ in range(3))
        self._response_ids: list[str | None] = [None] * count
        self._node_charges = [_no_charges() for _ in range(count)]
        self._part_charges: dict[_Part, _Charges] = {}
        self._fixed_parts: tuple[Json, Json, list[tuple[_Part, float]]] = (None, None, [])
        self._scale = 1.0
        for link in sorted(view.links, key=lambda link: link.created_at):
            if usage := Usage.from_json(link.usage):
                self._charge(link, usage, _read_prompt(link, usage, view.prices))
        for miss in find_misses(view):
            self._charge_miss(miss)

    def sum_charges(self) -> Iterator[tuple[_Part, _Charges]]:
        """Yield all parts with their charges."""
        calls = {get_call_id(item): called_tools([item]) for item in self._items if item_type(item).endswith("_call")}
        for number in range(len(self._items) - 1, 0, -1):  # each before its parent
            sums, kept_sums, single = self._sums[number], self._kept_sums[number], self._single[number]
            parent, charges = self._parents[number], self._node_charges[number]
            for applied in (sums, kept_sums) if self._is_kept[number] else (sums,):
                _add(single, applied[:4], factor=self._sizes[number])
                _add(single, applied[4:], 4)
            _add(self._kept_sums[parent], kept_sums)
            _add((self._kept_sums if self._is_compaction[number] else self._sums)[parent], sums)
            cached, cached_usd, other, other_usd, cached_count, request_count = single
            _add(charges, (cached_count, cached, cached_usd, request_count - cached_count, other, other_usd), _CACHED)
            if any(charges):
                part = _describe_item(self._items[number], self._sizes[number], calls)
                yield part._replace(key=self._keys[number], response_id=self._response_ids[number]), charges
        yield from self._part_charges.items()

    def _charge(self, link: Link, usage: Usage, prompt: _Prompt) -> None:
        """Charge a request, after those before it."""
        if is_compaction_link(link):  # the items of its path are its result
            self._charge_range(_COMPACTIONS, prompt, 0, prompt.tokens)
            self._charge_output(usage.output_tokens, prompt, (), _COMPACTIONS)
            return
        self._charge_input(link, prompt)
        index, output = self._index, list[int]()
        if link.head in index and link.input_head in index:
            count = index.depth(link.head) - index.depth(link.input_head)
            output = [self._numbers[key] for key in index.last_keys(link.head, count)]
        for number in output:
            self._response_ids[number] = link.id
        reasoning_tokens = min(usage.reasoning_tokens, usage.output_tokens)
        reasoning = [number for number in output if item_type(self._items[number]) == "reasoning"]
        answers = [number for number in output if number not in reasoning] if reasoning_tokens else output
        self._charge_output(reasoning_tokens, prompt, reasoning, _Part("reasoning without an item", "reasoning"))
        answer_tokens = usage.output_tokens - reasoning_tokens
        self._charge_output(answer_tokens, prompt, answers, _Part("output without an item", "unknown"))

    def _charge_output(self, tokens: int, prompt: _Prompt, numbers: Sequence[int], other: _Part) -> None:
        """Charge output tokens to nodes by their size; without nodes to `other`."""
        total = sum(self._sizes[number] for number in numbers)
        shares = [(self._node_charges[number], self._sizes[number] / total) for number in numbers]
        if tokens:
            for charges, share in shares or [(self._charges_of(other), 1.0)]:
                _add(charges, (1, share * tokens, share * tokens * prompt.output_usd), _OUTPUT)

    def _charge_input(self, link: Link, prompt: _Prompt) -> None:
        fixed, head = self._list_fixed_parts(link), self._numbers.get(link.input_head)
        fixed_tokens = sum(tokens for _, tokens in fixed)
        new = [] if head is None else self._visit(head, prompt.tokens / self._scale - fixed_tokens)
        for number in new:
            self._response_ids[number] = self._response_ids[number] or link.id
        total = fixed_tokens + (0.0 if head is None else self._ends[head])
        if head is None or not total:
            self._charge_range(_Part("items that were deleted", "unknown"), prompt, 0, prompt.tokens)
        elif prompt.tokens:
            self._scale = prompt.tokens / total
            instructions_follow, position = appends_instructions(link.model), 0.0
            before = [(part, tokens) for part, tokens in fixed if part.kind == "tools" or not instructions_follow]
            for part, tokens in (*before, (None, self._ends[head]), *fixed[len(before) :]):
                if part is None:
                    self._charge_items(head, new, prompt, position)
                else:
                    self._charge_range(part, prompt, position * self._scale, (position + tokens) * self._scale)
                position += tokens

    def _charges_of(self, part: _Part) -> _Charges:
        return self._part_charges.setdefault(part, _no_charges())

    def _charge_range(self, part: _Part, prompt: _Prompt, start: float, end: float) -> None:
        """Charge a part that is not an item."""
        charges, (cached, cached_usd, other, other_usd) = self._charges_of(part), prompt.split(start, end)
        if not charges[_FIRST]:
            _add(charges, (1, cached + other, cached_usd + other_usd), _FIRST)
        else:
            is_cached = other < _ROUNDING
            _add(charges, (is_cached, cached, cached_usd, not is_cached, other, other_usd), _CACHED)

    def _charge_items(self, head: int, new: Sequence[int], prompt: _Prompt, offset: float) -> None:
        """Charge the items up to `head`; the first one begins at the position `offset` of the prompt."""
        scale = self._scale
        cached_usd, written_usd, uncached_usd = (scale * usd for usd in prompt[3:6])
        cached_end = prompt.cached_end / scale - offset
        _add(self._sums[head], (0, 0, scale, uncached_usd, 0, 1))
        self._add_before(head, cached_end, (scale, cached_usd, -scale, -written_usd, 1, 0))
        self._add_before(head, prompt.written_end / scale - offset, (0, 0, 0, written_usd - uncached_usd, 0, 0))
        compactions = [index for index, number in enumerate(new) if self._is_compaction[number]]
        first_shown = compactions[-1] if compactions else 0
        for index, number in enumerate(new):
            start, end = self._starts[number], self._ends[number]
            if index < first_shown:
                start, end = self._kept_starts[number], self._kept_ends[number]
            if index >= first_shown or self._is_kept[number]:  # move it from the later requests to the first one
                cached, usd, other, other_usd = prompt.split(scale * (offset + start), scale * (offset + end))
                _add(self._node_charges[number], (1, cached + other, usd + other_usd), _FIRST)
                is_cached = end <= cached_end + _ROUNDING
                _add(self._single[number], (cached, usd, other, other_usd, is_cached, 1), factor=-1)

    def _add_before(self, head: int, position: float, values: Sequence[float]) -> None:
        """Add `values` to the sums of all tokens before a position of the path to `head`."""
        if position <= 0:
            return
        number, starts, ends, sums = head, self._starts, self._ends, self._sums
        while number and starts[number] >= position:
            if self._is_compaction[number]:
                starts, ends, sums = self._kept_starts, self._kept_ends, self._kept_sums
            number = self._parents[number]
        if ends[number] > position + _ROUNDING:  # a part of the node
            _add(self._single[number], values[:4], factor=position - starts[number])
            sums = self._kept_sums if self._is_compaction[number] else sums
            number = self._parents[number]
        _add(sums[number], values)

    def _list_fixed_parts(self, link: Link) -> list[tuple[_Part, float]]:
        """Return the tools and the instructions of a request, with their tokens; not if an item has them."""
        tools = link.parameters.get("tools")
        instructions = find_separate_instructions(link, self._index)
        if (tools, instructions) != self._fixed_parts[:2]:
            # A recorded request has the tools as its client sent them, also those that no server accepts.
            known = [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
            parts = [(_describe_tool(tool), float(count_tokens((), tools=[tool]).tokens)) for tool in known]
            if instructions and isinstance(instructions, str):
                part = _Part(item_preview({"content": instructions}), "instructions", instructions)
                parts.append((part, float(count_tokens((), instructions).tokens)))
            self._fixed_parts = (tools, instructions, parts)
        return self._fixed_parts[2]

    def _visit(self, head: int, expected_tokens: float) -> list[int]:
        """Set the positions of the nodes up to `head` that no earlier request had, and return them, oldest first.

        Files that only their provider has share the tokens that `expected_tokens` has more than all other items.
        """
        new: list[int] = []
        while not self._is_visited[head]:
            new.append(head)
            self._is_visited[head] = True
            head = self._parents[head]
        new.reverse()
        if files := [number for number in new if any(tokens is None for _, tokens in _list_files(self._items[number]))]:
            missing = expected_tokens - self._ends[head] - sum(self._sizes[number] for number in new)
            for number in files:
                self._sizes[number] += max(0.0, missing / len(files))
        for number in new:
            parent, tokens = self._parents[number], self._sizes[number]
            self._kept_starts[number] = self._kept_ends[parent]
            self._kept_ends[number] = self._kept_ends[parent] + self._is_kept[number] * tokens
            self._starts[number] = (self._kept_ends if self._is_compaction[number] else self._ends)[parent]
            self._ends[number] = self._starts[number] + tokens
        return new

    def _charge_miss(self, miss: Miss) -> None:
        """Charge the cost of a cache miss to the item, tool or setting whose change caused it."""
        change, index = miss.change, self._index
        if change is None:
            return
        if is_compaction_link(miss.link):
            charges = self._charges_of(_COMPACTIONS)
        elif change.item_index is not None:
            heads = (miss.link.input_head, miss.earlier.input_head)  # a removed item is only in the earlier request
            head = next(head for head in heads if index.depth(head) > change.item_index)
            key = index.keys_after(head, change.item_index)[0]
            charges = self._node_charges[self._numbers[key]]
        else:
            kind = change.name if change.name in ("tools", "instructions") else "setting"
            parts = [part for part, _ in self._list_fixed_parts(miss.link) if part.kind == kind]
            place = re.match(r"\[(\d+)\]", change.difference.path if change.difference else "")
            number = int(place[1]) if place else 0 if kind == "instructions" else len(parts)
            charges = self._charges_of(parts[number] if number < len(parts) else _Part(change.name, kind))
        charges[_MISSED] += miss.cost_usd or 0.0


def _describe_tool(tool: Mapping[str, Json]) -> _Part:
    name = str(tool.get("name") or tool.get("server_label") or tool.get("type"))
    return _Part(name, "tools", tool=name)


def _describe_item(item: Item, tokens: float, calls: Mapping[str | None, Sequence[str]]) -> _Part:
    """Describe an item of `tokens` tokens; `calls` has the names of the called tools by the id of the call."""
    kind = next(name for name, is_member in ITEM_CATEGORIES.items() if is_member(item))
    tools = called_tools([item]) or (calls.get(call_id, ()) if (call_id := get_call_id(item)) else ())
    tool, files = next(iter(tools), None), _list_files(item)
    detail = item.get("arguments") or item.get("input") or ""
    name = item_preview({"content": f"{tool} {detail}"}) if tool and not item_text(item) else item_preview(item)
    unsized = (tokens - count_item_tokens([item])[0]) / max(1, sum(size is None for _, size in files)) if files else 0.0
    shares = tuple((name, (unsized if size is None else size) / tokens) for name, size in files)
    return _Part(name, kind, digest(item), tool=tool, files=shares)


_TEXT_FILE = re.compile(r"([^\n/]*\.\w+):\n")
"""The beginning of a part of a message with an attached text, as `convo.chat.files` makes it."""


def _list_files(item: Item) -> list[tuple[str, float | None]]:
    """Return the name of each file and image in an item, with its tokens; None if only its provider has it."""
    contents = (item.get(field) for field in ("content", "output"))
    parts = (part for content in contents if isinstance(content, list) for part in content if isinstance(part, Mapping))
    files: list[tuple[str, float | None]] = []
    for part in parts:
        urls = (part.get(field) for field in ("file_url", "image_url"))
        url = next((url for url in urls if isinstance(url, str) and not url.startswith("data:")), None)
        text_file = _TEXT_FILE.match(str(part.get("text"))) if part.get("type") == "input_text" else None
        name = text_file[1] if text_file else part.get("filename") or part.get("file_id") or url
        if text_file or part.get("type") in ("input_file", "input_image"):
            is_unknown = part.get("type") == "input_file" and not part.get("file_data")
            size = count_item_tokens([{"role": "user", "content": [part]}])[0] - ITEM_OVERHEAD_TOKENS
            files.append((str(name or "image or file without a name"), None if is_unknown else float(size)))
    return files
