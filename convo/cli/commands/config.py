"""`convo config`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, get_root_options

app = App()
key_app = App()

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


def complete_key_argument(incomplete: str) -> list[str]:
    """The settings that could be meant."""
    from convo.cli.completion import complete_setting_key

    return complete_setting_key(incomplete)


ProjectOption = Annotated[bool, typer.Option("--project", help="The project's .convo.toml, not your own file.")]
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="Its name, with dots: providers.groq.api.", autocompletion=complete_key_argument
    ),
]
KeyFilterArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[KEY]", help="This one, or those below it.", autocompletion=complete_key_argument, show_default=False
    ),
]
ProjectFileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[PATH]", help="The file or its folder; default: the nearest one.", show_default=False),
]
KeyProviderArgument = Annotated[str, typer.Argument(metavar="PROVIDER", help="Whose key.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def config_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show what is set and by whom, and change it."""
    if ctx.invoked_subcommand is None:
        config_list_command(ctx, None, as_json)


@app.command("list")
def config_list_command(ctx: typer.Context, part: KeyFilterArgument = None, as_json: JsonOption = False) -> None:
    """List every value with its origin."""
    from convo.cli.config import print_settings

    print_settings(get_root_options(ctx).config, part, as_json=as_json)


@app.command("set")
def config_set_command(
    ctx: typer.Context,
    name: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A word, or as TOML writes it.")],
    project: ProjectOption = False,
) -> None:
    """Write a value into a settings file; its comments stay."""
    from convo.cli.config import SettingsTarget, write_setting

    write_setting(SettingsTarget(get_root_options(ctx).config, project), name, value)


@app.command("unset")
def config_unset_command(ctx: typer.Context, name: KeyArgument, project: ProjectOption = False) -> None:
    """Take a value out of a settings file."""
    from convo.cli.config import SettingsTarget, remove_setting

    remove_setting(SettingsTarget(get_root_options(ctx).config, project), name)


@app.command("path")
def config_path_command(ctx: typer.Context, project: ProjectOption = False) -> None:
    """Print where the settings file is, or would be."""
    from convo.cli.config import SettingsTarget

    typer.echo(str(SettingsTarget(get_root_options(ctx).config, project).path))


@app.command("trust")
def config_trust_command(
    ctx: typer.Context,
    path: ProjectFileArgument = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the files that are trusted.")] = False,
) -> None:
    """Trust a project's .convo.toml as it is now, and show what it sets."""
    from convo.cli import config

    if list_all:
        config.print_trusted_files()
    else:
        config.trust_project_file(get_root_options(ctx).config, path)


@app.command("untrust")
def config_untrust_command(ctx: typer.Context, path: ProjectFileArgument = None) -> None:
    """Stop trusting a project's .convo.toml."""
    from convo.cli.config import untrust_project_file

    untrust_project_file(get_root_options(ctx).config, path)


@key_app.callback(epilog=KEY_EXAMPLES)
def config_key_command() -> None:
    """Put a provider's key away, or take it back."""


@key_app.command("set")
def config_key_set_command(
    ctx: typer.Context,
    provider: KeyProviderArgument,
    file: Annotated[bool, typer.Option("--file", help="Into a file that only you can read, not the keyring.")] = False,
) -> None:
    """Ask for a key without showing it, or read it from a pipe, and put it away."""
    from convo.cli.config import save_provider_key

    save_provider_key(get_root_options(ctx).config, provider, file=file)


@key_app.command("unset")
def config_key_unset_command(ctx: typer.Context, provider: KeyProviderArgument) -> None:
    """Forget a key that was put away."""
    from convo.cli.config import delete_provider_key

    delete_provider_key(get_root_options(ctx).config, provider)


app.add_typer(key_app, name="key")
