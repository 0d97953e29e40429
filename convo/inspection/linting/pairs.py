"""A call and its output travel together.

Every server refuses a history with half of such a pair. What a call owes is told by its kind; an
interrupted one is closed with an output that says so, in the form that its kind takes. A
screenshot cannot be made up, so a call for one goes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.owners import back
from convo.inspection.linting.view import PAIRED, Edits, View, cut_off, edited, named
from convo.items import Item, Json, kind
from convo.items.pairing import APPROVALS, PROVIDERS, program_of

CODE = "call-without-output"

INTERRUPTED = "The call was interrupted before it gave an output."


def call_without_output(view: View) -> Iterator[Fault]:
    """A call that nothing behind it answers. What was cut off in mid-answer is not sent as a call.

    An output answers one call: of several that have its id the last one before it. A request for approval
    may wait as long as nothing else follows.
    """
    last = max((at for at, item in enumerate(view.items) if kind(item) not in APPROVALS), default=-1)
    for at, item in view.of_kind(*PAIRED):
        name = named(item)
        if at in view.answers or name in view.waiting or (name is None and kind(item) not in PROVIDERS):
            continue
        if kind(item) in APPROVALS and at > last:
            continue
        if view.raw or not cut_off(item):
            yield Fault(f"no {_answer(item)} answers {_words(item)} {name or ''}".rstrip(), at, _field(item))


def output_without_call(view: View) -> Iterator[Fault]:
    """An output whose call does not stand before it, or has another output behind this one.

    If a server holds items that were not read, the call may be among them.
    """
    yield from _second_outputs(view)
    if view.partial:
        return
    asked: set[tuple[str, str | None]] = set()
    searches = 0
    for at, item in view.of_kind(*PAIRED, *PAIRED.values()):
        name, what = named(item), kind(item)
        if what in PAIRED:
            asked.add((PAIRED[what], name))
            searches += what == "tool_search_call" and name is None
        elif name is None:
            searches -= what == "tool_search_output"
            if what == "tool_search_output" and searches < 0:
                searches = 0
                yield Fault(f"no call stands before this {_words(item)}", at, ".call_id")
        elif (what, name) not in asked:
            yield Fault(f"no {_call(item)} {name} stands before this {_words(item)}", at, _field(item))


def _second_outputs(view: View) -> Iterator[Fault]:
    """Outputs of calls that a later output answers, too; a call takes one."""
    last = {place: at for place, at in view.answers.items() if place >= 0}
    current: dict[tuple[str, str], int] = {}
    for at, item, name in view.halves:
        what = kind(item)
        if what in PAIRED:
            current[PAIRED[what], name] = at
        elif (what, name) in current and last.get(current[what, name]) != at:
            yield Fault(f"a later {_answer(item)} answers {_call(item)} {name}, too", at, _field(item))


def _answer(item: Item) -> str:
    return "response" if kind(item) in APPROVALS else "output"


def _call(item: Item) -> str:
    return "request" if kind(item) in APPROVALS.values() else "call"


def _field(item: Item) -> str:
    """The JSON path of the id that pairs a call with its output."""
    return {"mcp_approval_request": ".id", "mcp_approval_response": ".approval_request_id"}.get(kind(item), ".call_id")


def close_calls(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Put an output that says "interrupted" behind each call, once those that were made with it have ended.

    A call whose id another one behind it has goes: an output could not say which of them it answers. So does
    what the provider would have to answer, and with a program what it called.
    """
    batches = _batches(view)
    place = {at: max(batches[at], view.owned - 1) for at, _ in of_items(faults)}
    for at, fault in of_items(faults):
        if at < view.owned and not _can_be_closed(view, at, place[at]):
            return back(view, at, CODE, fault.message)
    behind: dict[int, list[Item]] = {}
    dropped: dict[int, None] = {}
    changes = []
    for at, fault in of_items(faults):
        call = view.items[at]
        if at in dropped:
            continue
        if _can_be_closed(view, at, place[at]):
            behind.setdefault(place[at], []).append(CLOSED_BY[kind(call)](str(named(call))))
            changes.append(Change(CODE, "added", f"{fault.message}: it was closed as interrupted", view.sources[at]))
        else:
            for also in (at, *_called_by(view, call)):
                if also not in dropped:
                    dropped[also] = None
                    why = f"{fault.message}, and none can be made up"
                    changes.append(Change(CODE, "dropped", why, view.sources[also]))
    return edited(view, Edits(dropped, behind)), changes


def _can_be_closed(view: View, at: int, place: int) -> bool:
    """Whether an output can be made up that stands behind `place` and answers this call and no other."""
    call = view.items[at]
    what, name = kind(call), named(call)
    return what in CLOSED_BY and not any(
        kind(one) == what and named(one) == name for one in view.items[at + 1 : place + 1]
    )


def _called_by(view: View, call: Item) -> Iterator[int]:
    """The places of what a program called, and of the outputs of that."""
    if kind(call) == "program":
        yield from (at for at, item in enumerate(view.items) if program_of(item) == named(call) is not None)


def _batches(view: View) -> list[int]:
    """For each item, where the run of calls and outputs that it begins or goes on with ends."""
    ends = list(range(len(view.items)))
    either = {*PAIRED, *PAIRED.values()}
    for at in range(len(ends) - 2, -1, -1):
        if kind(view.items[at + 1]) in either:
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


def _of_an_approval(name: str) -> dict[str, Json]:
    return {"type": "mcp_approval_response", "approval_request_id": name, "approve": False, "reason": INTERRUPTED}


CLOSED_BY: Mapping[str, Callable[[str], dict[str, Json]]] = {
    "function_call": _plain("function_call_output"),
    "custom_tool_call": _plain("custom_tool_call_output"),
    "local_shell_call": _of_a_local_shell,
    "shell_call": _of_a_shell,
    "apply_patch_call": _of_a_patch,
    "mcp_approval_request": _of_an_approval,
}
"""By the kind of a call: the output that says that it was interrupted."""
