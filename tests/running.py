"""Run the real command line and keep what it said."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from convo.cli.app import COMMANDS, CommandTable, run_command_line
from tests.warm import Begun, ran

ROOT = Path(__file__).parent.parent
"""The project's folder."""


@dataclass(frozen=True, slots=True)
class Got:
    """What a command left behind: its exit code, stdout and stderr."""

    exit: int
    out: str
    err: str

    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)


class Convo(Protocol):
    """The fixture `convo`: the real app in this process, with streams of its own."""

    def __call__(self, *argv: str, stdin: str = "", table: CommandTable = COMMANDS) -> Got: ...


class Launch(Protocol):
    """The fixture `launch`: the real command as a process of its own."""

    def __call__(self, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Got: ...


class Start(Protocol):
    """The fixture `start`: the same, begun and not waited for; `shell` is what a shell does around it, in "$@"."""

    def __call__(self, *argv: str, shell: str = "") -> "subprocess.Popen[str]": ...


def stream(text: str = "", encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode(encoding)), encoding=encoding)


def said(written: io.TextIOWrapper) -> str:
    written.flush()
    assert isinstance(written.buffer, io.BytesIO)
    return written.buffer.getvalue().decode(written.encoding)


def in_process(*argv: str, stdin: str = "", table: CommandTable = COMMANDS, encoding: str = "utf-8") -> Got:
    """Run one command line here; `encoding` is the terminal's."""
    out, err = stream(encoding=encoding), stream(encoding=encoding)
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", stream(stdin)):
        code = run_command_line(argv, table)
    return Got(code, said(out), said(err))


def in_a_process(*argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Got:
    """Run one command line as its own process, see `tests.warm`; `env` is added to this one's environment."""
    done = ran(argv, stdin=stdin, env={**os.environ, **(env or {})})
    return Got(done.returncode, done.stdout, done.stderr)


def project_file(text: str, folder: Path = Path()) -> Path:
    """Write a project's settings file and trust it; returns its path."""
    place = folder.absolute() / ".convo.toml"
    place.write_text(text, encoding="utf-8")
    trusted = in_process("config", "trust", str(place))
    assert trusted.exit == 0, trusted
    return place


def begun(*argv: str, shell: str = "") -> "subprocess.Popen[str]":
    """Begin one command line as its own process, with pipes at what it says."""
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if not shell:
        return Begun(argv, preexec_fn=hears_a_hangup, **streams)
    around = ["/bin/sh", "-c", shell, "sh", sys.executable, "-m", "convo", *argv]
    return subprocess.Popen(around, encoding="utf-8", preexec_fn=hears_a_hangup, **streams)


def hears_a_hangup() -> None:
    """Whatever runs the tests may ignore it, and would hand that down."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
