"""What a person reads in an item, piece by piece, whatever it will be drawn with.

prose     what somebody said
thought   what a model thought before it spoke
code      arguments, outputs, and items of a kind that nobody knows, as they are
image     an image; `words` is its URL
aside     what stands for something that cannot be shown
"""

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from convo.items import Item, Json, is_call, is_output, kind, text, with_characters

Form = Literal["prose", "thought", "code", "image", "aside"]

WORDS = ("text", "refusal", "transcript")

UNREADABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069"
    "\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
"""What is no text: controls that a terminal obeys, half characters, and what turns a line around."""


class Passage(NamedTuple):
    form: Form
    words: str


def title(item: Item) -> str:
    """Who says it, or what it is: "user", "call of weather", "output of call_1"."""
    if is_call(item):
        return legible(f"call of {item.get('name') or kind(item)}")
    if is_output(item):
        return legible(f"output of {item.get('call_id') or kind(item)}")
    return legible(str(item.get("role") or kind(item)))


def passages(item: Item) -> tuple[Passage, ...]:
    """The pieces of one item, in order; no words in them can be taken for anything but text."""
    found = [Passage(form, legible(words)) for form, words in _pieces(item) if words]
    return tuple(found) or (Passage("aside", "nothing"),)


def legible(words: str) -> str:
    return UNREADABLE.sub("\ufffd", words.replace("\r\n", "\n"))


def _pieces(item: Item) -> Iterator[tuple[Form, str]]:
    if kind(item) == "message":
        yield from _parts(item.get("content"))
    elif kind(item) == "reasoning":
        yield "thought", text(item)
        if not text(item):
            yield "aside", "a thought that is sealed" if item.get("encrypted_content") else "a thought without words"
    elif is_call(item):
        said = item.get("arguments", item.get("input"))
        yield "code", with_characters(said) if isinstance(said, str) else _json(dict(item))
    elif is_output(item):
        yield from _output(item.get("output"))
    elif kind(item) == "compaction":
        yield "aside", "what came before this was made smaller; it is sealed"
    else:
        yield "code", _json(dict(item))


def _output(output: Json) -> Iterator[tuple[Form, str]]:
    if isinstance(output, str):
        yield "code", output
    else:
        yield from _parts(output)


def _parts(content: Json) -> Iterator[tuple[Form, str]]:
    if isinstance(content, str):
        yield "prose", content
    elif isinstance(content, list):
        for part in content:
            yield from _part(part)
    elif content is not None:
        yield "code", _json(content)


def _part(part: Json) -> Iterator[tuple[Form, str]]:
    if not isinstance(part, dict):
        yield "code", _json(part)
        return
    words = next((part[name] for name in WORDS if isinstance(part.get(name), str)), None)
    if words is not None:
        yield "prose", words
    elif isinstance(part.get("image_url"), str):
        yield "image", part["image_url"]
    elif part.get("type") in ("input_file", "input_image"):
        named = part.get("filename") or part.get("file_id") or part.get("file_url") or "without a name"
        yield "aside", f"a file: {named}"
    else:
        yield "code", _json(part)


def _json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
