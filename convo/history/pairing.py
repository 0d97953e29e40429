"""Pairing of calls with their outputs, by position and id. All other modules pair with the functions here.

A call and its output share an id, but a model may use an id again: llama.cpp gives every call the same one. So an
output belongs to a call of the last response before it that has this id; of several such calls in one response the
first without an output. Hosted tool searches have no id: an output belongs to the last search that has no output yet.
A call made by a hosted program names that program.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from convo.history.items import (
    CLIENT_OUTPUT_TYPES,
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    OUTPUT_BY_CLIENT_CALL,
    Item,
    Json,
    get_call_id,
    is_client_call,
    is_incomplete_item,
    item_type,
)
from convo.history.tree import derive

OUTPUT_BY_HOSTED_CALL: Mapping[str, str] = {
    "tool_search_call": "tool_search_output",
    "program": "program_output",
    "multi_agent_call": "multi_agent_call_output",
}
"""Types of calls that the provider runs, each with the type of its output."""

RESPONSE_BY_APPROVAL_REQUEST: Mapping[str, str] = {MCP_APPROVAL_REQUEST: MCP_APPROVAL_RESPONSE}
"""A request for an approval; its id is in the response's `approval_request_id`."""

OUTPUT_BY_CALL: Mapping[str, str] = {**OUTPUT_BY_CLIENT_CALL, **OUTPUT_BY_HOSTED_CALL}

ALL_PAIRS: Mapping[str, str] = {**OUTPUT_BY_CALL, **RESPONSE_BY_APPROVAL_REQUEST}
"""The output type of each call type, and the response type of each approval request."""

SEARCH_CALL, SEARCH_OUTPUT = "tool_search_call", "tool_search_output"

OutputKey = tuple[str, str | None]
"""The type of an output, and the id that pairs it with its call."""

TOOL_SEARCH_WITHOUT_ID: OutputKey = ("tool_search_output", None)


def pair_id(item: Item) -> str | None:
    """Return the id that pairs a call with its output; the output of a local shell has its call's id in `id`."""
    call_id = get_call_id(item)
    if call_id is not None:
        return call_id
    field = {
        "local_shell_call_output": "id",
        MCP_APPROVAL_REQUEST: "id",
        MCP_APPROVAL_RESPONSE: "approval_request_id",
    }.get(item_type(item))
    value = item.get(field) if field else None
    return value if isinstance(value, str) else None


def call_index_by_output(items: Sequence[Item]) -> dict[int, int]:
    """Map the index of each output to the index of its call.

    A further output of a call that has one belongs to the same call. Outputs without a call have -1 minus the index of
    the first of them that has this type and id.
    """
    return {pair.output_index: pair.call_index for pair in derive(items, make_pair_step)}


class Pair(NamedTuple):
    """An output, its index, and the index of its call as in `call_index_by_output`."""

    output_index: int
    call_index: int
    output: Item


def make_pair_step() -> Callable[[Iterable[Item]], Iterator[Pair]]:
    """Return a step of `derive` for the outputs."""
    calls, indexes = _OpenCalls(), count()

    def step(items: Iterable[Item]) -> Iterator[Pair]:
        for item, index in zip(items, indexes, strict=False):
            kind = item_type(item)
            if kind in ALL_PAIRS:
                calls.add(index, (ALL_PAIRS[kind], pair_id(item)))
                calls.response_number += is_incomplete_item(item)
            elif kind in _OUTPUT_TYPES:
                call_index = calls.close(index, (kind, pair_id(item)))
                calls.response_number += call_index >= 0 and kind in (*CLIENT_OUTPUT_TYPES, MCP_APPROVAL_RESPONSE)
                yield Pair(index, call_index, item)
            elif kind == "message":
                calls.response_number += item.get("role") != "assistant"

    return step


_OUTPUT_TYPES = frozenset(ALL_PAIRS.values())

_ALSO_CLOSED_BY_FUNCTION_OUTPUT = (*CLIENT_OUTPUT_TYPES, SEARCH_OUTPUT)
"""Clients answer other calls with a function's output, too: Codex so answers a local shell, and the API accepts it."""


