"""Diagnoses of `convo doctor`: pure functions from facts to a finding.

Facts contain no secrets: the name of a variable and never its value, a URL without its password.
The first problem is reported, with one next step.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.config.settings import ModelChoice, ModelName, ServeSettings
from convo.config.storage import Storage
from convo.config.trust import ProjectNotice
from convo.config.values import (
    Layer,
    SettingSource,
    describe_percent_as_tokens,
    is_variable_name,
    suggest_fraction_command,
)
from convo.stores.base import FileHealth, ServerHealth, StoreHealth
from convo.terminal.list_views import format_bytes
from convo.terminal.report_views import CheckResult, make_error_result, make_ok_result, make_warning_result
from convo.terminal.terminal import DisplayOptions, format_count
from convo.usage.model_info import Shutdown

# -- this process ---------------------------------------------------------------------------------


class VersionFacts(NamedTuple):
    """The versions of convo and Python, and the operating system."""

    convo: str
    python: str
    system: str


def diagnose_versions(facts: VersionFacts) -> CheckResult:
    version = f"{facts.convo}, Python {facts.python}"
    return make_ok_result(f"{version}, {facts.system}", brief=version)


class SettingsFacts(NamedTuple):
    """The sources of the settings.

    sources:         the files, variables and flags that set a value
    project_notice:  the ignored part of a project's file
    unused:          descriptions of settings that have no effect
    compact_at:      the setting
    """

    sources: Sequence[str]
    project_notice: ProjectNotice | None = None
    unused: Sequence[str] = ()
    compact_at: float = 0


def diagnose_settings(facts: SettingsFacts) -> CheckResult:
    if facts.project_notice:
        return make_warning_result(facts.project_notice.summary, facts.project_notice.hint)
    if facts.unused:
        return make_warning_result(facts.unused[0], "correct the name, or convo config unset KEY")
    if warning := describe_percent_as_tokens(facts.compact_at):
        return make_warning_result(warning, suggest_fraction_command(facts.compact_at))
    sources = ", ".join(facts.sources)
    return make_ok_result(sources or "all values are defaults; no file or variable sets one")


class FolderFacts(NamedTuple):
    """The folders that convo writes.

    open_to_others:  those that other users of this machine can access
    """

    paths: Sequence[Path]
    open_to_others: Sequence[Path] = ()


def diagnose_folders(facts: FolderFacts) -> CheckResult:
    if facts.open_to_others:
        paths = " ".join(map(str, facts.open_to_others))
        return make_warning_result(f"other users of this machine can access {paths}", f"chmod 700 {paths}")
    return make_ok_result(f"writable: {', '.join(map(str, facts.paths))}", brief="writable")


class TerminalFacts(NamedTuple):
    """The terminal.

    display:        the capabilities of stdout
    term_variable:  the value of TERM
    encoding:       the encoding of stdout
    """

    display: DisplayOptions
    term_variable: str
    encoding: str


MIN_TERMINAL_COLUMNS = 40
"""Columns below which tables are cut."""


def diagnose_terminal(facts: TerminalFacts) -> CheckResult:
    if not facts.display.has_box_chars:
        return make_warning_result(
            f"the encoding is {facts.encoding}: other characters are replaced by ASCII",
            "export LC_ALL=C.UTF-8, or PYTHONUTF8=1",
        )
    if facts.display.width is None:
        return make_ok_result("stdout is not a terminal: plain text, no truncation, no color")
    if facts.display.width < MIN_TERMINAL_COLUMNS:
        return make_warning_result(
            f"the terminal has {facts.display.width} columns; tables are truncated",
            f"make it at least {MIN_TERMINAL_COLUMNS} columns wide",
        )
    color = "color" if facts.display.has_color else "no color (NO_COLOR, or TERM is dumb)"
    return make_ok_result(
        f"{facts.term_variable or 'TERM is not set'}, {facts.display.width} columns, {color}, {facts.encoding}"
    )


class ExtrasFacts(NamedTuple):
    """The optional packages.

    missing_by_extra:  the packages of each extra that are not installed
    """

    missing_by_extra: Mapping[str, Sequence[str]]


def diagnose_extras(facts: ExtrasFacts) -> CheckResult:
    missing = [extra for extra, packages in facts.missing_by_extra.items() if packages]
    installed = [extra for extra in facts.missing_by_extra if extra not in missing]
    notes = [
        f"installed: {', '.join(installed) or 'none'}",
        *([f"not installed: {', '.join(missing)}"] if missing else []),
    ]
    return make_ok_result(
        "; ".join(notes),
        f"pip install 'convo-state[{','.join(missing)}]'" if missing else "",
        brief=f"{len(installed)} installed" + (f", {len(missing)} not installed" if missing else ""),
    )


# -- models ---------------------------------------------------------------------------------------


class ProviderKeyFacts(NamedTuple):
    """The key of a provider, without its value.

    location:    the variable, file or keyring that has the key, else the variable that it is read from
    problem:     the reason why a key that is set cannot be used, as text
    is_exposed:  whether other users may read its file
    """

    provider: str
    location: str
    is_set: bool
    problem: str = ""
    is_exposed: bool = False


def diagnose_keys(facts: Sequence[ProviderKeyFacts]) -> CheckResult:
    for key in facts:
        if key.problem:
            return make_error_result(key.problem, _format_set_key_hint(key))
    if exposed := [key.location for key in facts if key.is_exposed]:
        places = " ".join(exposed)
        return make_warning_result(f"other users of this machine can access the key in {places}", f"chmod 600 {places}")
    set_keys = [f"{key.location} ({key.provider})" for key in facts if key.is_set]
    unset_keys = [f"{key.location} ({key.provider})" for key in facts if not key.is_set]
    return make_ok_result(
        f"set: {', '.join(set_keys) or 'none'}; not set: {', '.join(unset_keys) or 'none'}",
        brief=f"set: {', '.join(key.location for key in facts if key.is_set) or 'none'}",
    )


def _format_set_key_hint(key: ProviderKeyFacts) -> str:
    if is_variable_name(key.location):
        return f"export {key.location}=..., with the key as the provider shows it"
    return f"convo config key set {key.provider}{' --file' if os.sep in key.location else ''}"


class ModelFacts(NamedTuple):
    """The default model, and a shutdown that is near for each model that the settings name, with the origin as text."""

    choice: ModelChoice
    shutdowns: Sequence[tuple[str, ModelName, Shutdown]] = ()


def diagnose_model(facts: ModelFacts) -> CheckResult:
    """Report the model, which is usable as far as that is known without a request."""
    for origin, name, shutdown in facts.shutdowns:
        hint = (
            f"use {shutdown.replacement}" if shutdown.replacement else "convo models --ask lists the available models"
        )
        return make_warning_result(f"{name} ({origin}): shutdown on {shutdown.date}", hint)
    choice = facts.choice
    owner = "its provider" if choice.provider.endpoint == "remote" else "convo"
    return make_ok_result(f"{choice.name} ({choice.source}); {owner} stores chains and conversations")


class LocalModelFacts(NamedTuple):
    """The built-in model.

    has_engine:    whether its engine is installed
    weights_file:  the file of its weights; None if they are missing
    """

    has_engine: bool
    weights_file: Path | None


def diagnose_local_model(facts: LocalModelFacts) -> CheckResult:
    if not facts.has_engine:
        return make_warning_result("the engine of local models, xllamacpp, is not installed", "pip install xllamacpp")
    if facts.weights_file is None:
        return make_warning_result("the weights of the built-in model are not installed", "convo models pull")
    return make_ok_result(f"{facts.weights_file}; needs no key and no network", brief="installed")


class OllamaFacts(NamedTuple):
    """The models of Ollama.

    models_in_use:  those that the settings name
    error:          the reason why it returned no list
    is_default:     whether the default model is one of them
    """

    url: str
    models_in_use: Sequence[str]
    available_models: Sequence[str] = ()
    error: str = ""
    is_default: bool = False


def diagnose_ollama(facts: OllamaFacts | None) -> CheckResult:
    if facts is None:
        return make_ok_result("not used: neither the default model nor an alias is an Ollama model", brief="not used")
    if facts.error:
        make_result = make_error_result if facts.is_default else make_warning_result
        return make_result(facts.error, "ollama serve, or set OLLAMA_HOST to its address")
    available = {name.removesuffix(":latest") for name in facts.available_models}
    if missing := [name for name in facts.models_in_use if name.removesuffix(":latest") not in available]:
        return make_warning_result(
            f"Ollama at {facts.url} does not have {', '.join(missing)}", f"ollama pull {missing[0]}"
        )
    return make_ok_result(f"Ollama responds at {facts.url}")


class ServerFacts(NamedTuple):
    """A provider's server; `error` is the reason why it cannot be reached, as text."""

    provider: str
    error: str = ""


