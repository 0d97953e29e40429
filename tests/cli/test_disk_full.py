"""A full disk and unwritable files: the error has two lines, and stored data is kept."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.chat_commands import ECHO, stored_messages
from tests.cli.full_disk import UNSHARE, Disk, run_command, run_with_file_limit, small_disk
from tests.command_runner import CommandResult, Launch
from tests.config.permissions import NOBODY
from tests.request_items import message_lines

pytestmark = pytest.mark.needs("posix")

FULL_MESSAGE = "could not be written: the disk is full, or a size limit is reached"
FREE_HINT = "  try: free some space, then retry; confirmed items are kept"


def error_lines(got: CommandResult) -> list[str]:
    assert (got.exit, got.out) == (1, "")
    lines = got.err.splitlines()
    assert len(lines) == 2, got.err
    return lines


def test_a_full_disk_is_reported_and_confirmed_items_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("CONVO_HOME", str(tmp_path / "disk" / "home"))
        assert disk.launch("chat", *ECHO, "-n", "mine", "one").exit == 0
        disk.fill()

        for command in (("sessions",), ("inspect", "mine"), ("export", "mine"), ("store", "check")):
            got = disk.launch(*command)
            assert (got.exit, command[0] == "store" or "one" in got.out) == (0, True), got

        for argv in (("chat", "--from", "mine", "two"), ("chat", *ECHO, "new")):
            message, hint = error_lines(disk.launch(*argv))
            assert message == f"convo: {tmp_path}/disk/home/data/convo.db {FULL_MESSAGE}"
            assert hint == FREE_HINT

        disk.free()
        assert [session["name"] for session in disk.launch("sessions", "--json").json()] == ["mine"]
        assert session_messages(disk) == ["user: one", "assistant: one"]
        assert disk.launch("chat", "--from", "mine", "three").out == "three\n"
        assert session_messages(disk) == ["user: one", "assistant: one", "user: three", "assistant: three"]


@pytest.mark.needs("mount")
def test_a_nearly_full_disk_is_detected_before_the_model_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("CONVO_HOME", str(tmp_path / "disk" / "home"))
        assert disk.launch("chat", *ECHO, "-n", "mine", "one").exit == 0
        disk.fill(free_bytes=4_000_000)
        got = disk.launch("chat", "--from", "mine", "two", "--json")

        error = got.json()["error"]
        assert (got.exit, error["code"]) == (1, "store_full")
        assert f"the disk of {tmp_path}/disk/home/data/convo.db has " in error["message"]
        assert "a turn may need 8 MB" in error["message"]
        compacted = disk.launch("compact", "mine", "--json")
        assert (compacted.exit, compacted.json()["error"]["hint"]) == (1, error["hint"])
        assert disk.launch("sessions").exit == 0
        disk.free()
        assert disk.launch("chat", "--from", "mine", "three").out == "three\n"


def session_messages(disk: Disk) -> list[str]:
    """The messages of the session on this disk; its last response must be completed."""
    conversation = disk.launch("inspect", "mine", "--json").json()
    assert conversation["links"][-1]["status"] == "completed"
    return message_lines(conversation["items"].values())


def test_on_a_full_disk_a_replay_file_stays_unchanged_and_the_answer_is_kept(tmp_path: Path, home: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = str(tmp_path / "disk" / "talk.json")
        assert disk.launch("chat", *ECHO, "--replay", "--from", path, "-n", "mine", "one").exit == 0
        file = disk.visible_path / "talk.json"
        before, long = file.read_bytes(), "two " * 500
        disk.fill()
        got = disk.launch("chat", "--from", "mine", long)
        if got.out:  # the store is on another disk with free space
            assert (got.exit, got.out) == (1, f"{long}\n")
            assert got.err.splitlines()[-2:] == [f"convo: no space left to write {path}", FREE_HINT]
        else:  # the limit applies to every file
            assert FULL_MESSAGE in error_lines(got)[0]
        assert file.read_bytes() == before
        assert [path.name for path in disk.visible_path.iterdir() if path.name.startswith(".")] == []

        disk.free()
        assert disk.launch("chat", "--from", "mine", "three").exit == 0
        second_turn = [f"user: {long}", f"assistant: {long}"] if got.out else []
        assert stored_messages(home, "mine") == [
            *("user: one", "assistant: one"),
            *second_turn,
            *("user: three", "assistant: three"),
        ]
        assert file.read_text().count('"role"') == len(stored_messages(home, "mine"))


def test_a_file_size_limit_is_reported_like_a_full_disk(launch: Launch, home: Path) -> None:
    launch("chat", *ECHO, "-n", "mine", "one")
    message, hint = error_lines(run_with_file_limit("chat", "--from", "mine", "two"))
    assert (message, hint) == (f"convo: {home}/data/convo.db {FULL_MESSAGE}", FREE_HINT)
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]
    assert launch("chat", "--from", "mine", "three").exit == 0


# -- read-only files and folders -------------------------------------------------------------------

UNPRIVILEGED_RUN = """
import contextlib, os, sys
from convo.cli.app import run_command_line
home = os.environ.pop("CONVO_HOME")
os.environ["CONVO_HOME"] = os.path.join(sys.argv[1], "warm")
with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
    warm = os.path.join(sys.argv[1], "warm.json")
    run_command_line(["chat", "-m", "scripted/echo", "--replay", "--from", warm, "hi"])
    run_command_line(["chat", "-c", "and?"])
    run_command_line(["chat", "--from", "nope", "--json", "hi"])
    run_command_line(["sessions"])
