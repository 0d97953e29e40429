"""Run `convo serve` as a separate process."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.fork_server import ConvoProcess


@dataclass
class ServeProcess:
    """A running `convo serve`.

    ready_line:  the line on stderr that reports the address of the server
    err:         the other lines of stderr; complete after `stop`
    """

    process: subprocess.Popen[str]
    ready_line: str
    err: str = ""
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        address = re.search(r"http://[^,\s]+(?=/v1)", self.ready_line)
        assert address, self.ready_line
        self.http = httpx2.Client(base_url=address[0], timeout=30, trust_env=False)

    @property
    def root(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def create_response(self, text: str, **fields: Any) -> Any:
        """Send one request to the model "echo", or to the model in `fields`; return the response."""
        got = self.http.post("/v1/responses", json={"model": "echo", "input": text, **fields})
        assert got.status_code == 200, got.text
        return got.json()

    def stop(self, *signals: int) -> int:
        """Send these signals and wait for the end of the process; return the exit code."""
        for number in signals:
            self.process.send_signal(number)
        self.err += self.process.communicate(timeout=60)[1]
        self.http.close()
        return self.process.returncode


@contextmanager
def run_serve(*argv: str, python: tuple[str, ...] = (), before: tuple[str, ...] = ()) -> Iterator[ServeProcess]:
    """Run `convo BEFORE serve --port 0 ARGV` during the block; `python` contains options of the interpreter."""
    arguments = [*before, "serve", "--port", "0", *argv]
    devnull, pipe = subprocess.DEVNULL, subprocess.PIPE
    command = [sys.executable, *python, "-m", "convo", *arguments]
    with (
        subprocess.Popen(command, stdout=devnull, stderr=pipe, encoding="utf-8")
        if python
        else ConvoProcess(arguments, stdout=devnull, stderr=pipe)
    ) as process:
        assert process.stderr
        lines: list[str] = []
        line = ""
        while "convo serves" not in line:
            line = process.stderr.readline()
            assert line, "".join(lines)
            lines.append(line)
        server = ServeProcess(process, line, "".join(lines[:-1]))
        try:
            yield server
        finally:
            if process.poll() is None:
                server.stop(signal.SIGKILL)


def config_flags(folder: Path, text: str) -> tuple[str, str]:
    """Write a settings file with this text; return the flags that select it."""
    file = folder / "serve.toml"
    file.write_text(text, encoding="utf-8")
    return "--config", str(file)
