"""A call and its output travel together.

Every server refuses a history with half of such a pair. What a call owes is told by its kind; an
interrupted one is closed with an output that says so, in the form that its kind takes. A
screenshot cannot be made up, so a call for one goes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.owners import back
from convo.inspection.linting.view import Edits, View, cut_off, edited, named
from convo.items import Item, Json, is_call, is_output, kind

CODE = "call-without-output"

INTERRUPTED = "The call was interrupted before it gave an output."


def call_without_output(view: View) -> Iterator[Fault]:
    """A call that nothing behind it answers. What was cut off in mid-answer is not sent as a call."""
    answered = {name: at for at, item, name in view.halves if is_output(item)}
    for at, item, name in view.halves:
        if is_output(item) or name in view.waiting or answered.get(name, -1) > at:
            continue
        if view.raw or not cut_off(item):
            yield Fault(f"no output answers {_words(item)} {name}", at, ".call_id")


def output_without_call(view: View) -> Iterator[Fault]:
    """An output whose call does not stand before it. Where an owner holds items that nobody read, it may be there."""
    if view.partial:
        return
    asked: set[str] = set()
    for at, item, name in view.halves:
        if is_call(item):
            asked.add(name)
        elif name not in asked:
            yield Fault(f"no call {name} stands before this {_words(item)}", at, ".call_id")


def close_calls(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Put an output that says "interrupted" behind each call, once those that were made with it have ended."""
    for at, fault in of_items(faults):
        if at < view.owned and kind(view.items[at]) not in CLOSED_BY:
            return back(view, at, CODE, fault.message)
    batches = _batches(view)
    behind: dict[int, list[Item]] = {}
    dropped: dict[int, None] = {}
    changes = []
    for at, fault in of_items(faults):
        call = view.items[at]
        if kind(call) in CLOSED_BY:
            behind.setdefault(max(batches[at], view.owned - 1), []).append(CLOSED_BY[kind(call)](str(named(call))))
            changes.append(Change(CODE, "added", f"{fault.message}: it was closed as interrupted", view.sources[at]))
        else:
            dropped[at] = None
            changes.append(Change(CODE, "dropped", f"{fault.message}, and none can be made up", view.sources[at]))
    return edited(view, Edits(dropped, behind)), changes


def _batches(view: View) -> list[int]:
    """For each item, where the run of calls and outputs that it begins or goes on with ends."""
    ends = list(range(len(view.items)))
    for at in range(len(ends) - 2, -1, -1):
        following = view.items[at + 1]
        if is_call(following) or is_output(following):
            ends[at] = ends[at + 1]
    return ends


def _words(item: Item) -> str:
    return kind(item).replace("_", " ")


def _plain(output_kind: str, *, by: str = "call_id") -> Callable[[str], dict[str, Json]]:
    return lambda name: {"type": output_kind, by: name, "output": INTERRUPTED}


def _of_a_shell(name: str) -> dict[str, Json]:
    said = {"stdout": "", "stderr": INTERRUPTED, "outcome": {"type": "exit", "exit_code": 130}}
    return {"type": "shell_call_output", "call_id": name, "output": [said]}


def _of_a_patch(name: str) -> dict[str, Json]:
    return {**_plain("apply_patch_call_output")(name), "status": "failed"}


def _of_a_local_shell(name: str) -> dict[str, Json]:
    return {"type": "local_shell_call_output", "id": name, "output": json.dumps({"output": INTERRUPTED})}


CLOSED_BY: Mapping[str, Callable[[str], dict[str, Json]]] = {
    "function_call": _plain("function_call_output"),
    "custom_tool_call": _plain("custom_tool_call_output"),
    "local_shell_call": _of_a_local_shell,
    "shell_call": _of_a_shell,
    "apply_patch_call": _of_a_patch,
}
"""By the kind of a call: the output that says that it was interrupted."""
