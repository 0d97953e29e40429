"""Count the calls of Python functions in all threads of this process, and the SQL statements of SQLite.

A call is the first entry into a function. Each later entry into the frame of a generator or coroutine is a
resumption: an `await` that waits resumes every coroutine between it and its task. The bodies of modules
and classes are not functions. Lambdas and generator expressions are, and so are list, set and dict
comprehensions before Python 3.12, which inlined them into the enclosing function: compare counts of one
Python version.

`tests.bench.counts` runs this file as a program, which runs `convo` in its own process:

    python -P tests/bench/call_counts.py FD SERVES ARGUMENT...

FD is a connected socket for the counts. Of a command, everything is counted, and its counts are sent when it
ends. Of a server (SERVES is 1), what lies between the messages "start" and "stop", each a line. Each answer
is a line, too: null, and the counts. Only the standard library is imported, so that any revision of the
project can be counted.
"""

import dis
import inspect
import json
import runpy
import socket
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CallCounter:
    """Counts calls and resumptions while `active`, and statements at any time."""

    def __init__(self) -> None:
        self.active = False
        self._called: list[CodeType] = []  # append is atomic; `+= 1` is not
        self._resumed: list[CodeType] = []
        self._statements: list[str] = []
        self._written = written_bytes()
        self._sqlite_connect = sqlite3.connect

    def install(self) -> None:
        """Profile this thread and every thread that `threading` starts from now on, and trace new connections."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        sqlite3.connect = self._connect  # type: ignore[assignment]

    def uninstall(self) -> None:
        """Profile neither this thread nor new ones, and trace no new connection."""
        sys.setprofile(None)
        threading.setprofile(None)
        sqlite3.connect = self._sqlite_connect

    def take(self) -> Mapping[str, Any]:
        """Return the counts since the last time.

        functions:   file, name, calls and resumptions of each function
        statements:  of SQLite
        written:     bytes written to files and pipes
        """
        called, self._called = Counter(self._called), []
        resumed, self._resumed = Counter(self._resumed), []
        statements, self._statements = self._statements, []
        before, self._written = self._written, written_bytes()
        functions = [
            (code.co_filename, code.co_qualname, called[code], resumed[code])
            for code in {**called, **resumed}
            if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename != __file__
        ]
        return {
            "functions": functions,
            "statements": len(statements),
            "written": self._written - before,
        }

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if self.active and event == "call" and (position := position_from_entry(frame)) >= 0:
            (self._resumed if position else self._called).append(frame.f_code)

    def _connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._sqlite_connect(*args, **options)
        connection.set_trace_callback(self._trace)
        return connection

    def _trace(self, statement: str) -> None:
        # Of a trigger: SQLite reports its statements as comments, which Python replaces by the one that caused them.
        is_of_trigger = statement.startswith(("INSERT", "UPDATE", "DELETE")) and self._statements[-1:] == [statement]
        if not statement.startswith("--") and not is_of_trigger:
            self._statements.append(statement)


def position_from_entry(frame: FrameType) -> int:
    """Return 0 if a frame with a `call` event is entered for the first time, more if it is resumed.

    The instruction RESUME is at the start of a function and after each `yield` and `await`.
    A generator that is closed before it started is positioned before the first one: it was never called.
    """
    return frame.f_lasti - entry_offset(frame.f_code) if frame.f_code.co_flags & RESUMABLE else 0


@cache
def entry_offset(code: CodeType) -> int:
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def written_bytes() -> int:
    """Return the bytes that this process wrote to files and pipes so far; Linux counts no sockets there."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["wchar"])


def run_command(argv: Sequence[str]) -> int:
    """Run `python -m convo` with these arguments in this process; returns its exit code."""
    sys.argv = ["convo", *argv]
    try:
        runpy.run_module("convo", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main(fd: int, argv: Sequence[str], *, serves: bool) -> int:
    """Run a command line and send its counts; returns its exit code."""
    counter = CallCounter()
    with socket.socket(fileno=fd) as control:

        def send(counts: Mapping[str, Any] | None) -> None:
            control.sendall(f"{json.dumps(counts)}\n".encode())

        def obey() -> None:
            for line in control.makefile():
                counter.active = line.strip() == "start"
                counts = counter.take()
                send(None if counter.active else counts)

        if serves:
            threading.Thread(target=obey, daemon=True).start()
        counter.install()
        counter.active = not serves
        code = run_command(argv)
        counter.active = False
        counter.uninstall()
        if not serves:
            send(counter.take())
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[3:], serves=sys.argv[2] == "1"))
