"""`convo doctor`: check the installation and suggest fixes.

A check is a probe, with effects and a time limit, and a pure diagnosis of the facts it returns
(`doctor_checks`). All checks run at once. Nothing is changed, and facts contain no secrets.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import convo
from convo.cli import doctor_checks
from convo.cli.deps import get_store_url
from convo.cli.doctor_checks import (
    EncryptionKeyFacts,
    ExtrasFacts,
    FolderFacts,
    LocalModelFacts,
    ModelFacts,
    OllamaFacts,
    ProviderKeyFacts,
    ServeFacts,
    ServerFacts,
    SettingsFacts,
    StoreFacts,
    TerminalFacts,
    VersionFacts,
)
from convo.cli.output import print_json, print_line, print_notice
from convo.config.credentials import (
    FoundKey,
    find_provider_key,
    has_provider_key,
    load_provider_key,
    load_provider_token,
)
from convo.config.loader import SettingFlags, choose_model, load_settings
from convo.config.paths import AppPaths, check_folder_writable
from convo.config.request_settings import find_unused_model_settings, format_unused_model_setting
from convo.config.sections import STATEFUL_APIS, Provider
from convo.config.settings import ModelChoice, ModelName, Settings
from convo.config.trust import is_loopback
from convo.config.values import (
    Layer,
    SettingSource,
    find_closest_word,
    format_setting_key,
    read_secret,
    redact_secrets,
)
from convo.errors import ConvoError, EndpointFault, InvalidSettings, InvalidUsage, ModelMissing, StoreUnavailable
from convo.runtime import SystemClock, random_id
from convo.terminal.report_views import (
    LEVEL_STYLES,
    CheckLevel,
    CheckReport,
    CheckResult,
    DoctorReport,
    make_error_result,
    render_checks,
    summarize_checks,
)
from convo.terminal.terminal import detect_display
from convo.usage.model_info import Shutdown, find_listed_shutdown

Result = TypeVar("Result")

CHECK_TIMEOUT_S = 15.0
"""Seconds for each check."""

PACKAGES_BY_EXTRA: Mapping[str, tuple[str, ...]] = {
    "keyring": ("keyring",),
    "mcp": ("mcp",),
    "postgres": ("psycopg", "psycopg_pool"),
    "serve": (
        *("aiohttp", "brotli", "cryptography", "httptools", "prometheus_client", "python_multipart", "starlette"),
        *("uvicorn", "websockets"),
    ),
    "tokens": ("toktok",),
    "yaml": ("yaml",),
}
"""The packages of each extra of pyproject.toml."""

SUPABASE_POOLER_PORT = 6543
"""The port of Supabase's transaction pooler."""


class DoctorContext(NamedTuple):
    """The input of the checks.

    usable_settings:  without their store if only that is invalid, None if nothing is valid
    error:            the reason
    environ:          the environment variables of this process
    now:              seconds since 1970
    """

    usable_settings: Settings | None
    environ: Mapping[str, str]
    error: InvalidSettings | None = None
    now: float = 0.0

    @property
    def settings(self) -> Settings:
        """The settings, possibly without their store. Raises InvalidSettings for invalid settings."""
        if self.usable_settings is None:
            raise InvalidSettings("not checked: the settings have errors", hint="convo doctor settings")
        return self.usable_settings

    @property
    def complete_settings(self) -> Settings:
        """The settings with their store. Raises InvalidSettings for invalid settings."""
        if self.error and self.usable_settings:
            raise self.error
        return self.settings


def load_doctor_context(config: Path | None, flags: SettingFlags) -> DoctorContext:
    """Load the settings as far as they are valid; does not raise InvalidSettings."""
    environ, now = dict(os.environ), SystemClock().now()
    try:
        return DoctorContext(load_settings(config, flags), environ, now=now)
    except InvalidSettings as error:
        return DoctorContext(_load_settings_without_store(config, flags), environ, error, now)


def _load_settings_without_store(config: Path | None, flags: SettingFlags) -> Settings | None:
    try:
        return load_settings(config, flags._replace(store="memory"))
    except InvalidSettings:
        return None


# -- this process ---------------------------------------------------------------------------------


