"""The part of a text in which a search found its words."""

import unicodedata

BEFORE = 20
"""How many characters stand before the first word that was found."""


def snippet(text: str, words: str, width: int = 60) -> str:
    """At most `width` characters of `text` on one line, around the first of `words` that is in it."""
    line = " ".join(text.split())
    folded = _folded(line)
    places = [folded.find(_folded(word)) for word in words.split()]
    found = min((place for place in places if place >= 0), default=0)
    start = max(0, found - BEFORE) if len(line) > width else 0
    start = min(start, max(0, len(line) - width))
    end = start + width
    before, after = ("…" if start else ""), ("…" if end < len(line) else "")
    return before + line[start + len(before) : end - len(after)] + after


def _folded(text: str) -> str:
    """`text` without case and marks, sign for sign, so that places in it are places in `text`."""
    return "".join(unicodedata.normalize("NFKD", sign)[0].lower()[:1] or sign for sign in text)
