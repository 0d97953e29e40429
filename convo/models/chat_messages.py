"""Convert history items to messages of chat completions.

    instructions, system, developer     system, the only such role that every server knows
    user                                user: a string, or parts if it has more than text
    assistant, function_call            assistant: all calls of one response in one message, with its text
    custom_tool_call                    the same, for a model with custom tools
    function_call_output                tool; its images follow in a user message
    reasoning                           the fields of its server that go back to it, else omitted
    anything else                       Unsupported

Tool messages must follow the message with the calls directly. DeepSeek rejects a turn with calls and no
`reasoning_content`: there every message of such a turn has it, empty if another model made the call.

Some servers need fields of their answer in the next request: without them Gemini refuses it (signatures of calls), and
OpenRouter and Kimi reason again. The fields are stored as encrypted content of a reasoning item before the message or
call, tagged with its issuer: base64 of NUL and a JSON object, or of the text of `reasoning_content` alone.
"""

import json
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from convo.errors import InputFault, UnsupportedValue
from convo.history.canonical import STRICT_JSON_DECODER
from convo.history.items import (
    CLIENT_OUTPUT_TYPES,
    Item,
    Json,
    is_assistant_message,
    is_client_call,
    is_user_message,
    item_type,
    with_json_arguments,
)
from convo.history.pairing import make_pair_step
from convo.history.tree import JoinedList, derive
from convo.models.base import (
    ENCRYPTED_CONTENT,
    NO_ISSUER,
    IssuerTag,
    RoleGroup,
    group_by_role,
    read_required_str,
    untag_item,
)

ChatMessage = dict[str, Json]

_ROLES = {"user": "user", "system": "system", "developer": "system"}


def build_chat_messages(
    items: Sequence[Item],
    model_label: str,
    instructions: str | None = None,
    *,
    issuer: IssuerTag = NO_ISSUER,
    needs_reasoning: bool = False,
) -> list[ChatMessage]:
    """Translate a history to messages.

    model_label:      the model's name in errors
    issuer:           the issuer whose reasoning goes back to the server (see `convo.models.base`)
    needs_reasoning:  in a turn with calls each message of the assistant has `reasoning_content`

    Raises Unsupported for an item, role or part that chat completions cannot represent, InputFault for an item or part
    that lacks a required field.
    """
    system = [{"role": "system", "content": instructions}] if instructions else []
    # Such an output moves to its call in an earlier turn, so the turns cannot be converted one by one.
    if derive(items, _make_late_output_step):
        return [*system, *_convert(items, model_label, issuer, needs_reasoning=needs_reasoning)]
    starts = derive(items, _make_turn_start_step)
    earlier = derive(items, _make_turn_step, model_label, issuer, needs_reasoning)
    last_turn = items[starts[-1] if starts else 0 :]
    return JoinedList(system, earlier, _convert(last_turn, model_label, issuer, needs_reasoning=needs_reasoning))


def _make_turn_start_step() -> Callable[[Sequence[Item]], list[int]]:
    """Return a step of `derive` with the indexes at which turns begin that are converted by themselves."""
    is_after_answer, start = False, 0

    def step(items: Sequence[Item]) -> list[int]:
        nonlocal is_after_answer, start
        starts = []
        for index, item in enumerate(items, start):
            if is_after_answer and is_user_message(item):
                starts.append(index)
            is_after_answer = is_assistant_message(item)
        start += len(items)
        return starts

    return step


def _make_turn_step(
    model_label: str, issuer: IssuerTag, needs_reasoning: bool
) -> Callable[[Sequence[Item]], list[ChatMessage]]:
    """Return a step of `derive` with the messages of the turns that have ended."""
    find_starts, last_turn, start = _make_turn_start_step(), list[Item](), 0

    def step(items: Sequence[Item]) -> list[ChatMessage]:
        nonlocal last_turn, start
        starts = find_starts(items)
        last_turn += items
        if not starts:
            return []
        ended, last_turn, start = last_turn[: starts[-1] - start], last_turn[starts[-1] - start :], starts[-1]
        return _convert(ended, model_label, issuer, needs_reasoning=needs_reasoning)

    return step


def _make_late_output_step() -> Callable[[Sequence[Item]], list[int]]:
    """Return a step of `derive` with the indexes of outputs whose call belongs to an earlier turn."""
    find_starts, pair, starts = _make_turn_start_step(), make_pair_step(), [0]

    def step(items: Sequence[Item]) -> list[int]:
        starts.extend(find_starts(items))
        return [
            index for index, call_index, _ in pair(items) if 0 <= call_index < starts[bisect_right(starts, index) - 1]
        ]

    return step


