"""Fixtures of all tests: a separate CONVO_HOME, a clean environment, and the real command."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command_runner import Convo, Launch, Start, run_as_process, run_in_process, start_process
from tests.tls_context import share_tls_context

pytest_plugins = ("pytester", "tests.loopback_server", "tests.needs")

LEAKS = ("OPENAI_", "CONVO_", "ANTHROPIC_", "AZURE_", "DEEPSEEK_", "OLLAMA_", "UV_", "_CONVO_")
"""Prefixes of environment variables that would apply the developer's own settings to a test."""

TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")

settings.register_profile("short", parent=settings.default, deadline=None, max_examples=30)
settings.register_profile("long", parent=settings.default, deadline=None, max_examples=500)


MEMORY = Path("/dev/shm")
"""A folder in memory, on Linux: syncing a file there takes microseconds instead of milliseconds."""

MIN_FREE_BYTES = 2 * 1024**3


def can_use_memory(folder: Path) -> bool:
    """Whether the tests can write, and run programs, in a folder in memory with enough space."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > MIN_FREE_BYTES


def pytest_configure(config: pytest.Config) -> None:
    """Run more examples in each property test if the long variants run, and let processes store compiled modules.

    With PYTHONDONTWRITEBYTECODE every process of the run would compile all modules that it imports. The mutations
    need that, and exclude pytest's plugin for caches. The keyring of the machine is never used.
    """
    os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background: every process would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("cacheprovider"):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # before the workers start
        sys.dont_write_bytecode = False
    if not config.option.basetemp and can_use_memory(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # the folders of the tests
    share_tls_context()
    settings.load_profile("long" if "full" in config.option.markexpr else "short")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Three workers for two cores: for almost half of the time a worker waits for a terminal, a timer or a server."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores * 3 // 2)


@given(st.none())
def run_a_first_property(_: None) -> None:
    """Let Hypothesis register its generator of random numbers before a test calls `gc.freeze`.

    It asks the collector which objects refer to the generator. From Python 3.14 on, frozen ones are not found.
    """


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collections: one among the modules and tests takes half a second."""
    run_a_first_property()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the CONVO_HOME of this test, and remove the developer's settings from the environment."""
    for name in list(os.environ):
        if name.startswith(LEAKS) or name.endswith(("_API_KEY", "_PROXY", "_proxy")) or name in TERMINAL:
            monkeypatch.delenv(name)
    monkeypatch.setenv("CONVO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def convo() -> Convo:
    """`convo("inspect", "nope")` runs the real app in this process and returns a `CommandResult`."""
    return run_in_process


@pytest.fixture
def launch() -> Launch:
    """`launch("sessions")` runs the real command as a process and returns a `CommandResult`."""
    return run_as_process


@pytest.fixture
def start() -> Iterator[Start]:
    """`start("chat")` starts the real command as a process and returns it; it is killed after the test."""
    with ExitStack() as started:

        def begin(*argv: str, shell: str = "") -> "subprocess.Popen[str]":
            process = started.enter_context(start_process(*argv, shell=shell))
            started.callback(process.kill)
            return process

        yield begin
