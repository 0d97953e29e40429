"""A race as a table and a chart: who sent how much, and what it took and cost.

What is compared stands in one column, so that the eye finds the largest; bars repeat the one figure
that owners differ in most, the bytes that travelled.
"""

from collections.abc import Iterator, Sequence

from convo.config import Price
from convo.history import Strategy
from convo.transfer.racing import Lane
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

UNKNOWN = "-"

LONGEST_BAR = 40
"""Columns of the longest bar, where there is room."""

BESIDE_BAR = 26
"""Columns of an owner's name and a figure beside its bar."""


def screen(lanes: Sequence[Lane], price: Price | None, medium: Medium) -> str:
    """The table, and the bytes that each owner sent as bars."""
    table = fitted([*_columns(lanes, price)], medium)
    shown = [*lines(table, medium), "", "bytes sent", *_bars(lanes, medium)]
    shown += [f"{lane.strategy}: {lane.error['message']}" for lane in lanes if lane.error]
    return medium.drawn("\n".join(shown))


def progress(done: int, of: int, strategy: Strategy, room: int = 24) -> str:
    """One line while it runs."""
    filled = room * done // of if of else room
    return f"[{'#' * filled}{' ' * (room - filled)}] {done}/{of} {strategy}"


def _columns(lanes: Sequence[Lane], price: Price | None) -> Iterator[Column]:
    used = [lane.used for lane in lanes]
    yield Column("owner", [str(lane.strategy) for lane in lanes], style="bold")
    yield Column("turns", [str(len(lane.laps)) for lane in lanes], right=True, goes=0)
    yield Column("bytes", [f"{lane.bytes:,}" for lane in lanes], right=True)
    yield Column("items", [f"{lane.items:,}" for lane in lanes], right=True)
    yield Column("in", [f"{one.input:,}" if one else UNKNOWN for one in used], right=True)
    yield Column("cached", [f"{one.cached:,}" if one else UNKNOWN for one in used], right=True, goes=2)
    yield Column("out", [f"{one.output:,}" if one else UNKNOWN for one in used], right=True)
    if price:
        yield Column("cost", [_usd(lane.cost_usd(price)) for lane in lanes], right=True)
    yield Column("first", [_seconds(lane.first_token_s) for lane in lanes], right=True, goes=1)
    yield Column("total", [_seconds(lane.seconds) for lane in lanes], right=True)
    yield Column("ended", [lane.error["code"] if lane.error else "well" for lane in lanes])


def _usd(cost: float | None) -> str:
    return UNKNOWN if cost is None else f"${cost:,.4f}"


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds:.2f} s"


def _bars(lanes: Sequence[Lane], medium: Medium) -> Iterator[str]:
    most = max((lane.bytes for lane in lanes), default=0)
    room = LONGEST_BAR if medium.width is None else max(1, min(LONGEST_BAR, medium.width - BESIDE_BAR))
    sign = "█" if medium.boxes else "#"
    for lane in lanes:
        size = max(1, round(room * lane.bytes / most)) if lane.bytes else 0
        yield f"{lane.strategy:<12}  {sign * size} {lane.bytes:,}"
