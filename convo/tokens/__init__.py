"""Tokens and what they cost, as values.

`usage` is what a call reported, `counting` what a history takes before it is sent, `estimate` what one
item takes roughly; `windows` is how much a model has room for, `prices` what it costs and `models`
what else its name tells.
"""

from convo.tokens.counting import VOCABULARY, Count, at_most, count, count_each, count_text
from convo.tokens.estimate import estimate
from convo.tokens.models import seals_reasoning
from convo.tokens.prices import price_of
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
    "price_of",
    "seals_reasoning",
    "window_of",
]
