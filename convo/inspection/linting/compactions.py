"""Compaction items where they cannot be.

One stands for everything before it. So it may not stand between a call and its output, nor be sent
to an owner that holds the history itself, which would read it twice. What only asks for a compaction
is the end of a request.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.view import PAIRED, Edits, View, edited
from convo.items import kind

TRIGGER = "compaction_trigger"


def misplaced_compaction(view: View) -> Iterator[Fault]:
    """A compaction between two halves of a pair, one on top of an owner's own history, or a request for one."""
    for at, _ in view.of_kind(TRIGGER):
        if at + 1 < len(view.items):
            yield Fault("only the last item of a request may ask for a compaction", at)
    for at, _ in view.of_kind("compaction"):
        if at >= view.owned and (view.owned or view.partial):
            yield Fault("the owner holds what this stands for, and would read it twice", at)
    yield from _between_halves(view, [at for at, _ in view.of_kind("compaction")])


def _between_halves(view: View, places: Sequence[int]) -> Iterator[Fault]:
    """The last compaction before an output, where the output's call stands before that."""
    asked: dict[str, int] = {}
    for at, item, name in view.halves if places else ():
        if kind(item) in PAIRED:
            asked[name] = at
        elif name in asked and (before := bisect_left(places, at)) and asked[name] < places[before - 1]:
            message = f"it stands between call {name} and its output"
            yield Fault(message, places[before - 1], also=(asked[name], at))


def make_room(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """The pair that it cuts goes, both halves together; else the compaction itself."""
    dropped: dict[int, None] = {}
    changes = []
    for itself, fault in of_items(faults):
        for at in fault.also or (itself,):
            if at not in dropped:
                dropped[at] = None
                changes.append(Change("misplaced-compaction", "dropped", _why(fault), view.sources[at]))
    return edited(view, Edits(dropped)), changes


def _why(fault: Fault) -> str:
    return "a compaction stands between the call and its output" if fault.also else fault.message
