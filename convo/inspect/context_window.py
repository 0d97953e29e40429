"""Context use: tokens of each part of the next request.

Parts are tools, instructions, items that the owner prepends, and input. Counts are made before sending; an endpoint's
own count replaces them as one figure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from convo.history.items import Item, Json, is_assistant_message, is_compaction, is_summary, is_user_message, item_type
from convo.report import FLAT, Count, Wire
from convo.usage.counting import TOKENIZER_ENCODING, TokenCount, count_tokens
from convo.usage.model_info import ModelWindow


class ContextPart(NamedTuple):
    """One part of the context.

    item_count:  number of items, or of tools
    """

    name: Annotated[str, Wire("part")]
    item_count: Annotated[Count, Wire("items")]
    tokens: Annotated[TokenCount, FLAT]


class ContextUsage(NamedTuple):
    """All parts of the context, and their total.

    counted_by:  source of the count: "the endpoint", the name of the tokenizer's encoding, or "estimate"
    window:      context window of the model; None if unknown
    """

    parts: tuple[ContextPart, ...]
    total: TokenCount
    counted_by: str
    window: ModelWindow | None = None

    @property
    def free_tokens(self) -> int | None:
        """Free tokens, at least 0; None if the context window is unknown."""
        return None if self.window is None else max(0, self.window.context - self.total.tokens)

    @property
    def fits(self) -> bool | None:
        """Whether the model accepts an input of this size; None if the context window is unknown."""
        return None if self.window is None else self.total.tokens <= self.window.max_input


COUNTED_BY_ENDPOINT, COUNTED_BY_ESTIMATE = "the endpoint", "estimate"

ITEM_CATEGORIES: Mapping[str, Callable[[Item], bool]] = {
    "your messages": lambda item: is_user_message(item) and not is_summary(item),
    "answers": is_assistant_message,
    "reasoning": lambda item: item_type(item) == "reasoning",
    "compaction": is_compaction,
    "system messages": lambda item: item_type(item) == "message",
    "calls and outputs": lambda item: True,
}
"""Tests by category; an item belongs to the first category whose test it passes."""


def request_parts(
    before: Sequence[Item], owner: str, body: Mapping[str, Json], window: ModelWindow | None
) -> tuple[ContextPart, ...]:
    """Return the parts of a request: the items that its owner prepends, and the items that it sends.

    owner:  the name of the first part
    """
    prepended = [_items_part(owner, before, window)] if before else []
    return (
        *_tool_and_instruction_parts(body, window),
        *prepended,
        _items_part("input", body.get("input") or (), window),
    )


def category_parts(
    items: Iterable[Item], body: Mapping[str, Json], window: ModelWindow | None
) -> tuple[ContextPart, ...]:
    """Return the parts of the context by category of item, whatever their source; empty categories are left out.

    items:  all items that the model receives
    body:   the request, for its instructions and tools
    """
    items_by_category: dict[str, list[Item]] = {name: [] for name in ITEM_CATEGORIES}
    for item in items:
        items_by_category[next(name for name, is_member in ITEM_CATEGORIES.items() if is_member(item))].append(item)
    return (
        *_tool_and_instruction_parts(body, window),
        *(
            _items_part(name, category_items, window)
            for name, category_items in items_by_category.items()
            if category_items
        ),
    )


def sum_context_usage(
    parts: tuple[ContextPart, ...], window: ModelWindow | None, endpoint_count: int | None = None
) -> ContextUsage:
    """Sum the parts. `endpoint_count` is the endpoint's own count, if it gave one."""
    if endpoint_count is not None:
        return ContextUsage(parts, TokenCount(endpoint_count, is_estimate=False), COUNTED_BY_ENDPOINT, window)
    tokens, is_estimate = sum(part.tokens.tokens for part in parts), any(part.tokens.is_estimate for part in parts)
    return ContextUsage(
        parts, TokenCount(tokens, is_estimate), COUNTED_BY_ESTIMATE if is_estimate else TOKENIZER_ENCODING, window
    )


class ContextUsageReport(NamedTuple):
    """The tokens of a request.

    window:       context window in tokens; null if unknown
    free_tokens:  remaining tokens of the context window
    fits:         whether the model accepts an input of this size; null if its context window is unknown
    """

    parts: Sequence[ContextPart]
    total: Annotated[TokenCount, FLAT]
    counted_by: str
    window: int | None
    free_tokens: Annotated[int | None, Wire("left")]
    fits: bool | None


def build_context_usage_report(usage: ContextUsage) -> ContextUsageReport:
    window = None if usage.window is None else usage.window.context
    return ContextUsageReport(usage.parts, usage.total, usage.counted_by, window, usage.free_tokens, usage.fits)


def _tool_and_instruction_parts(body: Mapping[str, Json], window: ModelWindow | None) -> list[ContextPart]:
    tools, instructions = body.get("tools") or (), body.get("instructions")
    tool_parts = (
        [ContextPart("tools", len(tools), _flag_estimate(count_tokens((), tools=tools), window))] if tools else []
    )
    instruction_parts = (
        [ContextPart("instructions", 1, _flag_estimate(count_tokens((), instructions), window))] if instructions else []
    )
    return tool_parts + instruction_parts


def _items_part(name: str, items: Sequence[Item], window: ModelWindow | None) -> ContextPart:
    return ContextPart(name, len(items), _flag_estimate(count_tokens(items), window))


def _flag_estimate(count: TokenCount, window: ModelWindow | None) -> TokenCount:
    """Mark the count as an estimate if the model's encoding is unknown or not the tokenizer's."""
    return count._replace(is_estimate=count.is_estimate or window is None or window.counted != TOKENIZER_ENCODING)
