"""`convo compact`: its arguments, options and help."""

import typer

from convo.cli.app import App, HandleArgument, JsonObjectOption, flag_option, get_root_options, value_option
from convo.compaction.planning import CompactionMode

app = App()

EXAMPLES = """
Examples:
  convo compact @last                           compact the last chat; the full history is kept
  convo compact monads --preview                show the result and its tokens without saving it
  convo compact monads --keep-last 3            keep the last three turns unchanged
  convo compact monads --focus "file names"     keep the file names in the summary
  convo compact resp_4f1c --mode input          compact from the items, not from the endpoint's chain
  convo compact conv_68f2 --keep-last 2 --yes   continue in a new conversation with the last two turns

Chats compact automatically at the setting compact_at: a fraction of the context window (0.8) or a number of
tokens; 0 disables it.
"""


@app.command(epilog=EXAMPLES)
def compact_command(
    ctx: typer.Context,
    handle: HandleArgument,
    mode: CompactionMode = value_option(
        "--mode",
        "MODE",
        "Compaction input: auto, previous_response_id (the endpoint's chain) or input (the items).",
        default=CompactionMode.AUTO,
    ),
    preview: bool = flag_option("--preview", "Send the request and show the compacted history, but save nothing."),
    focus: str | None = value_option("--focus", "TEXT", "Topic that the summary covers in most detail."),
    keep: int = value_option("--keep-last", "N", "Keep the last N turns unchanged.", default=0, min=0),
    model: str | None = value_option("-m --model", "MODEL", "Model to compact with, as provider/model."),
    yes: bool = flag_option(
        "--yes -y", "Allow conv_... to continue in a new conversation; the old one does not change."
    ),
    as_json: JsonObjectOption = False,
) -> None:
    """Compact a conversation to fit a smaller context."""
    import asyncio

    from convo.cli.compact import CompactCommandOptions, run_compact
    from convo.compaction.planning import CompactionOptions

    compaction = CompactionOptions(mode, focus, keep)
    options = CompactCommandOptions(
        handle, compaction, model, preview=preview, yes=yes, as_json=as_json, config=get_root_options(ctx).config
    )
    asyncio.run(run_compact(options))