os.environ["CONVO_HOME"] = home
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
sys.exit(run_command_line(sys.argv[2:]))
"""
"""Run the real command without root privileges. Root's Python is readable only by root, so it is loaded first."""


@pytest.fixture
def shared_folder(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the unprivileged user, with a session and a replay file."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        monkeypatch.setenv("CONVO_HOME", str(folder / "home"))
        monkeypatch.chdir(folder)
        launch("chat", *ECHO, "-n", "mine", "one")
        launch("chat", *ECHO, "--replay", "--from", str(folder / "files" / "talk.json"), "-n", "file", "one")
        if os.getuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield folder
        monkeypatch.undo()
        for path in (folder / "files", folder / "home" / "data"):
            path.chmod(0o700)


def run_unprivileged(tmp_path: Path, *argv: str) -> CommandResult:
    return run_command([sys.executable, "-c", UNPRIVILEGED_RUN, str(tmp_path), *argv])


def test_a_read_only_store_can_be_read(shared_folder: Path, tmp_path: Path) -> None:
    data = shared_folder / "home" / "data"
    data.chmod(0o500)
    database = (data / "convo.db").read_bytes()

    sessions = run_unprivileged(tmp_path, "sessions")
    lines = error_lines(run_unprivileged(tmp_path, "chat", "--from", "mine", "two"))
    error = run_unprivileged(tmp_path, "chat", "--from", "mine", "two", "--json").json()["error"]

    assert sessions.exit == 0
    assert "mine" in sessions.out
    assert lines == [
        f"convo: {data}/convo.db is read-only",
        "  try: make its folder writable, or set CONVO_HOME to a writable folder",
    ]
    assert (error["code"], f"convo: {error['message']}") == ("store_read_only", lines[0])
    assert (data / "convo.db").read_bytes() == database


@pytest.mark.parametrize("locked", ["talk.json", "."])
def test_a_read_only_replay_file_is_reported_before_anything_is_sent(
    locked: str, shared_folder: Path, tmp_path: Path
) -> None:
    path = shared_folder / "files" / "talk.json"
    before = path.read_bytes()
    (shared_folder / "files" / locked).chmod(0o500 if locked == "." else 0o400)

    lines = error_lines(run_unprivileged(tmp_path, "chat", "--from", "file", "two"))

    assert lines == [f"convo: {path} cannot be written", "  try: choose another file, or make it writable"]
    assert path.read_bytes() == before
    assert stored_messages(shared_folder / "home", "file") == ["user: one", "assistant: one"]


# -- a replayed conversation needs no store --------------------------------------------------------

READ_ONLY_MOUNT = "mount --bind {home} {home} && mount -o remount,ro,bind {home} && exec "


@pytest.mark.parametrize(
    "kind",
    ["below a file", pytest.param("a read-only folder", marks=pytest.mark.needs("mount"))],
)
def test_a_replayed_conversation_continues_with_a_read_only_home(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write to any folder, so the home has a path that even root cannot write to."""
    home, command = tmp_path / "home", [sys.executable, "-m", "convo"]
    if kind == "below a file":
        (tmp_path / "file").write_text("not a folder")
        home = tmp_path / "file" / "home"
    else:
        home.mkdir()
        command = [*UNSHARE, "sh", "-c", READ_ONLY_MOUNT.format(home=home) + '"$@"', "sh", *command]
    monkeypatch.setenv("CONVO_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    assert run_command([*command, "chat", *ECHO, "hi"]).exit == 1
    first = run_command([*command, "chat", *ECHO, "--replay", "--from", "talk.json", "one"])
    second = run_command([*command, "chat", *ECHO, "--replay", "--from", "talk.json", "two", "--json"])
    third = run_command([*command, "chat", *ECHO, "--from", "./talk.json", "three"])

    assert (first.exit, first.out, second.exit, third.exit) == (0, "one\n", 0, 0), (first, second, third)
    note = f"sqlite:{home}/data/convo.db cannot be written; only the file of the conversation is saved"
    assert [got.err.count(note) for got in (first, second, third)] == [1, 1, 1]
    assert message_lines(json.loads((tmp_path / "talk.json").read_text())) == [
        f"{role}: {text}" for text in ("one", "two", "three") for role in ("user", "assistant")
    ]
    assert not home.exists() or list(home.iterdir()) == []
