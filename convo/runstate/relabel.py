"""A state under another label, newer or older, with everything that is lost on the way.

A reader takes its own label and older ones, so a state goes to an older release only under an
older label. It is moved from label to label over every border between: what the other side keeps
elsewhere is moved, what it has no word for is taken out and reported. The label itself changes
last, in every state inside as well.
"""

from convo.errors import BadState, Usage
from convo.items import Json
from convo.runstate.nested import children
from convo.runstate.paths import Place, Steps, path, pattern, replaced, without
from convo.runstate.reading import LABEL, of
from convo.runstate.state import State
from convo.runstate.version import Change, Loss, Version, lost, says
from convo.runstate.versions import BY_LABEL, LABELS, NESTED, VERSIONS

PLAIN = ({"type": "function"}, {"type": "next_step_run_again"})
"""What says no more than a reader assumes where there is nothing."""


def relabelled(state: State, label: str) -> tuple[State, tuple[Loss, ...]]:
    """`state` under another label, and what that label cannot say.

    raises:  Usage  no release ever wrote that label, or what waits has no place under it and readers would forget it
    """
    if label not in BY_LABEL:
        raise Usage(f"no release ever wrote the label {label[:20]!r}", hint=f"one of {', '.join(LABELS)}")
    target, document = BY_LABEL[label], state.document
    losses: list[Loss] = []
    for version in _borders(state.version, target):
        down = target.number < state.version.number
        document, gone = _over(document, version, (), down=down)
        losses += gone
    try:
        return of(_labelled(document, label)), tuple(losses)
    except BadState as wrong:
        raise Usage(
            f"what this state of {state.label} waits for cannot be written as {label}: {wrong.message}",
            hint="choose a label nearer to its own",
        ) from wrong


def _borders(start: Version, end: Version) -> tuple[Version, ...]:
    """The versions whose border is crossed, in the order of the way."""
    crossed = [one for one in VERSIONS if min(start.number, end.number) < one.number <= max(start.number, end.number)]
    return tuple(crossed if start.number < end.number else reversed(crossed))


def _over(document: Json, version: Version, way: Steps, *, down: bool) -> Change:
    """A document and the states in it over one border: outwards on the way down, inwards on the way up."""
    if down:
        document, inner = _inside(document, version, way, down=True)
        document, outer = version.older(document)
        document, gone = _taken_out(document, version)
        return document, (*inner, *_within(way, (*outer, *gone)))
    document, outer = version.newer(document)
    document, inner = _inside(document, version, way, down=False)
    return document, (*_within(way, outer), *inner)


def _inside(document: Json, version: Version, way: Steps, *, down: bool) -> Change:
    losses: tuple[Loss, ...] = ()
    if down and version is NESTED:
        return document, losses
    for inner, child in tuple(children(document)):
        moved, gone = _over(child, version, (*way, *inner), down=down)
        document = replaced(document, inner, moved)
        losses += gone
    return document, losses


def _taken_out(document: Json, version: Version) -> Change:
    """The document without the keys that came with `version`; one loss a kind of place, however many there are."""
    losses: list[Loss] = []
    for words in version.keys:
        document, said = _without(document, pattern(words))
        why = f"labels before {version.label} have no place for it"
        if len(said) > 1:
            losses.append(Loss(f"$.{words}", f"{len(said):,} places", why))
        losses += [lost(place, why) for place in said if len(said) == 1]
    return document, tuple(losses)


def _without(document: Json, steps: tuple[str, ...], way: Steps = ()) -> tuple[Json, list[Place]]:
    """The document without what a pattern fits, and those of the places that said something."""
    *down, last = steps
    if not down:
        place = Place((*way, last), document.get(last)) if isinstance(document, dict) else None
        if place is None or last not in document:
            return document, []
        return without(document, (last,)), [place] if _told(place.value) else []
    return _without_below(document, steps, way)


def _without_below(document: Json, steps: tuple[str, ...], way: Steps) -> tuple[Json, list[Place]]:
    step, rest = steps[0], steps[1:]
    said: list[Place] = []
    if step == "[]" and isinstance(document, list):
        pairs = [_without(below, rest, (*way, index)) for index, below in enumerate(document)]
        return [below for below, _ in pairs], [place for _, places in pairs for place in places]
    if not isinstance(document, dict) or step == "[]":
        return document, said
    changed = dict(document)
    for key in tuple(document) if step == "*" else (step,):
        if key in document:
            changed[key], places = _without(document[key], rest, (*way, key))
            said += places
    return changed, said


def _told(value: Json) -> bool:
    bare = isinstance(value, dict) and value.get("kind") == "bare"
    return says(value) and not bare and value not in PLAIN


def _within(way: Steps, losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Losses of a state inside another, with their whole paths."""
    if not way:
        return losses
    return tuple(Loss(path(way) + loss.path.removeprefix("$"), loss.what, loss.why) for loss in losses)


def _labelled(document: Json, label: str) -> Json:
    for inner, child in tuple(children(document)):
        document = replaced(document, inner, _labelled(child, label))
    return {**document, LABEL: label}
