"""`convo models`: its arguments, options and help."""

import os
import sys
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo models                     who answers, and what each provider lacks
  convo models --ask               ask their servers which models they have
  convo models --ask | grep llama  names as -m takes them
  convo models known               windows and prices that are written down, and where
  convo models pull                fetch the built-in model
"""

AskServersOption = Annotated[
    bool, typer.Option("--ask", help="Ask the servers that are set up which models they have.")
]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def models_command(ctx: typer.Context, ask: AskServersOption = False, as_json: JsonOption = False) -> None:
    """List what can be used, and fetch the built-in model."""
    from convo.cli.models import print_models

    if ctx.invoked_subcommand is None:
        print_models(get_root_options(ctx).config, ask_servers=ask, as_json=as_json)


@app.command("list")
def models_list_command(ctx: typer.Context, ask: AskServersOption = False, as_json: JsonOption = False) -> None:
    """List the providers, what they lack, and who answers."""
    from convo.cli.models import print_models

    print_models(get_root_options(ctx).config, ask_servers=ask, as_json=as_json)


@app.command("known")
def models_known_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the windows and prices that are written down, each with its source."""
    from convo.cli.output import print_json, print_line
    from convo.config.loader import load_settings
    from convo.terminal.settings_views import known_models_to_json, render_known_models
    from convo.terminal.terminal import detect_display

    settings = load_settings(get_root_options(ctx).config)
    if as_json:
        print_json(known_models_to_json(settings))
    else:
        print_line(render_known_models(settings, detect_display(sys.stdout, os.environ)))


@app.command("pull")
def models_pull_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Fetch the weights of the built-in model, where they are not here."""
    from convo.cli.models import run_models_pull

    run_models_pull(get_root_options(ctx).config, as_json=as_json)
