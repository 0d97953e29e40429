"""Convert history items to messages of chat completions.

    instructions, system, developer     system, the only such role that every server knows
    user                                user: a string, or parts if it has more than text
    assistant, function_call            assistant: all calls of one response in one message, with its text
    function_call_output                tool; its images follow in a user message
    reasoning                           omitted, except for a server that needs its own (DeepSeek)
    anything else                       Unsupported

Tool messages must follow the message with the calls directly. DeepSeek rejects a turn with calls and no
`reasoning_content`: there every message of such a turn has it, empty if another model made the call.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence

from convo.errors import InputFault, Unsupported
from convo.history.items import (
    Item,
    Json,
    is_assistant_message,
    is_client_call,
    is_client_output,
    is_user_message,
    item_type,
)
from convo.models.base import (
    ENCRYPTED_CONTENT,
    IssuerTag,
    RoleGroup,
    group_by_role,
    read_required_str,
    untag_item,
)

ChatMessage = dict[str, Json]

_ROLES = {"user": "user", "system": "system", "developer": "system"}


def build_chat_messages(
    items: Iterable[Item],
    model_label: str,
    instructions: str | None = None,
    *,
    reasoning_issuer: IssuerTag | None = None,
) -> list[ChatMessage]:
    """Translate a history to messages.

    model_label:       the model's name in errors
    reasoning_issuer:  the issuer whose reasoning the server needs back (see `convo.models.base`)

    Raises Unsupported for an item, role or part that chat completions cannot represent, InputFault for an item or part
    that lacks a required field.
    """
    told = [{"role": "system", "content": instructions}] if instructions else []
    history = [item for item in items if reasoning_issuer or item_type(item) != "reasoning"]
    for exchange in _split_at_user_messages(group_by_role(history)):
        called = any(is_client_call(item) for _, run in exchange for item in run)
        by = reasoning_issuer if called else None
        for ours, run in exchange:
            told += _assistant_messages(run, model_label, by) if ours else _tool_and_user_messages(run, model_label)
    return told


def _split_at_user_messages(groups: Iterable[RoleGroup]) -> Iterator[list[RoleGroup]]:
    """Yield the groups of each turn; a turn begins with a user message."""
    exchange: list[RoleGroup] = []
    for ours, run in groups:
        if not ours and any(map(is_user_message, run)):
            asked = next(at for at, item in enumerate(run) if is_user_message(item))
            yield [*exchange, (False, run[:asked])]
            exchange = [(False, run[asked:])]
        else:
            exchange.append((ours, run))
    yield exchange


def encode_reasoning_text(text: str) -> str:
    """Encode a server's reasoning as the encrypted content of a reasoning item."""
    return b64encode(text.encode("utf-8", "surrogatepass")).decode()


# -- assistant messages ---------------------------------------------------------------------------


def _assistant_messages(items: Sequence[Item], model_label: str, issuer: IssuerTag | None) -> list[ChatMessage]:
    calls = [_tool_call(item, model_label) for item in items if is_client_call(item)]
    words = [
        _translate_text_content(item.get("content"), model_label, "an assistant message")
        for item in items
        if is_assistant_message(item)
    ]
    thoughts = {} if issuer is None else {"reasoning_content": _join_reasoning_text(items, issuer, model_label)}
    if not calls:
        return [{"role": "assistant", "content": said, **thoughts} for said in words]
    return [{"role": "assistant", "content": "\n".join(words) or None, **thoughts, "tool_calls": calls}]


def _join_reasoning_text(items: Sequence[Item], issuer: IssuerTag, model_label: str) -> str:
    ours = (untag_item(item, issuer, model_label) for item in items if item_type(item) == "reasoning")
    seals = (
        item[ENCRYPTED_CONTENT] for item in ours if item is not None and isinstance(item.get(ENCRYPTED_CONTENT), str)
    )
    return "".join(map(_decode_reasoning_text, seals))


