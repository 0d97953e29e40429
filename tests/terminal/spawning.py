"""A command at a terminal of its own: `pexpect.spawn` of a process that is begun as `tests.warm` says."""

import os
import sys
from typing import Any

from tests.warm import begin, warm_in


def spawn(*argv: str, env: dict[str, str], **more: Any) -> Any:
    """`convo ARGV` as pexpect has it; `more` are the words of `pexpect.spawn`."""
    import termios  # not on Windows

    import pexpect
    from pexpect.pty_spawn import ptyprocess

    class Spawned(pexpect.spawn):  # type: ignore[misc]  # pexpect is untyped
        def _spawnpty(self, args: list[str], *, dimensions: tuple[int, int] = (24, 80), **others: Any) -> Any:
            ours, theirs = os.openpty()
            termios.tcsetwinsize(theirs, dimensions)
            pid = begin(["convo", *argv], env, os.getcwd(), [theirs] * 3, at_terminal=True)
            os.close(theirs)
            return ptyprocess.PtyProcess(pid, ours)

    kind = Spawned if warm_in(env) else pexpect.spawn
    child = kind(sys.executable, ["-m", "convo", *argv], env=env, **more)
    child.delaybeforesend = None  # whoever types waits for what is shown
    return child
