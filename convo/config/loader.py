"""Load settings: flags, variables, session record, profile, project file, user file, defaults.

The first layer that has a value wins. `read_settings_inputs` reads the environment and the files;
`resolve_settings` merges them and has no side effects. `choose_model` picks the model of the next turn: a
session whose state is at an endpoint stays at that endpoint.
"""

import errno
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from convo.config.credentials import has_provider_key, has_stored_key
from convo.config.model_lists import (
    ModelLists,
    ReportedWindows,
    add_reported_windows,
    load_model_lists,
    load_reported_windows,
)
from convo.config.paths import PROJECT_FILE, AppPaths
from convo.config.request_settings import iter_parameter_faults
from convo.config.schema import (
    DEFAULT_SETTINGS,
    FLAG_SETTINGS,
    VARIABLE_SETTINGS,
    filter_untrusted,
    get_check,
    iter_settings,
    run_check,
)
from convo.config.sections import (
    APIS_WITHOUT_URL,
    CONFIGURABLE_APIS,
    STATEFUL_APIS,
    Provider,
    ProviderApi,
    is_keyless,
    parse_ollama_host,
)
from convo.config.settings import (
    BUILT_IN_MODEL,
    DEFAULT_MODELS,
    ModelChoice,
    Settings,
    resolve_model,
)
from convo.config.storage import Storage, StorageOption, parse_storage_option, resolve_setting_path, resolve_storage
from convo.config.trust import (
    ProjectNotice,
    Trust,
    determine_trust,
    escape_unprintable,
    is_in_folders,
    sha256_hex,
)
from convo.config.values import (
    BUILT_IN_SOURCE,
    SECTION_SCHEMAS,
    InvalidValue,
    KeyedTable,
    Layer,
    Setting,
    SettingKey,
    SettingRow,
    SettingSource,
    check_folders,
    find_closest_word,
    format_setting_key,
)
from convo.errors import InvalidSettings, WrongOwner
from convo.runtime import send_notice
from convo.secrets import read_secret


class RecordedEndpoint(NamedTuple):
    """The model and endpoint in a session's record.

    session:  the session's name
    model:    "provider/model" of the last turn
    url:      the base URL, or "embedded" for convo's own endpoint over this store
    """

    session: str
    model: str
    url: str = "embedded"
    organisation: str | None = None
    project: str | None = None

    @property
    def source(self) -> SettingSource:
        return SettingSource(Layer.RECORD, f"session {self.session!r}")


class EndpointLocation(NamedTuple):
    """The endpoint that handles belong to; its `str` is for messages."""

    url: str
    organisation: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        if self.url == "embedded":
            return "convo's own endpoint"
        details = [part for part in (self.organisation, self.project) if part]
        return self.url + (f" ({', '.join(details)})" if details else "")


def locate_endpoint(provider: Provider) -> EndpointLocation:
    """Return the location of the endpoint that the handles of this provider's models belong to."""
    if provider.endpoint == "embedded":
        return EndpointLocation("embedded")
    return EndpointLocation(provider.base_url or "", provider.organisation, provider.project)


def choose_model(
    settings: Settings, name: str | None = None, *, source: str = "-m", record: RecordedEndpoint | None = None
) -> ModelChoice:
    """Resolve the requested model, or the model of the settings.

    source:  the origin of the requested name in errors: "-m", "/model"
    record:  the record of the session to continue, if an endpoint owns its state

    Raises InvalidSettings for an unknown provider, circular aliases, an empty model name or a missing base URL,
    WrongOwner if another endpoint owns the session (see `bind_to_record`).
    """
    choice = resolve_model(settings, name, source)
    if record is not None:
        choice = bind_to_record(settings, choice, record)
    provider = choice.provider
    if provider.base_url is None and provider.api not in APIS_WITHOUT_URL:
        raise InvalidSettings(f"the provider {provider.name!r} has no base URL", hint=_base_url_hint(provider))
    return choice


