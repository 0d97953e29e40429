"""Whether a server will take what a run sends once its calls have run.

A tool's work cannot be taken back. So before the first one runs, the request behind it is looked at
as the linter looks at any history: what every kind of item needs is there, and calls and outputs
stand in pairs, where a call that the run still works on has its output to come. A server that owns
the history has a part of it that no state tells; of what stands with the server, the model's own
answers are what can be known.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from convo.errors import BadState
from convo.history import OWNERS, Strategy
from convo.inspection.linting.finding import Fault
from convo.inspection.linting.pairs import call_without_output, output_without_call
from convo.inspection.linting.shapes import malformed_item
from convo.inspection.linting.view import View
from convo.items import Item, Json
from convo.run import Run
from convo.runstate.batch import named_by
from convo.runstate.paths import Place, found, path, pattern
from convo.runstate.told import GENERATED, acknowledged, is_answer, places


def check(document: Json, run: Run, strategy: Strategy) -> None:
    """raises: BadState  a server would refuse the next request"""
    worked_on = frozenset(call.id for call in run.batch)
    history = [*places(document, worked_on)]
    if OWNERS[strategy].remembers:
        had = [*_answers(document)]
        history = [*had, *history[acknowledged(document, history) :], *_staged(document)]
        view = View(_items(history), strategy, owned=len(had), waiting=worked_on)
        _refuse(malformed_item(view), history)
        _refuse((fault for fault in output_without_call(view) if _at(fault, history).steps[0] == GENERATED), history)
        return
    history += _staged(document)
    view = View(_items(history), strategy, waiting=worked_on)
    for rule in (malformed_item, output_without_call, call_without_output):
        _refuse(rule(view), history)
    _check_worked_on(document, history, worked_on)


def _check_worked_on(document: Json, history: Sequence[Place], worked_on: Collection[str]) -> None:
    """raises: BadState  a call that the run works on stands in the last answer alone, which is not sent"""
    there = {named_by(raw) for _, raw in history if not is_answer(raw)}
    for steps, item in _answers(document):
        if named_by(item) in worked_on and named_by(item) not in there:
            raise BadState(path(steps), "is a call that generated_items do not hold: its output would answer nothing")


def _refuse(faults: Iterable[Fault], history: Sequence[Place]) -> None:
    for fault in faults:
        raise BadState(path(_at(fault, history).steps) + fault.field, f"cannot be sent: {fault.message}")


def _at(fault: Fault, history: Sequence[Place]) -> Place:
    assert fault.at is not None
    return history[fault.at]


def _items(history: Sequence[Place]) -> tuple[Item, ...]:
    return tuple(place.value for place in history)


def _answers(document: Json) -> Iterator[Place]:
    """What the model said in this run, the last answer last."""
    return found(document, pattern("model_responses[].output[]"))


def _staged(document: Json) -> Iterator[Place]:
    """What a person said meanwhile; it follows the outputs."""
    return found(document, pattern("pending_input[]"))
