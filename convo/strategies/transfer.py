"""Transfer rules: which items another owner can receive, and the reason for each loss.

    left out    not transferred
    changed     transferred in another form
    not sent    kept in the record, and no longer sent to a model
    kept        transferred unchanged; the new owner may reject it

Every loss has a stable code; nothing is left out silently. Unconfirmed items are converted by the turn that sends them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote

from convo.history.items import (
    CONVO_SEAL_PREFIX,
    ENCRYPTED_FIELD,
    PROVIDER_SEAL_PREFIX,
    Item,
    Json,
    get_call_id,
    is_client_call,
    is_client_output,
    item_type,
    to_resendable,
    to_sendable,
)
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.strategies.state import STRATEGIES, StateStrategy, is_complete_answer

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
    """One kind of loss; `positions` are those of the items, from 1."""

    code: str
    effect: LossEffect
    reason: str
    positions: tuple[int, ...]


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
    report = LossCollector()
    formed = [_convert_item(one, target, report.recorder_at(place)) for place, one in enumerate(items, 1)]
    _drop_traces_without_reasoning(items, formed, report)
    _check_call_pairs(formed, report)
    kept = [(one, item) for one, item in zip(items, formed, strict=True) if item is not None]
    return TransferPlan(tuple(item for _, item in kept), sum(one.is_confirmed for one, _ in kept), report.losses())


RecordLoss = Callable[..., None]


class LossCollector:
    """Collects losses by code, effect and reason, in the order of their first positions."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, LossEffect, str], list[int]] = {}

    def recorder_at(self, place: int) -> RecordLoss:
        """Return a function that records a loss at `place`."""

        def tell(code: str, effect: LossEffect, why: str) -> None:
            self._positions.setdefault((code, effect, why), []).append(place)

        return tell

    def losses(self) -> tuple[TransferLoss, ...]:
        """Return the losses collected so far."""
        return tuple(TransferLoss(*named, tuple(places)) for named, places in self._positions.items())


def _convert_item(one: TransferItem, target: TransferTarget, tell: RecordLoss) -> Item | None:
    """Return one item in the form for `target`; None when it is left out."""
    for rule in TRANSFER_RULES:
        found = rule(one, target)
        if found is None:
            continue
        code, effect, why = found
        tell(code, effect, why)
        if effect is LossEffect.LEFT_OUT:
            return None
    item: Item | None = _drop_uploaded_files(one, target, tell)
    if item is not None and target.is_server_side and "id" in item:
        item = _drop_id(item, tell)
    if item is not None and target.owner.uses_conversation:
        return _convert_incomplete(item, one, tell)
    return item


RuleLoss = tuple[str, LossEffect, str] | None
TransferRule = Callable[[TransferItem, TransferTarget], RuleLoss]


