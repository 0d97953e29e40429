"""`convo export`: write a conversation as replay file, JSONL, Markdown, HTML or RunState.

A mirrored conversation is written as the local record has it, without a request; an unknown handle is
read from its endpoint.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

from convo.chat.files import resolve_links, write_atomic
from convo.chat.lookup import to_absolute_path
from convo.cli.convert import owner_endpoint
from convo.cli.deps import open_configured_store
from convo.cli.output import print_json, print_notice
from convo.cli.progress import show_progress
from convo.cli.redact import format_redactions, redact_if_requested
from convo.cli.resolve import HandleResolver, LookupOptions
from convo.config.loader import load_settings
from convo.config.settings import Settings
from convo.errors import InvalidUsage
from convo.history.records import EMBEDDED_SCOPE
from convo.inspect.redaction import RedactionResult
from convo.inspect.serialize import ConversationDocument, format_document
from convo.inspect.view import ConversationView
from convo.report import FLAT, OMITTED, Count, Keywords
from convo.stores.base import Store
from convo.terminal.terminal import format_count
from convo.transfer.convert import ConversationSource, load_source
from convo.transfer.export import (
    READING_FORMATS,
    load_exported_document,
    render_jsonl,
    render_markdown_export,
    render_replay,
)

FORMAT_BY_SUFFIX: Mapping[str, str] = MappingProxyType(
    {".json": "json", ".jsonl": "jsonl", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}
)


DEFAULT_EXPORT_SUFFIX = ".md"
"""The suffix of an export of the open chat without a file name, and in place of an unknown one."""

RUNSTATE_FORMAT = "runstate"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The arguments of one `convo export`; `export_format` is None if the file's suffix decides."""

    handle: str
    export_format: str | None = None
    file: Path | None = None
    overwrite: bool = False
    include_links: bool = False
    include_data: bool = True
    redact: bool = False
    patterns: tuple[str, ...] = ()
    agent: str | None = None
    context: str | None = None
    schema: str | None = None
    provider: str | None = None
    as_json: bool = False
    config: Path | None = None


async def run_export(options: ExportOptions) -> None:
    """Write one conversation. After an error nothing was written."""
    export_format, settings = resolve_export_format(options), load_settings(options.config)
    check_overwrite(options)
    if export_format == RUNSTATE_FORMAT:
        await _export_run(options, settings)
        return
    with show_progress("exporting", settings):
        async with open_configured_store(settings) as store:
            view = await HandleResolver(settings, store, LookupOptions(options.config, options.provider)).resolve(
                options.handle
            )
            source = await load_source_from_mirror(view, settings, store)
            document = await load_exported_document(source, view, export_format, store)
        if options.file:
            check_not_source_file(options.file, source)
        document = select_exported_parts(document, export_format, options)
        redactions = redact_if_requested(document, options.redact, options.patterns, settings)
        document = redactions.document if redactions else document
        text = EXPORT_RENDERERS[export_format](document, options)
    write_export(text, options.file)
    if options.file:
        report_export(options, export_format, document, redactions)
    for note in (*source.notes, *(format_redactions(redactions) if redactions and not options.as_json else ())):
        print_notice(note)


def check_overwrite(options: ExportOptions) -> None:
    """Raise InvalidUsage for an existing file without --force. A pipe or a device is written to."""
    file = Path(to_absolute_path(str(options.file))) if options.file else None
    if file and not options.overwrite and os.path.lexists(file) and (file.is_file() or not file.exists()):
        raise InvalidUsage(
            f"{options.file} already exists", hint="pass --force to overwrite it, or name another file with -o"
        )


def resolve_export_format(options: ExportOptions) -> str:
    """Return the format to write.

    Raises InvalidUsage for an option of another format, or a suffix without a format.
    """
    ending = options.file.suffix.lower() if options.file else ""
    suffix = FORMAT_BY_SUFFIX.get(ending)
    if options.file and ending and suffix is None and options.export_format is None:
        raise InvalidUsage(
            f"unknown file format {ending}; -o accepts {', '.join(FORMAT_BY_SUFFIX)}",
            hint="use another suffix, or --format FORMAT",
        )
    export_format = options.export_format or suffix or "replay"
    if options.include_links and export_format != "jsonl":
        raise InvalidUsage(f"--links applies to jsonl, not to {export_format}", hint="--format jsonl --links")
    if not options.include_data and export_format not in READING_FORMATS:
        raise InvalidUsage(
            f"--no-data applies to markdown and html, not to {export_format}", hint="leave out --no-data"
        )
    if export_format == RUNSTATE_FORMAT:
        check_run_export_options(options)
    elif option := next((f"--{name}" for name in ("agent", "context", "schema") if getattr(options, name)), None):
        raise InvalidUsage(
            f"{option} applies to runstate, not to {export_format}", hint="--format runstate --agent FILE:NAME"
        )
    if options.as_json and not options.file:
        raise InvalidUsage("--json needs an output file", hint="add -o FILE; to print JSON, use --format jsonl")
    return export_format


