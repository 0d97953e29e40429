"""Run commands as forks of a process that has imported all modules, which saves one second per command.

The first command starts a server process that imports all of convo and waits. Each command is a fork of it
with its own arguments, environment, folder and streams, and then runs like `python -m convo` until the
interpreter ends. It is a child of the process that requested it: it has a process id, receives signals and
has an exit code. Tests of a normal start, such as `tests/cli/test_app.py`, start a new interpreter; on systems
other than Linux all commands do.

    ConvoProcess(["chat", "hi"], stdout=PIPE)   # a `subprocess.Popen` of `convo chat hi`
    run_convo(["chat", "hi"])                   # the same, run to its end like `subprocess.run`

    pytest worker ──requests──▶ `python -m tests.fork_server` ──forks──▶ intermediate, ends ──▶ the command
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
MAX_LIFE_S = 120
PR_SET_CHILD_SUBREAPER = 36
MAX_REQUEST_BYTES = 1 << 20
"""Maximum size of a request in bytes; most of it is the environment."""

_request_lock = Lock()


# -- the client ------------------------------------------------------------------------------------


class ConvoProcess(subprocess.Popen[str]):
    """A process that runs `convo ARGV` or another `module`; it inherits `env` and `cwd` unless they are given."""

    def __init__(self, argv: Sequence[str], *, module: str = "convo", **more: Any) -> None:
        self._warm = can_fork(more.get("env") or os.environ)
        super().__init__([sys.executable, "-m", module, *argv], encoding="utf-8", **more)

    def _execute_child(self, args: Sequence[str], *arguments: Any) -> None:
        """Override the start of the child in `Popen`; the last items of `arguments` are both ends of each pipe."""
        if not self._warm:
            super()._execute_child(args, *arguments)  # type: ignore[misc]  # no part of what typeshed knows
            return
        cwd, environ, pipes = arguments[4], arguments[5], arguments[9:15]
        ends = [pipes[0], pipes[3], pipes[5]]
        streams = [index if end == -1 else end for index, end in enumerate(ends)]
        self.pid = start_fork(args[2:], environ or os.environ, cwd or os.getcwd(), streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_convo(argv: Sequence[str], *, stdin: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `more` is passed to `ConvoProcess`."""
    pipe = subprocess.PIPE
    with ConvoProcess(argv, stdin=pipe, stdout=pipe, stderr=pipe, **more) as process:
        try:
            out, err = process.communicate(stdin, timeout=MAX_LIFE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a process with this environment can be a fork: Python reads some variables only when it starts."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    return sys.platform == "linux" and own == {
        name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))
    }


def start_fork(
    argv: Sequence[str],
    environ: Mapping[str, str],
    folder: str | Path,
    streams: Sequence[int],
    *,
    at_terminal: bool = False,
) -> int:
    """Start a child process with these three streams and return its id.

    argv:         the name of the module and its arguments
    at_terminal:  the streams are a terminal, which becomes the controlling terminal
    """
    request = {"argv": list(argv), "environ": dict(environ), "folder": str(folder), "at_terminal": at_terminal}
    connection = fork_server_socket()
    with _request_lock:
        socket.send_fds(connection, [json.dumps(request).encode()], streams)
        try:
            return int(connection.recv(64))
        except BaseException:  # the test ran out of time: the reply to this request must not answer the next one
            connection.close()
            fork_server_socket.cache_clear()
            raise


@cache
def fork_server_socket() -> socket.socket:
    """A socket to the fork server of this process, which the first call starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # a fork's fork becomes our child when its parent ends
    own_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (own_end, server_end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST_BYTES)
    number = server_end.fileno()
    devnull = subprocess.DEVNULL
    command = [sys.executable, "-m", "tests.fork_server", str(number)]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[number], stdin=devnull, stdout=devnull)
    server_end.close()

    def stop_server() -> None:
        own_end.close()
        process.wait()

    atexit.register(stop_server)
    return own_end


# -- the server ------------------------------------------------------------------------------------


def import_everything() -> None:
    """Import all modules of convo, and modules that its functions import when they are called.

    An import that fails here fails again in the command that needs it.
    """
    import gc
    import pkgutil
    from importlib import import_module

    import httpx2

    import convo
    from tests.tls_context import share_tls_context

    module_names = [
        module.name for module in pkgutil.walk_packages(convo.__path__, "convo.", onerror=lambda name: None)
    ]
    for name in [*module_names, "openai.resources.responses", "openai.resources.conversations"]:
        if not name.endswith("__main__"):
            with suppress(ImportError):
                import_module(name)
    share_tls_context()
    httpx2.create_ssl_context()
    assert len(os.listdir("/proc/self/task")) == 1  # a fork copies only the current thread
    gc.freeze()


def serve(connection: socket.socket) -> None:
    """Fork for each request until the client closes its end; returns only in the fork that becomes the command."""
    while True:
        data, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        intermediate = os.fork()
        if not intermediate:
            command = os.fork()
            if not command:
                os.close(reading)
                os.close(writing)
                connection.close()
                return become_command(json.loads(data), streams)
            os.write(writing, str(command).encode())
            os._exit(0)
        os.waitpid(intermediate, 0)
        connection.send(os.read(reading, 64))
        for number in (reading, writing, *streams):
            os.close(number)


def become_command(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Set up arguments, environment, folder and streams like a new interpreter."""
    import fcntl
    import termios
    import time

    if request["at_terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.path[0] = request["folder"]
    sys.argv = request["argv"]
    sys.stdin = sys.__stdin__ = reopen_stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = reopen_stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = reopen_stream(2, "w", errors="backslashreplace", buffering=1)  # type: ignore[misc]
    if "RECORD_LINES" in os.environ:
        from tests.mutations.record import record_process

        record_process()


def reopen_stream(number: int, mode: str, **more: Any) -> Any:
    return open(number, mode, closefd=False, **more)


def exit_at_once(exit_codes: list[int]) -> None:
    """Exit right after the exit handlers, without freeing the objects that are shared with the server."""
    if exit_codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_codes[0])


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the parent may ignore it
    exit_codes: list[int] = []
    atexit.register(exit_at_once, exit_codes)  # the handler that is registered first runs last
    import_everything()
    serve(socket.socket(fileno=int(sys.argv[1])))
    module, *arguments = sys.argv
    if module == "convo":
        from convo.__main__ import main

        sys.argv = [str(ROOT / "convo" / "__main__.py"), *arguments]
        exit_codes.append(main())
        sys.exit(exit_codes[0])
    runpy.run_module(module, run_name="__main__", alter_sys=True)
