"""The time in which `convo` starts, as a multiple of the time of a command that does nothing.

    uv run python -m tests.bench.startup [CHECKOUT ...]

An empty package with one entry point is installed into a new virtual environment, and each checkout (without
one, this tree) into its own, like a user's installation. Each round runs every command line once, so that
other load on the machine affects all of them alike. The median of each is divided by the empty launcher's.
`tests.bench.speed` shows the same beside other figures.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pexpect

from tests.bench.counts import write_settings
from tests.bench.load import running_upstream
from tests.command_runner import ROOT
from tests.terminal.pty_process import end_process

EMPTY = {
    "pyproject.toml": (
        '[project]\nname = "nothing-at-all"\nversion = "1"\n'
        '[project.scripts]\nnothing = "nothing:main"\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["nothing"]\n'
    ),
    "nothing/__init__.py": "def main():\n    return 0\n",
}


@dataclass(frozen=True)
class Case:
    """A command line of convo.

    until:  measure in a terminal until this text appears, not until the end
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    until: str = ""


CASES = {
    "--version": Case(["--version"]),
    "--help": Case(["--help"]),
    "completion of a command": Case(["=ins"], {"_CONVO_COMPLETE": "1"}),
    "sessions": Case(["sessions"]),
    "inspect @last": Case(["inspect", "@last"]),
    "first prompt": Case(["chat"], until=">"),
    "chat -q on a chat server": Case(["chat", "-q", "hi"]),
}


def install(folder: Path, *packages: Path) -> Path:
    """Install packages, compiled, into a new environment; return its folder of commands."""
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, folder], check=True)
    options = ["--quiet", "--compile-bytecode", "--python", str(folder)]
    subprocess.run(["uv", "pip", "install", *options, *map(str, packages)], check=True)
    return folder / "bin"


def clean(home: Path) -> dict[str, str]:
    """Return an environment without this shell's settings, keys and Python variables."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CONVO", "OPENAI"))
    }
    return {**variables, "CONVO_HOME": str(home), "NO_PROXY": "127.0.0.1"}


def once_ms(program: Path, case: Case, env: Mapping[str, str]) -> float:
    """Run one command line; return the wall time in milliseconds."""
    own = {**env, **case.env}
    started_at = time.perf_counter()
    if not case.until:
        subprocess.run([program, *case.argv], env=own, stdout=subprocess.DEVNULL, cwd=env["CONVO_HOME"], check=True)
        return (time.perf_counter() - started_at) * 1000
    terminal: Any = pexpect.spawn(str(program), list(case.argv), env=own, encoding="utf-8", timeout=30)
    terminal.expect_exact(case.until)
    duration_ms = (time.perf_counter() - started_at) * 1000
    end_process(terminal)
    return duration_ms


def measure(checkouts: Sequence[Path], upstream: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median of every case as a multiple of the empty launcher's, by case and name of the checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in EMPTY.items():
            (folder / "empty" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "empty" / path).write_text(text)
        empty = install(folder / "env", folder / "empty") / "nothing"
        programs = {each.name: install(folder / f"env-{at}", each) / "convo" for at, each in enumerate(checkouts)}
        homes = {each: folder / f"home-{each}" for each in programs}
        for home in homes.values():
            write_settings(home, upstream)
        durations: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds + 1):
            one = {("", ""): once_ms(empty, Case([]), clean(folder / "empty"))}
            for each, program in programs.items():
                for row in reversed(CASES):  # a chat first, so that there is one to list and to inspect
                    one[row, each] = once_ms(program, CASES[row], clean(homes[each]))
            for key, duration in one.items() if number else ():  # the first round warms the caches
                durations.setdefault(key, []).append(duration)
    floor_ms = median(durations["", ""])
    return {row: {each: median(durations[row, each]) / floor_ms for each in programs} for row in CASES}


def main() -> None:
    checkouts = [Path(folder).resolve() for folder in sys.argv[1:]] or [ROOT]
    with running_upstream() as upstream:
        ratios = measure(checkouts, upstream, rounds=31)
    print(f"{'multiples of an empty launcher':34}" + "".join(f"{each.name:>10}" for each in checkouts))
    for row, columns in ratios.items():
        print(f"{row:34}" + "".join(f"{ratio:>10.2f}" for ratio in columns.values()))


if __name__ == "__main__":
    main()
