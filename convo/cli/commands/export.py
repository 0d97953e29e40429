"""`convo export`: its arguments, options and help."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.app import (
    App,
    OptionalText,
    OptionalTexts,
    ProviderOption,
    TurnHandleArgument,
    flag_option,
    get_root_options,
    parse_output_path,
    value_option,
)

app = App()


class ExportFormat(StrEnum):
    """The formats of an exported conversation."""

    JSON = "json"
    REPLAY = "replay"
    JSONL = "jsonl"
    MARKDOWN = "markdown"
    HTML = "html"
    RUNSTATE = "runstate"


EXAMPLES = """
Examples:
  convo export monads -o monads.html            one HTML page without scripts
  convo export @last --format markdown          print as Markdown
  convo export monads --format jsonl --links    items and the requests that produced them, one per line
  convo export monads -o monads.json            everything, with forks, requests and dates: convo import restores it
  convo export monads --redact -o talk.json     the same without keys, addresses and card numbers
  convo export monads --format replay           the bare list of items, which a program can send
  convo export refunds --format runstate --agent support.py:triage -o state.json
                                                the agent run of a session, for the Agents SDK

The suffix of -o selects the format: .json, .jsonl, .md, .html. convo import reads all of them.
An existing file is overwritten only with --force.
"""


@dataclass(frozen=True)
class ExportFileFlags:
    """The output file and its format."""

    export_format: ExportFormat | None = value_option(
        "--format", "FORMAT", "json, replay (the list of items), jsonl, markdown, html or runstate."
    )
    file: OptionalText = value_option("-o --output", "FILE", "Output file; - for stdout, the default.")
    overwrite: bool = flag_option("--force", "Overwrite an existing file.")
    links: bool = flag_option("--links", "jsonl: include the requests that produced the items.")
    no_data: bool = flag_option("--no-data", "markdown, html: omit the data that convo import needs.")


@dataclass(frozen=True)
class ExportRunFlags:
    """The agents, context and format of an exported run."""

    agent: OptionalText = value_option("--agent", "FILE:NAME", "runstate: agents of the run.")
    context: OptionalText = value_option("--context", "FILE", "runstate: context values of the application.")
    schema: OptionalText = value_option(
        "--schema",
        "LABEL",
        "runstate: schema version of an older release, such as 1.5; except 1.3, 1.7, 1.8, 1.14, 1.19, 1.20.",
    )


@dataclass(frozen=True)
class RedactionFlags:
    """The data to redact."""

    redact: bool = flag_option("--redact", "Redact keys, passwords, addresses, card numbers ..., and report them.")
    patterns: OptionalTexts = value_option(
        "--redact-pattern", "REGEX", "Also redact matches of this pattern; can be repeated."
    )


@app.command(epilog=EXAMPLES)
def export_command(
    ctx: typer.Context,
    handle: TurnHandleArgument,
    *,
    output: Annotated[ExportFileFlags, "Output"],
    run: Annotated[ExportRunFlags, "Agent run"],
    redaction: Annotated[RedactionFlags, "Redaction"],
    provider: ProviderOption = None,
    as_json: bool = flag_option("--json", "With -o: print a report as JSON."),
) -> None:
    """Export a conversation to a file."""
    import asyncio

    from convo.cli.export import ExportOptions, run_export

    options = ExportOptions(
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
    asyncio.run(run_export(options))
