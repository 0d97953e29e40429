"""The line below the prompt: who owns the conversation, who answers, how full the window is, what it cost.

It is made for the columns that there are. Where they do not suffice it says things shorter, then
leaves out what matters least; the owner stays.
"""

from collections.abc import Iterator
from typing import NamedTuple

from convo.ui.medium import cut, width
from convo.ui.receipt import spent

BETWEEN = " · "

LEAST = 0.0005
"""The least share of a window that is not written as none."""


class Standing(NamedTuple):
    """Where a conversation stands.

    owner:     as a receipt has it: "chain resp_..."
    tokens:    that the last request took with its answer; None before there was one
    window:    tokens that the model has room for; None where nobody wrote it down
    cost_usd:  of the whole session; None where a price is not known, or nothing was asked
    along:     parts that wait to go with the next message
    """

    owner: str
    model: str
    tokens: int | None = None
    window: int | None = None
    cost_usd: float | None = None
    along: int = 0


class Bar:
    """The line as it is to be drawn now; `standing` is exchanged between two prompts."""

    standing: Standing | None = None

    def line(self, columns: int) -> str:
        """For a terminal of `columns`; its last one stays free, where some would begin a new line."""
        return line(self.standing, columns - 1) if self.standing else ""


def line(standing: Standing, columns: int) -> str:
    """At most `columns` wide."""
    for parts in _shorter(standing, columns):
        words = BETWEEN.join(part for part in parts if part)
        if width(words) <= columns:
            return words
    return cut(words, columns)


def _shorter(standing: Standing, columns: int) -> Iterator[tuple[str, ...]]:
    """What the line could say, from the most to the least."""
    owner, model = standing.owner, standing.model
    name, along = model.rpartition("/")[2], f"+{standing.along}" if standing.along else ""
    filled, cost = _filled(standing), "".join(spent(standing.cost_usd))
    short = owner if len(owner) <= SHORT else cut(owner, SHORT)
    yield owner, model, _window(standing), cost, along
    yield owner, name, filled, cost, along
    for rest in ((name, filled, cost, along), (filled, cost, along), (filled, along)):
        yield short, *rest
        yield cut(owner, max(LEAST_OWNER, columns - sum(width(BETWEEN + part) for part in rest if part))), *rest


SHORT = 20
"""Columns for the owner where there are few."""

LEAST_OWNER = 14
"""Those that it has before something else is left out."""


def _filled(standing: Standing) -> str:
    if standing.tokens is None:
        return ""
    return share(standing.tokens, standing.window) if standing.window else f"{standing.tokens:,} tokens"


def _window(standing: Standing) -> str:
    filled = _filled(standing)
    return f"{filled} of {standing.window:,}" if filled and standing.window else filled


def share(tokens: int, whole: int) -> str:
    """Per cent of the window, never as none when it is something."""
    part = tokens / whole
    return "<0.1%" if 0 < part < LEAST else f"{part:.1%}"
