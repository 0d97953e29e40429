"""The input of one model call: what a run begins with, what its model sees, what a filter makes of it.

What the client owns may be sent otherwise than it is kept. What an owner remembers may not: there a
filter sees only what the owner lacks, what it returns takes the place of that, and an output that
the owner waits for cannot be dropped.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from convo.agents import ForeignInputFilter, Graph
from convo.endpoints.contract import Endpoint
from convo.engine.agent_asking import Asked, asked
from convo.engine.conduct import Conduct, ModelInput, Route
from convo.engine.run_keeping import Keeper
from convo.engine.standing import View, view_of
from convo.engine.theirs import told_by
from convo.engine.turn import Asking, Seen
from convo.errors import InputFault, WrongOwner
from convo.history import Link, Path
from convo.items import Item, call_id, is_output, kind
from convo.run import Ask, Run
from convo.strategies import Held, Sent
from convo.strategies.newest import latest_outputs, newest
from convo.tools import Context

CODE = "input_filter"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A request of a run before anybody sends it; `sent`: what travels of the conversation."""

    asking: Asking
    endpoint: Endpoint
    sent: Sent


@dataclass(frozen=True, slots=True)
class Input:
    """New input: what the conversation keeps of it, and what the model sees in place of the whole."""

    said: tuple[Item, ...]
    seen: tuple[Item, ...] | None = None

    def view(self, path: Path) -> View | None:
        """raises: as `view_of`"""
        return None if self.seen is None else view_of(self.seen, path)


async def begun_with(held: Held, items: Sequence[Item], conduct: Conduct) -> Input:
    """What a run begins with, by the session's limit and its input callback.

    raises:  RunFailed, InputFault  the callback raised, or returned something else
    """
    if held.remembers:
        return Input(tuple(items))
    known = held.path.items
    older = newest(known, conduct.session_limit)
    if conduct.session_input is None:
        changed = len(older) != len(known)
        return Input(tuple(items), (*older, *items) if changed else None)
    given = copy.deepcopy((older, list(items)))
    made = await told_by("the session's input callback", "session_input", conduct.session_input, *given)
    if not _are_items(made):
        raise InputFault("a session's input callback did not return a list of items", hint="return a list of items")
    return Input(tuple(_new(made, older, given[1])), tuple(made))


async def prepared(
    ask: Ask, run: Run, keeper: Keeper, base: Route, conduct: Conduct, context: Context
) -> tuple[Asked, Seen | None]:
    """How `ask` is asked, and what its model sees in place of the conversation.

    context:  what the agent's functions may know of the run
    raises:  RunFailed, InputFault, WrongOwner  what a person wrote raised, or may not be sent
    """
    how = await asked(run.graph, ask, base, conduct, context, keeper.chat.record.session.id)
    held = keeper.chat.held
    view = _to_be_opened(how, held, keeper.view, keeper.chat.record.last)
    if view is not keeper.view:
        keeper.standing = replace(keeper.standing, view=view)
    seen = _seen(how, held, view)
    if conduct.input_filter is None:
        return how, seen
    if keeper.standing.filtered and keeper.standing.filtered[0] == held.path.head:
        return _instructed(how, keeper.standing.filtered[1]), seen
    sent = seen.sent if seen else how.asking.sent(held)
    how, made = await _filtered(how, sent, held, conduct.input_filter, context)
    if made is sent:
        return how, seen
    if not held.remembers:
        return how, Seen(Path(held.path.root).grow(made.items), made)
    path = held.path.upto(held.mark).grow(made.items)
    stands = replace(keeper.standing, turn=path.head, filtered=(path.head, how.asking.instructions))
    await keeper.keep(run, standing=stands, held=replace(held, path=path))
    return how, seen


async def foreseen(
    graph: Graph,
    ask: Ask,
    held: Held,
    view: View | None,
    last: Link | None,
    base: Route,
    conduct: Conduct,
    session: str,
) -> Foreseen:
    """How `ask` would be asked and what would travel; nothing is kept. raises: as `prepared`

    last:     the link that the owner confirmed last
    session:  its id
    """
    context = Context(ask.agent, "", "", conduct.values, input=held.path.items)
    how = await asked(graph, ask, base, conduct, context, session)
    seen = _seen(how, held, _to_be_opened(how, held, view, last))
    sent = seen.sent if seen else how.asking.sent(held)
    if conduct.input_filter is not None:
        how, sent = await _filtered(how, sent, held, conduct.input_filter, context)
    return Foreseen(how.asking, how.endpoint, sent)


def _to_be_opened(how: Asked, held: Held, view: View | None, last: Link | None) -> View | None:
    """The view without what only the model that answered before could open: another one would refuse it."""
    if held.remembers or last is None or last.model == how.asking.model:
        return view
    items = view.path.items if view else held.path.items
    left = [item for item in items if kind(item) != "reasoning"]
    return view_of(left, held.path) if len(left) < len(items) else view


def _seen(how: Asked, held: Held, view: View | None) -> Seen | None:
    if view is None:
        return None
    return Seen(view.path, how.asking.sent(replace(held, path=view.path, mark=view.path.root)))


async def _filtered(how: Asked, sent: Sent, held: Held, function: Any, context: Context) -> tuple[Asked, Sent]:
    """What a filter makes of a request; `sent` itself where it leaves the items as they are."""
    given = ModelInput(copy.deepcopy(list(sent.items)), how.asking.instructions)
    if isinstance(function, ForeignInputFilter):
        parts = given.items, given.instructions, context
        made = ModelInput(*await told_by("the input filter", CODE, function, *parts))
    else:
        made = await told_by("the input filter", CODE, function, given)
    if not isinstance(made, ModelInput) or not _are_items(made.items):
        raise InputFault("the input filter did not return a ModelInput", hint="return ModelInput(items, instructions)")
    how, items = _instructed(how, made.instructions), tuple(latest_outputs(made.items))
    if held.remembers:
        _check_outputs(sent.items, items)
    return how, sent if items == sent.items else Sent(items, len(items), sent.state)


def _check_outputs(wanted: Sequence[Item], items: Sequence[Item]) -> None:
    """raises: WrongOwner  an output is gone that the owner waits for"""
    left = {call_id(item) for item in items if is_output(item)}
    for item in wanted:
        if is_output(item) and call_id(item) not in left:
            raise WrongOwner(
                f"the input filter drops the output of call {call_id(item)}, and the endpoint waits for it",
                hint="let outputs pass, or own the history with --session or --replay",
            )


def _instructed(how: Asked, instructions: str | None) -> Asked:
    return replace(how, asking=replace(how.asking, instructions=instructions))


def _are_items(made: object) -> bool:
    return isinstance(made, list) and all(isinstance(item, dict) for item in made)


def _new(made: Sequence[Item], older: Sequence[Item], new: Sequence[Item]) -> list[Item]:
    """What of a callback's list is not from the history: the new items themselves, and what equals no kept one."""
    left, kept = list(older), []
    for item in made:
        if not any(item is one for one in new) and item in left:
            left.remove(item)
        else:
            kept.append(item)
    return kept
