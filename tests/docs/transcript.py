"""Runs a page that shows commands and their output, and compares the output.

A page is Markdown. Its blocks are processed in order, in a separate folder:

    ```toml .convo.toml        a block with a file name is written to that file
    ```python                  a block without a name runs in this process
    ```console                 `$ command`, followed by its output on stdout and stderr

Ids, seconds and dates differ from run to run, so any two of them are equal in a comparison, and so are columns
of any width. `…` in a line matches any text; alone on a line it matches any lines. `$ echo $?` must follow a
command that fails. `convo serve` runs until the page ends; commands use its real
port in place of the port that the page shows. If it does not start, it is a command like any other. On a page with
`https://convo.example.com` that address is a proxy with TLS in front of the server.

After a comment `<!-- machine: NAME -->` the commands run as on another machine: with a CONVO_HOME of its own, so with
other settings and another store. The working folder stays the same, as if every file was copied. The comment
`<!-- stop: servers -->` stops the servers of the page, so that everything that they record is written.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from convo.cli.app import run_command_line
from tests.command_runner import text_stream, written_text
from tests.docs.tls_proxy import PUBLIC_URL, run_tls_proxy
from tests.fork_server import ConvoProcess

BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$|^<!-- (machine|stop|replies): (.*?) -->$", re.DOTALL | re.MULTILINE)
MACHINE, STOP, REPLIES = "machine", "stop", "replies"
PORT = re.compile(r"127\.0\.0\.1:(\d+)")
SERVE, STATUS = "convo serve", "echo $?"
SHELL = re.compile(r"[|<>$`;&*]")
"""Characters that require a shell to run the command."""

MASKS = (
    (re.compile(r"\b(resp|conv|ses|msg|run|call|item|try)_[0-9a-f]{8,}\b"), r"\1_0"),
    (re.compile(r"\bconvo_[\w-]{43}(?![\w-])"), "convo_0"),
    (re.compile(r"\b\d+\.\d\d? s\b"), "0 s"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "0-0-0"),
    (re.compile(r"\b\d\d:\d\d\b"), "0:0"),
    (re.compile(r"(?<![\d.$])\d+\.\d(?![\d.])"), "0.0"),
    (re.compile(r"[ \t]+"), " "),
)


class Block(NamedTuple):
    """One block of a page; `name` is the name of its file or machine, or empty; of `stop` it is "servers"."""

    language: str
    name: str
    text: str


class CommandOutput(NamedTuple):
    """A command and the lines of its output."""

    command: str
    lines: tuple[str, ...]


def blocks(page: str) -> list[Block]:
    return [Block(found[1] or found[4], found[2] or found[5] or "", found[3] or "") for found in BLOCK.finditer(page)]


def parse_console(console: str) -> Iterator[CommandOutput]:
    """Yield the commands of a console block, each with the lines of its output."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *lines = part.rstrip("\n").split("\n")
        yield CommandOutput(command, tuple(lines))


def masked(line: str) -> str:
    """Replace the values in a line that differ from run to run."""
    for pattern, instead in MASKS:
        line = pattern.sub(instead, line)
    return line.strip()


def matches(expected: tuple[str, ...], outputs: list[str]) -> bool:
    """Whether the output matches the lines that the page shows."""
    lines = ["(?:.*\n)*" if line.strip() == "…" else _pattern(masked(line)) + "\n" for line in expected]
    return re.fullmatch("".join(lines), "".join(masked(line) + "\n" for line in outputs)) is not None


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