def probe_versions(context: DoctorContext) -> VersionFacts:
    return VersionFacts(convo.__version__, platform.python_version(), f"{platform.system()} {platform.machine()}")


def probe_settings(context: DoctorContext) -> SettingsFacts:
    """Return the sources of the settings, the strongest first. Raises InvalidSettings."""
    if context.error:
        raise context.error
    sources = {setting.source for setting in context.settings.entries if setting.source.layer is not Layer.DEFAULT}
    locations = [_format_source(source) for source in sorted(sources, key=lambda source: (source.layer, source.name))]
    providers = context.settings.providers
    unused = find_unused_model_settings(context.settings.entries, providers)
    return SettingsFacts(
        locations,
        context.settings.project_notice,
        [format_unused_model_setting(setting, providers) for setting in unused],
        context.settings.compact_at,
    )


def _format_source(source: SettingSource) -> str:
    return f"{source.location} [profiles.{source.profile}]" if source.profile else source.location


def probe_folders(context: DoctorContext) -> FolderFacts:
    """Check the folders. Raises StoreFault for one that cannot be written, InvalidSettings without a home folder."""
    paths = list(dict.fromkeys(AppPaths.from_environ(context.environ)))
    for path in paths:
        check_folder_writable(path)
    existing = [path for path in paths if path.is_dir()]
    return FolderFacts(paths, [path for path in existing if os.name == "posix" and path.stat().st_mode & 0o077])


def probe_terminal(context: DoctorContext) -> TerminalFacts:
    from convo.terminal.terminal import detect_display

    return TerminalFacts(
        detect_display(sys.stdout, context.environ), context.environ.get("TERM", ""), sys.stdout.encoding
    )


def probe_extras(context: DoctorContext) -> ExtrasFacts:
    return ExtrasFacts(
        {extra: [name for name in names if find_spec(name) is None] for extra, names in PACKAGES_BY_EXTRA.items()}
    )


# -- the store ------------------------------------------------------------------------------------


def probe_store_facts(context: DoctorContext) -> StoreFacts:
    """Examine the store. Raises StoreFault, InvalidSettings or InvalidUsage."""
    from convo.stores.factory import probe_store

    storage, source = context.complete_settings.storage, context.complete_settings.get_source("state_storage")
    health = run_with_timeout(probe_store(get_store_url(storage)), str(storage))
    return StoreFacts(storage, source, health, describe_supabase_pooler(storage.url.reveal() if storage.url else ""))


def run_with_timeout(coroutine: Coroutine[Any, Any, Result], target: str) -> Result:
    """Return the result of `coroutine`. Raises StoreUnavailable after `CHECK_TIMEOUT_S`."""

    async def await_with_timeout() -> Result:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await coroutine

    try:
        return asyncio.run(await_with_timeout())
    except TimeoutError as error:
        raise StoreUnavailable(
            f"{target} did not respond within {CHECK_TIMEOUT_S:g} seconds",
            hint="check the host name, the network and the firewall",
        ) from error


def describe_supabase_pooler(url: str) -> str:
    """Return words for a connection to Supabase, through its pooler or direct; empty for other servers."""
    parts = urlsplit(url)
    if not (parts.hostname or "").endswith((".pooler.supabase.com", ".supabase.co")):
        return ""
    return ", through Supabase's transaction pooler" if parts.port == SUPABASE_POOLER_PORT else ", at Supabase"


# -- serving --------------------------------------------------------------------------------------


def probe_serve(context: DoctorContext) -> ServeFacts:
    """Examine the settings of `convo serve`. Raises InvalidSettings for an unreadable keys file or line of it."""
    settings = context.settings.serve
    missing = [name for name in PACKAGES_BY_EXTRA["serve"] if find_spec(name) is None]
    key_count = None if settings.keys_file is None else _count_api_keys(settings.keys_file)
    return ServeFacts(settings, not is_loopback(settings.host), missing, key_count)


