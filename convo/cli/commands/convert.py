"""`convo convert`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import (
    App,
    JsonObjectOption,
    ProviderOption,
    TurnHandleArgument,
    flag_option,
    get_root_options,
    value_option,
)
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
    name: str | None = value_option("--as", "NAME", "Name of the new session; for replay also its file."),
    model: str | None = value_option("-m --model", "MODEL", "Model of the new session; it also selects the endpoint."),
    provider: ProviderOption = None,
    redact: bool = flag_option("--redact", "Redact keys, passwords, addresses, card numbers ..., and report them."),
    pattern: list[str] | None = value_option(
        "--redact-pattern", "REGEX", "Also redact matches of this pattern; can be repeated."
    ),
    dry_run: bool = flag_option("--dry-run", "Only report what would be lost."),
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
