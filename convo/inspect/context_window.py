"""Context use: tokens of each part of the next request, and the request itself.

Parts are tools, instructions, items that the owner prepends, and input. Counts are made before sending; an endpoint's
own count replaces them as one figure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from convo.history.items import Item, Json, is_assistant_message, is_user_message, item_type
from convo.history.records import Strategy
from convo.history.tree import Node
from convo.usage.counting import TOKENIZER_ENCODING, TokenCount, count_tokens
from convo.usage.models import ModelWindow


class ContextPart(NamedTuple):
    """One part of a window.

    items:   how many: items, or tools
    """

    name: str
    items: int
    tokens: TokenCount


class ContextUsage(NamedTuple):
    """All parts of a window together.

    by:      who counted: "the endpoint", the vocabulary's name, or "estimate"
    window:  of the model; None where nobody wrote it down
    """

    parts: tuple[ContextPart, ...]
    total: TokenCount
    by: str
    window: ModelWindow | None = None

    @property
    def left(self) -> int | None:
        """Tokens that are free, never less than none; None where the window is not known."""
        return None if self.window is None else max(0, self.window.context - self.total.tokens)


COUNTED_BY_ENDPOINT, COUNTED_BY_ESTIMATE = "the endpoint", "estimate"

ITEM_CATEGORIES: Mapping[str, Callable[[Item], bool]] = {
    "your messages": is_user_message,
    "answers": is_assistant_message,
    "reasoning": lambda item: item_type(item) == "reasoning",
    "compaction": lambda item: item_type(item) == "compaction",
    "system messages": lambda item: item_type(item) == "message",
    "calls and outputs": lambda item: True,
}
"""Items by what they are; each belongs to the first that it is."""


def request_parts(
    before: Sequence[Item], owner: str, body: Mapping[str, Json], window: ModelWindow | None
) -> tuple[ContextPart, ...]:
    """The parts of a request: what its owner puts before it, and what travels.

    owner:  what the first part is called
    """
    kept = [_items_part(owner, before, window)] if before else []
    return (*_tool_and_instruction_parts(body, window), *kept, _items_part("input", body.get("input") or (), window))


def category_parts(
    items: Iterable[Item], body: Mapping[str, Json], window: ModelWindow | None
) -> tuple[ContextPart, ...]:
    """The parts of a window by what they are, whoever puts them there; kinds without items are left out.

    items:  all that the model is shown
    body:   the request, for its instructions and tools
    """
    sorted_out: dict[str, list[Item]] = {name: [] for name in ITEM_CATEGORIES}
    for item in items:
        sorted_out[next(name for name, fits in ITEM_CATEGORIES.items() if fits(item))].append(item)
    return (
        *_tool_and_instruction_parts(body, window),
        *(_items_part(name, found, window) for name, found in sorted_out.items() if found),
    )


def sum_context_usage(
    parts: tuple[ContextPart, ...], window: ModelWindow | None, counted: int | None = None
) -> ContextUsage:
    """The parts together. `counted` is the endpoint's own figure, where it gave one."""
    if counted is not None:
        return ContextUsage(parts, TokenCount(counted, estimated=False), COUNTED_BY_ENDPOINT, window)
    tokens, estimated = sum(part.tokens.tokens for part in parts), any(part.tokens.estimated for part in parts)
    return ContextUsage(
        parts, TokenCount(tokens, estimated), COUNTED_BY_ESTIMATE if estimated else TOKENIZER_ENCODING, window
    )


def context_usage_to_json(filling: ContextUsage) -> dict[str, Json]:
    """The object that programs get."""
    window = filling.window
    return {
        "parts": [
            {"part": part.name, "items": part.items, "tokens": part.tokens.tokens, "estimated": part.tokens.estimated}
            for part in filling.parts
        ],
        "tokens": filling.total.tokens,
        "estimated": filling.total.estimated,
        "counted_by": filling.by,
        "window": None if window is None else window.context,
        "left": filling.left,
    }


def _tool_and_instruction_parts(body: Mapping[str, Json], window: ModelWindow | None) -> list[ContextPart]:
    """What stands beside the items, where there is any."""
    tools, instructions = body.get("tools") or (), body.get("instructions")
    named = [ContextPart("tools", len(tools), _flag_estimate(count_tokens((), tools=tools), window))] if tools else []
    said = (
        [ContextPart("instructions", 1, _flag_estimate(count_tokens((), instructions), window))] if instructions else []
    )
    return named + said


def _items_part(name: str, items: Sequence[Item], window: ModelWindow | None) -> ContextPart:
    return ContextPart(name, len(items), _flag_estimate(count_tokens(items), window))


def _flag_estimate(found: TokenCount, window: ModelWindow | None) -> TokenCount:
    """`found`, as the estimate that it is where the vocabulary is another one than the model's."""
    return found._replace(estimated=found.estimated or window is None or window.counted != TOKENIZER_ENCODING)


@dataclass(frozen=True, repr=False)  # an event loop spells out what it returns, and this is long
class NextRequest:
    """The next request.

    handle:    what names the conversation
    owner:     the handle that the owner goes on from; None where nothing stands before the request
    before:    what the owner puts before it
    model:     "provider/model"
    url:       where it is posted; None where it stays in this process
    body:      the request as it travels
    headers:   without secrets; `{key}` stands where the key goes
    key_env:   the variable that holds the key; None where none is needed
    """

    handle: str
    strategy: Strategy
    owner: str | None
    before: tuple[Node, ...]
    model: str
    url: str | None
    body: Mapping[str, Json]
    filling: ContextUsage
    headers: Mapping[str, str]
    key_env: str | None = None


def next_request_to_json(coming: NextRequest) -> dict[str, Json]:
    """The object of `convo next --json`."""
    return {
        "handle": coming.handle,
        "strategy": str(coming.strategy),
        "model": coming.model,
        "method": "POST",
        "url": coming.url,
        "before": {"owner": coming.owner, "items": [node.item for node in coming.before]},
        "body": dict(coming.body),
        **context_usage_to_json(coming.filling),
    }