def _base_url_hint(provider: Provider) -> str:
    variable = "set AZURE_OPENAI_ENDPOINT, or " if provider.name == "azure" else ""
    return f"{variable}set base_url under [providers.{provider.name}]"


def bind_to_record(settings: Settings, choice: ModelChoice, record: RecordedEndpoint) -> ModelChoice:
    """Move the choice to the endpoint in the session's record.

    Raises WrongOwner if a flag or variable names another endpoint, or the provider cannot use the recorded one.
    """
    recorded = EndpointLocation(record.url.rstrip("/"), record.organisation, record.project)
    configured = locate_endpoint(choice.provider)
    if configured == recorded:
        return choice
    for origin in _iter_conflicting_sources(settings, choice, record, recorded):
        if origin.is_explicit:
            raise _wrong_owner_error(record, recorded, configured, choice, origin)
    provider = _with_location(choice.provider, recorded)
    if locate_endpoint(provider) != recorded:
        raise _wrong_owner_error(
            record, recorded, configured, choice, settings.get_source("providers", choice.provider.name, "api")
        )
    return choice._replace(provider=provider)


def _iter_conflicting_sources(
    settings: Settings, choice: ModelChoice, record: RecordedEndpoint, recorded_location: EndpointLocation
) -> Iterator[SettingSource]:
    """Yield the sources of the values that differ from the record."""
    configured, name = locate_endpoint(choice.provider), choice.provider.name
    if name != record.model.partition("/")[0]:
        yield choice.source
    if "embedded" in (configured.url, recorded_location.url):
        return
    if configured.url != recorded_location.url:
        yield settings.get_source("providers", name, "base_url")
    if configured.organisation != recorded_location.organisation:
        yield settings.get_source("providers", name, "organisation")
    if configured.project != recorded_location.project:
        yield settings.get_source("providers", name, "project")


def _with_location(provider: Provider, recorded_location: EndpointLocation) -> Provider:
    """Return the provider at the recorded endpoint, as far as its `api` allows it."""
    if provider.api not in STATEFUL_APIS:
        return provider
    if recorded_location.url == "embedded":
        return provider._replace(owner="convo")
    moved = provider._replace(owner="provider", base_url=recorded_location.url)
    return moved._replace(organisation=recorded_location.organisation, project=recorded_location.project)


def _wrong_owner_error(
    record: RecordedEndpoint,
    recorded_location: EndpointLocation,
    configured_location: EndpointLocation,
    choice: ModelChoice,
    source: SettingSource,
) -> WrongOwner:
    command = f"convo convert {quote(record.session)} --to session"
    return WrongOwner(
        f"session {record.session!r} is stored at {recorded_location}, but {source.location} sets {configured_location}"
        f" for {choice.name}",
        hint=f"{'leave it out' if source.is_explicit else 'change it there'}, or {command}",
    )


MODEL_KEY: SettingKey = ("model",)
STORAGE_KEY: SettingKey = ("state_storage",)
KEYS_FILE_KEY: SettingKey = ("serve", "keys_file")
PROFILE_KEY: SettingKey = ("profile",)
PROFILES_TABLE = "profiles"
TRUSTED_SETTING = "trusted"


AGENT_MODEL_SOURCE = "an agent's model"
"""The origin of a model in errors, if an agent names it."""


class SettingFlags(NamedTuple):
    """The options of the command line that are settings; None for one that is not given.

    model_source:  the origin of `model` in errors, if it is not -m
    """

    model: str | None = None
    store: str | None = None
    host: str | None = None
    port: int | None = None
    keys: str | None = None
    record: bool | None = None
    profile: str | None = None
    model_source: str | None = None
    strict_prefix: bool | None = None
    keep_prefix: bool | None = None


class SettingsFile(NamedTuple):
    """A parsed settings file; of an untrusted project file only the allowed settings."""

    source: SettingSource
    document: Mapping[str, object]


