"""Commands as processes of their own, without the second in which each imports the same.

What is asked for first starts a process that imports all of convo and waits. A command is a fork of it
that takes over the words, the environment, the folder and the streams it is given, and then runs as
`python -m convo` does, to the interpreter's end. It is the child of whoever asked: it has a number, gets
signals and leaves an exit code like any other. How a cold one starts is shown where that is the matter,
by `tests/cli/test_app.py` first of all; elsewhere than on Linux all of them are cold.

    Begun(["chat", "hi"], stdout=PIPE)      # a `subprocess.Popen` of `convo chat hi`
    ran(["chat", "hi"])                     # the same to its end, as `subprocess.run` has it

    worker of pytest ──asks──▶ `python -m tests.warm` ──forks──▶ one between, which ends ──▶ the command
"""

import atexit
import ctypes
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).parent.parent
LONGEST_LIFE_S = 120
PR_SET_CHILD_SUBREAPER = 36
LONGEST = 1 << 20
"""Bytes of an order: its environment is most of it."""

_one_at_a_time = Lock()


# -- who asks --------------------------------------------------------------------------------------


class Begun(subprocess.Popen[str]):
    """`convo ARGV` as a process, or another `module`. `env` and `cwd` are this one's unless they are given."""

    def __init__(self, argv: Sequence[str], *, module: str = "convo", **more: Any) -> None:
        self._warm = warm_in(more.get("env") or os.environ)
        super().__init__([sys.executable, "-m", module, *argv], encoding="utf-8", **more)

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        """What `Popen` does between its pipes and its waiting: `given` ends with both ends of each pipe."""
        if not self._warm:
            super()._execute_child(args, *given)  # type: ignore[misc]  # no part of what typeshed knows
            return
        cwd, environ, pipes = given[4], given[5], given[9:15]
        ends = [pipes[0], pipes[3], pipes[5]]
        streams = [at if end == -1 else end for at, end in enumerate(ends)]
        self.pid = begin(args[2:], environ or os.environ, cwd or os.getcwd(), streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def ran(argv: Sequence[str], *, stdin: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """What a command did, once it has ended; `more` is for `Begun`."""
    pipe = subprocess.PIPE
    with Begun(argv, stdin=pipe, stdout=pipe, stderr=pipe, **more) as process:
        try:
            out, err = process.communicate(stdin, timeout=LONGEST_LIFE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def warm_in(environ: Mapping[str, str]) -> bool:
    """Whether a process with this environment may be a fork: what Python itself reads is read at its start."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    return sys.platform == "linux" and own == {
        name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))
    }


def begin(
    argv: Sequence[str],
    environ: Mapping[str, str],
    folder: str | Path,
    streams: Sequence[int],
    *,
    at_terminal: bool = False,
) -> int:
    """The number of a new process on these three streams, a child of this one.

    argv:         the module's name and its words
    at_terminal:  the streams are a terminal, which becomes its own
    """
    order = {"argv": list(argv), "environ": dict(environ), "folder": str(folder), "at_terminal": at_terminal}
    asked = waiting()
    with _one_at_a_time:
        socket.send_fds(asked, [json.dumps(order).encode()], streams)
        return int(asked.recv(64))


@cache
def waiting() -> socket.socket:
    """The way to this process's warm one, which is started by the first who asks."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # a fork's fork becomes our child when its parent ends
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
    number = theirs.fileno()
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "tests.warm", str(number)]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number], stdin=quiet, stdout=quiet)
    theirs.close()

    def let_go() -> None:
        ours.close()
        process.wait()

    atexit.register(let_go)
    return ours


# -- who is asked ----------------------------------------------------------------------------------


def import_everything() -> None:
    """All of convo, and what its modules import when they are called.

    What cannot be imported here fails in the command that needs it.
    """
    import gc
    import pkgutil
    from importlib import import_module

    import convo

    ours = [module.name for module in pkgutil.walk_packages(convo.__path__, "convo.", onerror=lambda name: None)]
    for name in [*ours, "openai.resources.responses", "openai.resources.conversations"]:
        if not name.endswith("__main__"):
            with suppress(ImportError):
                import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1  # a fork takes no other thread along
    gc.freeze()


def serve(asked: socket.socket) -> None:
    """Fork for each order until nobody can send one any more; returns in each fork, which has become the command."""
    while True:
        data, streams, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            command = os.fork()
            if not command:
                os.close(reading)
                os.close(writing)
                asked.close()
                return become(json.loads(data), streams)
            os.write(writing, str(command).encode())
            os._exit(0)
        os.waitpid(between, 0)
        asked.send(os.read(reading, 64))
        for number in (reading, writing, *streams):
            os.close(number)


def become(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Take over what a new interpreter would have been given."""
    import fcntl
    import termios
    import time

    if order["at_terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    sys.path[0] = order["folder"]
    sys.argv = order["argv"]
    sys.stdin = sys.__stdin__ = opened(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = opened(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = opened(2, "w", errors="backslashreplace", buffering=1)  # type: ignore[misc]


def opened(number: int, mode: str, **more: Any) -> Any:
    return open(number, mode, closefd=False, **more)


def leave(ended: list[int]) -> None:
    """Be gone as soon as an interpreter has done its duties at an end, and not take apart what is shared."""
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever runs the tests may ignore these, and would hand that down
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ended: list[int] = []
    atexit.register(leave, ended)  # the first one that is registered runs last
    import_everything()
    serve(socket.socket(fileno=int(sys.argv[1])))
    module, *words = sys.argv
    if module == "convo":
        from convo.__main__ import main

        sys.argv = [str(ROOT / "convo" / "__main__.py"), *words]
        ended.append(main())
        sys.exit(ended[0])
    runpy.run_module(module, run_name="__main__", alter_sys=True)
