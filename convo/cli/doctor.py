"""`convo doctor`: check the installation and suggest fixes.

All checks run at once, each with a time limit, and report their first problem with one next step. Nothing is changed.
A result contains no secrets: the name of a variable and never its value, a URL without its password.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import convo
from convo.cli.output import print_json, print_line, print_notice
from convo.config.credentials import (
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
from convo.config.storage import Storage, get_store_url
from convo.config.trust import is_loopback
from convo.config.values import (
    Layer,
    SettingSource,
    describe_percent_as_tokens,
    find_closest_word,
    format_setting_key,
    suggest_fraction_command,
)
from convo.errors import ConvoError, EndpointFault, InvalidSettings, InvalidUsage, ModelMissing, StoreUnavailable
from convo.installation import PACKAGES_BY_EXTRA, list_missing_packages, make_install_command
from convo.runtime import SystemClock, random_id
from convo.secrets import is_variable_name, read_secret, redact_secrets
from convo.stores.base import FileHealth, ServerHealth, StoreHealth
from convo.terminal.list_views import format_bytes
from convo.terminal.report_views import (
    LEVEL_STYLES,
    CheckLevel,
    CheckReport,
    CheckResult,
    DoctorReport,
    make_error_result,
    make_ok_result,
    make_warning_result,
    render_checks,
    summarize_checks,
)
from convo.terminal.terminal import detect_display, format_count
from convo.usage.model_info import Shutdown, find_listed_shutdown

Result = TypeVar("Result")

CHECK_TIMEOUT_S = 15.0
"""Seconds for each check."""

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


def check_versions(context: DoctorContext) -> CheckResult:
    version = f"{convo.__version__}, Python {platform.python_version()}"
    return make_ok_result(f"{version}, {platform.system()} {platform.machine()}", brief=version)


def check_settings(context: DoctorContext) -> CheckResult:
    """Report the sources of the settings, the strongest first. Raises InvalidSettings."""
    if context.error:
        raise context.error
    settings = context.settings
    if settings.project_notice:
        return make_warning_result(settings.project_notice.summary, settings.project_notice.hint)
    if unused := find_unused_model_settings(settings.entries, settings.providers):
        message = format_unused_model_setting(unused[0], settings.providers)
        return make_warning_result(message, "correct the name, or convo config unset KEY")
    if warning := describe_percent_as_tokens(settings.compact_at):
        return make_warning_result(warning, suggest_fraction_command(settings.compact_at))
    sources = {setting.source for setting in settings.entries if setting.source.layer is not Layer.DEFAULT}
    locations = [_format_source(source) for source in sorted(sources, key=lambda source: (source.layer, source.name))]
    return make_ok_result(", ".join(locations) or "all values are defaults; no file or variable sets one")


def _format_source(source: SettingSource) -> str:
    return f"{source.location} [profiles.{source.profile}]" if source.profile else source.location


def check_folders(context: DoctorContext) -> CheckResult:
    """Check the folders. Raises StoreFault for one that cannot be written, InvalidSettings without a home folder."""
    folders = list(dict.fromkeys(AppPaths.from_environ(context.environ)))
    for folder in folders:
        check_folder_writable(folder)
    if exposed := " ".join(str(folder) for folder in folders if folder.is_dir() and _is_open_to_others(folder)):
        return make_warning_result(f"other users of this machine can access {exposed}", f"chmod 700 {exposed}")
    return make_ok_result(f"writable: {', '.join(map(str, folders))}", brief="writable")


def _is_open_to_others(path: Path) -> bool:
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)


MIN_TERMINAL_COLUMNS = 40
"""Columns below which tables are cut."""


def check_terminal(context: DoctorContext) -> CheckResult:
    display, encoding = detect_display(sys.stdout, context.environ), sys.stdout.encoding
    if not display.has_box_chars:
        return make_warning_result(
            f"the encoding is {encoding}: other characters are replaced by ASCII",
            "export LC_ALL=C.UTF-8, or PYTHONUTF8=1",
        )
    if display.width is None:
        return make_ok_result("stdout is not a terminal: plain text, no truncation, no color")
    if display.width < MIN_TERMINAL_COLUMNS:
        return make_warning_result(
            f"the terminal has {display.width} columns; tables are truncated",
            f"make it at least {MIN_TERMINAL_COLUMNS} columns wide",
        )
    color = "color" if display.has_color else "no color (NO_COLOR, or TERM is dumb)"
    term = context.environ.get("TERM") or "TERM is not set"
    return make_ok_result(f"{term}, {display.width} columns, {color}, {encoding}")


def check_extras(context: DoctorContext) -> CheckResult:
    missing = [extra for extra in PACKAGES_BY_EXTRA if list_missing_packages(extra)]
    installed = [extra for extra in PACKAGES_BY_EXTRA if extra not in missing]
    brief = f"{len(installed)} installed"
    message = f"installed: {', '.join(installed) or 'none'}"
    if not missing:
        return make_ok_result(message, brief=brief)
    return make_ok_result(
        f"{message}; not installed: {', '.join(missing)}",
        make_install_command(*missing),
        brief=f"{brief}, {len(missing)} not installed",
    )


# -- the store ------------------------------------------------------------------------------------


def check_store(context: DoctorContext) -> CheckResult:
    """Examine the store. Raises StoreFault, InvalidSettings or InvalidUsage."""
    from convo.stores.factory import probe_store

    storage, source = context.complete_settings.storage, context.complete_settings.get_source("state_storage")
    health = run_with_timeout(probe_store(get_store_url(storage)), str(storage))
    return diagnose_store(storage, source, health)


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


LOW_DISK_SPACE_BYTES = 100_000_000
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre"}
)
"""File systems on which SQLite's WAL, whose index is in shared memory, is not reliable."""

