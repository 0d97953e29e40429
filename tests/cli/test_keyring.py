"""Keys in a real keyring: the `keyring` package, a backend from its own settings, and other processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_runner import Launch
from tests.loopback_server import LoopbackServer
from tests.runstate.snapshots import snapshot

STATE = "0.24.0__schema1.21__parallel_mixed_decided.json"
KEY, SIGNING_KEY = "sk-1234-of-the-ring", "a key that is long enough"


@pytest.fixture
def keyring_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Select a keyring backend that needs no desktop, in the settings of `keyring`; returns the file of its keys."""
    settings = tmp_path / "config" / "python_keyring" / "keyringrc.cfg"
    settings.parent.mkdir(parents=True)
    settings.write_text("[backend]\ndefault-keyring=keyrings.alt.file.PlaintextKeyring\n")
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "python_keyring" / "keyring_pass.cfg"


def test_a_key_in_the_keyring_is_shared_by_processes_and_can_be_removed(
    keyring_file: Path, launch: Launch, loopback: LoopbackServer
) -> None:
    loopback.replies({"text": "hello"})
    server = {"OPENAI_BASE_URL": loopback.environ["OPENAI_BASE_URL"]}
    assert launch("config", "key", "set", "openai", stdin=f"{KEY}\n").err == (
        f"warning: the keyring keyrings.alt.file.PlaintextKeyring keeps keys as plain text in {keyring_file}; "
        "convo config key set openai --file keeps it in a file that only you can read\n"
        "stored the key of openai in the keyring\n"
    )
    assert launch("config", "key", "show", "openai").out.splitlines()[1:] == [
        f"openai    the keyring keyrings.alt.file.PlaintextKeyring, as plain text in {keyring_file}"
    ]
    shown = launch("config", "key", "show", "openai", "--json")
    assert json.loads(shown.out) == [
        {
            "provider": "openai",
            "kind": "keyring",
            "location": str(keyring_file),
            "keyring": "keyrings.alt.file.PlaintextKeyring",
            "plain_text": True,
            "needs_key": True,
        }
    ]
    got = launch("chat", "-q", "hi", env=server)
    assert (got.exit, got.out, got.err) == (0, "hello\n", "")
    assert loopback.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert launch("config", "key", "unset", "openai").err == "deleted the stored key of openai\n"
    assert "openai_api_key" not in keyring_file.read_text().lower()


def test_a_state_is_signed_and_verified_with_a_key_of_the_keyring(keyring_file: Path, launch: Launch) -> None:
    command = [sys.executable, "-m", "keyring", "set", "convo", "CONVO_SIGNING_KEY"]
    subprocess.run(command, input=SIGNING_KEY, text=True, env=dict(os.environ), check=True)
    Path("state.json").write_bytes(snapshot(STATE))
    got = launch("resume", "state.json", "--decide-only", "-o", "signed.json", "--reject", "all", "--sign")
    assert (got.exit, SIGNING_KEY in got.err + Path("signed.json").read_text()) == (0, False)
    verify = ("resume", "signed.json", "--decide-only", "-o", "again.json", "--verify")
    assert launch(*verify).exit == 0
    assert launch(*verify, env={"CONVO_SIGNING_KEY": SIGNING_KEY + "!"}).exit == 1


def test_an_unwritable_keyring_file_is_reported_like_a_locked_keyring(keyring_file: Path, launch: Launch) -> None:
    keyring_file.mkdir(parents=True)
    got = launch("config", "key", "set", "openai", stdin=KEY)
    assert (got.exit, KEY in got.err) == (2, False)
    _, error = got.err.split("\n", 1)
    assert error.startswith(
        "convo: the keyring cannot be opened: IsADirectoryError\n  try: unlock the keyring, or pass --file"
    )
