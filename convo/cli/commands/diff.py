"""`convo diff`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, ProviderOption, get_root_options
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo diff monads monads-2               a session and a fork of it
  convo diff monads@2 monads               after its second turn, and now
  convo diff talk.json resp_4f1c           a file and a chain
  convo diff monads --server               what is kept here, and what its owner has
  convo diff --wire monads@1 monads@2      two requests, and what the prompt cache made of them
"""

HANDLE_HELP = "A session, resp_..., conv_..., @last or a file; @N behind it is its N-th turn."
COMPARISON_PANEL = "What is compared"


@app.command(epilog=EXAMPLES)
def diff_command(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help=HANDLE_HELP)],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help="The same; not with --server.")] = None,
    wire: Annotated[
        bool,
        typer.Option(
            "--wire", help="Two requests as they were sent; @N is the N-th request.", rich_help_panel=COMPARISON_PANEL
        ),
    ] = False,
    server: Annotated[
        bool,
        typer.Option(
            "--server", "--drift", help="What is kept here with what its owner has.", rich_help_panel=COMPARISON_PANEL
        ),
    ] = False,
    provider: ProviderOption = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when they differ.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find where two histories, or two requests, part."""
    if wire and server:
        raise InvalidUsage("--wire compares two requests, --server two histories", hint="use one of them")
    if server == (b is not None):
        wanted = "one handle: the other side is its owner" if server else "two handles, or one and --server"
        raise InvalidUsage(f"convo diff takes {wanted}", hint="convo diff --help")
    import asyncio

    from convo.cli.diff import DiffOptions, run_diff

    sides = DiffOptions(
        a, b, compare_requests=wire, compare_with_owner=server, provider=provider, config=get_root_options(ctx).config
    )
    differs = asyncio.run(run_diff(sides, as_json=as_json))
    raise typer.Exit(int(differs and exit_code))
