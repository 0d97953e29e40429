"""`convo import`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo import talk.json                     a replay file, or any list of items
  convo import monads.html --as monads       HTML, Markdown or JSONL written by convo export
  convo import ~/.config/io.datasette.llm/logs.db --dry-run
                                             list the conversations of llm
  convo import agents.db --only thread-7     one session of the Agents SDK
  convo import state.json                    the items of a paused run; convo resume continues the run itself

The file is not changed. A conversation that was imported before is skipped; --as NAME imports it again. In a database,
a row that cannot be read affects its conversation only; the exit code is 2 then.
The new sessions are in the local store; convo convert changes their strategy.
"""


@app.command("import", epilog=EXAMPLES)
def import_command(
    ctx: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Exported conversation, list of items, or database of llm or the Agents SDK."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Name of the new session; for a file with one conversation."),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="Import only the conversation with this name.")
    ] = None,
    skip_incomplete: Annotated[
        bool,
        typer.Option("--skip-incomplete", help="Leave out a last line of JSON Lines that is cut off, and report it."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the conversations of the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per conversation.")] = False,
) -> None:
    """Import conversations from a file."""
    import asyncio

    from convo.cli.import_ import ImportOptions, run_import

    options = ImportOptions(file, name, only, skip_incomplete, dry_run, as_json, get_root_options(ctx).config)
    raise typer.Exit(asyncio.run(run_import(options)))