def diagnose_network(facts: Sequence[ServerFacts]) -> CheckResult:
    if failed := [server.error for server in facts if server.error]:
        return make_error_result(
            "; ".join(failed), "check the network, HTTPS_PROXY and the base URL; -m local needs none of them"
        )
    names = ", ".join(server.provider for server in facts)
    return make_ok_result(f"reachable: {names}" if facts else "no provider with a server is used or has a key")


# -- serving --------------------------------------------------------------------------------------


class ServeFacts(NamedTuple):
    """The settings of `convo serve`.

    is_exposed:        whether other machines can reach its address
    missing_packages:  packages that it needs
    key_count:         the number of keys in its file
    """

    settings: ServeSettings
    is_exposed: bool
    missing_packages: Sequence[str] = ()
    key_count: int | None = None


def diagnose_serve(facts: ServeFacts) -> CheckResult:
    address = f"{facts.settings.host}, port {facts.settings.port}"
    if facts.is_exposed and facts.key_count is None:
        return make_error_result(
            f"{address} can be reached from other machines, and no API keys are set up",
            'convo serve --new-key NAME, then set [serve] keys_file; or set host = "127.0.0.1"',
        )
    if facts.key_count == 0:
        return make_error_result(
            f"{facts.settings.keys_file} has no keys: every request is rejected", "convo serve --new-key NAME"
        )
    if facts.missing_packages:
        return make_ok_result(
            f"not installed: convo serve needs {', '.join(facts.missing_packages)}",
            "pip install 'convo-state[serve]'",
        )
    access = format_count(facts.key_count, "key") if facts.key_count else "this machine only, no key needed"
    return make_ok_result(f"{address}; {access}")


