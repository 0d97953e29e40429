"""Token counts: exact with a tokenizer, else estimated; and the usage an endpoint reported.

The tokenizer is o200k from the optional `toktok-rs`. Without it a token is four bytes. Always estimated:

    image           765 tokens (1024 x 1024 pixels in four tiles); 85 with low detail
    file, audio     one token for four bytes
    encrypted text  one token for four bytes

Each item adds four tokens for its role and its bounds. Missing parts of a usage object count as 0;
no usage at all is None.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol, cast

from convo.config.sections import Price
from convo.history.items import Item, Json, searchable_text

TOKENIZER_ENCODING = "o200k_base"

IMAGE_PART_TYPES = ("input_image", "computer_screenshot")
IMAGE_TOKENS, LOW_DETAIL_IMAGE_TOKENS = 765, 85
BASE64_CHARS_PER_BYTE = 4 / 3
"""Base64 takes so many characters a byte."""

MAX_BYTES_PER_CHAR = 4
"""In UTF-8; and no token is less than a byte."""


class TokenCount(NamedTuple):
    """So many tokens; `estimated` when a part of them, or all, was not counted with a vocabulary."""

    tokens: int
    estimated: bool

    def __str__(self) -> str:
        return f"about {self.tokens:,}" if self.estimated else f"{self.tokens:,}"


class Tokenizer(Protocol):
    """As much of the package as is used here."""

    def batch_count(self, texts: Sequence[str], encoding: str, threads: int) -> list[int]: ...


def count_tokens(items: Sequence[Item], instructions: str | None = None, tools: Json = None) -> TokenCount:
    """Tokens of everything that a model is shown, without its chat template's own."""
    texts = [*map(searchable_text, items), *_overhead_texts(instructions, tools)]
    beside = sum(map(_non_text_tokens, items))
    counted = _count_texts(texts)
    return TokenCount(
        tokens=counted.tokens + beside + ITEM_OVERHEAD_TOKENS * len(items),
        estimated=counted.estimated or beside > 0,
    )


def count_item_tokens(items: Sequence[Item]) -> tuple[int, ...]:
    """Tokens of each of `items`; together what `count` finds in all of them."""
    words, _ = _tokens_of_each_text([*map(searchable_text, items)])
    return tuple(
        found + _non_text_tokens(item) + ITEM_OVERHEAD_TOKENS for found, item in zip(words, items, strict=True)
    )


def count_text_tokens(words: str) -> TokenCount:
    """Tokens of `words` alone. Half a surrogate pair counts as the sign that stands for a broken one."""
    return _count_texts([words])


def max_token_count(items: Iterable[Item], instructions: str | None = None, tools: Json = None) -> int:
    """As many tokens as `count` finds or more, without counting: no token is less than a byte."""
    return sum(ITEM_OVERHEAD_TOKENS + _max_tokens(item) for item in items) + sum(
        map(_max_utf8_bytes, _overhead_texts(instructions, tools))
    )


def _overhead_texts(instructions: str | None, tools: Json) -> Iterator[str]:
    if instructions:
        yield instructions
    if tools:
        yield json.dumps(tools)


def _count_texts(texts: Sequence[str]) -> TokenCount:
    found, estimated = _tokens_of_each_text(texts)
    return TokenCount(sum(found), estimated)


def _tokens_of_each_text(texts: Sequence[str]) -> tuple[Sequence[int], bool]:
    """Tokens of each text, and whether they are estimated."""
    words = load_tokenizer()
    if words is None:
        return [-(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN) for text in texts], True
    return words.batch_count([_replace_surrogates(text) for text in texts], TOKENIZER_ENCODING, 1), False


def _replace_surrogates(text: str) -> str:
    """`text` with no half of a surrogate pair in it: no vocabulary takes one."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _max_tokens(value: Json) -> int:
    """The bytes of all text in `value`, whether or not it counts as such, and what its images may take."""
    if isinstance(value, str):
        return _max_utf8_bytes(value)
    if isinstance(value, Mapping):
        return (
            len(value)
            + (IMAGE_TOKENS if value.get("type") in IMAGE_PART_TYPES else 0)
            + sum(map(_max_tokens, value.values()))
        )
    return sum(map(_max_tokens, value)) if isinstance(value, list) else 0


def _max_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else MAX_BYTES_PER_CHAR * len(text)


def _non_text_tokens(item: Item) -> int:
    """About how many tokens stand in `item` beside its words."""
    parts = (part for field in ("content", "output") for part in _content_parts(item.get(field)))
    return _base64_tokens(item.get("encrypted_content")) + sum(map(_part_tokens, parts))


def _content_parts(value: Json) -> Iterator[Mapping[str, Json]]:
    """The parts of a message or an output; what a screen shows is an output of one part."""
    listed = value if isinstance(value, list) else [value]
    return (part for part in listed if isinstance(part, dict))


def _part_tokens(part: Mapping[str, Json]) -> int:
    match part.get("type"):
        case form if form in IMAGE_PART_TYPES:
            return LOW_DETAIL_IMAGE_TOKENS if part.get("detail") == "low" else IMAGE_TOKENS
        case "input_file":
            return _base64_tokens(part.get("file_data"))
        case "input_audio":
            return _base64_tokens((part.get("input_audio") or {}).get("data"))
    return 0


def _base64_tokens(encoded: Json) -> int:
    return int(len(encoded) / BASE64_CHARS_PER_BYTE) // BYTES_PER_TOKEN if isinstance(encoded, str) else 0


@cache
def load_tokenizer() -> Tokenizer | None:
    """The package that counts, when it is installed; it reads nothing from the network."""
    try:
        import toktok
    except ImportError:
        return None
    return cast(Tokenizer, toktok)


BYTES_PER_TOKEN = 4
ITEM_OVERHEAD_TOKENS = 4
"""Tokens that a chat template spends on a message's role and its bounds."""


def estimate_tokens(item: Item) -> int:
    """Tokens of `item`, within a third for English prose; images and sealed reasoning count as nothing."""
    size = len(searchable_text(item).encode("utf-8", "replace"))
    return ITEM_OVERHEAD_TOKENS + -(-size // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Usage:
    """Figures of one call, in tokens; `cached` and `written` are parts of `input`, `reasoning` is part of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    written: int = 0

    @classmethod
    def read(cls, usage: Mapping[str, Json] | None) -> "Usage | None":
        """The figures of a usage object; None when nothing was reported. What is no number of tokens counts as 0."""
        if not usage:
            return None
        into, out = usage.get("input_tokens_details"), usage.get("output_tokens_details")
        return cls(
            input=_read_token_count(usage, "input_tokens"),
            cached=_read_token_count(into, "cached_tokens"),
            output=_read_token_count(usage, "output_tokens"),
            reasoning=_read_token_count(out, "reasoning_tokens"),
            written=_read_token_count(into, "cache_write_tokens"),
        )

    def cost_usd(self, price: Price | None) -> float | None:
        """What the call cost in USD; None where no price is known, rather than a guess."""
        if price is None:
            return None
        return price.cost_usd(
            input_tokens=self.input,
            cached_tokens=self.cached,
            output_tokens=self.output,
            written_tokens=self.written,
        )

    def __add__(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            written=self.written + other.written,
        )


def _read_token_count(figures: Json, name: str) -> int:
    """One figure, whatever somebody's server made of it."""
    found = figures.get(name) if isinstance(figures, Mapping) else None
    return found if type(found) is int and found > 0 else 0
