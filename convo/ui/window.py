"""A model's window on a screen: its parts, their tokens, and how much of it they fill.

The parts add up to the figure below them. Where tokens are an estimate, or nobody wrote down how
large the window is, it says so.
"""

import sys
from collections.abc import Iterator

from convo.inspection.window import ENDPOINT, ESTIMATE, Filling
from convo.ui.bar import share
from convo.ui.medium import Medium, wrapped
from convo.ui.table import Column, fitted, lines

METER = 40
"""Columns of a whole window, where there are so many."""

BESIDE = 15
"""Columns of what stands beside the longest name, the bar and the longest figure, and the last one of the terminal."""


def table(filling: Filling, medium: Medium) -> Iterator[str]:
    """A line for each part, then what they come to."""
    parts = filling.parts
    columns = [
        Column("part", [part.name for part in parts]),
        Column("items", [f"{part.items:,}" for part in parts], right=True),
        Column("tokens", [_figure(part.tokens.tokens, part.tokens.estimated) for part in parts]),
    ]
    yield from lines(fitted(columns, medium), medium)
    yield from wrapped(together(filling), medium.width or sys.maxsize)


def together(filling: Filling) -> str:
    """The sum, who counted it, and what of the window it takes."""
    window, total = filling.window, filling.total
    said = f"{_figure(total.tokens, total.estimated)} tokens, {_counter(filling)}"
    if window is None:
        return f"{said}; nobody wrote down how large this model's window is"
    return f"{said}; {share(total.tokens, window.context)} of a window of {window.context:,}"


def meter(filling: Filling, medium: Medium) -> Iterator[str]:
    """A bar for each part, and one for what is left of the window; as parts of their sum where it is not known."""
    rows = [(part.name, part.tokens.tokens) for part in filling.parts]
    whole = filling.window.context if filling.window else max(sum(tokens for _, tokens in rows), 1)
    free = [] if filling.left is None else [("free", filling.left)]
    wide = max(len(name) for name, _ in [*rows, ("free", 0)])
    figures = max(len(f"{tokens:,}") for _, tokens in [*rows, *free, ("", 0)])
    long = METER if medium.width is None else max(0, min(METER, medium.width - wide - figures - BESIDE))
    for name, tokens in rows:
        yield f"  {name:<{wide}}  {_bar(tokens, whole, long, medium)}  {tokens:>{figures},}  {share(tokens, whole)}"
    for name, tokens in free:
        yield f"  {name:<{wide}}  {' ' * long}  {tokens:>{figures},}  {share(tokens, whole)}"
    yield from wrapped(f"  {together(filling)}", medium.width or sys.maxsize)


def _counter(filling: Filling) -> str:
    if filling.by == ENDPOINT:
        return "counted by the endpoint"
    return "an estimate" if filling.by == ESTIMATE else f"counted here with {filling.by}"


def _figure(tokens: int, estimated: bool) -> str:
    return f"~{tokens:,}" if estimated else f"{tokens:,}"


def _bar(tokens: int, whole: int, long: int, medium: Medium) -> str:
    full = min(long, -(-tokens * long // whole)) if tokens else 0
    return ("█" if medium.boxes else "#") * full + ("░" if medium.boxes else ".") * (long - full)
