"""`convo config`: show and change settings, trust project files, store provider keys.

A change that makes valid settings invalid is refused and the file stays as it was. Where they were
invalid before, only the new value is checked. A key is typed without echo or piped, and never printed.
"""

import fcntl
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.chat.files import PRIVATE_MODE, format_os_error, resolve_links, write_atomic
from convo.cli.output import print_json, print_line, print_notice
from convo.config.credentials import (
    KEYRING_LOCATION,
    delete_from_keyring,
    get_keyring_username,
    has_stored_key,
    write_keyring,
)
from convo.config.editor import parse_setting_key, parse_setting_value, set_toml_value, unset_toml_value
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
from convo.config.schema import iter_settings
from convo.config.sections import Provider
from convo.config.settings import Settings
from convo.config.storage import StorageOption
from convo.config.trust import (
    TRUST_COMMAND,
    ProjectNotice,
    Trust,
    escape_unprintable,
    filter_untrusted,
    is_in_folders,
    is_remote_url,
    sha256_hex,
)
from convo.config.values import Layer, Secret, Setting, SettingKey, SettingSource, find_closest_word, format_setting_key
from convo.errors import InvalidSettings, InvalidUsage, NotFound, StoreFault, Unreadable
from convo.terminal.settings_views import format_setting_value, render_settings, settings_to_json
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
    there = [one for one in settings.entries if one.key[: len(key)] == key]
    ignored = (
        [one for one in settings.project_notice.ignored if one.key[: len(key)] == key]
        if settings.project_notice
        else []
    )
    if not there and not ignored:
        raise NotFound("value for", format_setting_key(key), hint="convo config")
    if as_json:
        print_json(settings_to_json(there, ignored))
    else:
        print_line(render_settings(there, detect_display(sys.stdout, os.environ), ignored))


def write_setting(target: SettingsTarget, name: str, value_text: str) -> None:
    """Write one value. Raises InvalidUsage, InvalidSettings or StoreFault; then the file is unchanged."""
    key = _qualify_with_profile(parse_setting_key(name))
    value = parse_setting_value(value_text, key, "config set")
    obeyed = edit_settings_file(target, lambda text: set_toml_value(text, key, value, str(target.path)))
    print_notice(f"set {format_setting_key(key)} to {format_setting_value(value)} in {target.path}")
    if obeyed:
        _note_stronger_source(target, key)
    else:
        _note_still_untrusted(target)


def remove_setting(target: SettingsTarget, name: str) -> None:
    """Remove one value.

    Raises NotFound for a value that is not in the file; InvalidUsage, InvalidSettings or StoreFault.
    """
    key, place = _qualify_with_profile(parse_setting_key(name)), target.path

    def taken(text: str) -> str:
        left = unset_toml_value(text, key, str(place))
        if left is None:
            raise NotFound(
                f"value in {place} for", format_setting_key(key), hint=f"convo config list {format_setting_key(key)}"
            )
        return left

    obeyed = edit_settings_file(target, taken)
    print_notice(f"removed {format_setting_key(key)} from {place}")
    if not obeyed:
        _note_still_untrusted(target)


def edit_settings_file(target: SettingsTarget, edit: Callable[[str], str]) -> bool:
    """Replace the file's text with the result of `edit`, and return whether all of its settings apply.

    A project's file that is new or was trusted is trusted afterwards. One with other content that
    the user never trusted stays untrusted: its author is not known.

    Raises InvalidSettings, Unreadable or StoreFault.
    """
    place = target.path
    if not target.is_project:
        make_private_folder(place.parent)
    with _folder_lock(place.parent):
        found = _load_project_file(place, target.config_path) if target.is_project else None
        sources = _read_valid_inputs(target)
        before = found.content.decode("utf-8-sig", "surrogateescape") if found else ""
        if not target.is_project:
            before = _read_text(place)
        document = parse_settings_toml(before.encode("utf-8", "surrogateescape"), str(place))
        obeyed = not target.is_project or not document or (found is not None and found.trust is Trust.TRUSTED)
        after = edit(before)
        _check_settings_stay_valid(target, after, sources, is_trusted=obeyed)
        write_atomic(resolve_links(place), after, mode=None if target.is_project else PRIVATE_MODE)
        if target.is_project and obeyed:
            _record_trust(place, after.encode())
    return obeyed


def _note_still_untrusted(target: SettingsTarget) -> None:
    print_notice(f"{target.path} is still not trusted; to trust it: {TRUST_COMMAND}")


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Wait until no other process changes settings in `folder`, so that no change overwrites another."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError as wrong:
        raise Unreadable(f"{folder} cannot be read: {format_os_error(wrong)}") from wrong
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _read_text(path: Path) -> str:
    """Return the text of the file, empty for a missing file. Raises Unreadable."""
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unreadable(f"{path} cannot be read: {format_os_error(wrong)}") from wrong


