"""Export formats: replay (a list of items), JSONL, Markdown.

Markdown ends with the whole document in a comment, so it can be imported again.
"""

import re
from collections.abc import Callable, Iterator

from convo.chat.files import format_replay_file
from convo.inspect.serialize import (
    COMMENT_BEGIN,
    COMMENT_END,
    COMMENT_WITHOUT_DATA,
    ConversationDocument,
    Passage,
    document_to_embedded_json,
    document_to_lines,
    format_json_line,
    item_passages,
    item_title,
    replace_unprintable,
)

BACKTICK_RUN = re.compile("`+")


def render_replay(document: ConversationDocument) -> str:
    return format_replay_file(document.items)


def render_jsonl(document: ConversationDocument, *, include_links: bool = False) -> str:
    objects = document_to_lines(document) if include_links else iter(document.items)
    return "".join(format_json_line(line_object) + "\n" for line_object in objects)


def render_markdown_export(document: ConversationDocument, *, include_data: bool = True) -> str:
    """Render for reading; with `include_data` the result can be imported again."""
    blocks = [f"# {_one_line(document.name or 'A conversation')}", *_header_blocks(document)]
    for position, item in enumerate(document.items, 1):
        blocks.append(f"## {position}. {_one_line(item_title(item))}")
        blocks += [PASSAGE_RENDERERS[passage.form](passage) for passage in item_passages(item)]
    blocks.append(
        COMMENT_BEGIN + document_to_embedded_json(document) + COMMENT_END if include_data else COMMENT_WITHOUT_DATA
    )
    return "\n\n".join(blocks) + "\n"


def _header_blocks(document: ConversationDocument) -> Iterator[str]:
    if document.model:
        yield f"Model: {_inline_code(document.model)}"
    if document.instructions:
        yield "Instructions:\n\n" + _render_fence(Passage("code", replace_unprintable(document.instructions)))


def _one_line(text: str) -> str:
    return " ".join(replace_unprintable(text).split())


def _render_prose(passage: Passage) -> str:
    return passage.text


def _render_quote(passage: Passage) -> str:
    return "\n".join(f"> {line}".rstrip() for line in passage.text.split("\n"))


def _inline_code(text: str) -> str:
    return f"`{replace_unprintable(text).replace('`', '')}`"


def _render_fence(passage: Passage) -> str:
    """Return a fence that is longer than any run of backticks in the text."""
    longest = max((len(run) for run in BACKTICK_RUN.findall(passage.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{passage.text}\n{fence}"


def _render_image(passage: Passage) -> str:
    if passage.text.startswith("data:"):
        return f"*an image: {_inline_code(passage.text.partition(';')[0].removeprefix('data:'))}*"
    return f"*an image: {_inline_code(passage.text)}*"


def _render_aside(passage: Passage) -> str:
    return f"*{passage.text}*"


PASSAGE_RENDERERS: dict[str, Callable[[Passage], str]] = {
    "prose": _render_prose,
    "thought": _render_quote,
    "code": _render_fence,
    "image": _render_image,
    "aside": _render_aside,
}