class SettingsInputs(NamedTuple):
    """The inputs of `resolve_settings`.

    files:             highest priority first: the project's file, then the user's
    model_lists:       the cached model lists
    folder:            the working folder, the base of relative paths in flags and variables
    project_notice:    the part of the project's file that is ignored; None if all of it is used
    reported_windows:  the cached context windows of model servers
    """

    flags: SettingFlags
    environ: Mapping[str, str]
    files: tuple[SettingsFile, ...]
    paths: AppPaths
    folder: Path
    home: Path
    model_lists: ModelLists = MappingProxyType({})
    project_notice: ProjectNotice | None = None
    reported_windows: ReportedWindows = MappingProxyType({})

    def __repr__(self) -> str:
        return f"SettingsInputs(folder={str(self.folder)!r}, files={[file.source.location for file in self.files]})"


def resolve_settings(sources: SettingsInputs) -> Settings:
    """Merge all layers. Raises InvalidSettings, which names the file, variable or flag, and the key."""
    merged: dict[SettingKey, Setting] = {}
    for setting in _iter_layers(sources):
        merged.setdefault(setting.key, setting)
    _check_trusted_source(merged.get((TRUSTED_SETTING,)))
    storage = _resolve_storage_setting(merged.get(STORAGE_KEY), sources)
    merged |= {
        key: _resolve_path_setting(merged[key], sources)
        for key in merged
        if key == KEYS_FILE_KEY or key[2:] == ("key_file",)
    }
    for setting, fault in iter_parameter_faults(merged):
        raise InvalidSettings(
            f"{setting.source.location}: '{format_setting_key(setting.key)}' {fault}", hint=fault.hint
        ) from fault
    providers = _build_providers(merged)
    model = merged.get(MODEL_KEY) or _choose_default_model(providers, sources.environ)
    merged |= {MODEL_KEY: model, STORAGE_KEY: storage}
    tables: defaultdict[SettingKey, dict[str, Any]] = defaultdict(dict)
    for key, setting in merged.items():
        tables[key[:-1]][key[-1]] = setting.value
    fields = _collect_fields(Settings, (), tables)
    fields["windows"] = MappingProxyType(add_reported_windows(fields["windows"], providers, sources.reported_windows))
    fields |= {
        "providers": MappingProxyType(providers),
        "storage": storage.value,
        "paths": sources.paths,
        "entries": tuple(merged[key] for key in sorted(merged)),
        "configured_providers": frozenset(
            name for name, provider in providers.items() if _is_configured(provider, sources.environ)
        ),
        "model_lists": sources.model_lists,
        "project_notice": sources.project_notice,
    }
    return Settings(**fields)