def _read_valid_inputs(target: SettingsTarget) -> SettingsInputs | None:
    """Return the inputs of the settings before the change; None if they are invalid."""
    try:
        sources = read_settings_inputs(target.config_path)
        resolve_settings(sources)
    except InvalidSettings:
        return None
    return sources


def _check_settings_stay_valid(
    target: SettingsTarget, after: str, inputs: SettingsInputs | None, *, is_trusted: bool
) -> None:
    """Raise InvalidSettings for a change that makes valid settings invalid."""
    place = target.path
    origin = SettingSource(target.layer, place.name, place.parent)
    document = parse_settings_toml(after.encode("utf-8", "surrogateescape"), str(place))
    if inputs is None:
        return
    new = SettingsFile(origin, document if is_trusted else filter_untrusted(document, origin).allowed)
    others = [file for file in inputs.files if file.source.layer is not target.layer]
    resolve_settings(inputs._replace(files=tuple(sorted([*others, new], key=lambda file: file.source.layer))))


# -- trust in project files -------------------------------------------------------------------------


def trust_project_file(config: Path | None, path: Path | None) -> None:
    """Trust a project's file with its current content, and print its settings.

    Raises NotFound for a missing file, and InvalidSettings for a file that another user could have written or that is
    not a valid settings file.
    """
    place = _find_project_file(path)
    found = _load_project_file(place, config)
    if found is None:
        raise NotFound("project file", str(place), hint="create one: convo config set --project KEY VALUE")
    document = parse_settings_toml(found.content, str(place))
    there = [Setting(key, value, found.source) for key, value in iter_settings(document, str(place))]
    if TRUSTED_SETTING in document:
        raise InvalidSettings(
            f"{place}: {TRUSTED_SETTING!r} can only be set in your own settings", hint="convo config path"
        )
    if there:
        print_line(render_settings(there, detect_display(sys.stdout, os.environ)))
    for one in there:
        if elsewhere := _get_remote_server(one):
            print_notice(
                escape_unprintable(f"{format_setting_key(one.key)} sends conversations to another machine: {elsewhere}")
            )
    _record_trust(place, found.content)
    print_notice(
        f"{place} is trusted with its current content, until it changes or is untrusted (convo config untrust)"
    )


def untrust_project_file(config: Path | None, path: Path | None) -> None:
    """Remove the trust in a project's file, whether the file exists or not.

    Raises NotFound for a file that was not trusted, InvalidSettings for one that a setting still trusts, StoreFault.
    """
    place = _find_project_file(path)
    trusted_below = is_in_folders(place, load_trusted_folders(config))
    try:
        get_trust_record_path(place, _get_app_paths()).unlink()
    except FileNotFoundError:
        if not trusted_below:
            raise NotFound("trusted file", str(place), hint=f"{TRUST_COMMAND} --list") from None
    except OSError as wrong:
        raise StoreFault(f"the trust in {place} cannot be removed: {format_os_error(wrong)}") from wrong
    else:
        print_notice(f"{place} is no longer trusted")
    if trusted_below:
        raise InvalidSettings(
            f"{place} is still trusted because of {TRUSTED_SETTING!r} in your settings",
            hint="convo config list trusted",
        )


def print_trusted_files() -> None:
    """Print the project files that are trusted by path and content, with the state of each."""
    places = _get_app_paths()
    empty = True
    for record in sorted(places.trust.glob("*.json")):
        path = read_trusted_path(record)
        if path is None or record != get_trust_record_path(path, places):
            continue
        try:
            found = read_project_file(path, places)
        except InvalidSettings:
            found = None
        state = found.trust.value if isinstance(found, ProjectFile) else "unreadable"
        print_line(f"{escape_unprintable(str(path))}  {state if os.path.lexists(path) else 'missing'}")
        empty = False
    if empty:
        print_notice(f"no file is trusted with {TRUST_COMMAND}")


def _find_project_file(path: Path | None) -> Path:
    """Return the project file that `path` names, as a file or by its folder; for None the nearest one.

    Raises NotFound or InvalidUsage.
    """
    if path is None:
        found = find_settings_file(project=True)
        if not os.path.lexists(found):
            raise NotFound("project file", PROJECT_FILE, hint=f"{TRUST_COMMAND} PATH")
    else:
        found = Path(os.path.abspath(os.path.expanduser(path)))
        found = found / PROJECT_FILE if found.is_dir() and found.name != PROJECT_FILE else found
        if not os.path.lexists(found) and found.name != PROJECT_FILE:
            raise NotFound(
                "file or folder",
                str(path),
                hint=f"{TRUST_COMMAND} PATH, where PATH is a {PROJECT_FILE} file or its folder",
            )
        if found.name != PROJECT_FILE:
            hint = f"convo --config {quote(str(path))} COMMAND"
            raise InvalidUsage(f"a project file must be named {PROJECT_FILE}", hint=hint)
    return Path(os.path.realpath(found.parent), found.name)


