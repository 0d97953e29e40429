"""Count calls, SQL statements and bytes of requests and commands, and compare them with the recorded counts.

    python -m tests.bench.counts [--only ROW] [--rounds N] [--functions N] [--record] [CHECKOUT ...]

Counts this tree, prints the counts below the recorded ones (`counts.json`) and ends with 1 if one of them is
more than 5 % higher. Other load on the machine does not change them. --record records them instead: a change
that costs more records its counts in its own commit, whose message says why. With CHECKOUTs nothing is
compared with the record; their counts stand below each other, and --functions N lists the N functions whose
calls differ most between the first and the last.

The counts are those of Python 3.11 and of the releases in `requirements.txt`, whatever this environment has:
uv installs both into a new one. To take new releases, in a commit that records the counts again:

    uv pip compile -q --python-version 3.11 --extra serve --extra postgres --no-annotate --no-header \\
        pyproject.toml -o tests/bench/requirements.txt

    POST      POST /v1/responses: the eighth response of a chain, of eight text deltas. `native`: the upstream
              has the Responses API, `chat`: chat completions. `streamed`: the response is streamed, and the
              upstream sends each delta when the client has the one before it, else eight at once and then four
              each 10 ms: more at once would be read in slices of time, and a slower machine would count more.
              `each event`: a further delta, from the same request with 96 more. The store is SQLite's, unless
              the row says PostgreSQL
    chat      convo chat -q --session hi, in a new store
    resume    convo resume state.json --agent ... --approve all, of a run that paused before a tool call
    inspect   convo inspect @last, of a stored chain

Each is the lowest of --rounds processes, 3 by default: on a busy machine a server waits for its turn more
often. `tests.bench.call_counts` defines calls and resumptions. Bytes on the wire include heads and framing.
From the counts of a request those of an idle server are subtracted, for the same time: its timers.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO, TypeAlias, cast

from starlette.types import Receive, Scope, Send

from tests import databases
from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.bench.load import Answer, Client, free_port
from tests.bench.upstream import serve
from tests.command_runner import ROOT

FOLDER = Path(__file__).parent
RECORD, REQUIREMENTS, COUNTER = (FOLDER / name for name in ("counts.json", "requirements.txt", "call_counts.py"))
PYTHON = "3.11"

MAX_RISE = 1.05
EARLIER, DELTAS, PIECE, MORE = 7, 8, 4, 96
IDLE_S, SETTLE_S = 0.6, 0.1
"""How long an idle server is counted, and how long a server may still work on a request after its response."""

PAUSE_S = 0.01
"""The time between two writes of the upstream, so that a server always reads them one by one, and then waits."""

SHIFT_S = 0.7
"""The requests of each round begin so much later after the start, so that a timer is counted in one of them at most."""

WAIT_S = 120
PAUSED = 3
"""The exit code of a run that paused."""

SETTINGS = """
model = "chat/m"
[providers.chat]
api = "chat"
base_url = "http://127.0.0.1:{port}/v1"
owner = "convo"
[providers.native]
api = "responses"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "BENCH_KEY"
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

AS_AGENT = ("--agent", "agent.py:billing")
COMMANDS: Mapping[str, Sequence[tuple[Sequence[str], int]]] = {
    "chat": [(("chat", "-q", "--session", "hi"), 0)],
    "resume": [
        (("chat", "--session", *AS_AGENT, "--state", "state.json", "call the first tool"), PAUSED),
        (("resume", "state.json", *AS_AGENT, "--approve", "all"), 0),
    ],
    "inspect": [(("chat", "--chain", "hi"), 0), (("chat", "-c", "hi"), 0), (("inspect", "@last"), 0)],
}
"""Command lines with their exit codes; the last of each row is counted."""

APIS, ON_POSTGRES = ("native", "chat"), "POST native, PostgreSQL"

LOGGED = {**databases.SETTINGS, "log_statement": "all"}
EXECUTED = re.compile(rb" LOG:  (statement|execute )")

Row: TypeAlias = dict[str, float]
"""Counts by what is counted: COLUMNS."""

COLUMNS = ("own calls", "all calls", "resumed", "statements", "written", "to client", "to upstream")
EACH_EVENT = ", each event"
PER_EVENT = ("own calls", "all calls", "resumed", "to client", "to upstream")

Functions: TypeAlias = Counter[str]
"""Calls by file and function."""