def check_run_export_options(options: ExportOptions) -> None:
    """Raise InvalidUsage for options that do not apply to a run."""
    if options.agent is None:
        raise InvalidUsage("exporting a run needs its agents", hint="--agent FILE.py:NAME")
    if options.redact or options.patterns:
        raise InvalidUsage(
            "--redact does not apply to runstate: a redacted run cannot be resumed",
            hint="export its conversation: --format replay --redact",
        )


async def _export_run(options: ExportOptions, settings: Settings) -> None:
    from convo.cli.run_options import RunFlags
    from convo.cli.run_state_export import render_session_run_state

    flags = RunFlags(agent=options.agent, context=options.context)
    text = await render_session_run_state(
        options.handle, flags, options.schema, settings, settings.paths.data / "paused"
    )
    write_export(text, options.file)
    if options.as_json:
        print_json(ExportReport(str(options.file), RUNSTATE_FORMAT))


def write_export(text: str, file: Path | None) -> None:
    """Write `text` to a private file, or to stdout. Raises StoreReadOnly, StoreFull or StoreFault."""
    if file:
        write_atomic(resolve_links(Path(to_absolute_path(str(file)))), text)
    else:
        sys.stdout.write(text)


def select_exported_parts(
    document: ConversationDocument, export_format: str, options: ExportOptions
) -> ConversationDocument:
    """Return the part of a document that this format writes; the rest need not be searched for secrets."""
    if export_format == "replay" or (export_format == "jsonl" and not options.include_links):
        return ConversationDocument(document.items, document.confirmed_count)
    return document if options.include_data else replace(document, links=())


async def load_source_from_mirror(view: ConversationView, settings: Settings, store: Store) -> ConversationSource:
    """Load the source without a request; only our own endpoint is read, which is this store."""
    if view.scope != EMBEDDED_SCOPE:
        return await load_source(view, store)
    async with owner_endpoint(view, settings, store) as endpoint:
        return await load_source(view, store, endpoint)


def check_not_source_file(file: Path, source: ConversationSource) -> None:
    """Raise InvalidUsage for the file of the conversation itself."""
    for own_path in (source.state.handle, source.handle):
        if own_path and os.path.exists(own_path) and os.path.exists(file) and os.path.samefile(own_path, file):
            raise InvalidUsage(f"{file} is the conversation's own file", hint="name another one with -o")


def _render_html(document: ConversationDocument, options: ExportOptions) -> str:
    from convo.server.pages import render_conversation_page

    return render_conversation_page(document, include_data=options.include_data)


EXPORT_RENDERERS: Mapping[str, Callable[[ConversationDocument, ExportOptions], str]] = MappingProxyType(
    {
        "json": lambda document, options: format_document(document),
        "replay": lambda document, options: render_replay(document),
        "jsonl": lambda document, options: render_jsonl(document, include_links=options.include_links),
        "markdown": lambda document, options: render_markdown_export(document, include_data=options.include_data),
        "html": _render_html,
    }
)


class ExportReport(NamedTuple):
    """An exported file.

    items:  number of items; omitted for an agent run
    """

    file: str
    format: Annotated[str, Keywords(enum=[*EXPORT_RENDERERS, RUNSTATE_FORMAT])]
    items: Annotated[Count | None, OMITTED] = None
    redactions: Annotated[RedactionResult | None, FLAT] = None


def report_export(
    options: ExportOptions,
    export_format: str,
    document: ConversationDocument,
    redactions: RedactionResult | None,
) -> None:
    """Print the file and the number of its items."""
    if options.as_json:
        print_json(ExportReport(str(options.file), export_format, len(document.items), redactions))
    else:
        print_notice(f"exported {format_count(len(document.items))} to {options.file}")
