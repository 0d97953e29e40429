"""Tokens and what they cost, as values."""

from convo.tokens.estimate import estimate
from convo.tokens.models import seals_reasoning
from convo.tokens.usage import Usage

__all__ = ["Usage", "estimate", "seals_reasoning"]
