"""A command group that also runs without a subcommand."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App

app = App()


@app.callback(invoke_without_command=True)
def box(ctx: typer.Context) -> None:
    """Keep things in a box."""
    if ctx.invoked_subcommand is None:
        print("empty")


NAMES = [("pear", "green: soft"), ("plum", "blue"), ("@last", "the one used last")]


def names(incomplete: str) -> list[tuple[str, str]]:
    return [(name, help_text) for name, help_text in NAMES if name.startswith(incomplete)]


@app.command()
def take(thing: Annotated[str, typer.Argument(autocompletion=names)]) -> None:
    """Take one thing out."""
    print(f"took {thing}")


@app.command()
def put(file: Path) -> None:
    """Put a file in."""
    print(f"put {file}")