def _decode_reasoning_text(seal: str) -> str:
    """Decode the text of `encode_reasoning_text`; "" if it was modified."""
    try:
        return b64decode(seal, validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""


def _tool_call(item: Item, model_label: str) -> Json:
    if item_type(item) != "function_call":
        raise Unsupported(model_label, f"{item_type(item)} items", param="input")
    function = {"name": read_required_str(item, "name"), "arguments": item.get("arguments") or "{}"}
    return {"id": read_required_str(item, "call_id"), "type": "function", "function": function}


# -- tool, user and system messages ---------------------------------------------------------------


def _tool_and_user_messages(items: Sequence[Item], model_label: str) -> list[ChatMessage]:
    """Build the tool messages, then one user message with their media, then the other messages."""
    outputs = [item for item in items if is_client_output(item)]
    told = [_tool_message(item, model_label) for item in outputs]
    shown = [part for item in outputs for part in _tool_output_media(item, model_label)]
    beside = [{"role": "user", "content": shown}] if shown else []
    return [*told, *beside, *_role_messages(items, model_label)]


def _role_messages(items: Sequence[Item], model_label: str) -> Iterator[ChatMessage]:
    for item in items:
        if is_client_output(item):
            continue
        if item_type(item) != "message":
            raise Unsupported(model_label, f"{item_type(item)} items", param="input")
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise Unsupported(model_label, f"messages with the role {item.get('role')!r}", param="input")
        yield {"role": role, "content": _translate_content(item.get("content"), model_label)}


def _tool_message(item: Item, model_label: str) -> ChatMessage:
    if item_type(item) != "function_call_output":
        raise Unsupported(model_label, f"{item_type(item)} items", param="input")
    said = _translate_content(item.get("output"), model_label)
    if not isinstance(said, str):
        said = "\n".join(part["text"] for part in said if part["type"] == "text") or _MEDIA_PLACEHOLDER
    return {"role": "tool", "tool_call_id": read_required_str(item, "call_id"), "content": said}


def _tool_output_media(item: Item, model_label: str) -> list[Json]:
    """Return the parts of an output that are not text, with a caption: a tool message holds text only."""
    said = _translate_content(item.get("output"), model_label)
    other = [] if isinstance(said, str) else [part for part in said if part["type"] != "text"]
    return [{"type": "text", "text": f"{_MEDIA_CAPTION} {item.get('call_id')}:"}, *other] if other else []


_MEDIA_PLACEHOLDER = "(shown in the next message)"
_MEDIA_CAPTION = "Shown by the tool call"


# -- parts ----------------------------------------------------------------------------------------


def _translate_content(content: Json, model_label: str) -> Json:
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        raise InputFault("a message's content is neither text nor a list of parts")
    parts = [_translate_part(part, model_label) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _translate_text_content(content: Json, model_label: str, where: str) -> str:
    """Translate the content of a message that allows text only."""
    said = _translate_content(content, model_label)
    if isinstance(said, str):
        return said
    other = next(part["type"] for part in said if part["type"] != "text")
    raise Unsupported(model_label, f"{other} parts in {where}", param="input")


def _translate_part(part: Json, model_label: str) -> Json:
    if not isinstance(part, dict):
        raise InputFault("a message's content contains a part that is not an object")
    form = _PART_TRANSLATORS.get(str(part.get("type")))
    translated = form(part) if form else None
    if translated is None:
        raise Unsupported(model_label, f"{part.get('type')} parts of this form", param="input")
    return translated


def _text_part(part: Json) -> Json:
    return {"type": "text", "text": str(part.get("text") or part.get("refusal") or "")}


def _image_part(part: Json) -> Json:
    """Translate an image; None for one that is stored on a server and known by id only."""
    url = part.get("image_url")
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}} if url else None


def _file_part(part: Json) -> Json:
    """Translate a file; None if its data is not in the request."""
    held = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
    return {"type": "file", "file": held} if "file_data" in held else None


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
            kinds = (
                (str(part.get("type")) for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
            )
            yield from (form for form in kinds if _PART_TRANSLATORS.get(form) is not _text_part)
