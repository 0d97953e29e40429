"""Invalid command lines: what is wrong, the most similar name, and the help of the command as the next step.

Of its errors, Typer exports only the base class, so their attributes tell which one it is: an unknown option has
`possibilities`, an invalid value `param`, a missing parameter also `param_type`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from convo.config.values import find_closest_word
from convo.errors import InvalidUsage
from convo.secrets import MAX_SECRET_CHARS, is_secret

MAX_SHOWN_CHARS = 60
"""Characters of an argument that a message repeats."""

MAX_SHOWN_ARGUMENTS = 5
"""Unexpected arguments that a message repeats."""

MIN_SIMILARITY = 0.65
"""Part of equal characters: `tpa` is similar to `tap`, but `hello` is not similar to `allow`."""

WORDS_BY_NAME: Mapping[str, str] = {
    "approvals approve": "accept allow approve",
    "approvals reject": "deny reject",
    "chat": "ask exec new prompt run",
    "chat --continue": "continue",
    "chat --fork": "branch fork",
    "config": "settings",
    "config key set": "auth key login",
    "config key show": "keys",
    "config key unset": "logout",
    "config set": "effort set",
    "config trust": "trust",
    "doctor": "check init setup",
    "export": "cat print",
    "cost": "bill price spend",
    "inspect": "info show status tokens usage view",
    "models": "providers",
    "models pull": "download install pull",
    "next": "curl",
    "serve": "server",
    "sessions": "chats conversations history list log logs ls",
    "sessions rename": "mv rename",
    "sessions rm": "delete remove rm",
    "sessions search": "find grep search",
    "store backup": "backup",
    "store migrate": "migrate",
    "store prune": "clean gc prune vacuum",
    "store recover": "recover",
    "store stats": "size stats",
    "tap": "record",
    "approve": "accept allow",
    "backup": "export save",
    "known": "prices windows",
    "log": "history logs",
    "migrate": "upgrade",
    "path": "edit",
    "prune": "clean delete gc vacuum",
    "pull": "add download install",
    "reject": "deny",
    "rename": "mv",
    "rm": "delete remove",
    "search": "find grep",
    "set": "add",
    "show": "get info list ls status view",
    "list": "get info ls status",
    "stats": "info size",
    "unset": "delete remove reset rm",
    "--attach": "f file i image",
    "--continue": "resume",
    "--param": "o option",
    "--port": "p",
    "--run": "session",
    "--system": "instructions",
}
"""Words for a command or an option, as in git, gh, llm, codex and ollama; of several names the last one is used.

A name of several words is that of a command below it, or of its option.
"""


def find_similar_name(word: str, command: Any) -> str | None:
    """Return the command or option of `command` with the most similar name, a part of it, or a word for it."""
    commands = command.list_commands(None) if hasattr(command, "list_commands") else ()
    names = [*list_option_names(command), *commands]
    meanings = {part: name for name in names for part in name.lstrip("-").split("-")}
    for name, words in WORDS_BY_NAME.items():
        if name.split()[0] in names:
            meanings |= dict.fromkeys(words.split(), name)
    meanings |= {name.lstrip("-"): name for name in names}
    word = word.lstrip("-")
    closest = find_closest_word(word, meanings, MIN_SIMILARITY if len(word) > 1 else 1)
    return closest and meanings[closest]


def list_option_names(command: Any) -> list[str]:
    return [
        name
        for param in command.params
        if param.param_type_name == "option"
        for name in (*param.opts, *param.secondary_opts)
    ]


def unknown_command_error(ctx: Any, name: str) -> InvalidUsage:
    """Return the error for a command that the group does not have."""
    similar = find_similar_name(name, ctx.command)
    place = f" of {ctx.command_path}" if ctx.parent else ""
    hint = f"{ctx.command_path} --help"
    if similar and not ctx.parent and not similar.startswith("-"):
        hint = f"convo {similar} --help"
    if not similar and not ctx.parent:
        hint = "convo chat MESSAGE, to ask a model; or convo --help"
    return InvalidUsage(f"no command {_show(name)!r}{place}{_format_similar(similar)}", hint=hint)


def unexpected_arguments_error(ctx: Any, extra: Sequence[str]) -> InvalidUsage:
    """Return the error for the last arguments of a command that takes fewer."""
    shown = " ".join(map(_show, extra[:MAX_SHOWN_ARGUMENTS])) + (" ..." if len(extra) > MAX_SHOWN_ARGUMENTS else "")
    return InvalidUsage(
        f"unexpected argument{'s' if len(extra) > 1 else ''}: {shown}", hint=f"{ctx.command_path} --help"
    )


def to_invalid_usage(error: typer.TyperException) -> InvalidUsage:
    """Convert an error of the parser."""
    ctx: Any = getattr(error, "ctx", None)
    param = getattr(error, "param", None)
    path = ctx.command_path if ctx else "convo"
    if hasattr(error, "possibilities"):
        name = str(error.option_name)  # type: ignore[attr-defined]
        if name in list_option_names(ctx.find_root().command):
            message, path = f"no option {name!r} of {path}; it belongs before the command", "convo"
        else:
            similar = find_similar_name(name, ctx.command)
            message = f"no option {_show(name)!r}{_format_similar(similar)}"
            if option := next((one for one in ctx.command.params if similar in one.opts and one.metavar), None):
                return InvalidUsage(message, hint=f"{path} {similar} {option.metavar}, or {path} --help")
    elif param is not None and not hasattr(error, "param_type"):
        name = param.opts[-1] if param.param_type_name == "option" else param.make_metavar(ctx).strip("{}")
        # the value in "'x' is not a valid integer" is not repeated, because it may be a secret
        message = f"{name} {_describe_values(param.type) if ' is not ' in error.message else error.message}"
    else:
        message = " ".join(error.format_message().split()).replace("{", "").replace("}", "")
        message = message[:1].lower() + message[1:]
    return InvalidUsage(message.rstrip("."), hint=f"{path} --help")


def _describe_values(kind: Any) -> str:
    """Describe the valid values of a type of Typer, after the name of an option."""
    if choices := getattr(kind, "choices", None):
        return f"must be one of {', '.join(map(str, choices))}"
    noun = "number" if kind.name.startswith("float") else "whole number"
    minimum, maximum = getattr(kind, "min", None), getattr(kind, "max", None)
    if maximum is not None:
        return f"must be a {noun} between {minimum} and {maximum}"
    return f"must be a {noun}" + ("" if minimum is None else f", at least {minimum}")


def _format_similar(name: str | None) -> str:
    return f"; did you mean {name!r}?" if name else ""


def _show(argument: str) -> str:
    """Return the first characters of an argument, or stars if it may be a secret."""
    if is_secret(argument[:MAX_SECRET_CHARS]):
        return "***"
    return argument if len(argument) <= MAX_SHOWN_CHARS else f"{argument[:MAX_SHOWN_CHARS]}…"