def _count_api_keys(path: Path) -> int:
    from convo.server.auth import read_key_entries

    if path.exists() and not path.is_file():
        raise InvalidSettings(f"{path} is not a regular file", hint="convo serve --new-key NAME, to create a keys file")
    if not path.exists():
        raise InvalidSettings(f"no keys file at {path}", hint="convo serve --new-key NAME, to create it")
    return len(list(read_key_entries(path)))


def probe_encryption_key(context: DoctorContext) -> EncryptionKeyFacts:
    variable = context.settings.serve.seal_key_env
    if context.error:
        raise InvalidSettings("not checked: the store setting has an error", hint="convo doctor store")
    return EncryptionKeyFacts(
        variable, read_secret(context.environ, variable) is not None, context.settings.storage.type
    )


LOCAL_ENGINE_PACKAGE = "xllamacpp"
ALIAS_SOURCE = "an alias"

SERVER_TIMEOUT_S = 5.0
"""Seconds that a model server has to answer."""


def probe_keys(context: DoctorContext) -> list[ProviderKeyFacts]:
    return [
        key for provider in context.settings.providers.values() for key in _iter_key_facts(provider, context.environ)
    ]


def _iter_key_facts(provider: Provider, environ: Mapping[str, str]) -> Iterator[ProviderKeyFacts]:
    found_key = find_provider_key(provider, environ)
    if found_key or provider.key_env:
        location = found_key.location if found_key else str(provider.key_env)
        yield ProviderKeyFacts(
            provider.name,
            location,
            found_key is not None,
            _describe_unusable_key(provider, found_key),
            _is_key_file_exposed(provider, found_key),
        )
    if provider.token_env:
        yield ProviderKeyFacts(provider.name, provider.token_env, load_provider_token(provider, environ) is not None)


def _describe_unusable_key(provider: Provider, found_key: FoundKey | None) -> str:
    from convo.models.factory import check_provider_key

    try:
        check_provider_key(provider, found_key.key if found_key else None)
    except ConvoError as error:
        return error.message if found_key else ""
    return ""


def _is_key_file_exposed(provider: Provider, found_key: FoundKey | None) -> bool:
    """Return whether other users of this machine may read the file of the key in use."""
    path = provider.key_file
    in_use = found_key is not None and path is not None and found_key.location == str(path)
    return bool(in_use and path and os.name == "posix" and path.stat().st_mode & 0o077)


def probe_model(context: DoctorContext) -> ModelFacts:
    """Examine the default model. Raises ConvoError for a model that cannot be used."""
    from convo.models.factory import find_weights, make_openai_options, open_model

    choice = choose_model(context.settings)
    provider, models = choice.provider, context.settings.paths.weights
    key, token = load_provider_key(provider, context.environ), load_provider_token(provider, context.environ)
    if provider.api == "local":
        find_weights(choice.name.model, models)
        if find_spec(LOCAL_ENGINE_PACKAGE) is None:
            raise ModelMissing(
                f"the engine of local models, {LOCAL_ENGINE_PACKAGE}, is not installed",
                hint=f"pip install {LOCAL_ENGINE_PACKAGE}",
            )
    if provider.api in STATEFUL_APIS:
        make_openai_options(provider, key=key, token=token)
    else:
        open_model(provider, key=key, weights_folder=models, clock=SystemClock(), new_id=random_id)
    return ModelFacts(choice, [*_iter_near_shutdowns(context.settings, context.now)])


def _iter_near_shutdowns(settings: Settings, now: float) -> Iterator[tuple[str, ModelName, Shutdown]]:
    """Yield the models that end soon: the default one, those of the aliases, and those with settings of their own."""
    aliases = {format_setting_key(("aliases", alias)): alias for alias in settings.aliases}
    own = {format_setting_key(key[:2]): key[1] for entry in settings.entries if (key := entry.key)[0] == "models"}
    for origin, requested_name in {str(settings.get_source("model")): None, **aliases, **own}.items():
        try:
            name = choose_model(settings, requested_name).name
        except InvalidSettings:
            continue
        shutdown = find_listed_shutdown(name, settings)
        if shutdown and shutdown.is_near(now):
            yield origin, name, shutdown


