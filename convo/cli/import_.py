"""`convo import`: store the conversations of a file as sessions.

All are parsed before the first is stored. Conversations imported before are skipped, so that an
interrupted import can be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from convo.chat.session_record import validate_session_name
from convo.cli.convert import get_endpoint_scope
from convo.cli.deps import open_configured_store
from convo.cli.output import print_json, print_line, print_notice
from convo.config.loader import choose_model, load_settings
from convo.config.settings import Settings
from convo.errors import Conflict, InvalidSettings, InvalidUsage, NotFound
from convo.history.items import Json
from convo.history.records import Session
from convo.inspect.serialize import ConversationDocument
from convo.runtime import SystemClock, random_id
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
    """The arguments of one `convo import`."""

    file: str
    name: str | None = None
    only: str | None = None
    dry_run: bool = False
    as_json: bool = False
    config: Path | None = None


async def run_import(asked: ImportOptions) -> None:
    """Store the conversations of a file, and print the session of each."""
    documents = select_documents(read_documents(asked.file), asked)
    settings = load_settings(asked.config)
    if asked.dry_run:
        for document in documents:
            report_import(document, None, as_json=asked.as_json)
        return
    async with open_configured_store(settings) as store:
        name = None if asked.name is None else validate_session_name(asked.name)
        there = await find_imported_sessions(documents, store, name)
        beside = SessionWriter(store, SystemClock(), random_id)
        for document, before in zip(documents, there, strict=True):
            try:
                made = before or await import_document(
                    document, choose_import_defaults(document, settings), beside, name
                )
            except Conflict:  # the name is taken, or another process imports the same file now
                (before,) = await find_imported_sessions([document], store, name)
                if before is None:
                    raise
                made = before
            report_import(document, made, as_json=asked.as_json, before=before is not None)
        if len(documents) == 1 and any(there):
            print_notice(f"imported before; to import it once more: convo import {quote(asked.file)} --as NAME")


def select_documents(documents: Sequence[ConversationDocument], asked: ImportOptions) -> Sequence[ConversationDocument]:
    """Return the selected conversations.

    Raises NotFound for an unknown name, InvalidUsage for one new name for several conversations.
    """
    if asked.only is not None:
        documents = [one for one in documents if asked.only in (one.name, imported_session_name(one))]
        if not documents:
            raise NotFound("conversation in the file", asked.only, hint=f"convo import {asked.file} --dry-run")
    if asked.name is not None and len(documents) != 1:
        raise InvalidUsage(
            f"--as names one session, and the file holds {format_count(len(documents), 'conversation')}", hint="--only"
        )
    return documents


def choose_import_defaults(document: ConversationDocument, settings: Settings) -> ImportDefaults:
    """Choose the model and endpoint of the session; an unknown model is replaced by the settings' own."""
    try:
        choice = choose_model(settings, document.model, where="the file")
    except InvalidSettings:
        choice = choose_model(settings)
    return ImportDefaults(str(choice.name), get_endpoint_scope(choice))


def report_import(document: ConversationDocument, made: Session | None, *, as_json: bool, before: bool = False) -> None:
    """Print one conversation and its session; `was_imported_before`: by an earlier import."""
    name = made.name if made else imported_session_name(document)
    if as_json:
        told: dict[str, Json] = {
            "session": made.name if made else None,
            "name": document.name,
            "items": len(document.items),
            "links": len(document.links),
            "model": made.model if made else document.model,
        }
        print_json(told)
    else:
        print_line(
            escape_control_chars(f"{name}  {format_count(len(document.items))}") + ("  came before" if before else "")
        )
