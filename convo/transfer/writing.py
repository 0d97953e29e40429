"""A conversation as text, in each form that is read back.

replay      the list of items, as the file of a replayed conversation has it
jsonl       an item a line; with links, as `convo.inspection.document` says
markdown    for reading; the whole document stands in a comment at the end
"""

import re
from collections.abc import Callable, Iterator

from convo.engine.replay_file import as_text
from convo.inspection.document import (
    COMMENT_BEGIN,
    COMMENT_END,
    COMMENT_WITHOUT,
    Document,
    as_lines,
    embedded,
    line,
)
from convo.inspection.passages import Passage, legible, passages, title

TICKS = re.compile("`+")


def replay(document: Document) -> str:
    return as_text(document.items)


def jsonl(document: Document, *, links: bool = False) -> str:
    found = as_lines(document) if links else iter(document.items)
    return "".join(line(one) + "\n" for one in found)


def markdown(document: Document, *, data: bool = True) -> str:
    """For reading; with `data`, it can be imported again."""
    blocks = [f"# {_one_line(document.name or 'A conversation')}", *_facts(document)]
    for at, item in enumerate(document.items, 1):
        blocks.append(f"## {at}. {_one_line(title(item))}")
        blocks += [FORMS[passage.form](passage) for passage in passages(item)]
    blocks.append(COMMENT_BEGIN + embedded(document) + COMMENT_END if data else COMMENT_WITHOUT)
    return "\n\n".join(blocks) + "\n"


def _facts(document: Document) -> Iterator[str]:
    if document.model:
        yield f"Model: {_code(document.model)}"
    if document.instructions:
        yield "Instructions:\n\n" + _fenced(Passage("code", legible(document.instructions)))


def _one_line(words: str) -> str:
    return " ".join(legible(words).split())


def _prose(passage: Passage) -> str:
    return passage.words


def _thought(passage: Passage) -> str:
    return "\n".join(f"> {one}".rstrip() for one in passage.words.split("\n"))


def _code(words: str) -> str:
    return f"`{legible(words).replace('`', '')}`"


def _fenced(passage: Passage) -> str:
    """A fence that is longer than any run of backticks in it."""
    longest = max((len(run) for run in TICKS.findall(passage.words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{passage.words}\n{fence}"


def _image(passage: Passage) -> str:
    if passage.words.startswith("data:"):
        return f"*an image: {_code(passage.words.partition(';')[0].removeprefix('data:'))}*"
    return f"*an image: {_code(passage.words)}*"


def _aside(passage: Passage) -> str:
    return f"*{passage.words}*"


FORMS: dict[str, Callable[[Passage], str]] = {
    "prose": _prose,
    "thought": _thought,
    "code": _fenced,
    "image": _image,
    "aside": _aside,
}
