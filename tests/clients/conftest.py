"""`convo serve` as a separate process, in front of an upstream that answers every request."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.clients.upstream import Upstream, run_upstream
from tests.conftest import LEAKS

CELL = "cell of the table of clients"
"""The property of a test that is a cell of the table: the client, the upstream, and the expected outcome."""

ALIAS = "gpt-5-behind-convo"
"""A model name that clients treat as a reasoning model."""

CHAT_ALIAS, CLAUDE_ALIAS = "gpt-5.5", "gpt-5.5-claude"
"""Model names whose tools Codex knows, for a chat model and for Claude."""

SETTINGS = """
[providers.upstream]
api = "chat"
base_url = "{url}"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[aliases]
"{alias}" = "upstream/m"
"{chat_alias}" = "upstream/m"
"{claude_alias}" = "claude/claude-opus-5"
"""


@pytest.fixture(scope="module")
def running_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Upstream]]:
    """The base URL of a gateway that stores state in SQLite, and the upstream behind its alias `ALIAS`."""
    folder = tmp_path_factory.mktemp("gateway")
    settings = folder / "convo.toml"
    with run_upstream() as server:
        settings.write_text(
            SETTINGS.format(url=server.url, alias=ALIAS, chat_alias=CHAT_ALIAS, claude_alias=CLAUDE_ALIAS),
            encoding="utf-8",
        )
        with gateway(folder, "--config", str(settings), "serve", "--port", "0", "--store", "sqlite:convo.db") as url:
            yield f"{url}/v1", server


@pytest.fixture
def base_url(running_gateway: tuple[str, Upstream]) -> str:
    return running_gateway[0]


@pytest.fixture
def upstream(running_gateway: tuple[str, Upstream]) -> Upstream:
    """The upstream, without recorded requests."""
    running_gateway[1].reset()
    return running_gateway[1]


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=base_url, api_key="any") as client:
        yield client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of clients and upstreams, if cells of it were tested."""
    outcomes: dict[str, dict[str, str]] = {}
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == CELL and (report.when == "call" or report.failed):
                client, upstream, expected = value
                outcome = f"{expected} {report.duration:.1f} s" if report.passed else "FAILED"
                outcomes.setdefault(client, {})[upstream] = outcome
    if sum(map(len, outcomes.values())) > len(outcomes):
        upstreams = sorted({upstream for row in outcomes.values() for upstream in row})
        terminalreporter.section("clients")
        for client, row in [("", {upstream: upstream for upstream in upstreams}), *sorted(outcomes.items())]:
            cells = "".join(f"{row.get(upstream, ''):18}" for upstream in upstreams)
            terminalreporter.write_line(f"{client:22}{cells}".rstrip())


@contextmanager
def gateway(folder: Path, *argv: str) -> Iterator[str]:
    """Run the command with these arguments in `folder` while the block runs; yield the address that it prints."""
    command = [sys.executable, "-m", "convo", *argv]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS)}
    environ = inherited | {"CONVO_HOME": str(folder / "home")}
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, encoding="utf-8", env=environ, cwd=folder, **pipes) as process:
        assert process.stderr is not None
        output = ""
        while not (address := re.search(r"http://[^,\s]+", output)):
            line = process.stderr.readline()
            assert line, output
            output += line
        try:
            yield address[0].removesuffix("/v1")
        finally:
            process.terminate()
            process.communicate(timeout=20)
