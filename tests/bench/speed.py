"""The speed of requests and commands, beside a floor, of one or several checkouts in turn.

    python -m tests.bench.speed [--only GROUP] [--rounds N] [--api native|chat] [CHECKOUT ...]

Without CHECKOUTs this tree is measured. Each is run with the Python of its own .venv, if it has one, in the
same run: its columns are medians of --rounds, 3 by default. Any answer that is not a completed response ends
the run. One upstream (`tests.bench.upstream`) answers at once. The groups:

    requests    CPU, p50 and requests/s (16 clients) of POST /v1/responses, not streamed, as multiples of the
                floor (`tests.bench.floor`), without a store, with SQLite and with PostgreSQL that writes to
                the disk before it confirms
    litellm     p50 and requests/s without a store against LiteLLM, which uv installs into an environment of its own
    counts      `tests.bench.counts`: own calls, all calls, and own calls for each further event of a stream
    paced       CPU of a stream whose events arrive one by one, as a multiple of a request that is not streamed
    long        CPU of turn 1,000 as a multiple of that of turn 10: a chain and a conversation, items of 100 B
                and of 2 KB, a server that has answered the earlier turns
    session     the same for convo chat in a terminal, in a session with imported turns
    commands    `tests.bench.startup`: time of commands as multiples of an empty launcher
    memory      the first request after /readyz as a multiple of the second; resident MB when ready and after
                the first request, and KB for each open stream

A paired run of two checkouts for a change: --only requests BEFORE AFTER. Times are wall times where not CPU,
so a busy machine changes them; ratios change less. Linux only.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pexpect

from tests import databases
from tests.bench import counts, startup
from tests.bench.load import (
    KEY,
    Client,
    Times,
    cpu_s,
    free_port,
    measure_requests,
    resident_kb,
    running,
    running_upstream,
)
from tests.command_runner import ROOT
from tests.terminal.pty_process import end_process
from tests.terminal.pty_session import PROMPT, PtySession

LITELLM_VERSION = "1.108.0"
LITELLM = """
model_list:
  - model_name: native/m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{port}/v1", api_key: sk-1}}
