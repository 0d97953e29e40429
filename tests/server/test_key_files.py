"""Keys files in edge cases, and the check for local callers of a server without keys."""

from pathlib import Path

import pytest

from convo.errors import InvalidSettings, KeyRefused, StoreFault
from convo.server import auth
from convo.server.auth import KeysFile, SingleTenant, create_api_key, strip_port
from tests.server.api_keys import key_hash


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER  {} ", "Bearer\t{}"])
def test_a_key_follows_the_word_bearer(file: Path, header: str) -> None:
    key = create_api_key(file, "alice")
    keys = KeysFile(file)
    if "\t" in header:
        with pytest.raises(KeyRefused, match="Incorrect API key provided"):
            keys.authenticate(header.format(key))
    else:
        assert keys.authenticate(header.format(key)) == "alice"


def test_a_request_without_a_key_and_one_with_another_word_are_told_apart(file: Path) -> None:
    key = create_api_key(file, "alice")
    keys = KeysFile(file)
    for absent in (None, ""):
        with pytest.raises(KeyRefused) as caught:
            keys.authenticate(absent)
        assert caught.value.code == "missing_api_key"
    for wrong in (key, f"Token {key}", f"Bearer {key}x", f"Bearer x{key}", "Bearer "):
        with pytest.raises(KeyRefused) as caught:
            keys.authenticate(wrong)
        assert caught.value.code == "invalid_api_key"


def test_a_key_of_any_characters_can_be_presented(file: Path) -> None:
    file.write_text(f"alice {key_hash('schlüssel')}\n", encoding="utf-8")
    keys = KeysFile(file)
    assert keys.authenticate("Bearer schlüssel") == "alice"
    with pytest.raises(KeyRefused):
        keys.authenticate("Bearer \udcff")


def test_an_admin_key_is_marked_in_its_line(file: Path) -> None:
    file.write_text(
        f"root {key_hash('r')}  admin # all\nalice {key_hash('a')}\n# bob {key_hash('b')} admin\n", encoding="utf-8"
    )
    keys = KeysFile(file)
    assert [keys.is_admin(header) for header in ("Bearer r", "bearer r ", "Bearer a", "Bearer b", None, "")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert SingleTenant().is_admin(None)
    assert auth.read_admin_hashes(file) == {key_hash("r")}
    assert auth.read_admin_hashes(file.with_name("none")) == frozenset()


def test_an_admin_mark_is_read_again_with_the_file(file: Path) -> None:
    file.write_text(f"alice {key_hash('a')} admin\n", encoding="utf-8")
    keys = KeysFile(file)
    assert keys.is_admin("Bearer a")
    file.write_text(f"alicia {key_hash('a')}\n", encoding="utf-8")
    assert (keys.authenticate("Bearer a"), keys.is_admin("Bearer a")) == ("alicia", False)
    file.unlink()
    with pytest.raises(KeyRefused):
        keys.authenticate("Bearer a")
    assert not keys.is_admin("Bearer a")


def test_a_file_that_cannot_be_used_says_what_to_do(file: Path) -> None:
    with pytest.raises(InvalidSettings) as missing:
        KeysFile(file)
    assert str(missing.value) == f"{file}: no such keys file"
    assert missing.value.hint == "convo serve --new-key NAME creates one"
    file.write_text(f"# keys\nalice {key_hash('a')}\nnonsense\n", encoding="utf-8")
    with pytest.raises(InvalidSettings) as invalid:
        KeysFile(file)
    assert str(invalid.value) == f"{file}, line 3: is not a name and the SHA-256 of a key"
    assert invalid.value.hint == "convo serve --new-key NAME adds such a line"
    file.write_text("".join(f"{name} {key_hash('a')}\n" for name in ("carol", "alice", "carol")), encoding="utf-8")
    with pytest.raises(InvalidSettings) as shared:
        KeysFile(file)
    assert str(shared.value) == f"{file}: one key has several names: alice, carol"
    assert shared.value.hint == "use a separate key for each name"
    folder = file.with_name("folder")
    folder.mkdir()
    with pytest.raises(InvalidSettings, match="cannot be read: Is a directory"):
        KeysFile(folder)


def test_a_name_that_is_no_key_name_says_what_one_is(file: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        create_api_key(file, "a b")
    assert str(caught.value) == "'a b' cannot be used as a key name"
    assert caught.value.hint == "use up to 64 letters, digits and . _ @ -, a letter or digit first"
    create_api_key(file, "x" * 64)


def test_a_new_key_is_long_and_its_file_is_private(file: Path) -> None:
    new_file = file.with_name("new") / "keys"
    key = create_api_key(new_file, "alice")
    assert key.startswith("convo_")
    assert len(key) == len("convo_") + 43
    assert new_file.parent.stat().st_mode & 0o777 == 0o700
    new_file.write_bytes(new_file.read_bytes().rstrip(b"\n"))
    create_api_key(new_file, "bob")
    assert [line.split()[0] for line in new_file.read_text("utf-8").splitlines()] == ["alice", "bob"]
    with pytest.raises(StoreFault) as caught:
        create_api_key(file.parent, "alice")
    assert str(caught.value) == f"{file.parent} cannot be written: Is a directory"
    assert caught.value.hint == "name another file with --keys"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8788", "localhost"),
        ("localhost", "localhost"),
        ("[::1]:8788", "[::1]"),
        ("[::1]", "[::1]"),
        ("localhost:", "localhost:"),
        ("localhost:http", "localhost:http"),
    ],
)
def test_a_port_is_stripped_from_a_host(host: str, name: str) -> None:
    assert strip_port(host) == name
