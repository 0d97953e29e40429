"""Lint rules for chains and instructions: expired or unstored anchors.

An endpoint keeps a response for at least 30 days, and with `store=false` not at all. A broken chain is repaired by
continuing from the last usable response; without one the local store becomes the owner. Instructions are not inherited
from a previous response.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convo.history.records import ANSWERED_STATUSES, EMBEDDED_SCOPE, Link
from convo.lint.model import (
    LintIssue,
    LintView,
    OutputSpan,
    RepairChange,
    item_issues,
    with_client_owner,
)

DAY_S = 86_400.0
RESPONSE_LIFETIME_S = 30 * DAY_S
"""Seconds for which the API keeps a response at least."""

EXPIRY_NOTICE_S = 3 * DAY_S


def check_store_false_in_chain(view: LintView) -> Iterator[LintIssue]:
    """Report each unstored response (`store=false`) in a server-side chain."""
    if not view.is_chain:
        return
    for span in _server_spans(view):
        if not span.link.is_stored:
            message = f"{span.link.id} was sent with store=false, so no request can continue from it"
            yield LintIssue(message, span.end - 1, link_id=span.link.id)


def check_anchor_expired(view: LintView) -> Iterator[LintIssue]:
    """Report an anchor that may have expired: it is older than 30 days."""
    age_s = _age_s(view.anchor, view)
    if age_s is not None and age_s >= RESPONSE_LIFETIME_S and view.anchor:
        message = f"{view.anchor.id} is {age_s / DAY_S:.0f} days old; its endpoint may delete it after 30"
        yield LintIssue(message, view.server_count - 1 if view.server_count else None, link_id=view.anchor.id)


def check_anchor_expires_soon(view: LintView) -> Iterator[LintIssue]:
    """Report an anchor that may expire within three days."""
    age_s = _age_s(view.anchor, view)
    if age_s is not None and RESPONSE_LIFETIME_S - EXPIRY_NOTICE_S <= age_s < RESPONSE_LIFETIME_S and view.anchor:
        message = f"{view.anchor.id} may be deleted in {(RESPONSE_LIFETIME_S - age_s) / DAY_S:.1f} days"
        yield LintIssue(message, view.server_count - 1 if view.server_count else None, link_id=view.anchor.id)


def check_instructions_absent(view: LintView) -> Iterator[LintIssue]:
    """Report each turn that lost the instructions of the turn before it.

    A session record with instructions sends them again, so nothing is reported then.
    """
    if view.instructions is not None:
        return
    earlier_id = ""
    for span in view.output_spans:
        instructions = span.link.parameters.get("instructions")
        if not instructions and earlier_id:
            message = f"{span.link.id} has no instructions; {earlier_id} has some, but responses do not inherit them"
            yield LintIssue(message, span.end - 1, link_id=span.link.id)
        earlier_id = span.link.id if instructions else earlier_id


def explain_unknown_age(view: LintView) -> str:
    """Return a sentence on why the anchor's age could not be checked; "" if it could."""
    if view.is_chain and view.anchor is None and (view.server_count or view.has_unread_items):
        return "age of the previous response not checked: its creation time is unknown"
    return ""


def fix_store_false_in_chain(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Return to the last usable response before the first unstored one; see `continue_before`."""
    index, first = item_issues(issues)[0]
    return continue_before(view, index, "store-false-in-chain", first.message)


def continue_before(view: LintView, index: int, code: str, reason: str) -> tuple[LintView, list[RepairChange]]:
    """Continue from the last usable response that ends at or before item `index`.

    Without such a response the local store becomes the owner.
    """
    if view.is_chain:
        usable = [span for span in _server_spans(view) if span.end <= index and _can_continue(span.link, view)]
        if usable:
            return _continue_from(view, usable[-1], code, reason)
    return _own_locally(view, code, reason)


def move_to_local_store(code: str, view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Make the local store the owner before the endpoint deletes the response."""
    return _own_locally(view, code, issues[0].message)


def fix_instructions_absent(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Set the last known instructions on the session record, which sends them with every later turn."""
    instructions = [
        span.link.parameters["instructions"] for span in view.output_spans if span.link.parameters.get("instructions")
    ]
    change = RepairChange(
        "instructions-absent", "instructions", "every turn sends the last known instructions from now on"
    )
    return replace(view, instructions=str(instructions[-1])), [change]


def _continue_from(view: LintView, span: OutputSpan, code: str, reason: str) -> tuple[LintView, list[RepairChange]]:
    indexes = (*range(span.end), *range(view.server_count, len(view.items)))
    dropped = [
        RepairChange(code, "dropped", f"it comes after {span.link.id}", view.source_indexes[index])
        for index in range(span.end, view.server_count)
    ]
    continued = replace(
        view,
        items=tuple(view.items[index] for index in indexes),
        source_indexes=tuple(view.source_indexes[index] for index in indexes),
        server_count=span.end,
        handle=span.link.id,
        anchor=span.link,
        output_spans=tuple(other for other in view.output_spans if other.end <= span.end),
    )
    return continued, [RepairChange(code, "anchor", f"{reason}: the chain continues from {span.link.id}"), *dropped]


def _own_locally(view: LintView, code: str, reason: str) -> tuple[LintView, list[RepairChange]]:
    return with_client_owner(view), [RepairChange(code, "owner", f"{reason}: the local store owns the history now")]


def _server_spans(view: LintView) -> list[OutputSpan]:
    """Return the responses that the server owns, oldest first."""
    return [span for span in view.output_spans if span.end <= view.server_count]


def _can_continue(link: Link, view: LintView) -> bool:
    age_s = _age_s(link, view)
    is_recent = age_s is None or age_s < RESPONSE_LIFETIME_S - EXPIRY_NOTICE_S
    return link.is_stored and link.status in ANSWERED_STATUSES and link.id.startswith("resp_") and is_recent


def _age_s(link: Link | None, view: LintView) -> float | None:
    """Return the age of a response that its endpoint may delete, in seconds.

    None for a response in the local store, or if the age is unknown.
    """
    if link is None or not view.is_chain or link.scope == EMBEDDED_SCOPE or view.now is None:
        return None
    return view.now - link.created_at
