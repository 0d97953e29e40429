"""Puts a provider's key away, and takes it back.

The key is typed without being shown, or comes through a pipe; it is never an argument, which
everybody on the machine could read, and never printed. The settings are told where it is, not what.
"""

import sys
import warnings
from pathlib import Path

from convo.cli.configuring import Target, change
from convo.cli.saying import note
from convo.config import Provider, Secret, Settings, load, private
from convo.config.checks import nearest
from convo.config.editing import with_value, without
from convo.config.files import PROFILE
from convo.config.keys import KEYRING, account, into_keyring, out_of_keyring, put_away
from convo.config.origin import Key
from convo.engine.whole_file import PRIVATE, put
from convo.errors import BadSettings, NotFound, Usage

FOLDER = "provider-keys"
"""The folder beside the settings in which keys lie that were put into files."""


def put_key(config: Path | None, name: str, *, file: bool) -> None:
    """Ask for a key and put it away. raises: NotFound, Usage, BadSettings, StoreFault"""
    settings = load(config)
    provider = _provider(settings, name)
    key = _typed(name)
    if file:
        place = _place(settings, provider)
        private(place.parent)
        put(place, key.reveal() + "\n", mode=PRIVATE)
        _say(config, name, "key_file", str(place))
    else:
        _into_keyring(provider, key)
        place = None
        _say(config, name, "keyring", True)
    note(f"the key of {name} is in {place or KEYRING}")


def forget_key(config: Path | None, name: str) -> None:
    """Take a key back from wherever it was put. raises: NotFound  none was; BadSettings, StoreFault"""
    settings = load(config)
    provider = _provider(settings, name)
    if not put_away(provider):
        raise NotFound(
            "key that was put away for", name, hint=f"unset {provider.key_env}" if provider.key_env else None
        )
    if provider.keyring:
        out_of_keyring(account(provider))
    if provider.key_file == _place(settings, provider):
        _place(settings, provider).unlink(missing_ok=True)
    for field in ("keyring", "key_file"):
        _unsay(config, name, field)
    note(f"the key of {name} is no longer kept")


def _provider(settings: Settings, name: str) -> Provider:
    """raises: NotFound"""
    if name in settings.providers:
        return settings.providers[name]
    near = nearest(name, settings.providers)
    raise NotFound("provider", name, hint=f"convo config key set {near}" if near else "convo models lists them")


def _place(settings: Settings, provider: Provider) -> Path:
    return settings.places.config / FOLDER / f"{account(provider)}.key"


def _into_keyring(provider: Provider, key: Secret) -> None:
    try:
        into_keyring(account(provider), key)
    except BadSettings as wrong:
        wrong.hint = f"{wrong.hint}, or --file puts it into a file that only you can read"
        raise


def _typed(name: str) -> Secret:
    """The key that somebody types or pipes in. raises: Usage  it is none"""
    text = (_asked(name) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text:
        raise Usage("there is no key to put away", hint=f"convo config key set {name} asks for it")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise Usage("it holds characters that no key has", hint="copy it again, as the provider shows it")
    return Secret(text)


def _asked(name: str) -> str:
    """raises: Usage  this terminal would show what is typed"""
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"key of {name} (not shown): ", stream=sys.stderr)
        except GetPassWarning as wrong:
            raise Usage("this terminal would show the key", hint=f"convo config key set {name} < FILE") from wrong
        except EOFError:
            return ""


def _say(config: Path | None, name: str, field: str, value: object) -> None:
    target = Target(config)
    change(target, lambda text: with_value(text, _key(name, field), value, str(target.place)))


def _unsay(config: Path | None, name: str, field: str) -> None:
    target = Target(config)

    def left(text: str) -> str:
        without_it = without(text, _key(name, field), str(target.place))
        return text if without_it is None else without_it

    change(target, left)


def _key(name: str, field: str) -> Key:
    profile = PROFILE.get()
    return ("profiles", profile, "providers", name, field) if profile else ("providers", name, field)