MIN_SERVER_VERSION = 120_000

EPHEMERAL_STORE_WARNINGS = {
    "memory": "state does not persist across restarts, and is not shared between replicas",
    "none": "nothing is stored, and requests that continue earlier ones are rejected",
}


BACKUP_HINT = "back it up with convo store backup FILE: without its -wal, the file is incomplete"


def diagnose_store(storage: Storage, source: SettingSource, health: StoreHealth | None) -> CheckResult:
    """Report the first problem of a store; `health` is None for one that stores nothing after the process."""
    match health:
        case FileHealth():
            return _diagnose_sqlite(storage, source, health)
        case ServerHealth():
            return _diagnose_postgres(storage, source, health)
    return make_warning_result(
        f"the store is {storage.type} ({source}): {EPHEMERAL_STORE_WARNINGS[storage.type]}",
        '[state_storage] type = "sqlite", or "postgres" for several replicas',
    )


def _diagnose_sqlite(storage: Storage, source: SettingSource, file: FileHealth) -> CheckResult:
    store = f"sqlite:{file.file} ({source})"
    option = _format_store_option(storage, source)
    if file.quick_check not in ("ok", None):
        return make_error_result(
            f"{store} is damaged: {file.quick_check}",
            f"convo store check{option}, to list the sessions;"
            f" convo store recover NEW.db{option}, to save readable rows",
        )
    if file.filesystem in NETWORK_FILESYSTEMS:
        return make_warning_result(
            f"{store} is on a network file system ({file.filesystem}), where SQLite's locks are unreliable",
            "move it to a local disk, or use PostgreSQL",
        )
    if file.free_bytes < LOW_DISK_SPACE_BYTES:
        return make_warning_result(f"{store}: its disk has {format_bytes(file.free_bytes)} left", "free some space")
    if file.schema_version is None:
        return make_ok_result(f"{store} is created by the first turn")
    if file.schema_version < file.latest_schema_version:
        return make_warning_result(
            f"{store} has schema {file.schema_version}; this convo uses {file.latest_schema_version}",
            _format_migrate_command(source),
        )
    check_note = "" if file.quick_check else "; too large for the quick check, run convo store check"
    return make_ok_result(
        f"{store}, schema {file.schema_version}, {format_bytes(file.free_bytes)} free{check_note}"
        + _format_ttl(storage),
        BACKUP_HINT,
        brief=f"SQLite, {format_bytes(file.free_bytes)} free",
    )


