"""Carries out a page that shows commands and what they said, and compares.

A page is Markdown. Its blocks are taken in order, in a folder of their own:

    ```toml .convo.toml        a block with a file's name is written down
    ```python                  one without a name is run here
    ```console                 `$ command`, and what it said on stdout and stderr

Nobody can say twice what carries a time, so ids, seconds and dates are alike whatever they are, and so are
columns however wide. `…` in a line stands for anything, alone on a line for any lines. A command that fails
must be followed by `$ echo $?`. `convo serve` stays until the page ends; the address that the page
shows is the one that it got.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from convo.cli.app import run_command_line
from tests.command_runner import text_stream, written_text
from tests.fork_server import ConvoProcess

BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORT = re.compile(r"127\.0\.0\.1:(\d+)")
SERVE, STATUS = "convo serve", "echo $?"
SHELL = re.compile(r"[|<>$`;&*]")
"""What makes a command the shell's."""

MASKS = (
    (re.compile(r"\b(resp|conv|ses|msg|run|call|item|try)_[0-9a-f]{8,}\b"), r"\1_0"),
    (re.compile(r"\b\d+\.\d\d? s\b"), "0 s"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "0-0-0"),
    (re.compile(r"\b\d\d:\d\d\b"), "0:0"),
    (re.compile(r"(?<![\d.$])\d+\.\d(?![\d.])"), "0.0"),
    (re.compile(r"[ \t]+"), " "),
)


class Block(NamedTuple):
    """One block of a page: `name` is the file that it is, or empty."""

    language: str
    name: str
    text: str


class CommandOutput(NamedTuple):
    """A command, and the lines that it is shown with."""

    command: str
    lines: tuple[str, ...]


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page)]


def parse_console(console: str) -> Iterator[CommandOutput]:
    """The commands of a console, each with its lines."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *lines = part.rstrip("\n").split("\n")
        yield CommandOutput(command, tuple(lines))


def masked(line: str) -> str:
    """`line` without what differs from run to run."""
    for pattern, instead in MASKS:
        line = pattern.sub(instead, line)
    return line.strip()


def matches(shown: tuple[str, ...], outputs: list[str]) -> bool:
    """Whether what came is what is shown."""
    lines = ["(?:.*\n)*" if line.strip() == "…" else _pattern(masked(line)) + "\n" for line in shown]
    return re.fullmatch("".join(lines), "".join(masked(line) + "\n" for line in outputs)) is not None


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


@dataclass
class TranscriptRunner:
    """Where a page is carried out.

    folder:   the working folder
    in_processes:    run every command as a process of its own, as a person does
    environ:  what is set besides
    shown:    what of this machine's own is written how
    """

    folder: Path
    in_processes: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    status: int = 0
    ports: dict[str, str] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)

    def run(self, page: str) -> list[CommandOutput]:
        """Carry the page out; what each command really said."""
        outputs: list[CommandOutput] = []
        with self.open, chdir(self.folder), patch.dict(os.environ, self.environ):
            for block in blocks(page):
                if block.name:
                    (self.folder / block.name).write_text(block.text, encoding="utf-8")
                elif block.language == "python":
                    exec(self._with_ports(block.text), {})
                elif block.language == "console":
                    outputs += self._console([one.command for one in parse_console(block.text)])
        return outputs

    def _console(self, commands: list[str]) -> Iterator[CommandOutput]:
        for command, after in zip(commands, [*commands[1:], ""], strict=True):
            lines = self._lines(command)
            if self.status and STATUS not in (command, after):
                lines.append(f"(and this failed with {self.status})")
            yield CommandOutput(command, tuple(lines))

    def _lines(self, command: str) -> list[str]:
        """What one command says, as the page would show it."""
        if command == STATUS:
            return [str(self.status)]
        text = self._run_command(self._with_ports(command))
        for there, shown in {**{f":{own}/": f":{shown}/" for shown, own in self.ports.items()}, **self.shown}.items():
            text = text.replace(there, shown)
        return text.splitlines()

    def _run_command(self, command: str) -> str:
        if command.startswith("export "):
            name, _, value = shlex.split(command)[1].partition("=")
            os.environ[name] = os.path.expandvars(value)
            return ""
        first, _, rest = command.partition(" | ")
        if not first.startswith("convo ") or SHELL.search(first):
            return self._shell(command)
        if first.startswith(SERVE):
            return self._serve(first)
        return self._shell(command) if self.in_processes else self._run_in_process(first, rest)

    def _run_in_process(self, command: str, rest: str) -> str:
        """A command in this process; the shell does what stands behind the first pipe."""
        out, err = text_stream(), text_stream()
        with redirect_stdout(out), redirect_stderr(err if rest else out), patch.object(sys, "stdin", text_stream()):
            self.status = run_command_line(shlex.split(command)[1:])
        return self._shell(rest, written_text(out)) + written_text(err) if rest else written_text(out)

    def _shell(self, command: str, given: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", f'convo() {{ {sys.executable} -m convo "$@"; }}\n{command}'],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def _with_ports(self, text: str) -> str:
        """`text` with the addresses that the servers of this page really have."""
        return PORT.sub(lambda found: f"127.0.0.1:{self.ports.get(found[1], found[1])}", text)

    def _serve(self, command: str) -> str:
        words = shlex.split(os.path.expandvars(command))[1:]
        at = words.index("--port") + 1 if "--port" in words else None
        shown = words.pop(at) if at else "8788"
        words.insert(at, "0") if at else words.extend(["--port", "0"])
        process = ConvoProcess(words, stderr=subprocess.PIPE)
        self.open.callback(_end, process)
        assert process.stderr
        line = process.stderr.readline()
        found = PORT.search(line)
        assert found, line + process.stderr.read()
        self.ports[shown] = found[1]
        return line


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate(timeout=30)


def differences(page: str, outputs: list[CommandOutput]) -> str:
    """What a page shows otherwise than it came, in words; empty where it is true."""
    shown = [one for block in blocks(page) if block.language == "console" for one in parse_console(block.text)]
    assert len(shown) == len(outputs)
    wrong = [
        f"$ {one.command}\n" + "\n".join(got.lines)
        for one, got in zip(shown, outputs, strict=True)
        if not matches(one.lines, list(got.lines))
    ]
    return "\n".join(wrong)
