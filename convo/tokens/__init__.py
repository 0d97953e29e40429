"""Tokens and what they cost, as values."""

from convo.tokens.usage import Usage, cost_usd

__all__ = ["Usage", "cost_usd"]
