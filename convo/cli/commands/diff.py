"""`convo diff`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, ProviderOption, flag_option, get_root_options
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo diff monads monads-2               a session and its fork
  convo diff monads@2 monads               after turn 2, and now
  convo diff talk.json resp_4f1c           a file and a chain
  convo diff monads --server               the local history and the one of its owner
  convo diff --wire monads@1 monads@2      two requests, and how much of the second was cached
"""

HANDLE_HELP = "Session, resp_..., conv_..., @last, @recorded or file; add @N for its history after turn N."
COMPARISON_PANEL = "Comparison"


@app.command(epilog=EXAMPLES)
def diff_command(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help=HANDLE_HELP)],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="The other one, in the same form; omit it with --server.")
    ] = None,
    wire: bool = flag_option("--wire", "Compare two requests as sent; @N is the N-th request.", panel=COMPARISON_PANEL),
    server: bool = flag_option(
        "--server --drift", "Compare the local history with the history that its owner has.", panel=COMPARISON_PANEL
    ),
    provider: ProviderOption = None,
    exit_code: bool = flag_option("--exit-code", "Exit with 1 if there are differences."),
    as_json: bool = flag_option("--json", "Print one JSON object."),
) -> None:
    """Find where two histories or two requests diverge."""
    if wire and server:
        raise InvalidUsage("--wire and --server cannot be used together", hint="use one of them")
    if server == (b is not None):
        expected = "one handle with --server" if server else "two handles, or one with --server"
        raise InvalidUsage(f"convo diff takes {expected}", hint="convo diff --help")
    import asyncio

    from convo.cli.diff import DiffOptions, run_diff

    options = DiffOptions(
        a, b, compare_requests=wire, compare_with_owner=server, provider=provider, config=get_root_options(ctx).config
    )
    has_differences = asyncio.run(run_diff(options, as_json=as_json))
    raise typer.Exit(int(has_differences and exit_code))
