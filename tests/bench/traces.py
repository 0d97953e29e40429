"""The number of Python functions of convo that a command or a request calls, in how many modules, and how deep.

    python -m tests.bench.traces [CHECKOUT [CHECKOUT]] [--only TRACE] [--rounds N] [--earlier N] [--modules] [--stack]

Without a CHECKOUT this tree is measured; two are shown in adjacent columns, before and after. Any revision
can be measured: the dependencies are those of this environment, and only the command line, HTTP and the
import paths of the README are used. Each counted command or server is a process of its own
(`tests.bench.call_counts` defines a call) over a SQLite store; its upstream is a chat completions
server in this process, which is not counted:

    chat      convo chat --session hi, in a new store
    resume    convo resume state.json --agent ... --approve all, of a run that paused before a tool call
    POST      POST /v1/responses, not streamed, with a previous_response_id: the eighth response of a chain
    inspect   convo inspect @last, of a stored chain

The functions that a command calls while it imports its modules are counted as well: defaults, decorators.
Each chunk of the upstream's response costs calls, here four, and so does each earlier response of a chain.
--earlier N runs N of the same kind before the counted one: commands as processes over the same store,
requests as the chain that it continues. With 0 a server is cold: its first request imports modules.

The SQLite thread and timers vary the count by a few calls; the median of --rounds, 3 by default, is printed.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from tests.bench.gateway import free_port
from tests.bench.upstream import CHAT_USAGE, chunk
from tests.command_runner import ROOT

COUNT = Path(__file__).with_name("call_counts.py")

SETTINGS = """
model = "upstream/m"
[providers.upstream]
api = "chat"
base_url = "http://127.0.0.1:{port}/v1"
owner = "convo"
"""

AGENT = """
from convo.agents import Agent
from convo.tools import tool


@tool(needs_approval=True)
def refund() -> str:
    "Refund the order."
    return "refunded"


billing = Agent("billing", instructions="Refund orders.", tools=(refund,))
"""

ANSWER = ("This ", "is ", "the ", "answer.")
"""The chunks that the upstream streams."""

PAUSED = 3
"""The exit code of a run that paused."""

Argv: TypeAlias = Sequence[str]


@dataclass(frozen=True)
class Trace:
    """A command, or requests to a server of which the last is counted.

    setup    command lines with their exit codes, run before each `command`
    body     of the requests; the command is then `convo serve`
    earlier  the number of the same kind before the counted one
    """

    name: str
    command: Argv
    setup: Sequence[tuple[Argv, int]] = ()
    body: Mapping[str, Any] | None = None
    earlier: int = 0


AS_AGENT = ("--agent", "agent.py:billing")

TRACES = (
    Trace("chat", ("chat", "--session", "hi")),
    Trace(
        "resume",
        ("resume", "state.json", *AS_AGENT, "--approve", "all"),
        setup=[(("chat", "--session", *AS_AGENT, "--state", "state.json", "hi"), PAUSED)],
    ),
    Trace("POST", ("serve",), body={"model": "upstream/m", "input": "hi"}, earlier=7),
    Trace("inspect", ("inspect", "@last"), setup=[(("chat", "--chain", "hi"), 0), (("chat", "-c", "hi"), 0)]),
)


@dataclass(frozen=True)
class CallCounts:
    """Calls by module, in descending order, and the functions of the deepest stack from the outermost."""

    modules: Mapping[str, int]
    stack: Sequence[str]

    @property
    def figures(self) -> tuple[int, int, int]:
        """Return the calls, modules and depth."""
        return sum(self.modules.values()), len(self.modules), len(self.stack)


class ChatUpstream(BaseHTTPRequestHandler):
    """A chat completions server: calls the first tool of a request after a user message, else returns ANSWER."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name that http.server requires
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert request.get("stream"), "convo streams from a chat completions server"
        chunks = [chunk({"role": "assistant", "content": piece}) for piece in ANSWER]
        finish = "stop"
        if request.get("tools") and request["messages"][-1]["role"] == "user":
            function = {"name": request["tools"][0]["function"]["name"], "arguments": "{}"}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            chunks, finish = [chunk({"role": "assistant", "content": None, "tool_calls": [call]})], "tool_calls"
        lines = [json.dumps(each) for each in (*chunks, chunk({}, finish, CHAT_USAGE))]
        body = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def running_upstream() -> Iterator[int]:
    """Serve an upstream in threads of this process; yield its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatUpstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@dataclass(frozen=True)
class Workspace:
    """A checkout, and an empty folder with settings for the upstream; commands run in this folder."""

    checkout: Path
    folder: Path

    def count(self, trace: Trace, earlier: int) -> CallCounts:
        """Count `trace` after `earlier` ones of the same kind."""
        if trace.body is not None:
            port = free_port()
            argv = (*trace.command, "--port", str(port))
            return self._counted(argv, port=port, requests=[trace.body] * (earlier + 1))
        for _ in range(earlier):
            self._set_up(trace)
            self._run(("-P", "-m", "convo", *trace.command))
        self._set_up(trace)
        return self._counted(trace.command)

    def _set_up(self, trace: Trace) -> None:
        for argv, code in trace.setup:
            self._run(("-P", "-m", "convo", *argv), code)

    def _counted(self, argv: Argv, port: int = 0, requests: Sequence[Mapping[str, Any]] = ()) -> CallCounts:
        result = self.folder / "counts.json"
        own = {"folder": str(self.checkout / "convo"), "argv": argv, "result": str(result)}
        job = json.dumps({**own, "port": port, "requests": requests})
        printed = self._run(("-P", str(COUNT), job), None if requests else 0)
        assert result.exists(), printed
        counts = CallCounts(**json.loads(result.read_text(encoding="utf-8")))
        assert counts.modules, f"nothing below {self.checkout} was called"
        return counts

    def _run(self, arguments: Argv, code: int | None = 0) -> str:
        """Run this Python as a process; return its output. Raises AssertionError for an exit code other than `code`.

        With None the exit code is not checked: a signal ends a server.
        """
        command = [sys.executable, *arguments]
        result = subprocess.run(
            command,
            env=self._environ(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert code in (None, result.returncode), f"{command}: {result.returncode}\n{result.stdout}"
        return result.stdout

    def _environ(self) -> dict[str, str]:
        """Return an environment without this shell's keys and settings."""
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**own, "CONVO_HOME": str(self.folder), "PYTHONPATH": str(self.checkout), "NO_PROXY": "127.0.0.1"}


