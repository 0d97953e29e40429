"""The time in which a command reads a history of 10,000 items, as a multiple of the time of `json.loads`.

    uv run python -m tests.bench.reading [ROUNDS]

The same history is in a replay file and in a session of a store. Each round runs every command line
once over it and once over a history of four items, and parses the file's text. Times are CPU times, so
that other load on the machine has little effect. The time of the small history is that of the start;
the rest, divided by that of `json.loads`, is the ratio. A line over its target ends the script with 1.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from convo.history.records import Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from convo.stores.factory import open_store
from tests.command_runner import ROOT

ITEMS = 10_000
MAX_RATIO = 15.0

SMALL, LONG = "small", "long"


@dataclass(frozen=True)
class Case:
    """A command line over a history: `argv` receives a file name or a session name."""

    name: str
    argv: Callable[[str], Sequence[str]]
    from_file: bool
    most: float = MAX_RATIO


CASES = [
    Case("lint FILE", lambda history: ["lint", history], from_file=True),
    Case("lint FILE --json", lambda history: ["lint", history, "--json"], from_file=True),
    Case("lint SESSION", lambda history: ["lint", history], from_file=False),
    Case("diff FILE FILE@1", lambda history: ["diff", history, f"{history}@1"], from_file=True),
    Case("diff SESSION SESSION@1", lambda history: ["diff", history, f"{history}@1"], from_file=False),
    Case("next FILE", lambda history: ["next", history, "-m", "scripted/echo"], from_file=True),
    Case("next SESSION", lambda history: ["next", history], from_file=False),
    Case("inspect FILE", lambda history: ["inspect", history], from_file=True),
    Case("inspect SESSION --json", lambda history: ["inspect", history, "--json"], from_file=False),
]


def turn(number: int) -> list[dict[str, Any]]:
    """A user message, a call, its output and an assistant message: 1.2 KB."""
    question = f"Question {number}: " + "why is the sky blue? " * 4
    answer = f"Answer {number}: " + "because of scattering. " * 20
    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]},
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": "weather",
            "arguments": json.dumps({"city": "Bonn", "day": number}),
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": f"call_{number}", "output": "sunny " * 30},
        {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": answer, "annotations": []}],
        },
    ]


def history(items: int) -> list[dict[str, Any]]:
    return [item for number in range(items // 4) for item in turn(number)]


async def prepare(folder: Path) -> None:
    """Write both histories as files and as sessions."""
    store = open_store(f"sqlite:{folder / 'home' / 'data' / 'convo.db'}")
    for name, count in ((SMALL, 4), (LONG, ITEMS)):
        items = history(count)
        (folder / f"{name}.json").write_text(json.dumps(items), encoding="utf-8")
        path = History(root_key(store.tenant)).append(items)
        record = Session(name, name, Strategy.SESSION, "scripted/echo", path.head, path.head, 1.0, 1.0)
        await store.commit(
            Transaction((AppendItems(path.root, path.items),), session=record, expected_session_head=None)
        )
    await store.aclose()


def run_ms(case: Case, name: str, folder: Path) -> float:
    """Run a case over one of the histories as a process; return its CPU time in milliseconds."""
    handle = str(folder / f"{name}.json") if case.from_file else name
    env = {**os.environ, "CONVO_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    started_at = _children_s()
    command = [sys.executable, "-m", "convo", *case.argv(handle)]
    subprocess.run(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return (_children_s() - started_at) * 1000


def _children_s() -> float:
    """Return the CPU seconds of all child processes that ended."""
    resources = resource.getrusage(resource.RUSAGE_CHILDREN)
    return resources.ru_utime + resources.ru_stime


def loads_ms(folder: Path) -> float:
    text = (folder / f"{LONG}.json").read_text(encoding="utf-8")
    started_at = time.process_time()
    json.loads(text)
    return (time.process_time() - started_at) * 1000


def measure(rounds: int) -> tuple[float, list[tuple[float, float]]]:
    """Return median milliseconds: of `json.loads`, and for each case of the small and the long history."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(prepare(folder))
        for case in CASES:
            run_ms(case, SMALL, folder)
        loads, durations = list[float](), list[list[tuple[float, float]]]()
        for _ in range(rounds):
            loads.append(loads_ms(folder))
            durations.append([(run_ms(case, SMALL, folder), run_ms(case, LONG, folder)) for case in CASES])
    pairs = [
        (median(one[0] for one in case_times), median(one[1] for one in case_times))
        for case_times in zip(*durations, strict=True)
    ]
    return median(loads), pairs


def main() -> int:
    """Measure and print; return the exit code."""
    loads, durations = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
    print(f"json.loads of {ITEMS:,} items: {loads:.1f} ms")
    print(f"{'command':24} {'start':>7} {'long':>8} {'ratio':>6}  target")
    is_exceeded = False
    for case, (start, long_) in zip(CASES, durations, strict=True):
        ratio = (long_ - start) / loads
        is_exceeded = is_exceeded or ratio > case.most
        target = f"<= {case.most:g}{'' if ratio <= case.most else '  over'}"
        print(f"{case.name:24} {start:7.1f} {long_:8.1f} {ratio:6.2f}  {target}")
    return int(is_exceeded)


if __name__ == "__main__":
    sys.exit(main())
