"""`convo config`: show and change settings, trust project files, store provider keys.

A change that makes valid settings invalid is refused and the file stays as it was. Where they were
invalid before, only the new value is checked. A key is typed without echo or piped, and never printed.
"""

import fcntl
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.chat.files import PRIVATE_MODE, format_os_error, resolve_links, write_atomic
from convo.cli.output import print_json, print_line, print_notice
from convo.config.credentials import (
    KEYRING_LOCATION,
    KeyringInfo,
    check_keyring,
    delete_from_keyring,
    find_keyring,
    get_keyring_username,
    has_stored_key,
    write_keyring,
)
from convo.config.editor import (
    parse_setting_key,
    parse_setting_value,
    set_toml_value,
    suggest_setting_command,
    unset_toml_value,
)
from convo.config.loader import (
    ACTIVE_PROFILE,
    TRUSTED_SETTING,
    ProjectFile,
    SettingsFile,
    SettingsInputs,
    find_settings_file,
    get_trust_record_path,
    load_settings,
    load_trusted_folders,
    parse_settings_toml,
    read_project_file,
    read_settings_inputs,
    read_trusted_path,
    resolve_settings,
)
from convo.config.paths import PROJECT_FILE, AppPaths, make_private_folder
from convo.config.request_settings import check_new_value, find_unused_model_settings, format_unused_model_setting
from convo.config.schema import filter_untrusted, find_similar_setting, get_schema, iter_settings, run_check
from convo.config.sections import Provider, is_keyless
from convo.config.settings import Settings
from convo.config.storage import StorageOption
from convo.config.trust import (
    TRUST_COMMAND,
    ProjectNotice,
    Trust,
    escape_unprintable,
    is_in_folders,
    is_remote_url,
    sha256_hex,
)
from convo.config.values import (
    Layer,
    Setting,
    SettingKey,
    SettingSource,
    describe_percent_as_tokens,
    find_closest_word,
    format_setting_key,
    suggest_fraction_command,
)
from convo.errors import InvalidSettings, InvalidUsage, NotFound, StoreFault, Unreadable
from convo.secrets import Secret, read_secret
from convo.terminal.settings_views import (
    KeyLocation,
    build_setting_reports,
    format_setting_value,
    render_key_locations,
    render_settings,
)
from convo.terminal.terminal import detect_display


class SettingsTarget(NamedTuple):
    """The file to change: the project's, or the user's own, which is `config_path` if one was named."""

    config_path: Path | None
    is_project: bool = False

    @property
    def path(self) -> Path:
        return find_settings_file(self.config_path, project=self.is_project)

    @property
    def layer(self) -> Layer:
        return Layer.PROJECT if self.is_project else Layer.USER


def print_settings(config: Path | None, key_filter: str | None, *, as_json: bool) -> None:
    """Print the values, or those at and below a key.

    Raises NotFound for a key without a value, InvalidUsage for an invalid key.
    """
    key = parse_setting_key(key_filter) if key_filter else ()
    settings = load_settings(config)
    entries = [setting for setting in settings.entries if setting.key[: len(key)] == key]
    ignored = (
        [setting for setting in settings.project_notice.ignored if setting.key[: len(key)] == key]
        if settings.project_notice
        else []
    )
    if not entries and not ignored:
        raise _make_missing_value_error(key)
    if as_json:
        print_json(build_setting_reports(entries, ignored))
    else:
        print_line(render_settings(entries, detect_display(sys.stdout, os.environ), ignored))


def _make_missing_value_error(key: SettingKey, path: Path | None = None) -> NotFound:
    """Return the error for a setting without a value; it names the most similar setting if there is no such setting.

    path:  the file from which the value was to be removed
    """
    name, similar, hint = format_setting_key(key), find_similar_setting(key), "convo config"
    with suppress(InvalidSettings):
        schema = get_schema(key, "config")
        hint = f"convo config list {quote(name)}" if path else suggest_setting_command(key, schema)
    note = f"; did you mean {format_setting_key(similar)!r}?" if similar else ""
    return NotFound(f"value in {path} for" if path else "value for", name, note=note, hint=hint)