def _diagnose_postgres(storage: Storage, source: SettingSource, server: ServerHealth) -> CheckResult:
    if server.server_version < MIN_SERVER_VERSION:
        return make_error_result(
            f"{server.location} is PostgreSQL {_format_server_version(server)}", "use PostgreSQL 12 or newer"
        )
    if server.is_read_only:
        return make_error_result(
            f"{server.location} is read-only: a standby, or default_transaction_read_only is on",
            "use the primary in the connection string, or set default_transaction_read_only to off",
        )
    if server.missing_privileges or server.schema_version is None:
        privileges = ", ".join(server.missing_privileges or ("SELECT",))
        return make_error_result(
            f"role {server.role!r} lacks {privileges} at {server.location}", _format_grants(server)
        )
    if server.schema_version < server.latest_schema_version:
        problem = (
            f"is at schema {server.schema_version} of {server.latest_schema_version}"
            if server.schema_version
            else "lacks convo's tables"
        )
        return make_error_result(
            f"{server.location} {problem}",
            _format_migrate_command(source, above_schema=server.schema_version, may_create=server.can_create_schema),
        )
    version = _format_server_version(server)
    location = f"{server.location} ({source})"
    store = f"{location}: PostgreSQL {version}, role {server.role!r}, schema {server.schema_version}"
    return make_ok_result(
        f"{store}, {'TLS' if server.uses_tls else 'no TLS'}{_describe_supabase_pooler(storage)}{_format_ttl(storage)}",
        brief=f"PostgreSQL {version}, {'TLS' if server.uses_tls else 'no TLS'}",
    )


def _describe_supabase_pooler(storage: Storage) -> str:
    """Return words for a connection to Supabase, through its pooler or direct; empty for other servers."""
    parts = urlsplit(storage.url.reveal() if storage.url else "")
    if not (parts.hostname or "").endswith((".pooler.supabase.com", ".supabase.co")):
        return ""
    return ", through Supabase's transaction pooler" if parts.port == SUPABASE_POOLER_PORT else ", at Supabase"


def _format_server_version(server: ServerHealth) -> str:
    return f"{server.server_version // 10_000}.{server.server_version % 10_000}"


def _format_grants(server: ServerHealth) -> str:
    """Format the statements that grant the missing rights, for the owner of the tables."""
    role = '"' + server.role.replace('"', '""') + '"'
    privileges = [privilege for privilege in server.missing_privileges if privilege != "USAGE"]
    if server.schema_version is None and "SELECT" not in privileges:
        privileges.insert(0, "SELECT")
    usage = [f"GRANT USAGE ON SCHEMA convo TO {role};"] if "USAGE" in server.missing_privileges else []
    tables = [f"GRANT {', '.join(privileges)} ON ALL TABLES IN SCHEMA convo TO {role};"] if privileges else []
    return " ".join([*usage, *tables])


def _format_migrate_command(source: SettingSource, *, above_schema: int = 0, may_create: bool = True) -> str:
    note = ", with the same --store" if source.layer is Layer.FLAG else ""
    if may_create:
        return f"convo store migrate{note}"
    above = f" --above {above_schema}" if above_schema else ""
    return f"convo store migrate --print-sql{above} > schema.sql{note}, and run it with a role that can create schemas"


def _format_store_option(storage: Storage, source: SettingSource) -> str:
    """Format the option that names the store again on a command line."""
    return f" --store {quote(str(storage))}" if source.layer is Layer.FLAG else ""


def _format_ttl(storage: Storage) -> str:
    """Format a note that unused data is removed automatically, in case the user misses it."""
    return "; unused data expires (ttl)" if storage.default_ttl_s or storage.tenant_ttls_s else ""


# -- serving --------------------------------------------------------------------------------------


def check_serve(context: DoctorContext) -> CheckResult:
    """Examine the settings of `convo serve`. Raises InvalidSettings for an unreadable keys file or line of it."""
    settings = context.settings.serve
    address = f"{settings.host}, port {settings.port}"
    key_count = None if settings.keys_file is None else _count_api_keys(settings.keys_file)
    if key_count is None and not is_loopback(settings.host):
        return make_error_result(
            f"{address} can be reached from other machines, and no API keys are set up",
            'convo serve --new-key NAME, then set [serve] keys_file; or set host = "127.0.0.1"',
        )
    if key_count == 0:
        return make_error_result(
            f"{settings.keys_file} has no keys: every request is rejected", "convo serve --new-key NAME"
        )
    if list_missing_packages("serve"):
        return make_ok_result("not installed: convo serve needs the extra [serve]", make_install_command("serve"))
    access = format_count(key_count, "key") if key_count else "this machine only, no key needed"
    return make_ok_result(f"{address}; {access}")


def _count_api_keys(path: Path) -> int:
    from convo.server.auth import read_key_entries

    if path.exists() and not path.is_file():
        raise InvalidSettings(f"{path} is not a regular file", hint="convo serve --new-key NAME, to create a keys file")
    if not path.exists():
        raise InvalidSettings(f"no keys file at {path}", hint="convo serve --new-key NAME, to create it")
    return len(list(read_key_entries(path)))


