"""A run of convo's own, out of a state that anybody wrote.

What the state knows is taken over as it means it there: whose turn it is, the calls of the last
answer with the outputs that are there already, what was decided, and how far the owner of the
history is. Outputs of calls that still wait for others are no part of the history yet; they are
sent together, once the last is there. A graph that is not the one that paused is refused: an agent
or tool that is missing, a tool that takes something else than when it was asked for.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from convo.agents import AgentTool, Graph
from convo.errors import BadState, StateFault, Unsupported
from convo.history import Strategy
from convo.items import Hash, Item, Json, hash_of, is_assistant, is_output, text
from convo.run import Call, Decided, Inner, Limits, Phase, Run, Stage, decide
from convo.runstate.batch import SDK, batch, inner, unfit
from convo.runstate.lasting import always
from convo.runstate.nested import INTERRUPTION
from convo.runstate.paths import Steps, at, path
from convo.runstate.state import Decision, Pending, State, view
from convo.runstate.told import acknowledged, places
from convo.runstate.values import values_of
from convo.runstate.versions import LABELS
from convo.runstate.whose import identities, identity_in
from convo.tools import Mismatch


@dataclass(frozen=True, slots=True)
class Taken:
    """What a state holds, as convo goes on with it.

    run:           stands where the state does; one that only has to go on is paused with nothing to decide
    items:         what the model has been told, the last answer included and without outputs of its calls
    acknowledged:  how many of `items` the owner holds; none of them where the history is the client's
    handle:        `conv_...` or `resp_...`; None where the history is the client's
    responses:     the ids of the model's answers so far, the oldest first
    values:        the application's own
    source:        the content hash of the document
    """

    run: Run
    items: tuple[Item, ...]
    strategy: Strategy
    handle: str | None
    acknowledged: int
    responses: tuple[str, ...]
    values: Mapping[str, Json]
    source: Hash


def taken(state: State, graph: Graph, values: Mapping[str, Json] | None = None) -> Taken:
    """`state` among the agents of `graph`.

    values:  the application's own, in place of those in the state
    raises:  NotFound     an agent or tool that the graph does not have
             BadState     a tool takes something else than the state says, or a decision is on another tool
             InputFault   several agents could be meant, or the state's own values cannot be had from it
             Unsupported  something waits that convo does not perform: a shell, an agent behind a tool that is none
             StateFault   the state says that nobody may go on with it
    """
    document = state.document
    run = _run(state, graph, state.decisions)
    items, held = _history(document, run)
    strategy, handle = _owner(document)
    _check_sendable(document, run, strategy)
    return Taken(
        run,
        items,
        strategy,
        handle,
        held if handle else 0,
        tuple(_responses(document)),
        values_of(document) if values is None else values,
        hash_of(document),
    )


# -- where it stands ------------------------------------------------------------------------------


def _run(state: State, graph: Graph, decisions: tuple[Decision, ...]) -> Run:
    """The run of one state, and those inside its calls.

    decisions:  those of the outermost state, which before 1.15 speaks for those in it
    """
    document = state.document
    if document.get("terminal_unrecoverable"):
        raise StateFault("this run cannot be gone on with: its last answer was blocked", hint="begin a new run")
    known = identities(document, graph, lambda identity: unfit(document, graph, identity) is None)
    lasting = always(state, graph, known)
    run = Run(
        graph,
        known[identity_in(document["current_agent"])],
        Limits(max_turns=document["max_turns"]),
        Phase.PAUSED,
        document["current_turn"],
        used={known[said]: tuple(names) for said, names in _tracked(document) if said in known},
        always={tool: verdict.approve for tool, verdict in lasting.items()},
        reasons={tool: verdict.message for tool, verdict in lasting.items() if verdict.message is not None},
        staged=tuple(document.get("pending_input") or ()),
    )
    waits = at(document, ("current_step", "type")) == INTERRUPTION
    return _paused(state, run, decisions) if waits else _between(state, run)


def _inside(call: Call, state: State, decisions: tuple[Decision, ...]) -> Call:
    """`call` with the run inside it. raises: Unsupported  its tool has no agent behind it"""
    tool = call.tool
    if not isinstance(tool, AgentTool):
        raise Unsupported("convo", f"a state that waits in an agent behind tool {call.lookup[-1]!r}", hint=SDK)
    run = _run(state, tool.inside, decisions)
    _check_sendable(state.document, run, Strategy.SESSION)
    items, _ = _history(state.document, run)
    return replace(call, inner=Inner(run, items))


def _check_sendable(document: Json, run: Run, strategy: Strategy) -> None:
    from convo.runstate.sendable import check  # the linter is loaded for a state that is gone on with, and for no other

    if run.phase is Phase.PAUSED:
        check(document, run, strategy)


def _within(place: Steps, wrong: BadState) -> BadState:
    """A fault of a state inside another, with its place in the outer one."""
    words = wrong.message.removeprefix(f"{wrong.path} ")
    return BadState(path(place) + wrong.path.removeprefix("$"), words, hint=wrong.hint)


def _paused(state: State, run: Run, decisions: tuple[Decision, ...]) -> Run:
    """The run with the calls that it works on, and with what was decided on them."""
    run = replace(run, batch=batch(state.document, run))
    for call_id, place in inner(state.document).items():
        call = run.call(call_id)
        if call is None:
            raise BadState(path(place.steps), "answers a call that the last answer does not hold")
        try:
            run = run.put(_inside(call, view(place.value), decisions))
        except BadState as wrong:
            raise _within(place.steps, wrong) from wrong
    by_call = defaultdict[str | None, list[Decision]](list)
    for decision in decisions:
        by_call[decision.call_id].append(decision)
    for one in state.pending:
        if one.holder:
            continue
        call = run.call(one.id)
        if call is None:
            raise _of_nobody(one, state, run)
        said = [decision for decision in by_call[one.id] if not decision.always] or by_call[one.id]
        if said and call.stage is not Stage.UNKNOWN:  # an approval of a call is none of running it again
            words = next((decision.message for decision in said if decision.message), None)
            run, _ = decide(run, Decided(one.id, all(decision.approve for decision in said), words))
    return run


def _of_nobody(one: Pending, state: State, run: Run) -> BadState:
    """Why a call that waits is none of the last answer's: it waits in an agent that was left out, or was made up."""
    where = path((*one.way, "raw_item"))
    if state.label == LABELS[0] and run.at(Stage.READY):
        words = f"waits in an agent behind a tool, and label {state.label} does not keep what happened there"
        return BadState(where, words, hint="nobody can go on with it: begin the run again, with a newer release")
    return BadState(where, "waits, and the last answer holds no such call")


