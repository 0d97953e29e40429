"""What of a long history a model is sent, where the client owns it and wants to send less.

The newest items, and none of half a pair: an output whose call was cut off would be refused, and so
would a call that never got its output. A tool search and a program have an output as well, which the
provider makes; what a program called belongs to it. The history itself keeps everything. A model may
use an id again, so an output belongs to the last call before it that has its id.
"""

from collections.abc import Sequence

from convo.items import Item, call_id, kind
from convo.items.pairing import PAIRS, outputs_by_call, program_of

OUTPUTS = frozenset(PAIRS.values())


def newest(items: Sequence[Item], limit: int | None) -> list[Item]:
    """The newest `limit` of `items` that can be sent; None: all that can."""
    kept = items if limit is None else items[max(len(items) - limit, 0) :]
    return paired(kept, cut=len(kept) < len(items))


def paired(items: Sequence[Item], *, cut: bool) -> list[Item]:
    """`items` without calls that have no output, and without the reasoning that led to nothing else.

    A program without its output goes, with all that it called. Of two outputs of one call the later one counts.

    cut:  older items were left out, so an output may have lost its call; else it is left for the owner to see
    """
    found = outputs_by_call(items)
    outputs = set(found.values())
    lost = {call_id(item) for at, item in enumerate(items) if kind(item) == "program" and at not in found}
    kept: list[Item] = []
    for at, item in enumerate(items):
        program = program_of(item)
        owned = program is not None and program in lost
        if owned or (kind(item) in PAIRS and at not in found and not (program and _is_pending_shell(item))):
            while kept and kind(kept[-1]) == "reasoning":
                kept.pop()
        elif kind(item) not in OUTPUTS or (at in outputs and not (cut and found.get(-1 - at) == at)):
            kept.append(item)
    return kept


def latest_outputs(items: Sequence[Item]) -> list[Item]:
    """`items` with one output for each call, the later one."""
    outputs = set(outputs_by_call(items).values())
    return [item for at, item in enumerate(items) if kind(item) not in OUTPUTS or at in outputs]


def _is_pending_shell(item: Item) -> bool:
    """Whether a call of the provider's shell may still be without an output."""
    return kind(item) == "shell_call" and item.get("status") in (None, "in_progress")
