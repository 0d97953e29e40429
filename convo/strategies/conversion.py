"""Transfer rules: which items another owner can receive, and the reason for each loss.

    left out    not transferred
    changed     transferred in another form
    not sent    kept in the record, and no longer sent to a model
    kept        transferred unchanged; the new owner may reject it

Every loss has a stable code; nothing is left out silently. Unconfirmed items are converted by the turn that sends them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple
from urllib.parse import unquote

from convo.history.call_ids import unique_call_ids
from convo.history.items import (
    CONVO_SEAL_PREFIX,
    ENCRYPTED_FIELD,
    PROVIDER_SEAL_PREFIX,
    Item,
    Json,
    is_client_call,
    is_client_output,
    item_type,
    to_resendable,
    to_sendable,
)
from convo.history.pairing import call_index_by_output, pair_id
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.report import Count, Wire
from convo.strategies.strategy import STRATEGIES, StateStrategy, is_complete_answer

ITEM_REFERENCE = "item_reference"

NON_TOOL_TYPES = frozenset({"message", "reasoning", "compaction", ITEM_REFERENCE})
"""Item types that are neither calls of client tools nor traces of hosted tools."""


class LossEffect(StrEnum):
    """The effect of a loss, as listed in the module docstring."""

    LEFT_OUT = "left out"
    CHANGED = "changed"
    NOT_SENT = "not sent"
    KEPT = "kept"


class ItemOrigin(NamedTuple):
    """The endpoint and model that made an item; None where unknown. `model` is "provider/model"."""

    scope: Scope | None = None
    model: str | None = None


UNKNOWN_ORIGIN = ItemOrigin()
"""The origin of client input, and of items from an unknown source."""


@dataclass(frozen=True, slots=True)
class TransferItem:
    """One item of the history to transfer.

    is_confirmed:  the current owner has it
    """

    item: Item
    origin: ItemOrigin = UNKNOWN_ORIGIN
    is_confirmed: bool = True


@dataclass(frozen=True, slots=True)
class TransferTarget:
    """The new owner, and the model of its next turn."""

    strategy: Strategy
    scope: Scope
    model: str

    @property
    def owner(self) -> StateStrategy:
        """The decisions that depend on the new owner."""
        return STRATEGIES[self.strategy]

    @property
    def is_server_side(self) -> bool:
        """Whether the new owner stores the history itself."""
        return self.owner.is_server_side


class TransferLoss(NamedTuple):
    """One kind of loss.

    positions:  those of the items, from 1
    """

    code: str
    effect: LossEffect
    reason: Annotated[str, Wire("why")]
    positions: Annotated[tuple[Count, ...], Wire("items")]


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The result of a transfer.

    items:            in the form for the new owner
    confirmed_count:  how many of them the old owner had confirmed
    """

    items: tuple[Item, ...]
    confirmed_count: int
    losses: tuple[TransferLoss, ...]


def plan_transfer(items: Sequence[TransferItem], target: TransferTarget) -> TransferPlan:
    """Decide which of `items` are transferred to `target`, and in which form."""
    collector = LossCollector()
    converted = [
        _convert_item(entry, target, collector.recorder_at(position)) for position, entry in enumerate(items, 1)
    ]
    _drop_traces_without_reasoning(items, converted, collector)
    _check_call_pairs(converted, collector)
    kept = [(position, item) for position, item in enumerate(converted, 1) if item is not None]
    kept_items: Sequence[Item] = [item for _, item in kept]
    if target.is_server_side:
        kept_items = _make_call_ids_unique(kept, collector)
    return TransferPlan(
        tuple(kept_items), sum(items[position - 1].is_confirmed for position, _ in kept), collector.losses()
    )


RecordLoss = Callable[..., None]


