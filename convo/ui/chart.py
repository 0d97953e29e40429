"""The tokens of each request as a bar: what travelled, what its owner put before it, what the cache held.

response  seen  cached  sent
● resp_1    35       0    35  ███████
├─● resp_2  82      24     8  ░░░░░▒▒▒▒▒▒▒▒▒▒██

Every sign of a bar is a different one, so that it says the same without colours; where there are no
such signs they are letters of ASCII.
"""

from collections.abc import Iterator, Sequence

from convo.inspection import Known
from convo.inspection.chart import Cell, Share, most, share
from convo.ui.labelled import labelled
from convo.ui.medium import Medium
from convo.ui.table import GAP, Column, Table, fitted, lines
from convo.ui.tree import Drawn, figure, marked, seen

SIGNS = {
    Cell(sent=True, cached=False): ("█", "sent"),
    Cell(sent=True, cached=True): ("▓", "sent, cached"),
    Cell(sent=False, cached=False): ("▒", "put before it by its owner"),
    Cell(sent=False, cached=True): ("░", "put before it, cached"),
}
"""How each kind of token is drawn, and what it was."""

LONGEST = 60
"""Cells of the longest bar, however wide the medium."""

SHORTEST = 12

HEAD = "what the model saw"


def chart(known: Known, medium: Medium) -> Iterator[str]:
    """A line for each request, and what its signs mean; nothing where no endpoint said what was seen."""
    drawn = seen(known)
    shares = [share(one.was) for one in drawn]
    if not most(shares):
        return
    figures = _figures(drawn, shares)
    fits = fitted([*figures, Column(HEAD, [" " * SHORTEST] * len(drawn))], medium)
    bars = _bars(shares, _room(fits, medium))
    yield from lines(fits._replace(columns=(*fits.columns[:-1], Column(HEAD, bars))), medium)
    yield from labelled([("", _legend("".join(bars)))], medium)


def _figures(drawn: Sequence[Drawn], shares: Sequence[Share]) -> list[Column]:
    owners = [str(one.link.strategy) for one in drawn]
    return [
        Column("response", marked(drawn), style="id"),
        Column("owner", owners, goes=0 if len(set(owners)) == 1 else 3),
        Column("seen", [figure(one.seen) for one in shares], right=True),
        Column("cached", [figure(one.seen and one.cached) for one in shares], right=True, goes=2),
        Column("~sent", [figure(one.sent) for one in shares], right=True, goes=1),
    ]


def _room(fits: Table, medium: Medium) -> int:
    if medium.width is None:
        return LONGEST
    taken = sum(column.room + GAP for column in fits.columns[:-1])
    return max(SHORTEST, min(LONGEST, medium.width - taken))


def _bars(shares: Sequence[Share], room: int) -> list[str]:
    longest = most(shares)
    return ["".join(SIGNS[cell][0] for cell in one.cells(room, longest)) for one in shares]


def _legend(drawn: str) -> str:
    return " · ".join(f"{sign} {words}" for sign, words in SIGNS.values() if sign in drawn)
