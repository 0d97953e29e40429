"""Items that are there twice.

Mixing two owners of one history resends what the other one holds already. An id tells: the same one
twice is refused, and where ids do not travel the model reads everything double.
"""

from collections.abc import Iterator, Sequence

from convo.history import same
from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.view import Edits, View, edited
from convo.items import Item, kind
from convo.items.wire import ID_IS_OPTIONAL

NAME_ANOTHER = frozenset({"item_reference", "local_shell_call_output"})
"""Kinds whose id is another item's."""


def duplicate_item_id(view: View) -> Iterator[Fault]:
    """An item whose id another one before it has."""
    first: dict[str, int] = {}
    for at, item in enumerate(view.items):
        found = item.get("id")
        if not isinstance(found, str) or kind(item) in NAME_ANOTHER:
            continue
        if found in first and at >= view.owned:
            yield Fault(f"{found} is the id of an item before it", at, ".id", also=(first[found],))
        first.setdefault(found, at)


def drop_copies(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """A copy goes; what says something else stays, without the id that is not its own."""
    new: dict[int, Item | None] = {}
    changes = []
    for at, fault in of_items(faults):
        item, (first,) = view.items[at], fault.also
        copied = same(item, view.items[first]) or kind(item) not in ID_IS_OPTIONAL
        new[at] = None if copied else {key: value for key, value in item.items() if key != "id"}
        why = fault.message if copied else f"{fault.message}, which says something else: the id was left out"
        what = "dropped" if copied else "replaced"
        changes.append(Change("duplicate-item-id", what, why, view.sources[at]))
    return edited(view, Edits(new)), changes
