"""`convo convert`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, HandleArgument, JsonObjectOption, ProviderOption, get_root_options
from convo.history.records import Strategy

app = App()

EXAMPLES = """
Examples:
  convo convert monads --to chain --dry-run        what could not go over, and why
  convo convert @last --to replay --as talk.json   own the history as a file
  convo convert conv_68f2... --to session          carry it to this machine
  convo convert monads --to conversation -m openai/gpt-5-mini
                                                   at that model's endpoint

The source is never changed: the result is a new session beside it. No model is asked.
"""


@app.command(epilog=EXAMPLES)
def convert_command(
    ctx: typer.Context,
    handle: HandleArgument,
    to: Annotated[Strategy, typer.Option("--to", metavar="OWNER", help="replay, session, conversation or chain.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The new session's name; for replay also its file.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="Who answers from now on, and so where.")
    ] = None,
    provider: ProviderOption = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Without keys, passwords, addresses, cards ...; says what.")
    ] = False,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--redact-pattern", metavar="REGEX", help="Without this, too; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be lost.")] = False,
    as_json: JsonObjectOption = False,
) -> None:
    """Hand a conversation to another owner."""
    import asyncio

    from convo.cli.convert import ConvertOptions, run_convert

    patterns = tuple(pattern or ())
    asked = ConvertOptions(
        handle, to, name, model, provider, redact, patterns, dry_run, as_json, get_root_options(ctx).config
    )
    asyncio.run(run_convert(asked))