def _convert(items: Iterable[Item], model_label: str, issuer: IssuerTag, *, needs_reasoning: bool) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    for turn in _split_at_user_messages(group_by_role(items)):
        has_calls = any(item.get("type") != "message" and is_client_call(item) for _, group in turn for item in group)
        for is_assistant, group in turn:
            if is_assistant:
                messages += _assistant_messages(
                    group, model_label, issuer, has_calls=has_calls, needs_reasoning=needs_reasoning
                )
            else:
                messages += _tool_and_user_messages(group, model_label)
    return messages


def _split_at_user_messages(groups: Iterable[RoleGroup]) -> Iterator[list[RoleGroup]]:
    """Yield the groups of each turn; a turn begins with a user message."""
    turn: list[RoleGroup] = []
    for is_assistant, group in groups:
        start = (
            None if is_assistant else next((index for index, item in enumerate(group) if is_user_message(item)), None)
        )
        if start is None:
            turn.append((is_assistant, group))
            continue
        if earlier := group[:start]:
            turn.append((False, earlier))
        yield turn
        turn = [(False, group[start:])]
    yield turn


REASONING_CONTENT = "reasoning_content"

RETURNED_MESSAGE_FIELDS = ("reasoning_details", "extra_content")
RETURNED_CALL_FIELDS = ("extra_content",)
"""The fields that go back to the server besides `reasoning_content`: OpenRouter's, and Gemini's with signatures."""


def pick_fields(fields: Mapping[str, Json], names: Collection[str]) -> dict[str, Json]:
    """Return the fields with these names that have a value."""
    return {name: fields[name] for name in names if fields.get(name)}


def encode_returned_fields(*, message: Mapping[str, Json] | None = None, call: Mapping[str, Json] | None = None) -> str:
    """Encode fields of a message, or of the call that follows, as the encrypted content of a reasoning item."""
    if message is not None and set(message) == {REASONING_CONTENT}:
        text = message[REASONING_CONTENT]
    else:
        text = "\0" + json.dumps({"call": call} if message is None else {"message": message})
    # A text may hold half of a surrogate pair, which UTF-8 refuses.
    return b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _decode_returned_fields(encrypted: str) -> dict[str, dict[str, Json]]:
    """Decode the result of `encode_returned_fields`; {} if it was modified."""
    try:
        text = b64decode(encrypted, validate=True).decode("utf-8", "surrogatepass")
        is_json = text.startswith("\0")
        decoded = STRICT_JSON_DECODER.decode(text[1:]) if is_json else {"message": {REASONING_CONTENT: text}}
    except (ValueError, RecursionError):
        return {}
    names = {"message": (REASONING_CONTENT, *RETURNED_MESSAGE_FIELDS), "call": RETURNED_CALL_FIELDS}
    return {
        kind: pick_fields(decoded[kind], names[kind])
        for kind in names
        if isinstance(decoded, dict) and isinstance(decoded.get(kind), dict)
    }


# -- assistant messages ---------------------------------------------------------------------------


def _assistant_messages(
    items: Sequence[Item], model_label: str, issuer: IssuerTag, *, has_calls: bool, needs_reasoning: bool
) -> list[ChatMessage]:
    """Build the messages of one response, with what its server needs back.

    has_calls:  the turn has calls; without any, servers need no `reasoning_content`
    """
    texts: list[str] = []
    calls: list[Json] = []
    # DeepSeek refuses a turn with calls in which a message of the assistant lacks the field.
    fields: dict[str, Json] = {REASONING_CONTENT: ""} if has_calls and needs_reasoning else {}
    call_fields: dict[str, Json] = {}
    for item in items:
        kind = item_type(item)
        if kind == "message":
            texts.append(_message_text(item, model_label))
        elif kind == "reasoning":
            untagged = untag_item(item, issuer, model_label)
            returned = _decode_returned_fields(untagged.get(ENCRYPTED_CONTENT) or "") if untagged else {}
            call_fields |= returned.get("call", {})
            for name, value in returned.get("message", {}).items():
                if name != REASONING_CONTENT or has_calls:
                    fields[name] = fields[name] + value if type(fields.get(name)) is type(value) is not dict else value
        else:
            calls.append({**_tool_call(item, model_label), **call_fields})
            call_fields = {}
    if calls:
        return [{"role": "assistant", "content": "\n".join(texts) or None, **fields, "tool_calls": calls}]
    return [{"role": "assistant", "content": text, **fields} for text in texts]