@dataclass
class TranscriptRunner:
    """Runs the blocks of a page.

    folder:        the working folder
    in_processes:  run each command as a separate process, as in a shell
    environ:       additional environment variables
    shown:         replacements for values of this machine in the output
    use_replies:   called with the JSON of a comment `<!-- replies: [...] -->` when it is reached
    """

    folder: Path
    in_processes: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    use_replies: Callable[[str], object] = json.loads
    status: int = 0
    has_public_url: bool = False
    public_url: str = ""
    ports: dict[str, str] = field(default_factory=dict)
    open: ExitStack = field(default_factory=ExitStack)

    def run(self, page: str) -> list[CommandOutput]:
        """Run the page and return the actual output of each command."""
        outputs: list[CommandOutput] = []
        self.has_public_url = PUBLIC_URL in page
        with self.open, chdir(self.folder), patch.dict(os.environ, self.environ):
            for block in blocks(page):
                if block.language == MACHINE:
                    os.environ["CONVO_HOME"] = str(self.folder.parent / block.name)
                elif block.language == STOP:
                    self.open.close()
                elif block.language == REPLIES:
                    self.use_replies(block.name)
                elif block.name:
                    (self.folder / block.name).write_text(block.text, encoding="utf-8")
                elif block.language == "python":
                    run_python(self._with_ports(block.text))
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
        """Run a command and return its output in the form that the page shows."""
        if command == STATUS:
            return [str(self.status)]
        text = self._run_command(self._with_ports(command))
        for there, shown_port in {
            **{f":{own_port}/": f":{shown_port}/" for shown_port, own_port in self.ports.items()},
            **self.shown,
        }.items():
            text = text.replace(there, shown_port)
        return text.splitlines()

    def _run_command(self, command: str) -> str:
        if command.startswith("export "):
            name = command.removeprefix("export ").partition("=")[0]
            os.environ[name] = self._shell(f'{command} && printf %s "${name}"')
            return ""
        if command.startswith(SERVE) and "--new-key" not in command:
            return self._serve(command)
        first, _, rest = command.partition(" | ")
        if not first.startswith("convo ") or SHELL.search(first):
            return self._shell(command)
        return self._shell(command) if self.in_processes else self._run_in_process(first, rest)

    def _run_in_process(self, command: str, rest: str) -> str:
        """Run a command in this process; a shell runs the part after the first pipe."""
        out, err = text_stream(), text_stream()
        with redirect_stdout(out), redirect_stderr(err if rest else out), patch.object(sys, "stdin", text_stream()):
            self.status = run_command_line(shlex.split(command)[1:])
        return self._shell(rest, written_text(out)) + written_text(err) if rest else written_text(out)

    def _shell(self, command: str, stdin: str = "") -> str:
        result = subprocess.run(
            ["bash", "-c", f'convo() {{ {sys.executable} -m convo "$@"; }}\n{command}'],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        self.status = result.returncode
        return result.stdout

    def _with_ports(self, text: str) -> str:
        """`text` with the actual addresses of the servers of this page; curl knows the public one by its name."""
        text = PORT.sub(lambda found: f"127.0.0.1:{self.ports.get(found[1], found[1])}", text)
        return text if text.startswith("curl ") else text.replace(PUBLIC_URL, self.public_url or PUBLIC_URL)

    def _serve(self, command: str) -> str:
        arguments = shlex.split(os.path.expandvars(command))[1:]
        index = arguments.index("--port") + 1 if "--port" in arguments else None
        shown_port = arguments.pop(index) if index else "8788"
        arguments.insert(index, "0") if index else arguments.extend(["--port", "0"])
        process = ConvoProcess(arguments, stderr=subprocess.PIPE)
        self.open.callback(_end, process)
        assert process.stderr
        shown = ""
        while not (found := PORT.search(shown)) and (line := process.stderr.readline()):
            shown += line
        if not found:  # it is refused
            self.status = process.wait()
            return shown
        self.ports[shown_port] = found[1]
        if self.has_public_url:
            self.public_url = self.open.enter_context(run_tls_proxy(int(found[1]), self.folder.parent / "proxy"))
            self.shown[self.public_url] = PUBLIC_URL
        return shown


def run_python(program: str) -> None:
    """Run a program in this process and close its clients: their open sockets would fail a later test as garbage."""
    from openai import OpenAI

    variables: dict[str, object] = {}
    exec(program, variables)
    for value in variables.values():
        if isinstance(value, OpenAI):
            value.close()


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate(timeout=30)


def differences(page: str, outputs: list[CommandOutput]) -> str:
    """The commands whose output differs from the page, with their actual output; empty if there are none."""
    commands = [one for block in blocks(page) if block.language == "console" for one in parse_console(block.text)]
    assert len(commands) == len(outputs)
    differing = [
        f"$ {one.command}\n" + "\n".join(got.lines)
        for one, got in zip(commands, outputs, strict=True)
        if not matches(one.lines, list(got.lines))
    ]
    return "\n".join(differing)
