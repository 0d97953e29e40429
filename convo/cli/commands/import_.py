"""`convo import`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo import talk.json                     a replay file, or any list of items
  convo import monads.html --as monads       a page, Markdown or JSONL of convo export
  convo import ~/.config/io.datasette.llm/logs.db --dry-run
                                             the conversations of llm
  convo import agents.db --only thread-7     one session of the Agents SDK
  convo import state.json                    what was said in a run; convo resume goes on with the run

The file is not changed. What was imported before is not imported again; --as NAME makes one more session of it.
The sessions are held by the local store; convo convert gives them another owner.
"""


@app.command("import", epilog=EXAMPLES)
def import_command(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What was exported, or a database of llm or Agents SDK.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The new session's name; for one conversation.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="Of several conversations, the one of this name.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is in it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a conversation.")] = False,
) -> None:
    """Read conversations from a file."""
    import asyncio

    from convo.cli.import_ import ImportOptions, run_import

    asyncio.run(run_import(ImportOptions(file, name, only, dry_run, as_json, get_root_options(ctx).config)))
