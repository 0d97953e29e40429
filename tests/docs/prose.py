"""Wraps the paragraphs of a generated page."""

import re
import textwrap

WIDTH = 100

CODE_BLOCK = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

NO_PARAGRAPH = re.compile(r"[|#<]|[*-] |\d+\. |    ")
"""The start of a table, a heading, a comment, a list, or code."""

CODE_SPAN = re.compile(r"`[^`]+`")

NO_BREAK = "\0"


def wrap_prose(page: str) -> str:
    """Wrap each paragraph at `WIDTH` columns, but not inside of a code span."""
    parts = CODE_BLOCK.split(page)
    return "".join(part if index % 2 else _wrap_paragraphs(part) for index, part in enumerate(parts))


def _wrap_paragraphs(text: str) -> str:
    return "\n\n".join(map(_wrap, text.split("\n\n")))


def _wrap(paragraph: str) -> str:
    body = paragraph.strip("\n")
    if not body or NO_PARAGRAPH.match(body):
        return paragraph
    joined = CODE_SPAN.sub(lambda found: found[0].replace(" ", NO_BREAK), " ".join(body.split("\n")))
    filled = textwrap.fill(joined, WIDTH, break_long_words=False, break_on_hyphens=False)
    return paragraph.replace(body, filled.replace(NO_BREAK, " "))
