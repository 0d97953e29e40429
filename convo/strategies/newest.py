"""What of a long history a model is sent, where the client owns it and wants to send less.

The newest items, and none of half a pair: an output whose call was cut off would be refused, and so
would a call that never got its output. The history itself keeps everything. A model may use an id
again, so an output belongs to the last call before it that has its id.
"""

from collections.abc import Sequence

from convo.items import Item, call_id, is_call, is_output, kind


def newest(items: Sequence[Item], limit: int | None) -> list[Item]:
    """The newest `limit` of `items` that can be sent; None: all that can."""
    kept = items if limit is None else items[max(len(items) - limit, 0) :]
    return paired(kept, cut=len(kept) < len(items))


def paired(items: Sequence[Item], *, cut: bool) -> list[Item]:
    """`items` without calls that have no output, and without the reasoning that led to nothing else.

    Of two outputs of one call the later one counts.

    cut:  older items were left out, so an output may have lost its call; else it is left for the owner to see
    """
    answers = _answers(items)
    outputs = set(answers.values())
    kept: list[Item] = []
    for at, item in enumerate(items):
        if is_call(item) and at not in answers:
            while kept and kind(kept[-1]) == "reasoning":
                kept.pop()
        elif not is_output(item) or (at in outputs and not (cut and answers.get(-1 - at) == at)):
            kept.append(item)
    return kept


def latest_outputs(items: Sequence[Item]) -> list[Item]:
    """`items` with one output for each call, the later one."""
    outputs = set(_answers(items).values())
    return [item for at, item in enumerate(items) if not is_output(item) or at in outputs]


def _answers(items: Sequence[Item]) -> dict[int, int]:
    """The place of each call's output by that of the call; of one without a call by its first place's own negative."""
    calls: dict[str | None, int] = {}
    found: dict[int, int] = {}
    for at, item in enumerate(items):
        if is_call(item):
            calls[call_id(item)] = at
        elif is_output(item):
            found[calls.setdefault(call_id(item), -1 - at)] = at
    return found
