"""Run the tests that cover each mutated line, each mutation in a fork that has imported the dependencies.

Every job has a copy of the project. A fork imports convo and the tests from it, so a mutation takes one
second instead of four for importing everything again.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from tests.mutations.draw import Mutation

STAGES = ((6.0, 40), (20.0, 150), (60.0, 800))
"""For each batch of tests: its maximum duration in seconds and its maximum number of tests."""

FEW = 3
"""If fewer tests cover a line, the tests of the mirrored folder run too."""

TEST_S = 60
LOT_S = 300.0

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")

LIST_MODULES = """
import pkgutil, sys
from contextlib import suppress
from importlib import import_module
import convo, tests, pytest
for package in (convo, tests):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with suppress(BaseException):
                import_module(module.name)
print(*(name for name in sys.modules if name.split(".")[0] not in ("convo", "tests", "__main__")))
"""


@dataclass(frozen=True)
class Result:
    """`by`: the test that failed, or the reason; `covering`: the number of tests that run the line."""

    number: int
    survived: bool
    by: str
    covering: int
    seconds: float


def cover(folder: Path) -> int:
    """Run the whole suite once and record the lines and the duration of each test. Returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "coverage.ini"
    settings.write_text(f"[run]\nsource = convo\ndata_file = {folder / 'coverage'}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutations.durations", "-o", "timeout=400"]
    command += ["--cov=convo", "--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
    (folder / "durations.jsonl").unlink(missing_ok=True)
    return subprocess.call(command, env={**os.environ, "DURATIONS": str(folder / "durations.jsonl")})


def run(folder: Path, mutations: Sequence[Mutation], *, jobs: int) -> list[Result]:
    """Run every mutation that has no result in `folder` yet; return all results in order."""
    root = Path.cwd()
    tests = Tests(folder, root)
    _import_dependencies()
    drivers = []
    for job in range(jobs):
        copy = folder / f"copy{job}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy, ignore=LEFT_OUT)
        driver = os.fork()
        if not driver:
            _drive(folder, copy, tests, list(enumerate(mutations))[job::jobs])
            os._exit(0)
        drivers.append(driver)
    for driver in drivers:
        os.waitpid(driver, 0)
    return sorted(_results(folder), key=lambda result: result.number)


def _results(folder: Path) -> Iterator[Result]:
    with suppress(FileNotFoundError):
        for line in (folder / "results.jsonl").read_text("utf-8").splitlines():
            yield Result(**json.loads(line))


def _import_dependencies() -> None:
    listed = subprocess.run([sys.executable, "-c", LIST_MODULES], capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines()[-1].split():
        with suppress(Exception):
            import_module(name)


class Tests:
    """The tests that run each line, and the seconds of each test."""

    def __init__(self, folder: Path, root: Path) -> None:
        from coverage import CoverageData

        self._root = root
        self._data = CoverageData(str(folder / "coverage"))
        self._data.read()
        lines = (folder / "durations.jsonl").read_text("utf-8").splitlines()
        self._seconds: Mapping[str, float] = dict(json.loads(line) for line in lines)

    def covering(self, mutation: Mutation) -> list[str]:
        """Return the tests that cover a mutation: first those near the module, then the others, the fastest first."""
        by_line = self._data.contexts_by_lineno(str(self._root / mutation.file))
        lines = range(mutation.line, mutation.line + mutation.old.count("\n") + 1)
        found = _named(context for line in lines for context in by_line.get(line, []))
        found = found or _named(context for contexts in by_line.values() for context in contexts)
        near = "tests/" + mutation.file.removeprefix("convo/").rpartition("/")[0] + "/"
        if len(found) < FEW and near != "tests//":
            found |= {test for test in self._seconds if test.startswith(near)}
        known = found & self._seconds.keys()
        return sorted(known, key=lambda test: (not test.startswith(near), self._seconds[test]))

    def lots(self, tests: Sequence[str]) -> Iterator[list[str]]:
        """Yield batches of tests in the order in which they run, with one case of each function in a batch."""
        left = list(tests)
        for seconds, count in STAGES:
            lot: list[str] = []
            functions: set[str] = set()
            spent = 0.0
            for test in left:
                function = test.split("[")[0]
                if function not in functions and spent + self._seconds[test] < seconds and len(lot) < count:
                    lot.append(test)
                    functions.add(function)
                    spent += self._seconds[test]
            left = [test for test in left if test not in set(lot)]
            if lot:
                yield lot


def _named(contexts: Iterator[str]) -> set[str]:
    return {context.partition("|")[0] for context in contexts if "|" in context}


def _drive(folder: Path, copy: Path, tests: Tests, mutations: Sequence[tuple[int, Mutation]]) -> None:
    done = {result.number for result in _results(folder)}
    for number, mutation in mutations:
        if number in done:
            continue
        began = time.monotonic()
        file = copy / mutation.file
        before = file.read_bytes()
        file.write_bytes(mutation.applied(before))
        covering = tests.covering(mutation)
        outcome: tuple[Literal["passed", "failed"], str] = "passed", "no test failed"
        for lot in tests.lots(covering):
            outcome = _tried(copy, lot)
            if outcome[0] == "failed":
                break
        file.write_bytes(before)
        took = round(time.monotonic() - began, 1)
        result = Result(number, outcome[0] == "passed", outcome[1], len(covering), took)
        with (folder / "results.jsonl").open("a", encoding="utf-8") as results:
            results.write(json.dumps(asdict(result)) + "\n")


def _tried(copy: Path, lot: Sequence[str]) -> tuple[Literal["passed", "failed"], str]:
    """Run these tests in a fork, in the copy."""
    output = copy / ".output"
    child = os.fork()
    if not child:
        _run_tests(copy, lot, output)
    until = time.monotonic() + LOT_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "failed", "the tests did not end"
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that a failed test did not end
    if os.waitstatus_to_exitcode(status) == 0:
        return "passed", "no test failed"
    lines = output.read_text("utf-8", "replace").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "failed", (failed or lines[-1:] or [str(status)])[0][:200]


def _run_tests(copy: Path, lot: Sequence[str], output: Path) -> None:
    import pytest

    os.setsid()
    os.chdir(copy)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for name in [name for name in sys.modules if name.split(".")[0] in ("convo", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(copy))
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "-p", "no:cov"]
    code = 70
    try:
        code = pytest.main(["-x", "-q", "-n", "0", f"--timeout={TEST_S}", *quiet, *lot])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