def probe_local_model(context: DoctorContext) -> LocalModelFacts:
    """Look for the built-in model. Raises InvalidSettings without a home folder."""
    from convo.models.factory import find_built_in_weights

    try:
        weights = find_built_in_weights(AppPaths.from_environ(context.environ).weights)
    except ModelMissing:
        weights = None
    return LocalModelFacts(find_spec(LOCAL_ENGINE_PACKAGE) is not None, weights)


def probe_ollama(context: DoctorContext) -> OllamaFacts | None:
    """Ask Ollama for its models; None if no model of it is in use."""
    from convo.chat.endpoint_factory import open_catalogue
    from convo.models.base import fetch_models

    settings = context.settings
    choices = [choice for choice in _iter_models_in_use(settings) if choice.provider.name == "ollama"]
    if not choices:
        return None
    provider, models = choices[0].provider, settings.paths.weights
    facts = OllamaFacts(provider.base_url or "", sorted({choice.name.model for choice in choices}))
    facts = facts._replace(is_default=any(choice.source.name != ALIAS_SOURCE for choice in choices))
    catalogue = open_catalogue(provider, models, settings.limits)
    assert catalogue is not None
    try:
        return facts._replace(
            available_models=[*asyncio.run(fetch_models(catalogue, "ollama", timeout_s=SERVER_TIMEOUT_S))]
        )
    except EndpointFault as error:
        return facts._replace(error=error.message)


def _iter_models_in_use(settings: Settings) -> Iterator[ModelChoice]:
    """Yield the default model and those of the aliases, except the ones that cannot be resolved."""
    for name in (None, *settings.aliases):
        try:
            yield choose_model(settings, name, source=ALIAS_SOURCE)
        except InvalidSettings:
            continue


def probe_network(context: DoctorContext) -> list[ServerFacts]:
    """Call each model server that is in use or has a key, all at once."""
    settings = context.settings
    used_names = {choice.provider.name for choice in _iter_models_in_use(settings)}
    providers = [
        provider
        for provider in settings.providers.values()
        if provider.base_url
        and (
            provider.name in used_names
            or has_provider_key(provider, context.environ)
            or load_provider_token(provider, context.environ)
        )
    ]
    return asyncio.run(_probe_servers(providers))


async def _probe_servers(providers: list[Provider]) -> list[ServerFacts]:
    return await asyncio.gather(*(_probe_server(provider) for provider in providers))


async def _probe_server(provider: Provider) -> ServerFacts:
    """Check whether the base URL answers; a response of any status is an answer."""
    import httpx2

    from convo.models.errors import ErrorContext, map_provider_errors

    url = provider.base_url or ""
    try:
        with map_provider_errors(ErrorContext(provider.name, url)):
            async with httpx2.AsyncClient(timeout=SERVER_TIMEOUT_S) as http:
                await http.head(url)
    except EndpointFault as error:
        return ServerFacts(provider.name, error.message)
    return ServerFacts(provider.name)


Facts = TypeVar("Facts")

TIMEOUT_MARGIN_S = 1.0
"""Additional seconds for a probe with its own timeout, so that its own error is reported."""


class DoctorCheck(NamedTuple):
    """One check: a short description of its subject, and the function that runs it."""

    description: str
    run: Callable[[DoctorContext], CheckResult]


def make_doctor_check(
    description: str, probe: Callable[[DoctorContext], Facts], diagnose: Callable[[Facts], CheckResult]
) -> DoctorCheck:
    """Combine a probe and its diagnosis in one check."""
    return DoctorCheck(description, lambda context: diagnose(probe(context)))


