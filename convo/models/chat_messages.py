"""A history of items as the messages of chat completions.

    instructions, system, developer     system, the only role for it that every server knows
    user                                user: one string, or parts when there is more than text
    assistant, function_call            assistant: all calls of one answer in one message, with its words
    function_call_output                tool; images in it go into a user's message behind the tools'
    reasoning                           left out, but for a server that wants its own back
    anything else                       Unsupported, by its name

Chat completions wants the outputs right behind the message that holds all the calls, so what the
assistant said between its calls goes into the same message. DeepSeek thinks before it calls, and
refuses a history in which a turn with calls lacks the thoughts: there each message of such a turn
carries them, and an empty string where another model made the call.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence

from convo.errors import InputFault, Unsupported
from convo.items import Item, Json, is_assistant, is_call, is_output, is_user, kind
from convo.models.sealed import SEAL, Maker, opened
from convo.models.turns import Turn, turns

Message = dict[str, Json]

ROLES = {"user": "user", "system": "system", "developer": "system"}


def messages(
    items: Iterable[Item], who: str, instructions: str | None = None, *, wants_thoughts_of: Maker | None = None
) -> list[Message]:
    """Translate a history.

    who:                the model, for the error's sentence
    wants_thoughts_of:  the maker whose thoughts the server wants back, see `convo.models.sealed`
    raises:             Unsupported  an item, role or part that chat completions cannot carry
                        InputFault   an item or part without what its kind must have
    """
    told = [{"role": "system", "content": instructions}] if instructions else []
    history = [item for item in items if wants_thoughts_of or kind(item) != "reasoning"]
    for exchange in _exchanges(turns(history)):
        called = any(is_call(item) for _, run in exchange for item in run)
        by = wants_thoughts_of if called else None
        for ours, run in exchange:
            told += _answers(run, who, by) if ours else _others(run, who)
    return told


def _exchanges(runs: Iterable[Turn]) -> Iterator[list[Turn]]:
    """Turns from one thing that the user said up to the next one."""
    exchange: list[Turn] = []
    for ours, run in runs:
        if not ours and any(map(is_user, run)):
            asked = next(at for at, item in enumerate(run) if is_user(item))
            yield [*exchange, (False, run[:asked])]
            exchange = [(False, run[asked:])]
        else:
            exchange.append((ours, run))
    yield exchange


def sealed_thoughts(said: str) -> str:
    """What a server thought, as it is sealed in a reasoning item."""
    return b64encode(said.encode("utf-8", "surrogatepass")).decode()


# -- the assistant's ------------------------------------------------------------------------------


def _answers(items: Sequence[Item], who: str, by: Maker | None) -> list[Message]:
    calls = [_call(item, who) for item in items if is_call(item)]
    words = [_words(item.get("content"), who, "an answer") for item in items if is_assistant(item)]
    thoughts = {} if by is None else {"reasoning_content": _thoughts(items, by, who)}
    if not calls:
        return [{"role": "assistant", "content": said, **thoughts} for said in words]
    return [{"role": "assistant", "content": "\n".join(words) or None, **thoughts, "tool_calls": calls}]


def _thoughts(items: Sequence[Item], by: Maker, who: str) -> str:
    ours = (opened(item, by, who) for item in items if kind(item) == "reasoning")
    seals = (item[SEAL] for item in ours if item is not None and isinstance(item.get(SEAL), str))
    return "".join(map(_thought, seals))


def _thought(seal: str) -> str:
    """What `sealed_thoughts` sealed; nothing where somebody changed it."""
    try:
        return b64decode(seal, validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""


def _call(item: Item, who: str) -> Json:
    if kind(item) != "function_call":
        raise Unsupported(who, f"{kind(item)} items", param="input")
    function = {"name": _named(item, "name"), "arguments": item.get("arguments") or "{}"}
    return {"id": _named(item, "call_id"), "type": "function", "function": function}


# -- everybody else's -----------------------------------------------------------------------------


def _others(items: Sequence[Item], who: str) -> list[Message]:
    """The tools' messages, what they showed beside words, and everything else that was said."""
    outputs = [item for item in items if is_output(item)]
    told = [_output(item, who) for item in outputs]
    shown = [part for item in outputs for part in _shown(item, who)]
    beside = [{"role": "user", "content": shown}] if shown else []
    return [*told, *beside, *_said(items, who)]


def _said(items: Sequence[Item], who: str) -> Iterator[Message]:
    for item in items:
        if is_output(item):
            continue
        if kind(item) != "message":
            raise Unsupported(who, f"{kind(item)} items", param="input")
        role = ROLES.get(str(item.get("role")))
        if role is None:
            raise Unsupported(who, f"messages of the role {item.get('role')!r}", param="input")
        yield {"role": role, "content": _content(item.get("content"), who)}


def _output(item: Item, who: str) -> Message:
    if kind(item) != "function_call_output":
        raise Unsupported(who, f"{kind(item)} items", param="input")
    said = _content(item.get("output"), who)
    if not isinstance(said, str):
        said = "\n".join(part["text"] for part in said if part["type"] == "text") or SHOWN
    return {"role": "tool", "tool_call_id": _named(item, "call_id"), "content": said}


def _shown(item: Item, who: str) -> list[Json]:
    """What is more than words in an output, under the name of its call: a tool's message holds words alone."""
    said = _content(item.get("output"), who)
    other = [] if isinstance(said, str) else [part for part in said if part["type"] != "text"]
    return [{"type": "text", "text": f"{SHOWN_BY} {item.get('call_id')}:"}, *other] if other else []


SHOWN = "(shown in the next message)"
SHOWN_BY = "Shown by the tool call"


def _named(item: Item, field: str) -> str:
    """A string that an item of this kind cannot be without."""
    value = item.get(field)
    if not isinstance(value, str):
        raise InputFault(f"an item of the kind {kind(item)} has no {field!r}")
    return value


# -- parts ----------------------------------------------------------------------------------------


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
