"""`/new`, `/rename` and `/export` in an open chat.

Each checks everything before it changes anything, because the chat stays open after an error.
"""

import os
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from convo.chat.conversation import Chat
from convo.chat.open import open_chat
from convo.chat.session_record import check_session_name_free
from convo.config.settings import Settings
from convo.errors import InvalidUsage
from convo.strategies.selection import OwnerSelection
from convo.terminal.terminal import format_count

if TYPE_CHECKING:
    from convo.cli.resolve import LookupOptions


async def open_new_chat(chat: Chat, name: str) -> Chat:
    """Open a new conversation with the same strategy and model; nothing is stored.

    Raises InvalidUsage or Conflict for its name.
    """
    if name:
        await check_session_name_free(chat.deps.store, name)
    return await open_chat(OwnerSelection(chat.session.strategy), None, chat.options, chat.deps, name=name)


async def rename_open_session(chat: Chat, name: str) -> None:
    """Rename the open session.

    Raises InvalidUsage for an invalid name, Conflict for the name of another session.
    """
    await check_session_name_free(chat.deps.store, name)
    session = replace(chat.session, name=name)
    if chat.record.is_saved:
        await chat.record.update_fields(session)
    else:
        chat.record.session = session


def _check_new_file(name: str, chat: Chat) -> Path:
    """Return the path of the file. Raises InvalidUsage for an existing one."""
    file = Path(os.path.expanduser(name))
    if os.path.lexists(file):
        command = f"convo export {quote(chat.session.name)} -o {quote(str(file))} --force"
        raise InvalidUsage(f"{file} already exists", hint=f"choose another name, or {command}")
    return file


async def export_open_chat(chat: Chat, file_name: str, settings: Settings, lookup: "LookupOptions") -> str:
    """Write the conversation to a new file and return the report.

    Raises InvalidUsage, and the errors of the lookup and of writing.
    """
    from convo.cli.export import (
        DEFAULT_EXPORT_SUFFIX,
        EXPORT_RENDERERS,
        FORMAT_BY_SUFFIX,
        ExportOptions,
        load_source_from_mirror,
        resolve_export_format,
        select_exported_parts,
        write_export,
    )
    from convo.cli.resolve import HandleResolver
    from convo.transfer.export import load_exported_document

    if not chat.load_state().path:
        raise InvalidUsage("the conversation is empty, so it cannot be exported", hint="send a message first")
    suffix = Path(file_name).suffix.lower()
    if suffix and suffix not in FORMAT_BY_SUFFIX:
        raise InvalidUsage(
            f"unknown file format {suffix}; /export accepts {', '.join(FORMAT_BY_SUFFIX)}",
            hint=f"/export {Path(file_name).with_suffix(DEFAULT_EXPORT_SUFFIX)}",
        )
    await chat.ensure_saved()
    file = _check_new_file(file_name or f"{chat.session.name}{DEFAULT_EXPORT_SUFFIX}", chat)
    options = ExportOptions(chat.session.id, file=file)
    export_format, store = resolve_export_format(options), chat.deps.store
    view = await HandleResolver(settings, store, lookup).resolve(chat.session.id)
    source = await load_source_from_mirror(view, settings, store)
    document = await load_exported_document(source, view, export_format, store)
    document = select_exported_parts(document, export_format, options)
    write_export(EXPORT_RENDERERS[export_format](document, options), file)
    return f"exported {format_count(len(document.items))} to {file}"
