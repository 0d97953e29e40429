"""What stands within a paragraph, a heading or a cell, as words in styles.

Without colour the marks of the source stay, so that what was stressed can still be seen and heard.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from convo.ui.markdown.parsing import inline
from convo.ui.markdown.spans import Paper, Span, clean

if TYPE_CHECKING:
    from markdown_it.token import Token

STYLES = {"em": "3", "strong": "1", "s": "9"}
CODE = "36"
LINK = "4"
DIM = "2"

CLICKABLE = ("http", "https", "mailto", "ftp")

ADDRESS = re.compile(r"://|^www\.|\.(?:com|dev|io|net|org)\b", re.IGNORECASE)
"""In the words of a link: they look like an address, so the one that they lead to is shown as well."""


def spans(words: str, paper: Paper, style: str = "") -> list[Span]:
    """`words`, read as the inside of a block whose own style is `style`."""
    return _Words(paper, style).of(inline(words))


def plain(words: str) -> str:
    """`words` without marks and styles: what a reader sees of them."""
    return "".join(span.words for span in spans(words, Paper(colour=True, links=True)))


class _Words:
    """Collects spans while it walks the pieces of one text."""

    def __init__(self, paper: Paper, style: str) -> None:
        self._paper = paper
        self._styles = [style] if style else []
        self._said: list[Span] = []
        self._links: list[tuple[str, int]] = []

    def of(self, tokens: Sequence["Token"]) -> list[Span]:
        for token in tokens:
            self._take(token)
        return self._said

    def _take(self, token: "Token") -> None:
        name, _, edge = token.type.rpartition("_")
        match token.type:
            case "softbreak" | "hardbreak":
                self._say("\n")
            case "code_inline":
                self._say(token.content if self._paper.colour else _ticked(token), CODE)
            case "image":
                self._image(token)
            case "link_open":
                self._links.append((str(token.attrGet("href") or ""), len(self._said)))
            case "link_close":
                self._end_link()
            case _ if name in STYLES and edge in ("open", "close"):
                self._mark(token, STYLES[name], opens=edge == "open")
            case _:
                self._say(token.content)

    def _say(self, words: str, style: str = "") -> None:
        link = self._links[-1][0] if self._links else ""
        styles = [*self._styles, *([LINK] if link else []), *([style] if style else [])]
        if words:
            self._said.append(Span(clean(words), ";".join(styles), link if _is_clickable(link) else ""))

    def _mark(self, token: "Token", style: str, *, opens: bool) -> None:
        if opens:
            self._styles.append(style)
        else:
            self._styles.remove(style)
        if not self._paper.colour:
            self._say(token.markup)

    def _image(self, token: "Token") -> None:
        self._links.append((str(token.attrGet("src") or ""), len(self._said)))
        self._say(plain(token.content) or "image")
        self._end_link()

    def _end_link(self) -> None:
        link, first = self._links.pop()
        said = "".join(span.words for span in self._said[first:])
        if not link or _is_same(said, link):
            return
        if not (self._paper.links and _is_clickable(link)) or ADDRESS.search(said):
            self._say(f" ({link})")


def _ticked(token: "Token") -> str:
    inner = f" {token.content} " if token.content[:1] == "`" or token.content[-1:] == "`" else token.content
    return f"{token.markup}{inner}{token.markup}"


def _is_clickable(link: str) -> bool:
    return link.partition(":")[0].lower() in CLICKABLE and link.isascii() and link.isprintable()


def _is_same(said: str, link: str) -> bool:
    return unquote(said) in (unquote(link), unquote(link).removeprefix("mailto:"))
