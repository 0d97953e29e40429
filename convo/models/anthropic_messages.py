"""A history of items as the messages of the Messages API.

    instructions, system, developer       system, in their order, wherever they stood
    user                                  user: text, images, documents
    function_call_output                  user: tool_result, before anything else of the turn
    assistant, function_call              assistant: text, tool_use
    reasoning that this model sealed      assistant: thinking or redacted_thinking, exactly as it came
    any other reasoning                   left out
    anything else                         Unsupported, by its name

The two sides take turns. A call's name for itself that the API would not take gets another one,
the same each time, in the call and in its output.
"""

import base64
import json
import re
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

from convo.errors import InputFault, Unsupported
from convo.items import Item, Json, is_output, kind
from convo.models.sealed import SEAL, Maker, opened
from convo.models.turns import turns

Block = dict[str, Json]

SYSTEM = ("system", "developer")
THOUGHTS = ("thinking", "redacted_thinking")
LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def system(items: Iterable[Item], who: str, instructions: str | None = None) -> list[Block]:
    """What the system says, as blocks of text. raises: Unsupported"""
    told = [_text(instructions)] if instructions else []
    blocks = [block for item in items if item.get("role") in SYSTEM for block in _content(item.get("content"), who)]
    other = next((block["type"] for block in blocks if block["type"] != "text"), None)
    if other is not None:
        raise Unsupported(who, f"{other} parts in what the system says", param="input")
    return told + blocks


def messages(items: Iterable[Item], who: str, by: Maker) -> list[Block]:
    """What was said, by turns.

    who:     the model, for the error's sentence
    by:      whose seals can be opened, see `convo.models.sealed`
    raises:  Unsupported  an item, role or part that the API cannot carry
             InputFault   an item or part without what its kind must have
    """
    history = (opened(item, by, who) for item in items if item.get("role") not in SYSTEM)
    told: list[Block] = []
    for ours, run in turns(item for item in history if item is not None):
        form = _assistants if ours else _users
        content = _closed([block for item in run for block in form(item, who)])
        role = "assistant" if ours else "user"
        if content and told and told[-1]["role"] == role:
            told[-1]["content"] += content
        elif content:
            told.append({"role": role, "content": content})
    return told


def _closed(content: list[Block]) -> list[Block]:
    """`content` without thoughts at its end, which led to nothing: the API does not take them."""
    said = max((at for at, block in enumerate(content, 1) if block["type"] not in THOUGHTS), default=0)
    return content[:said]


def thought(block: Block) -> str:
    """A block of thinking as it is sealed in a reasoning item."""
    return base64.b64encode(json.dumps(block).encode()).decode()


# -- the assistant's ------------------------------------------------------------------------------


def _assistants(item: Item, who: str) -> list[Block]:
    match kind(item):
        case "message":
            return _content(item.get("content"), who)
        case "function_call":
            asked = {"id": _call_id(item), "name": _named(item, "name"), "input": _arguments(item)}
            return [{"type": "tool_use", **asked}]
        case "reasoning":
            return _thoughts(item)
    raise Unsupported(who, f"{kind(item)} items", param="input")


def _thoughts(item: Item) -> list[Block]:
    """The block that a seal of our own holds; nothing where it was not sealed, or somebody changed it."""
    seal = item.get(SEAL)
    try:
        block = json.loads(base64.b64decode(seal if isinstance(seal, str) else "", validate=True))
    except (NotBase64, ValueError):
        return []
    return [block] if isinstance(block, dict) else []


def _arguments(item: Item) -> Json:
    """A call's arguments as an object; what is none is told as it was written."""
    written = item.get("arguments") or "{}"
    try:
        read = json.loads(written)
    except (TypeError, ValueError):
        read = None
    return read if isinstance(read, dict) else {"arguments": written}


def _call_id(item: Item) -> str:
    named = _named(item, "call_id")
    return named if LEGAL_ID.fullmatch(named) else f"call_{sha256(named.encode('utf-8', 'replace')).hexdigest()[:32]}"


# -- everybody else's -----------------------------------------------------------------------------


def _users(item: Item, who: str) -> list[Block]:
    if kind(item) == "function_call_output":
        return [_result(item, who)]
    if is_output(item) or kind(item) != "message":
        raise Unsupported(who, f"{kind(item)} items", param="input")
    if item.get("role") != "user":
        raise Unsupported(who, f"messages of the role {item.get('role')!r}", param="input")
    return _content(item.get("content"), who)


def _result(item: Item, who: str) -> Block:
    failed = {"is_error": True} if item.get("status") == "incomplete" else {}
    content = _content(item.get("output"), who)
    return {"type": "tool_result", "tool_use_id": _call_id(item), **({"content": content} if content else {}), **failed}


def _named(item: Item, field: str) -> str:
    """A string that an item of this kind cannot be without."""
    value = item.get(field)
    if not isinstance(value, str):
        raise InputFault(f"an item of the kind {kind(item)} has no {field!r}")
    return value


# -- parts ----------------------------------------------------------------------------------------


def _content(content: Json, who: str) -> list[Block]:
    """The blocks of a message or an output. Empty text is no block: the API does not take it."""
    if isinstance(content, str) or content is None:
        return [_text(content)] if content else []
    if not isinstance(content, list):
        raise InputFault("a message's content is neither text nor a list of parts")
    return list(_blocks(content, who))


def _blocks(parts: Sequence[Json], who: str) -> Iterator[Block]:
    for part in parts:
        if not isinstance(part, dict):
            raise InputFault("a message's content holds a part that is not an object")
        form = PARTS.get(str(part.get("type")))
        block = form(part) if form else None
        if block is None:
            raise Unsupported(who, f"{part.get('type')} parts of this form", param="input")
        if block != _text(""):
            yield block


def _text(words: str) -> Block:
    return {"type": "text", "text": words}


def _words(part: Json) -> Block:
    return _text(str(part.get("text") or part.get("refusal") or ""))


def _image(part: Json) -> Block | None:
    """None for an image that lies at another server under its id, or of a form that no model sees."""
    source = _source(part.get("image_url"))
    if source is None or (source["type"] == "base64" and source["media_type"] not in IMAGES):
        return None
    return {"type": "image", "source": source}


def _file(part: Json) -> Block | None:
    """A PDF or plain text; None for every other file, and for one that lies at another server under its id."""
    source = _source(part.get("file_url") or part.get("file_data"))
    if source is None:
        return None
    if source["type"] == "base64" and source["media_type"] == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": _decoded(source["data"])}
    elif source["type"] == "base64" and source["media_type"] != "application/pdf":
        return None
    title = {"title": part["filename"]} if part.get("filename") else {}
    return {"type": "document", "source": source, **title}


def _source(url: Json) -> Block | None:
    if not isinstance(url, str):
        return None
    if url.startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    form, encoded, data = url.partition(";base64,")
    if not encoded or not form.startswith("data:"):
        return None
    return {"type": "base64", "media_type": form.removeprefix("data:").partition(";")[0].lower(), "data": data}


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (NotBase64, UnicodeDecodeError) as wrong:
        raise InputFault("a file of the form text/plain holds no text") from wrong


PARTS: dict[str, Callable[[Json], Block | None]] = {
    "input_text": _words,
    "output_text": _words,
    "text": _words,
    "refusal": _words,
    "input_image": _image,
    "input_file": _file,
}
"""How each kind of part is said; a refusal is what the assistant said, so it goes back as words."""
