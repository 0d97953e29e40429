"""A command without subcommands, with an option group, a choice and examples."""

from typing import Annotated, Literal

import typer

from convo.cli.app import App, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo greet Ada --warmly                            a line that is copied and therefore not wrapped at eighty

A paragraph is wrapped at eighty columns,
and the breaks that its lines have in the source are not kept.
"""


@app.command(epilog=EXAMPLES)
def greet(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who is greeted.")],
    warmly: Annotated[bool, typer.Option("--warmly", help="Mean it.", rich_help_panel="Manner")] = False,
    tongue: Annotated[Literal["english", "german"], typer.Option(help="In which language.")] = "english",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say good day to somebody.

    And mean it, with --warmly.
    """
    word = {"english": "good day", "german": "guten Tag"}[tongue]
    print(f"{word}, {name}{'!' if warmly else ''} {get_root_options(ctx).config or ''}".rstrip())
