"""`convo config`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, flag_option, get_root_options

app = App()
key_app = App()

EXAMPLES = """
Examples:
  convo config                                  list all settings with their sources
  convo config list serve                       list one table
  convo config set model openai/gpt-6.1-sol     write to your own settings file
  convo config set --project model local        write to this project's .convo.toml
  convo config set 'prices."groq/llama"' '{ input = 0.1, output = 0.4 }'
  convo config set 'windows."groq/llama"' '{ context = 128000 }'
  convo config set 'models."openai/gpt-6.1-sol".reasoning_effort' low
  convo --profile work config set tenant office
                                                write to [profiles.work]
  convo config unset model
  convo config trust                            trust the current content of this project's .convo.toml
  $EDITOR "$(convo config path)"
  convo config key set openai                   prompt for the key and store it in the keyring

Precedence: flags, environment variables, the session's record, the profile, .convo.toml, your own settings file.
"""

KEY_EXAMPLES = """
Examples:
  convo config key set openai              store the key in your keyring
  convo config key set groq --file         store the key in a file that only you can read
  pass openai | convo config key set openai
  convo config key show                    where each key is stored, and by which keyring
  convo config key unset openai
"""


def complete_key_argument(incomplete: str) -> list[str]:
    """Return the settings that begin with `incomplete`."""
    from convo.cli.completion import complete_setting_key

    return complete_setting_key(incomplete)


ProjectOption = Annotated[
    bool, typer.Option("--project", help="Use the project's .convo.toml, not your own settings file.")
]
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="Setting name, with dots: providers.groq.api.", autocompletion=complete_key_argument
    ),
]
KeyFilterArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[KEY]",
        help="List only this setting, or the settings below it.",
        autocompletion=complete_key_argument,
        show_default=False,
    ),
]
ProjectFileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[PATH]", help="File or its folder; default: the nearest .convo.toml.", show_default=False),
]
KeyProviderArgument = Annotated[str, typer.Argument(metavar="PROVIDER", help="Provider that the key is for.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def config_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show settings with their sources, and change them."""
    if ctx.invoked_subcommand is None:
        config_list_command(ctx, None, as_json)


@app.command("list")
def config_list_command(ctx: typer.Context, part: KeyFilterArgument = None, as_json: JsonOption = False) -> None:
    """List settings with their sources."""
    from convo.cli.config import print_settings

    print_settings(get_root_options(ctx).config, part, as_json=as_json)


@app.command("set")
def config_set_command(
    ctx: typer.Context,
    name: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Value, as plain text or TOML.")],
    project: ProjectOption = False,
) -> None:
    """Set a value in a settings file; comments are kept."""
    from convo.cli.config import SettingsTarget, write_settings

    write_settings(SettingsTarget(get_root_options(ctx).config, project), {name: value})


@app.command("unset")
def config_unset_command(ctx: typer.Context, name: KeyArgument, project: ProjectOption = False) -> None:
    """Remove a value from a settings file."""
    from convo.cli.config import SettingsTarget, remove_setting

    remove_setting(SettingsTarget(get_root_options(ctx).config, project), name)


@app.command("path")
def config_path_command(ctx: typer.Context, project: ProjectOption = False) -> None:
    """Print the path of the settings file, even if it does not exist."""
    from convo.cli.config import SettingsTarget

    typer.echo(str(SettingsTarget(get_root_options(ctx).config, project).path))


@app.command("trust")
def config_trust_command(
    ctx: typer.Context,
    path: ProjectFileArgument = None,
    list_all: bool = flag_option("--list", "List the trusted files."),
) -> None:
    """Trust a project's current .convo.toml, and show its settings."""
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
    """Store or delete a provider's API key."""


@key_app.command("set")
def config_key_set_command(
    ctx: typer.Context,
    provider: KeyProviderArgument,
    file: bool = flag_option("--file", "Store the key in a file that only you can read, not in the keyring."),
) -> None:
    """Prompt for an API key, or read it from a pipe, and store it."""
    from convo.cli.config import save_provider_key

    save_provider_key(get_root_options(ctx).config, provider, file=file)


@key_app.command("show")
def config_key_show_command(
    ctx: typer.Context,
    provider: Annotated[
        str | None, typer.Argument(metavar="[PROVIDER]", help="Provider of the key; without it all providers.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the API keys are stored, without the keys."""
    from convo.cli.config import print_key_locations

    print_key_locations(get_root_options(ctx).config, provider, as_json=as_json)


@key_app.command("unset")
def config_key_unset_command(ctx: typer.Context, provider: KeyProviderArgument) -> None:
    """Delete a stored API key."""
    from convo.cli.config import delete_provider_key

    delete_provider_key(get_root_options(ctx).config, provider)


app.add_typer(key_app, name="key")
