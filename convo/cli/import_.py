"""`convo import`: store the conversations of files as sessions.

All of a file are parsed before the first is stored. Conversations imported before are skipped, so that an
interrupted import can be repeated.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.chat.session_record import validate_session_name
from convo.cli.convert import get_endpoint_scope
from convo.cli.deps import open_configured_store
from convo.cli.output import print_failure, print_json, print_line, print_notice, to_failure
from convo.cli.progress import show_progress
from convo.config.loader import choose_model, load_settings
from convo.config.settings import Settings
from convo.errors import Conflict, InputFault, InvalidSettings, InvalidUsage, NotFound, Unreadable
from convo.history.records import Session
from convo.inspect.serialize import ConversationDocument
from convo.report import Count
from convo.runtime import SystemClock, random_id, track_progress
from convo.terminal.terminal import escape_control_chars, format_count
from convo.transfer.convert import SessionWriter
from convo.transfer.import_ import (
    ImportDefaults,
    find_imported_sessions,
    import_document,
    imported_session_name,
    read_documents,
)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The arguments of one `convo import`.

    skip_incomplete:  leave out an incomplete last line of JSON Lines
    """

    files: Sequence[str]
    name: str | None = None
    only_name: str | None = None
    skip_incomplete: bool = False
    dry_run: bool = False
    as_json: bool = False
    config: Path | None = None


async def run_import(options: ImportOptions) -> int:
    """Store the conversations of the files, print the session of each, and return the exit code.

    Of several files, one that cannot be imported is reported, and the exit code is 1. The only one raises its error.
    """
    files = [file for name in options.files for file in _list_files(name)]
    if len(files) == 1:
        return await _import_file(files[0], options)
    if options.name is not None or options.only_name is not None:
        flag = "--as" if options.name is not None else "--only"
        raise InvalidUsage(f"{flag} applies to one file, not to {len(files)}", hint="import that file alone")
    has_failed = False
    for file in files:
        try:
            has_failed |= await _import_file(file, options) != 0
        except (InputFault, NotFound) as error:
            print_failure(to_failure(error), as_json=options.as_json, handle=file)
            has_failed = True
    return int(has_failed)


def _list_files(path: str) -> Sequence[str]:
    """Return the files in a folder and the folders below, without hidden ones; a file itself. Raises NotFound."""
    if not os.path.isdir(os.path.expanduser(path)):
        return [path]
    found = sorted(
        str(file)
        for file in Path(os.path.expanduser(path)).rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(os.path.expanduser(path)).parts)
    )
    files = [file for file in found if not file.endswith(METADATA_SUFFIX)]
    if len(files) < len(found):
        print_notice(f"{path}: skipped {format_count(len(found) - len(files), 'metadata file')}, *{METADATA_SUFFIX}")
    if not files:
        raise NotFound("file in the folder", path, hint="check the path")
    return files


METADATA_SUFFIX = ".meta.json"
"""The ending of the metadata files that Claude Code writes for each transcript of a subagent."""


async def _import_file(file: str, options: ImportOptions) -> int:
    """Store the conversations of one file, and return the exit code.

    Of several conversations, one that cannot be read is reported after the others. The only one raises its error.
    """
    settings = load_settings(options.config)
    faults: dict[str, Unreadable] = {}

    def report_fault(name: str, fault: InputFault) -> None:
        if options.only_name in (None, name):
            faults[name] = Unreadable(f"{file}: {name!r} cannot be imported: {fault.message}")

    with show_progress("reading", settings):
        documents: Sequence[ConversationDocument] = read_documents(
            file, report_fault, print_notice if options.skip_incomplete else None
        )
        if faults and (options.only_name is not None or not documents):
            raise next(iter(faults.values()))
        documents = select_documents(documents, file, options)
    for document in documents:
        for note in document.notes:
            print_notice(f"{file}: {note}")
    if options.dry_run:
        for document in documents:
            report_import(document, None, as_json=options.as_json)
    else:
        with show_progress("importing", settings):
            await _store_documents(documents, file, options, settings)
    for name, error in faults.items():
        print_failure(to_failure(error), as_json=options.as_json, name=name)
    return Unreadable.exit if faults else 0


async def _store_documents(
    documents: Sequence[ConversationDocument], file: str, options: ImportOptions, settings: Settings
) -> None:
    """Store each conversation that was not imported before, and print its session."""
    async with open_configured_store(settings) as store:
        name = None if options.name is None else validate_session_name(options.name)
        imported = await find_imported_sessions(documents, store, name)
        writer = SessionWriter(store, SystemClock(), random_id)
        for document, previous in track_progress("conversations", list(zip(documents, imported, strict=True))):
            try:
                session = previous or await import_document(
                    document, choose_import_defaults(document, settings), writer, name
                )
            except Conflict:  # the name is taken, or another process imports the same file now
                (previous,) = await find_imported_sessions([document], store, name)
                if previous is None:
                    raise
                session = previous
            report_import(document, session, as_json=options.as_json, was_imported_before=previous is not None)
        if len(documents) == 1 and any(imported):
            print_notice(f"already imported; to import it again: convo import {quote(file)} --as NAME")


def select_documents(
    documents: Sequence[ConversationDocument], file: str, options: ImportOptions
) -> Sequence[ConversationDocument]:
    """Return the selected conversations.

    Raises NotFound for an unknown name, InvalidUsage for one new name for several conversations.
    """
    if options.only_name is not None:
        documents = [
            document for document in documents if options.only_name in (document.name, imported_session_name(document))
        ]
        if not documents:
            raise NotFound("conversation in the file", options.only_name, hint=f"convo import {file} --dry-run")
    if options.name is not None and len(documents) != 1:
        raise InvalidUsage(
            f"--as names one session, and the file contains {format_count(len(documents), 'conversation')}",
            hint="add --only NAME",
        )
    return documents


def choose_import_defaults(document: ConversationDocument, settings: Settings) -> ImportDefaults:
    """Choose the model and endpoint of the session; an unknown model is replaced by the settings' own."""
    try:
        choice = choose_model(settings, document.model, source="the file")
    except InvalidSettings:
        choice = choose_model(settings)
    return ImportDefaults(str(choice.name), get_endpoint_scope(choice))


class ImportReport(NamedTuple):
    """An imported conversation.

    session:  the new session, or the session of an earlier import; null with --dry-run
    name:     name of the conversation in the file
    """

    session: str | None
    name: str | None
    items: Count
    links: Count
    model: str | None


def report_import(
    document: ConversationDocument, session: Session | None, *, as_json: bool, was_imported_before: bool = False
) -> None:
    """Print one conversation and its session; `was_imported_before`: by an earlier import."""
    name = session.name if session else imported_session_name(document)
    if as_json:
        counts = len(document.items), len(document.links)
        model = session.model if session else document.model
        print_json(ImportReport(session.name if session else None, document.name, *counts, model))
    else:
        print_line(
            escape_control_chars(f"{name}  {format_count(len(document.items))}")
            + ("  already imported" if was_imported_before else "")
        )
