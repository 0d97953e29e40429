"""Import a RunState as a run of convo, with its history and its owner.

Outputs of calls that are complete while others are pending are not part of the history yet; they are sent together.
Raises if the graph lacks an agent or a tool, or if a tool's schema is not the one in the state.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from convo.agents.graph import AgentTool, Graph
from convo.errors import InvalidRunState, StateFault, Unsupported
from convo.history.canonical import Hash, item_hash
from convo.history.items import (
    Item,
    Json,
    is_assistant_message,
    is_client_output,
    item_text,
)
from convo.history.records import Strategy
from convo.runs.machine import step_run
from convo.runs.state import ApprovalDecided, NestedRun, Phase, Run, RunLimits, Stage, ToolCall
from convo.runstate.agents import get_agent_identity, read_sticky_decisions, resolve_agent_identities
from convo.runstate.calls import (
    SDK_RESUME_HINT,
    answerable_call_id,
    find_agent_mismatch,
    find_last_outputs,
    find_open_nested_states,
    import_calls,
    is_call_answer,
    read_last_response,
)
from convo.runstate.document import PathMatch, PathSteps, format_path, get_path, iter_path_matches, parse_path_pattern
from convo.runstate.format import APPROVAL_ITEM, INTERRUPTION_STEP
from convo.runstate.run_items import read_context_values
from convo.runstate.run_state import PendingCall, RunState, StateDecision, wrap_document
from convo.runstate.versions import LABELS
from convo.strategies.strategy import STRATEGIES
from convo.tools.schema import Mismatch

if TYPE_CHECKING:
    from convo.lint.model import LintIssue


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """An imported run with its history and owner.

    run:              the run of the state; if it is between two turns, it is paused without pending calls
    items:            the history with the last response, without outputs of its calls
    confirmed_count:  how many of `items` the server has; 0 if the client owns the history
    handle:           `conv_...` or `resp_...`; None if the client owns the history
    context_values:   context values of the application
    source_hash:      the content hash of the document
    """

    run: Run
    items: tuple[Item, ...]
    strategy: Strategy
    handle: str | None
    confirmed_count: int
    context_values: Any
    source_hash: Hash


def import_run_state(state: RunState, graph: Graph, values: Any = None) -> ImportedRun:
    """Import `state` with the agents of `graph`.

    values:  context values of the application that replace those of the state

    Raises NotFound for an agent or tool that the graph lacks, InvalidRunState for a decision on another tool or a tool
    whose schema differs from the one in the state, InputFault if several agents match or the state's context values
    cannot be restored, Unsupported for a pending call that convo does not perform (a shell, an agent tool that is not
    an agent here), and StateFault if the state is marked as unrecoverable.
    """
    document = state.document
    run = _import_run(state, graph, state.decisions)
    items, confirmed_count = _import_history(document, run)
    strategy, handle = _read_owner(document)
    if run.phase is Phase.PAUSED:
        _check_sendable(document, run, strategy)
    return ImportedRun(
        run,
        items,
        strategy,
        handle,
        confirmed_count if handle else 0,
        read_context_values(document) if values is None else values,
        item_hash(document),
    )


# -- the run ------------------------------------------------------------------------------------


def _import_run(state: RunState, graph: Graph, decisions: tuple[StateDecision, ...]) -> Run:
    """Import the run of one state and its nested runs.

    decisions:  those of the outermost state, which before 1.15 has the decisions of nested states too
    """
    document = state.document
    if document.get("terminal_unrecoverable"):
        raise StateFault("this run cannot be resumed: its last response was blocked", hint="start a new run")
    identities = resolve_agent_identities(
        document, graph, lambda identity: find_agent_mismatch(document, graph, identity) is None
    )
    sticky = read_sticky_decisions(state, graph, identities)
    run = Run(
        graph,
        identities[get_agent_identity(document["current_agent"])],
        RunLimits(max_turns=document["max_turns"]),
        Phase.PAUSED,
        document["current_turn"],
        used_tools={
            identities[state_identity]: tuple(names)
            for state_identity, names in _iter_used_tools(document)
            if state_identity in identities
        },
        sticky_decisions={tool: verdict.approve for tool, verdict in sticky.items()},
        sticky_rejection_messages={
            tool: verdict.message for tool, verdict in sticky.items() if verdict.message is not None
        },
        staged_items=tuple(document.get("pending_input") or ()),
    )
    is_interrupted = get_path(document, ("current_step", "type")) == INTERRUPTION_STEP
    return _import_paused_run(state, run, decisions) if is_interrupted else _import_unpaused_run(state, run)


def _import_nested_run(call: ToolCall, state: RunState, decisions: tuple[StateDecision, ...]) -> ToolCall:
    """Return `call` with its nested run. Raises Unsupported if its tool is not an agent."""
    tool = call.tool
    if not isinstance(tool, AgentTool):
        raise Unsupported(
            "convo", f"a pending call of the nested agent of tool {call.lookup[-1]!r}", hint=SDK_RESUME_HINT
        )
    run = _import_run(state, tool.graph, decisions)
    if run.phase is Phase.PAUSED:
        _check_sendable(state.document, run, Strategy.SESSION)
    items, _ = _import_history(state.document, run)
    return replace(call, nested_run=NestedRun(run, items))


def _prefix_error(prefix: PathSteps, error: InvalidRunState) -> InvalidRunState:
    """Return an error of a nested state with its path in the outer state."""
    problem = error.message.removeprefix(f"{error.path} ")
    return InvalidRunState(format_path(prefix) + error.path.removeprefix("$"), problem, hint=error.hint)


def _import_paused_run(state: RunState, run: Run, decisions: tuple[StateDecision, ...]) -> Run:
    """Return the run with the calls of the last response and the decisions on them."""
    run = replace(run, calls=import_calls(state.document, run))
    for call_id, match in find_open_nested_states(state.document).items():
        call = run.find_call(call_id)
        if call is None:
            raise InvalidRunState(format_path(match.steps), "belongs to a call that is not in the last response")
        try:
            run = run.replace_call(_import_nested_run(call, wrap_document(match.value), decisions))
        except InvalidRunState as error:
            raise _prefix_error(match.steps, error) from error
    by_call = defaultdict[str | None, list[StateDecision]](list)
    for decision in decisions:
        by_call[decision.call_id].append(decision)
    for pending in state.pending:
        if pending.state_path:
            continue
        call = run.find_call(pending.id)
        if call is None:
            raise _unplanned_call_error(pending, state, run)
        call_decisions = [decision for decision in by_call[pending.id] if not decision.always] or by_call[pending.id]
        # approving a call does not approve running it again
        if call_decisions and call.stage is not Stage.OUTCOME_UNKNOWN:
            # Several records may decide on one call; it is approved only if all of them approve.
            message = next((decision.message for decision in call_decisions if decision.message), None)
            run, _ = step_run(
                run, ApprovalDecided(pending.id, all(decision.approve for decision in call_decisions), message)
            )
    return run


def _unplanned_call_error(pending_call: PendingCall, state: RunState, run: Run) -> InvalidRunState:
    """Return the error for a pending call that the last response lacks.

    It can be the call of an agent used as a tool, whose state label 1.0 and release 0.24.0 of the SDK may lack.
    """
    path = format_path((*pending_call.item_path, "raw_item"))
    if run.calls_at(Stage.READY) or pending_call.agent != state.agent:
        reason = f"label {state.label} does not store" if state.label == LABELS[0] else "is missing"
        problem = f"is a pending call of a nested agent, whose state {reason}"
        return InvalidRunState(
            path, problem, hint="start the run again with a newer release; this one cannot be resumed"
        )
    return InvalidRunState(path, "is pending, but is not a call of the last response")


def _import_unpaused_run(state: RunState, run: Run) -> Run:
    """Return the run between two turns or at its end; labels before 1.15 do not distinguish them."""
    raw_items = [item["raw_item"] for item in state.document.get("generated_items") or ()]
    if state.document.get("current_step") is not None or not raw_items:
        return run
    last = raw_items[-1]
    if is_assistant_message(last):
        return replace(run, phase=Phase.DONE, text=item_text(last), output=_parse_final_output(run, item_text(last)))
    if is_client_output(last) and (state.is_bound or run.current_agent.after_tools != "ask again"):
        return replace(run, phase=Phase.DONE, output=last.get("output"))
    return run


def _parse_final_output(run: Run, text: str) -> Json:
    try:
        return run.current_agent.output.value(text) if run.current_agent.output else text
    except Mismatch as error:
        raise InvalidRunState(
            "$.generated_items", f"ends with an output that does not match its schema: {error}"
        ) from error


# -- the history and its owner ----------------------------------------------------------------------


def _import_history(document: Json, run: Run) -> tuple[tuple[Item, ...], int]:
    """Return the history, and how many of its items the server of the last response has."""
    history = [*_iter_history(document, {call.id for call in run.calls})]
    return tuple(match.value for match in history), _count_confirmed_items(document, history)


def _read_owner(document: Json) -> tuple[Strategy, str | None]:
    conversation_id, response_id = document.get("conversation_id"), document.get("previous_response_id")
    if conversation_id is not None:
        return Strategy.CONVERSATION, conversation_id
    if response_id is not None or document.get("auto_previous_response_id"):
        return Strategy.CHAIN, [response_id, *_iter_response_ids(document)][-1]
    return Strategy.SESSION, None


def _iter_response_ids(document: Json) -> Iterator[str]:
    responses = document.get("model_responses") or ()
    return (response["response_id"] for response in responses if isinstance(response.get("response_id"), str))


def _iter_used_tools(document: Json) -> Iterator[tuple[str, list[str]]]:
    for identity, names in (document.get("tool_use_tracker") or {}).items():
        if isinstance(names, list):
            yield identity, [str(name) for name in names]


_GENERATED_ITEMS = "generated_items"


def _iter_history(document: Json, open_call_ids: Collection[str]) -> Iterator[PathMatch]:
    """Iterate over the items of the history with their places.

    open_call_ids:  ids of the calls whose outputs are not part of the history yet
    """
    original_input = document["original_input"]
    if isinstance(original_input, str):
        yield PathMatch(("original_input",), {"role": "user", "content": original_input})
    else:
        yield from (PathMatch(("original_input", index), item) for index, item in enumerate(original_input))
    run_items = document.get(_GENERATED_ITEMS) or ()
    outputs = find_last_outputs(run_items)
    for index, run_item in enumerate(run_items):
        if run_item.get("type") != APPROVAL_ITEM and outputs.get(index) not in open_call_ids:
            yield PathMatch((_GENERATED_ITEMS, index, "raw_item"), run_item["raw_item"])


def _count_confirmed_items(document: Json, history: Sequence[PathMatch]) -> int:
    """Count the items of the history that the server of the last response has."""
    response_items = read_last_response(document)
    ids = {_item_id(item) for item in response_items} - {None}
    items_without_id = [item for item in response_items if _item_id(item) is None]
    last_position = 0
    for position, (steps, raw) in enumerate(history, 1):
        if (
            steps[0] == _GENERATED_ITEMS
            and not is_call_answer(raw)
            and (_item_id(raw) in ids or raw in items_without_id)
        ):
            last_position = position
    return last_position or (len(history) if response_items else 0)


def _item_id(raw: Item) -> str | None:
    item_id = raw.get("id") or raw.get("call_id")
    return item_id if isinstance(item_id, str) else None


# -- whether a server accepts the next request ----------------------------------------------------


def _check_sendable(document: Json, run: Run, strategy: Strategy) -> None:
    """Raise InvalidRunState if a server would reject the next request: before any tool runs."""
    # only a resumed state needs the linter
    from convo.lint.calls import check_call_without_output, check_output_without_call
    from convo.lint.items import check_malformed_item
    from convo.lint.model import LintView

    open_call_ids = frozenset(call.id for call in run.calls)
    history = [*_iter_history(document, open_call_ids)]
    if STRATEGIES[strategy].is_server_side:
        server_items = [*_iter_response_items(document)]
        history = [*server_items, *history[_count_confirmed_items(document, history) :], *_iter_pending_input(document)]
        view = LintView(_list_items(history), strategy, server_count=len(server_items), pending_call_ids=open_call_ids)
        _raise_fault(check_malformed_item(view), history)
        _raise_fault(
            (
                fault
                for fault in check_output_without_call(view)
                if _fault_location(fault, history).steps[0] == _GENERATED_ITEMS
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


def _raise_fault(issues: "Iterable[LintIssue]", history: Sequence[PathMatch]) -> None:
    for issue in issues:
        raise InvalidRunState(
            format_path(_fault_location(issue, history).steps) + issue.field, f"cannot be sent: {issue.message}"
        )


def _fault_location(issue: "LintIssue", history: Sequence[PathMatch]) -> PathMatch:
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
