"""A history of items as the messages of chat completions.

    instructions, system, developer     system, the only role for it that every server knows
    user                                user: one string, or parts when there is more than text
    assistant, function_call            assistant: all calls of one answer in one message, with its words
    function_call_output                tool
    reasoning                           left out: chat completions has no place for it
    anything else                       Unsupported, by its name

Chat completions wants the outputs right behind the message that holds all the calls, so what the
assistant said between its calls goes into the same message.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from convo.errors import InputFault, Unsupported
from convo.items import Item, Json, is_assistant, kind

Message = dict[str, Json]

ROLES = {"user": "user", "system": "system", "developer": "system"}


def messages(items: Iterable[Item], who: str, instructions: str | None = None) -> list[Message]:
    """Translate a history.

    who:     the model, for the error's sentence
    raises:  Unsupported  an item, role or part that chat completions cannot carry
             InputFault   an item or part without what its kind must have
    """
    told = [{"role": "system", "content": instructions}] if instructions else []
    for ours, group in groupby((item for item in items if kind(item) != "reasoning"), key=_is_the_assistants):
        run = list(group)
        told += _answers(run, who) if ours else [_message(item, who) for item in run]
    return told


def _is_the_assistants(item: Item) -> bool:
    return is_assistant(item) or kind(item) == "function_call"


def _answers(items: Sequence[Item], who: str) -> list[Message]:
    calls = [_call(item) for item in items if kind(item) == "function_call"]
    words = [_words(item.get("content"), who, "an answer") for item in items if is_assistant(item)]
    if not calls:
        return [{"role": "assistant", "content": said} for said in words]
    return [{"role": "assistant", "content": "\n".join(words) or None, "tool_calls": calls}]


def _call(item: Item) -> Json:
    function = {"name": _named(item, "name"), "arguments": item.get("arguments") or "{}"}
    return {"id": _named(item, "call_id"), "type": "function", "function": function}


def _message(item: Item, who: str) -> Message:
    if kind(item) == "function_call_output":
        output = _words(item.get("output"), who, "a tool's output")
        return {"role": "tool", "tool_call_id": _named(item, "call_id"), "content": output}
    if kind(item) != "message":
        raise Unsupported(who, f"{kind(item)} items", param="input")
    role = ROLES.get(str(item.get("role")))
    if role is None:
        raise Unsupported(who, f"messages of the role {item.get('role')!r}", param="input")
    return {"role": role, "content": _content(item.get("content"), who)}


def _named(item: Item, field: str) -> str:
    """A string that an item of this kind cannot be without."""
    value = item.get(field)
    if not isinstance(value, str):
        raise InputFault(f"an item of the kind {kind(item)} has no {field!r}")
    return value


def _content(content: Json, who: str) -> Json:
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        raise InputFault("a message's content is neither text nor a list of parts")
    parts = [_part(part, who) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _words(content: Json, who: str, where: str) -> str:
    """The text of a message that may hold nothing else."""
    said = _content(content, who)
    if isinstance(said, str):
        return said
    other = next(part["type"] for part in said if part["type"] != "text")
    raise Unsupported(who, f"{other} parts in {where}", param="input")


def _part(part: Json, who: str) -> Json:
    if not isinstance(part, dict):
        raise InputFault("a message's content holds a part that is not an object")
    form = PARTS.get(str(part.get("type")))
    translated = form(part) if form else None
    if translated is None:
        raise Unsupported(who, f"{part.get('type')} parts of this form", param="input")
    return translated


def _text(part: Json) -> Json:
    return {"type": "text", "text": str(part.get("text") or part.get("refusal") or "")}


def _image(part: Json) -> Json:
    """None for an image that lies at a server under its id."""
    url = part.get("image_url")
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}} if url else None


def _file(part: Json) -> Json:
    """None for a file that is not in the request itself."""
    held = {name: part[name] for name in ("filename", "file_data") if part.get(name)}
    return {"type": "file", "file": held} if "file_data" in held else None


def _audio(part: Json) -> Json:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


PARTS: dict[str, Callable[[Json], Json]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _text,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
"""How each kind of part is said; a refusal is what the assistant said, so it goes back as words."""


def media(items: Iterable[Item]) -> Iterator[str]:
    """The kinds of parts in `items` that are not text, for models that read nothing else."""
    for item in items:
        for field in ("content", "output"):
            parts = item.get(field)
            kinds = (
                (str(part.get("type")) for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
            )
            yield from (form for form in kinds if PARTS.get(form) is not _text)
