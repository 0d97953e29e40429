"""Tokens and what they cost, as values.

`usage` is what a call reported, `counting` what a history takes before it is sent, `estimate` what one
item takes roughly; `windows` is how much a model has room for and `models` what else its name tells.
"""

from convo.tokens.counting import VOCABULARY, Count, at_most, count, count_each, count_text
from convo.tokens.estimate import estimate
from convo.tokens.models import seals_reasoning
from convo.tokens.usage import Usage
from convo.tokens.windows import Window, window_of

__all__ = [
    "VOCABULARY",
    "Count",
    "Usage",
    "Window",
    "at_most",
    "count",
    "count_each",
    "count_text",
    "estimate",
    "seals_reasoning",
    "window_of",
]
