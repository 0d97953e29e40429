"""The links of a conversation as a tree, one line a link.

● resp_2f1c66d0   a call that was answered        ● goes straight down, however long
├─○ try_90ab12cd  one that was not                  a fork steps to the right
@ resp_7c0e4b11   where the head stands
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convo.history import Link
from convo.inspection import Figures, Known, Row, figures, rows
from convo.inspection.bill import cost_of
from convo.ui.medium import Medium
from convo.ui.receipt import spent
from convo.ui.table import Column, Table, fitted, lines

SHORTEST_ID = 8
"""Characters of an id behind its kind, unless two ids begin alike."""

ROOMY = 120
"""Columns from which on every figure stands in every line."""

UNKNOWN = "-"

MIXED = 10
"""When the owner goes, where links of several are drawn: behind all that says less."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One line's worth: a row of the tree, what its link was, its id as it is shown, whether the head stands there."""

    row: Row
    was: Figures
    id: str
    at: bool = False
    first: bool = False

    @property
    def link(self) -> Link:
        return self.row.link


def table(known: Known, medium: Medium) -> Table:
    """The tree of `known` as columns that fit into the medium."""
    return fitted([*_columns(seen(known), known, medium)], medium)


def seen(known: Known) -> list[Drawn]:
    """The links of `known` in the order in which they are drawn."""
    ids = short_ids([link.id for link in known.links])
    drawn = rows(known.links, known.at)
    return [
        Drawn(row, figures(row.link, known.places), ids[row.link.id], row.link.id == known.at, first=at == 0)
        for at, row in enumerate(drawn)
    ]


def marked(drawn: Sequence[Drawn]) -> list[str]:
    """The lines at the left of each link, its mark and its id."""
    return [_place(one) + one.id for one in drawn]


def figure(number: int | None) -> str:
    """A figure that is known, or what stands for one that is not."""
    return UNKNOWN if number is None else f"{number:,}"


def tree(fits: Table, medium: Medium) -> Iterator[str]:
    """The lines of the tree, the heads of its columns first."""
    yield from lines(fits, medium)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Each id cut to the length at which all of them still differ."""
    longest = max(map(len, ids), default=0)
    for size in range(SHORTEST_ID, longest):
        short = {id_: _cut(id_, size) for id_ in ids}
        if len(set(short.values())) == len(set(ids)):
            return short
    return {id_: id_ for id_ in ids}


def _cut(id_: str, size: int) -> str:
    kind, underscore, rest = id_.partition("_")
    return f"{kind}{underscore}{rest[:size]}"


def _columns(drawn: Sequence[Drawn], known: Known, medium: Medium) -> Iterator[Column]:
    roomy = medium.width is None or medium.width >= ROOMY
    yield Column("response", marked(drawn), style="id")
    if len({one.link.session for one in drawn}) > 1:
        yield Column("session", [_session(one.link, known) for one in drawn], goes=6)
    owners = [str(one.link.strategy) for one in drawn]
    yield Column("owner", owners, goes=0 if len(set(owners)) == 1 else MIXED)
    yield from _amounts(drawn)
    costs = [cost_of(one.link, known.prices) for one in drawn]
    if any(cost is not None for cost in costs):
        yield Column("cost", ["".join(spent(cost)) or UNKNOWN for cost in costs], right=True, goes=9)
    yield Column("model", [one.link.model for one in drawn], goes=3)
    yield Column("day", [_time(one.link, "%Y-%m-%d") for one in drawn], goes=1)
    yield Column("time", [_time(one.link, "%H:%M") for one in drawn], goes=8)
    if roomy:
        yield Column("status", [_status(one.link) for one in drawn])
    yield Column("secs", [_seconds(one.link) for one in drawn], right=True, goes=5)
    yield Column("first words", [_words(one, status=not roomy) for one in drawn])


def _amounts(drawn: Sequence[Drawn]) -> Iterator[Column]:
    yield Column("sent", [("full " if one.was.full else "delta ") + figure(one.was.sent) for one in drawn])
    yield _numbers("~tokens", [one.was.sent_tokens for one in drawn], goes=7)
    yield _numbers("saw", [one.was.saw for one in drawn], goes=12)
    used = [one.was.used for one in drawn]
    yield _numbers("in", [spent.input if spent else None for spent in used], goes=13)
    yield _numbers("cached", [spent.cached if spent else None for spent in used], goes=4)
    yield _numbers("out", [spent.output if spent else None for spent in used], goes=11)
    yield _numbers("reasoned", [spent.reasoning if spent else None for spent in used], goes=2)


def _numbers(head: str, numbers: Sequence[int | None], goes: int | None = None) -> Column:
    return Column(head, [figure(number) for number in numbers], right=True, goes=goes)


def _place(one: Drawn) -> str:
    """The lines at the left of a link, and its mark."""
    depth = one.row.depth
    mark = "@ " if one.at else "● " if one.link.status == "completed" else "○ "
    if not one.row.begins:
        return "│ " * depth + mark
    return "│ " * (depth - 1) + ("┌─" if one.first else "├─") + mark


def _session(link: Link, known: Known) -> str:
    return known.names.get(link.session, "(removed)") if link.session else "(other client)"


def _time(link: Link, form: str) -> str:
    return time.strftime(form, time.localtime(link.created_at))


def _seconds(link: Link) -> str:
    return UNKNOWN if link.seconds is None else f"{link.seconds:.1f}"


def _status(link: Link) -> str:
    """How it ended, with the setting that ended it where one did."""
    limit = (link.error or {}).get("limit")
    return f"{link.status} ({limit})" if limit else link.status


def _words(one: Drawn, *, status: bool) -> str:
    ended = f"{_status(one.link)}: " if status and one.link.status != "completed" else ""
    return ended + " → ".join(words for words in (one.was.said, one.was.answered) if words)