@contextmanager
def workspace(checkout: Path, port: int) -> Iterator[Workspace]:
    """Yield an empty store and settings for the upstream on this port."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "config" / "config.toml"
        settings.parent.mkdir()
        settings.write_text(SETTINGS.format(port=port), encoding="utf-8")
        (folder / "agent.py").write_text(AGENT, encoding="utf-8")
        yield Workspace(checkout, folder)


def median_counts(trace: Trace, checkout: Path, port: int, earlier: int, rounds: int) -> CallCounts:
    """Return the counts of the round with the median of the calls; each round has a workspace of its own."""
    counts = []
    for _ in range(rounds):
        with workspace(checkout, port) as environment:
            counts.append(environment.count(trace, earlier))
    return sorted(counts, key=lambda each: each.figures)[rounds // 2]


def counts_table(rows: Mapping[str, Sequence[CallCounts]]) -> Iterator[str]:
    """Yield a line for each trace: calls, modules and depth of each checkout in adjacent columns."""
    columns = len(next(iter(rows.values())))
    yield f"{'trace':<10}" + "".join(f"{name:>{9 * columns}}" for name in ("calls", "modules", "depth"))
    if columns > 1:
        yield " " * 10 + f"{'before':>9}{'after':>9}" * 3
    for name, counts in rows.items():
        figures = zip(*(each.figures for each in counts), strict=True)
        yield f"{name:<10}" + "".join(f"{value:>9,}" for values in figures for value in values)


def details(name: str, counts: CallCounts, *, modules: bool, stack: bool) -> Iterator[str]:
    """Yield the lists that the options request."""
    if modules:
        yield f"\n{name}: calls by module"
        yield from (f"{calls:>6}  {module}" for module, calls in counts.modules.items())
    if stack:
        yield f"\n{name}: the deepest stack"
        yield from (f"{depth:>6}  {function}" for depth, function in enumerate(counts.stack, 1))


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.traces")
    parser.add_argument("checkouts", metavar="CHECKOUT", nargs="*", type=Path)
    parser.add_argument("--only", metavar="TRACE", choices=[each.name for each in TRACES], help="one trace")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="print the median of so many")
    parser.add_argument("--earlier", metavar="N", type=int, help="so many of the same kind before the counted one")
    parser.add_argument("--modules", action="store_true", help="list the modules by their calls")
    parser.add_argument("--stack", action="store_true", help="list the functions of the deepest stack")
    options = parser.parse_args()
    checkouts = [each.resolve() for each in options.checkouts] or [ROOT]
    if len(checkouts) > 2:
        parser.error("at most two checkouts")
    rows = {}
    with running_upstream() as port:
        for trace in TRACES:
            if options.only in (None, trace.name):
                earlier = trace.earlier if options.earlier is None else options.earlier
                rows[trace.name] = [median_counts(trace, each, port, earlier, options.rounds) for each in checkouts]
    print(f"Python {python_version()}")
    print("\n".join(counts_table(rows)))
    for name, counts in rows.items():
        for checkout, each in zip(checkouts, counts, strict=True):
            title = f"{name} in {checkout}" if len(checkouts) > 1 else name
            for line in details(title, each, modules=options.modules, stack=options.stack):
                print(line)


if __name__ == "__main__":
    main()
