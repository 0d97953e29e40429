"""Items of the Responses API as plain JSON: types, texts, and the forms in which they are sent.

Items, responses and events stay dictionaries from the wire to the store: a class would drop or guess unknown fields.
An unknown item type is stored, sent and shown like any other. Ids of a server are left out when the client sends an
item again (`to_resendable`): with `store=false` the server does not know them and answers 400.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Any JSON value: dict, list, str, int, float, bool or None."""

Item: TypeAlias = Mapping[str, Json]
"""One input or output item: `{"type": "message", ...}`; an easy message may have no type."""

Response: TypeAlias = Mapping[str, Json]
"""A complete response resource: `{"object": "response", "id": ..., "output": [items], ...}`."""

StreamEvent: TypeAlias = Mapping[str, Json]
"""One event of a response stream: `{"type": "response.output_text.delta", ...}`."""


OUTPUT_BY_CLIENT_CALL = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""Types of calls that the client runs, each with the type of its output."""

CLIENT_OUTPUT_TYPES = frozenset(OUTPUT_BY_CLIENT_CALL.values())

MCP_APPROVAL_REQUEST, MCP_APPROVAL_RESPONSE = "mcp_approval_request", "mcp_approval_response"
COMPACTION_TRIGGER = "compaction_trigger"

ENCRYPTED_FIELD = "encrypted_content"

PROVIDER_SEAL_PREFIX = "convo1:"
"""The prefix of encrypted content of a provider that passed through convo; the name of its model follows."""

CONVO_SEAL_PREFIX = "convoseal1:"
"""The prefix of a compaction item that convo itself encrypted."""


def item_type(item: Item) -> str:
    """Return the item's type; a message in the easy form has no type field."""
    return str(item.get("type") or ("message" if "role" in item else "unknown"))


def describe_item_type(item: Item) -> str:
    """Return the item's type in words: "function call output"."""
    return item_type(item).replace("_", " ")


def is_incomplete_item(item: Item) -> bool:
    """Whether the response ended before the item was complete.

    A call of a hosted program stays in progress until it has its output.
    """
    status = item.get("status")
    if status is None or status == "completed":
        return False
    return status != "in_progress" or not is_client_call(item)


def is_item(value: Json) -> bool:
    """Return whether a value from outside is an item: an object with a type, or a message in the easy form."""
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    return (isinstance(kind, str) and kind != "") or (kind is None and isinstance(value.get("role"), str))


def is_client_call(item: Item) -> bool:
    """Return whether the client must send an output for this item."""
    return str(item.get("type")) in OUTPUT_BY_CLIENT_CALL


def is_client_output(item: Item) -> bool:
    """Return whether the item is the output of a call that the client ran."""
    return str(item.get("type")) in CLIENT_OUTPUT_TYPES


def get_call_id(item: Item) -> str | None:
    """Return the provider's id that pairs a call with its output; None for other types."""
    call_id = item.get("call_id")
    return call_id if isinstance(call_id, str) else None


def is_user_message(item: Item) -> bool:
    """Return whether the item is a user's message."""
    return item.get("role") == "user" and (item.get("type") or "message") == "message"


def is_assistant_message(item: Item) -> bool:
    """Return whether the item is an assistant's message."""
    return item.get("role") == "assistant" and (item.get("type") or "message") == "message"


CONFIGURATION_TYPES = frozenset({"additional_tools", "configuration_update"})
"""Types of items by which the client changes the fields of later requests; the model is not sent them as text."""

NON_MODEL_TYPES = CONFIGURATION_TYPES | {"compaction", COMPACTION_TRIGGER, MCP_APPROVAL_RESPONSE, "unknown"}


def is_model_item(item: Item) -> bool:
    """Whether a model produces items of this type."""
    if item_type(item) == "message":
        return item.get("role") == "assistant"
    return item_type(item) not in NON_MODEL_TYPES and not item_type(item).endswith("_output")


TEXT_FIELDS = ("text", "refusal", "transcript")


JSON_ESCAPE = r"(?s)\\(?:(?P<code>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|.)"
"""An escape in JSON text, a pair of surrogates as one."""


SUMMARY_HEADING = "Summary of the conversation up to here, in place of its earlier messages:"
"""The first line of a message with a summary."""


