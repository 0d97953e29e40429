"""Calls that wait for a person: one in full, and many as a list.

A screen reader reads it from top to bottom: what wants to run, for whom, with what; then the
question. Arguments come from a model: what a terminal would obey in them is spelled out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convo.items import with_characters
from convo.run.inbox import Waiting
from convo.ui.answer import safe
from convo.ui.labelled import Line, labelled
from convo.ui.medium import Medium
from convo.ui.rewriting import pretty
from convo.ui.table import Column, fitted, lines

UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
"""Seconds, and what so many of them are called."""


class Paused(NamedTuple):
    """A paused run in the inbox.

    session:  the name of the session that it works on
    since:    seconds that it has been waiting
    """

    run: str
    session: str
    since: float
    calls: tuple[Waiting, ...]


def one_call(call: Waiting, medium: Medium, *more: Line) -> str:
    """One call in full: its tool, then a line for each thing to know."""
    title = f"{call.tool} has an unknown outcome" if call.unknown else f"{call.tool} waits for a decision"
    return "\n".join([safe(title), *labelled([*_facts(call), *more], medium)])


def listed(paused: Sequence[Paused], medium: Medium) -> str:
    """A line for each call; one for a run whose calls are all decided on."""
    rows = [(run, call) for run in paused for call in (run.calls or (None,))]
    columns = [
        Column("call", [call.call_id if call else "-" for _, call in rows], style="id"),
        Column("session", [run.session for run, _ in rows]),
        Column("agent", [call.agent if call else "-" for _, call in rows], goes=2),
        Column("waits", [ago(run.since) for run, _ in rows], goes=1),
        Column("run", [run.run for run, _ in rows], goes=0),
        Column("tool", [_tool(call) for _, call in rows]),
        Column("arguments", [with_characters(" ".join(call.arguments.split())) if call else "" for _, call in rows]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def ago(seconds: float) -> str:
    """How long, in its largest unit: "3 minutes", "less than a minute"."""
    for size, unit in UNITS:
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}" + ("" if number == 1 else "s")
    return "less than a minute"


def _tool(call: Waiting | None) -> str:
    if call is None:
        return "decided"
    return f"{call.tool}, outcome unknown" if call.unknown else call.tool


def _facts(call: Waiting) -> Iterator[Line]:
    yield "agent", call.agent
    yield "call", call.call_id
    if call.hosted:
        yield "runs", "at the provider"
    first, *rest = pretty(call.arguments).splitlines() or [""]
    yield "arguments", first
    for line in rest:
        yield "", line
    if call.unknown:
        yield "note", "it was started and left no result: it may have run, or not"
