"""`convo compact`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, HandleArgument, JsonObjectOption, get_root_options
from convo.compaction.planning import CompactionMode

app = App()

EXAMPLES = """
Examples:
  convo compact @last                           fold what was said; the whole history keeps a handle
  convo compact monads --preview                what would stand there, and what it takes
  convo compact monads --keep-last 3            the last three turns stay as they were said
  convo compact monads --focus "the file names" what the summary should not lose
  convo compact resp_4f1c --mode input          from the items, not from the endpoint's chain
  convo compact conv_68f2 --keep-last 2 --yes   a new conversation: its endpoint cannot shorten the old one so

A chat compacts by itself at the setting compact_at: a part of the model's window (0.8), or tokens; 0 for never.
"""


@app.command(epilog=EXAMPLES)
def compact_command(
    ctx: typer.Context,
    handle: HandleArgument,
    mode: Annotated[
        CompactionMode,
        typer.Option("--mode", metavar="MODE", help="auto, previous_response_id (the endpoint's chain) or input."),
    ] = CompactionMode.AUTO,
    preview: Annotated[bool, typer.Option("--preview", help="Make the window and show it; keep nothing.")] = False,
    focus: Annotated[
        str | None, typer.Option("--focus", metavar="TEXT", help="What a summary looks at most closely.")
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep-last", metavar="N", min=0, help="Leave the last N turns as they were said.")
    ] = 0,
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="Who compacts: provider/model.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="A conversation may go on under a new handle.")] = False,
    as_json: JsonObjectOption = False,
) -> None:
    """Let a shorter history stand in place of a conversation's."""
    import asyncio

    from convo.cli.compact import CompactCommandOptions, run_compact
    from convo.compaction.planning import CompactionOptions

    wish = CompactionOptions(mode, focus, keep)
    asked = CompactCommandOptions(
        handle, wish, model, preview=preview, yes=yes, as_json=as_json, config=get_root_options(ctx).config
    )
    asyncio.run(run_compact(asked))
