"""Lint rules for reasoning, encrypted content and compaction items.

Reasoning needs the item that follows it, a `summary` list, and the server that made it. Encrypted content is valid only
for the model, organisation and base URL that made it; the link says which, or the prefix that convo writes:

    convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB...      a provider's, passed on by a gateway
    convoseal1:gAAAAAB...                            a gateway's own, valid for all its models
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from convo.history.items import (
    COMPACTION_TRIGGER,
    CONVO_SEAL_PREFIX,
    ENCRYPTED_FIELD,
    OPTIONAL_ID_TYPES,
    PROVIDER_SEAL_PREFIX,
    Item,
    is_assistant_message,
    is_model_item,
    item_type,
)
from convo.history.pairing import pair_id
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.lint.model import (
    KEPT,
    ItemEdits,
    LintIssue,
    LintView,
    RepairChange,
    apply_edits,
    item_issues,
    without_id,
)


def check_reasoning_without_follower(view: LintView) -> Iterator[LintIssue]:
    """Report each reasoning item that no item of the model follows. Consecutive ones share one follower.

    OpenAI also refuses encrypted reasoning with an id before a message without one; before a call it accepts it.
    """
    last_index = len(view.items)
    follower: Item | None = None
    issues = []
    for index, item in reversed(view.items_of_type("reasoning")):
        if index + 1 != last_index:
            follower = view.items[index + 1] if index + 1 < len(view.items) else None
        last_index = index
        if not view.sent_flags[index]:
            continue
        if follower is None or not is_model_item(follower):
            issues.append(LintIssue(f"{_reasoning_label(item)} is not followed by an item of the model", index))
        elif (
            (view.is_sent_verbatim or view.is_server_side)  # otherwise neither id is sent
            and item.get("id")
            and item.get(ENCRYPTED_FIELD)
            and is_assistant_message(follower)
            and not follower.get("id")
        ):
            message = f"{_reasoning_label(item)} has an id, but the message after it has none"
            issues.append(LintIssue(message, index, ".id", is_warning=True))
    yield from reversed(issues)


def fix_reasoning_without_follower(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop reasoning that nothing follows; remove the id of reasoning before a message without one."""
    with_id = [index for index, issue in item_issues(issues) if issue.is_warning]
    reason = "the message after it has no id, so its own was removed"
    changes = [RepairChange(WITHOUT_FOLLOWER, "replaced", reason, view.source_indexes[index]) for index in with_id]
    view = apply_edits(view, ItemEdits({index: without_id(view.items[index]) for index in with_id}))
    view, dropped = drop_reasoning(WITHOUT_FOLLOWER, view, [issue for issue in issues if not issue.is_warning])
    return view, changes + dropped


WITHOUT_FOLLOWER, ID_REPLAYED = "reasoning-without-follower", "reasoning-id-replayed"


def check_reasoning_id_replayed(view: LintView) -> Iterator[LintIssue]:
    """Report each reasoning item that is only an id, sent to a server that did not store it.

    An id with encrypted content is valid anywhere.
    """
    for index, item in view.items_of_type("reasoning", "item_reference"):
        if not view.sent_flags[index] or not str(item.get("id")).startswith("rs_") or _has_content(item):
            continue
        link = view.origin_links[index]
        if link is None:
            if not view.has_unread_items:
                yield LintIssue(
                    f"{_reasoning_label(item)} is only an id, and its server may not have stored it",
                    index,
                    ".id",
                    is_warning=True,
                )
        elif link.scope != EMBEDDED_SCOPE and not link.is_stored:
            yield LintIssue(
                f"{_reasoning_label(item)} is only an id, and {link.id} was sent with store=false", index, ".id"
            )
        elif view.scope and link.scope != view.scope:
            yield LintIssue(
                f"{_reasoning_label(item)} is only an id, stored at {link.scope} and not at {view.scope}", index, ".id"
            )