class EncryptionKeyFacts(NamedTuple):
    """The key that encrypts compaction items.

    variable:    the variable of the key
    is_set:      whether the variable has a value
    store_type:  the type of the store
    """

    variable: str
    is_set: bool
    store_type: str


def diagnose_encryption_key(facts: EncryptionKeyFacts) -> CheckResult:
    if facts.is_set:
        return make_ok_result(
            f"compaction items are encrypted with {facts.variable}, which must be the same on all replicas",
            brief=f"key in {facts.variable}",
        )
    if facts.store_type in EPHEMERAL_STORE_WARNINGS:
        return make_ok_result(
            f"compaction items are encrypted with a key of this process only ({facts.variable} is not set)",
            f"export {facts.variable}=..., if they must remain readable after a restart",
            brief="key of this process",
        )
    return make_ok_result(
        "compaction items are encrypted with the store's key, which all users of the store share",
        brief="key of the store",
    )


class StoreFacts(NamedTuple):
    """The configured store.

    source:  the source of the setting
    health:  None for a store that stores nothing after the process
    pooler:  the pooler of the connection, as text
    """

    storage: Storage
    source: SettingSource
    health: StoreHealth | None = None
    pooler: str = ""


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


def diagnose_store(facts: StoreFacts) -> CheckResult:
    match facts.health:
        case FileHealth() as file:
            return _diagnose_sqlite(facts, file)
        case ServerHealth() as server:
            return _diagnose_postgres(facts, server)
    return make_warning_result(
        f"the store is {facts.storage.type} ({facts.source}): {EPHEMERAL_STORE_WARNINGS[facts.storage.type]}",
        '[state_storage] type = "sqlite", or "postgres" for several replicas',
    )


def _diagnose_sqlite(facts: StoreFacts, file: FileHealth) -> CheckResult:
    store = f"sqlite:{file.file} ({facts.source})"
    option = _format_store_option(facts)
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
            _format_migrate_command(facts),
        )
    check_note = "" if file.quick_check else "; too large for the quick check, run convo store check"
    return make_ok_result(
        f"{store}, schema {file.schema_version}, {format_bytes(file.free_bytes)} free{check_note}"
        + _format_ttl(facts.storage),
        BACKUP_HINT,
        brief=f"SQLite, {format_bytes(file.free_bytes)} free",
    )


def _diagnose_postgres(facts: StoreFacts, server: ServerHealth) -> CheckResult:
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
            _format_migrate_command(facts, above_schema=server.schema_version, may_create=server.can_create_schema),
        )
    version = _format_server_version(server)
    location = f"{server.location} ({facts.source})"
    store = f"{location}: PostgreSQL {version}, role {server.role!r}, schema {server.schema_version}"
    return make_ok_result(
        f"{store}, {'TLS' if server.uses_tls else 'no TLS'}{facts.pooler}{_format_ttl(facts.storage)}",
        brief=f"PostgreSQL {version}, {'TLS' if server.uses_tls else 'no TLS'}",
    )


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


def _format_migrate_command(facts: StoreFacts, *, above_schema: int = 0, may_create: bool = True) -> str:
    note = ", with the same --store" if facts.source.layer is Layer.FLAG else ""
    if may_create:
        return f"convo store migrate{note}"
    above = f" --above {above_schema}" if above_schema else ""
    return f"convo store migrate --print-sql{above} > schema.sql{note}, and run it with a role that can create schemas"


def _format_store_option(facts: StoreFacts) -> str:
    """Format the option that names the store again on a command line."""
    return f" --store {quote(str(facts.storage))}" if facts.source.layer is Layer.FLAG else ""


def _format_ttl(storage: Storage) -> str:
    """Format a note that unused data is removed automatically, in case the user misses it."""
    return "; unused data expires (ttl)" if storage.default_ttl_s or storage.tenant_ttls_s else ""
