"""`convo diff`: where two histories part, or two requests as they were sent.

The arguments alone; `convo.cli.comparing` reads both sides.
"""

from typing import Annotated

import typer

from convo.cli.options import Provider
from convo.cli.shape import App, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo diff monads monads-2               a session and a fork of it
  convo diff monads@2 monads               after its second turn, and now
  convo diff talk.json resp_4f1c           a file and a chain
  convo diff monads --server               what is kept here, and what its owner has
  convo diff --wire monads@1 monads@2      two requests, and what the prompt cache made of them
"""

HANDLE = "A session, resp_..., conv_..., @last or a file; @N behind it is its N-th turn."
WHERE = "What is compared"


@app.command(epilog=EXAMPLES)
def diff(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help=HANDLE)],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help="The same; not with --server.")] = None,
    wire: Annotated[
        bool,
        typer.Option("--wire", help="Two requests as they were sent; @N is the N-th request.", rich_help_panel=WHERE),
    ] = False,
    server: Annotated[
        bool,
        typer.Option("--server", "--drift", help="What is kept here with what its owner has.", rich_help_panel=WHERE),
    ] = False,
    provider: Provider = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when they differ.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find where two histories, or two requests, part."""
    if wire and server:
        raise Usage("--wire compares two requests, --server two histories", hint="use one of them")
    if server == (b is not None):
        wanted = "one handle: the other side is its owner" if server else "two handles, or one and --server"
        raise Usage(f"convo diff takes {wanted}", hint="convo diff --help")
    import asyncio

    from convo.cli.comparing import Sides, differ

    sides = Sides(a, b, wire=wire, server=server, provider=provider, config=call_of(ctx).config)
    differs = asyncio.run(differ(sides, as_json=as_json))
    raise typer.Exit(int(differs and exit_code))