def _collect_fields(section: Any, key: SettingKey, tables: Mapping[SettingKey, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of the fields of a section, which is the table at `key`; `tables` has the merged values."""
    fields: dict[str, Any] = {}
    for name, schema in SECTION_SCHEMAS[section].items():
        if isinstance(schema, SettingRow):
            fields[name] = tables[key].get(name, schema.default)
        elif isinstance(schema, KeyedTable):
            fields[name] = MappingProxyType(tables[*key, name])
        else:
            inner = type(section._field_defaults[name])
            fields[name] = inner(**_collect_fields(inner, (*key, name), tables))
    return fields


def use_recorded_model(settings: Settings, record: RecordedEndpoint) -> Settings:
    """Use the model of the session to continue, unless a flag or a variable names one."""
    if settings.get_source(*MODEL_KEY).layer < Layer.RECORD:
        return settings
    recorded = Setting(MODEL_KEY, record.model, record.source)
    entries = tuple(recorded if entry.key == MODEL_KEY else entry for entry in settings.entries)
    return settings._replace(model=record.model, entries=entries)


# -- layers, highest priority first -----------------------------------------------------------------


def _iter_layers(sources: SettingsInputs) -> Iterator[Setting]:
    overrides = [*_iter_flag_settings(sources.flags), *_iter_variable_settings(sources.environ)]
    files = [
        Setting(key, value, file.source)
        for file in sources.files
        for key, value in iter_settings(file.document, file.source.location)
    ]
    yield from overrides
    chosen = next((setting for setting in (*overrides, *files) if setting.key == PROFILE_KEY), None)
    yield from _iter_profile_settings(files, chosen, sources.project_notice)
    yield from (setting for setting in files if setting.key[0] != PROFILES_TABLE)
    yield from (Setting(key, value, BUILT_IN_SOURCE) for key, value in DEFAULT_SETTINGS.items())


def _iter_profile_settings(
    files: Sequence[Setting], profile: Setting | None, notice: ProjectNotice | None
) -> Iterator[Setting]:
    """Yield the settings of the chosen profile. Raises InvalidSettings if no file has it, or all of it is ignored."""
    if profile is None:
        return
    name, names = str(profile.value), sorted({setting.key[1] for setting in files if setting.key[0] == PROFILES_TABLE})
    if name not in names:
        if notice and any(setting.key[:2] == (PROFILES_TABLE, name) for setting in notice.ignored):
            message = f"{profile.source.location}: profile {name!r} is in a file that is not trusted"
            raise InvalidSettings(message, hint=notice.hint)
        suggestion = find_closest_word(name, names)
        advice = f"did you mean {suggestion!r}?" if suggestion else f"known profiles: {', '.join(names) or 'none'}"
        raise InvalidSettings(
            f"{profile.source.location}: no profile {name!r}; {advice}", hint=f"add [profiles.{name}] to config.toml"
        )
    for setting in files:
        if setting.key[:2] == (PROFILES_TABLE, name):
            yield Setting(setting.key[2:], setting.value, setting.source.in_profile(name))


def _iter_flag_settings(flags: SettingFlags) -> Iterator[Setting]:
    for flag, key in FLAG_SETTINGS.items():
        value = flags.model if flag == "-m" else getattr(flags, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            source = flags.model_source if flag == "-m" and flags.model_source else flag
            yield _parse_text_setting(key, value, SettingSource(Layer.FLAG, source))


def _iter_variable_settings(environ: Mapping[str, str]) -> Iterator[Setting]:
    for name, key in VARIABLE_SETTINGS.items():
        if value := environ.get(name, "").strip():
            yield _parse_text_setting(key, value, SettingSource(Layer.ENVIRONMENT, name))


def _parse_text_setting(key: SettingKey, value: object, source: SettingSource) -> Setting:
    """Parse the value of a flag or variable. Raises InvalidSettings."""
    try:
        # Ollama's own variable: an address without a scheme, such as 0.0.0.0:11434.
        if source.name == "OLLAMA_HOST":
            value = parse_ollama_host(str(value))
        return Setting(key, parse_storage_option(value) if key == STORAGE_KEY else get_check(key)(value), source)
    except InvalidValue as error:
        hint = f"give {source.name} another value, or omit it" if source.layer is Layer.FLAG else None
        raise InvalidSettings(f"{source.name} {error}", hint=error.hint or hint) from error


# -- values that depend on each other --------------------------------------------------------------


def _check_trusted_source(setting: Setting | None) -> None:
    """Raise InvalidSettings if a project's file sets the trusted folders."""
    if setting is not None and setting.source.layer is Layer.PROJECT:
        raise InvalidSettings(
            f"{setting.source.location}: {TRUSTED_SETTING!r} can only be set in your own settings file",
            hint="convo config path",
        )


def _resolve_storage_setting(setting: Setting | None, sources: SettingsInputs) -> Setting:
    if setting is None:
        return Setting(STORAGE_KEY, Storage("sqlite", path=sources.paths.database), BUILT_IN_SOURCE)

    def resolve(option: object) -> Storage:
        return resolve_storage(
            cast(StorageOption, option),
            sources.environ,
            base_folder=setting.source.folder or sources.folder,
            home=sources.home,
            database=sources.paths.database,
        )

    key = (*STORAGE_KEY, "connection_string")
    return Setting(STORAGE_KEY, run_check(key, setting.value, resolve, setting.source.location), setting.source)


def _resolve_path_setting(setting: Setting, sources: SettingsInputs) -> Setting:
    base = setting.source.folder or sources.folder
    return Setting(setting.key, resolve_setting_path(str(setting.value), base, sources.home), setting.source)


_API_SETTINGS: Mapping[str, tuple[tuple[ProviderApi, ...], str]] = {
    "hosted_tools": (("chat", "anthropic", "local", "scripted"), ", which has these tools"),
    "custom_tools": (("chat",), ""),
    "resend_fields": (("chat",), ""),
    "prefix_mismatch_behavior": (("anthropic",), ": it is a parameter of the Messages API"),
}
"""The settings of a provider that only some APIs use, and why the others do not, as the end of a sentence."""


def _build_providers(settings: Mapping[SettingKey, Setting]) -> dict[str, Provider]:
    fields: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for key, setting in settings.items():
        if key[0] == "providers":
            fields[key[1]][key[2]] = setting.value
    for name in sorted(fields):
        if "api" not in fields[name]:
            place = next(setting for key, setting in settings.items() if key[:2] == ("providers", name)).source.location
            raise InvalidSettings(f"{place}: '{name}' is not a known provider, so 'providers.{name}.api' must be set")
        for field, (apis, reason) in _API_SETTINGS.items():
            configured = settings.get(("providers", name, field))
            if configured is not None and fields[name]["api"] not in apis:
                choices = " or ".join(api for api in apis if api in CONFIGURABLE_APIS)
                raise InvalidSettings(
                    f"{configured.source.location}: 'providers.{name}.{field}' has no effect with the API"
                    f" {fields[name]['api']!r}{reason}",
                    hint=f"remove it, or set 'providers.{name}.api' to {choices}",
                )
    return {name: Provider(name, **fields[name]) for name in sorted(fields)}


def _choose_default_model(providers: Mapping[str, Provider], environ: Mapping[str, str]) -> Setting:
    """Choose the model of the first provider with a key, else the built-in model."""
    for name, model in DEFAULT_MODELS.items():
        provider = providers[name]
        if read_secret(environ, provider.key_env):
            return Setting(MODEL_KEY, model, SettingSource(Layer.DEFAULT, f"{provider.key_env} is set"))
        if has_stored_key(provider):
            return Setting(MODEL_KEY, model, SettingSource(Layer.DEFAULT, f"built in; {name} has a key"))
    return Setting(MODEL_KEY, BUILT_IN_MODEL, SettingSource(Layer.DEFAULT, "built in; no key found"))


def _is_configured(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether a bare model name may mean a model of this provider."""
    if provider.api not in CONFIGURABLE_APIS or provider.base_url is None:
        return False
    return (
        is_keyless(provider)
        or has_provider_key(provider, environ)
        or read_secret(environ, provider.token_env) is not None
    )


_TOML_ERROR_POSITION = r"(?s)(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)"
_NO_FLAGS = SettingFlags()
ACTIVE_PROFILE: ContextVar[str | None] = ContextVar("active_profile", default=None)
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes to read: a link in a cloned project may point to a device without end."""

MAX_UNTRUSTED_BYTES = 64 * 1024
"""Bytes of an untrusted project file that are parsed at most."""

_MAX_KEY_PARTS = 32
"""Names in one dotted key. The time of Python's parser grows with the square of their number."""

_KEY_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = rf"(?<![\w-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{_MAX_KEY_PARTS}}}"

_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR)
_ERRNO_MESSAGES = {
    errno.EISDIR: "is a folder, not a settings file",
    errno.EACCES: "cannot be read (permission denied)",
    errno.EPERM: "cannot be read (permission denied)",
}


@contextmanager
def use_profile(name: str | None) -> Iterator[None]:
    """Select the profile of `--profile` for settings that are read in the block."""
    token = ACTIVE_PROFILE.set(name)
    try:
        yield
    finally:
        ACTIVE_PROFILE.reset(token)


def load_settings(config: Path | None = None, flags: SettingFlags = _NO_FLAGS) -> Settings:
    """Load the settings of this process; `config` is the file of `--config`. Raises InvalidSettings."""
    return resolve_settings(read_settings_inputs(config, flags))


def read_settings_inputs(config: Path | None = None, flags: SettingFlags = _NO_FLAGS) -> SettingsInputs:
    """Read the environment and the files of this process, for `resolve_settings`.

    Sends a notice about a project file that is not fully used.

    Raises InvalidSettings if a file that the user named or trusts cannot be read or is not TOML.
    """
    environ = dict(os.environ)
    folder, home = _working_folder(), _home_folder()
    paths = AppPaths.from_environ(environ)
    user = _load_user_file(config, environ, paths, folder)
    project, notice = _load_project_file(find_project_file(folder, home), user, paths, folder, home)
    if notice is not None:
        send_notice(f"convo: {notice.line}")
    merged_flags = flags._replace(profile=flags.profile or ACTIVE_PROFILE.get())
    files = tuple(file for file in (project, user) if file)
    model_lists, windows = load_model_lists(paths), load_reported_windows(paths)
    return SettingsInputs(merged_flags, environ, files, paths, folder, home, model_lists, notice, windows)


def find_settings_file(config: Path | None = None, *, project: bool = False) -> Path:
    """Return the file to write a setting to, existing or not: the user's, or the project's. Raises InvalidSettings."""
    environ, folder = dict(os.environ), _working_folder()
    if not project:
        return get_user_file_path(config, environ, AppPaths.from_environ(environ), folder)
    return find_project_file(folder, _home_folder()) or folder / PROJECT_FILE


def parse_settings_toml(raw: bytes, location: str) -> Mapping[str, object]:
    """Parse a settings file. Raises InvalidSettings, which names `location` and the line."""
    import tomllib  # most runs read no file

    try:
        text = raw.decode("utf-8-sig")
        if match := re.search(_LONG_KEY, text):
            line = text.count("\n", 0, match.start()) + 1
            raise InvalidSettings(f"{location}, line {line}: has a key of more than {_MAX_KEY_PARTS} names")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidSettings(f"{location}, line {line}: is not UTF-8") from error
    except RecursionError as error:
        raise InvalidSettings(f"{location}: is nested too deeply") from error
    except ValueError as error:
        raise _toml_error(str(error), raw, location) from error


def _toml_error(message: str, raw: bytes, location: str) -> InvalidSettings:
    match = re.fullmatch(_TOML_ERROR_POSITION, message)
    if match is None:
        return InvalidSettings(f"{location}: is not TOML: {message}")
    line = match["line"] or str(max(1, len(raw.splitlines())))
    return InvalidSettings(f"{location}, line {line}: is not TOML: {match['what'][:1].lower()}{match['what'][1:]}")


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise InvalidSettings("the working folder no longer exists", hint="cd to another folder") from error


def _home_folder() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))


