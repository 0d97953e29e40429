"""`convo convert`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonObjectOption, ProviderOption, TurnHandleArgument, get_root_options
from convo.history.records import Strategy

app = App()

EXAMPLES = """
Examples:
  convo convert monads --to chain --dry-run        report what would be lost, and why
  convo convert @last --to replay --as talk.json   keep the history in a file of your own
  convo convert conv_68f2... --to session          copy it to this machine
  convo convert monads --to conversation -m openai/gpt-6.1-terra
                                                   use the endpoint of that model

The source is not changed: the result is a new session. No model is called.
"""


@app.command(epilog=EXAMPLES)
def convert_command(
    ctx: typer.Context,
    handle: TurnHandleArgument,
    to: Annotated[
        Strategy, typer.Option("--to", metavar="STRATEGY", help="New strategy: replay, session, conversation or chain.")
    ],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the new session; for replay also its file.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="MODEL", help="Model of the new session; it also selects the endpoint."),
    ] = None,
    provider: ProviderOption = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Redact keys, passwords, addresses, card numbers ..., and report them.")
    ] = False,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--redact-pattern", metavar="REGEX", help="Also redact matches of this pattern; can be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be lost.")] = False,
    as_json: JsonObjectOption = False,
) -> None:
    """Convert a conversation to another strategy."""
    import asyncio

    from convo.cli.convert import ConvertOptions, run_convert

    patterns = tuple(pattern or ())
    options = ConvertOptions(
        handle, to, name, model, provider, redact, patterns, dry_run, as_json, get_root_options(ctx).config
    )
    asyncio.run(run_convert(options))
