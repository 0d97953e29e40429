"""`convo export`: its arguments, options and help."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.app import (
    App,
    HandleArgument,
    OptionalText,
    OptionalTexts,
    ProviderOption,
    flag_option,
    get_root_options,
    parse_output_path,
    value_option,
)

app = App()


class ExportFormat(StrEnum):
    """What a conversation can be written as."""

    REPLAY = "replay"
    JSONL = "jsonl"
    MARKDOWN = "markdown"
    HTML = "html"
    RUNSTATE = "runstate"


EXAMPLES = """
Examples:
  convo export monads -o monads.html            one page for a browser, without any script
  convo export @last --format markdown          for reading
  convo export monads --format jsonl --links    items and the calls that made them, a line each
  convo export monads --redact -o talk.json     a replay file without keys, addresses and cards
  convo export refunds --format runstate --agent support.py:triage -o state.json
                                                its run of agents, for the Agents SDK

The suffix of -o names the format: .json, .jsonl, .md, .html. convo import takes each of them back.
A file that exists is overwritten with --force only.
"""


@dataclass(frozen=True)
class ExportFileFlags:
    """What is written."""

    export_format: ExportFormat | None = value_option(
        "--format", "FORMAT", "replay, jsonl, markdown, html or runstate."
    )
    file: OptionalText = value_option("-o --output", "FILE", "Write there; - is stdout.")
    overwrite: bool = flag_option("--force", "Overwrite FILE.")
    links: bool = flag_option("--links", "jsonl: also the calls that made the items.")
    no_data: bool = flag_option("--no-data", "markdown, html: only what is read; cannot be imported.")


@dataclass(frozen=True)
class ExportRunFlags:
    """A run of agents, as a state of theirs."""

    agent: OptionalText = value_option("--agent", "FILE:NAME", "runstate: the agents of the run.")
    context: OptionalText = value_option("--context", "FILE", "runstate: the application's values.")
    schema: OptionalText = value_option(
        "--schema", "LABEL", "runstate: of an older release, like 1.5; but no 1.3, 1.7, 1.8, 1.14, 1.19, 1.20."
    )


@dataclass(frozen=True)
class RedactionFlags:
    """What is hidden."""

    redact: bool = flag_option("--redact", "Hide keys, passwords, addresses, cards ...; says what.")
    patterns: OptionalTexts = value_option("--redact-pattern", "REGEX", "Hide this, too; may be repeated.")


@app.command(epilog=EXAMPLES)
def export_command(
    ctx: typer.Context,
    handle: HandleArgument,
    *,
    output: Annotated[ExportFileFlags, "What is written"],
    run: Annotated[ExportRunFlags, "A run of agents"],
    redaction: Annotated[RedactionFlags, "What is hidden"],
    provider: ProviderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -o: print what was written as JSON.")] = False,
) -> None:
    """Write a conversation into a file."""
    import asyncio

    from convo.cli.export import ExportOptions, run_export

    asked = ExportOptions(
        handle=handle,
        export_format=output.export_format and str(output.export_format),
        file=parse_output_path(output.file),
        overwrite=output.overwrite,
        include_links=output.links,
        include_data=not output.no_data,
        redact=redaction.redact,
        patterns=tuple(redaction.patterns or ()),
        agent=run.agent,
        context=run.context,
        schema=run.schema,
        provider=provider,
        as_json=as_json,
        config=get_root_options(ctx).config,
    )
    asyncio.run(run_export(asked))