def write_settings(target: SettingsTarget, texts: Mapping[str, str]) -> None:
    """Write values in one change; `texts` has each value as it is typed, by the dotted name of its setting.

    Raises InvalidUsage, InvalidSettings, Unreadable or StoreFault; then the file is unchanged.
    """
    keys = {name: _qualify_with_profile(parse_setting_key(name)) for name in texts}
    values = {keys[name]: parse_setting_value(text, keys[name], "config set") for name, text in texts.items()}
    for key, value in values.items():
        run_check(key, value, partial(check_new_value, key), "config set")

    def set_values(document: str) -> str:
        for key, value in values.items():
            document = set_toml_value(document, key, value, str(target.path))
        return document

    is_applied = edit_settings_file(target, set_values)
    for key, value in values.items():
        print_notice(f"set {format_setting_key(key)} to {format_setting_value(value)} in {target.path}")
        if is_applied:
            _note_ineffective_value(target, key)
        if key[-1] == "compact_at" and isinstance(value, int | float):
            _warn_of_percent_as_tokens(key, value)
    if not is_applied:
        _note_still_untrusted(target)


def _warn_of_percent_as_tokens(key: SettingKey, threshold: float) -> None:
    if warning := describe_percent_as_tokens(threshold):
        command = suggest_fraction_command(threshold, quote(format_setting_key(key)))
        print_notice(f"warning: {warning}; for {threshold:g} %: {command}")


def remove_setting(target: SettingsTarget, name: str) -> None:
    """Remove one value.

    Raises NotFound for a value that is not in the file; InvalidUsage, InvalidSettings or StoreFault.
    """
    key, path = _qualify_with_profile(parse_setting_key(name)), target.path

    def remove_value(text: str) -> str:
        remaining = unset_toml_value(text, key, str(path))
        if remaining is None:
            raise _make_missing_value_error(key, path)
        return remaining

    is_applied = edit_settings_file(target, remove_value)
    print_notice(f"removed {format_setting_key(key)} from {path}")
    if not is_applied:
        _note_still_untrusted(target)


def edit_settings_file(target: SettingsTarget, edit: Callable[[str], str]) -> bool:
    """Replace the file's text with the result of `edit`, and return whether all of its settings apply.

    A project's file that is new or was trusted is trusted afterwards. One with other content that
    the user never trusted stays untrusted: its author is not known.

    Raises InvalidSettings, Unreadable or StoreFault.
    """
    path = target.path
    if not target.is_project:
        make_private_folder(path.parent)
    with _folder_lock(path.parent):
        project_file = _load_project_file(path, target.config_path) if target.is_project else None
        inputs = _read_valid_inputs(target)
        before = project_file.content.decode("utf-8-sig", "surrogateescape") if project_file else ""
        if not target.is_project:
            before = _read_text(path)
        document = parse_settings_toml(before.encode("utf-8", "surrogateescape"), str(path))
        is_applied = (
            not target.is_project or not document or (project_file is not None and project_file.trust is Trust.TRUSTED)
        )
        after = edit(before)
        _check_settings_stay_valid(target, after, inputs, is_trusted=is_applied)
        write_atomic(resolve_links(path), after, mode=None if target.is_project else PRIVATE_MODE)
        if target.is_project and is_applied:
            _record_trust(path, after.encode())
    return is_applied


def _note_still_untrusted(target: SettingsTarget) -> None:
    print_notice(f"{target.path} is still not trusted; to trust it: {TRUST_COMMAND}")


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Wait until no other process changes settings in `folder`, so that no change overwrites another."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise Unreadable(f"{folder} cannot be read: {format_os_error(error)}") from error
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_text(path: Path) -> str:
    """Return the text of the file, empty for a missing file. Raises Unreadable."""
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error


def _read_valid_inputs(target: SettingsTarget) -> SettingsInputs | None:
    """Return the inputs of the settings before the change; None if they are invalid."""
    try:
        inputs = read_settings_inputs(target.config_path)
        resolve_settings(inputs)
    except InvalidSettings:
        return None
    return inputs


def _check_settings_stay_valid(
    target: SettingsTarget, after: str, inputs: SettingsInputs | None, *, is_trusted: bool
) -> None:
    """Raise InvalidSettings for a change that makes valid settings invalid."""
    path = target.path
    source = SettingSource(target.layer, path.name, path.parent)
    document = parse_settings_toml(after.encode("utf-8", "surrogateescape"), str(path))
    if inputs is None:
        return
    new = SettingsFile(source, document if is_trusted else filter_untrusted(document, source).allowed)
    others = [file for file in inputs.files if file.source.layer is not target.layer]
    resolve_settings(inputs._replace(files=tuple(sorted([*others, new], key=lambda file: file.source.layer))))


