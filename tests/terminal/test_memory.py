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


def test_an_idle_chat_with_a_remote_model_takes_less_than_ninety_megabytes(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    """Of modules that are compiled, as in an installation: the first chat compiles them, which takes ten megabytes."""
    caches = {"PYTHONPYCACHEPREFIX": str(tmp_path / "caches"), "PYTHONDONTWRITEBYTECODE": ""}
    environ = {**loopback.environ, **caches, "PYTHONHASHSEED": "0"}  # a new interpreter, not a fork of a warm one
    reply = {"text": "# Hello\n\n```python\nprint('hello')\n```\n\nWhat else?"}
    loopback.replies(reply, reply)
    for name in ("first", "second"):
        with at_terminal("chat", "-n", name, env=environ) as terminal:
            terminal.wait_for_prompt()
            assert "What else?" in terminal.send_line("hello")
            resident = resident_mb(terminal.child.pid)
            assert terminal.end_session() == 0
    assert 20 < resident < MAX_MB
