"""Usage of a response as its endpoint reported it, and its cost in USD.

Missing parts of a usage object count as 0; no usage at all is None.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from convo.config.sections import Price
from convo.history.items import Json
from convo.report import HIDDEN

TOKENS_PER_PRICE = 1_000_000
"""The number of tokens that a price is for."""

# A server reported 10**400 tokens, and the cost ended the chat with an OverflowError.
MAX_TOKEN_COUNT = 10**15
"""No response uses more tokens; a larger count is an error of the server."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call.

    cached_tokens:          part of input_tokens
    reasoning_tokens:       part of output_tokens
    cache_write_tokens:     part of input_tokens
    cache_write_1h_tokens:  the part of `cache_write_tokens` that Claude keeps for an hour instead of 5 minutes
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: Annotated[int, HIDDEN] = 0
    cache_write_1h_tokens: Annotated[int, HIDDEN] = 0

    @classmethod
    def from_json(cls, usage: Mapping[str, Json] | None) -> "Usage | None":
        """Parse a usage object; None if there is none. A count that is no possible number of tokens becomes 0."""
        if not usage:
            return None
        input_details, output_details = usage.get("input_tokens_details"), usage.get("output_tokens_details")
        return cls(
            input_tokens=_read_token_count(usage, "input_tokens"),
            cached_tokens=_read_token_count(input_details, "cached_tokens"),
            output_tokens=_read_token_count(usage, "output_tokens"),
            reasoning_tokens=_read_token_count(output_details, "reasoning_tokens"),
            cache_write_tokens=_read_token_count(input_details, "cache_write_tokens"),
            cache_write_1h_tokens=_read_token_count(input_details, "cache_write_1h_tokens"),
        )

    def cost_usd(self, price: Price | None) -> float | None:
        """Return the cost of the call in USD; None without a price."""
        counts = self.input_tokens, self.cached_tokens, self.output_tokens
        return tokens_cost_usd(price, *counts, self.cache_write_tokens, self.cache_write_1h_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cache_write_1h_tokens=self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )


def tokens_cost_usd(
    price: Price | None,
    input_tokens: float,
    cached_tokens: float,
    output_tokens: float,
    write_tokens: float,
    write_1h_tokens: float,
    *,
    is_long: bool | None = None,
) -> float | None:
    """Return the cost of calls with these tokens in USD; None without a price.

    is_long:  for several calls: whether each of them has more input than `price.max_input_tokens`; None: of one call

    It needs no `Usage`: to create one takes as long as to compute the cost, and a list by cost has 100,000 of them.
    """
    if price is None:
        return None
    input_factor, output_factor = 1.0, 1.0
    if price.is_long(input_tokens) if is_long is None else is_long:
        input_factor, output_factor = price.long_input_factors
    written, written_1h = price.write_prices() if write_tokens else (0.0, 0.0)
    input_cost = (
        (input_tokens - cached_tokens - write_tokens) * price.input
        + cached_tokens * price.cached
        + (write_tokens - write_1h_tokens) * written
        + write_1h_tokens * written_1h
    )
    return (input_factor * input_cost + output_factor * output_tokens * price.output) / TOKENS_PER_PRICE


def format_usd(cost_usd: float) -> str:
    """Format a cost in USD, with two digits at least: "$0.000042"."""
    decimals = 2 if cost_usd >= 1 else 4 if cost_usd <= 0 else max(4, 1 - math.floor(math.log10(cost_usd)))
    return f"${cost_usd:,.{decimals}f}"


def _read_token_count(usage: Json, name: str) -> int:
    """Return a count, or 0 for any invalid value of a server."""
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return count if type(count) is int and 0 < count <= MAX_TOKEN_COUNT else 0
