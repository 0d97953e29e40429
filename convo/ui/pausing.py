"""The screen of a paused run: whose turn it is, what waits, and what was decided.

Names, arguments and reasons come from a model or from a file; what a terminal would obey in them
is spelled out.
"""

import json
from collections.abc import Iterator, Sequence

from convo.items import with_characters
from convo.runstate import Decision, Loss, Pending, State
from convo.ui.answer import safe
from convo.ui.labelled import Line, counted, labelled
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

VERDICTS = {True: "approved", False: "rejected"}


def paused(state: State, name: str, medium: Medium) -> str:
    """The whole screen, without the last line break."""
    shown = [medium.paint(safe(name), "bold"), *labelled(_facts(state), medium)]
    if state.pending:
        shown += ["", *lines(fitted(_columns(state), medium), medium)]
    return medium.drawn("\n".join(shown))


def lost(losses: Sequence[Loss]) -> Iterator[str]:
    """One line for everything that another label cannot say."""
    return (f"lost: {one.path} ({one.what}): {one.why}" for one in losses)


def _facts(state: State) -> Iterator[Line]:
    document, usage = state.document, state.usage
    yield "state", f"RunState {state.label}, written by {state.version.release} or later: {state.version.summary}"
    yield "agent", state.agent
    yield "owner", _owner(state)
    most = document["max_turns"]
    yield "turns", f"{document['current_turn']} of {'any number' if most is None else most}"
    counts = f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"
    yield "usage", f"{counted(usage['requests'], 'request')}, {counts}, {usage['total_tokens']:,} tokens"
    yield "waiting", counted(len(state.pending), "call") if state.pending else "for nothing"
    for one in state.decisions:
        if one.call_id is None or one.call_id not in {waits.id for waits in state.pending}:
            yield "decided", _decided(one)
    if state.pending and not state.is_bound:
        words = "decisions are unauthenticated: below 1.15 they name a call by its id alone, whatever it would do"
        yield "note", words


def _owner(state: State) -> str:
    document = state.document
    if document.get("conversation_id"):
        return f"the endpoint's Conversations API ({document['conversation_id']})"
    if document.get("previous_response_id"):
        return f"the endpoint's Responses API ({document['previous_response_id']})"
    return "this file"


def _columns(state: State) -> list[Column]:
    pending = state.pending
    return [
        Column("call", [one.id for one in pending], style="id"),
        Column("agent", [one.agent for one in pending], goes=1),
        Column("decision", [_verdict(state, one) for one in pending]),
        Column("tool", [one.call.tool for one in pending]),
        Column("arguments", [_arguments(one) for one in pending]),
    ]


def _verdict(state: State, one: Pending) -> str:
    found = [decision for decision in state.decisions if decision.call_id == one.id]
    return " ".join(_said(decision) for decision in found) or "-"


def _said(one: Decision) -> str:
    return VERDICTS[one.approve] + (" for good" if one.always else "")


def _decided(one: Decision) -> str:
    of = f"{one.tool} ({one.call_id})" if one.call_id else one.tool
    return f"{of}: {_said(one)}" + (f": {one.message}" if one.message else "")


def _arguments(one: Pending) -> str:
    said = one.call.arguments
    return with_characters(" ".join((said if isinstance(said, str) else json.dumps(said)).split()))
