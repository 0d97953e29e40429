"""A command whose argument selects how it ends: with an error, an exit code or output."""

from collections.abc import Callable, Mapping
from typing import Annotated, NoReturn

import typer

from convo.cli.app import App
from convo.errors import ConvoError, NotFound, RequestRefused

app = App()


def throw(error: BaseException) -> Callable[[], NoReturn]:
    def raise_error() -> NoReturn:
        raise error

    return raise_error


OUTCOMES: Mapping[str, Callable[[], object]] = {
    "not-found": throw(NotFound("session", "nope")),
    "no-hint": throw(ConvoError("it failed")),
    "in-a-group": throw(ExceptionGroup("tasks", [NotFound("session", "nope")])),
    "hostile": throw(RequestRefused("clear \x1b[2J the \rscreen\nnow", hint="\x07")),
    "interrupt": throw(KeyboardInterrupt()),
    "abort": throw(typer.Abort()),
    "paused": throw(typer.Exit(3)),
    "mistake": throw(KeyError("sk-secret")),
    "system": throw(PermissionError(13, "Permission denied", "/etc/sk-secret")),
    "odd-text": lambda: print("a check \u2713 and half a pair \ud83d"),
    "much-text": lambda: print("a line of text\n" * 100_000),
    "little-text": lambda: print("a line of text"),
}


@app.command()
def stumble(way: str, json: Annotated[bool, typer.Option("--json", "--jsonl")] = False) -> None:
    """End in one of many ways."""
    OUTCOMES[way]()
