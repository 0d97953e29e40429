"""What a model costs, and how much it has room for, where somebody has said so.

A person's own price goes before the one that convo has written down. What nobody said is not known,
and a cost that would need it is None: a guess would be taken for a bill.
"""

from typing import NamedTuple

PER = 1_000_000
"""Prices are for so many tokens."""


class Room(NamedTuple):
    """Tokens that a model takes: input and output together, and the longest answer, where it is known."""

    context: int
    output: int | None = None

    def __str__(self) -> str:
        return f"{self.context:,} tokens" + (f", answers of {self.output:,}" if self.output else "")


class Price(NamedTuple):
    """USD per million tokens. `cached` is as `input` where nothing else is said.

    written:  input that the provider put into its cache; None where nobody knows
    upto:     the most input tokens of a call for which this holds
    above:    factors on the prices of input and output for the whole of a longer call; None where they are unknown
    source:   where it was read; "" for what a person said
    """

    input: float
    output: float
    cached: float
    written: float | None = None
    upto: int | None = None
    source: str = ""
    above: tuple[float, float] | None = None

    def cost_usd(
        self, *, input_tokens: int, cached_tokens: int, output_tokens: int, written_tokens: int = 0
    ) -> float | None:
        """What one call cost; `input_tokens` includes those cached and written, as usage objects count.

        returns:  None where the price of a part is not known
        """
        into, out = 1.0, 1.0
        if self.upto is not None and input_tokens > self.upto:
            if self.above is None:
                return None
            into, out = self.above
        if written_tokens and self.written is None:
            return None
        fresh = input_tokens - cached_tokens - written_tokens
        read = fresh * self.input + cached_tokens * self.cached + written_tokens * (self.written or 0.0)
        return (into * read + out * output_tokens * self.output) / PER

    def __str__(self) -> str:
        return f"input {self.input:g}, cached {self.cached:g}, output {self.output:g} USD per million tokens"