# -- the project's file -----------------------------------------------------------------------------


class ProjectFile(NamedTuple):
    """The content of a project file; `path` is the real path of its folder, and its name."""

    path: Path
    content: bytes
    trust: Trust

    @property
    def source(self) -> SettingSource:
        return SettingSource(Layer.PROJECT, self.path.name, self.path.parent)


def find_project_file(folder: Path, home: Path) -> Path | None:
    """Return the nearest project file, which may be a broken link; None without one.

    folder, home:  real paths
    """
    for candidate in list_project_folders(folder, home):
        path = candidate / PROJECT_FILE
        if os.path.lexists(path):
            return path
    return None


def list_project_folders(folder: Path, home: Path) -> Sequence[Path]:
    """List the folders that may contain the project file of `folder`, nearest first."""
    folders = (folder, *folder.parents)
    for number, candidate in enumerate(folders, 1):
        if (candidate == home and home.parent != home) or os.path.lexists(candidate / ".git"):
            return folders[:number]
    return folders[:1]


def read_project_file(path: Path, paths: AppPaths, trusted: Sequence[Path] = ()) -> ProjectFile | ProjectNotice | None:
    """Read the project file at `path`; a notice if it must not be read, None if it does not exist.

    trusted:  real paths of the folders whose files the user trusts

    Raises InvalidSettings if it cannot be read.
    """
    path = Path(os.path.realpath(path.parent), path.name)
    try:
        notice = _check_file_owner(os.lstat(path), path) if os.path.islink(path) else None
        content = notice or _read_project_content(path)
    except OSError as error:
        if error.errno in _ABSENT_ERRNOS:
            return None
        raise _unreadable_error(path, error) from error
    if isinstance(content, ProjectNotice):
        return content
    return ProjectFile(path, content, determine_trust(path, content, read_trusted_digest(path, paths), trusted))