def _between(state: State, run: Run) -> Run:
    """The run between two turns, or at its end. Before 1.15 both are written alike."""
    raws = [item["raw_item"] for item in state.document.get("generated_items") or ()]
    if state.document.get("current_step") is not None or not raws:
        return run
    last = raws[-1]
    if is_assistant(last):
        return replace(run, phase=Phase.DONE, text=text(last), output=_output(run, text(last)))
    if is_output(last) and (state.is_bound or run.current.after_tools != "ask again"):
        return replace(run, phase=Phase.DONE, output=last.get("output"))
    return run


def _output(run: Run, words: str) -> Json:
    try:
        return run.current.output.value(words) if run.current.output else words
    except Mismatch as wrong:
        raise BadState("$.generated_items", f"ends in an answer that does not fit its schema: {wrong}") from wrong


# -- the history and its owner ----------------------------------------------------------------------


def _history(document: Json, run: Run) -> tuple[tuple[Item, ...], int]:
    """What the model was told and said, and how much of it the last answer's server has."""
    history = [*places(document, {call.id for call in run.batch})]
    return tuple(place.value for place in history), acknowledged(document, history)


def _owner(document: Json) -> tuple[Strategy, str | None]:
    conversation, chained = document.get("conversation_id"), document.get("previous_response_id")
    if conversation is not None:
        return Strategy.CONVERSATION, conversation
    if chained is not None or document.get("auto_previous_response_id"):
        return Strategy.CHAIN, [chained, *_responses(document)][-1]
    return Strategy.SESSION, None


def _responses(document: Json) -> Iterator[str]:
    answers = document.get("model_responses") or ()
    return (answer["response_id"] for answer in answers if isinstance(answer.get("response_id"), str))


def _tracked(document: Json) -> Iterator[tuple[str, list[str]]]:
    for said, names in (document.get("tool_use_tracker") or {}).items():
        if isinstance(names, list):
            yield said, [str(name) for name in names]
