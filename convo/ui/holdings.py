"""What tenants keep on a screen, and what a pruning takes.

Before anything is removed the same lines say what would go, so that a person decides over figures
and not over a date.
"""

from collections.abc import Sequence

from convo.stores.upkeep import Holdings, Pruned
from convo.ui.listing import when
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

UNITS = ("B", "KB", "MB", "GB", "TB")
STEP = 1000

GO_FIRST = {"places": 0, "events": 1, "items": 2}
"""What a narrow terminal does without."""


def listed(kept: Sequence[Holdings], medium: Medium) -> str:
    """A line for each tenant."""
    columns = [
        Column("tenant", [one.tenant for one in kept], style="id"),
        *(
            Column(kind, [f"{one.rows[kind]:,}" for one in kept], right=True, goes=GO_FIRST.get(kind))
            for kind in kept[0].rows
        ),
        Column("size", [size(one.bytes) for one in kept], right=True),
        Column("oldest", [_at(one.oldest) for one in kept]),
        Column("newest", [_at(one.newest) for one in kept]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def pruned(found: Sequence[tuple[str, Pruned]], medium: Medium) -> str:
    """A line for each tenant that loses something."""
    columns = [
        Column("tenant", [name for name, _ in found], style="id"),
        *(
            Column(kind, [f"{getattr(one, kind):,}" for _, one in found], right=True)
            for kind in ("sessions", "responses", "conversations")
        ),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def size(count: int) -> str:
    """Bytes in the largest unit of which there is one at least: "999 B", "1.5 MB"."""
    figure, unit = float(count), 0
    while round(figure, 1) >= STEP and unit < len(UNITS) - 1:
        figure, unit = figure / STEP, unit + 1
    return f"{figure:,.1f} {UNITS[unit]}" if unit else f"{count} B"


def _at(moment: float | None) -> str:
    return "" if moment is None else when(moment)
