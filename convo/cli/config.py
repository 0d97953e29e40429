"""`convo config`: what is set and by whom, and how it is changed.

The arguments alone; `convo.cli.configuring` does the rest, and `convo.cli.keeping_keys` what keys need.
"""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.options import AsJson
from convo.cli.shape import App, call_of

app = App()
key = App()

EXAMPLES = """
Examples:
  convo config                                  every value, and who said so
  convo config list serve                       those of one table
  convo config set model openai/gpt-5           into your own file
  convo config set --project model local        into this project's .convo.toml
  convo config set 'prices."groq/llama"' '{ input = 0.1, output = 0.4 }'
  convo --profile work config set tenant office into [profiles.work]
  convo config unset model
  convo config trust                            trust this project's .convo.toml as it is now
  $EDITOR "$(convo config path)"
  convo config key set openai                   into the keyring; it is asked for, and not shown

Flags go before variables, these before a session's record, then the profile, .convo.toml, your own file.
"""

KEY_EXAMPLES = """
Examples:
  convo config key set openai              into the keyring of whoever is logged in
  convo config key set groq --file         into a file that only you can read
  pass openai | convo config key set openai
  convo config key unset openai
"""


def names(incomplete: str) -> list[str]:
    """The settings that could be meant."""
    from convo.cli.suggesting import settings_named

    return settings_named(incomplete)


Project = Annotated[bool, typer.Option("--project", help="The project's .convo.toml, not your own file.")]
Name = Annotated[
    str, typer.Argument(metavar="KEY", help="Its name, with dots: providers.groq.api.", autocompletion=names)
]
Part = Annotated[
    str | None,
    typer.Argument(metavar="[KEY]", help="This one, or those below it.", autocompletion=names, show_default=False),
]
File = Annotated[
    Path | None,
    typer.Argument(metavar="[PATH]", help="The file or its folder; default: the nearest one.", show_default=False),
]
Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Whose key.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def config(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what is set and by whom, and change it."""
    if ctx.invoked_subcommand is None:
        list_(ctx, None, as_json)


@app.command("list")
def list_(ctx: typer.Context, part: Part = None, as_json: AsJson = False) -> None:
    """List every value with its origin."""
    from convo.cli.configuring import show

    show(call_of(ctx).config, part, as_json=as_json)


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A word, or as TOML writes it.")],
    project: Project = False,
) -> None:
    """Write a value into a settings file; its comments stay."""
    from convo.cli.configuring import Target, put_value

    put_value(Target(call_of(ctx).config, project), name, value)


@app.command("unset")
def unset(ctx: typer.Context, name: Name, project: Project = False) -> None:
    """Take a value out of a settings file."""
    from convo.cli.configuring import Target, take_value

    take_value(Target(call_of(ctx).config, project), name)


@app.command("path")
def path(ctx: typer.Context, project: Project = False) -> None:
    """Print where the settings file is, or would be."""
    from convo.cli.configuring import Target

    typer.echo(str(Target(call_of(ctx).config, project).place))


@app.command("trust")
def trust(
    ctx: typer.Context,
    path: File = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the files that are trusted.")] = False,
) -> None:
    """Trust a project's .convo.toml as it is now, and show what it sets."""
    from convo.cli import configuring

    if list_all:
        configuring.list_trusted()
    else:
        configuring.trust(call_of(ctx).config, path)


@app.command("untrust")
def untrust(ctx: typer.Context, path: File = None) -> None:
    """Stop trusting a project's .convo.toml."""
    from convo.cli.configuring import untrust as forget

    forget(call_of(ctx).config, path)


@key.callback(epilog=KEY_EXAMPLES)
def keys() -> None:
    """Put a provider's key away, or take it back."""


@key.command("set")
def set_key(
    ctx: typer.Context,
    provider: Provider,
    file: Annotated[bool, typer.Option("--file", help="Into a file that only you can read, not the keyring.")] = False,
) -> None:
    """Ask for a key without showing it, or read it from a pipe, and put it away."""
    from convo.cli.keeping_keys import put_key

    put_key(call_of(ctx).config, provider, file=file)


@key.command("unset")
def unset_key(ctx: typer.Context, provider: Provider) -> None:
    """Forget a key that was put away."""
    from convo.cli.keeping_keys import forget_key

    forget_key(call_of(ctx).config, provider)


app.add_typer(key, name="key")