# -- trust in project files -------------------------------------------------------------------------


def trust_project_file(config: Path | None, path: Path | None) -> None:
    """Trust a project's file with its current content, and print its settings.

    Raises NotFound for a missing file, and InvalidSettings for a file that another user could have written or that is
    not a valid settings file.
    """
    project_path = _find_project_file(path)
    project_file = _load_project_file(project_path, config)
    if project_file is None:
        raise NotFound("project file", str(project_path), hint="create one: convo config set --project KEY VALUE")
    document = parse_settings_toml(project_file.content, str(project_path))
    settings = [Setting(key, value, project_file.source) for key, value in iter_settings(document, str(project_path))]
    if TRUSTED_SETTING in document:
        raise InvalidSettings(
            f"{project_path}: {TRUSTED_SETTING!r} can only be set in your own settings", hint="convo config path"
        )
    if settings:
        print_line(render_settings(settings, detect_display(sys.stdout, os.environ)))
    for setting in settings:
        if server := _get_remote_server(setting):
            print_notice(
                escape_unprintable(
                    f"{format_setting_key(setting.key)} sends conversations to another machine: {server}"
                )
            )
    _record_trust(project_path, project_file.content)
    print_notice(
        f"{project_path} is trusted with its current content, until it changes or is untrusted (convo config untrust)"
    )


def untrust_project_file(config: Path | None, path: Path | None) -> None:
    """Remove the trust in a project's file, whether the file exists or not.

    Raises NotFound for a file that was not trusted, InvalidSettings for one that a setting still trusts, StoreFault.
    """
    project_path = _find_project_file(path)
    is_folder_trusted = is_in_folders(project_path, load_trusted_folders(config))
    try:
        get_trust_record_path(project_path, _get_app_paths()).unlink()
    except FileNotFoundError:
        if not is_folder_trusted:
            raise NotFound("trusted file", str(project_path), hint=f"{TRUST_COMMAND} --list") from None
    except OSError as error:
        raise StoreFault(f"the trust in {project_path} cannot be removed: {format_os_error(error)}") from error
    else:
        print_notice(f"{project_path} is no longer trusted")
    if is_folder_trusted:
        raise InvalidSettings(
            f"{project_path} is still trusted because of {TRUSTED_SETTING!r} in your settings",
            hint="convo config list trusted",
        )


def print_trusted_files() -> None:
    """Print the project files that are trusted by path and content, with the state of each."""
    paths = _get_app_paths()
    is_empty = True
    for record in sorted(paths.trust.glob("*.json")):
        path = read_trusted_path(record)
        if path is None or record != get_trust_record_path(path, paths):
            continue
        try:
            project_file = read_project_file(path, paths)
        except InvalidSettings:
            project_file = None
        state = project_file.trust.value if isinstance(project_file, ProjectFile) else "unreadable"
        print_line(f"{escape_unprintable(str(path))}  {state if os.path.lexists(path) else 'missing'}")
        is_empty = False
    if is_empty:
        print_notice(f"no file is trusted with {TRUST_COMMAND}")


def _find_project_file(path: Path | None) -> Path:
    """Return the project file that `path` names, as a file or by its folder; for None the nearest one.

    Raises NotFound or InvalidUsage.
    """
    if path is None:
        file = find_settings_file(project=True)
        if not os.path.lexists(file):
            raise NotFound("project file", PROJECT_FILE, hint=f"{TRUST_COMMAND} PATH")
    else:
        file = Path(os.path.abspath(os.path.expanduser(path)))
        file = file / PROJECT_FILE if os.path.isdir(file) and file.name != PROJECT_FILE else file
        if not os.path.lexists(file) and file.name != PROJECT_FILE:
            raise NotFound(
                "file or folder",
                str(path),
                hint=f"{TRUST_COMMAND} PATH, where PATH is a {PROJECT_FILE} file or its folder",
            )
        if file.name != PROJECT_FILE:
            hint = f"convo --config {quote(str(path))} COMMAND"
            raise InvalidUsage(f"a project file must be named {PROJECT_FILE}", hint=hint)
    return Path(os.path.realpath(file.parent), file.name)


