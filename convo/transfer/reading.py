"""What conversations a file holds, whoever wrote it; its content says what it is, and not its name.

    [ ... ]                        a replay file: the list of items
    lines of objects               items, or the lines of `convo.inspection.document`
    a page or Markdown of convo's  the document in it; without one it is only for reading
    a RunState                     what was said in the run; the run itself is for `convo resume`
    SQLite                         `llm`'s logs, or sessions of the Agents SDK

Only what is read out of a database of somebody else's changes its form: those have kinds of their own.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from convo.engine.item_file import UNNAMED, understood
from convo.engine.named_file import all_of
from convo.engine.whole_file import why
from convo.errors import InputFault, NotFound, Unreadable
from convo.inspection.document import (
    COMMENT_BEGIN,
    COMMENT_END,
    COMMENT_WITHOUT,
    PAGE_BEGIN,
    PAGE_END,
    Document,
    from_lines,
    from_whole,
    is_document,
)
from convo.items import Json

SQLITE = b"SQLite format 3\0"

TAKES = "a replay file, JSONL, Markdown, HTML or RunState of convo export, llm's logs.db, or an Agents SDK session"


def documents_in(place: str) -> list[Document]:
    """The conversations in the file at `place`. raises: NotFound, Unreadable"""
    file = Path(os.path.abspath(os.path.expanduser(place)))
    data = _bytes(file, place)
    try:
        if data.startswith(SQLITE):
            from convo.transfer.databases import documents_of

            return documents_of(file)
        return [document_in(_text(data))]
    except InputFault as wrong:
        raise Unreadable(f"{place}: {wrong.message}", hint=wrong.hint) from wrong


def document_in(text: str) -> Document:
    """The conversation that a text stands for. raises: InputFault"""
    start = text.lstrip()
    if not start:
        raise InputFault("it holds nothing", hint=f"import takes {TAKES}")
    found = next((read(start) for begins, read in FORMS if begins(start)), None)
    if found is None:
        raise InputFault("it is nothing that a conversation can be read from", hint=f"import takes {TAKES}")
    return found


# -- the forms ------------------------------------------------------------------------------------


def _list(text: str) -> Document:
    return _of_items(text)


def _objects(text: str) -> Document:
    """One object, or one a line."""
    try:
        whole: Json = json.loads(text)
    except (ValueError, RecursionError):
        lines = [_json(one, at) for at, one in enumerate(text.split("\n"), 1) if one.strip()]
        return from_lines(lines) if is_document(lines[0]) else _of_items(text)
    return _one(whole, text)


def _one(found: Json, text: str) -> Document:
    if is_document(found):
        return from_whole(found) if "items" in found else from_lines([found])
    if "$schemaVersion" in found:
        from convo.transfer.run_states import document

        return document(found)
    return _of_items(text)


def _page(text: str) -> Document:
    begin = text.rfind(PAGE_BEGIN)
    end = text.find(PAGE_END, begin)
    if begin < 0 or end < 0:
        raise _only_read()
    return from_whole(_json(text[begin + len(PAGE_BEGIN) : end]))


def _markdown(text: str) -> Document:
    last = text.rstrip().rpartition("\n")[2]
    if not (last.startswith(COMMENT_BEGIN) and last.endswith(COMMENT_END)):
        raise _only_read()
    return from_whole(_json(last.removeprefix(COMMENT_BEGIN).removesuffix(COMMENT_END)))


def _is_markdown(text: str) -> bool:
    last = text.rstrip().rpartition("\n")[2]
    return last.startswith((COMMENT_BEGIN, COMMENT_WITHOUT))


FORMS: Sequence[tuple[Callable[[str], bool], Callable[[str], Document]]] = (
    (lambda text: text.startswith("["), _list),
    (lambda text: text.startswith("{"), _objects),
    (lambda text: text[:15].lower().startswith("<!doctype html"), _page),
    (_is_markdown, _markdown),
)


def _only_read() -> InputFault:
    return InputFault(
        "it holds only what is read", hint="take a file that convo export wrote without --no-data, or a list of items"
    )


def _of_items(text: str) -> Document:
    """A list of items, a request or items by line, all of them confirmed. raises: InputFault"""
    items = understood(UNNAMED, text).items
    return Document(items=items, acknowledged=len(items))


def _json(text: str, line: int | None = None) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as wrong:
        where = f"line {line}" if line else "it"
        raise InputFault(f"{where} is not JSON: {wrong}", hint="it may be half written") from wrong


def _bytes(file: Path, place: str) -> bytes:
    """All of a text, and the beginning of a database. raises: NotFound, Unreadable"""
    try:
        if file.is_dir():
            raise Unreadable(f"{place} is a folder", hint="name a file in it")
        with file.open("rb") as opened:
            start = opened.read(len(SQLITE))
            return start if start == SQLITE else start + all_of(opened)
    except FileNotFoundError as wrong:
        raise NotFound("file", place, hint="name a file that is there") from wrong
    except OSError as wrong:
        raise Unreadable(f"{place} cannot be read: {why(wrong)}") from wrong


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise InputFault("it is neither UTF-8 nor a database", hint=f"import takes {TAKES}") from wrong
