"""`convo why`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, flag_option, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo why                                the last miss of the most recent conversation
  convo why resp_4f1c                      this response
  convo why @recorded                      the last miss of another program
  convo why oslo@3 --json                  the worst miss of the third turn, for a program
"""


@app.command("why", epilog=EXAMPLES)
def why_command(
    ctx: typer.Context,
    handle: Annotated[
        str,
        typer.Argument(
            metavar="[HANDLE]",
            help="Response; or a session, conv_... or @recorded, for its last miss. Add @N for its turn N.",
            show_default=False,
        ),
    ] = "@last",
    as_json: bool = flag_option("--json", "Print one JSON object."),
) -> None:
    """Explain why the prompt cache missed: the cause, its cost and a fix."""
    import asyncio

    from convo.cli.why import run_why

    asyncio.run(run_why(handle, get_root_options(ctx).config, as_json=as_json))
