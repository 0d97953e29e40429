"""What no server takes for an item: it lacks what its kind cannot do without.

A table of what each kind needs, because a server names one missing field at a time. Kinds that it
does not know are left alone: they may be newer than this list.
"""

from collections.abc import Callable, Iterator, Mapping

from convo.inspection.linting.finding import Fault
from convo.inspection.linting.view import View
from convo.items import Item, Json, kind

ROLES = ("user", "assistant", "system", "developer")


def _words(value: Json) -> bool:
    return isinstance(value, str)


def _words_or_parts(value: Json) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, dict) for part in value))


def _there(value: Json) -> bool:
    return value is not None


def _a_role(value: Json) -> bool:
    return value in ROLES


NEEDS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "message": {"role": _a_role, "content": _words_or_parts},
    "function_call": {"call_id": _words, "name": _words},
    "function_call_output": {"call_id": _words, "output": _words_or_parts},
    "custom_tool_call": {"call_id": _words, "name": _words, "input": _words},
    "custom_tool_call_output": {"call_id": _words, "output": _words_or_parts},
    "computer_call": {"call_id": _words},
    "computer_call_output": {"call_id": _words, "output": _there},
    "compaction": {"encrypted_content": _words},
    "item_reference": {"id": _words},
}
"""By kind: the fields that must be there, and what they must hold."""


def malformed_item(view: View) -> Iterator[Fault]:
    """An item that lacks its type, or a field that its type needs."""
    for at, item in view.of_kind("unknown"):
        if view.travels[at] and not _is_reference(item):
            yield Fault("it has neither a type nor a role", at)
    for named, needs in NEEDS.items():
        for at in view.by_kind.get(named, ()):
            yield from _lacking(view, at, needs)


def _lacking(view: View, at: int, needs: Mapping[str, Callable[[Json], bool]]) -> Iterator[Fault]:
    item = view.items[at]
    wrong = next((name for name, right in needs.items() if not right(item.get(name))), None)
    if wrong is not None and view.travels[at]:
        yield Fault(f"a {kind(item).replace('_', ' ')} {_lacks(wrong, item.get(wrong))}", at, f".{wrong}")


def _lacks(name: str, value: Json) -> str:
    if value is None:
        return f"has no {name}"
    return f"has the {name} {value!r}" if name == "role" and isinstance(value, str) else f"has a {name} of another type"


def _is_reference(item: Item) -> bool:
    """A reference may leave its type out."""
    return isinstance(item.get("id"), str) and all(value is None for key, value in item.items() if key != "id")