def _read_project_content(path: Path) -> bytes | ProjectNotice:
    """Return the content, or a notice. The checks use the open file. Raises OSError or InvalidSettings."""
    # without O_NONBLOCK opening a pipe blocks
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            return ProjectNotice(path, f"{path} is not a regular file and is not read", hint=f"rm {quote(str(path))}")
        if notice := _check_file_owner(status, path):
            return notice
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise _too_large_error(path)
    return content


def _check_file_owner(status: os.stat_result, path: Path) -> ProjectNotice | None:
    """Return a notice if another user could have written the file. Windows has no such owners and modes.

    A file that its group may write is accepted: with a umask of 002, the default of many systems, every file is
    group-writable. The folder may belong to anyone, since a file in it must be the user's own.
    """
    if not hasattr(os, "geteuid"):
        return None
    quoted_path = quote(str(path))
    if status.st_uid not in (os.geteuid(), 0):
        problem = f"{path} belongs to another user (id {status.st_uid}) and is not read"
        return ProjectNotice(path, problem, hint="replace it with a copy of your own")
    if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
        return ProjectNotice(
            path, f"{path} can be written by every user and is not read", hint=f"chmod o-w {quoted_path}"
        )
    return None


def _load_project_file(
    path: Path | None, user: SettingsFile | None, paths: AppPaths, folder: Path, home: Path
) -> tuple[SettingsFile | None, ProjectNotice | None]:
    """Load the allowed part of the project file, and a notice about the rest.

    Raises InvalidSettings if the file is trusted and cannot be read or is not TOML.
    """
    if path is None or (user and os.path.realpath(user.source.location) == os.path.realpath(path)):
        return None, None  # --config names it, so all of it is loaded already
    trusted = resolve_trusted_folders(user, folder, home)
    try:
        project = read_project_file(path, paths, trusted)
    except InvalidSettings as error:
        if is_in_folders(path, trusted):
            raise
        return None, ProjectNotice(path, f"{error.message}; it is ignored", hint="correct or remove it")
    if not isinstance(project, ProjectFile):
        return None, project
    if project.trust is Trust.TRUSTED:
        return SettingsFile(project.source, parse_settings_toml(project.content, str(project.path))), None
    return _load_untrusted_file(project)


