"""Convert history items to messages of Anthropic's Messages API.

    instructions, system, developer       system, in their order; later ones a system message after the user's, where
                                          the model has these
    user                                  user: text, images, documents
    function_call_output                  user: tool_result, before anything else of the message
    assistant, function_call              assistant: text, tool_use
    reasoning issued by this model        assistant: thinking or redacted_thinking, unchanged
    any other reasoning                   omitted
    anything else                         Unsupported

User and assistant messages alternate. A part with `prompt_cache_breakpoint` gets `cache_control`.
"""

import base64
import json
import re
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Sequence

from convo.errors import InputFault, UnsupportedValue
from convo.history.items import Item, Json, is_client_output, is_model_item, item_type, with_json_arguments
from convo.models.base import ENCRYPTED_CONTENT, IssuerTag, group_by_role, read_required_str, untag_item

AnthropicBlock = dict[str, Json]

CACHE_BREAKPOINT = "prompt_cache_breakpoint"
"""The field of a part that ends a prefix to cache."""

_CACHE_CONTROL = {"type": "ephemeral"}
_SYSTEM_ROLES = ("system", "developer")
THINKING_BLOCK_TYPES = ("thinking", "redacted_thinking")
_BLOCK_PATH = re.compile(r"messages\.(\d{1,9})\.content\.(\d{1,9})")
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def split_system_items(items: Sequence[Item], *, has_system_messages: bool) -> tuple[list[Item], list[Item]]:
    """Return the items of `system`, and all others.

    has_system_messages:  those after an answer that a user message, or a tool output, precedes or follows stay among
                          the others: Claude accepts a system message only between the user's turn and its own
    """
    first, others, waiting = list[Item](), list[Item](), list[Item]()
    has_answer = has_user = False
    for item in items:
        if item.get("role") in _SYSTEM_ROLES:
            (waiting if has_system_messages and has_answer else first).append(item)
            continue
        if is_model_item(item):
            (others if has_user else first).extend(waiting)
            waiting, has_answer = [], True
        has_user = not is_model_item(item)
        others.append(item)
    (others if has_user else first).extend(waiting)
    return first, others


def build_system_blocks(
    items: Iterable[Item], model_label: str, instructions: str | None = None
) -> list[AnthropicBlock]:
    """Build the text blocks of `system`. Raises Unsupported."""
    instruction_blocks = [_text_block(instructions)] if instructions else []
    blocks = [
        block
        for item in items
        if item.get("role") in _SYSTEM_ROLES
        for block in _content_blocks(item.get("content"), model_label)
    ]
    other = next((block["type"] for block in blocks if block["type"] != "text"), None)
    if other is not None:
        raise UnsupportedValue(model_label, f"{other} parts in a system message", param="input")
    return instruction_blocks + blocks


def build_anthropic_messages(items: Iterable[Item], model_label: str, issuer: IssuerTag) -> list[AnthropicBlock]:
    """Translate a history without the items of `system` (`split_system_items`) to alternating messages.

    model_label:  the model's name in errors
    issuer:       the issuer whose reasoning is sent back (see `convo.models.base`)

    Raises Unsupported for an item, role or part that the API cannot represent, InputFault for an item or part that
    lacks a required field.
    """
    history = (untag_item(item, issuer, model_label) for item in items)
    messages: list[AnthropicBlock] = []
    for is_assistant, group in group_by_role(item for item in history if item is not None):
        build_blocks = _assistant_blocks if is_assistant else _user_blocks
        system_blocks = build_system_blocks(group, model_label)
        own = (item for item in group if item.get("role") not in _SYSTEM_ROLES)
        content = _strip_trailing_thinking([block for item in own for block in build_blocks(item, model_label)])
        role = "assistant" if is_assistant else "user"
        # The group between two groups of one role may have no content.
        if content and messages and messages[-1]["role"] == role:
            messages[-1]["content"] += content
        elif content:
            messages.append({"role": role, "content": content})
        if system_blocks:
            messages.append({"role": "system", "content": system_blocks})
    return messages


