"""What of a long history a model is sent, where the client owns it and wants to send less.

The newest items, and none of half a pair: an output whose call was cut off would be refused, and so
would a call that never got its output. The history itself keeps everything.
"""

from collections.abc import Sequence

from convo.items import Item, call_id, is_call, is_output, kind


def newest(items: Sequence[Item], limit: int | None) -> list[Item]:
    """The newest `limit` of `items` that can be sent; None: all that can."""
    kept = items if limit is None else items[max(len(items) - limit, 0) :]
    return paired(kept, cut=len(kept) < len(items))


def paired(items: Sequence[Item], *, cut: bool) -> list[Item]:
    """`items` without calls that have no output, and without reasoning that led to nothing else.

    Of two outputs of one call the later one counts.

    cut:  older items were left out, so an output may have lost its call; else it is left for the owner to see
    """
    outputs = {call_id(item): at for at, item in enumerate(items) if is_output(item)}
    calls = {call_id(item) for item in items if is_call(item)}
    kept: list[Item] = []
    for at, item in enumerate(items):
        if is_call(item) and call_id(item) not in outputs:
            while kept and kind(kept[-1]) == "reasoning":
                kept.pop()
        elif not is_output(item) or (outputs[call_id(item)] == at and (call_id(item) in calls or not cut)):
            kept.append(item)
    return kept


def latest_outputs(items: Sequence[Item]) -> list[Item]:
    """`items` with one output for each call, the later one."""
    last = {call_id(item): at for at, item in enumerate(items) if is_output(item)}
    return [item for at, item in enumerate(items) if not is_output(item) or last[call_id(item)] == at]
