"""A command in a terminal of its own: `pexpect.spawn` with a process of `tests.fork_server`."""

import os
import signal
import sys
from typing import Any

from tests.fork_server import can_fork, start_fork


def spawn(*argv: str, env: dict[str, str], **more: Any) -> Any:
    """Start `convo ARGV` with pexpect; `more` are the arguments of `pexpect.spawn`.

    `mode_at_start` of the result is the mode of the terminal before the process could change it.
    """
    import termios  # not on Windows

    import pexpect
    from pexpect.pty_spawn import ptyprocess

    class ForkedChild(pexpect.spawn):  # type: ignore[misc]  # pexpect is untyped
        def _spawnpty(self, args: list[str], *, dimensions: tuple[int, int] = (24, 80), **others: Any) -> Any:
            own_end, child_end = os.openpty()
            termios.tcsetwinsize(child_end, dimensions)
            self.mode_at_start = termios.tcgetattr(child_end)
            pid = start_fork(["convo", *argv], env, os.getcwd(), [child_end] * 3, at_terminal=True)
            os.close(child_end)
            return ptyprocess.PtyProcess(pid, own_end)

    kind = ForkedChild if can_fork(env) else pexpect.spawn
    child = kind(sys.executable, ["-m", "convo", *argv], env=env, **more)
    if not hasattr(child, "mode_at_start"):  # a new Python has not yet run any code of convo
        child.mode_at_start = termios.tcgetattr(child.child_fd)
    child.delaybeforesend = None  # the tests wait for shown text instead
    return child


def wait_for_end(child: Any) -> int:
    """Wait until the process ends after its last output; returns its exit code, or minus the signal that ended it."""
    child.wait()
    end_process(child)
    return int(child.exitstatus if child.exitstatus is not None else -child.signalstatus)


def end_process(child: Any) -> None:
    """Kill the process if it runs, and close its terminal.

    `pexpect.spawn.close` sleeps 0.1 s, or 0.5 s before it kills a process, and fails if a killed process needs longer.
    """
    if child.closed:
        return
    if child.isalive():
        child.kill(signal.SIGKILL)
        child.wait()
    child.ptyproc.delayafterclose = 0
    child.close()
