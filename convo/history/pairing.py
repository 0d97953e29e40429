"""Pairing of calls with their outputs.

A call and its output share an id. A model may use an id again, so an output belongs to the last call before it with
that id. Hosted tool searches have no id: an output belongs to the last search that has no output yet. A call made by a
hosted program names that program.
"""

from collections.abc import Mapping, Sequence

from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    OUTPUT_BY_CLIENT_CALL,
    Item,
    Json,
    get_call_id,
    is_incomplete_item,
    item_type,
)

OUTPUT_BY_HOSTED_CALL: Mapping[str, str] = {
    "tool_search_call": "tool_search_output",
    "program": "program_output",
    "multi_agent_call": "multi_agent_call_output",
}
"""Types of calls that the provider runs, each with the type of its output."""

RESPONSE_BY_APPROVAL_REQUEST: Mapping[str, str] = {MCP_APPROVAL_REQUEST: MCP_APPROVAL_RESPONSE}
"""A request for an approval; its id is in the response's `approval_request_id`."""

OUTPUT_BY_CALL: Mapping[str, str] = {**OUTPUT_BY_CLIENT_CALL, **OUTPUT_BY_HOSTED_CALL}

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


def output_index_by_call(items: Sequence[Item], pairs: Mapping[str, str] = OUTPUT_BY_CALL) -> dict[int, int]:
    """Map the index of each call to the index of its last output.

    An output without a call has the key -1 minus the index of the first such output.
    """
    calls: dict[OutputKey, int] = {}
    searches: list[int] = []
    output_indexes: dict[int, int] = {}
    outputs = frozenset(pairs.values())
    for index, item in enumerate(items):
        kind = item_type(item)
        if kind in pairs:
            key = pairs[kind], pair_id(item)
            calls[key] = index
            if key == TOOL_SEARCH_WITHOUT_ID:
                searches.append(index)
        elif kind in outputs:
            key = kind, pair_id(item)
            if key not in calls and is_search_answer(item) and (SEARCH_OUTPUT, key[1]) in calls:
                key = SEARCH_OUTPUT, key[1]
            call_index = (
                (searches.pop() if searches else -1 - index)
                if key == TOOL_SEARCH_WITHOUT_ID
                else calls.setdefault(key, -1 - index)
            )
            output_indexes[call_index] = index
    return output_indexes


def is_search_answer(item: Item) -> bool:
    """Whether an output may answer a search that the client runs: OpenAI accepts a function's output for it."""
    return item_type(item) == "function_call_output" and pair_id(item) is not None


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


def has_open_hosted_call(items: Sequence[Item]) -> bool:
    """Return whether a call that the provider runs has no output yet."""
    with_output = output_index_by_call(items, OUTPUT_BY_HOSTED_CALL)
    return any(
        item_type(item) in OUTPUT_BY_HOSTED_CALL and index not in with_output for index, item in enumerate(items)
    )


def program_call_id(item: Item) -> str | None:
    """Return the call id of the program that made a call, or of the call that an output belongs to."""
    caller = item.get("caller")
    caller_id = caller.get("caller_id") if isinstance(caller, dict) and caller.get("type") == "program" else None
    return caller_id if isinstance(caller_id, str) else None
