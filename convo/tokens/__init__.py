"""Tokens and what they cost, as values."""

from convo.tokens.models import seals_reasoning
from convo.tokens.usage import Usage

__all__ = ["Usage", "seals_reasoning"]
