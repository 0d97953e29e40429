"""Export formats: JSON (everything), replay (a list of items), JSONL, Markdown.

Markdown ends with the whole document in a comment, so it can be imported again. Markdown and pages are for reading:
of a compacted conversation they have a transcript, with the items that the compaction replaced.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
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
    add_branches,
    document_to_embedded_json,
    document_to_lines,
    entry_title,
    format_json_lines,
    item_passages,
    replace_unprintable,
)
from convo.inspect.view import ConversationView
from convo.stores.base import Store
from convo.transfer.convert import ConversationSource

BACKTICK_RUN = re.compile("`+")

MAX_WALKED_LINKS = 10_000
"""Links of a branch that are read in search of a compaction."""


READING_FORMATS = ("markdown", "html")
"""Formats that are read by people and not loaded by programs."""


JSON_FORMAT = "json"
"""The format with everything that an import needs to restore the conversation."""


async def load_exported_document(
    source: ConversationSource, view: ConversationView, export_format: str, store: Store
) -> ConversationDocument:
    """Return the document to export.

    As JSON it has the other branches, too; in a format for reading the items that compactions replaced.
    """
    document = source.to_document()
    if export_format == JSON_FORMAT:
        nodes = ((key, node.parent, node.item) for key, node in view.path_index)
        used_at = view.session.used_at if view.session else None
        document = replace(document, used_at=used_at, link_id=view.current_link_id)
        return add_branches(document, source.links, source.state.path, nodes)
    if export_format not in READING_FORMATS:
        return document
    session_id = view.session.id if view.session else None
    transcript = await load_transcript(store, source.state.path, view.current_link_id, session_id)
    return replace(document, transcript=transcript)


async def load_transcript(
    store: Store, path: Path, link_id: str | None, session_id: str | None = None
) -> tuple[TranscriptEntry, ...]:
    """Load the items of a compacted history for reading, with those that its compactions replaced.

    link_id:     the last link of the branch of `path`
    session_id:  of its session, if any: an undo of an older version left no link to the compaction

    Returns an empty tuple if no compaction of this branch is known, or its earlier history was deleted.
    """
    histories = await _load_compacted_histories(store, path, link_id, session_id)
    if len(histories) == 1:
        return ()
    entries = await asyncio.to_thread(_merge_compacted_histories, histories)  # may take seconds
    return entries if len(entries) > len(path) else ()


class _CompactedHistory(NamedTuple):
    """The history between two compactions.

    path:            without the items that an undo or a fork left out
    compacted_path:  the new history of the compaction before it; empty for the first one
    """

    path: Path
    compacted_path: Path


async def _load_compacted_histories(
    store: Store, path: Path, link_id: str | None, session_id: str | None
) -> list[_CompactedHistory]:
    """Load the histories that the compactions on the branch of `path` replaced, oldest first, and that of `path`."""
    histories: list[_CompactedHistory] = []
    # One walk for all compactions: a recursion failed at about 900 of them, and two that name each other never ended.
    compactions = _iter_compactions(store, link_id, session_id)
    while any(map(is_compaction, path.items)):
        compaction = await _find_compaction(store, compactions, path)
        if compaction is None or compaction.parent_id is None:
            break
        try:
            compacted_path = await store.path(compaction.head)
            parent = await store.link(compaction.parent_id)
            if parent is None or parent.head in path.keys:  # the endpoint added the compaction to the history
                break
            earlier_path = await store.path(parent.head)
        except (NotFound, ItemDeleted):
            break
        histories.append(_CompactedHistory(path, compacted_path))
        path = earlier_path
    return [_CompactedHistory(path, path.first(0)), *reversed(histories)]


async def _iter_compactions(store: Store, link_id: str | None, session_id: str | None) -> AsyncIterator[Link]:
    """Yield the compactions of a branch, last first, then the other ones of its session."""
    walked_ids: set[str] = set()
    while link_id and link_id not in walked_ids and len(walked_ids) < MAX_WALKED_LINKS:
        walked_ids.add(link_id)
        link = await store.link(link_id)
        if link is None:
            break
        if is_compaction_link(link):
            yield link
        link_id = link.parent_id
    for link in reversed(await store.links(session_id, limit=MAX_WALKED_LINKS) if session_id else ()):
        if is_compaction_link(link) and link.id not in walked_ids:
            yield link


async def _find_compaction(store: Store, compactions: AsyncIterator[Link], path: Path) -> Link | None:
    """Return the next compaction that made the start of `path`.

    After an undo or a fork, `path` may have only a part of the history that the compaction made.
    """
    keys = frozenset(path.keys)
    async for compaction in compactions:
        if compaction.head in keys:
            return compaction
        with suppress(NotFound, ItemDeleted):
            common_depth = path.common_depth(await store.path(compaction.head))
            if any(map(is_compaction, path.items[:common_depth])):
                return compaction
    return None


def _merge_compacted_histories(histories: Iterable[_CompactedHistory]) -> tuple[TranscriptEntry, ...]:
    """Return the items of `histories`, oldest first, as entries; items that a compaction kept are not repeated."""
    entries: list[TranscriptEntry] = []
    numbers: list[int] = []  # of the entry of each item of the path, from 1
    undone_numbers: set[int] = set()
    for path, compacted_path in histories:
        unmatched: dict[str, deque[int]] = {}
        for number in numbers if compacted_path else ():
            unmatched.setdefault(digest(entries[number - 1].item), deque()).append(number)
        kept_numbers = [
            0 if is_compaction(item) or not (same := unmatched.get(digest(item))) else same.popleft()
            for item in compacted_path.items
        ]
        replaced = tuple(sorted(set(numbers).difference(kept_numbers)))
        kept_count = path.common_depth(compacted_path)
        undone_numbers.update(kept_numbers[kept_count:])
        numbers = []
        for index, item in enumerate(path.items):
            number = kept_numbers[index] if index < kept_count else 0
            if not number:
                is_new = index < kept_count and is_compaction(item)
                entries.append(TranscriptEntry(item, replaced if is_new else ()))
                number = len(entries)
            numbers.append(number)
    return _drop_entries(entries, undone_numbers)


def _drop_entries(entries: Sequence[TranscriptEntry], dropped_numbers: Set[int]) -> tuple[TranscriptEntry, ...]:
    """Return the entries whose numbers are not in `dropped_numbers`, numbered again."""
    kept_numbers = [number for number in range(1, len(entries) + 1) if number not in dropped_numbers]
    new_numbers = {number: new_number for new_number, number in enumerate(kept_numbers, 1)}
    return tuple(
        entry._replace(
            replaced_numbers=tuple(new_numbers[number] for number in entry.replaced_numbers if number in new_numbers)
        )
        for entry in (entries[number - 1] for number in kept_numbers)
    )


def render_replay(document: ConversationDocument) -> str:
    return format_replay_file(document.items)


def render_jsonl(document: ConversationDocument, *, include_links: bool = False) -> str:
    objects = document_to_lines(document) if include_links else iter(document.items)
    return format_json_lines(objects)


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
