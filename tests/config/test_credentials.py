"""Sources of a provider's key, and the errors for a key that cannot be read."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from convo.config.credentials import (
    delete_from_keyring,
    find_provider_key,
    has_keyring,
    load_provider_key,
    read_keyring,
    write_keyring,
)
from convo.config.settings import BUILT_IN_MODEL
from convo.errors import InvalidSettings
from convo.installation import make_install_command
from convo.secrets import Secret
from tests.config.keyrings import MemoryKeyring, memory_keyring, no_keyring
from tests.config.settings_inputs import USER, make_settings


@pytest.fixture
def keyring() -> Iterator[MemoryKeyring]:
    with memory_keyring() as one:
        yield one


def test_a_variable_overrides_a_file_and_a_file_the_keyring(tmp_path: Path, keyring: MemoryKeyring) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("  from-file\n")
    keyring.passwords["convo", "OPENAI_API_KEY"] = "from-keyring"
    one = f'[providers.openai]\nkey_file = "{key_file}"\nkeyring = true'
    openai = make_settings(user=one).providers["openai"]
    assert find_provider_key(openai, {"OPENAI_API_KEY": "from-variable"}) == (Secret("from-variable"), "OPENAI_API_KEY")
    assert find_provider_key(openai, {}) == (Secret("from-file"), str(key_file))
    assert keyring.reads == 0
    assert find_provider_key(openai._replace(key_file=None), {}) == (Secret("from-keyring"), "the keyring")


def test_a_keyring_is_read_only_where_the_settings_require_it(keyring: MemoryKeyring) -> None:
    keyring.passwords["convo", "OPENAI_API_KEY"] = "sk-1"
    assert load_provider_key(make_settings().providers["openai"], {}) is None
    assert keyring.reads == 0


def test_a_provider_without_a_variable_has_its_name_in_a_keyring(keyring: MemoryKeyring) -> None:
    settings = make_settings(user='[providers.mine]\napi = "chat"\nbase_url = "http://x"\nkeyring = true').providers[
        "mine"
    ]
    assert load_provider_key(settings, {}) is None
    keyring.passwords["convo", "mine"] = "sk-1"
    assert load_provider_key(settings, {}) == Secret("sk-1")


def test_a_key_round_trips_through_a_keyring(keyring: MemoryKeyring) -> None:
    write_keyring("NAME", Secret("sk-1"))
    assert keyring.passwords == {("convo", "NAME"): "sk-1"}
    assert (delete_from_keyring("NAME"), delete_from_keyring("NAME")) == (True, False)
    assert keyring.passwords == {}


def test_a_locked_keyring_is_an_error_without_its_message(keyring: MemoryKeyring) -> None:
    keyring.locked = True
    openai = make_settings(user="[providers.openai]\nkeyring = true").providers["openai"]
    with pytest.raises(InvalidSettings) as error:
        load_provider_key(openai, {})
    assert (error.value.message, error.value.hint) == (
        "the keyring cannot be opened: KeyringLocked",
        "unlock the keyring",
    )


def test_a_keyring_that_cannot_be_used_is_an_error_for_every_use() -> None:
    uses = (
        lambda: read_keyring("NAME"),
        lambda: write_keyring("NAME", Secret("sk-1")),
        lambda: delete_from_keyring("NAME"),
    )
    with no_keyring():
        assert not has_keyring()
        for use in uses:
            with pytest.raises(InvalidSettings) as error:
                use()
            assert (error.value.message, error.value.hint) == (
                "this machine has no keyring",
                "set the key in an environment variable",
            )
    with memory_keyring():
        assert has_keyring()


def test_a_key_may_be_missing_in_a_keyring(keyring: MemoryKeyring) -> None:
    assert read_keyring("NAME") is None
    keyring.passwords["convo", "NAME"] = ""
    assert read_keyring("NAME") is None


def test_a_folder_and_a_pipe_are_no_key_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in ((".", f"{tmp_path}: is a directory"), ("pipe", f"{tmp_path / 'pipe'} is not a file")):
        openai = make_settings(user=f'[providers.openai]\nkey_file = "{tmp_path / name}"').providers["openai"]
        with pytest.raises(InvalidSettings) as error:
            load_provider_key(openai, {})
        assert error.value.message == f"the key of openai cannot be read: {reason}"
        assert error.value.hint == "convo config key set openai --file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the key of openai cannot be read: {place}: no such file or directory"),
        (b" \n", "the key of openai is missing: {place} is empty"),
        (b"\xff", "the key of openai cannot be read: {place} is not text"),
    ],
    ids=["absent", "empty", "no-text"],
)
def test_a_file_without_a_key_is_an_error_with_its_name(content: bytes | None, message: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    if content is not None:
        key_file.write_bytes(content)
    openai = make_settings(user=f'[providers.openai]\nkey_file = "{key_file}"').providers["openai"]
    with pytest.raises(InvalidSettings) as error:
        load_provider_key(openai, {})
    assert error.value.message == message.format(place=key_file)
    assert error.value.hint == "convo config key set openai --file"


def test_the_path_of_a_key_is_relative_to_its_settings_file() -> None:
    openai = make_settings(user='[providers.openai]\nkey_file = "keys/openai"').providers["openai"]
    assert openai.key_file == USER / "keys" / "openai"


@pytest.mark.parametrize("where", ['key_file = "k"', "keyring = true"])
def test_a_stored_key_selects_openai(where: str) -> None:
    assert make_settings(user=f"[providers.openai]\n{where}").model == "openai/gpt-6.1-terra"
    assert make_settings(user="[providers.openai]\nkeyring = false").model == BUILT_IN_MODEL


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("keyring", "keyring.errors", "keyring.backends.fail"):
        monkeypatch.setitem(sys.modules, name, None)
    assert not has_keyring()
    with pytest.raises(
        InvalidSettings, match=r"^the keyring needs the extra \[keyring\], which is not installed$"
    ) as caught:
        read_keyring("NAME")
    assert caught.value.hint == make_install_command("keyring")
