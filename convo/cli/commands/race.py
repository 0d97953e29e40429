"""`convo race`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, JsonObjectOption, get_root_options
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo race                                       four short turns, with the model of your settings
  convo race "hello" "and then?" -m openai/gpt-5-mini
  convo race -f script.txt --json                  one turn a line
  git diff | convo race "review this" "shorter"    the piped input follows the first turn
  convo race --jsonl                               what each turn took, as soon as it is over
  convo race --keep                                and look at them afterwards: convo inspect race-chain

Each turn is asked four times. The sessions, and what they left at the endpoint, are removed afterwards.
"""


@app.command(epilog=EXAMPLES)
def race_command(
    ctx: typer.Context,
    turns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT]...", help="The turns. Piped input is appended to the first; - makes it a turn."
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="A text file with one turn a line.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="Who answers: provider/model.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("-s", "--system", metavar="TEXT", help="Instructions, sent with every turn.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the four sessions.")] = False,
    as_json: JsonObjectOption = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print each turn, then each owner, one a line.")] = False,
) -> None:
    """Ask the same under all four owners, and compare what each took."""
    import asyncio

    from convo.cli.race import RaceOptions, read_race_turns, run_and_print_race

    if as_json and as_jsonl:
        raise InvalidUsage("--json is one object and --jsonl a line for each turn", hint="use one of them")
    asked = RaceOptions(
        turns=tuple(turns or ()),
        script=script,
        model=model,
        system=system,
        keep=keep,
        as_json=as_json,
        as_jsonl=as_jsonl,
        config=get_root_options(ctx).config,
    )
    said = read_race_turns(asked)
    raise typer.Exit(asyncio.run(run_and_print_race(asked, said)))