def _load_untrusted_file(project: ProjectFile) -> tuple[SettingsFile | None, ProjectNotice | None]:
    """Load the allowed part of an untrusted file. An invalid file is ignored: it must not stop the user."""
    is_changed = project.trust is Trust.CHANGED
    problem = f"{project.path} {'changed since it was trusted' if is_changed else 'is not trusted'}"
    if len(project.content) > MAX_UNTRUSTED_BYTES:
        return None, ProjectNotice(
            project.path, f"{problem} and larger than {MAX_UNTRUSTED_BYTES // 1024} KB: it is ignored"
        )
    try:
        document = parse_settings_toml(project.content, str(project.path))
    except InvalidSettings as error:
        return None, ProjectNotice(project.path, f"{error.message}; it is ignored", hint="correct or remove it")
    allowed, ignored = filter_untrusted(document, project.source)
    notice = ProjectNotice(project.path, problem, ignored) if ignored else None
    return SettingsFile(project.source, allowed), notice


def load_trusted_folders(config: Path | None) -> tuple[Path, ...]:
    """Return the folders that the user's own file trusts; () if it cannot be read."""
    environ, folder = dict(os.environ), _working_folder()
    try:
        user = _load_user_file(config, environ, AppPaths.from_environ(environ), folder)
    except InvalidSettings:
        return ()
    return resolve_trusted_folders(user, folder, _home_folder())


