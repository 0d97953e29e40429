"""`convo race`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, JsonObjectOption, flag_option, get_root_options, value_option
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo race                                       four short turns with your default model
  convo race "hello" "and then?" -m openai/gpt-6.1-terra
  convo race -f script.txt --json                  one turn per line of the file
  git diff | convo race "review this" "shorter"    append piped input to the first turn
  convo race --jsonl                               print each turn as soon as it ends
  convo race --keep                                keep the sessions, for convo inspect race-chain

Each turn is sent four times. The sessions and their data at the endpoint are removed afterwards.
"""


@app.command(epilog=EXAMPLES)
def race_command(
    ctx: typer.Context,
    turns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT]...",
            help="Messages, one per turn. Piped input is appended to the first, or replaces the argument -.",
        ),
    ] = None,
    script: Path | None = value_option("-f --file", "FILE", "Text file with one turn per line."),
    model: str | None = value_option("-m --model", "MODEL", "Model to use, as provider/model."),
    system: str | None = value_option("-s --system", "TEXT", "Instructions for the model, in every turn."),
    keep: bool = flag_option("--keep", "Keep the four sessions."),
    as_json: JsonObjectOption = False,
    as_jsonl: bool = flag_option("--jsonl", "Print each turn and each strategy as JSON, one per line."),
) -> None:
    """Run the same turns with all four strategies; compare tokens, cost and time."""
    import asyncio

    from convo.cli.race import RaceOptions, read_race_turns, run_and_print_race

    if as_json and as_jsonl:
        raise InvalidUsage("--json and --jsonl cannot be used together", hint="use one of them")
    options = RaceOptions(
        turns=tuple(turns or ()),
        script=script,
        model=model,
        system=system,
        keep_sessions=keep,
        as_json=as_json,
        as_jsonl=as_jsonl,
        config=get_root_options(ctx).config,
    )
    messages = read_race_turns(options)
    raise typer.Exit(asyncio.run(run_and_print_race(options, messages)))
