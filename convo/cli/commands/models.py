"""`convo models`: its arguments, options and help."""

import os
import sys
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, get_root_options
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo models                     the default model and the status of each provider
  convo models --ask               also the models of the providers' servers
  convo models --ask | grep llama  names for -m
  convo models --local             model servers on this machine, and how to use them
  convo models known               context windows and prices, with their sources
  convo models pull                download the built-in model
"""

AskServersOption = Annotated[
    bool, typer.Option("--ask", help="Ask the servers of the configured providers for their models.")
]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def models_command(
    ctx: typer.Context,
    ask: AskServersOption = False,
    local: Annotated[
        bool, typer.Option("--local", help="Search this machine for Ollama, llama.cpp, LM Studio and vLLM.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List providers and models, and download the built-in model.

    The provider scripted is for tests without a model: scripted/echo repeats the message, scripted/FILE.json replays
    the responses in a file.
    """
    from convo.cli.models import print_local_servers, print_models

    if local and ask:
        raise InvalidUsage("--local cannot be used with --ask", hint="convo models --local")
    if local:
        print_local_servers(get_root_options(ctx).config, as_json=as_json)
    elif ctx.invoked_subcommand is None:
        print_models(get_root_options(ctx).config, ask_servers=ask, as_json=as_json)


@app.command("list")
def models_list_command(ctx: typer.Context, ask: AskServersOption = False, as_json: JsonOption = False) -> None:
    """List the default model and the status of each provider."""
    from convo.cli.models import print_models

    print_models(get_root_options(ctx).config, ask_servers=ask, as_json=as_json)


@app.command("known")
def models_known_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List known context windows and prices, with their sources."""
    from convo.cli.output import print_json, print_line
    from convo.config.loader import load_settings
    from convo.terminal.settings_views import build_known_models_report, render_known_models
    from convo.terminal.terminal import detect_display

    settings = load_settings(get_root_options(ctx).config)
    if as_json:
        print_json(build_known_models_report(settings))
    else:
        print_line(render_known_models(settings, detect_display(sys.stdout, os.environ)))


@app.command("pull")
def models_pull_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Download the built-in model, unless it is already installed."""
    from convo.cli.models import run_models_pull

    run_models_pull(get_root_options(ctx).config, as_json=as_json)