def resolve_trusted_folders(user: SettingsFile | None, folder: Path, home: Path) -> tuple[Path, ...]:
    """Return the real paths of the folders that the user's own file trusts; () if the value is invalid."""
    if user is None or TRUSTED_SETTING not in user.document:
        return ()
    try:
        names = check_folders(user.document[TRUSTED_SETTING])
    except InvalidValue:
        return ()  # `resolve_settings` reports it
    return tuple(Path(os.path.realpath(resolve_setting_path(name, folder, home))) for name in names)


def read_trusted_digest(path: Path, paths: AppPaths) -> str | None:
    """Return the digest that the user trusted for the project file at `path`; None without a record."""
    record = _read_trust_record(get_trust_record_path(path, paths))
    return record["sha256"] if record.get("path") == str(path) and "sha256" in record else None


def read_trusted_path(record: Path) -> Path | None:
    """Return the project file of a trust record; None if the record is invalid."""
    path = _read_trust_record(record).get("path")
    return Path(path) if path else None


def _read_trust_record(location: Path) -> dict[str, str]:
    """Return the string fields of a trust record; {} without a valid record."""
    import json

    try:
        record = json.loads(location.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: text for name, text in record.items() if isinstance(text, str)} if isinstance(record, dict) else {}


def get_trust_record_path(path: Path, paths: AppPaths) -> Path:
    """Return the trust record of a project file. Each project has its own file, so writers cannot conflict."""
    return paths.trust / f"{sha256_hex(os.fsencode(path))}.json"


# -- the user's file --------------------------------------------------------------------------------


def get_user_file_path(config: Path | None, environ: Mapping[str, str], paths: AppPaths, folder: Path) -> Path:
    """Return the path of the user's file, existing or not."""
    custom_path = os.path.expanduser(config or environ.get("CONVO_CONFIG") or "")
    return folder / custom_path if custom_path else paths.settings_file


def _load_user_file(
    config: Path | None, environ: Mapping[str, str], paths: AppPaths, folder: Path
) -> SettingsFile | None:
    path = get_user_file_path(config, environ, paths, folder)
    file = _load_file(SettingSource(Layer.USER, path.name, path.parent))
    if file is None and (config or environ.get("CONVO_CONFIG")):
        origin = "CONVO_CONFIG" if config is None else "--config"
        raise InvalidSettings(f"{path}: no such settings file", hint=f"set another file with {origin}")
    return file


def _load_file(source: SettingSource) -> SettingsFile | None:
    """Load the file at `source`; None if it does not exist."""
    try:
        with open(source.location, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if error.errno in _ABSENT_ERRNOS:
            return None
        raise _unreadable_error(source.location, error) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _too_large_error(source.location)
    return SettingsFile(source, _parse_file(raw, source))


def _parse_file(raw: bytes, source: SettingSource) -> Mapping[str, object]:
    """Parse the user's file, which may be one of Plano; a notice lists the keys of the latter that are not used."""
    if not source.name.endswith((".yaml", ".yml")):
        return parse_settings_toml(raw, source.location)
    from convo.config.plano import parse_plano_config

    document, unused = parse_plano_config(raw, source.location)
    if unused:
        send_notice(escape_unprintable(f"convo: {source.location}: not used: {', '.join(unused)}"))
    return document


def _unreadable_error(location: str | Path, error: OSError) -> InvalidSettings:
    reason = _ERRNO_MESSAGES.get(error.errno or 0, f"cannot be read ({error.strerror})")
    return InvalidSettings(f"{location}: {reason}")


def _too_large_error(location: str | Path) -> InvalidSettings:
    return InvalidSettings(f"{location}: is larger than {MAX_FILE_BYTES // 1024**2} MB, the limit of a settings file")