def is_summary(item: Item) -> bool:
    """Return whether the item is a message with a summary."""
    return is_user_message(item) and item_text(item).startswith(SUMMARY_HEADING)


def summary_text(item: Item) -> str:
    """Return the text of a summary without its heading."""
    return item_text(item).removeprefix(SUMMARY_HEADING).strip()


def item_author(item: Item) -> str:
    """Return the role of a message, "summary" for one that no user typed, or the type of another item."""
    return "summary" if is_summary(item) else str(item.get("role") or item_type(item))


def is_compaction(item: Item) -> bool:
    """Return whether the item replaces earlier items: a compaction item, or a message with a summary."""
    return item_type(item) == "compaction" or is_summary(item)


def item_text(item: Item) -> str:
    """Return the text of a message, a summary or an output, one part a line; "" without text."""
    return "\n".join(part for part in _field_texts(item) if part)


def last_answer_text(items: Sequence[Item]) -> str:
    """Return the text of the last assistant message that has one; "" without one."""
    return next(filter(None, (item_text(item) for item in reversed(items) if is_assistant_message(item))), "")


BODY_PART_TYPE, REQUEST_BODY_TYPE = "convo.body_part", "convo.request_body"
"""The types of stored items with the body of a recorded request; see `convo.history.request_body`."""


def searchable_text(item: Item) -> str:
    """Return the text by which a search finds `item`: its text, and the names and arguments of calls."""
    if item.get("type") in (BODY_PART_TYPE, REQUEST_BODY_TYPE):
        return ""
    fields = (item.get(field) for field in ("name", "arguments", "input"))
    return "\n".join(text for text in (item_text(item), *fields) if isinstance(text, str) and text)


def decode_json_escapes(text: str) -> str:
    r"""Replace the escapes in JSON text by their characters: `Z\u00fcrich` becomes `Zürich`.

    Escapes of control characters, of bidirectional marks, and of anything else that is not printable stay.
    """
    return re.sub(JSON_ESCAPE, _decode_escape, text) if "\\u" in text else text


def _decode_escape(match: re.Match[str]) -> str:
    if not match["code"]:
        return match[0]  # an escaped backslash
    character = bytes.fromhex(match["code"].replace("\\", "").replace("u", "")).decode("utf-16-be", "replace")
    return character if character.isprintable() and character not in '"\\\ufffd' else match[0]


def item_preview(item: Item, width: int = 60) -> str:
    """Return one line of at most `width` characters that describes `item`."""
    text = item_text(item)
    if not text.strip():
        text = f"[{item_type(item)}]" + (f" {item['name']}" if isinstance(item.get("name"), str) else "")
    return _shorten_to_line(text, width)


def _shorten_to_line(text: str, width: int) -> str:
    line = " ".join(text.split(maxsplit=width + 1)[: width + 1])  # more words do not fit
    return line if len(line) <= width else line[: width - 1] + "…"


WRAPPER_START = re.compile(
    r"\s*(?:<(environment_context|user_instructions|permissions instructions|skills_instructions|turn_aborted"
    r"|system-reminder|local-command-caveat|local-command-stdout|command-name|command-message|command-args)>"
    r"|# AGENTS\.md instructions\b[^\n]*\s*<(INSTRUCTIONS)>)"
)
"""The start of a text that Codex or Claude Code adds to a user message; the tag that ends it."""


def typed_text(item: Item) -> str:
    """Return the text of a user message without the parts of a coding agent; "" for a summary or another item."""
    if not is_user_message(item):
        return ""
    text = "\n".join(filter(None, map(_remove_wrappers, _field_texts(item))))
    return "" if text.startswith(SUMMARY_HEADING) else text


def _remove_wrappers(text: str) -> str:
    """Remove the wrapped texts at the start of `text`; one without an end extends to the end of `text`."""
    start = 0
    while match := WRAPPER_START.match(text, start):
        end_tag = f"</{match[1] or match[2]}>"
        end = text.find(end_tag, match.end())
        start = len(text) if end < 0 else end + len(end_tag)
    return text[start:].strip()


MAX_TITLE_ITEMS = 16
"""Items, at the start of a conversation or the end of an input, that are searched for a typed message as its title."""


def conversation_title(items: Iterable[Item], width: int = 60) -> str:
    """Return the start of the first user message that a person typed, from the first items of a conversation.

    Without one, it describes the first item; "" without items. A summary is named as such.
    """
    first: Item | None = None
    for item in items:
        if text := typed_text(item):
            return _shorten_to_line(text, width)
        first = item if first is None else first
    return "" if first is None else fallback_title(first, width)


