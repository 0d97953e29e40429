"""A chat over a real ssh connection, and in a real tmux."""

import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest

from tests.cli.chat_commands import stored_messages
from tests.clock import HELD_S
from tests.command_runner import ROOT
from tests.loopback_server import LoopbackServer
from tests.terminal.pty_process import end_process
from tests.terminal.pty_session import TIMEOUT_S, slow_model_flags
from tests.terminal.screen import ROWS, TerminalScreen

COLUMNS = 40

SERVER = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/mine.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""


@contextmanager
def open_command_screen(command: list[str], columns: int = COLUMNS) -> Iterator[TerminalScreen]:
    """The screen of `command` in a terminal of its own."""
    import pexpect

    environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh"}
    environ.pop("COLUMNS", None)
    more: Any = {"encoding": "utf-8", "timeout": TIMEOUT_S, "env": environ}
    child = pexpect.spawn(command[0], command[1:], dimensions=(ROWS, columns), **more)
    child.delaybeforesend = None
    try:
        yield TerminalScreen(child, columns)
    finally:
        end_process(child)


def chat_command(home: Path, *argv: str) -> str:
    """The command line of a chat, for a shell with another environment."""
    variables = {"CONVO_HOME": str(home), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    arguments = [sys.executable, "-m", "convo", "chat", *argv]
    env = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *arguments])
    return f"cd {shlex.quote(os.getcwd())}; echo $$ >pid; exec {env}"


@pytest.fixture
def ssh(tmp_path: Path) -> list[str]:
    """The command that logs in on this machine, through an sshd without a port that accepts one key."""
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "server").write_text(SERVER.format(folder=folder))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # the service of Debian creates it at its start
    server = shlex.join([shutil.which("sshd") or "/usr/sbin/sshd", "-i", "-f", str(folder / "server")])
    options = {
        "ProxyCommand": server,
        "IdentityFile": str(folder / "mine"),
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
        "LogLevel": "ERROR",
    }
    return [
        "ssh",
        "-tt",
        "-F",
        "none",
        *(f"-o{name}={value}" for name, value in options.items()),
        f"{getpass.getuser()}@here",
    ]


@pytest.mark.needs("terminal", "ssh")
def test_over_ssh_editing_stopping_and_copying_work(ssh: list[str], home: Path) -> None:
    model = slow_model_flags({"text": "日本語 and e\u0301"})
    with open_command_screen([*ssh, chat_command(home, *model, "-n", "mine")]) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("\x1b[200~one\r\n/undo\x1b[201~")
        screen.wait_for_text("> one")
        screen.wait_for_text("  /undo")
        screen.type_keys("\r")
        screen.wait_for_text("one two")
        screen.type_keys("\x1b")
        screen.wait_for_prompt("stopped; the output so far is saved")
        screen.clear()
        screen.child.setwinsize(ROWS, 80)
        screen.screen.resize(ROWS, 80)
        screen.type_keys("/copy\r")
        screen.wait_for_prompt("(the terminal)")
        assert "\x1b]52;c;b25lIHR3b" in screen.raw  # the clipboard of the terminal on the client side
        screen.type_keys("and now?\r")
        screen.wait_for_prompt(" output · ")
        assert "\n● 日本語 and \u00e9\n" in screen.text()
        assert re.search(r"output · .* s · resp_0{12} · ", screen.text())  # one line in the wide terminal
        screen.type_keys("/exit\r")
        assert screen.wait_for_exit() == 0
    assert stored_messages(home, "mine")[0] == "user: one\n/undo"


@pytest.mark.needs("terminal", "ssh")
def test_a_broken_connection_keeps_the_partial_answer(ssh: list[str], home: Path) -> None:
    with open_command_screen([*ssh, chat_command(home, *slow_model_flags(), "-n", "mine")]) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        screen.wait_for_text("one two")
        pidfd = os.pidfd_open(int(Path("pid").read_text()))
    assert select([pidfd], [], [], TIMEOUT_S)[0]
    with open_command_screen([*ssh, chat_command(home, "--from", "mine")]) as screen:
        screen.wait_for_prompt("> count")
    assert stored_messages(home, "mine")[1].startswith("assistant: one two")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """The command of a tmux server that only this test uses."""
    (tmp_path / "tmux.conf").write_text(TMUX)
    command = ["tmux", "-S", str(tmp_path / "socket"), "-f", str(tmp_path / "tmux.conf")]
    yield command
    subprocess.run([*command, "kill-server"], stderr=subprocess.DEVNULL, check=False)


TMUX = "set -g status off\nset -s set-clipboard on\n"


@pytest.mark.needs("terminal", "tmux")
def test_in_tmux_editing_stopping_copying_and_reattaching_work(tmux: list[str], home: Path) -> None:
    model = slow_model_flags({"text": "日本語 and e\u0301"}, {"text": "[x](https://x.y)"})
    with open_command_screen([*tmux, "new-session", chat_command(home, *model, "-n", "mine")]) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("\x1b[200~one\r\n/undo\x1b[201~")
        screen.wait_for_text("  /undo")
        screen.type_keys("\r")
        screen.wait_for_text("one two")
        screen.type_keys("\x1b")
        screen.wait_for_prompt("stopped; the output so far is saved")
        screen.type_keys("and now?\r")
        screen.wait_for_prompt("日本語 and")
        screen.type_keys("/copy\r")
        screen.wait_for_prompt("(the terminal, tmux)")
        assert subprocess.check_output([*tmux, "show-buffer"], encoding="utf-8") == "日本語 and e\u0301"
        screen.type_keys("\x02d")
        assert screen.wait_for_exit() == 0
    with open_command_screen([*tmux, "attach"], columns=80) as screen:
        screen.wait_for_prompt("日本語 and")
        screen.type_keys("a link\r")
        screen.wait_for_prompt("(https://x.y)")
        screen.type_keys("/exit\r")
        assert screen.wait_for_exit() == 0
    assert stored_messages(home, "mine")[0] == "user: one\n/undo"


@pytest.mark.needs("terminal", "tmux")
def test_in_tmux_the_line_of_queued_messages_leaves_the_answer_as_it_is(
    tmux: list[str], home: Path, remote_model: LoopbackServer
) -> None:
    text = "".join(f"line {number} of them\n\n" for number in range(40))
    remote_model.replies({"text": text}, {"text": "two!"}, chunk=8, delay_s=HELD_S)
    remote_model.release_deltas(2)
    with open_command_screen([*tmux, "new-session", chat_command(home, "-n", "mine")]) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        screen.wait_for_text("line 0")
        screen.type_keys("next\r")
        screen.wait_until(lambda: pane_text(tmux).endswith("queued: next · Up to edit"))
        remote_model.release_deltas(68)
        screen.wait_until(
            lambda: re.search("line 30 of them(.|\n)*queued: next · Up to edit$", pane_text(tmux)) is not None
        )
        numbers = [int(line.split()[1]) for line in pane_text(tmux).splitlines() if line.endswith("of them")]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert len(numbers) > 10
        remote_model.release_deltas()
        screen.wait_until(lambda: "two!" in pane_text(tmux))
        assert "queued" not in pane_text(tmux)


def pane_text(tmux: list[str]) -> str:
    """The text of the pane; tmux scrolls it with sequences that the emulator of the tests does not know."""
    return subprocess.check_output([*tmux, "capture-pane", "-p"], encoding="utf-8").rstrip()