DOCTOR_CHECKS = {
    "convo": make_doctor_check("versions of convo and Python", probe_versions, doctor_checks.diagnose_versions),
    "settings": make_doctor_check("settings files and variables", probe_settings, doctor_checks.diagnose_settings),
    "folders": make_doctor_check("folders that convo writes", probe_folders, doctor_checks.diagnose_folders),
    "terminal": make_doctor_check("capabilities of the terminal", probe_terminal, doctor_checks.diagnose_terminal),
    "extras": make_doctor_check("optional packages", probe_extras, doctor_checks.diagnose_extras),
    "store": make_doctor_check("database of conversations", probe_store_facts, doctor_checks.diagnose_store),
    "keys": make_doctor_check("keys of the providers", probe_keys, doctor_checks.diagnose_keys),
    "model": make_doctor_check("default model", probe_model, doctor_checks.diagnose_model),
    "local": make_doctor_check("built-in model", probe_local_model, doctor_checks.diagnose_local_model),
    "ollama": make_doctor_check("Ollama server, if it is used", probe_ollama, doctor_checks.diagnose_ollama),
    "serve": make_doctor_check("address and keys of convo serve", probe_serve, doctor_checks.diagnose_serve),
    "seal": make_doctor_check(
        "key that encrypts compaction items", probe_encryption_key, doctor_checks.diagnose_encryption_key
    ),
    "network": make_doctor_check(
        "connection to the servers of the providers", probe_network, doctor_checks.diagnose_network
    ),
}

OPT_IN_CHECKS = ("network",)
"""Checks that call servers on other machines."""


def run_doctor(config: Path | None, flags: SettingFlags, names: Sequence[str], *, network: bool, as_json: bool) -> bool:
    """Run the checks and print their results; return whether none of them is a fault.

    Raises InvalidUsage for an unknown name.
    """
    reports = run_doctor_checks(select_doctor_checks(names, network=network), load_doctor_context(config, flags))
    is_ok = all(report.result.level is not CheckLevel.ERROR for report in reports)
    if as_json:
        print_json(DoctorReport(is_ok, reports))
    else:
        print_line(render_checks(reports, detect_display(sys.stdout, os.environ)))
        sys.stdout.flush()
        _print_summary(reports)
    return is_ok


def _print_summary(reports: Sequence[CheckReport]) -> None:
    """Print the summary on stderr.

    On a terminal it is bold, in the color of the worst result, with the names of the checks and below an empty line.
    """
    display = detect_display(sys.stderr, os.environ)
    if display.width is None:
        print_notice(summarize_checks(reports))
        return
    worst = max((report.result.level for report in reports), key=list(CheckLevel).index)
    summary = display.apply_style(summarize_checks(reports, with_names=True), LEVEL_STYLES[worst])
    summary = display.apply_style(summary, "bold")
    sys.stderr.write(f"\n{summary}\n" if sys.stdout.isatty() else f"{summary}\n")


def select_doctor_checks(names: Sequence[str], *, network: bool) -> list[str]:
    """Return the checks to run, in their order. Raises InvalidUsage for an unknown name."""
    for name in names:
        if name not in DOCTOR_CHECKS:
            closest = find_closest_word(name, DOCTOR_CHECKS)
            hint = f"convo doctor {closest}" if closest else f"one of {', '.join(DOCTOR_CHECKS)}"
            raise InvalidUsage(f"no check {name!r}", hint=hint)
    selected = set(names) or set(DOCTOR_CHECKS) - set(OPT_IN_CHECKS)
    return [name for name in DOCTOR_CHECKS if name in selected or (network and name in OPT_IN_CHECKS)]


def run_doctor_checks(names: Sequence[str], context: DoctorContext) -> list[CheckReport]:
    """Return the results of all checks, which run at once; none is waited for longer than its time limit."""
    pool = ThreadPoolExecutor(max_workers=len(names))
    deadline = monotonic() + CHECK_TIMEOUT_S + TIMEOUT_MARGIN_S
    futures = [(name, pool.submit(DOCTOR_CHECKS[name].run, context)) for name in names]
    reports = [CheckReport(name, _redact_result(_get_finding(future, deadline))) for name, future in futures]
    pool.shutdown(wait=False)
    return reports


def _get_finding(future: Future[CheckResult], deadline: float) -> CheckResult:
    try:
        return future.result(max(0.0, deadline - monotonic()))
    except ConvoError as error:
        return make_error_result(error.message, error.hint)
    except TimeoutError:
        return make_error_result(
            f"timed out after {CHECK_TIMEOUT_S:g} seconds", "check whether the disk and the server respond"
        )


def _redact_result(result: CheckResult) -> CheckResult:
    """Replace secrets: a setting may have a key in the wrong place, and people show the results to others."""
    level, *texts = result
    return CheckResult(level, *map(redact_secrets, texts))
