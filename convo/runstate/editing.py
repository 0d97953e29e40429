"""Other arguments for a pending call, wherever the document repeats it.

A call stands in a document many times: as it waits, as it would run, in what was generated, in the
response that made it. Readers from 1.15 on compare them all with the ledger, so a change has to
reach every one of them, and the ledger. Where a server keeps the history it has the call as the
model made it, and would be told an output of another one: there nothing can be edited.
"""

import json
from collections.abc import Iterator

from convo.errors import BadState, Usage
from convo.items import Item, Json
from convo.runstate.identity import ARGUMENTS, call_of
from convo.runstate.paths import Steps, at, found, path, pattern, replaced
from convo.runstate.state import Pending, State
from convo.runstate.version import ITEM_LISTS
from convo.runstate.versions.v1_15 import LEDGER, entry

EDITABLE = {"function_call", "custom_tool_call"}
"""Calls whose arguments are one string that the client's own tool is given."""

REPEATED = tuple(
    pattern(words)
    for words in (
        *(f"{holder}.raw_item" for holder in ITEM_LISTS),
        "last_processed_response.functions[].tool_call",
        "last_processed_response.custom_tool_actions[].tool_call",
        "model_responses[].output[]",
        "last_model_response.output[]",
        "original_input[]",
        "pending_session_write.items[]",
    )
)


def edited(state: State, one: Pending, arguments: str) -> State:
    """`state` with other arguments in a pending call, and with whatever was decided on it before.

    arguments:  a function's as JSON text of an object, a custom tool's as any text
    raises:     Usage     this call, or a call of this state, cannot be edited
                BadState  the arguments are not what such a tool takes
    """
    _check_editable(state, one)
    if one.call.is_function:
        _check_object(arguments)
    document = state.document
    for holder in _holders(one.holder):
        for way in tuple(_repeats(at(document, holder), one.call.raw)):
            field = ARGUMENTS[one.call.type]
            document = replaced(document, (*holder, *way, field), arguments)
    if state.is_bound:
        document = _bound_again(document, one)
    return State(document, state.version)


def _check_editable(state: State, one: Pending) -> None:
    for holder in _holders(one.holder):
        inner = at(state.document, holder)
        if inner.get("conversation_id") or inner.get("previous_response_id") or inner.get("auto_previous_response_id"):
            raise Usage(
                f"the arguments of {one.id} cannot be edited: a server holds the call as the model made it",
                hint="reject it, and say in the reason what should be asked for instead",
            )
    if one.call.type not in EDITABLE:
        raise Usage(f"the arguments of {one.id}, a {one.call.type}, cannot be edited", hint="approve or reject it")


def _check_object(arguments: str) -> None:
    try:
        wrong = None if isinstance(json.loads(arguments), dict) else "are no JSON object"
    except (ValueError, RecursionError):
        wrong = "are not JSON"
    if wrong:
        raise BadState("$", f"is what the edited arguments begin with, and they {wrong}", hint="nothing was changed")


def _holders(holder: Steps) -> Iterator[Steps]:
    """The outermost state, and every one on the way to `holder`: each repeats what waits in the next."""
    yield ()
    for end, step in enumerate(holder, 1):
        if step == "agent_run_state":
            yield holder[:end]


def _repeats(document: Json, raw: Item) -> Iterator[Steps]:
    """The places where a document repeats a call."""
    for steps in REPEATED:
        for way, value in found(document, steps):
            if isinstance(value, dict) and all(value.get(key) == raw.get(key) for key in ("type", "call_id", "name")):
                yield way


def _bound_again(document: Json, one: Pending) -> Json:
    item = at(document, one.way)
    call = call_of(item["raw_item"], item)
    assert call is not None
    try:
        bound = entry(call)
    except ValueError as wrong:
        raise BadState(path((*one.way, "raw_item")), f"cannot be bound: {wrong}") from wrong
    return replaced(document, (*one.holder, *LEDGER, one.id), bound)