def find_reasoning_id(
    path: str, messages: Sequence[AnthropicBlock], items: Iterable[Item], issuer: IssuerTag
) -> str | None:
    """Return the id of the reasoning item whose block is at `path` of `messages`; None if there is none.

    path:      as the API names it: "messages.N.content.N"
    messages:  the result of `build_anthropic_messages` for `items`
    """
    position = _BLOCK_PATH.fullmatch(path)
    if position is None:
        return None
    try:
        block = messages[int(position[1])]["content"][int(position[2])]
    except IndexError:
        return None
    for item in items:
        encrypted = item.get(ENCRYPTED_CONTENT)
        if isinstance(encrypted, str) and item_type(item) == "reasoning":
            untagged = untag_item(item, issuer, "")
            # Compared by content: items and blocks are not in the same positions.
            if untagged is not None and _decode_thinking_block(untagged) == [block]:
                return str(item["id"]) if item.get("id") else None
    return None


def limit_cache_breakpoints(blocks: Iterable[AnthropicBlock], cache_control: Json, limit: int) -> None:
    """Set `cache_control` on the last `limit` blocks that have one, and remove it from the others.

    blocks:  in the order of the prompt; those in a tool_result count, too
    """
    marked = [block for block in _with_nested_blocks(blocks) if "cache_control" in block]
    dropped_count = max(0, len(marked) - limit)
    for block in marked[:dropped_count]:
        del block["cache_control"]
    for block in marked[dropped_count:]:
        block["cache_control"] = cache_control


def list_dropped_breakpoints(items: Iterable[Item], limit: int) -> Iterator[str]:
    """List the breakpoints that `limit_cache_breakpoints` removes from a request, by type of part.

    items:  in the order of the prompt: those of `system` come first
    """
    part_types = [
        part.get("type")
        for item in items
        for parts in (item.get("content"), item.get("output"))
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get(CACHE_BREAKPOINT) and part.get("text") != ""
    ]
    yield from (f"input.{part_type}.{CACHE_BREAKPOINT}" for part_type in part_types[: max(0, len(part_types) - limit)])


def _with_nested_blocks(blocks: Iterable[AnthropicBlock]) -> Iterator[AnthropicBlock]:
    for block in blocks:
        if block["type"] == "tool_result":
            yield from block.get("content") or ()
        yield block


def _strip_trailing_thinking(content: list[AnthropicBlock]) -> list[AnthropicBlock]:
    """Remove thinking blocks at the end of a message, which the API rejects."""
    end = max((index for index, block in enumerate(content, 1) if block["type"] not in THINKING_BLOCK_TYPES), default=0)
    return content[:end]


# -- assistant blocks -----------------------------------------------------------------------------


def _assistant_blocks(item: Item, model_label: str) -> list[AnthropicBlock]:
    match item_type(item):
        case "message":
            return _content_blocks(item.get("content"), model_label)
        case "function_call":
            call_id, name = read_required_str(item, "call_id"), read_required_str(item, "name")
            arguments = json.loads(with_json_arguments(item)["arguments"])
            return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]
        case "reasoning":
            return _decode_thinking_block(item)
    raise UnsupportedValue(model_label, f"{item_type(item)} items", param="input")


def _decode_thinking_block(item: Item) -> list[AnthropicBlock]:
    """Decode the block of `encode_thinking_block`; empty if there is none or it was modified."""
    encrypted = item.get(ENCRYPTED_CONTENT)
    try:
        block = json.loads(base64.b64decode(encrypted if isinstance(encrypted, str) else "", validate=True))
    except (NotBase64, ValueError):
        return []
    return [block] if isinstance(block, dict) else []


# -- user blocks ----------------------------------------------------------------------------------


