"""`convo models`: what can be used now, and the weights of the built-in model."""

import os
import sys
from typing import Annotated

import typer

from convo.cli.options import AsJson
from convo.cli.shape import App, call_of

app = App()

EXAMPLES = """
Examples:
  convo models                     who answers, and what each provider lacks
  convo models --ask               ask their servers which models they have
  convo models --ask | grep llama  names as -m takes them
  convo models known               windows and prices that are written down, and where
  convo models pull                fetch the built-in model
"""

Ask = Annotated[bool, typer.Option("--ask", help="Ask the servers that are set up which models they have.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def models(ctx: typer.Context, ask: Ask = False, as_json: AsJson = False) -> None:
    """List what can be used, and fetch the built-in model."""
    from convo.cli.providers import show

    if ctx.invoked_subcommand is None:
        show(call_of(ctx).config, asking=ask, as_json=as_json)


@app.command("list")
def list_(ctx: typer.Context, ask: Ask = False, as_json: AsJson = False) -> None:
    """List the providers, what they lack, and who answers."""
    from convo.cli.providers import show

    show(call_of(ctx).config, asking=ask, as_json=as_json)


@app.command("known")
def known(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the windows and prices that are written down, each with its source."""
    from convo.cli.saying import say, say_json
    from convo.config import load
    from convo.ui.known_models import as_rows, table
    from convo.ui.medium import medium_of

    settings = load(call_of(ctx).config)
    if as_json:
        say_json(as_rows(settings))
    else:
        say(table(settings, medium_of(sys.stdout, os.environ)))


@app.command("pull")
def pull(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Fetch the weights of the built-in model, where they are not here."""
    from convo.cli.fetching import fetch

    fetch(call_of(ctx).config, as_json=as_json)
