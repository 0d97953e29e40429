"""The time in which `convo` starts, as a multiple of the time of a command that does nothing.

    uv run python -m tests.bench.startup [ROUNDS]

An empty package with one entry point and this tree are installed into a new virtual environment, like
a user's installation. Each round runs every command line once, so that other load on the machine affects
all of them alike. The median of each is divided by the empty launcher's. A line over its target ends
the script with 1.
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

from convo.cli.app import COMMANDS
from tests.command_runner import ROOT

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
    """A command line, and its maximum time as a multiple of the empty launcher's.

    until:  measure in a terminal until this text appears, not until the end
    """

    name: str
    argv: Sequence[str]
    most: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    until: str = ""


FLOOR = Case("an empty command", ["nothing"])

CASES = [
    FLOOR,
    Case("convo --version", ["convo", "--version"], 1.1),
    Case("convo --help", ["convo", "--help"], 8),
    Case("completion of a command", ["convo", "=ins"], 8, {"_CONVO_COMPLETE": "1"}),
    *(Case(f"convo {name} --help", ["convo", name, "--help"]) for name in COMMANDS),
    *(Case(f"completion of convo {name} --", ["convo", name, "=--"], 8, {"_CONVO_COMPLETE": "1"}) for name in COMMANDS),
    *(Case("convo sessions list", ["convo", "sessions", "list"], 8) for name in COMMANDS if name == "sessions"),
    *(Case("first prompt", ["convo", "chat"], 18, until=">") for name in COMMANDS if name == "chat"),
]


def install(folder: Path) -> Path:
    """Install the empty package and this tree, compiled, into a new environment; return its folder of commands."""
    for name, text in EMPTY.items():
        path = folder / "empty" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    venv_folder = folder / "env"
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, venv_folder], check=True)
    what = [str(ROOT), str(folder / "empty")]
    subprocess.run(
        ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", venv_folder, *what], check=True
    )
    return venv_folder / ("Scripts" if sys.platform == "win32" else "bin")


def clean(home: Path) -> dict[str, str]:
    """Return an environment without this shell's settings, keys and Python variables."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CONVO", "OPENAI"))
    }
    return {**variables, "CONVO_HOME": str(home)}


def once_ms(case: Case, commands: Path, env: Mapping[str, str]) -> float:
    """Run one command line; return the wall time in milliseconds."""
    program, arguments, own = str(commands / case.argv[0]), list(case.argv[1:]), {**env, **case.env}
    started_at = time.perf_counter()
    if not case.until:
        subprocess.run([program, *arguments], env=own, stdout=subprocess.DEVNULL, check=True)
        return (time.perf_counter() - started_at) * 1000
    terminal: Any = pexpect.spawn(program, arguments, env=own, encoding="utf-8", timeout=30)
    terminal.expect_exact(case.until)
    durations = (time.perf_counter() - started_at) * 1000
    terminal.close(force=True)
    return durations


def measure(rounds: int) -> dict[str, float]:
    """Return the median of every case in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        commands, env = install(Path(name)), clean(Path(name) / "home")
        for case in CASES:
            once_ms(case, commands, env)
        durations = [[once_ms(case, commands, env) for case in CASES] for _ in range(rounds)]
    return {case.name: median(column) for case, column in zip(CASES, zip(*durations, strict=True), strict=True)}


def main() -> int:
    """Measure and print; return the exit code."""
    medians = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 31)
    floor_ms = medians[FLOOR.name]
    is_exceeded = False
    print(f"{'command':34} {'ms':>7} {'ratio':>6}  target")
    for case in CASES:
        ratio = medians[case.name] / floor_ms
        target = "" if case.most is None else f"<= {case.most:g}{'' if ratio <= case.most else '  over'}"
        is_exceeded = is_exceeded or bool(case.most and ratio > case.most)
        print(f"{case.name:34} {medians[case.name]:7.1f} {ratio:6.2f}  {target}".rstrip())
    return int(is_exceeded)


if __name__ == "__main__":
    sys.exit(main())
