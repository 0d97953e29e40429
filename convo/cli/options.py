"""What commands take, as tables.

A command with many options takes them in groups. A group is a frozen dataclass with an option a
line; the signature of the command says under which heading the help shows it:

    @dataclass(frozen=True)
    class Whose:
        chain: bool = flag("--chain", "The endpoint's Responses API.")
        handle: str | None = value("--from", "HANDLE", "Go on from a session.")

    @app.command()
    def chat(*, whose: Annotated[Whose, "Who keeps the state"]) -> None: ...

Typer knows nothing of groups: `spread` shows it every option as a parameter, and gathers what was
said into the groups again. Options that several commands have alike stand below, each once.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

import typer

Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None

OPTION = "option"
"""Where a field of a group keeps its names on the command line, and what else Typer is told of it."""

STDOUT = "-"
"""What is written where a file could be named, and means stdout."""

WHERE = "Where it is looked for"

Handle = Annotated[str, typer.Argument(metavar="HANDLE", help="A session, resp_..., conv_..., @last or a file.")]
Remote = Annotated[
    bool, typer.Option("--remote", help="Ask the endpoint, not the local mirror.", rich_help_panel=WHERE)
]
Provider = Annotated[
    Text,
    typer.Option(
        "--provider", metavar="NAME", help="Whose endpoint to ask for what is not known here.", rich_help_panel=WHERE
    ),
]
Database = Annotated[
    Text, typer.Option("--store", metavar="STORE", help="sqlite:PATH or postgresql://..., not the settings'.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def flag(names: str, help: str, *, default: bool | None = False) -> Any:  # noqa: A002  Typer's own word
    """A field of a group: an option that takes no value.

    names:  "-c --continue"; "--nest/--no-nest" where one switches it on and the other off
    """
    return field(default=default, metadata={OPTION: (names.split(), {"help": help})})


def value(
    names: str,
    metavar: str,
    help: str,  # noqa: A002  Typer's own word
    *,
    default: str | None = None,
    min: int | None = None,  # noqa: A002  Typer's own word
) -> Any:
    """A field of a group: an option that takes a value. `names` are written as for `flag`."""
    said = {"metavar": metavar, "help": help, "min": min}
    return field(default=default, metadata={OPTION: (names.split(), said)})


def named_file(said: Text) -> Path | None:
    """The file that an option names to write into; None for stdout, which - names too. `./-` is a file."""
    return None if said in (None, STDOUT) else Path(said)


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command` as Typer can read it: in place of each group the options of that group."""
    given = inspect.signature(command)
    groups = {name: get_args(one.annotation) for name, one in given.parameters.items() if _is_group(one)}
    if not groups:
        return command

    @wraps(command)
    def called(**said: Any) -> Any:
        return command(**{name: _gathered(kind, said) for name, (kind, _) in groups.items()}, **said)

    read = [option for name, one in given.parameters.items() for option in _options(one, *groups.get(name, ()))]
    vars(called)["__signature__"] = given.replace(parameters=read)
    return called


def _is_group(parameter: inspect.Parameter) -> bool:
    return any(map(is_dataclass, get_args(parameter.annotation)[:1]))


def _gathered(kind: Any, said: dict[str, Any]) -> Any:
    """The group, with its options taken out of `said`."""
    return kind(**{one.name: said.pop(one.name) for one in fields(kind)})


def _options(parameter: inspect.Parameter, kind: Any = None, panel: str = "") -> Iterator[inspect.Parameter]:
    if kind is None:
        yield parameter
        return
    for one in fields(kind):
        names, said = one.metadata[OPTION]
        option = typer.Option(one.default, *names, rich_help_panel=panel, **said)
        yield inspect.Parameter(one.name, parameter.KEYWORD_ONLY, default=option, annotation=one.type)
