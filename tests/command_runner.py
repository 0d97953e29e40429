"""Run the real command line and capture its output."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from jsonschema import Draft202012Validator

from convo.cli.app import COMMANDS, CommandTable, run_command_line
from convo.cli.commands.schema import SCHEMA_FILES, read_schema
from convo.cli.progress import forbid_progress
from tests.fork_server import ConvoProcess, run_convo

ROOT = Path(__file__).parent.parent
"""The root folder of the project."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code, stdout and stderr of a command."""

    exit: int
    out: str
    err: str

    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)


class Convo(Protocol):
    """The fixture `convo`: run the real app in this process, with separate standard streams."""

    def __call__(self, *argv: str, stdin: str = "", table: CommandTable = COMMANDS) -> CommandResult: ...


class Launch(Protocol):
    """The fixture `launch`: run the real command as a separate process."""

    def __call__(self, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> CommandResult: ...


class Start(Protocol):
    """The fixture `start`: start the command and return its process; `shell` is a shell script that runs "$@"."""

    def __call__(self, *argv: str, shell: str = "") -> "subprocess.Popen[str]": ...


class TerminalStream(io.TextIOWrapper):
    """A stream with the colors of a terminal."""

    def isatty(self) -> bool:
        return True


def text_stream(text: str = "", encoding: str = "utf-8", *, is_terminal: bool = False) -> io.TextIOWrapper:
    stream = TerminalStream if is_terminal else io.TextIOWrapper
    return stream(io.BytesIO(text.encode(encoding)), encoding=encoding)


def written_text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)


def run_in_process(
    *argv: str,
    stdin: str = "",
    table: CommandTable = COMMANDS,
    encoding: str = "utf-8",
    is_terminal: bool = False,
) -> CommandResult:
    """Run one command line in this process, without the progress of work that takes long on a busy machine.

    encoding, is_terminal:  of its standard output and error
    """
    out, err = (text_stream(encoding=encoding, is_terminal=is_terminal) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", text_stream(stdin)), forbid_progress():
        code = run_command_line(argv, table)
    result = CommandResult(code, written_text(out), written_text(err))
    validate_json_output(argv, result.out)
    return result


def validate_json_output(argv: Sequence[str], out: str) -> None:
    """Check what a command printed with `--json` or `--jsonl` with the command's schema."""
    suffix = " --jsonl" if "--jsonl" in argv else ""
    words = [word for word in argv if not word.startswith("-")]
    names = (" ".join(words[:end]) + suffix for end in (3, 2, 1))
    name = next((name for name in names if name in SCHEMA_FILES), None)
    if name and (suffix or "--json" in argv):
        for document in map(json.loads, out.splitlines()):
            is_error = isinstance(document, dict) and {"error"} <= document.keys() <= {"error", "handle", "name"}
            schema_validator("error" if is_error else name).validate(document)


@cache
def schema_validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(read_schema(name)))


def run_as_process(*argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> CommandResult:
    """Run one command line as a process (see `tests.fork_server`); `env` is added to the environment."""
    result = run_convo(argv, stdin=stdin, env={**os.environ, **(env or {})})
    return CommandResult(result.returncode, result.stdout, result.stderr)


def write_project_file(text: str, folder: Path = Path()) -> Path:
    """Write a project's settings file and trust it. Returns its path."""
    file = folder.absolute() / ".convo.toml"
    file.write_text(text, encoding="utf-8")
    trusted = run_in_process("config", "trust", str(file))
    assert trusted.exit == 0, trusted
    return file


def start_process(*argv: str, shell: str = "") -> "subprocess.Popen[str]":
    """Start one command line as a process, with pipes for its output."""
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if not shell:
        return ConvoProcess(argv, preexec_fn=restore_sighup, **streams)
    command = ["/bin/sh", "-c", shell, "sh", sys.executable, "-m", "convo", *argv]
    return subprocess.Popen(command, encoding="utf-8", preexec_fn=restore_sighup, **streams)


def restore_sighup() -> None:
    """Reset SIGHUP: the parent may ignore it, and the process would inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
