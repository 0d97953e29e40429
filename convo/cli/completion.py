"""The candidates for a command line that a shell completes; `completion_scripts` has the scripts that ask for them.

Output: one candidate a line, its help after a tab; no output means file names. No network is used, and an error gives
no candidates.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from typer import Context, TyperException
from typer.core import TyperArgument, TyperGroup, TyperOption

from convo.cli.app import COMMANDS, CommandTable, RootGroup, make_root_group
from convo.config.loader import load_settings, read_settings_inputs, use_profile
from convo.config.paths import AppPaths
from convo.config.settings import Settings
from convo.errors import ConvoError
from convo.history.records import Session
from convo.stores.base import Store


def list_completions(words: Sequence[str], incomplete: str, commands: CommandTable = COMMANDS) -> list[tuple[str, str]]:
    """Return candidates for `incomplete` after `words`, each with its help; the shell completes file names."""
    ctx = _parse_words(make_root_group(commands), words)
    parameter, incomplete = _find_parameter(ctx, words, incomplete)
    command = ctx.command
    if parameter is None and isinstance(command, RootGroup) and not incomplete.startswith("-"):
        return _filter_by_prefix(((name, entry.summary) for name, entry in commands.items()), incomplete)
    candidates = (parameter or command).shell_complete(ctx, incomplete)
    completions = [(item.value, " ".join((item.help or "").split())) for item in candidates if item.type == "plain"]
    return completions or (list_local_completions(parameter, ctx, incomplete) if parameter else [])


def _parse_words(root: RootGroup, words: Sequence[str]) -> Any:
    """Parse the words before the incomplete one; return the context of the last command. Nothing is called."""
    ctx: Any = root.make_context("convo", list(words), resilient_parsing=True)
    rest = list(words)
    while isinstance(ctx.command, TyperGroup):
        _, rest, _ = ctx.command.make_parser(ctx).parse_args(args=rest)
        name, command, rest = ctx.command.resolve_command(ctx, rest) if rest else (None, None, [])
        if command is None:
            break
        ctx = command.make_context(name, list(rest), parent=ctx, resilient_parsing=True)
    return ctx


def _find_parameter(ctx: Any, words: Sequence[str], incomplete: str) -> tuple[Any, str]:
    """Return the option or argument whose value is incomplete, and that value; None for a name that is incomplete.

    Some shells pass `--option=value` as one word, others its `=` as a word of its own.
    """
    words = list(words)
    if incomplete == "=":
        incomplete = ""
    elif incomplete.startswith("-") and "=" in incomplete:
        name, _, incomplete = incomplete.partition("=")
        words.append(name)
    if incomplete.startswith("-") and "--" not in words:
        return None, incomplete
    parameters = ctx.command.get_params(ctx)
    last = words[-1] if words else ""
    for option in parameters:
        takes_value = isinstance(option, TyperOption) and not option.is_flag and not option.count
        if takes_value and last.startswith("-") and last in option.opts:
            return option, incomplete
    for argument in parameters:
        if isinstance(argument, TyperArgument):
            source = ctx.get_parameter_source(argument.name or "")
            if argument.nargs == -1 or source is None or source.name != "COMMANDLINE":
                return argument, incomplete
    return None, incomplete


def list_local_completions(parameter: Any, ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Return local handles, models, providers and profiles; the shell completes file names."""
    complete = COMPLETER_BY_PARAMETER.get(parameter.name or "")
    return complete(ctx, incomplete) if complete and parameter.metavar != "FILE" else []


def print_completions(words: Sequence[str], commands: CommandTable = COMMANDS) -> int:
    """Print the candidates for the last of `words`, which begins with `=`, and return the exit code.

    An invalid command line has no candidates, because a shell shows no error here.
    """
    *before, last = words or ("=",)
    try:
        candidates = list_completions(before, last.removeprefix("="), commands)
    except (ConvoError, TyperException):
        candidates = []
    sys.stdout.write("".join(f"{value}\t{description}\n" for value, description in candidates))
    return 0


MAX_OFFERED_SESSIONS = 200
"""Sessions that are offered, last used first."""

Completions = list[tuple[str, str]]
"""Candidates, each with a short description."""


def complete_handle(ctx: Context, incomplete: str) -> Completions:
    """Return session names, `@last` and `@recorded`; after the prefix of an id also ids and remote handles."""
    from convo.chat.lookup import LAST_HANDLE, RECORDED_HANDLE, is_recorded_session

    sessions = _load_recent_sessions(ctx)
    named_sessions = [(session.name, f"{session.strategy}, {session.model}") for session in sessions if session.name]
    is_id = incomplete.startswith(("resp_", "conv_", "ses_"))
    handles = [
        (handle, session.name)
        for session in sessions
        for handle in (session.handle, session.link_id, session.id)
        if is_id and handle
    ]
    own, recorded = (
        [session for session in sessions if is_recorded_session(session) is is_recorded]
        for is_recorded in (False, True)
    )
    newest = [(handle, found[0].name) for handle, found in ((LAST_HANDLE, own), (RECORDED_HANDLE, recorded)) if found]
    return _filter_by_prefix([*newest, *named_sessions, *handles], incomplete)


