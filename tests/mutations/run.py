"""Run the tests that cover each mutated line, each mutation in a fork.

Every job has a copy of the project. Most mutations are in the body of a function: a process collects all tests once,
and a fork of it replaces the code of that function and runs its tests. The others (constants, classes, functions
that run on import) are tried in a fork that imports convo and the tests again; the dependencies are imported before.
In both, the changed file is in the copy, for the processes that tests start.
"""

import gc
import inspect
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

from tests.mutations.draw import Mutation

STAGES = ((6.0, 60, 5), (20.0, 200, 20), (60.0, 1000, 1000))
"""For each batch of tests: its maximum duration in seconds, its maximum number of tests, and of cases of one test."""

FEW = 3
"""If fewer tests cover a line, the tests of the mirrored folder run too."""

NEW_TEST_S = 0.1
"""The assumed duration of a test that is newer than the recorded run."""

BATCH_START_TIMEOUT_S = 60.0
SLOWDOWN = 5.0
"""A batch may take this many times its recorded duration, and the time to start beside that."""

PYTEST_OPTIONS = (
    *("-q", "-n", "0", "--timeout=60", "-p", "no:cacheprovider", "-p", "no:cov"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

IGNORED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")

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
    for old in folder.glob("lines-*.jsonl"):
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutations.record", "-o", "timeout=400"]
    return subprocess.call(command, env={**os.environ, "RECORD_LINES": str(folder)})


def run(folder: Path, mutations: Sequence[Mutation], *, jobs: int, all_tests: bool = False) -> list[Result]:
    """Run every mutation that has no result in `folder` yet; return all results in order.

    all_tests:  run all tests that cover a mutation, not only those of the time budget
    """
    root = Path.cwd()
    tests = Tests(folder, mutations, all_tests=all_tests)
    _import_dependencies()
    drivers = []
    for job in range(jobs):
        copy = folder / f"copy{job}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy, ignore=IGNORED)
        driver = os.fork()
        if not driver:
            Job(folder, copy, tests, list(enumerate(mutations))[job::jobs]).run()
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
    result = subprocess.run([sys.executable, "-c", LIST_MODULES], capture_output=True, text=True, check=True)
    for name in result.stdout.splitlines()[-1].split():
        with suppress(Exception):
            import_module(name)


class Tests:
    """The tests that run each mutation, and the seconds of each test."""

    def __init__(self, folder: Path, mutations: Sequence[Mutation], *, all_tests: bool) -> None:
        self._stages = (*STAGES, (math.inf, sys.maxsize, sys.maxsize)) if all_tests else STAGES
        self._seconds: dict[str, float] = {}
        self._new: set[str] = set()
        self._recorded: dict[Mutation, set[str]] = {mutation: set() for mutation in mutations}
        self._on_import: set[Mutation] = set()
        self._not_covered: set[Mutation] = set()
        by_file: dict[str, list[tuple[Mutation, int]]] = {}
        same_file: dict[str, set[str]] = {}
        for mutation in mutations:
            bits = sum(1 << line for line in _lines(mutation))
            by_file.setdefault(mutation.file, []).append((mutation, bits))
        for record in _records(folder):
            test = record["test"]
            if "seconds" in record and test:
                self._seconds[test] = record["seconds"]
            for file in record["lines"].keys() & by_file.keys():
                ran = int(record["lines"][file], 16)
                same_file.setdefault(file, set()).add(test)
                for mutation, bits in by_file[file]:
                    if ran & bits:
                        self._recorded[mutation].add(test)
        for mutation, tests in self._recorded.items():
            if "" in tests:
                self._on_import.add(mutation)
            if not tests - {""}:
                tests |= same_file.get(mutation.file, set())
                self._not_covered.add(mutation)
            tests.discard("")

    def add(self, tests: Iterable[str]) -> None:
        """Add the tests that the recorded run did not have; they may cover each line of the folder that they mirror."""
        self._new = set(tests) - self._seconds.keys()
        self._seconds |= dict.fromkeys(self._new, NEW_TEST_S)

    def runs_on_import(self, mutation: Mutation) -> bool:
        return mutation in self._on_import

    def covering(self, mutation: Mutation) -> list[str]:
        """Return the tests that cover a mutation: those near the module first, and then the fastest first.

        The tests of the mirrored folder that are not known to cover it are the last.
        """
        recorded = found = self._recorded[mutation]
        near = "tests/" + mutation.file.removeprefix("convo/").rpartition("/")[0] + "/"
        if near != "tests//":
            mirrored = self._seconds if len(found) < FEW or mutation in self._not_covered else self._new
            found = found | {test for test in mirrored if test.startswith(near)}
        known = found & self._seconds.keys()
        return sorted(known, key=lambda test: (test not in recorded, not test.startswith(near), self._seconds[test]))

    def batches(self, tests: Sequence[str]) -> Iterator[list[str]]:
        """Yield batches of tests in the order in which they run."""
        remaining = list(tests)
        for seconds, count, cases in self._stages:
            batch: list[str] = []
            functions = Counter[str]()
            spent = 0.0
            for test in remaining:
                function = test.split("[")[0]
                if functions[function] < cases and spent + self._seconds[test] < seconds and len(batch) < count:
                    batch.append(test)
                    functions[function] += 1
                    spent += self._seconds[test]
            remaining = [test for test in remaining if test not in set(batch)]
            if batch:
                yield batch

    def seconds(self, tests: Sequence[str]) -> float:
        return sum(self._seconds[test] for test in tests)


def _lines(mutation: Mutation) -> range:
    return range(mutation.line, mutation.line + mutation.old.count("\n") + 1)


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("lines-*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


# -- one job ---------------------------------------------------------------------------------------


class Job:
    """Tries mutations one after the other in one copy of the project, and appends the results to a file."""

    def __init__(self, folder: Path, copy: Path, tests: Tests, mutations: Sequence[tuple[int, Mutation]]) -> None:
        self._folder, self._copy, self._tests, self._mutations = folder, copy, tests, mutations
        self._output = copy / ".output"

    def run(self) -> None:
        collector = os.fork()
        if not collector:
            self._begin(self._copy / ".collected")
            _import_from(self._copy)
            with suppress(BaseException):
                pytest.main([*PYTEST_OPTIONS], plugins=[self])
            os._exit(0)
        os.waitpid(collector, 0)
        for number, mutation in self._remaining():
            self._try(number, mutation, self._import_and_run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutations of functions, each in a fork of the process that collected all tests."""
        self._items = {item.nodeid: item for item in session.items}
        self._tests.add(self._items)
        self._functions = _functions_by_file(self._copy)
        databases = import_module("tests.databases")  # of the copy
        if databases.available():
            databases.server()  # one for all forks
        for number, mutation in self._remaining():
            code = None if self._tests.runs_on_import(mutation) else self._changed_functions(mutation)
            if code:
                self._try(number, mutation, partial(self._replace_and_run, code))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a fork of the collecting process with the first test that fails."""
        if report.failed:
            self._output.write_text(f"FAILED {report.nodeid}\n", "utf-8")
            os._exit(1)

    def _remaining(self) -> list[tuple[int, Mutation]]:
        done_numbers = {result.number for result in _results(self._folder)}
        return [each for each in self._mutations if each[0] not in done_numbers]

    def _try(self, number: int, mutation: Mutation, run_tests: Callable[[Sequence[str]], NoReturn]) -> None:
        started_at = time.monotonic()
        file = self._copy / mutation.file
        before = file.read_bytes()
        file.write_bytes(mutation.applied(before))
        covering = self._tests.covering(mutation)
        failure = ""
        for batch in self._tests.batches(covering):
            failure = self._failure(batch, run_tests)
            if failure:
                break
        file.write_bytes(before)
        duration_s = round(time.monotonic() - started_at, 1)
        result = Result(number, not failure, failure or "no test failed", len(covering), duration_s)
        with (self._folder / "results.jsonl").open("a", encoding="utf-8") as results:
            results.write(json.dumps(asdict(result)) + "\n")

    def _failure(self, batch: Sequence[str], run_tests: Callable[[Sequence[str]], NoReturn]) -> str:
        """Run these tests in a fork. Returns the failure; "" if all pass."""
        self._output.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._begin(self._output)
            with suppress(BaseException):
                run_tests(batch)
            os._exit(70)
        deadline = time.monotonic() + BATCH_START_TIMEOUT_S + SLOWDOWN * self._tests.seconds(batch)
        while True:
            ended_pid, status = os.waitpid(child, os.WNOHANG)
            if ended_pid:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "the tests did not end"
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # processes that a failed test did not end
        if os.waitstatus_to_exitcode(status) == 0:
            return ""
        lines = self._output.read_text("utf-8", "replace").splitlines()
        failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return (failures or lines[-1:] or [str(status)])[0][:200]

    def _begin(self, output: Path) -> None:
        """Make a fork the leader of a process group, in the copy, with its output in a file."""
        os.setsid()
        os.chdir(self._copy)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)

    def _import_and_run(self, batch: Sequence[str]) -> NoReturn:
        code: int = 70
        _import_from(self._copy)
        try:
            code = pytest.main(["-x", *PYTEST_OPTIONS, *batch])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _replace_and_run(self, code: Mapping[FunctionType, CodeType], batch: Sequence[str]) -> NoReturn:
        for function, changed in code.items():
            function.__code__ = changed
        vars(import_module("tests.databases"))["WORKER"] = f"fork{os.getpid()}"  # each fork has databases of its own
        items = [self._items[test] for test in batch if test in self._items]
        for item, following in zip(items, [*items[1:], items[-1]], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        os._exit(0)

    def _changed_functions(self, mutation: Mutation) -> dict[FunctionType, CodeType] | None:
        """Return the new code of the mutated file's functions; None if the mutation is not in a function's body."""
        file = self._copy / mutation.file
        source = file.read_bytes()
        before = _code_objects(compile(source, str(file), "exec"))
        after = _code_objects(compile(mutation.applied(source), str(file), "exec"))
        if [code.co_qualname for code, _ in before] != [code.co_qualname for code, _ in after]:
            return None
        changed = [at for at, (code, _) in enumerate(before) if _own_parts(code) != _own_parts(after[at][0])]
        index = {_span(code): at for at, (code, _) in enumerate(before)}
        functions = self._functions.get(mutation.file, [])
        new: dict[FunctionType, CodeType] = {}
        for function in functions:
            at = index.get(_span(function.__code__))
            if at is None or len(after[at][0].co_freevars) != len(function.__code__.co_freevars):
                return None
            new[function] = after[at][0]
        loaded = {index[_span(function.__code__)] for function in functions}
        for at in changed:
            code, around = before[at]
            if not code.co_flags & inspect.CO_OPTIMIZED or not loaded & {at, *around}:
                return None
        return new


def _import_from(copy: Path) -> None:
    """Import convo and the tests from the copy from now on, also in the processes that tests start."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("convo", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(copy))
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True


def _code_objects(module: CodeType) -> list[tuple[CodeType, tuple[int, ...]]]:
    """Return the code of a module, its functions and classes, each with the indexes of those around it."""
    found: list[tuple[CodeType, tuple[int, ...]]] = []

    def add(code: CodeType, around: tuple[int, ...]) -> None:
        inside = (*around, len(found))
        found.append((code, around))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                add(constant, inside)

    add(module, ())
    return found


def _span(code: CodeType) -> tuple[object, ...]:
    return code.co_qualname, *code.co_positions()


def _own_parts(code: CodeType) -> tuple[object, ...]:
    """Return the parts of a code object that decide its behaviour, without those of the code in it."""
    constants = tuple((type(each), each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, repr(constants), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _functions_by_file(copy: Path) -> dict[str, list[FunctionType]]:
    package = str(copy / "convo") + os.sep
    found: dict[str, list[FunctionType]] = {}
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename.startswith(package):
            found.setdefault(os.path.relpath(value.__code__.co_filename, copy), []).append(value)
    return found