def _load_project_file(path: Path, config: Path | None) -> ProjectFile | None:
    """Read the project file; None for a missing file.

    Raises InvalidSettings for a file that must not or cannot be read.
    """
    found = read_project_file(path, _get_app_paths(), load_trusted_folders(config))
    if isinstance(found, ProjectNotice):
        raise InvalidSettings(found.problem, hint=found.hint)
    return found


def _record_trust(place: Path, content: bytes) -> None:
    """Record that the file is trusted with this content. Raises StoreFault."""
    path = Path(os.path.realpath(place.parent), place.name)
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


def _note_stronger_source(target: SettingsTarget, key: SettingKey) -> None:
    """Print a notice if another source overrides the new value."""
    try:
        settings: Settings = load_settings(target.config_path)
    except InvalidSettings:
        return
    own = key[2:] if key[0] == "profiles" else key
    origin = settings.get_source(*own)
    if origin.layer is not Layer.DEFAULT and origin.location != str(target.path):
        print_notice(f"{origin.location} overrides this value")


KEY_FOLDER_NAME = "provider-keys"
"""The folder of key files, in the folder of the settings."""


def save_provider_key(config: Path | None, name: str, *, file: bool) -> None:
    """Ask for a provider's key and store it.

    Raises NotFound, InvalidUsage, InvalidSettings or StoreFault.
    """
    settings = load_settings(config)
    provider = _find_provider(settings, name)
    key = _read_key(name)
    if file:
        place = _key_file_path(settings, provider)
        make_private_folder(place.parent)
        write_atomic(place, key.reveal() + "\n", mode=PRIVATE_MODE)
        _set_provider_setting(config, name, "key_file", str(place))
    else:
        _save_to_keyring(provider, key)
        place = None
        _set_provider_setting(config, name, "keyring", True)
    print_notice(f"stored the key of {name} in {place or KEYRING_LOCATION}")


def delete_provider_key(config: Path | None, name: str) -> None:
    """Delete a provider's stored key, from the keyring and from convo's own key file.

    Raises NotFound if no key is stored, InvalidSettings or StoreFault.
    """
    settings = load_settings(config)
    provider = _find_provider(settings, name)
    if not has_stored_key(provider):
        raise NotFound("stored key for", name, hint=f"unset {provider.key_env}" if provider.key_env else None)
    if provider.keyring:
        delete_from_keyring(get_keyring_username(provider))
    if provider.key_file == _key_file_path(settings, provider):
        _key_file_path(settings, provider).unlink(missing_ok=True)
    for field in ("keyring", "key_file"):
        _unset_provider_setting(config, name, field)
    print_notice(f"deleted the stored key of {name}")


def _find_provider(settings: Settings, name: str) -> Provider:
    """Return the provider. Raises NotFound."""
    if name in settings.providers:
        return settings.providers[name]
    near = find_closest_word(name, settings.providers)
    raise NotFound("provider", name, hint=f"convo config key set {near}" if near else "convo models")


def _key_file_path(settings: Settings, provider: Provider) -> Path:
    return settings.paths.config / KEY_FOLDER_NAME / f"{get_keyring_username(provider)}.key"


def _save_to_keyring(provider: Provider, key: Secret) -> None:
    try:
        write_keyring(get_keyring_username(provider), key)
    except InvalidSettings as wrong:
        wrong.hint = f"{wrong.hint}, or pass --file to store it in a file that only you can read"
        raise


def _read_key(name: str) -> Secret:
    """Read a key from the terminal or from the pipe. Raises InvalidUsage for text that cannot be a key."""
    text = (_prompt_for_key(name) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text:
        raise InvalidUsage("no key was entered", hint=f"convo config key set {name}, then enter the key")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise InvalidUsage(
            "the key contains a space or a character that is not printable ASCII",
            hint="copy the key again from the provider",
        )
    return Secret(text)


def _prompt_for_key(name: str) -> str:
    """Ask for the key. Raises InvalidUsage in a terminal that would show it."""
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"key of {name} (input hidden): ", stream=sys.stderr)
        except GetPassWarning as wrong:
            raise InvalidUsage(
                "this terminal would show the key", hint=f"convo config key set {name} < FILE"
            ) from wrong
        except EOFError:
            return ""


def _set_provider_setting(config: Path | None, name: str, field: str, value: object) -> None:
    target = SettingsTarget(config)
    edit_settings_file(
        target, lambda text: set_toml_value(text, _make_provider_setting_key(name, field), value, str(target.path))
    )


def _unset_provider_setting(config: Path | None, name: str, field: str) -> None:
    target = SettingsTarget(config)

    def left(text: str) -> str:
        without_it = unset_toml_value(text, _make_provider_setting_key(name, field), str(target.path))
        return text if without_it is None else without_it

    edit_settings_file(target, left)


def _make_provider_setting_key(name: str, field: str) -> SettingKey:
    profile = ACTIVE_PROFILE.get()
    return ("profiles", profile, "providers", name, field) if profile else ("providers", name, field)
