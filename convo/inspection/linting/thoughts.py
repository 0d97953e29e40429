"""Reasoning belongs to what it led to, and to the server that made it.

A server that is sent a thought without what followed it refuses the request; so it does with one
that is named by an id which it never kept, or that lacks its `summary`, be it empty. What a thought
led to is kept when the thought goes, without the ids by which the server would ask for it.
"""

from collections.abc import Iterator, Sequence

from convo.history import HERE
from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.view import Edits, View, edited, is_models
from convo.items import Item, kind
from convo.items.wire import ID_IS_OPTIONAL


def reasoning_without_follower(view: View) -> Iterator[Fault]:
    """A thought with nothing of the model's behind it. Several in a row have one follower."""
    last, followed = len(view.items), False
    faults = []
    for at, item in reversed(view.of_kind("reasoning")):
        if at + 1 != last:
            followed = at + 1 < len(view.items) and is_models(view.items[at + 1])
        last = at
        if not followed and view.travels[at]:
            faults.append(Fault(f"nothing that the model said follows {_name(item)}", at))
    yield from reversed(faults)


def reasoning_id_replayed(view: View) -> Iterator[Fault]:
    """A thought that is only an id, sent where nobody kept it. An id with its sealed content may travel anywhere."""
    for at, item in view.of_kind("reasoning", "item_reference"):
        if not view.travels[at] or not str(item.get("id")).startswith("rs_") or _says_itself(item):
            continue
        link = view.origins[at]
        if link is None:
            if not view.partial:
                yield Fault(f"{_name(item)} is only an id, which its server may not have kept", at, ".id", mild=True)
        elif link.scope != HERE and not link.stored:
            yield Fault(f"{_name(item)} is only an id, and {link.id} was sent with store=false", at, ".id")
        elif view.scope and link.scope != view.scope:
            yield Fault(f"{_name(item)} is only an id at {link.scope}, unknown to {view.scope}", at, ".id")


def missing_summary(view: View) -> Iterator[Fault]:
    """A thought without the list that every request must carry with it."""
    for at, item in view.of_kind("reasoning"):
        if view.travels[at] and not isinstance(item.get("summary"), list):
            yield Fault(f"{_name(item)} has no summary, not even an empty one", at, ".summary")


def missing_phase(view: View) -> Iterator[Fault]:
    """An answer without a phase, where other answers of the same model have one."""
    said = [(at, item) for at, item in view.of_kind("message") if item.get("role") == "assistant"]
    marked = {_model(view, at) for at, item in said if item.get("phase") is not None}
    for at, item in said:
        unmarked = item.get("phase") is None and item.get("status") in (None, "completed")
        if marked and unmarked and view.travels[at] and (_model(view, at) in marked or _model(view, at) is None):
            yield Fault("an answer lost its phase, which others here have", at, ".phase")


def drop_thoughts(code: str, view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Leave out these thoughts, and keep what they led to."""
    changes = [Change(code, "dropped", fault.message, view.sources[at]) for at, fault in of_items(faults)]
    return without(view, [at for at, _ in of_items(faults)]), changes


def add_summary(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    new = {at: {**view.items[at], "summary": []} for at, _ in of_items(faults)}
    why = "an empty summary was put in"
    return edited(view, Edits(new)), [Change("missing-summary", "replaced", why, view.sources[at]) for at in new]


def add_phase(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """What the model went on from was commentary; what it ended with was its answer."""
    new: dict[int, Item] = {}
    changes = []
    for at, _ in of_items(faults):
        phase = "commentary" if at + 1 < len(view.items) and is_models(view.items[at + 1]) else "final_answer"
        new[at] = {**view.items[at], "phase": phase}
        why = f"its place in the turn says {phase}"
        changes.append(Change("missing-phase", "replaced", why, view.sources[at]))
    return edited(view, Edits(new)), changes


def without(view: View, places: Sequence[int]) -> View:
    """`view` without these items. What they led to loses the ids that its server would want them for."""
    new: dict[int, Item | None] = dict.fromkeys(places)
    for at in places:
        behind = at + 1
        while kind(view.items[at]) == "reasoning" and behind < len(view.items) and is_models(view.items[behind]):
            if behind in new or behind < view.owned:
                break
            new[behind] = _unnamed(view.items[behind])
            behind += 1
    return edited(view, Edits(new))


def _unnamed(item: Item) -> Item:
    named = "id" in item and kind(item) in ID_IS_OPTIONAL and kind(item) != "reasoning"
    return {key: value for key, value in item.items() if key != "id"} if named else item


def _says_itself(item: Item) -> bool:
    """Whether a thought carries what it was, sealed or in words."""
    return bool(item.get("encrypted_content") or item.get("content"))


def _model(view: View, at: int) -> str | None:
    link = view.origins[at]
    return link.model if link else None


def _name(item: Item) -> str:
    return f"{kind(item).replace('_', ' ')} {item['id']}" if isinstance(item.get("id"), str) else "a reasoning item"
