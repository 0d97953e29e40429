"""Convert a RunState to another label and report the losses.

A release reads its own label and older ones. The document crosses one version after the other; keys that the target
does not know are removed and returned as RelabelLoss. The label is changed last, also in nested states.
"""

from convo.errors import InvalidRunState, InvalidUsage
from convo.history.items import Json
from convo.runstate.document import PathMatch, PathSteps, format_path, parse_path_pattern, remove_path, replace_path
from convo.runstate.format import RelabelLoss, RelabelResult, Version, has_content, iter_nested_states, make_loss
from convo.runstate.reader import SCHEMA_VERSION_KEY, run_state_from_json
from convo.runstate.state import RunState
from convo.runstate.versions import LABELS, NESTED_STATE_SINCE, VERSION_BY_LABEL, VERSIONS

DEFAULT_VALUES = ({"type": "function"}, {"type": "next_step_run_again"})
"""Values that readers assume for a missing member, so their removal is no loss."""


def relabel_state(state: RunState, label: str) -> tuple[RunState, tuple[RelabelLoss, ...]]:
    """Return `state` under another label, and the losses.

    Raises InvalidUsage for a label that no release wrote, and if the label cannot express a pending call, which readers
    would then lose.
    """
    if label not in VERSION_BY_LABEL:
        raise InvalidUsage(f"no release wrote the label {label[:20]!r}", hint=f"use one of {', '.join(LABELS)}")
    target, document = VERSION_BY_LABEL[label], state.document
    losses: list[RelabelLoss] = []
    for version in _list_crossed_versions(state.version, target):
        down = target.number < state.version.number
        document, gone = _cross_version(document, version, (), down=down)
        losses += gone
    try:
        return run_state_from_json(_set_label(document, label)), tuple(losses)
    except InvalidRunState as wrong:
        raise InvalidUsage(
            f"the pending calls of this {state.label} state cannot be written as {label}: {wrong.message}",
            hint="choose a label closer to {state.label}",
        ) from wrong


def _list_crossed_versions(start: Version, end: Version) -> tuple[Version, ...]:
    """Return the versions between two labels, in the order in which they are crossed."""
    crossed = [one for one in VERSIONS if min(start.number, end.number) < one.number <= max(start.number, end.number)]
    return tuple(crossed if start.number < end.number else reversed(crossed))


def _cross_version(document: Json, version: Version, way: PathSteps, *, down: bool) -> RelabelResult:
    """Move a document and its nested states across one version: nested states first if `down`, else last."""
    if down:
        document, inner = _cross_version_nested(document, version, way, down=True)
        document, outer = version.to_older(document)
        document, gone = _remove_version_keys(document, version)
        return document, (*inner, *_prefix_losses(way, (*outer, *gone)))
    document, outer = version.from_older(document)
    document, inner = _cross_version_nested(document, version, way, down=False)
    return document, (*_prefix_losses(way, outer), *inner)


def _cross_version_nested(document: Json, version: Version, way: PathSteps, *, down: bool) -> RelabelResult:
    losses: tuple[RelabelLoss, ...] = ()
    if down and version is NESTED_STATE_SINCE:
        return document, losses
    for inner, child in tuple(iter_nested_states(document)):
        moved, gone = _cross_version(child, version, (*way, *inner), down=down)
        document = replace_path(document, inner, moved)
        losses += gone
    return document, losses


def _remove_version_keys(document: Json, version: Version) -> RelabelResult:
    """Remove the keys that came with `version`; return one loss for each pattern of keys."""
    losses: list[RelabelLoss] = []
    for words in version.keys:
        document, said = _remove_matches(document, parse_path_pattern(words))
        why = f"labels before {version.label} cannot store it"
        if len(said) > 1:
            losses.append(RelabelLoss(f"$.{words}", f"{len(said):,} places", why))
        losses += [make_loss(place, why) for place in said if len(said) == 1]
    return document, tuple(losses)


def _remove_matches(document: Json, steps: tuple[str, ...], way: PathSteps = ()) -> tuple[Json, list[PathMatch]]:
    """Remove the members that match a pattern; return those that are worth reporting."""
    *down, last = steps
    if not down:
        place = PathMatch((*way, last), document.get(last)) if isinstance(document, dict) else None
        if place is None or last not in document:
            return document, []
        return remove_path(document, (last,)), [place] if _is_reportable(place.value) else []
    return _remove_matches_below(document, steps, way)


def _remove_matches_below(document: Json, steps: tuple[str, ...], way: PathSteps) -> tuple[Json, list[PathMatch]]:
    step, rest = steps[0], steps[1:]
    said: list[PathMatch] = []
    if step == "[]" and isinstance(document, list):
        pairs = [_remove_matches(below, rest, (*way, index)) for index, below in enumerate(document)]
        return [below for below, _ in pairs], [place for _, places in pairs for place in places]
    if not isinstance(document, dict) or step == "[]":
        return document, said
    changed = dict(document)
    for key in tuple(document) if step == "*" else (step,):
        if key in document:
            changed[key], places = _remove_matches(document[key], rest, (*way, key))
            said += places
    return changed, said


def _is_reportable(value: Json) -> bool:
    bare = isinstance(value, dict) and value.get("kind") == "bare"
    return has_content(value) and not bare and value not in DEFAULT_VALUES


def _prefix_losses(way: PathSteps, losses: tuple[RelabelLoss, ...]) -> tuple[RelabelLoss, ...]:
    """Return the losses of a nested state with their paths in the outer state."""
    if not way:
        return losses
    return tuple(RelabelLoss(format_path(way) + loss.path.removeprefix("$"), loss.what, loss.why) for loss in losses)


def _set_label(document: Json, label: str) -> Json:
    for inner, child in tuple(iter_nested_states(document)):
        document = replace_path(document, inner, _set_label(child, label))
    return {**document, SCHEMA_VERSION_KEY: label}
