"""Import: recognize a file by its content, parse it, and store it as a session.

    [ ... ]                     a replay file: the list of items
    lines of objects            items, or the lines of `convo.inspect.serialize`
    HTML or Markdown of convo   the embedded document; without one it cannot be imported
    lines of records            a transcript of Codex or Claude Code: see `convo.transfer.transcripts`
    RunState                    the items of the run; `convo resume` continues the run itself
    SQLite                      logs of `llm`, or sessions of the Agents SDK

The session id is derived from the document and the requested name, so a repeated import adds only missing sessions.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path as FilePath

from convo.chat.files import format_os_error, read_whole_stream
from convo.chat.item_file import UNNAMED_FILE, parse_item_file
from convo.chat.session_record import make_session_name, validate_session_name
from convo.errors import InputFault, InvalidUsage, ItemDeleted, NotFound, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import MAX_TITLE_ITEMS, Item, Json, user_message
from convo.history.records import IMPORT_USE_ORDER, Link, Scope, Session, Strategy
from convo.history.tree import Key, Path, root_key
from convo.inspect.serialize import (
    COMMENT_BEGIN,
    COMMENT_END,
    COMMENT_WITHOUT_DATA,
    PAGE_BEGIN,
    PAGE_END,
    ConversationDocument,
    document_from_json,
    document_from_lines,
    is_document,
    link_from_json,
    number_nodes,
)
from convo.runstate.reader import run_state_from_json
from convo.runstate.run_state import RunState
from convo.stores.base import AppendItems, Store
from convo.transfer.convert import SessionWriter

SQLITE_HEADER = b"SQLite format 3\0"

IMPORT_FORMATS = (
    "a replay file, JSONL, Markdown, HTML or RunState of convo export, a transcript of Codex or Claude Code, "
    "llm's logs.db, or an Agents SDK session"
)


def read_documents(
    file_name: str,
    report_fault: Callable[[str, InputFault], None] | None = None,
    report_incomplete_line: Callable[[str], None] | None = None,
) -> list[ConversationDocument]:
    """Read the conversations in the file at `file_name`. Raises NotFound and Unreadable.

    report_fault:            gets the name of each conversation of a database that cannot be read, and why; without it
                             the first such fault is raised
    report_incomplete_line:  gets the description of a last line of JSON Lines that is left out, as its writer did not
                             finish it; without it such a line is an error
    """
    file = FilePath(os.path.abspath(os.path.expanduser(file_name)))
    data = _read_bytes(file, file_name)
    try:
        if data.startswith(SQLITE_HEADER):
            from convo.transfer.databases import read_database

            return read_database(file, report_fault)
        if report_incomplete_line:
            data = _without_incomplete_line(data, report_incomplete_line)
        return [parse_conversation_document(_decode_text(data))]
    except InputFault as error:
        raise Unreadable(f"{file_name}: {error.message}", hint=error.hint) from error


def _without_incomplete_line(data: bytes, report: Callable[[str], None]) -> bytes:
    """Return JSON Lines without a last line that is not JSON; its end may be a part of a character."""
    lines = data.rstrip().split(b"\n")
    if len(lines) > 1 and _is_json(lines[0]) and not _is_json(lines[-1]):
        start = lines[-1][:80].decode(errors="replace")
        report(f"left out: line {len(lines)}, which is incomplete: {start}")
        return b"\n".join(lines[:-1])
    return data


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def parse_conversation_document(text: str) -> ConversationDocument:
    """Parse a text in any of the supported formats. Raises InputFault."""
    start = text.lstrip()
    if not start:
        raise InputFault("the file is empty", hint=f"import {IMPORT_FORMATS}")
    document = next((read(start) for is_format, read in DOCUMENT_PARSERS if is_format(start)), None)
    if document is None:
        raise InputFault("unrecognized file format", hint=f"import {IMPORT_FORMATS}")
    return document


def _parse_objects(text: str) -> ConversationDocument:
    """Parse one object, or one object a line."""
    try:
        document: Json = json.loads(text)
    except (ValueError, RecursionError):
        lines = [_load_json(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        return document_from_lines(lines) if is_document(lines[0]) else _parse_items(text)
    return _parse_object(document, text)


def _parse_object(document: Json, text: str) -> ConversationDocument:
    if is_document(document):
        return document_from_json(document) if "items" in document else document_from_lines([document])
    if "$schemaVersion" in document:
        return document_from_run_state(document)
    return _parse_items(text)


def _parse_page(text: str) -> ConversationDocument:
    begin = text.rfind(PAGE_BEGIN)
    end = text.find(PAGE_END, begin)
    if begin < 0 or end < 0:
        raise _no_data_error()
    return document_from_json(_load_json(text[begin + len(PAGE_BEGIN) : end]))


def _parse_markdown(text: str) -> ConversationDocument:
    last = text.rstrip().rpartition("\n")[2]
    if not (last.startswith(COMMENT_BEGIN) and last.endswith(COMMENT_END)):
        raise _no_data_error()
    from convo.transfer.export import render_markdown_export  # late: lint and resume import this module, too

    document = document_from_json(_load_json(last.removeprefix(COMMENT_BEGIN).removesuffix(COMMENT_END)))
    if _text_before_comment(render_markdown_export(document)) == _text_before_comment(text):
        return document
    note = "its text is not that of the data at its end, from which it is imported: an edit of the text has no effect"
    return replace(document, notes=(*document.notes, note))


def _text_before_comment(markdown: str) -> Sequence[str]:
    return markdown.rstrip().splitlines()[:-1]


def _is_markdown(text: str) -> bool:
    last = text.rstrip().rpartition("\n")[2]
    return last.startswith((COMMENT_BEGIN, COMMENT_WITHOUT_DATA))


def _parse_items(text: str) -> ConversationDocument:
    """Parse a list of items, a request, or one item a line; all items are confirmed. Raises InputFault."""
    items = parse_item_file(UNNAMED_FILE, text).items
    return ConversationDocument(items=items, confirmed_count=len(items))


def _is_transcript(text: str) -> bool:
    from convo.transfer.transcripts import is_transcript  # late: lint and resume import this module, too

    return is_transcript(text)


def _parse_transcript(text: str) -> ConversationDocument:
    from convo.transfer.transcripts import parse_transcript

    return parse_transcript(text)


DOCUMENT_PARSERS: Sequence[tuple[Callable[[str], bool], Callable[[str], ConversationDocument]]] = (
    (_is_transcript, _parse_transcript),
    (lambda text: text.startswith("["), _parse_items),
    (lambda text: text.startswith("{"), _parse_objects),
    (lambda text: text[:15].lower().startswith("<!doctype html"), _parse_page),
    (_is_markdown, _parse_markdown),
)


def _no_data_error() -> InputFault:
    return InputFault(
        "the file has no data to import",
        hint="use a file that convo export wrote without --no-data, or a list of items",
    )


def _load_json(text: str, line: int | None = None) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        location = f"line {line}" if line else "the file"
        hint = "check whether the file is complete"
        if line:
            hint += "; --skip-incomplete leaves out its last line if that is not"
        raise InputFault(f"{location} is not JSON: {describe_json_error(error)}", hint=hint) from error


def _read_bytes(file: FilePath, path: str) -> bytes:
    """Read a whole text, or the first bytes of a database. Raises NotFound and Unreadable."""
    try:
        if file.is_dir():
            raise Unreadable(f"{path} is a folder", hint="choose a file in it")
        with file.open("rb") as stream:
            start = stream.read(len(SQLITE_HEADER))
            return start if start == SQLITE_HEADER else start + read_whole_stream(stream)
    except FileNotFoundError as error:
        raise NotFound("file", path, hint="check the path") from error
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputFault("the file is not UTF-8 text or a database", hint=f"import {IMPORT_FORMATS}") from error


@dataclass(frozen=True, slots=True)
class ImportDefaults:
    """Model and endpoint of an imported conversation; the model is used where the file names none."""

    model: str
    scope: Scope


async def import_document(
    document: ConversationDocument, defaults: ImportDefaults, writer: SessionWriter, name: str | None = None
) -> Session:
    """Store `document` as a new session.

    name:  the required name; None takes the one in the file, or the first words, with a number if it is taken

    Raises Conflict if `name` is taken or another process imports the same document, Unreadable for an item or link
    that cannot be stored, and StoreFault.
    """
    session_id, now = imported_session_id(document, name, writer.store.tenant), writer.clock.now()
    existing = await writer.store.session(session_id)
    if existing and name is not None and existing.name != name:
        session_id = writer.new_id("ses")  # the earlier import was renamed since, and its old name is requested again
    path = Path(root_key(writer.store.tenant)).append(document.items)
    keys = number_nodes(document, path)
    links, new_ids = await _missing_links(document, keys, session_id, writer)
    created_at = now if document.created_at is None else document.created_at
    session = Session(
        id=session_id,
        name=name or imported_session_name(document),
        strategy=Strategy.SESSION,
        model=document.model or defaults.model,
        head=path.head,
        confirmed_head=path.first(document.confirmed_count).head,
        created_at=created_at,
        used_at=document.used_at or max([link.created_at for link in links], default=created_at),
        scope=defaults.scope,
        link_id=next((new_ids[link["id"]] for link in document.links if link["id"] == document.link_id), None),
        instructions=document.instructions,
        use_order=IMPORT_USE_ORDER,
    )
    branches = [AppendItems(keys[other.after], [other.item]) for other in document.other_items]
    return await writer.write_session(session, path, name, links, branches)


def imported_session_id(document: ConversationDocument, name: str | None, tenant: str) -> str:
    """Return the session id that an import of `document` under the requested name gets; the same one each time."""
    head = Path(root_key(tenant)).append(document.items).head
    fields = [document.confirmed_count, document.name, document.model, document.instructions, document.created_at]
    parts = [str(head), *fields, [dict(link) for link in document.links], name]
    return f"ses_{sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


async def find_imported_sessions(
    documents: Sequence[ConversationDocument], store: Store, name: str | None = None
) -> list[Session | None]:
    """Find the session of an earlier import of each document, also if it was continued since; else None.

    name:  the name requested for the only document; a session with another name does not count
    """
    sessions = [await store.session(imported_session_id(document, name, store.tenant)) for document in documents]
    if name is not None:
        return [session if session and session.name == name else None for session in sessions]
    if len(documents) == 1:
        return list(sessions)
    sessions_by_creation: dict[float | None, list[Session]] = {}
    for session in await store.sessions():
        if session.strategy is Strategy.SESSION:
            sessions_by_creation.setdefault(session.created_at, []).append(session)
    return [
        existing or await _find_continued_session(sessions_by_creation.get(document.created_at, ()), document, store)
        for document, existing in zip(documents, sessions, strict=True)
    ]


async def _find_continued_session(
    sessions: Iterable[Session], document: ConversationDocument, store: Store
) -> Session | None:
    head = Path(root_key(store.tenant)).append(document.items).head
    for session in sessions:
        with suppress(ItemDeleted):
            if session.head == head or (await store.path(session.head)).contains(head):
                return session
    return None


def imported_session_name(document: ConversationDocument) -> str:
    """Return the name that a document asks for, changed to a valid session name."""
    if document.name is not None:
        try:
            return validate_session_name(document.name)
        except InvalidUsage:
            return make_session_name(user_message(document.name))
    return make_session_name(*document.items[:MAX_TITLE_ITEMS])


def _find_common_prefix(first: str, last: str) -> str:
    """Return the prefix of two ids, which all ids that sort between them have, too."""
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


async def _missing_links(
    document: ConversationDocument, keys: Mapping[int, Key], session_id: str, writer: SessionWriter
) -> tuple[list[Link], Mapping[str, str]]:
    """Parse the links that the store does not have. Also returns the id of each link in the store. Raises Unreadable.

    If the store has another link with one of the ids, as of the same transcript before it was redacted or while its
    agent still wrote it, all links get new ids: the forks of a shared one would be exported with this conversation.
    """
    try:
        links = [link_from_json(link_json, keys, session_id) for link_json in document.links]
    except InputFault as error:
        raise Unreadable(error.message) from error
    ids = {link.id: link.id for link in links}
    # Usually the store has none of them, which one query shows; asked one by one, 3,000 took 8.5 s of CPU.
    common = _find_common_prefix(min(ids, default=""), max(ids, default=""))
    if not links or not await writer.store.find_handles(common, limit=1):
        return links, ids
    stored = {link.id: found for link in links if (found := await writer.store.link(link.id))}
    if all(link == replace(stored.get(link.id, link), session_id=session_id, body_head=None) for link in links):
        return [link for link in links if link.id not in stored], ids
    ids = {link_id: _make_new_id(link_id, session_id) for link_id in ids}
    renamed = [
        replace(
            link,
            id=ids[link.id],
            parent_id=ids.get(link.parent_id or ""),
            previous_response_id=ids.get(link.previous_response_id or "", link.previous_response_id),
        )
        for link in links
    ]
    return renamed, ids


def _make_new_id(link_id: str, session_id: str) -> str:
    prefix = "try" if link_id.startswith("try_") else "resp"
    return f"{prefix}_{sha256(f'{session_id} {link_id}'.encode()).hexdigest()[:32]}"


SERVER_STATE_FIELDS = ("conversation_id", "previous_response_id")
"""Fields of a RunState that name a history at its endpoint."""


def document_from_run_state(document: Json) -> ConversationDocument:
    """Load the conversation of a RunState. Raises InvalidRunState, and InputFault if an endpoint stores the history."""
    state = run_state_from_json(document)
    owner = next((name for key in SERVER_STATE_FIELDS if (name := state.document.get(key))), None)
    if owner:
        raise InputFault(f"its history is stored by {owner}", hint=f"convo convert {owner} --to session")
    items = tuple(run_state_items(state))
    return ConversationDocument(items=items, confirmed_count=len(items))


def run_state_items(state: RunState) -> list[Item]:
    """Return the items of a run, from its input on."""
    original_input = state.document["original_input"]
    input_items = (
        [{"role": "user", "content": original_input}] if isinstance(original_input, str) else list(original_input)
    )
    return [
        *input_items,
        *(item["raw_item"] for item in state.document.get("generated_items") or [] if not is_approval_item(item)),
    ]


def is_approval_item(item: Item) -> bool:
    """Whether an item only repeats a call that needs approval."""
    return item.get("type") == "tool_approval_item"
