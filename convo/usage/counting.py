"""Token counts: exact with a tokenizer, else estimated.

The tokenizer is o200k from the optional `toktok-rs`. Without it a token is four bytes. Always estimated:

    image           765 tokens (1024 x 1024 pixels in four tiles); 85 with low detail
    file, audio     one token for four bytes
    encrypted text  one token for four bytes

Each item adds four tokens for its role and its bounds.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, NamedTuple, Protocol, cast

from convo.history.items import Item, Json, searchable_text
from convo.history.tree import derive
from convo.report import Count, Wire

TOKENIZER_ENCODING = "o200k_base"

IMAGE_PART_TYPES = ("input_image", "computer_screenshot")
IMAGE_TOKENS, LOW_DETAIL_IMAGE_TOKENS = 765, 85
BASE64_CHARS_PER_BYTE = 4 / 3
"""Base64 characters per byte."""

MAX_BYTES_PER_CHAR = 4
"""The maximum in UTF-8; a token is at least one byte."""


class TokenCount(NamedTuple):
    """A number of tokens.

    is_estimate:  whether any part of it was counted without a tokenizer
    """

    tokens: Count
    is_estimate: Annotated[bool, Wire("estimated")]

    def __str__(self) -> str:
        return f"about {self.tokens:,}" if self.is_estimate else f"{self.tokens:,}"


class Tokenizer(Protocol):
    """The part of the toktok package that is used."""

    def batch_count(self, texts: Sequence[str], encoding: str, threads: int) -> list[int]: ...


def count_tokens(items: Sequence[Item], instructions: str | None = None, tools: Json = None) -> TokenCount:
    """Count the tokens of a request's input, without the tokens that the model's chat template adds for itself."""
    non_text_tokens = sum(map(_non_text_tokens, items))
    tokens, is_estimate = count_text_tokens(items, instructions, tools)
    return TokenCount(tokens + non_text_tokens, is_estimate or non_text_tokens > 0)


def count_text_tokens(items: Sequence[Item], instructions: str | None = None, tools: Json = None) -> TokenCount:
    """Count the tokens of a request's input without those of images, files, audio and encrypted text."""
    tokens, is_estimate = _count_texts([*map(searchable_text, items), *_overhead_texts(instructions, tools)])
    return TokenCount(tokens + ITEM_OVERHEAD_TOKENS * len(items), is_estimate)


def count_item_tokens(items: Sequence[Item]) -> tuple[int, ...]:
    """Count the tokens of each item; the sum equals `count_tokens` of all items."""
    counts, _ = _tokens_of_each_text([*map(searchable_text, items)])
    return tuple(
        count + _non_text_tokens(item) + ITEM_OVERHEAD_TOKENS for count, item in zip(counts, items, strict=True)
    )


def max_token_count(items: Sequence[Item], instructions: str | None = None, tools: Json = None) -> int:
    """Return an upper bound of `count_tokens` without counting: a token is at least one byte."""
    return sum(derive(items, _make_max_tokens_step)) + sum(map(_max_utf8_bytes, _overhead_texts(instructions, tools)))


def _make_max_tokens_step() -> Callable[[Sequence[Item]], list[int]]:
    return lambda items: [ITEM_OVERHEAD_TOKENS + _max_tokens(item) for item in items]


def _overhead_texts(instructions: str | None, tools: Json) -> Iterator[str]:
    if instructions:
        yield instructions
    if tools:
        yield json.dumps(tools)


def _count_texts(texts: Sequence[str]) -> TokenCount:
    counts, is_estimate = _tokens_of_each_text(texts)
    return TokenCount(sum(counts), is_estimate)


def _tokens_of_each_text(texts: Sequence[str]) -> tuple[Sequence[int], bool]:
    """Count the tokens of each text; the second value is whether they are estimated."""
    tokenizer = load_tokenizer()
    if tokenizer is None:
        return [-(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN) for text in texts], True
    return tokenizer.batch_count([_replace_surrogates(text) for text in texts], TOKENIZER_ENCODING, 1), False


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates by "?": the tokenizer rejects them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _max_tokens(value: Json) -> int:
    """Return the bytes of all text in `value`, counted or not, plus the tokens of its images."""
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
    """Estimate the tokens of the images, files, audio and encrypted text in `item`."""
    parts = (part for field in ("content", "output") for part in _content_parts(item.get(field)))
    return _base64_tokens(item.get("encrypted_content")) + sum(map(_part_tokens, parts))


def _content_parts(value: Json) -> Iterator[Mapping[str, Json]]:
    """Yield the parts of a message or an output; a screenshot is an output of one part."""
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
    """Import the tokenizer; None if it is not installed. It uses no network."""
    try:
        import toktok
    except ImportError:
        return None
    return cast(Tokenizer, toktok)


BYTES_PER_TOKEN = 4
ITEM_OVERHEAD_TOKENS = 4
"""Tokens that a chat template adds for a message's role and boundaries."""


def estimate_tokens(item: Item) -> int:
    """Estimate the tokens of an item, within a third for English prose; images and encrypted reasoning count as 0."""
    size = len(searchable_text(item).encode("utf-8", "replace"))
    return ITEM_OVERHEAD_TOKENS + -(-size // BYTES_PER_TOKEN)