TITLE_WIDTH = 120
"""Characters of the title of a request."""


def request_title(items: Iterable[Item]) -> str:
    """Return the title of a request from the items of its input, last first; only as many as needed are read.

    It is the last user message that a person typed, else the last user message, else the last item.
    """
    fallback: Item | None = None
    for item in islice(items, MAX_TITLE_ITEMS):
        if text := typed_text(item):
            return _shorten_to_line(text, TITLE_WIDTH)
        if fallback is None or (is_user_message(item) and not is_user_message(fallback)):
            fallback = item
    return "" if fallback is None else fallback_title(fallback, TITLE_WIDTH)


def called_tools(output: Iterable[Item]) -> tuple[str, ...]:
    """Return the names of the tools that a response calls; a call without a name has that of its type: web_search."""
    calls = (item for item in output if item_type(item).endswith("_call"))
    names = (item.get("name") or item_type(item).removesuffix("_call") for item in calls)
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def fallback_title(item: Item, width: int = 60) -> str:
    """Return a title for a conversation without a typed message, from one item; a summary is named as such."""
    return _shorten_to_line(f"summary: {summary_text(item)}", width) if is_summary(item) else item_preview(item, width)


def _field_texts(item: Item) -> list[str]:
    texts: list[str] = []
    for field in ("summary", "content", "output"):
        value = item.get(field)
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            texts += _part_texts(value)
    return texts


def _part_texts(parts: list[Json]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict):
            yield from (part[field] for field in TEXT_FIELDS if isinstance(part.get(field), str))


OPTIONAL_ID_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "compaction",
    }
)
"""Types whose id a client may leave out; every other type keeps its id."""


def user_message(text: str, *parts: Json) -> dict[str, Json]:
    """Return a user's message; `parts` are further content parts, such as images and files."""
    content = [{"type": "input_text", "text": text}, *parts] if text or not parts else list(parts)
    return {"type": "message", "role": "user", "content": content}


def developer_message(text: str) -> dict[str, Json]:
    """Return a message with instructions."""
    return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}


def assistant_message(text: str) -> dict[str, Json]:
    """Return an assistant's message without id or status, as a client may write it."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def to_sendable(item: Item) -> Item | None:
    """Return `item` in a form for a server that never confirmed it; None when nothing is left.

    A partial message becomes its text. A server accepts no partial call and no partial reasoning, so both
    are left out. A tool output is always complete, also when it reports a failure of the tool.
    """
    if not is_incomplete_item(item) or is_client_output(item):
        return with_json_arguments(item) if item_type(item) == "function_call" else item
    if item_type(item) == "message" and item_text(item):
        return assistant_message(item_text(item)) if item.get("role") == "assistant" else item
    return None


def with_json_arguments(call: Item) -> Item:
    """Return a function call whose arguments are the text of a JSON object: many servers refuse any other.

    Other text is kept in its member `arguments`.
    """
    arguments = call.get("arguments") or "{}"
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        is_object = False
    if not is_object:
        arguments = json.dumps(arguments if isinstance(arguments, dict) else {"arguments": arguments})
    return call if arguments == call.get("arguments") else {**call, "arguments": arguments}


def to_resendable(item: Item) -> Item | None:
    """Return `item` in the form in which the client that owns the history sends it again; None when it is left out.

    Reasoning that is not encrypted exists only at the server that made it.
    """
    kind = item_type(item)
    if kind == "reasoning" and not item.get(ENCRYPTED_FIELD):
        return None
    item = with_json_arguments(item) if kind == "function_call" else item
    if "id" not in item or kind not in OPTIONAL_ID_TYPES:
        return item
    resendable = dict(item)
    del resendable["id"]
    return resendable


MAX_ID_CHARS = 512
"""Characters; the longest known ids of gateways have about 300."""

# Not "." and "..": an id may become a part of a path.
ID_PATTERN = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9_.:=+~@$-]{{1,{MAX_ID_CHARS}}}", re.ASCII)


def is_valid_id(value: object) -> bool:
    """Return whether `value` is a well-formed id."""
    return isinstance(value, str) and ID_PATTERN.fullmatch(value) is not None
