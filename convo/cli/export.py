"""`convo export`: a conversation as a file.

The arguments alone; `convo.cli.exporting` does the rest.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from convo.cli.options import Handle, Provider
from convo.cli.shape import App, call_of

app = App()


class Form(StrEnum):
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
"""

WHAT = "What is written"
RUN = "A run of agents"
HIDDEN = "What is hidden"


@app.command(epilog=EXAMPLES)
def export(
    ctx: typer.Context,
    handle: Handle,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format", metavar="FORMAT", help="replay, jsonl, markdown, html or runstate.", rich_help_panel=WHAT
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there.", rich_help_panel=WHAT)
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="jsonl: also the calls that made the items.", rich_help_panel=WHAT)
    ] = False,
    no_data: Annotated[
        bool,
        typer.Option("--no-data", help="markdown, html: only what is read; cannot be imported.", rich_help_panel=WHAT),
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="FILE:NAME", help="runstate: the agents of the run.", rich_help_panel=RUN),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="FILE", help="runstate: the application's values.", rich_help_panel=RUN),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="LABEL", help="runstate: of an older release, like 1.5.", rich_help_panel=RUN),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Hide keys, passwords, addresses, cards ...; says what.", rich_help_panel=HIDDEN),
    ] = False,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--redact-pattern", metavar="REGEX", help="Hide this, too; may be repeated.", rich_help_panel=HIDDEN
        ),
    ] = None,
    provider: Provider = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -o: print what was written as JSON.")] = False,
) -> None:
    """Write a conversation into a file."""
    import asyncio

    from convo.cli.exporting import Asked, export_one

    asked = Asked(
        handle=handle,
        form=form and str(form),
        file=file,
        links=links,
        data=not no_data,
        redact=redact,
        patterns=tuple(pattern or ()),
        agent=agent,
        context=context,
        schema=schema,
        provider=provider,
        as_json=as_json,
        config=call_of(ctx).config,
    )
    asyncio.run(export_one(asked))