def _check_plain_reasoning(one: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(one.item) != "reasoning" or one.item.get(ENCRYPTED_FIELD):
        return None
    effect = LossEffect.LEFT_OUT if target.is_server_side else LossEffect.NOT_SENT
    return "reasoning_unsealed", effect, "reasoning without encrypted content exists only on its server"


def _check_encrypted(one: TransferItem, target: TransferTarget) -> RuleLoss:
    if not isinstance(one.item.get(ENCRYPTED_FIELD), str) or not one.item[ENCRYPTED_FIELD]:
        return None
    maker = _find_sealer(one)
    if maker.scope is None and maker.model is None:
        return _check_unknown_sealer(one, target)
    if _can_decrypt(maker, target, item_type(one.item)):
        return None
    by = " at ".join(str(part) for part in (maker.model, maker.scope) if part)
    if item_type(one.item) == "reasoning":
        return "reasoning_elsewhere", LossEffect.LEFT_OUT, f"reasoning that only {by} can decrypt"
    return "compaction_elsewhere", LossEffect.LEFT_OUT, f"a summary of the earlier history that only {by} can decrypt"


def _check_unknown_sealer(one: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(one.item) == "reasoning" and target.is_server_side:
        return "reasoning_unknown", LossEffect.LEFT_OUT, "encrypted reasoning of unknown origin"
    return "seal_unknown", LossEffect.KEPT, "encrypted content of unknown origin; other models and endpoints reject it"


def _check_hosted_tool_trace(one: TransferItem, target: TransferTarget) -> RuleLoss:
    if not _is_hosted_tool_trace(one.item) or one.origin.scope in (None, target.scope):
        return None
    return "hosted_elsewhere", LossEffect.LEFT_OUT, f"the call of a hosted tool that {one.origin.scope} ran"


def _is_hosted_tool_trace(item: Item) -> bool:
    """Return whether an item is the trace of a hosted tool: a search, an image, code that the server ran."""
    return not (item_type(item) in NON_TOOL_TYPES or is_client_call(item) or is_client_output(item))


def _check_reference(one: TransferItem, target: TransferTarget) -> RuleLoss:
    if item_type(one.item) != ITEM_REFERENCE or one.origin.scope == target.scope:
        return None
    return "reference_elsewhere", LossEffect.LEFT_OUT, "a reference to an item that another server stores"


TRANSFER_RULES: tuple[TransferRule, ...] = (
    _check_plain_reasoning,
    _check_encrypted,
    _check_hosted_tool_trace,
    _check_reference,
)


# -- forms ----------------------------------------------------------------------------------------


def _drop_uploaded_files(one: TransferItem, target: TransferTarget, tell: RecordLoss) -> Item | None:
    """Return the item without uploaded files that only its own server has; None when it has nothing else."""
    content = one.item.get("content")
    if not isinstance(content, list) or one.origin.scope in (None, target.scope):
        return one.item
    rest = [part for part in content if not _is_uploaded_file(part)]
    if len(rest) == len(content):
        return one.item
    why = f"a file that was uploaded to {one.origin.scope}"
    tell("file_elsewhere", LossEffect.CHANGED if rest else LossEffect.LEFT_OUT, why)
    return {**one.item, "content": rest} if rest else None


def _is_uploaded_file(part: Json) -> bool:
    return isinstance(part, dict) and isinstance(part.get("file_id"), str)


def _drop_id(item: Item, tell: RecordLoss) -> Item:
    sent = to_resendable(item)
    if sent is None or sent is item:
        return item
    tell("item_ids", LossEffect.CHANGED, "the new owner assigns its own ids")
    return sent


def _convert_incomplete(item: Item, one: TransferItem, tell: RecordLoss) -> Item | None:
    """Return a confirmed incomplete item in a form that a conversation accepts."""
    if not one.is_confirmed or to_sendable(item) is item:
        return item
    words = to_sendable(item)
    why = "incomplete, so only its text can be sent again" if words else "incomplete and without text"
    tell("cut_off", LossEffect.CHANGED if words else LossEffect.LEFT_OUT, why)
    return words


def _drop_traces_without_reasoning(
    said: Sequence[TransferItem], formed: list[Item | None], report: LossCollector
) -> None:
    """Leave out the traces of hosted tools after reasoning that is left out: a server accepts both or neither."""
    lost = False
    for at, one in enumerate(said):
        if item_type(one.item) == "reasoning":
            lost = formed[at] is None
        elif not is_complete_answer(one.item):
            lost = False
        elif lost and formed[at] is not None and _is_hosted_tool_trace(one.item):
            why = "the call of a hosted tool that needs the reasoning before it"
            report.recorder_at(at + 1)("hosted_without_reasoning", LossEffect.LEFT_OUT, why)
            formed[at] = None


def _check_call_pairs(formed: list[Item | None], report: LossCollector) -> None:
    """Report calls without an output, and leave out outputs without a call."""
    calls: dict[str, int] = {}
    for place, item in enumerate(formed, 1):
        named = get_call_id(item) if item else None
        if item is None or named is None:
            continue
        if is_client_call(item):
            calls[named] = place
        elif is_client_output(item) and calls.pop(named, None) is None and not _has_call(formed[: place - 1], named):
            report.recorder_at(place)(
                "orphan_output", LossEffect.LEFT_OUT, "an output whose call is not in this history"
            )
            formed[place - 1] = None
    for place in calls.values():
        report.recorder_at(place)(
            "open_call", LossEffect.KEPT, "a call without an output: send the output first, or use convo repair"
        )


def _has_call(before: Iterable[Item | None], named: str) -> bool:
    return any(item is not None and is_client_call(item) and get_call_id(item) == named for item in before)


# -- origin of encrypted content ------------------------------------------------------------------


def _find_sealer(one: TransferItem) -> ItemOrigin:
    """Return the origin of encrypted content: the server it came from, otherwise the one named in the content."""
    seal = one.item[ENCRYPTED_FIELD]
    if one.origin.scope not in (None, EMBEDDED_SCOPE):
        return one.origin
    if seal.startswith(PROVIDER_SEAL_PREFIX):
        return ItemOrigin(EMBEDDED_SCOPE, unquote(seal.split(":")[1]))
    return ItemOrigin(EMBEDDED_SCOPE) if seal.startswith(CONVO_SEAL_PREFIX) else one.origin


def _can_decrypt(maker: ItemOrigin, target: TransferTarget, named: str) -> bool:
    if maker.scope not in (None, target.scope):
        return False
    return named != "reasoning" or maker.model in (None, target.model)
