"""`convo import`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, flag_option, get_root_options, value_option

app = App()

EXAMPLES = """
Examples:
  convo import talk.json                     a conversation that convo exported, or any list of items
  convo import monads.md talks/              several files; of a folder all files that are not hidden
  convo import monads.html --as monads       HTML, Markdown or JSONL written by convo export
  convo import ~/.config/io.datasette.llm/logs.db --dry-run
                                             list the conversations of llm
  convo import agents.db --only thread-7     one session of the Agents SDK
  convo import ~/.codex/sessions             transcripts of Codex, with requests, tokens and forks
  convo import ~/.claude/projects/*/*.jsonl  transcripts of Claude Code
  convo import state.json                    the items of a paused run; convo resume continues the run itself

No file is changed. A conversation that was imported before is skipped; --as NAME imports it again. In a database, a
row that cannot be read affects its conversation only; the exit code is 2 then. Of several files, one that cannot be
imported is reported, the others are imported, and the exit code is 1.

Lines of a transcript that are not JSON or of an unknown type are left out and reported. The history before a
compaction, an edit or a rewind becomes a branch. Definitions of tools are imported if the file has them: Codex writes
them for newer models, Claude Code in newer versions.
The new sessions are in the local store; convo convert changes their strategy.
"""


@app.command("import", epilog=EXAMPLES)
def import_command(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Exported conversations, lists of items, transcripts of Codex or Claude Code, databases of llm or the"
            " Agents SDK, or folders of them.",
        ),
    ],
    name: str | None = value_option("--as", "NAME", "Name of the new session; for a file with one conversation."),
    only: str | None = value_option("--only", "NAME", "Import only the conversation with this name."),
    skip_incomplete: bool = flag_option(
        "--skip-incomplete", "Leave out a last line of JSON Lines that is cut off, and report it."
    ),
    dry_run: bool = flag_option("--dry-run", "Only list the conversations of the file."),
    as_json: bool = flag_option("--json", "Print one JSON object per conversation."),
) -> None:
    """Import conversations from files."""
    import asyncio

    from convo.cli.import_ import ImportOptions, run_import

    options = ImportOptions(files, name, only, skip_incomplete, dry_run, as_json, get_root_options(ctx).config)
    raise typer.Exit(asyncio.run(run_import(options)))