class CountedUpstream:
    """The upstream, which counts the bytes of its requests, and sends each delta when it is permitted."""

    def __init__(self) -> None:
        self.received = 0
        self.permits: asyncio.Semaphore | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = len(scope["method"]) + len(scope["raw_path"]) + len("  HTTP/1.1\r\n\r\n")
        self.received += head + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])

        async def counted_receive() -> Any:
            message = await receive()
            self.received += len(message.get("body", b""))
            return message

        async def send_head_alone(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                await asyncio.sleep(PAUSE_S)

        held, most = list[bytes](), DELTAS

        async def send_in_pieces(message: Any) -> None:
            nonlocal most
            if message["type"] == "http.response.start":
                await send_head_alone(message)
            elif not message.get("more_body"):
                await send({**message, "body": b"".join((*held, message["body"]))})
            else:
                if len(held) == most:
                    await send({**message, "body": b"".join(held)})
                    await asyncio.sleep(PAUSE_S)
                    held.clear()
                    most = PIECE
                held.append(message["body"])

        if permits := self.permits:
            await serve(scope, counted_receive, send_head_alone, permits.acquire)
        else:
            await serve(scope, counted_receive, send_in_pieces, partial(asyncio.sleep, 0))


def write_settings(home: Path, upstream: int) -> None:
    """Write settings with the upstream's two APIs as providers."""
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text(SETTINGS.format(port=upstream), encoding="utf-8")


class Workspace:
    """An empty folder with settings for the upstream, in which commands of a checkout run."""

    def __init__(self, python: Path, checkout: Path, folder: Path, port: int) -> None:
        self._python, self._checkout, self._folder = python, checkout, folder
        write_settings(folder, port)
        (folder / "agent.py").write_text(AGENT, encoding="utf-8")

    def run(self, argv: Sequence[str], code: int) -> None:
        with self._start(["-m", "convo", *argv]) as process:
            self._check_exit(process, code)

    def count(self, argv: Sequence[str], code: int) -> Mapping[str, Any]:
        with self.counted(argv, serves=False) as (process, control):
            counts: Mapping[str, Any] = json.loads(control.readline() or "null")
            self._check_exit(process, code)
        return counts

    @contextmanager
    def counted(self, argv: Sequence[str], *, serves: bool) -> Iterator[tuple[subprocess.Popen[bytes], TextIO]]:
        """Start a process that counts itself; yield it with the file for messages."""
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        with ours, ours.makefile("rw") as control:
            with theirs:
                arguments = [str(COUNTER), str(theirs.fileno()), str(int(serves)), *argv]
                process = self._start(arguments, pass_fds=[theirs.fileno()])
            with process:
                try:
                    yield process, control
                finally:
                    process.terminate()

    def _start(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Run the counted environment's Python, without this shell's keys and settings."""
        environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environ |= {"CONVO_HOME": str(self._folder), "PYTHONPATH": str(self._checkout), "NO_PROXY": "127.0.0.1"}
        return subprocess.Popen(
            [str(self._python), "-P", *arguments],
            env=environ | {"BENCH_KEY": "sk-1234"},
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        )

    @staticmethod
    def _check_exit(process: subprocess.Popen[bytes], code: int) -> None:
        output, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == code, f"{process.args!r}: {process.returncode}\n{output.decode()}"


class Checkout:
    """Counts the rows of one checkout. `functions` has the calls of each function in the latest round."""

    def __init__(
        self, folder: Path, python: Path, upstream: CountedUpstream, url: str, loop: asyncio.AbstractEventLoop
    ):
        self.folder, self.functions = folder, dict[str, Functions]()
        self._python, self._upstream, self._loop = python, upstream, loop
        self._postgres_log: Path | None = None
        self._port = int(url.split(":")[2].split("/")[0])

    def count(self, only: str, rounds: int) -> dict[str, Row]:
        """Return the lowest counts of each row whose name starts with `only`."""
        found = list[dict[str, Row]]()
        for number in range(rounds):
            rows = dict[str, Row]()
            for name, lines in COMMANDS.items():
                if name.startswith(only):
                    rows[name] = self._command(name, lines)
            for api in APIS:
                if f"POST {api}".startswith(only[: len(f"POST {api}")]):
                    rows |= self._requests(api, number * SHIFT_S)
            if ON_POSTGRES.startswith(only):
                rows |= self._requests("native", number * SHIFT_S, on_postgres=True)
            found.append(rows)
        lowest = {
            name: {column: min(rows[name][column] for rows in found) for column in found[0][name]} for name in found[0]
        }
        for name in [name for name in lowest if name.endswith(EACH_EVENT)]:
            fewer = lowest[name.removesuffix(EACH_EVENT)]
            lowest[name] = {column: (lowest[name][column] - fewer[column]) / MORE for column in PER_EVENT}
        return {
            name: {column: round(count, 1) for column, count in row.items()}
            for name, row in lowest.items()
            if name.startswith(only)
        }

    def _command(self, name: str, lines: Sequence[tuple[Sequence[str], int]]) -> Row:
        with TemporaryDirectory() as folder:
            workspace = Workspace(self._python, self.folder, Path(folder), self._port)
            for argv, code in lines[:-1]:
                workspace.run(argv, code)
            self._upstream.received = 0
            counts = workspace.count(*lines[-1])
            return self._row(name, counts) | {"to upstream": self._upstream.received}

    def _requests(self, api: str, shift_s: float, *, on_postgres: bool = False) -> dict[str, Row]:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            workspace, port = Workspace(self._python, self.folder, Path(folder), self._port), free_port()
            store, self._postgres_log = f"sqlite:{folder}/convo.db", None
            if on_postgres:
                server = stack.enter_context(databases.start_server(settings=LOGGED))
                store, self._postgres_log = server.url(), server.folder / "log"
            argv = ("serve", "--port", str(port), "--store", store)
            with workspace.counted(argv, serves=True) as (process, control):
                self._await_server(process, port)
                time.sleep(shift_s)
                work = self._count_requests(api, port, control)
                rows = asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)
        return rows

    @staticmethod
    def _await_server(process: subprocess.Popen[bytes], port: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()[0].decode()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError(f"no server on port {port}")

    async def _count_requests(self, api: str, port: int, control: TextIO) -> dict[str, Row]:
        rows, client, idle = dict[str, Row](), await Client.connect(port), await self._idle(control)
        kinds = [(f"POST {api}", False, DELTAS), (f"POST {api}", False, DELTAS + MORE)]
        kinds += [(f"{name}, streamed", True, deltas) for name, _, deltas in kinds]
        for name, streamed, deltas in [(ON_POSTGRES, False, DELTAS)] if self._postgres_log else kinds:
            body: dict[str, Any] = {"model": f"{api}/m", "stream": streamed}
            for turn in range(EARLIER):
                body["input"] = f"Turn {turn}: answer in {DELTAS} words."
                body["previous_response_id"] = (await self._post(client, body)).id
                await asyncio.sleep(SETTLE_S)
            body["input"] = f"Turn {EARLIER}: answer in {deltas} words."
            before = self._upstream.received
            label = name if deltas == DELTAS else f"{name}{EACH_EVENT}"
            row, seconds, answer = await self._window(label, control, self._post(client, body))
            row |= {column: row[column] - idle[column] * seconds for column in idle}
            row |= {"to client": answer.size, "to upstream": self._upstream.received - before}
            rows[label] = row
        await client.aclose()
        return rows

    async def _post(self, client: Client, body: Mapping[str, Any]) -> Answer:
        self._upstream.permits = permits = asyncio.Semaphore(1) if body["stream"] else None

        def permit(deltas: int) -> None:
            for _ in range(deltas if permits else 0):
                self._loop.call_later(PAUSE_S, cast(asyncio.Semaphore, permits).release)

        answer = await client.post("/v1/responses", body, permit)
        self._upstream.permits = None
        return answer

    async def _idle(self, control: TextIO) -> Row:
        """Return the calls and resumptions of an idle server in a second, without those of rare timers."""
        windows = [await self._window("", control, asyncio.sleep(IDLE_S)) for _ in range(3)]
        return {column: min(row[column] / seconds for row, seconds, _ in windows) for column in COLUMNS[:3]}

    async def _window(self, name: str, control: TextIO, work: Awaitable[Any]) -> tuple[Row, float, Any]:
        """Count while `work` is done and shortly after; return the counts, their duration and its result."""
        logged = self._logged_statements()
        self._tell(control, "start")
        started_at = time.monotonic()
        result = await work
        await asyncio.sleep(SETTLE_S)
        counts, seconds = self._tell(control, "stop"), time.monotonic() - started_at
        counts["statements"] += self._logged_statements() - logged
        return self._row(name, counts), seconds, result

    def _logged_statements(self) -> int:
        """Return how many statements PostgreSQL has executed; with SQLite none."""
        return len(EXECUTED.findall(self._postgres_log.read_bytes())) if self._postgres_log else 0

    @staticmethod
    def _tell(control: TextIO, message: str) -> Any:
        control.write(f"{message}\n")
        control.flush()
        return json.loads(control.readline())

    def _row(self, name: str, counts: Mapping[str, Any]) -> Row:
        own = f"{self.folder}{os.sep}"
        functions = counts["functions"]
        self.functions[name] = Counter()
        for file, function, calls, _ in functions:
            self.functions[name][f"{file.removeprefix(own).split('site-packages/')[-1]}:{function}"] += calls
        return {
            "own calls": sum(calls for file, _, calls, _ in functions if file.startswith(f"{own}convo{os.sep}")),
            "all calls": sum(calls for _, _, calls, _ in functions),
            "resumed": sum(resumed for *_, resumed in functions),
            **{column: counts[column] for column in ("statements", "written")},
        }


@contextmanager
def counting_python() -> Iterator[Path]:
    """Install the recorded releases into a new environment; yield its Python."""
    with TemporaryDirectory() as folder:
        subprocess.run(["uv", "venv", "--quiet", "--python", PYTHON, folder], check=True)
        install = ("uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", folder)
        subprocess.run([*install, "-r", REQUIREMENTS], check=True)
        yield Path(folder) / "bin" / "python"


def count_checkouts(folders: Sequence[Path], only: str = "", rounds: int = 3) -> list[tuple[dict[str, Row], Checkout]]:
    """Return the rows of each checkout whose names start with `only`."""
    upstream, loop = CountedUpstream(), asyncio.new_event_loop()
    listener, url = listen_on_free_port()
    with counting_python() as python, serve_in_thread(upstream, listener, loop):
        checkouts = [Checkout(folder, python, upstream, url, loop) for folder in folders]
        return [(each.count(only, rounds), each) for each in checkouts]


def rises(recorded: Mapping[str, Row], counted: Mapping[str, Row]) -> list[str]:
    """Return a line for each count that is more than 5 % above the recorded one, or has none."""
    return [
        f"{name}: {column}: {counted[name][column]:,g}, recorded {recorded.get(name, {}).get(column, 0):,g}"
        for name, row in counted.items()
        for column in row
        if row[column] > MAX_RISE * recorded.get(name, {}).get(column, 0)
    ]


def table(labelled: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """Yield a line for each row and each labelled set of counts."""
    width = max(map(len, labelled))
    yield " " * (34 + width) + "".join(f"{column:>13}" for column in COLUMNS)
    *_, last = labelled.values()
    for name in last:
        for at, (label, rows) in enumerate(labelled.items()):
            figures = "".join(f"{rows.get(name, {}).get(column, 0):>13,g}" for column in COLUMNS)
            yield f"{'' if at else name:<34}{label:<{width}}{figures}"


def differences(name: str, before: Functions, after: Functions, most: int) -> Iterator[str]:
    """Yield the functions whose calls differ most, with both counts."""
    yield f"\n{name}: calls before and after"
    for function in sorted({**before, **after}, key=lambda each: -abs(after[each] - before[each]))[:most]:
        yield f"{before[function]:>8}{after[function]:>8}  {function}"


def main() -> int:
    """Count and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.counts")
    parser.add_argument("checkouts", metavar="CHECKOUT", nargs="*", type=Path)
    parser.add_argument("--only", metavar="ROW", default="", help="the rows whose names start so")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="take the lowest of so many processes")
    parser.add_argument("--functions", metavar="N", type=int, default=0, help="list so many functions of each row")
    parser.add_argument("--record", action="store_true", help="record the counts of this tree")
    options = parser.parse_args()
    folders = [each.resolve() for each in options.checkouts]
    counted = count_checkouts(folders or [ROOT], options.only, options.rounds)
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = counted[-1][0]
    labelled = {str(each.folder): found for found, each in counted} if folders else {"recorded": recorded, "now": rows}
    print("\n".join(table(labelled)))
    if options.functions:
        (_, first), (_, last) = counted[0], counted[-1]
        for name in counted[0][0]:
            before = first.functions[name] if first is not last else Functions()
            print("\n".join(differences(name, before, last.functions[name], options.functions)))
    if options.record:
        lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in (recorded | rows).items()]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    elif not folders and (lines := rises(recorded, rows)):
        print(
            "\n".join(("\nmore than 5 % above the record; --record records it, with the reason in the commit:", *lines))
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