class LossCollector:
    """Collects losses by code, effect and reason, in the order of their first positions."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, LossEffect, str], list[int]] = {}

    def recorder_at(self, position: int) -> RecordLoss:
        """Return a function that records a loss at `position`."""

        def record(code: str, effect: LossEffect, reason: str) -> None:
            self._positions.setdefault((code, effect, reason), []).append(position)

        return record

    def losses(self) -> tuple[TransferLoss, ...]:
        """Return the losses collected so far."""
        return tuple(TransferLoss(*key, tuple(positions)) for key, positions in self._positions.items())


def _convert_item(entry: TransferItem, target: TransferTarget, record: RecordLoss) -> Item | None:
    """Return one item in the form for `target`; None when it is left out."""
    for rule in TRANSFER_RULES:
        loss = rule(entry, target)
        if loss is None:
            continue
        code, effect, reason = loss
        record(code, effect, reason)
        if effect is LossEffect.LEFT_OUT:
            return None
    item: Item | None = _drop_uploaded_files(entry, target, record)
    if item is not None and target.is_server_side and "id" in item:
        item = _drop_id(item, record)
    if item is not None and target.owner.uses_conversation:
        return _convert_incomplete(item, entry, record)
    return item


RuleLoss = tuple[str, LossEffect, str] | None
TransferRule = Callable[[TransferItem, TransferTarget], RuleLoss]


def _check_plain_reasoning(entry: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(entry.item) != "reasoning" or entry.item.get(ENCRYPTED_FIELD):
        return None
    effect = LossEffect.LEFT_OUT if target.is_server_side else LossEffect.NOT_SENT
    return "reasoning_unsealed", effect, "reasoning without encrypted content exists only on its server"


def _check_encrypted(entry: TransferItem, target: TransferTarget) -> RuleLoss:
    if not isinstance(entry.item.get(ENCRYPTED_FIELD), str) or not entry.item[ENCRYPTED_FIELD]:
        return None
    origin = _find_sealer(entry)
    if origin.scope is None and origin.model is None:
        return _check_unknown_sealer(entry, target)
    if _can_decrypt(origin, target, item_type(entry.item)):
        return None
    origin_text = " at ".join(str(part) for part in (origin.model, origin.scope) if part)
    if item_type(entry.item) == "reasoning":
        return "reasoning_elsewhere", LossEffect.LEFT_OUT, f"reasoning that only {origin_text} can decrypt"
    return (
        "compaction_elsewhere",
        LossEffect.LEFT_OUT,
        f"a summary of the earlier history that only {origin_text} can decrypt",
    )


def _check_unknown_sealer(entry: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(entry.item) == "reasoning" and target.is_server_side:
        return "reasoning_unknown", LossEffect.LEFT_OUT, "encrypted reasoning of unknown origin"
    return "seal_unknown", LossEffect.KEPT, "encrypted content of unknown origin; other models and endpoints reject it"


def _check_hosted_tool_trace(entry: TransferItem, target: TransferTarget) -> RuleLoss:
    if not _is_hosted_tool_trace(entry.item) or entry.origin.scope in (None, target.scope):
        return None
    return "hosted_elsewhere", LossEffect.LEFT_OUT, f"the call of a hosted tool that {entry.origin.scope} ran"


def _is_hosted_tool_trace(item: Item) -> bool:
    """Return whether an item is the trace of a hosted tool: a search, an image, code that the server ran."""
    return not (item_type(item) in NON_TOOL_TYPES or is_client_call(item) or is_client_output(item))


def _check_reference(entry: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(entry.item) != ITEM_REFERENCE or entry.origin.scope == target.scope:
        return None
    return "reference_elsewhere", LossEffect.LEFT_OUT, "a reference to an item that another server stores"


TRANSFER_RULES: tuple[TransferRule, ...] = (
    _check_plain_reasoning,
    _check_encrypted,
    _check_hosted_tool_trace,
    _check_reference,
)


# -- forms ----------------------------------------------------------------------------------------


def _drop_uploaded_files(entry: TransferItem, target: TransferTarget, record: RecordLoss) -> Item | None:
    """Return the item without uploaded files that only its own server has; None when it has nothing else."""
    content = entry.item.get("content")
    if not isinstance(content, list) or entry.origin.scope in (None, target.scope):
        return entry.item
    remaining = [part for part in content if not _is_uploaded_file(part)]
    if len(remaining) == len(content):
        return entry.item
    reason = f"a file that was uploaded to {entry.origin.scope}"
    record("file_elsewhere", LossEffect.CHANGED if remaining else LossEffect.LEFT_OUT, reason)
    return {**entry.item, "content": remaining} if remaining else None


def _is_uploaded_file(part: Json) -> bool:
    return isinstance(part, dict) and isinstance(part.get("file_id"), str)


def _drop_id(item: Item, record: RecordLoss) -> Item:
    resendable = to_resendable(item)
    if resendable is None or resendable is item:
        return item
    record("item_ids", LossEffect.CHANGED, "the new owner assigns its own ids")
    return resendable


def _convert_incomplete(item: Item, entry: TransferItem, record: RecordLoss) -> Item | None:
    """Return a confirmed incomplete item in a form that a conversation accepts."""
    if not entry.is_confirmed or to_sendable(item) is item:
        return item
    sendable = to_sendable(item)
    reason = "incomplete, so only its text can be sent again" if sendable else "incomplete and without text"
    record("cut_off", LossEffect.CHANGED if sendable else LossEffect.LEFT_OUT, reason)
    return sendable


def _drop_traces_without_reasoning(
    entries: Sequence[TransferItem], converted: list[Item | None], collector: LossCollector
) -> None:
    """Leave out the traces of hosted tools after reasoning that is left out: a server accepts both or neither."""
    is_reasoning_lost = False
    for index, entry in enumerate(entries):
        if item_type(entry.item) == "reasoning":
            is_reasoning_lost = converted[index] is None
        elif not is_complete_answer(entry.item):
            is_reasoning_lost = False
        elif is_reasoning_lost and converted[index] is not None and _is_hosted_tool_trace(entry.item):
            reason = "the call of a hosted tool that needs the reasoning before it"
            collector.recorder_at(index + 1)("hosted_without_reasoning", LossEffect.LEFT_OUT, reason)
            converted[index] = None


def _check_call_pairs(converted: list[Item | None], collector: LossCollector) -> None:
    """Report calls without an output, and leave out outputs without a call."""
    positions = [position for position, item in enumerate(converted, 1) if item is not None]
    items = [item for item in converted if item is not None]
    call_indexes = call_index_by_output(items)
    with_output = set(call_indexes.values())
    for index, (position, item) in enumerate(zip(positions, items, strict=True)):
        if pair_id(item) is None:
            continue
        if is_client_output(item) and call_indexes[index] < 0:
            collector.recorder_at(position)(
                "orphan_output", LossEffect.LEFT_OUT, "an output whose call is not in this history"
            )
            converted[position - 1] = None
        elif is_client_call(item) and index not in with_output:
            collector.recorder_at(position)(
                "open_call", LossEffect.KEPT, "a call without an output: send the output first, or use convo repair"
            )


def _make_call_ids_unique(kept: Sequence[tuple[int, Item]], collector: LossCollector) -> Sequence[Item]:
    """Return the items as they are sent: the server stores these ids, and later outputs have to name them."""
    items = [item for _, item in kept]
    renamed = unique_call_ids(items)
    for (position, item), renamed_item in zip(kept, renamed, strict=True):
        if renamed_item is not item:
            collector.recorder_at(position)(
                "call_ids", LossEffect.CHANGED, "the id of a call that has another form, or that an earlier call has"
            )
    return renamed


# -- origin of encrypted content ------------------------------------------------------------------


def _find_sealer(entry: TransferItem) -> ItemOrigin:
    """Return the origin of encrypted content: the server it came from, otherwise the one named in the content."""
    seal = entry.item[ENCRYPTED_FIELD]
    if entry.origin.scope not in (None, EMBEDDED_SCOPE):
        return entry.origin
    if seal.startswith(PROVIDER_SEAL_PREFIX):
        return ItemOrigin(EMBEDDED_SCOPE, unquote(seal.split(":")[1]))
    return ItemOrigin(EMBEDDED_SCOPE) if seal.startswith(CONVO_SEAL_PREFIX) else entry.origin


def _can_decrypt(origin: ItemOrigin, target: TransferTarget, kind: str) -> bool:
    if origin.scope not in (None, target.scope):
        return False
    return kind != "reasoning" or origin.model in (None, target.model)
