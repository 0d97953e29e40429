"""A command at a terminal of its own: `pexpect.spawn` of a process that is begun as `tests.fork_server` says."""

import os
import sys
from typing import Any

from tests.fork_server import can_fork, start_fork


def spawn(*argv: str, env: dict[str, str], **more: Any) -> Any:
    """`convo ARGV` as pexpect has it; `more` are the words of `pexpect.spawn`."""
    import termios  # not on Windows

    import pexpect
    from pexpect.pty_spawn import ptyprocess

    class Spawned(pexpect.spawn):  # type: ignore[misc]  # pexpect is untyped
        def _spawnpty(self, args: list[str], *, dimensions: tuple[int, int] = (24, 80), **others: Any) -> Any:
            own_end, child_end = os.openpty()
            termios.tcsetwinsize(child_end, dimensions)
            pid = start_fork(["convo", *argv], env, os.getcwd(), [child_end] * 3, at_terminal=True)
            os.close(child_end)
            return ptyprocess.PtyProcess(pid, own_end)

    kind = Spawned if can_fork(env) else pexpect.spawn
    child = kind(sys.executable, ["-m", "convo", *argv], env=env, **more)
    child.delaybeforesend = None  # whoever types waits for what is shown
    return child
