"""The usage and the cost of the next request of a conversation, without and with a change, before it is sent.

The base is the latest request whose usage was reported: only the items and settings that differ from it are estimated,
in the endpoint's own tokens as far as earlier requests show them. After a request its prompt is in the cache, up to
where it was read and written; the next one reads the longest such prompt that it begins with.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Annotated, NamedTuple

from convo.compaction.window import is_instruction
from convo.config.sections import Price
from convo.history.canonical import Digest, digest
from convo.history.items import Item, is_user_message, item_type, to_resendable
from convo.history.records import Link, is_compaction_link
from convo.history.tree import Key
from convo.inspect.view import PathIndex
from convo.prompt_cache.compare import (
    LOOKBACK_BLOCKS,
    count_new_blocks,
    find_separate_instructions,
    find_setting_change,
    find_shared_depth,
)
from convo.prompt_cache.forecast import MAX_TTL_S, PrefixForecast, count_cached_after
from convo.report import FLAT, Count
from convo.usage.cache_rules import CacheRules, find_cache_rules, find_claude_ttl, read_setting
from convo.usage.cost import Usage
from convo.usage.counting import count_item_tokens, count_tokens
from convo.usage.model_info import ModelWindow, appends_instructions, find_price, gpt_version

DEFAULT_MIN_TOKENS = 1_024
"""The shortest cached prompt of models for which no page states it."""


class NextUsage(NamedTuple):
    """The usage and the cost of a request that is not sent; tokens are estimates.

    cached_tokens:         part of input_tokens; 0 after the time for which the vendor keeps a prefix for certain
    cache_write_tokens:    part of input_tokens
    maybe_cached_tokens:   tokens that may be cached nevertheless, after that time
    window_percent:        of the context window; null if that is unknown
    lost_reasoning:        reasoning items that the model will not receive any more
    maybe_lost_reasoning:  those for which that is not certain; their tokens are in input_tokens
    input_usd:             null if the price is unknown, as the others
    output_usd:            of as many output tokens as the last response had
    later_usd:             of each later request and its output, with as much new input as the earlier ones on average
    """

    model: str
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    maybe_cached_tokens: Count
    window_percent: float | None
    lost_reasoning: Count
    maybe_lost_reasoning: Count
    input_usd: float | None
    output_usd: float | None
    later_usd: float | None


class NextForecast(NamedTuple):
    """The forecast of the next request.

    unchanged:            without the change; null if no change was given
    break_even_requests:  later requests after which the change costs less in total; 0: none; null: never, or unknown
    """

    request: Annotated[NextUsage, FLAT]
    unchanged: NextUsage | None = None
    break_even_requests: int | None = None


def compare_usage(unchanged: NextUsage, changed: NextUsage) -> NextForecast:
    """Return the forecast of a change."""
    costs = [
        (usage.input_usd + usage.output_usd, usage.later_usd)
        for usage in (unchanged, changed)
        if usage.input_usd is not None and usage.output_usd is not None and usage.later_usd is not None
    ]
    break_even = None
    if len(costs) == len((unchanged, changed)):
        (first, later), (changed_first, changed_later) = costs
        if changed_first <= first and changed_later <= later:
            break_even = 0
        elif changed_later < later:
            break_even = math.ceil((changed_first - first) / (later - changed_later))
    return NextForecast(changed, unchanged, break_even)


def forecast_usage(
    links: Sequence[Link],
    planned: Link,
    path_index: PathIndex,
    prices: Mapping[str, Price],
    window: ModelWindow | None,
    prefix: PrefixForecast | None,
    token_count: int | None = None,
) -> NextUsage:
    """Return the usage of a request that is not sent.

    planned:     the link of the request, without an output
    links:       the answered ones of its branch, oldest first
    path_index:  the nodes of the request and of the links
    prices:      the user's own, by full name of the model
    prefix:      what the request loses
    token_count: of its input, as its endpoint counted it; None: an estimate
    """
    links = [link for link in links if link.input_head in path_index and not is_compaction_link(link)]
    requests = [_Request(link, usage) for link in links if (usage := Usage.from_json(link.usage))]
    lost_reasoning = prefix.lost_reasoning if prefix else ()
    lost_indexes = [item.item_index for item in lost_reasoning if item.certainty == "yes"]
    rules = find_cache_rules(planned.model, planned.parameters)
    estimate = _TokenEstimate(requests, _VisibleItems(path_index))
    tokens = estimate.count_input(planned, lost_indexes) if token_count is None else token_count
    # Reasoning does not count for OpenAI's minimum.
    reasoning = estimate.count_reasoning(planned, lost_indexes) if rules.vendor == "openai" else 0
    is_long = tokens - reasoning >= (rules.min_tokens or DEFAULT_MIN_TOKENS)
    cached = maybe_cached = written = 0
    is_written = is_long and _writes_cache(planned, requests, rules)
    is_reported = is_written or _reports_cache(requests)
    if is_long:
        found = _find_readable(requests, planned, rules, estimate, lost_indexes, is_reported=is_reported)
        cached, maybe_cached = (min(tokens, count) for count in found)
    if is_written:
        written = max(0, estimate.count_cacheable(planned, tokens) - cached)
    last = requests[-1] if requests else None
    output_tokens = last.usage.output_tokens if last else 0
    is_1h = rules.vendor == "anthropic" and find_claude_ttl(planned.parameters) == "1h"
    usage = Usage(tokens, cached, 0, 0, written, written * is_1h)
    growth = _compute_growth(requests)
    cached_later = count_cached_after(usage, rules, is_reported=is_reported)
    later = Usage(tokens + growth, cached_later, output_tokens, 0, growth * is_written, growth * is_written * is_1h)
    price = find_price(planned.model, prices, last.link.service_tier if last else None)
    return NextUsage(
        model=planned.model,
        input_tokens=tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
        maybe_cached_tokens=max(0, maybe_cached - cached),
        window_percent=round(100 * tokens / window.context, 1) if window and window.context else None,
        lost_reasoning=len(lost_indexes),
        maybe_lost_reasoning=len(lost_reasoning) - len(lost_indexes),
        input_usd=usage.cost_usd(price),
        output_usd=Usage(output_tokens=output_tokens).cost_usd(price.at_length(tokens) if price else None),
        later_usd=later.cost_usd(price),
    )


class _Request(NamedTuple):
    """An answered request, and its usage as its endpoint reported it."""

    link: Link
    usage: Usage


def _compute_growth(requests: Sequence[_Request]) -> int:
    """Return the tokens that each request adds to the one before, on average."""
    if len(requests) < 2:
        return sum(request.usage.output_tokens for request in requests)
    first, last = requests[0].usage.input_tokens, requests[-1].usage.input_tokens
    return max(0, last - first) // (len(requests) - 1)


# -- the cache ------------------------------------------------------------------------------------


def _reports_cache(requests: Iterable[_Request]) -> bool:
    return any(request.usage.cached_tokens or request.usage.cache_write_tokens for request in requests)


def _writes_cache(planned: Link, requests: Sequence[_Request], rules: CacheRules) -> bool:
    """Return whether the endpoint reports, and bills, what a long enough request writes to the cache."""
    if rules.vendor is None or rules.step_tokens > 1:
        return False
    is_explicit = read_setting(planned.parameters, "prompt_cache_options.mode") == "explicit"
    if rules.vendor == "openai" and not is_explicit:
        return True
    # Without a breakpoint nothing is written; those of recorded requests are not known.
    was_long = any(
        usage.input_tokens >= (find_cache_rules(link.model, {}).min_tokens or DEFAULT_MIN_TOKENS)
        for link, usage in requests
    )
    return _reports_cache(requests) or not (is_explicit or was_long)


def _find_readable(
    requests: Sequence[_Request],
    planned: Link,
    rules: CacheRules,
    estimate: "_TokenEstimate",
    lost_indexes: Sequence[int],
    *,
    is_reported: bool,
) -> tuple[int, int]:
    """Return the tokens that a request reads from the cache, and those of prompts that may be cached still.

    The time of a prompt begins again when a request reads it, or one that continues it.
    """
    visible, index = estimate.visible, estimate.visible.index
    used_at, shared, later = 0.0, 0, None
    for request in reversed(requests):
        link, usage = request
        depth = index.depth(link.input_head)
        if later is None or not index.is_ancestor(link.input_head, later.input_head):
            used_at, shared = link.created_at, find_shared_depth(link.input_head, planned.input_head, index)
        elif _changes_settings(link, later, rules):
            used_at = link.created_at
        later = link
        if _changes_settings(link, planned, rules):
            continue
        end = min([depth, shared, *lost_indexes, *visible.find_ended_reasoning(link, planned)])
        age_s = planned.created_at - used_at
        if rules.step_tokens > 1 or (rules.vendor is None and end < depth):
            usage = Usage(estimate.count_visible(request, end))
        elif end < depth:  # only the whole prompt was written
            continue
        elif rules.vendor == "anthropic" and (
            count_new_blocks(link.input_head, planned.input_head, index) - len(lost_indexes) > LOOKBACK_BLOCKS
        ):
            break
        if tokens := count_cached_after(usage, rules, is_reported=is_reported):  # older prompts are shorter
            if age_s < (rules.ttl_s or MAX_TTL_S):
                return tokens, 0
            # The time is a minimum with OpenAI.
            return 0, tokens if rules.vendor == "openai" and age_s < MAX_TTL_S else 0
    return 0, 0


def _changes_settings(earlier: Link, later: Link, rules: CacheRules) -> bool:
    setting = find_setting_change(earlier.model, earlier.parameters, later.model, later.parameters)
    # The key is a part of the prefix only before GPT-5.6.
    is_key = setting is not None and setting.change == "prompt_cache_key_changed"
    return setting is not None and not (is_key and rules.step_tokens == 1)


def _ends_cacheable_prefix(item: Item) -> bool:
    """Return whether OpenAI has an implicit breakpoint after an item; the one of the first instructions is left out."""
    return is_user_message(item) or item_type(item).endswith("_output")


# -- the items that the model receives --------------------------------------------------------------


class _VisibleItems:
    """The items of a request that the model receives, as nodes of the history.

    A turn begins with a message of the user. Most models do not receive the reasoning of the turns before.
    """

    def __init__(self, index: PathIndex) -> None:
        self.index = index
        self._digests: dict[Key, Digest] = {}

    def get_item(self, key: Key) -> Item:
        return self.index.item(key) or {}

    def is_reasoning(self, key: Key) -> bool:
        return item_type(self.get_item(key)) == "reasoning"

    def get_digest(self, key: Key) -> Digest:
        """Return the digest of the item as it is sent: two nodes may have the same item."""
        if key not in self._digests:
            self._digests[key] = digest(to_resendable(self.get_item(key)) or {})
        return self._digests[key]

    def list_keys(self, link: Link, depth: int = 0) -> list[Key]:
        """Return the nodes that a request shows to the model, after its first `depth` items."""
        keys = self.index.keys_after(link.input_head, depth)
        if _keeps_reasoning(link):
            return keys
        turn = self._find_turn(link) - depth
        return [key for index, key in enumerate(keys) if index >= turn or not self.is_reasoning(key)]

    def find_ended_reasoning(self, link: Link, planned: Link) -> list[int]:
        """Return the index of the first reasoning item that `link` shows and `planned` does not: its turn ended."""
        if _keeps_reasoning(planned):
            return []
        start, end = self._find_turn(link), self._find_turn(planned)
        keys = self.index.keys_after(link.input_head, start)[: max(0, end - start)]
        return [start + index for index, key in enumerate(keys) if self.is_reasoning(key)][:1]

    def compare(self, link: Link, earlier: Link) -> tuple[list[Key], list[Key]]:
        """Return the nodes whose items only the first of two requests shows, and those of the second."""
        shared = find_shared_depth(link.input_head, earlier.input_head, self.index)
        if not (_keeps_reasoning(link) and _keeps_reasoning(earlier)):
            is_same = _keeps_reasoning(link) == _keeps_reasoning(earlier)
            shared = min(shared, self._find_turn(link), self._find_turn(earlier)) if is_same else 0
        first, second = (self.list_keys(each, shared) for each in (link, earlier))
        if any(item_type(self.get_item(key)) == "compaction" for key in (*first, *second)):
            first, second = (self._leave_out_compacted(self.list_keys(each)) for each in (link, earlier))
        return self._subtract(first, second), self._subtract(second, first)

    def _find_turn(self, link: Link) -> int:
        """Return the index of the last message of the user in the input of a request; 0 without one."""
        head = link.input_head
        while head != self.index.root and not is_user_message(self.get_item(head)):
            head = self.index.key_before_last(head, 1)
        return max(0, self.index.depth(head) - 1)

    def _leave_out_compacted(self, keys: Sequence[Key]) -> list[Key]:
        """Leave out what the last compaction item replaces: all before it but some messages."""
        items = [self.get_item(key) for key in keys]
        last = max((index for index, item in enumerate(items) if item_type(item) == "compaction"), default=0)
        return [
            key
            for index, (key, item) in enumerate(zip(keys, items, strict=True))
            if index >= last or is_user_message(item) or is_instruction(item)
        ]

    def _subtract(self, keys: Sequence[Key], others: Sequence[Key]) -> list[Key]:
        """Return the nodes whose item is not among the others, or more often than there."""
        counts, left = Counter(map(self.get_digest, others)), []
        for key in keys:
            counts[self.get_digest(key)] -= 1
            if counts[self.get_digest(key)] < 0:
                left.append(key)
        return left


def _keeps_reasoning(link: Link) -> bool:
    """Return whether later turns receive the reasoning of a response: with OpenAI from GPT-5.6 on, and with Claude."""
    context = read_setting(link.parameters, "reasoning.context")
    if context in ("current_turn", "all_turns"):
        return bool(context == "all_turns")
    return link.model.rpartition("/")[2].startswith("claude") or gpt_version(link.model) >= (5, 6)


# -- their tokens -----------------------------------------------------------------------------------


class _TokenEstimate:
    """Estimates tokens as the endpoint counts them, from the usage of the requests before.

    Input: a request has more input tokens than the one before by those of the items between them; these are divided
    among the items in proportion to our own estimates. Output: a response reports the tokens of its items. An item
    that no request had yet gets our own estimate, times the ratio of the endpoint's tokens to ours so far.
    """

    def __init__(self, requests: Sequence[_Request], visible: _VisibleItems) -> None:
        self.visible = visible
        self._last = requests[-1] if requests else None
        self._input_tokens: dict[Digest, float] = {}
        self._output_tokens: dict[Digest, float] = {}
        self._item_ratio = self._setting_ratio = 1.0  # the endpoint's tokens to ours
        self._added_tokens = self._added_estimate = 0.0  # of the input after the first request
        self._uncached_instructions: dict[str | None, float] = {}
        for number, request in enumerate(requests):
            self._learn_input(request, requests[number - 1] if number else None)
            self._learn_output(request)

    def count_input(self, planned: Link, lost_indexes: Sequence[int]) -> int:
        """Return the input tokens of a request without the reasoning items at `lost_indexes`."""
        shown = set(self.visible.list_keys(planned)) if lost_indexes else set()
        keys = self.visible.index.keys_after(planned.input_head) if lost_indexes else []
        lost = self._sum_tokens([keys[index] for index in lost_indexes if keys[index] in shown])
        return max(0, round(self._predict_input(planned, self._last) - lost))

    def count_reasoning(self, planned: Link, lost_indexes: Sequence[int]) -> int:
        """Return the tokens of the reasoning items of a request, without those at `lost_indexes`."""
        keys = self.visible.index.keys_after(planned.input_head)
        lost = {keys[index] for index in lost_indexes}
        shown = self.visible.list_keys(planned)
        return round(self._sum_tokens([key for key in shown if self.visible.is_reasoning(key) and key not in lost]))

    def count_visible(self, request: _Request, depth: int) -> int:
        """Return the tokens of a request up to its first `depth` items, without reasoning."""
        later = set(self.visible.index.keys_after(request.link.input_head, depth))
        shown = self.visible.list_keys(request.link)
        left_out = [key for key in shown if key in later or self.visible.is_reasoning(key)]
        return max(0, round(request.usage.input_tokens - self._sum_tokens(left_out)))

    def count_cacheable(self, planned: Link, tokens: int) -> int:
        """Return the tokens up to the last breakpoint of a request that has `tokens` input tokens."""
        if find_cache_rules(planned.model, {}).vendor != "openai":
            return tokens
        keys = self.visible.index.keys_after(planned.input_head)
        items = map(self.visible.get_item, reversed(keys))
        end = next((len(keys) - number for number, item in enumerate(items) if _ends_cacheable_prefix(item)), None)
        if end is None:
            return 0
        instructions = self._count_instructions(planned) if appends_instructions(planned.model) else 0
        return round(tokens - instructions - self._sum_tokens(keys[end:]))

    def _predict_input(self, link: Link, base: _Request | None, *, is_known_only: bool = False) -> float:
        """Return the input tokens of a request by those of one before it.

        is_known_only:  without the items that no request before it has
        """
        if base is None:
            return self._count_settings(link) + self._sum_tokens(self.visible.list_keys(link))
        added, removed = self.visible.compare(link, base.link)
        if is_known_only:
            added = [key for key in added if self.visible.get_digest(key) in self._input_tokens]
        settings = self._count_settings(link) - self._count_settings(base.link)
        return base.usage.input_tokens + settings + self._sum_tokens(added) - self._sum_tokens(removed)

    def _learn_input(self, request: _Request, base: _Request | None) -> None:
        """Divide the tokens that a request has more than the one before it among the items that are new in it."""
        link, input_tokens = request.link, request.usage.input_tokens
        if base is None:
            new = self.visible.list_keys(link)
            self._item_ratio = self._setting_ratio = input_tokens / (self._predict_input(link, None) or 1.0) or 1.0
            tokens = self._list_tokens(new)
        else:
            added, _ = self.visible.compare(link, base.link)
            new = [key for key in added if self.visible.get_digest(key) not in self._input_tokens]
            tokens = self._list_tokens(new)
            new_tokens = input_tokens - self._predict_input(link, base, is_known_only=True)
            self._update_item_ratio(new, tokens, new_tokens)
            factor = new_tokens / sum(tokens) if sum(tokens) and new_tokens > 0 else 1.0
            tokens = [factor * count for count in tokens]
        self._input_tokens |= dict(zip(map(self.visible.get_digest, new), tokens, strict=True))
        cached = request.usage.cached_tokens + request.usage.cache_write_tokens
        is_rest = appends_instructions(link.model) and _ends_cacheable_prefix(self.visible.get_item(link.input_head))
        if cached and is_rest:  # nothing else is uncached
            self._uncached_instructions[find_separate_instructions(link, self.visible.index)] = input_tokens - cached

    def _update_item_ratio(self, keys: Sequence[Key], tokens: Sequence[float], new_tokens: float) -> None:
        """Adapt the ratio to the input that was added after the first request: the next input is like it."""
        is_reported = [self.visible.get_digest(key) in self._output_tokens for key in keys]
        reported = sum(compress(tokens, is_reported))
        estimate = (sum(tokens) - reported) / self._item_ratio
        if estimate > 0 and new_tokens > reported:
            self._added_tokens += new_tokens - reported
            self._added_estimate += estimate
            self._item_ratio = self._added_tokens / self._added_estimate

    def _learn_output(self, request: _Request) -> None:
        """Set the tokens of the output, which is a part of the input of later requests."""
        link, usage, index = request.link, request.usage, self.visible.index
        if link.head not in index:
            return
        keys = index.keys_after(link.head, index.depth(link.input_head))
        is_separate = usage.reasoning_tokens > 0  # Claude reports its thinking as output only
        reasoning = [key for key in keys if is_separate and self.visible.is_reasoning(key)]
        self._divide_output(reasoning, usage.reasoning_tokens)
        self._divide_output([key for key in keys if key not in reasoning], usage.output_tokens - usage.reasoning_tokens)

    def _divide_output(self, keys: Sequence[Key], reported_tokens: int) -> None:
        tokens = self._list_tokens(keys)
        factor = max(0, reported_tokens) / (sum(tokens) or 1.0)
        digests = map(self.visible.get_digest, keys)
        self._output_tokens |= {each: factor * count for each, count in zip(digests, tokens, strict=True)}

    def _sum_tokens(self, keys: Sequence[Key]) -> float:
        return sum(self._list_tokens(keys))

    def _list_tokens(self, keys: Sequence[Key]) -> list[float]:
        """Return the tokens of each node: by the usage of requests that had its item, else our estimate."""
        digests = map(self.visible.get_digest, keys)
        known = [self._input_tokens.get(each, self._output_tokens.get(each)) for each in digests]
        unknown = [self.visible.get_item(key) for key, count in zip(keys, known, strict=True) if count is None]
        estimates = iter(count_item_tokens(unknown))
        return [self._item_ratio * next(estimates) if count is None else count for count in known]

    def _count_settings(self, link: Link) -> float:
        tools = count_tokens((), None, link.parameters.get("tools")).tokens
        return self._count_instructions(link) + self._setting_ratio * tools

    def _count_instructions(self, link: Link) -> float:
        text = find_separate_instructions(link, self.visible.index)
        known = self._uncached_instructions.get(text)
        return self._setting_ratio * count_tokens((), text).tokens if known is None else known
