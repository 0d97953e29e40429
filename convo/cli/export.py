"""`convo export`: a conversation as a file.

The arguments alone; `convo.cli.exporting` does the rest.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.options import Handle, Provider, Text, Texts, flag, named_file, value
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
A file that exists is overwritten with --force only.
"""


@dataclass(frozen=True)
class Written:
    """What is written."""

    form: Form | None = value("--format", "FORMAT", "replay, jsonl, markdown, html or runstate.")
    file: Text = value("-o --output", "FILE", "Write there; - is stdout.")
    force: bool = flag("--force", "Overwrite FILE.")
    links: bool = flag("--links", "jsonl: also the calls that made the items.")
    no_data: bool = flag("--no-data", "markdown, html: only what is read; cannot be imported.")


@dataclass(frozen=True)
class OfAgents:
    """A run of agents, as a state of theirs."""

    agent: Text = value("--agent", "FILE:NAME", "runstate: the agents of the run.")
    context: Text = value("--context", "FILE", "runstate: the application's values.")
    schema: Text = value(
        "--schema", "LABEL", "runstate: of an older release, like 1.5; but no 1.3, 1.7, 1.8, 1.14, 1.19, 1.20."
    )


@dataclass(frozen=True)
class Hidden:
    """What is hidden."""

    redact: bool = flag("--redact", "Hide keys, passwords, addresses, cards ...; says what.")
    pattern: Texts = value("--redact-pattern", "REGEX", "Hide this, too; may be repeated.")


@app.command(epilog=EXAMPLES)
def export(
    ctx: typer.Context,
    handle: Handle,
    *,
    written: Annotated[Written, "What is written"],
    run: Annotated[OfAgents, "A run of agents"],
    hidden: Annotated[Hidden, "What is hidden"],
    provider: Provider = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -o: print what was written as JSON.")] = False,
) -> None:
    """Write a conversation into a file."""
    import asyncio

    from convo.cli.exporting import Asked, export_one

    asked = Asked(
        handle=handle,
        form=written.form and str(written.form),
        file=named_file(written.file),
        force=written.force,
        links=written.links,
        data=not written.no_data,
        redact=hidden.redact,
        patterns=tuple(hidden.pattern or ()),
        agent=run.agent,
        context=run.context,
        schema=run.schema,
        provider=provider,
        as_json=as_json,
        config=call_of(ctx).config,
    )
    asyncio.run(export_one(asked))
