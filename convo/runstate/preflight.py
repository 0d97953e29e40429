"""Check, before any tool runs, that a server will accept the next request of an imported run.

Applies the lint rules for malformed items and for calls without outputs to the history that would be sent. Imports
the linter, so it is imported only when a state is resumed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from convo.errors import InvalidRunState
from convo.history.items import Item, Json
from convo.history.records import Strategy
from convo.lint.calls import check_call_without_output, check_output_without_call
from convo.lint.items import check_malformed_item
from convo.lint.model import LintIssue, LintView
from convo.runs.state import Run
from convo.runstate.calls import answerable_call_id, is_call_answer
from convo.runstate.document import PathMatch, format_path, iter_path_matches, parse_path_pattern
from convo.runstate.import_ import GENERATED_ITEMS, count_confirmed_items, iter_history
from convo.strategies.strategy import STRATEGIES


def check_sendable(document: Json, run: Run, strategy: Strategy) -> None:
    """Raise InvalidRunState if a server would reject the next request."""
    open_call_ids = frozenset(call.id for call in run.calls)
    history = [*iter_history(document, open_call_ids)]
    if STRATEGIES[strategy].is_server_side:
        server_items = [*_iter_response_items(document)]
        history = [*server_items, *history[count_confirmed_items(document, history) :], *_iter_pending_input(document)]
        view = LintView(_list_items(history), strategy, server_count=len(server_items), pending_call_ids=open_call_ids)
        _raise_fault(check_malformed_item(view), history)
        _raise_fault(
            (
                fault
                for fault in check_output_without_call(view)
                if _fault_location(fault, history).steps[0] == GENERATED_ITEMS
            ),
            history,
        )
        return
    history += _iter_pending_input(document)
    view = LintView(_list_items(history), strategy, pending_call_ids=open_call_ids)
    for rule in (check_malformed_item, check_output_without_call, check_call_without_output):
        _raise_fault(rule(view), history)
    _check_open_calls(document, history, open_call_ids)


def _check_open_calls(document: Json, history: Sequence[PathMatch], open_call_ids: Collection[str]) -> None:
    """Raise InvalidRunState for an open call that is only in the last response, which is not sent."""
    history_call_ids = {answerable_call_id(raw) for _, raw in history if not is_call_answer(raw)}
    for steps, item in _iter_response_items(document):
        if answerable_call_id(item) in open_call_ids and answerable_call_id(item) not in history_call_ids:
            raise InvalidRunState(
                format_path(steps), "is a call that is not in generated_items, so its output would have no call"
            )


def _raise_fault(issues: Iterable[LintIssue], history: Sequence[PathMatch]) -> None:
    for issue in issues:
        raise InvalidRunState(
            format_path(_fault_location(issue, history).steps) + issue.field, f"cannot be sent: {issue.message}"
        )


def _fault_location(issue: LintIssue, history: Sequence[PathMatch]) -> PathMatch:
    assert issue.item_index is not None
    return history[issue.item_index]


def _list_items(history: Sequence[PathMatch]) -> tuple[Item, ...]:
    return tuple(match.value for match in history)


def _iter_response_items(document: Json) -> Iterator[PathMatch]:
    """Iterate over the items of all responses of this run, the last response last."""
    return iter_path_matches(document, parse_path_pattern("model_responses[].output[]"))


def _iter_pending_input(document: Json) -> Iterator[PathMatch]:
    """Iterate over the input added at the pause; it follows the outputs."""
    return iter_path_matches(document, parse_path_pattern("pending_input[]"))
