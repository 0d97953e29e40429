"""Convert a RunState to another label and report the losses.

A release reads its own label and older ones. The document crosses one version after the other; keys that the target
does not know are removed and returned as RelabelLoss. The label is changed last, also in nested states.
"""

from convo.errors import InvalidRunState, InvalidUsage
from convo.history.items import Json
from convo.runstate.document import PathMatch, PathSteps, format_path, parse_path_pattern, remove_path, replace_path
from convo.runstate.format import RelabelLoss, RelabelResult, Version, has_content, iter_nested_states, make_loss
from convo.runstate.reader import SCHEMA_VERSION_KEY, run_state_from_json
from convo.runstate.run_state import RunState
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
        is_downgrade = target.number < state.version.number
        document, new_losses = _cross_version(document, version, (), is_downgrade=is_downgrade)
        losses += new_losses
    try:
        return run_state_from_json(_set_label(document, label)), tuple(losses)
    except InvalidRunState as error:
        raise InvalidUsage(
            f"the pending calls of this {state.label} state cannot be written as {label}: {error.message}",
            hint=f"choose a label closer to {state.label}",
        ) from error


def _list_crossed_versions(start: Version, end: Version) -> tuple[Version, ...]:
    """Return the versions between two labels, in the order in which they are crossed."""
    crossed = [
        version
        for version in VERSIONS
        if min(start.number, end.number) < version.number <= max(start.number, end.number)
    ]
    return tuple(crossed if start.number < end.number else reversed(crossed))


def _cross_version(document: Json, version: Version, prefix: PathSteps, *, is_downgrade: bool) -> RelabelResult:
    """Move a document and its nested states across one version: nested states first if `is_downgrade`, else last."""
    if is_downgrade:
        document, inner_losses = _cross_version_nested(document, version, prefix, is_downgrade=True)
        document, outer_losses = version.to_older(document)
        document, removed = _remove_version_keys(document, version)
        return document, (*inner_losses, *_prefix_losses(prefix, (*outer_losses, *removed)))
    document, outer_losses = version.from_older(document)
    document, inner_losses = _cross_version_nested(document, version, prefix, is_downgrade=False)
    return document, (*_prefix_losses(prefix, outer_losses), *inner_losses)


def _cross_version_nested(document: Json, version: Version, prefix: PathSteps, *, is_downgrade: bool) -> RelabelResult:
    losses: tuple[RelabelLoss, ...] = ()
    if is_downgrade and version is NESTED_STATE_SINCE:
        return document, losses
    for steps, child in tuple(iter_nested_states(document)):
        moved, new_losses = _cross_version(child, version, (*prefix, *steps), is_downgrade=is_downgrade)
        document = replace_path(document, steps, moved)
        losses += new_losses
    return document, losses


def _remove_version_keys(document: Json, version: Version) -> RelabelResult:
    """Remove the keys that came with `version`; return one loss for each pattern of keys."""
    losses: list[RelabelLoss] = []
    for pattern in version.keys:
        document, matches = _remove_matches(document, parse_path_pattern(pattern))
        reason = f"labels before {version.label} cannot store it"
        if len(matches) > 1:
            losses.append(RelabelLoss(f"$.{pattern}", f"{len(matches):,} places", reason))
        losses += [make_loss(match, reason) for match in matches if len(matches) == 1]
    return document, tuple(losses)


def _remove_matches(document: Json, steps: tuple[str, ...], prefix: PathSteps = ()) -> tuple[Json, list[PathMatch]]:
    """Remove the members that match a pattern; return those that are worth reporting."""
    *parent_steps, last = steps
    if not parent_steps:
        match = PathMatch((*prefix, last), document.get(last)) if isinstance(document, dict) else None
        if match is None or last not in document:
            return document, []
        return remove_path(document, (last,)), [match] if _is_reportable(match.value) else []
    return _remove_matches_below(document, steps, prefix)


def _remove_matches_below(document: Json, steps: tuple[str, ...], prefix: PathSteps) -> tuple[Json, list[PathMatch]]:
    step, rest = steps[0], steps[1:]
    matches: list[PathMatch] = []
    if step == "[]" and isinstance(document, list):
        pairs = [_remove_matches(child, rest, (*prefix, index)) for index, child in enumerate(document)]
        return [child for child, _ in pairs], [match for _, child_matches in pairs for match in child_matches]
    if not isinstance(document, dict) or step == "[]":
        return document, matches
    changed = dict(document)
    for key in tuple(document) if step == "*" else (step,):
        if key in document:
            changed[key], child_matches = _remove_matches(document[key], rest, (*prefix, key))
            matches += child_matches
    return changed, matches


def _is_reportable(value: Json) -> bool:
    is_bare = isinstance(value, dict) and value.get("kind") == "bare"
    return has_content(value) and not is_bare and value not in DEFAULT_VALUES


def _prefix_losses(prefix: PathSteps, losses: tuple[RelabelLoss, ...]) -> tuple[RelabelLoss, ...]:
    """Return the losses of a nested state with their paths in the outer state."""
    if not prefix:
        return losses
    return tuple(
        RelabelLoss(format_path(prefix) + loss.path.removeprefix("$"), loss.description, loss.reason) for loss in losses
    )


def _set_label(document: Json, label: str) -> Json:
    for steps, child in tuple(iter_nested_states(document)):
        document = replace_path(document, steps, _set_label(child, label))
    return {**document, SCHEMA_VERSION_KEY: label}