general_settings: {{master_key: {key}}}
"""

STORES = ("none", "SQLite", "PostgreSQL")
PATH, FLOOR = "/v1/responses", "floor"
WARM, REQUESTS, CLIENTS, STREAMS = 100, 400, 16, 100
TURN, LATE_TURN, WINDOW = 10, 1000, 10

Values: TypeAlias = dict[str, dict[str, list[float]]]
"""By row and column, a value of each round."""


@dataclass(frozen=True)
class Checkout:
    """One column of the table."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def python(self) -> str:
        own = self.folder / ".venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    @contextmanager
    def serve(self, upstream: int, store: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """Run `convo serve` in a new folder; yield it with its port when it accepts connections."""
        with TemporaryDirectory() as folder:
            counts.write_settings(Path(folder), upstream)
            port = free_port()
            place = f"sqlite:{folder}/convo.db" if store == "SQLite" else store
            command = [self.python, "-P", "-m", "convo", "serve", "--port", str(port), "--store", place]
            own = {"PYTHONPATH": str(self.folder), "CONVO_HOME": folder, "BENCH_KEY": "sk-1234"}
            with running(command, port, own) as process:
                yield process, port


class Bench:
    """Measures groups of rows; `values` has what was measured."""

    def __init__(self, checkouts: Sequence[Checkout], upstream: int, api: str, rounds: int) -> None:
        self.values: Values = defaultdict(lambda: defaultdict(list))
        self._checkouts, self._upstream, self._api, self._rounds = checkouts, upstream, api, rounds

    def body(self, turn: int, text: str = "hello", **fields: Any) -> Mapping[str, Any]:
        return {"model": f"{self._api}/m", "input": f"Turn {turn}: {text}", **fields}

    def times(self, port: int, clients: int, requests: int, **fields: Any) -> Times:
        def body(turn: int) -> Mapping[str, Any]:
            return self.body(turn, **fields)

        return asyncio.run(measure_requests(port, PATH, body, clients=clients, turns=max(1, requests // clients)))

    def cpu_ms(self, process: subprocess.Popen[bytes], port: int, **fields: Any) -> float:
        """Return the CPU time of a request."""
        before = cpu_s(process.pid)
        self.times(port, 4, REQUESTS, **fields)
        return (cpu_s(process.pid) - before) * 1e3 / REQUESTS

    # -- groups -----------------------------------------------------------------------------------

    def requests(self) -> None:
        with databases.start_server(settings=databases.DURABLE) as postgres:
            for store in [store for _ in range(self._rounds) for store in STORES]:
                place = databases.new_database(at=postgres.url(), schema=False) if store == "PostgreSQL" else store
                with TemporaryDirectory() as folder:
                    file, port = f"{folder}/floor.db" if store == "SQLite" else place, free_port()
                    command = [sys.executable, "-m", "tests.bench.floor", str(port), str(self._upstream), file]
                    with running(command, port, {"PYTHONPATH": str(ROOT)}) as process:
                        self._load(FLOOR, store, process, port)
                for checkout in self._checkouts:
                    if store == "PostgreSQL":
                        place = databases.new_database(at=postgres.url(), schema=False)
                    with checkout.serve(self._upstream, place) as (process, port):
                        self._load(checkout.name, store, process, port)

    def _load(self, column: str, store: str, process: subprocess.Popen[bytes], port: int) -> None:
        self.times(port, 4, WARM)
        for row, value in (
            ("CPU ms a request", self.cpu_ms(process, port)),
            ("p50 ms", self.times(port, 1, REQUESTS // 2).p50_ms),
            (f"requests/s, {CLIENTS} clients", self.times(port, CLIENTS, REQUESTS * 2).per_s),
        ):
            self.values[f"{row}, {store}"][column].append(value)

    def litellm(self) -> None:
        with TemporaryDirectory() as folder:
            config, python = Path(folder) / "litellm.yaml", f"{folder}/env"
            config.write_text(LITELLM.format(port=self._upstream, key=KEY), encoding="utf-8")
            subprocess.run(["uv", "venv", "--quiet", "--python", counts.PYTHON, python], check=True)
            package = f"litellm[proxy]=={LITELLM_VERSION}"
            subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, package], check=True)
            for _ in range(self._rounds):
                port = free_port()
                command = [f"{python}/bin/litellm", "--config", str(config), "--port", str(port), "--num_workers", "1"]
                with running(command, port) as process:
                    self._load("LiteLLM", "none", process, port)
                for checkout in self._checkouts:
                    with checkout.serve(self._upstream, "none") as (process, port):
                        self._load(checkout.name, "none", process, port)

    def counts(self) -> None:
        rows = counts.count_checkouts([each.folder for each in self._checkouts], "POST", self._rounds)
        for checkout, (found, _) in zip(self._checkouts, rows, strict=True):
            for api in counts.APIS:
                for kind in ("", ", streamed", ", streamed, each event"):
                    for column in ("own calls", "all calls"):
                        self.values[f"{column}, {api}{kind}"][checkout.name] = [found[f"POST {api}{kind}"][column]]

    def paced(self) -> None:
        for _ in range(self._rounds):
            for checkout in self._checkouts:
                with checkout.serve(self._upstream, "SQLite") as (process, port):
                    self.times(port, 4, WARM)
                    whole = self.cpu_ms(process, port)
                    paced = self.cpu_ms(process, port, text="5 ms apart", stream=True)
                self.values["CPU of a paced stream : not streamed"][checkout.name].append(paced / whole)

    def memory(self) -> None:
        for _ in range(self._rounds):
            for checkout in self._checkouts:
                with checkout.serve(self._upstream, "SQLite") as (process, port):
                    wait_until_ready(port)
                    rss_kb = [resident_kb(process.pid)]
                    first, second = (self.times(port, 1, 1).p50_ms for _ in range(2))
                    rss_kb.append(resident_kb(process.pid))
                    rss_kb.append(asyncio.run(self._open_streams(process, port)))
                for row, value in (
                    ("first request : second", first / second),
                    ("MB when ready", rss_kb[0] / 1024),
                    ("MB after the first request", rss_kb[1] / 1024),
                    ("KB for each open stream", (rss_kb[2] - rss_kb[1]) / STREAMS),
                ):
                    self.values[row][checkout.name].append(value)

    async def _open_streams(self, process: subprocess.Popen[bytes], port: int) -> int:
        """Return the resident KB of the server while all streams are open, each with some deltas."""
        body = self.body(0, "answer in 4 words, 2000 ms apart", stream=True)
        seen = [asyncio.Event() for _ in range(STREAMS)]

        async def one(opened: asyncio.Event) -> None:
            client = await Client.connect(port)
            await client.post(PATH, body, lambda _: opened.set())
            await client.aclose()

        tasks = [asyncio.create_task(one(opened)) for opened in seen]
        await asyncio.gather(*(opened.wait() for opened in seen))
        rss_kb = resident_kb(process.pid)
        await asyncio.gather(*tasks)
        return rss_kb

    def long(self) -> None:
        for checkout in self._checkouts:
            with checkout.serve(self._upstream, "SQLite") as (process, port):
                for name in ("chain", "conversation"):
                    for size in (100, 2000):
                        early, late = asyncio.run(self._long(process, port, name == "conversation", size))
                        row = f"CPU of turn {LATE_TURN:,} : turn {TURN}, {name}, {size:,} B"
                        self.values[row][checkout.name].append(late / early)

    async def _long(
        self, process: subprocess.Popen[bytes], port: int, is_conversation: bool, size: int
    ) -> tuple[float, float]:
        """Return the mean CPU of the turns around turn 10, of several chains, and around turn 1,000, in seconds."""
        early, late = list[float](), list[float]()
        for last in [TURN + WINDOW // 2] * self._rounds + [LATE_TURN + WINDOW // 2]:
            client, state = await Client.connect(port), dict[str, Any]()
            if is_conversation:
                state["conversation"] = (await client.post("/v1/conversations", {})).id
            for turn in range(1, last + 1):
                text = f"answer in {size} bytes. {'x' * size}"
                before = cpu_s(process.pid)
                answer = await client.post(PATH, self.body(turn, text, **state))
                if turn > last - WINDOW:
                    (late if last > LATE_TURN else early).append(cpu_s(process.pid) - before)
                if not is_conversation:
                    state["previous_response_id"] = answer.id
            await client.aclose()
        return fmean(early[WINDOW:] or early), fmean(late)

    def session(self) -> None:
        for size in (100, 2000):
            for checkout in self._checkouts:
                early, late = (self._session(checkout, turn, size) for turn in (TURN, LATE_TURN))
                row = f"CPU of turn {LATE_TURN:,} : turn {TURN}, session, {size:,} B"
                self.values[row][checkout.name].append(late / early)

    def _session(self, checkout: Checkout, first: int, size: int) -> float:
        """Return the mean CPU of the turns of a chat in a terminal after `first` imported ones, in seconds."""
        text, turns = f"answer in {size} bytes", WINDOW // 2
        with TemporaryDirectory() as folder:
            counts.write_settings(Path(folder), self._upstream)
            items = [item for turn in range(first) for item in imported_turn(turn, size)]
            (Path(folder) / "items.json").write_text(json.dumps(items), encoding="utf-8")
            own = {"PYTHONPATH": str(checkout.folder), "CONVO_HOME": folder, "BENCH_KEY": "sk-1234", "TERM": "dumb"}
            environ, command = {**os.environ, **own}, ["-P", "-m", "convo"]
            imported = [checkout.python, *command, "import", "items.json", "--as", "long"]
            subprocess.run(imported, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
            arguments = [*command, "chat", "--from", "long", "-m", f"{self._api}/m"]
            child = pexpect.spawn(checkout.python, arguments, cwd=folder, env=environ, encoding="utf-8", timeout=120)
            try:
                terminal = PtySession(child, PROMPT["dumb"])
                terminal.wait_for_prompt()
                for _ in range(2):
                    terminal.send_line(text)
                before = cpu_s(child.pid)
                for _ in range(turns):
                    assert "before." in terminal.send_line(text), terminal.output
                return (cpu_s(child.pid) - before) / turns
            finally:
                end_process(child)

    def commands(self) -> None:
        ratios = startup.measure([each.folder for each in self._checkouts], self._upstream, 5 * self._rounds)
        for row, columns in ratios.items():
            for column, value in columns.items():
                self.values[f"{row} : an empty launcher"][column].append(value)


def imported_turn(turn: int, size: int) -> list[Mapping[str, Any]]:
    part = {"type": "output_text", "text": "x" * size, "annotations": []}
    answer = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": [part]}
    return [{"type": "message", "role": "user", "content": f"Turn {turn}: {'x' * size}"}, answer]


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/readyz")
        if connection.getresponse().status == 200:
            return
        time.sleep(0.01)
    raise TimeoutError("/readyz")


GROUPS = ("requests", "litellm", "counts", "paced", "long", "session", "commands", "memory")


def table(values: Values, columns: Sequence[str]) -> Iterator[str]:
    """Yield a line for each row: medians, and multiples of the floor or of LiteLLM where the row has one."""
    yield f"{'':<52}" + "".join(f"{name:>16}" for name in columns)
    for row, found in values.items():
        medians = {name: median(numbers) for name, numbers in found.items()}
        base = medians.get(FLOOR)
        cells = []
        for name in columns:
            if name not in medians:
                cells.append("")
            elif base is None or name == FLOOR:
                cells.append(f"{medians[name]:,.2f}")
            else:
                cells.append(f"{medians[name]:,.2f} {medians[name] / base:>5.2f}x")
        yield f"{row:<52}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.speed")
    parser.add_argument("checkouts", metavar="CHECKOUT", nargs="*", type=Path)
    parser.add_argument("--only", metavar="GROUP", choices=GROUPS, action="append", help="one group; can be repeated")
    parser.add_argument("--rounds", metavar="N", type=int, default=3)
    parser.add_argument("--api", choices=counts.APIS, default="native", help="the API of the upstream")
    options = parser.parse_args()
    checkouts = [Checkout(folder.resolve()) for folder in options.checkouts or [ROOT]]
    columns = [FLOOR, *(each.name for each in checkouts), "LiteLLM"]
    for group in options.only or GROUPS:
        with running_upstream() as upstream:
            bench = Bench(checkouts, upstream, options.api, options.rounds)
            getattr(bench, group)()
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"\n{group}, at {time.strftime('%H:%M')}, load {load}")
        print("\n".join(table(bench.values, columns)), flush=True)


if __name__ == "__main__":
    main()
