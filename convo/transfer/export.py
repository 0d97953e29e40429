"""Export formats: replay (a list of items), JSONL, Markdown.

Markdown ends with the whole document in a comment, so it can be imported again. Markdown and pages are for reading:
of a compacted conversation they have a transcript, with the items that the compaction replaced.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import NamedTuple

from convo.chat.files import format_replay_file
from convo.errors import ItemDeleted, NotFound
from convo.history.canonical import digest
from convo.history.items import is_compaction
from convo.history.records import Link, is_compaction_link
from convo.history.tree import Path
from convo.inspect.serialize import (
    COMMENT_BEGIN,
    COMMENT_END,
    COMMENT_WITHOUT_DATA,
    ConversationDocument,
    Passage,
    TranscriptEntry,
    document_to_embedded_json,
    document_to_lines,
    entry_title,
    format_json_line,
    item_passages,
    replace_unprintable,
)
from convo.stores.base import Store

BACKTICK_RUN = re.compile("`+")

MAX_WALKED_LINKS = 10_000
"""Links of a branch that are read in search of a compaction."""


async def load_transcript(store: Store, path: Path, link_id: str | None) -> tuple[TranscriptEntry, ...]:
    """Load the items of a compacted history for reading, with those that its compactions replaced.

    link_id:  the last link of the branch of `path`

    Returns an empty tuple if no compaction of this branch is known, or its earlier history was deleted.
    """
    histories = await _load_compacted_histories(store, path, link_id)
    if len(histories) == 1:
        return ()
    entries = await asyncio.to_thread(_merge_compacted_histories, histories)  # may take seconds
    return entries if len(entries) > len(path) else ()


class _CompactedHistory(NamedTuple):
    """The history between two compactions.

    compacted_count:  items at the start of `path` that a compaction made of the history before; 0 for the first
    """

    path: Path
    compacted_count: int


async def _load_compacted_histories(store: Store, path: Path, link_id: str | None) -> list[_CompactedHistory]:
    """Load the histories that the compactions on the branch of `path` replaced, oldest first, and that of `path`."""
    histories: list[_CompactedHistory] = []
    branch = _walk_branch(store, link_id)
    while any(map(is_compaction, path.items)):
        compaction = await _find_compaction(branch, path)
        if compaction is None or compaction.parent_id is None:
            break
        try:
            parent = await store.link(compaction.parent_id)
            if parent is None or parent.head in path.keys:  # the endpoint added the compaction to the history
                break
            earlier_path = await store.path(parent.head)
        except (NotFound, ItemDeleted):
            break
        histories.append(_CompactedHistory(path, path.depth(compaction.head)))
        path = earlier_path
    return [_CompactedHistory(path, 0), *reversed(histories)]


async def _walk_branch(store: Store, link_id: str | None) -> AsyncIterator[Link]:
    """Yield the links of a branch, last first, up to `MAX_WALKED_LINKS`, each once also in a damaged store."""
    walked_ids: set[str] = set()
    while link_id and link_id not in walked_ids and len(walked_ids) < MAX_WALKED_LINKS:
        walked_ids.add(link_id)
        link = await store.link(link_id)
        if link is None:
            return
        yield link
        link_id = link.parent_id


async def _find_compaction(branch: AsyncIterator[Link], path: Path) -> Link | None:
    """Return the next link of `branch` that compacted the history into the start of `path`."""
    keys = frozenset(path.keys)
    async for link in branch:
        if is_compaction_link(link) and link.head in keys:
            return link
    return None


def _merge_compacted_histories(histories: Iterable[_CompactedHistory]) -> tuple[TranscriptEntry, ...]:
    """Return the items of `histories`, oldest first, as entries; items that a compaction kept are not repeated."""
    entries: list[TranscriptEntry] = []
    numbers: list[int] = []  # of the entry of each item of the path, from 1
    for path, compacted_count in histories:
        unmatched: dict[str, deque[int]] = {}
        for number in numbers if compacted_count else ():
            unmatched.setdefault(digest(entries[number - 1].item), deque()).append(number)
        kept_numbers = [
            0 if is_compaction(item) or not (same := unmatched.get(digest(item))) else same.popleft()
            for item in path.items[:compacted_count]
        ]
        replaced = tuple(sorted(set(numbers).difference(kept_numbers)))
        numbers = []
        for index, item in enumerate(path.items):
            number = kept_numbers[index] if index < compacted_count else 0
            if not number:
                is_new = index < compacted_count and is_compaction(item)
                entries.append(TranscriptEntry(item, replaced if is_new else ()))
                number = len(entries)
            numbers.append(number)
    return tuple(entries)


def render_replay(document: ConversationDocument) -> str:
    return format_replay_file(document.items)


def render_jsonl(document: ConversationDocument, *, include_links: bool = False) -> str:
    objects = document_to_lines(document) if include_links else iter(document.items)
    return "".join(format_json_line(line_object) + "\n" for line_object in objects)


def render_markdown_export(document: ConversationDocument, *, include_data: bool = True) -> str:
    """Render for reading; with `include_data` the result can be imported again."""
    blocks = [f"# {_one_line(document.name or 'A conversation')}", *_header_blocks(document)]
    for position, entry in enumerate(document.entries, 1):
        blocks.append(f"## {position}. {_one_line(entry_title(entry))}")
        blocks += [PASSAGE_RENDERERS[passage.form](passage) for passage in item_passages(entry.item)]
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
