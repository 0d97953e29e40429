"""What a model costs, where somebody has said so."""

from typing import NamedTuple

PER = 1_000_000
"""Prices are for so many tokens."""


class Price(NamedTuple):
    """USD per million tokens. `cached` is as `input` where nothing else is said."""

    input: float
    output: float
    cached: float

    def cost_usd(self, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """What one call cost; `input_tokens` includes `cached_tokens`, as usage objects count."""
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * self.cached + output_tokens * self.output) / PER

    def __str__(self) -> str:
        return f"input {self.input:g}, cached {self.cached:g}, output {self.output:g} USD per million tokens"