def check_encryption_key(context: DoctorContext) -> CheckResult:
    variable = context.settings.serve.seal_key_env
    if context.error:
        raise InvalidSettings("not checked: the store setting has an error", hint="convo doctor store")
    if read_secret(context.environ, variable) is not None:
        return make_ok_result(
            f"compaction items are encrypted with {variable}, which must be the same on all replicas",
            brief=f"key in {variable}",
        )
    if context.settings.storage.type in EPHEMERAL_STORE_WARNINGS:
        return make_ok_result(
            f"compaction items are encrypted with a key of this process only ({variable} is not set)",
            f"export {variable}=..., if they must remain readable after a restart",
            brief="key of this process",
        )
    return make_ok_result(
        "compaction items are encrypted with the store's key, which all users of the store share",
        brief="key of the store",
    )


# -- models ---------------------------------------------------------------------------------------

ALIAS_SOURCE = "an alias"

SERVER_TIMEOUT_S = 5.0
"""Seconds that a model server has to answer."""


def check_keys(context: DoctorContext) -> CheckResult:
    """Report the keys by the variable, file or keyring that has them, never by their value."""
    from convo.models.factory import check_provider_key

    set_keys: list[tuple[str, str]] = []
    unset_keys: list[tuple[str, str]] = []
    exposed_files: list[str] = []
    for provider in context.settings.providers.values():
        found_key = find_provider_key(provider, context.environ)
        if found_key:
            try:
                check_provider_key(provider, found_key.key)
            except ConvoError as error:
                return make_error_result(error.message, _format_set_key_hint(provider, found_key.location))
            set_keys.append((found_key.location, provider.name))
            path = provider.key_file
            if path is not None and found_key.location == str(path) and _is_open_to_others(path):
                exposed_files.append(str(path))
        elif provider.key_env:
            unset_keys.append((provider.key_env, provider.name))
        if provider.token_env:
            has_token = load_provider_token(provider, context.environ) is not None
            (set_keys if has_token else unset_keys).append((provider.token_env, provider.name))
    if exposed := " ".join(exposed_files):
        return make_warning_result(
            f"other users of this machine can access the key in {exposed}", f"chmod 600 {exposed}"
        )
    set_text, unset_text = (
        ", ".join(f"{location} ({name})" for location, name in keys) or "none" for keys in (set_keys, unset_keys)
    )
    brief = f"set: {', '.join(location for location, _ in set_keys) or 'none'}"
    return make_ok_result(f"set: {set_text}; not set: {unset_text}", brief=brief)


def _format_set_key_hint(provider: Provider, location: str) -> str:
    if is_variable_name(location):
        return f"export {location}=..., with the key as the provider shows it"
    return f"convo config key set {provider.name}{' --file' if os.sep in location else ''}"


def check_model(context: DoctorContext) -> CheckResult:
    """Examine the default model, without a request. Raises ConvoError for a model that cannot be used."""
    from convo.models.factory import find_weights, make_openai_options, open_model

    choice = choose_model(context.settings)
    provider, models = choice.provider, context.settings.paths.weights
    key, token = load_provider_key(provider, context.environ), load_provider_token(provider, context.environ)
    if provider.api == "local":
        find_weights(choice.name.model, models)
    if provider.api in STATEFUL_APIS:
        make_openai_options(provider, key=key, token=token)
    else:
        open_model(provider, key=key, weights_folder=models, clock=SystemClock(), new_id=random_id)
    for origin, name, shutdown in _iter_near_shutdowns(context.settings, context.now):
        hint = (
            f"use {shutdown.replacement}" if shutdown.replacement else "convo models --ask lists the available models"
        )
        return make_warning_result(f"{name} ({origin}): shutdown on {shutdown.date}", hint)
    owner = "its provider" if provider.endpoint == "remote" else "convo"
    return make_ok_result(f"{choice.name} ({choice.source}); {owner} stores chains and conversations")


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