def complete_model(ctx: Context, incomplete: str) -> Completions:
    """Return aliases and the models of sessions; after the first character also the models with a price."""
    settings = _load_settings_if_valid(ctx)
    if settings is None:
        return []
    priced = _list_priced_models(settings) if incomplete else {}
    used = dict.fromkeys([settings.model, *(session.model for session in _load_recent_sessions(ctx))], "used before")
    aliases = {name: f"alias of {model}" for name, model in settings.aliases.items()}
    return _filter_by_prefix((aliases | used | {"local": "the built-in model"} | priced).items(), incomplete)


def complete_profile(ctx: Context, incomplete: str) -> Completions:
    """Return the profiles of the settings files."""
    profiles: dict[str, str] = {}
    with suppress(ConvoError):
        for file in read_settings_inputs(_get_config_path(ctx)).files:
            tables = file.document.get("profiles")
            profiles |= dict.fromkeys(tables if isinstance(tables, dict) else (), f"in {file.source.name}")
    return _filter_by_prefix(profiles.items(), incomplete)


def complete_provider(ctx: Context, incomplete: str) -> Completions:
    """Return the configured providers, each with its API."""
    settings = _load_settings_if_valid(ctx)
    return _filter_by_prefix(
        [(provider.name, provider.api) for provider in settings.providers.values()] if settings else (), incomplete
    )


def complete_template(ctx: Context, incomplete: str) -> Completions:
    """Return the names of the templates, each with its first line."""
    from convo.config.templates import list_template_names, load_template

    templates: dict[str, str] = {}
    with suppress(ConvoError):
        folder = AppPaths.from_environ(os.environ).templates
        for name in list_template_names(folder):
            templates[name] = ""
            with suppress(ConvoError):
                template = load_template(folder, name)
                templates[name] = (template.prompt or template.instructions or "").partition("\n")[0]
    return _filter_by_prefix(templates.items(), incomplete)


COMPLETER_BY_PARAMETER: Mapping[str, Callable[[Context, str], Completions]] = MappingProxyType(
    {
        **dict.fromkeys(("handle", "handles", "a", "b", "state", "fork"), complete_handle),
        "model": complete_model,
        "profile": complete_profile,
        "provider": complete_provider,
        "template": complete_template,
    }
)
"""Completion of a parameter, by its name in the command's function."""


def complete_setting_key(incomplete: str) -> list[str]:
    """Return the names of settings, down to the tables whose keys the user names."""
    from convo.config.schema import SETTINGS_SCHEMA
    from convo.config.values import AtomicTable

    names = []
    for name, schema in SETTINGS_SCHEMA.items():
        fields = schema.schema if isinstance(schema, AtomicTable) else schema
        names += [f"{name}.{key}" for key in fields] if isinstance(fields, Mapping) else [name]
    return [name for name in names if name.startswith(incomplete)]


def _list_priced_models(settings: Settings) -> dict[str, str]:
    from convo.terminal.settings_views import list_known_models
    from convo.usage.model_info import find_price

    return {name: "price known" for name in list_known_models(settings) if find_price(name, settings.prices)}


def _filter_by_prefix(candidates: Iterable[tuple[str, str]], incomplete: str) -> Completions:
    return [(value, description) for value, description in dict(candidates).items() if value.startswith(incomplete)]


def _load_recent_sessions(ctx: Context) -> Sequence[Session]:
    """Return the sessions of a SQLite store, last used first; a server is not contacted."""
    from convo.cli.deps import read_from_store

    settings = _load_settings_if_valid(ctx)
    if settings is None or settings.storage.type != "sqlite":
        return ()

    async def read(store: Store) -> Sequence[Session]:
        store.admin.set_damaged_row_observer(lambda error: None)  # a line on stderr would be added to the prompt
        return await store.sessions(limit=MAX_OFFERED_SESSIONS)

    with suppress(ConvoError):
        return read_from_store(settings, read)
    return ()


def _load_settings_if_valid(ctx: Context) -> Settings | None:
    profile = ctx.find_root().params.get("profile")
    with suppress(ConvoError), use_profile(profile):
        return load_settings(_get_config_path(ctx))
    return None


def _get_config_path(ctx: Context) -> Path | None:
    """Return the value of `--config`, whose function does not run during completion."""
    path = ctx.find_root().params.get("config")
    return Path(path) if path else None