class _OpenCalls:
    """The calls without an output in the part of a history that was read.

    response_number:  counts the responses in that part
    """

    def __init__(self) -> None:
        self.response_number = 0
        self._open: dict[OutputKey, list[int]] = {}
        self._last_response: dict[OutputKey, int] = {}
        self._closed: dict[OutputKey, int] = {}

    def add(self, index: int, key: OutputKey) -> None:
        if self._last_response.get(key) == self.response_number or key == TOOL_SEARCH_WITHOUT_ID:
            self._open.setdefault(key, []).append(index)
        else:
            self._open[key] = [index]
        self._last_response[key] = self.response_number

    def close(self, index: int, key: OutputKey) -> int:
        """Return the index of the call of the output at `index`, or a negative number as `call_index_by_output`."""
        if key == TOOL_SEARCH_WITHOUT_ID:
            return self._open[key].pop() if self._open.get(key) else -1 - index
        keys = [key]
        if key[0] == "function_call_output" and key[1] is not None:
            keys += [(kind, key[1]) for kind in _ALSO_CLOSED_BY_FUNCTION_OUTPUT]
        for candidate in keys:
            if self._open.get(candidate):
                self._closed[candidate] = self._open[candidate].pop(0)
                return self._closed[candidate]
        for candidate in keys:
            if candidate in self._closed:
                return self._closed[candidate]
        return self._closed.setdefault(key, -1 - index)


def output_index_by_call(items: Sequence[Item]) -> dict[int, int]:
    """Map the index of each call to the index of its last output; see `call_index_by_output` for negative indexes."""
    return {call_index: index for index, call_index in call_index_by_output(items).items()}


def build_required_input(item: Item) -> dict[str, Json] | None:
    """Return the item that the client must send for `item` before the model continues, without its result.

    None for an item that needs nothing from the client, and for a call that was cut off.
    """
    kind = item_type(item)
    if is_incomplete_item(item):
        return None
    if kind == MCP_APPROVAL_REQUEST:
        return {"type": MCP_APPROVAL_RESPONSE, "approval_request_id": item.get("id")}
    if kind == SEARCH_CALL and item.get("execution") == "client":
        return {"type": SEARCH_OUTPUT, "call_id": pair_id(item), "execution": "client"}
    if kind not in OUTPUT_BY_CLIENT_CALL:
        return None
    name = {"name": item.get("name")} if kind == "function_call" else {}
    return {"type": OUTPUT_BY_CLIENT_CALL[kind], "call_id": pair_id(item), **name}


def open_client_calls(items: Iterable[Item]) -> list[Item]:
    """Return the calls that the client runs, and the requests for its approval, that have no output, in order."""
    items = tuple(items)
    with_output = output_index_by_call(items)
    # An mcp_call that names its request was approved, and run by the provider.
    run_by_provider = {item.get("approval_request_id") for item in items}
    return [
        item
        for index, item in enumerate(items)
        if (is_client_call(item) or item_type(item) == MCP_APPROVAL_REQUEST)
        and pair_id(item) not in (None, *run_by_provider)
        and index not in with_output
    ]


_OUTPUT_BY_ANSWERED: Mapping[str, str] = {**OUTPUT_BY_CLIENT_CALL, **RESPONSE_BY_APPROVAL_REQUEST}


def build_text_output(call: Item, text: str, *, exit_code: int = 130) -> dict[str, Json]:
    """Return the output of a client's call that has no other result than this text, or the rejection of a request.

    exit_code:  of a shell call; 130 is what a shell reports for a program that was stopped
    """
    kind, call_id = item_type(call), pair_id(call)
    output_fields: dict[str, Json] = {"call_id": call_id, "output": text}
    match kind:
        case "mcp_approval_request":
            output_fields = {"approval_request_id": call_id, "approve": False, "reason": text}
        case "local_shell_call":
            # The API wants the output of a local shell as JSON text.
            output_fields = {"id": call_id, "output": json.dumps({"output": text})}
        case "shell_call":
            result = {"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": exit_code}}
            output_fields["output"] = [result]
        case "apply_patch_call":
            output_fields["status"] = "failed"
    return {"type": _OUTPUT_BY_ANSWERED[kind], **output_fields}


def has_open_hosted_call(items: Sequence[Item]) -> bool:
    """Return whether a call that the provider runs has no output yet."""
    with_output = output_index_by_call(items)
    return any(
        item_type(item) in OUTPUT_BY_HOSTED_CALL and index not in with_output for index, item in enumerate(items)
    )


def program_call_id(item: Item) -> str | None:
    """Return the call id of the program that made a call, or of the call that an output belongs to."""
    caller = item.get("caller")
    caller_id = caller.get("caller_id") if isinstance(caller, dict) and caller.get("type") == "program" else None
    return caller_id if isinstance(caller_id, str) else None
