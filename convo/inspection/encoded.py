"""Words that are spelled otherwise than they are said: base64, the escapes of JSON, per cent signs.

A secret that was encoded is a secret still. What is found here is gone over like any other text; if
nothing in it has to go, it stays as it was spelled.
"""

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import unquote

Telling = Callable[[str], str]
"""Gives back a text without what is to be hidden."""

INLINE = re.compile(
    r"data:(?P<kind>[\w.+/-]*)(?:;[\w.-]+(?:=(?:[\w.-]*|\"[^\"]*\"))?)*;base64,(?P<data>[\w+/=-]*)",
    re.IGNORECASE | re.ASCII,
)
"""A file that stands in a text."""

RUN = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w+/=-])", re.ASCII)
"""What may be base64 of some words; a secret is not shorter."""

FILE_FIELDS = frozenset({"file_data", "data", "b64_json", "result"})
"""Fields that hold a file without saying so in front of it."""

BYTES = re.compile(r"[\w+/=\r\n-]+", re.ASCII)

LONG = 64
"""Characters; what is shorter in such a field is a word."""

LINE_ENDS = re.compile(r"[\r\n]+")
ALPHABET = str.maketrans("-_", "+/")

ESCAPED = re.compile(r"\\u00([2-7][0-9a-fA-F])")
MEANT = ('"', "\\", "\x7f")
"""What would mean something else without its escape."""

WORD = re.compile(r"\S+")
PERCENT = re.compile(r"%[2-7][0-9a-fA-F]")


def decoded(data: str) -> str | None:
    """The text that base64 stands for, of either alphabet and with or without its end; None for what is no text."""
    plain = "".join(data.split()).rstrip("=").translate(ALPHABET)
    try:
        words = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return None if "\0" in words else words


def encoded(words: str) -> str:
    return base64.b64encode(words.encode("utf-8", "replace")).decode("ascii")


def is_file(name: str, value: str) -> bool:
    """Whether a field holds the bytes of a file."""
    return name in FILE_FIELDS and len(value) >= LONG and BYTES.fullmatch(value) is not None


def in_one_line(name: str, value: str) -> str:
    """A file's base64 without the ends of its lines; what is no file stays as it is."""
    if "\n" not in value or not (value.startswith("data:") or is_file(name, value)):
        return value
    joined = LINE_ENDS.sub("", value)
    return joined if INLINE.fullmatch(joined) or is_file(name, joined) else value


def runs_told(text: str, tell: Telling) -> str:
    """`text`, with what its runs of base64 say told."""

    def told(match: re.Match[str]) -> str:
        words = decoded(match[0])
        if not words or not all(sign.isprintable() or sign in "\t\r\n" for sign in words):
            return match[0]
        left = tell(words)
        return match[0] if left == words else encoded(left)

    return RUN.sub(told, text)


def escapes_told(text: str, tell: Telling) -> str:
    """`text` told without its escapes, where that hides something."""
    plain = ESCAPED.sub(_sign, text)
    if plain != text and (left := tell(plain)) != plain:
        text = left
    return WORD.sub(lambda match: _percent_told(match[0], tell), text) if PERCENT.search(text) else text


def _percent_told(word: str, tell: Telling) -> str:
    if not PERCENT.search(word):
        return word
    plain = unquote(word)
    left = tell(plain)
    return word if left == plain else left


def _sign(match: re.Match[str]) -> str:
    sign = chr(int(match[1], 16))
    return match[0] if sign in MEANT else sign