def _message_text(item: Item, model_label: str) -> str:
    """Translate the content of an assistant's message, which allows text only."""
    content = _translate_content(item.get("content"), model_label)
    if isinstance(content, str):
        return content
    other = next(part["type"] for part in content if part["type"] != "text")
    raise UnsupportedValue(model_label, f"{other} parts in an assistant message", param="input")


def _tool_call(item: Item, model_label: str) -> Json:
    if item_type(item) == "custom_tool_call":
        custom = {name: read_required_str(item, name) for name in ("name", "input")}
        return {"id": read_required_str(item, "call_id"), "type": "custom", "custom": custom}
    if item_type(item) != "function_call":
        raise UnsupportedValue(model_label, f"{item_type(item)} items", param="input")
    function = {"name": read_required_str(item, "name"), "arguments": with_json_arguments(item)["arguments"]}
    return {"id": read_required_str(item, "call_id"), "type": "function", "function": function}


# -- tool, user and system messages ---------------------------------------------------------------


def _tool_and_user_messages(items: Sequence[Item], model_label: str) -> list[ChatMessage]:
    """Build the tool messages, then one user message with their media, then the other messages."""
    messages: list[ChatMessage] = []
    media: list[Json] = []
    others: list[tuple[str, Item]] = []
    for item in items:
        kind = item_type(item)
        if kind not in CLIENT_OUTPUT_TYPES:
            others.append((kind, item))
            continue
        if kind != "function_call_output":
            raise UnsupportedValue(model_label, f"{kind} items", param="input")
        content = _translate_content(item.get("output"), model_label)
        if not isinstance(content, str):
            # A tool message holds text only, so its media go into a user message.
            if media_parts := [part for part in content if part["type"] != "text"]:
                media += [{"type": "text", "text": f"{_MEDIA_CAPTION} {item.get('call_id')}:"}, *media_parts]
            content = "\n".join(part["text"] for part in content if part["type"] == "text") or _MEDIA_PLACEHOLDER
        messages.append({"role": "tool", "tool_call_id": read_required_str(item, "call_id"), "content": content})
    if media:
        messages.append({"role": "user", "content": media})
    for kind, item in others:
        if kind != "message":
            raise UnsupportedValue(model_label, f"{kind} items", param="input")
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise UnsupportedValue(model_label, f"messages with the role {item.get('role')!r}", param="input")
        messages.append({"role": role, "content": _translate_content(item.get("content"), model_label)})
    return messages


_MEDIA_PLACEHOLDER = "(shown in the next message)"
_MEDIA_CAPTION = "Shown by the tool call"


# -- parts ----------------------------------------------------------------------------------------


def _translate_content(content: Json, model_label: str) -> Json:
    """Translate content: a string if it is text only, else a list of parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        raise InputFault("a message's content is neither text nor a list of parts")
    only = content[0] if len(content) == 1 else None
    if isinstance(only, dict) and only.get("type") in ("input_text", "output_text") and only.get("text"):
        return str(only["text"])  # the commonest content
    parts: list[Json] = []
    for part in content:
        if not isinstance(part, dict):
            raise InputFault("a message's content contains a part that is not an object")
        translate = _PART_TRANSLATORS.get(str(part.get("type")))
        translated = translate(part) if translate else None
        if translated is None:
            raise UnsupportedValue(model_label, f"{part.get('type')} parts of this form", param="input")
        parts.append(translated)
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _text_part(part: Json) -> Json:
    return {"type": "text", "text": str(part.get("text") or part.get("refusal") or "")}


def _image_part(part: Json) -> Json:
    """Translate an image; None for an image that is stored on a server and known by id only."""
    url = part.get("image_url")
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}} if url else None


def _file_part(part: Json) -> Json:
    """Translate a file; None if its data is not in the request."""
    file = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
    return {"type": "file", "file": file} if "file_data" in file else None


def _audio_part(part: Json) -> Json:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


_PART_TRANSLATORS: dict[str, Callable[[Json], Json]] = {
    "input_text": _text_part,
    "output_text": _text_part,
    "text": _text_part,
    "refusal": _text_part,
    "input_image": _image_part,
    "input_file": _file_part,
    "input_audio": _audio_part,
}
"""Translations by type of part; a refusal is text that the assistant wrote, so it is sent as text."""


def list_media_types(items: Iterable[Item]) -> Iterator[str]:
    """Yield the types of the parts that are not text, for models that accept text only."""
    for item in items:
        for field in ("content", "output"):
            parts = item.get(field)
            part_types = (
                (str(part.get("type")) for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
            )
            yield from (part_type for part_type in part_types if _PART_TRANSLATORS.get(part_type) is not _text_part)
