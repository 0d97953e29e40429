"""What a person would read in an item."""

from collections.abc import Iterator

from convo.items.kinds import kind
from convo.items.shapes import Item, Json

TEXT_FIELDS = ("text", "refusal", "transcript")


def text(item: Item) -> str:
    """All the words of a message, a summary or an output, one part a line; "" when it has none."""
    return "\n".join(part for part in _texts(item) if part)


def searchable(item: Item) -> str:
    """What a search should find `item` by: its words, and the names and arguments of calls."""
    named = (item.get(field) for field in ("name", "arguments", "input"))
    return "\n".join(found for found in (text(item), *named) if isinstance(found, str) and found)


def first_words(item: Item, width: int = 60) -> str:
    """One line of at most `width` characters that says what `item` is about."""
    words = " ".join(text(item).split())
    if not words:
        words = f"[{kind(item)}]" + (f" {item['name']}" if isinstance(item.get("name"), str) else "")
    return words if len(words) <= width else words[: width - 1] + "…"


def _texts(item: Item) -> Iterator[str]:
    for field in ("summary", "content", "output"):
        yield from _words(item.get(field))


def _words(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict):
                yield from (part[field] for field in TEXT_FIELDS if isinstance(part.get(field), str))
