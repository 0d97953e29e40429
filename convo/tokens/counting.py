"""How many tokens a history takes: counted where a vocabulary is at hand, else estimated.

The vocabulary is o200k, from the optional `toktok-rs`; it is exact for the text of the models that
`models.toml` says it counts and near for the others. What has no text is never more than a guess:

    an image        765 tokens, which is 1024 x 1024 pixels in four tiles; 85 where its detail is low
    a file, sound   a token for every four bytes that it holds
    sealed words    a token for every four bytes, as if the seal were text

and around each item stand the four tokens of its role and its bounds.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol, cast

from convo.items import Item, Json, searchable
from convo.tokens.estimate import AROUND_AN_ITEM, BYTES_A_TOKEN

VOCABULARY = "o200k_base"

IMAGES = ("input_image", "computer_screenshot")
IMAGE, SMALL_IMAGE = 765, 85
ENCODED = 4 / 3
"""Base64 takes so many characters a byte."""

MOST_BYTES_A_SIGN = 4
"""In UTF-8; and no token is less than a byte."""


class Count(NamedTuple):
    """So many tokens; `estimated` when a part of them, or all, was not counted with a vocabulary."""

    tokens: int
    estimated: bool

    def __str__(self) -> str:
        return f"about {self.tokens:,}" if self.estimated else f"{self.tokens:,}"


class Vocabulary(Protocol):
    """As much of the package as is used here."""

    def batch_count(self, texts: Sequence[str], encoding: str, threads: int) -> list[int]: ...


def count(items: Sequence[Item], instructions: str | None = None, tools: Json = None) -> Count:
    """Tokens of everything that a model is shown, without its chat template's own."""
    texts = [*map(searchable, items), *_around(instructions, tools)]
    beside = sum(map(_without_text, items))
    counted = _counted(texts)
    return Count(
        tokens=counted.tokens + beside + AROUND_AN_ITEM * len(items),
        estimated=counted.estimated or beside > 0,
    )


def count_each(items: Sequence[Item]) -> tuple[int, ...]:
    """Tokens of each of `items`; together what `count` finds in all of them."""
    words, _ = _each([*map(searchable, items)])
    return tuple(found + _without_text(item) + AROUND_AN_ITEM for found, item in zip(words, items, strict=True))


def count_text(words: str) -> Count:
    """Tokens of `words` alone. Half a surrogate pair counts as the sign that stands for a broken one."""
    return _counted([words])


def at_most(items: Iterable[Item], instructions: str | None = None, tools: Json = None) -> int:
    """As many tokens as `count` finds or more, without counting: no token is less than a byte."""
    return sum(AROUND_AN_ITEM + _most(item) for item in items) + sum(map(_bytes, _around(instructions, tools)))


def _around(instructions: str | None, tools: Json) -> Iterator[str]:
    if instructions:
        yield instructions
    if tools:
        yield json.dumps(tools)


def _counted(texts: Sequence[str]) -> Count:
    found, estimated = _each(texts)
    return Count(sum(found), estimated)


def _each(texts: Sequence[str]) -> tuple[Sequence[int], bool]:
    """Tokens of each text, and whether they are estimated."""
    words = vocabulary()
    if words is None:
        return [-(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN) for text in texts], True
    return words.batch_count([_whole(text) for text in texts], VOCABULARY, 1), False


def _whole(text: str) -> str:
    """`text` with no half of a surrogate pair in it: no vocabulary takes one."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _most(value: Json) -> int:
    """The bytes of all text in `value`, whether or not it counts as such, and what its images may take."""
    if isinstance(value, str):
        return _bytes(value)
    if isinstance(value, Mapping):
        return len(value) + (IMAGE if value.get("type") in IMAGES else 0) + sum(map(_most, value.values()))
    return sum(map(_most, value)) if isinstance(value, list) else 0


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else MOST_BYTES_A_SIGN * len(text)


def _without_text(item: Item) -> int:
    """About how many tokens stand in `item` beside its words."""
    parts = (part for field in ("content", "output") for part in _parts(item.get(field)))
    return _of_bytes(item.get("encrypted_content")) + sum(map(_of_part, parts))


def _parts(value: Json) -> Iterator[Mapping[str, Json]]:
    """The parts of a message or an output; what a screen shows is an output of one part."""
    listed = value if isinstance(value, list) else [value]
    return (part for part in listed if isinstance(part, dict))


def _of_part(part: Mapping[str, Json]) -> int:
    match part.get("type"):
        case form if form in IMAGES:
            return SMALL_IMAGE if part.get("detail") == "low" else IMAGE
        case "input_file":
            return _of_bytes(part.get("file_data"))
        case "input_audio":
            return _of_bytes((part.get("input_audio") or {}).get("data"))
    return 0


def _of_bytes(encoded: Json) -> int:
    return int(len(encoded) / ENCODED) // BYTES_A_TOKEN if isinstance(encoded, str) else 0


@cache
def vocabulary() -> Vocabulary | None:
    """The package that counts, when it is installed; it reads nothing from the network."""
    try:
        import toktok
    except ImportError:
        return None
    return cast(Vocabulary, toktok)
