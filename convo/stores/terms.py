"""The words that a search goes by, the same in every store.

A term is a run of letters and figures, without case and without marks on its letters, so that
"Café" finds "cafe". Where a script writes no spaces each sign is a term, and so is each emoji.
What a person types is cut the same way: quotes, operators and other signs only part the terms.

An index holds these terms and not the text, and takes them out again by cutting the same text
once more. So whoever changes this file, or `convo.items.searchable`, adds a migration that fills
the index anew.
"""

import re
import unicodedata
from functools import cache

from convo.items import Item, searchable

SIGNS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"
VOICED = "\u3099\u309a"
LONGEST = 64
"""Characters of a term that count; what is longer is a key or an encoded file, not a word."""


@cache
def _term() -> re.Pattern[str]:
    """What is a term; compiled when first needed, because most commands neither write nor search."""
    return re.compile(f"[^\\W_{SIGNS}{EMOJI}]+|[{SIGNS}{EMOJI}]")


def terms(text: str) -> str:
    """The terms of `text`, parted by one space, in order."""
    return " ".join(term[:LONGEST] for term in _term().findall(_folded(text)))


def terms_of(item: Item) -> str:
    return terms(searchable(item))


def phrases(words: str) -> tuple[str, ...]:
    """What a search for `words` looks for: the terms of each word, which stand side by side."""
    return tuple(dict.fromkeys(cut for word in words.split() if (cut := terms(word))))


def density(cut: str, sought: tuple[str, ...]) -> float:
    """How much of a text is what was sought; 0 when a phrase is missing, or none was sought.

    cut:  what `terms` made of the text
    """
    found = [f" {cut} ".count(f" {phrase} ") for phrase in sought]
    return sum(found) / len(cut) if all(found) and found else 0.0


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFC", "".join(sign for sign in apart if _counts(sign)))


def _counts(sign: str) -> bool:
    """Whether a mark makes another letter of the one before it: in Japanese it does."""
    return sign in VOICED or not unicodedata.combining(sign)
