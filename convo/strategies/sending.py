"""Which items the owner already has, and so which ones travel.

A client that owns the history sends the whole path and asks that nothing be kept. An endpoint
that owns it is sent what it has not acknowledged: the path after the mark. The mark moves when a
response confirms it and at no other time, so a failed attempt has nothing to undo.

    replay, session     the whole path, store=false
    conversation        the path after the mark, conversation=conv_...
    chain               the path after the mark, previous_response_id=resp_...
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from convo.history import Key, Path, Prefix, Strategy
from convo.items import Item, Json, Response, plain, resendable
from convo.strategies.held import Held, Sent


def send(held: Held, *, store: bool = False, seal: bool = False) -> Sent:
    """Decide what the coming turn sends.

    store:  keep a copy at the endpoint although the client owns the history
    seal:   the model reasons, and can hand its reasoning out encrypted
    raises: Conflict  the path no longer passes through the mark
    """
    return SENDS[held.strategy](held, store, seal)


def _whole(held: Held, store: bool, seal: bool) -> Sent:
    items = _forms(held.path)
    state: dict[str, Json] = {"store": store}
    if seal and not store:
        state["include"] = ["reasoning.encrypted_content"]
    return Sent(items, len(held.path), state)


def _delta(held: Held, state: Mapping[str, Json]) -> Sent:
    nodes = held.unacknowledged
    return Sent(_each(plain, (node.item for node in nodes)), len(nodes), state)


NEAR = 256
"""How many of the last places are looked at for one whose form is known."""

PATHS = 16
"""Of how many paths the forms are remembered."""

_KNOWN: dict[Key, Prefix[Item]] = {}

SENDS: dict[Strategy, Callable[[Held, bool, bool], Sent]] = {
    Strategy.REPLAY: _whole,
    Strategy.SESSION: _whole,
    Strategy.CONVERSATION: lambda held, store, seal: _delta(held, {"conversation": held.handle}),
    Strategy.CHAIN: lambda held, store, seal: _delta(
        held, {"previous_response_id": held.handle} if held.handle else {}
    ),
}


def body(sent: Sent, *, model: str, instructions: str | None, parameters: Mapping[str, Json]) -> dict[str, Json]:
    """The request as it travels. Instructions go with every turn: no owner carries them over."""
    said = {"instructions": instructions} if instructions else {}
    made = {"model": model, **said, "input": list(sent.items), **sent.state, **parameters}
    both = [*sent.state.get("include", ()), *(parameters.get("include") or ())]
    return {**made, "include": list(dict.fromkeys(both))} if both else made


def confirm(held: Held, sent: Sent, response: Response) -> Held:
    """What a response with an id changes: its output stands on the path, and the mark behind it.

    The owner's copy has the input in the form in which it travelled, and ours follows, so that
    both are the same nodes. The client's own history keeps every item as it first came.
    """
    path = held.path
    if held.remembers:
        path = path.upto(held.mark).grow(sent.items)
    path = path.grow(response.get("output") or ())
    handle = held.handle
    if held.strategy is Strategy.CHAIN:
        handle = response.get("id") or handle
    return replace(held, path=path, mark=path.head, handle=handle)


def interrupt(held: Held, output: Sequence[Item]) -> Held:
    """What a stopped answer changes: what came of it stays, as incomplete; the mark does not move."""
    partial = ({**item, "status": "incomplete"} for item in output if plain({**item, "status": "incomplete"}))
    return replace(held, path=held.path.grow(partial))


def _forms(path: Path) -> Prefix[Item]:
    """The items of a path as a client that owns it sends them.

    A key names all that stands before it, so what a run worked out for its last turn holds for the
    next one too, and a long history does not cost its length again with every turn.
    """
    near = range(len(path), max(0, len(path) - NEAR), -1)
    known = next((place for place in near if path.nodes[place - 1].key in _KNOWN), 0)
    before = _KNOWN[path.nodes[known - 1].key] if known else Prefix[Item]()
    forms = before.grow(_each(resendable, _each(plain, (node.item for node in path.nodes[known:]))))
    _KNOWN[path.head] = forms
    while len(_KNOWN) > PATHS:
        del _KNOWN[next(iter(_KNOWN))]
    return forms


def _each(form: Callable[[Item], Item | None], items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(formed for item in items if (formed := form(item)) is not None)