def _user_blocks(item: Item, model_label: str) -> list[AnthropicBlock]:
    if item_type(item) == "function_call_output":
        return [_tool_result_block(item, model_label)]
    if is_client_output(item) or item_type(item) != "message":
        raise UnsupportedValue(model_label, f"{item_type(item)} items", param="input")
    if item.get("role") != "user":
        raise UnsupportedValue(model_label, f"messages with the role {item.get('role')!r}", param="input")
    return _content_blocks(item.get("content"), model_label)


def _tool_result_block(item: Item, model_label: str) -> AnthropicBlock:
    error_fields = {"is_error": True} if item.get("status") == "incomplete" else {}
    content = _content_blocks(item.get("output"), model_label)
    return {
        "type": "tool_result",
        "tool_use_id": read_required_str(item, "call_id"),
        **({"content": content} if content else {}),
        **error_fields,
    }


# -- parts ----------------------------------------------------------------------------------------


def _content_blocks(content: Json, model_label: str) -> list[AnthropicBlock]:
    """Build the blocks of a message or an output. Empty text is omitted, because the API rejects it."""
    if isinstance(content, str) or content is None:
        return [_text_block(content)] if content else []
    if not isinstance(content, list):
        raise InputFault("a message's content is neither text nor a list of parts")
    return list(_part_blocks(content, model_label))


def _part_blocks(parts: Sequence[Json], model_label: str) -> Iterator[AnthropicBlock]:
    for part in parts:
        if not isinstance(part, dict):
            raise InputFault("a message's content contains a part that is not an object")
        translate = _PART_TRANSLATORS.get(str(part.get("type")))
        block = translate(part) if translate else None
        if block is None:
            raise UnsupportedValue(model_label, f"{part.get('type')} parts of this form", param="input")
        if block != _text_block(""):
            yield {**block, "cache_control": _CACHE_CONTROL} if part.get(CACHE_BREAKPOINT) else block


def _text_block(text: str) -> AnthropicBlock:
    return {"type": "text", "text": text}


def _text_part_block(part: Json) -> AnthropicBlock:
    return _text_block(str(part.get("text") or part.get("refusal") or ""))


def _image_block(part: Json) -> AnthropicBlock | None:
    """Translate an image; None if it is known by id only or has an unsupported media type."""
    source = _media_source(part.get("image_url"))
    if source is None or (source["type"] == "base64" and source["media_type"] not in _IMAGE_TYPES):
        return None
    return {"type": "image", "source": source}


def _document_block(part: Json) -> AnthropicBlock | None:
    """Translate a PDF or plain text; None for any other file and for a file that is known by id only."""
    source = _media_source(part.get("file_url") or part.get("file_data"))
    if source is None:
        return None
    if source["type"] == "base64" and source["media_type"] == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": _decode_text_file(source["data"])}
    elif source["type"] == "base64" and source["media_type"] != "application/pdf":
        return None
    title = {"title": part["filename"]} if part.get("filename") else {}
    return {"type": "document", "source": source, **title}


def _media_source(url: Json) -> AnthropicBlock | None:
    if not isinstance(url, str):
        return None
    if url.startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    prefix, marker, data = url.partition(";base64,")
    if not marker or not prefix.startswith("data:"):
        return None
    return {"type": "base64", "media_type": prefix.removeprefix("data:").partition(";")[0].lower(), "data": data}


def _decode_text_file(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (NotBase64, UnicodeDecodeError) as error:
        raise InputFault("a text/plain file does not contain text") from error


_PART_TRANSLATORS: dict[str, Callable[[Json], AnthropicBlock | None]] = {
    "input_text": _text_part_block,
    "output_text": _text_part_block,
    "text": _text_part_block,
    "refusal": _text_part_block,
    "input_image": _image_block,
    "input_file": _document_block,
}
"""Translations by type of part; a refusal is text that the assistant wrote, so it is sent as text."""
