"""Count the calls of Python functions below a folder, in all threads of this process.

A call is the first entry into a function: resuming a generator or coroutine is not another call.
The bodies of modules and classes are not functions. Lambdas and generator expressions are, and so are
list, set and dict comprehensions before Python 3.12, which inlined them into the enclosing function:
compare counts of one Python version.

`tests.bench.traces` runs this file as a program, which runs `convo` in its own process:

    python -P tests/bench/call_counts.py JOB

JOB is a JSON object:

    folder    count the functions below it
    argv      the command line, without `convo`
    result    the file for the counts, as JSON
    port      for `convo serve`: the port of the server
    requests  for `convo serve`: bodies of POST /v1/responses, sent in order as one chain

All calls of a command are counted. Of a server, only those from the last request until shortly after its
response. The requests come from a thread that is not counted. Only the standard library is imported, so
that any revision of the project can be counted.
"""

import dis
import inspect
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

START_S = 60
"""A server must listen within this time."""

SETTLE_S = 0.1
"""A server may still work on a request for this long after its response."""

RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CallCounter:
    """A profile function that counts calls of functions below `folder` while `active`."""

    def __init__(self, folder: Path) -> None:
        self.active = False
        self._folder = f"{folder}{os.sep}"
        self._calls: list[CodeType] = []
        self._stacks: list[list[CodeType]] = []  # each deeper than the previous one, unless threads raced

    def install(self) -> None:
        """Profile this thread and every thread that `threading` starts from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def uninstall(self) -> None:
        """Profile neither this thread nor new ones."""
        sys.setprofile(None)
        threading.setprofile(None)

    def counts(self) -> dict[str, Any]:
        """Calls by module, and the functions of the deepest stack from the outermost, as "module:function"."""
        modules = Counter(self._module(code) for code in self._calls)
        deepest = max(self._stacks, key=len, default=[])
        return {
            "modules": dict(modules.most_common()),
            "stack": [f"{self._module(code)}:{code.co_qualname}" for code in deepest],
        }

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if not self.active or event != "call" or not self._counted(frame.f_code) or not first_entry(frame):
            return
        self._calls.append(frame.f_code)  # append is atomic; `+= 1` is not
        stack, caller = [frame.f_code], frame.f_back
        while caller:
            if self._counted(caller.f_code):
                stack.append(caller.f_code)
            caller = caller.f_back
        if not self._stacks or len(stack) > len(self._stacks[-1]):
            self._stacks.append(stack[::-1])

    def _counted(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self._folder) and is_function(code)

    def _module(self, code: CodeType) -> str:
        parts = Path(code.co_filename[len(self._folder) :]).with_suffix("").parts
        return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def is_function(code: CodeType) -> bool:
    """Whether this is the code of a function, not of a module or class."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def first_entry(frame: FrameType) -> bool:
    """Whether a frame with a `call` event is entered for the first time, not resumed.

    The instruction RESUME is at the start of a function and after each `yield` and `await`.
    A generator that is closed before it started is positioned before the first one: it was never called.
    """
    return not frame.f_code.co_flags & RESUMABLE or frame.f_lasti == entry_offset(frame.f_code)


@cache
def entry_offset(code: CodeType) -> int:
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


def run_command(argv: Sequence[str]) -> int:
    """Run `python -m convo` with these arguments in this process; returns its exit code."""
    sys.argv = ["convo", *argv]
    try:
        runpy.run_module("convo", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def send_requests(port: int, bodies: Sequence[Mapping[str, Any]], counter: CallCounter) -> None:
    """Send `bodies` to the server as one chain and count during the last. Raises AssertionError unless all succeed."""
    connection, previous = connected(port), None
    for number, body in enumerate(bodies, 1):
        sent = json.dumps({**body, **({"previous_response_id": previous} if previous else {})})
        counter.active = number == len(bodies)
        connection.request("POST", "/v1/responses", sent, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        previous = json.loads(text)["id"]
        time.sleep(SETTLE_S)
    counter.active = False
    connection.close()


def connected(port: int) -> HTTPConnection:
    """A connection to the server on this port, as soon as it listens. Raises TimeoutError."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=START_S)
        try:
            connection.connect()
        except OSError:
            time.sleep(0.05)
        else:
            return connection
    raise TimeoutError(f"no server on port {port}")


def main(job: Mapping[str, Any]) -> int:
    """Run the command line of `job` and write its counts; returns its exit code."""
    counter = CallCounter(Path(job["folder"]))

    def write() -> None:
        Path(job["result"]).write_text(json.dumps(counter.counts()), encoding="utf-8")

    def send() -> None:
        try:
            send_requests(job["port"], job["requests"], counter)
            write()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    if job["requests"]:
        threading.Thread(target=send, daemon=True).start()
    counter.active = not job["requests"]
    counter.install()
    code = run_command(job["argv"])
    counter.uninstall()
    if not job["requests"]:
        write()
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
