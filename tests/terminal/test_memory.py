"""The memory of an idle chat."""

from pathlib import Path

import pytest

from tests.loopback_server import LoopbackServer
from tests.terminal.pty_session import at_terminal

pytestmark = [pytest.mark.needs("terminal"), pytest.mark.needs("linux")]

MOST_MB = 90


def resident_mb(pid: int) -> float:
    """Resident memory of a process, including shared pages."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_an_idle_chat_with_a_remote_model_takes_less_than_ninety_megabytes(loopback: LoopbackServer) -> None:
    loopback.replies({"text": "# Hello\n\n```python\nprint('hello')\n```\n\nWhat else?"})
    cold = {**loopback.environ, "PYTHONHASHSEED": "0"}  # a new interpreter, not a fork of a warm one
    with at_terminal("chat", "-n", "mine", env=cold) as person:
        person.is_asked()
        assert "What else?" in person.says("hello")
        assert 20 < resident_mb(person.child.pid) < MOST_MB
        assert person.leaves() == 0