def fix_reasoning_id_replayed(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop these items, except a summary of unknown origin: xAI reads it, and a server that stored it accepts it."""
    certain = [
        issue for index, issue in item_issues(issues) if not (issue.is_warning and view.items[index].get("summary"))
    ]
    return drop_reasoning(ID_REPLAYED, view, certain)


def check_changed_prefix(view: LintView) -> Iterator[LintIssue]:
    """Report reasoning that its model does not receive, or may not, since what is before it has changed."""
    for index, _ in view.items_of_type("reasoning"):
        if found := view.changed_prefixes.get(view.source_indexes[index]):
            message, link_id = found
            yield LintIssue(message, index, link_id=link_id)


def fix_changed_prefix(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Keep it: the provider removes it itself, and to remove reasoning changes the prefix of later reasoning."""
    changes = [
        RepairChange("changed-prefix", KEPT, issue.message, view.source_indexes[index])
        for index, issue in item_issues(issues)
    ]
    return replace(view, changed_prefixes={}), changes


def check_missing_summary(view: LintView) -> Iterator[LintIssue]:
    """Report each reasoning item without the required `summary` list."""
    for index, item in view.items_of_type("reasoning"):
        if view.sent_flags[index] and not isinstance(item.get("summary"), list):
            yield LintIssue(f"{_reasoning_label(item)} has no summary list", index, ".summary")


def check_missing_phase(view: LintView) -> Iterator[LintIssue]:
    """Report each assistant message without a phase, if others of the same model have one."""
    messages = [(index, item) for index, item in view.items_of_type("message") if item.get("role") == "assistant"]
    models_with_phase = {_origin_model(view, index) for index, item in messages if item.get("phase") is not None}
    for index, item in messages:
        has_no_phase = item.get("phase") is None and item.get("status") in (None, "completed")
        if (
            models_with_phase
            and has_no_phase
            and view.sent_flags[index]
            and (_origin_model(view, index) in models_with_phase or _origin_model(view, index) is None)
        ):
            yield LintIssue("this assistant message has no phase, although others have one", index, ".phase")


def drop_reasoning(code: str, view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop these reasoning items and keep the items that follow them."""
    changes = [
        RepairChange(code, "dropped", issue.message, view.source_indexes[index]) for index, issue in item_issues(issues)
    ]
    return without_reasoning(view, [index for index, _ in item_issues(issues)]), changes


def fix_missing_summary(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    replacements = {index: {**view.items[index], "summary": []} for index, _ in item_issues(issues)}
    reason = "an empty summary was added"
    return apply_edits(view, ItemEdits(replacements)), [
        RepairChange("missing-summary", "replaced", reason, view.source_indexes[index]) for index in replacements
    ]


def fix_missing_phase(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Set phase "commentary" if an item of the model follows the message, else "final_answer"."""
    replacements: dict[int, Item] = {}
    changes = []
    for index, _ in item_issues(issues):
        phase = "commentary" if index + 1 < len(view.items) and is_model_item(view.items[index + 1]) else "final_answer"
        replacements[index] = {**view.items[index], "phase": phase}
        reason = f"its position in the turn implies {phase}"
        changes.append(RepairChange("missing-phase", "replaced", reason, view.source_indexes[index]))
    return apply_edits(view, ItemEdits(replacements)), changes


def without_reasoning(view: LintView, indexes: Sequence[int]) -> LintView:
    """Drop these items, and drop the ids of the items after them: with its id an item requires its reasoning."""
    replacements: dict[int, Item | None] = dict.fromkeys(indexes)
    for index in indexes:
        follower = index + 1
        while (
            item_type(view.items[index]) == "reasoning"
            and follower < len(view.items)
            and is_model_item(view.items[follower])
        ):
            if follower in replacements or follower < view.server_count:
                break
            replacements[follower] = _without_optional_id(view.items[follower])
            follower += 1
    return apply_edits(view, ItemEdits(replacements))


def _without_optional_id(item: Item) -> Item:
    has_optional_id = "id" in item and item_type(item) in OPTIONAL_ID_TYPES and item_type(item) != "reasoning"
    return without_id(item) if has_optional_id else item


def _has_content(item: Item) -> bool:
    """Whether a reasoning item has encrypted content or text."""
    return bool(item.get(ENCRYPTED_FIELD) or item.get("content"))


def _origin_model(view: LintView, index: int) -> str | None:
    link = view.origin_links[index]
    return link.model if link else None


def _reasoning_label(item: Item) -> str:
    return (
        f"{item_type(item).replace('_', ' ')} {item['id']}" if isinstance(item.get("id"), str) else "a reasoning item"
    )


SEALED_ELSEWHERE = "sealed-elsewhere"

SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
"""The date suffix of a snapshot's name, which names the same model."""


def check_sealed_elsewhere(view: LintView) -> Iterator[LintIssue]:
    """Report encrypted content of another model, organisation or base URL than the next turn's, if known."""
    for index, item in _sealed_items(view):
        reason = _describe_foreign_sealer(str(item[ENCRYPTED_FIELD]), view.origin_links[index], view)
        if reason:
            yield LintIssue(f"the {item_type(item)} was encrypted by {reason}", index, f".{ENCRYPTED_FIELD}")


def explain_unknown_sealers(view: LintView) -> str:
    """Return a sentence on why some encrypted items could not be checked; "" if all could."""
    unknown = sum(
        not _is_sealer_known(str(item[ENCRYPTED_FIELD]), view.origin_links[index], view)
        for index, item in _sealed_items(view)
    )
    if not unknown:
        return ""
    subject, origin = ("item", "its origin") if unknown == 1 else ("items", "their origin")
    return f"{unknown:,} encrypted {subject} not checked: {origin} or the next model is unknown"


def fix_sealed_elsewhere(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop the reasoning items and keep the items that follow them.

    A compaction item is kept: it is the only copy of its history.
    """
    return drop_reasoning(
        SEALED_ELSEWHERE,
        view,
        [issue for index, issue in item_issues(issues) if item_type(view.items[index]) == "reasoning"],
    )


def _sealed_items(view: LintView) -> Iterator[tuple[int, Item]]:
    """Yield the encrypted items that the next request sends."""
    for index, item in enumerate(view.items):
        if isinstance(item.get(ENCRYPTED_FIELD), str) and item[ENCRYPTED_FIELD] and view.sent_flags[index]:
            yield index, item


def _is_sealer_known(seal: str, origin: Link | None, view: LintView) -> bool:
    """Whether both the issuer of encrypted content and the target of the next turn are known."""
    if view.model is None or view.scope is None:
        return False
    return origin is not None or seal.startswith((PROVIDER_SEAL_PREFIX, CONVO_SEAL_PREFIX))


def _describe_foreign_sealer(seal: str, origin: Link | None, view: LintView) -> str:
    """Name the issuer of encrypted content if it is not the target of the next turn; "" if it is, or is unknown."""
    if view.model is None or view.scope is None:
        return ""
    if seal.startswith(CONVO_SEAL_PREFIX):
        sealer_scope = origin.scope if origin else EMBEDDED_SCOPE
        return (
            ""
            if sealer_scope == view.scope
            else f"the gateway at {sealer_scope}, but the next request goes to {view.scope}"
        )
    if origin and origin.scope != view.scope:
        return f"{origin.scope}, but the next request goes to {view.scope}"
    sealer_model = origin.model if origin else view.model
    if seal.startswith(PROVIDER_SEAL_PREFIX):
        sealer_model = unquote(seal.split(":")[1])
    return (
        ""
        if _without_snapshot_date(sealer_model) == _without_snapshot_date(view.model)
        else f"{sealer_model}, but the next request goes to {view.model}"
    )


def _without_snapshot_date(name: str) -> str:
    return SNAPSHOT_DATE.sub("", name)


def check_misplaced_compaction(view: LintView) -> Iterator[LintIssue]:
    """Report a compaction item inside a pair or on top of a server's history, and a trigger that is not last."""
    for index, _ in view.items_of_type(COMPACTION_TRIGGER):
        if index + 1 < len(view.items):
            yield LintIssue("a compaction_trigger must be the last item of a request", index)
    for index, _ in view.items_of_type("compaction"):
        if index >= view.server_count and (view.server_count or view.has_unread_items):
            yield LintIssue(
                "the server already has the history that this item replaces, so the model would read it twice", index
            )
    yield from _check_compaction_in_pair(view, [index for index, _ in view.items_of_type("compaction")])


def _check_compaction_in_pair(view: LintView, compaction_indexes: Sequence[int]) -> Iterator[LintIssue]:
    """Report the last compaction item between a call and its output."""
    for index, call_index in view.call_indexes.items() if compaction_indexes else ():
        call_id, count = pair_id(view.items[index]), bisect_left(compaction_indexes, index)
        if call_id is not None and call_index >= 0 and count and call_index < compaction_indexes[count - 1]:
            message = f"the compaction item is between call {call_id} and its output"
            yield LintIssue(message, compaction_indexes[count - 1], related_indexes=(call_index, index))


def fix_misplaced_compaction(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop both halves of a pair around a compaction item; for other issues, drop the item itself."""
    dropped: dict[int, None] = {}
    changes = []
    for item_index, issue in item_issues(issues):
        for index in issue.related_indexes or (item_index,):
            if index not in dropped:
                dropped[index] = None
                changes.append(
                    RepairChange("misplaced-compaction", "dropped", _drop_reason(issue), view.source_indexes[index])
                )
    return apply_edits(view, ItemEdits(dropped)), changes


def _drop_reason(issue: LintIssue) -> str:
    return "a compaction item is between the call and its output" if issue.related_indexes else issue.message