def check_local_model(context: DoctorContext) -> CheckResult:
    """Look for the built-in model, and import its engine. Raises InvalidSettings without a home folder."""
    from convo.models.factory import find_built_in_weights
    from convo.models.weights import make_engine_start_error

    try:
        weights = find_built_in_weights(AppPaths.from_environ(context.environ).weights)
        import_module("xllamacpp")
    except ModelMissing as error:
        return make_ok_result(error.message, error.hint, brief="not installed")
    except ImportError as error:
        fault = make_engine_start_error(str(error))
        return make_warning_result(fault.message, fault.hint)
    return make_ok_result(f"{weights}; needs no key and no network", brief="installed")


def check_ollama(context: DoctorContext) -> CheckResult:
    """Ask Ollama for its models, if one of them is in use."""
    from convo.chat.endpoint_factory import open_catalogue
    from convo.models.base import fetch_models

    settings = context.settings
    choices = [choice for choice in _iter_models_in_use(settings) if choice.provider.name == "ollama"]
    if not choices:
        return make_ok_result("not used: neither the default model nor an alias is an Ollama model", brief="not used")
    provider = choices[0].provider
    catalogue = open_catalogue(provider, settings.paths.weights, settings.limits)
    assert catalogue is not None
    try:
        models = asyncio.run(fetch_models(catalogue, "ollama", timeout_s=SERVER_TIMEOUT_S))
    except EndpointFault as error:
        is_default = any(choice.source.name != ALIAS_SOURCE for choice in choices)
        make_result = make_error_result if is_default else make_warning_result
        return make_result(error.message, "ollama serve, or set OLLAMA_HOST to its address")
    # Ollama lists llama3.2, a name without a tag, as llama3.2:latest.
    available = {name.removesuffix(":latest") for name in models}
    names = sorted({choice.name.model for choice in choices})
    if missing := [name for name in names if name.removesuffix(":latest") not in available]:
        return make_warning_result(
            f"Ollama at {provider.base_url} does not have {', '.join(missing)}", f"ollama pull {missing[0]}"
        )
    return make_ok_result(f"Ollama responds at {provider.base_url}")


def _iter_models_in_use(settings: Settings) -> Iterator[ModelChoice]:
    """Yield the default model and those of the aliases, except the ones that cannot be resolved."""
    for name in (None, *settings.aliases):
        try:
            yield choose_model(settings, name, source=ALIAS_SOURCE)
        except InvalidSettings:
            continue


def check_network(context: DoctorContext) -> CheckResult:
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
    if errors := [error for error in asyncio.run(_call_servers(providers)) if error]:
        return make_error_result(
            "; ".join(errors), "check the network, HTTPS_PROXY and the base URL; -m local needs none of them"
        )
    names = ", ".join(provider.name for provider in providers)
    return make_ok_result(f"reachable: {names}" if names else "no provider with a server is used or has a key")


async def _call_servers(providers: list[Provider]) -> list[str]:
    return await asyncio.gather(*(_call_server(provider) for provider in providers))


async def _call_server(provider: Provider) -> str:
    """Return why the base URL does not answer, or ""; a response of any status is an answer."""
    import httpx2

    from convo.models.errors import ErrorContext, map_provider_errors

    url = provider.base_url or ""
    try:
        with map_provider_errors(ErrorContext(provider.name, url)):
            async with httpx2.AsyncClient(timeout=SERVER_TIMEOUT_S) as http:
                await http.head(url)
    except EndpointFault as error:
        return error.message
    return ""


TIMEOUT_MARGIN_S = 1.0
"""Additional seconds for a check with its own timeout, so that its own error is reported."""


class DoctorCheck(NamedTuple):
    """One check: a short description of its subject, and the function that runs it."""

    description: str
    run: Callable[[DoctorContext], CheckResult]


DOCTOR_CHECKS = {
    "convo": DoctorCheck("versions of convo and Python", check_versions),
    "settings": DoctorCheck("settings files and variables", check_settings),
    "folders": DoctorCheck("folders that convo writes", check_folders),
    "terminal": DoctorCheck("capabilities of the terminal", check_terminal),
    "extras": DoctorCheck("optional packages", check_extras),
    "store": DoctorCheck("database of conversations", check_store),
    "keys": DoctorCheck("keys of the providers", check_keys),
    "model": DoctorCheck("default model", check_model),
    "local": DoctorCheck("built-in model", check_local_model),
    "ollama": DoctorCheck("Ollama server, if it is used", check_ollama),
    "serve": DoctorCheck("address and keys of convo serve", check_serve),
    "seal": DoctorCheck("key that encrypts compaction items", check_encryption_key),
    "network": DoctorCheck("connection to the servers of the providers", check_network),
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