def _load_project_file(path: Path, config: Path | None) -> ProjectFile | None:
    """Read the project file; None for a missing file.

    Raises InvalidSettings for a file that must not or cannot be read.
    """
    project_file = read_project_file(path, _get_app_paths(), load_trusted_folders(config))
    if isinstance(project_file, ProjectNotice):
        raise InvalidSettings(project_file.problem, hint=project_file.hint)
    return project_file


def _record_trust(file: Path, content: bytes) -> None:
    """Record that the file is trusted with this content. Raises StoreFault."""
    path = Path(os.path.realpath(file.parent), file.name)
    record = get_trust_record_path(path, _get_app_paths())
    make_private_folder(record.parent)
    write_atomic(record, json.dumps({"path": str(path), "sha256": sha256_hex(content)}) + "\n", mode=PRIVATE_MODE)


def _get_app_paths() -> AppPaths:
    return AppPaths.from_environ(os.environ)


def _get_remote_server(setting: Setting) -> str | None:
    """Return the server on another machine that a setting names, without its password."""
    if isinstance(setting.value, StorageOption):
        connection = (
            setting.value.connection_string.reveal()
            if setting.value.type == "postgres" and setting.value.connection_string
            else ""
        )
        return str(setting.value) if connection and is_remote_url(connection) else None
    is_url = setting.key[-1] == "base_url"
    return str(setting.value) if is_url and is_remote_url(str(setting.value)) else None


def _qualify_with_profile(key: SettingKey) -> SettingKey:
    """Return the key inside the profile that `--profile` named, if one was named."""
    name = ACTIVE_PROFILE.get()
    return ("profiles", name, *key) if name and key[0] not in ("profile", "profiles") else key


def _note_ineffective_value(target: SettingsTarget, key: SettingKey) -> None:
    """Print a notice if another source overrides the new value, or if it applies to no request."""
    try:
        settings: Settings = load_settings(target.config_path)
    except InvalidSettings:
        return
    setting_key = key[2:] if key[0] == "profiles" else key
    for unused in find_unused_model_settings(settings.entries, settings.providers):
        if unused.key == setting_key:
            print_notice(format_unused_model_setting(unused, settings.providers))
    source = settings.get_source(*setting_key)
    if source.layer is not Layer.DEFAULT and source.location != str(target.path):
        print_notice(f"{source.location} overrides this value")


KEY_FOLDER_NAME = "provider-keys"
"""The folder of key files, in the folder of the settings."""


def save_provider_key(config: Path | None, name: str, *, file: bool) -> None:
    """Ask for a provider's key and store it.

    Raises NotFound, InvalidUsage, InvalidSettings or StoreFault.
    """
    settings = load_settings(config)
    provider = _find_provider(settings, name, "set {} --file" if file else "set {}")
    if not file:
        with _key_file_hint():  # before the user enters a key that cannot be stored
            check_keyring()
        keyring = find_keyring()
        if keyring and keyring.plain_text_file:
            print_notice(
                f"warning: the keyring {keyring.name} keeps keys as plain text in {keyring.plain_text_file}; "
                f"convo config key set {name} --file keeps it in a file that only you can read"
            )
    key = _read_key(name, f"convo config key set {name}{' --file' if file else ''}")
    if file:
        path = _key_file_path(settings, provider)
        make_private_folder(path.parent)
        write_atomic(path, key.reveal() + "\n", mode=PRIVATE_MODE)
        _set_provider_setting(config, name, "key_file", str(path))
    else:
        with _key_file_hint():
            write_keyring(get_keyring_username(provider), key)
        path = None
        _set_provider_setting(config, name, "keyring", True)
    print_notice(f"stored the key of {name} in {path or KEYRING_LOCATION}")


def print_key_locations(config: Path | None, name: str | None, *, as_json: bool) -> None:
    """Print where the keys of the providers are, or that of one; no key is read.

    Raises NotFound for an unknown provider, InvalidSettings.
    """
    settings = load_settings(config)
    providers = [_find_provider(settings, name, "show {}")] if name else settings.providers.values()
    keyring = find_keyring()
    locations = [_locate_key(provider, keyring) for provider in providers]
    if as_json:
        print_json(locations)
    else:
        print_line(render_key_locations(locations, detect_display(sys.stdout, os.environ)))


