"""What a model has been told and has said, as a state keeps it, and how much of it the owner has.

A state keeps the input that its run began with and one run item for each item since. What waits
stands among them as well, and outputs of calls that still wait for others: neither is a part of the
history yet.
"""

from collections.abc import Collection, Iterator, Sequence

from convo.items import Item, Json, is_output, kind
from convo.runstate.batch import VERDICT, last_answer, named_by
from convo.runstate.paths import Place

APPROVAL = "tool_approval_item"
GENERATED = "generated_items"


def places(document: Json, worked_on: Collection[str]) -> Iterator[Place]:
    """The items of the history and where they stand; `worked_on`: the calls whose outputs come later."""
    begun = document["original_input"]
    if isinstance(begun, str):
        yield Place(("original_input",), {"role": "user", "content": begun})
    else:
        yield from (Place(("original_input", at), item) for at, item in enumerate(begun))
    for at, generated in enumerate(document.get(GENERATED) or ()):
        raw = generated["raw_item"]
        if generated.get("type") != APPROVAL and not (is_answer(raw) and named_by(raw) in worked_on):
            yield Place((GENERATED, at, "raw_item"), raw)


def acknowledged(document: Json, history: Sequence[Place]) -> int:
    """How much of the history the server of the last answer has."""
    answer = last_answer(document)
    names = {_name(item) for item in answer} - {None}
    nameless = [item for item in answer if _name(item) is None]
    last = 0
    for before, (steps, raw) in enumerate(history, 1):
        if steps[0] == GENERATED and not is_answer(raw) and (_name(raw) in names or raw in nameless):
            last = before
    return last or (len(history) if answer else 0)


def is_answer(raw: Item) -> bool:
    """Whether an item answers a call, or a request for an approval."""
    return is_output(raw) or kind(raw) == VERDICT


def _name(raw: Item) -> str | None:
    found = raw.get("id") or raw.get("call_id")
    return found if isinstance(found, str) else None
