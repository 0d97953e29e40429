"""What one call used, read from whatever the endpoint reported.

Servers leave details out, and some report what is no number. A part that was not reported counts as
0; a call that reported nothing is None, and not one that cost nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from convo.config import Price
from convo.items import Json


@dataclass(frozen=True, slots=True)
class Usage:
    """Figures of one call, in tokens; `cached` and `written` are parts of `input`, `reasoning` is part of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    written: int = 0

    @classmethod
    def read(cls, usage: Mapping[str, Json] | None) -> "Usage | None":
        """The figures of a usage object; None when nothing was reported. What is no number of tokens counts as 0."""
        if not usage:
            return None
        into, out = usage.get("input_tokens_details"), usage.get("output_tokens_details")
        return cls(
            input=_tokens(usage, "input_tokens"),
            cached=_tokens(into, "cached_tokens"),
            output=_tokens(usage, "output_tokens"),
            reasoning=_tokens(out, "reasoning_tokens"),
            written=_tokens(into, "cache_write_tokens"),
        )

    def cost_usd(self, price: Price | None) -> float | None:
        """What the call cost in USD; None where no price is known, rather than a guess."""
        if price is None:
            return None
        return price.cost_usd(
            input_tokens=self.input,
            cached_tokens=self.cached,
            output_tokens=self.output,
            written_tokens=self.written,
        )

    def __add__(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            written=self.written + other.written,
        )


def _tokens(figures: Json, name: str) -> int:
    """One figure, whatever somebody's server made of it."""
    found = figures.get(name) if isinstance(figures, Mapping) else None
    return found if type(found) is int and found > 0 else 0