def _locate_key(provider: Provider, keyring: KeyringInfo | None) -> KeyLocation:
    """Return the location of the key that requests to `provider` use."""
    if read_secret(os.environ, provider.key_env):
        return KeyLocation(provider.name, "variable", provider.key_env)
    if provider.key_file:
        return KeyLocation(provider.name, "file", str(provider.key_file))
    if provider.keyring:
        file, name = (keyring.plain_text_file, keyring.name) if keyring else (None, None)
        return KeyLocation(provider.name, "keyring", file, name, plain_text=file is not None)
    return KeyLocation(provider.name, needs_key=not is_keyless(provider))


def delete_provider_key(config: Path | None, name: str) -> None:
    """Delete a provider's stored key, from the keyring and from convo's own key file.

    Raises NotFound if no key is stored, InvalidSettings or StoreFault.
    """
    settings = load_settings(config)
    provider = _find_provider(settings, name, "unset {}")
    if not has_stored_key(provider):
        is_in_variable = read_secret(os.environ, provider.key_env) is not None
        hint = f"unset {provider.key_env}" if is_in_variable else "convo config key show"
        raise NotFound("stored key for", name, hint=hint)
    if provider.keyring:
        delete_from_keyring(get_keyring_username(provider))
    if provider.key_file == _key_file_path(settings, provider):
        _key_file_path(settings, provider).unlink(missing_ok=True)
    for field in ("keyring", "key_file"):
        _unset_provider_setting(config, name, field)
    print_notice(f"deleted the stored key of {name}")


def _find_provider(settings: Settings, name: str, command: str) -> Provider:
    """Return the provider. Raises NotFound, with `command` for the closest name, such as "set {} --file"."""
    if name in settings.providers:
        return settings.providers[name]
    closest = find_closest_word(name, settings.providers)
    raise NotFound("provider", name, hint=f"convo config key {command.format(closest)}" if closest else "convo models")


def _key_file_path(settings: Settings, provider: Provider) -> Path:
    return settings.paths.config / KEY_FOLDER_NAME / f"{get_keyring_username(provider)}.key"


@contextmanager
def _key_file_hint() -> Iterator[None]:
    """Add to the hint of an error of the keyring that a file can store the key."""
    try:
        yield
    except InvalidSettings as error:
        error.add_hint("pass --file to store it in a file that only you can read")
        raise


def _read_key(name: str, command: str) -> Secret:
    """Read a key from the terminal or from the pipe. Raises InvalidUsage for text that cannot be a key.

    command:  the command that stores the key, for hints
    """
    is_terminal = sys.stdin.isatty()
    text = (_prompt_for_key(name, command) if is_terminal else sys.stdin.readline()).strip()
    if not text:
        hint = f"{command}, then enter the key" if is_terminal else f"{command} < FILE, with the key in its first line"
        raise InvalidUsage("no key was entered", hint=hint)
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidUsage(
            "the key contains a space or a character that is not printable ASCII",
            hint="copy the key again from the provider",
        )
    return Secret(text)


def _prompt_for_key(name: str, command: str) -> str:
    """Ask for the key. Raises InvalidUsage in a terminal that would show it."""
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        # getpass only warns where it cannot hide the key, and reads it all the same.
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"key of {name} (input hidden): ", stream=sys.stderr)
        except GetPassWarning as error:
            raise InvalidUsage("this terminal would show the key", hint=f"{command} < FILE") from error
        except EOFError:
            return ""


def _set_provider_setting(config: Path | None, name: str, field: str, value: object) -> None:
    target = SettingsTarget(config)
    edit_settings_file(
        target, lambda text: set_toml_value(text, _make_provider_setting_key(name, field), value, str(target.path))
    )


def _unset_provider_setting(config: Path | None, name: str, field: str) -> None:
    target = SettingsTarget(config)

    def remove_value(text: str) -> str:
        remaining = unset_toml_value(text, _make_provider_setting_key(name, field), str(target.path))
        return text if remaining is None else remaining

    edit_settings_file(target, remove_value)


def _make_provider_setting_key(name: str, field: str) -> SettingKey:
    profile = ACTIVE_PROFILE.get()
    return ("profiles", profile, "providers", name, field) if profile else ("providers", name, field)
