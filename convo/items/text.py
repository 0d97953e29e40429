"""What a person would read in an item.

Words stand in different places in a message, a summary and an output, as a string or in parts.
Lists, searches and names for sessions all mean the same words, so they are found here.
"""

import re
from collections.abc import Iterator

from convo.items.kinds import kind
from convo.items.shapes import Item, Json

TEXT_FIELDS = ("text", "refusal", "transcript")


ESCAPED = re.compile(
    r"\\(?:(?P<code>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|.)", re.DOTALL
)
"""An escape in JSON text, a pair of surrogates as one."""


def text(item: Item) -> str:
    """All the words of a message, a summary or an output, one part a line; "" when it has none."""
    return "\n".join(part for part in _texts(item) if part)


def searchable(item: Item) -> str:
    """What a search should find `item` by: its words, and the names and arguments of calls."""
    named = (item.get(field) for field in ("name", "arguments", "input"))
    return "\n".join(found for found in (text(item), *named) if isinstance(found, str) and found)


def with_characters(text: str) -> str:
    r"""JSON text with the characters that its escapes name: `Z\u00fcrich` becomes `Zürich`.

    Escapes of controls, marks that change the direction of a line, and anything else that does not print stay.
    """
    return ESCAPED.sub(_character, text) if "\\u" in text else text


def _character(found: re.Match[str]) -> str:
    if not found["code"]:
        return found[0]  # a backslash that is escaped itself
    character = bytes.fromhex(found["code"].replace("\\", "").replace("u", "")).decode("utf-16-be", "replace")
    return character if character.isprintable() and character not in '"\\\ufffd' else found[0]


def first_words(item: Item, width: int = 60) -> str:
    """One line of at most `width` characters that says what `item` is about."""
    words = " ".join(text(item).split(maxsplit=width + 1)[: width + 1])  # more words do not fit
    if not words:
        words = f"[{kind(item)}]" + (f" {item['name']}" if isinstance(item.get("name"), str) else "")
    return words if len(words) <= width else words[: width - 1] + "…"


def _texts(item: Item) -> list[str]:
    found: list[str] = []
    for field in ("summary", "content", "output"):
        value = item.get(field)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += _words(value)
    return found


def _words(parts: list[Json]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict):
            yield from (part[field] for field in TEXT_FIELDS if isinstance(part.get(field), str))
