"""The memory of an idle chat."""

from pathlib import Path

import pytest

from tests.loopback_server import LoopbackServer
from tests.terminal.pty_session import at_terminal

pytestmark = [pytest.mark.needs("terminal"), pytest.mark.needs("linux")]

MAX_MB = 90


def resident_mb(pid: int) -> float:
    """Resident memory of a process, including shared pages."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_an_idle_chat_with_a_remote_model_takes_less_than_ninety_megabytes(loopback: LoopbackServer) -> None:
    loopback.replies({"text": "# Hello\n\n```python\nprint('hello')\n```\n\nWhat else?"})
    environ = {**loopback.environ, "PYTHONHASHSEED": "0"}  # a new interpreter, not a fork of a warm one
    with at_terminal("chat", "-n", "mine", env=environ) as terminal:
        terminal.wait_for_prompt()
        assert "What else?" in terminal.send_line("hello")
        assert 20 < resident_mb(terminal.child.pid) < MAX_MB
        assert terminal.end_session() == 0
