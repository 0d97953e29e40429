"""Recorded sessions of a shell: commands with their whole output.

Each `.txt` file is one session in an empty folder. A line that begins with "$ " is a command, the lines after it are
its output; "! " begins a line of standard error, and the last line is the exit code in brackets, if it is not 0:

    $ convo sessions show nope
    ! convo: no session 'nope'
    [5]

Four kinds of commands are known: `convo ... [< FILE] [> FILE]`, `convo chat ... <<EOF` with the lines that are typed at
its prompt, `export NAME=VALUE`, and `cat > FILE <<EOF`; the lines follow up to EOF. Ids, hashes, times, sizes and the
folder differ in each run: the output has `resp_#1`, `HASH#1`, `TIME`, `N s`, `SIZE` and `FOLDER` in their place, and a
command may name `resp_#1`.

`python -m tests.cli.transcripts [NAME ...]` runs the commands and writes the files again: read the difference before
you commit it.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.command_runner import CommandResult, Convo
from tests.terminal.plain_repl import run_repl

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

COMMANDS = ("$ convo ", "$ cat > ", "$ export ")

ID = re.compile(r"\b(resp|conv|ses|run|msg|rs|fc|fco|cmp|call)_[0-9a-f]{8,}\b")
HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12}(?:[0-9a-f]{52})?\b")
CHANGING = (
    (
        re.compile(r"\b\d{4}-\d\d-\d\d[ T]+\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?|(?<=_at\": )\d{9,}(?:\.\d+)?"),
        "TIME",
    ),
    (
        re.compile(r"\b\d+\.\d+(?= s\b)|\b\d+\.\d{6,}(?:e-\d+)?|(?<=\"seconds\": )[\d.e-]+|(?<=\"waits_s\": )[\d.]+"),
        "N",
    ),
    (re.compile(r"(?<=completed      )\d+\.\d(?=  )"), "N.N"),
    (re.compile(r"\b\d+\.\d [KM]B\b|(?<=bytes\": )\d{5,}"), "SIZE"),
)
"""Patterns of times, durations in seconds, and sizes of files, with their replacement."""

PLACEHOLDER = re.compile(r"(?:[a-z]+_|HASH)#\d+")


@dataclass(frozen=True)
class Step:
    """A command line, the lines of the file that it writes, and its output."""

    command: str
    written: tuple[str, ...] = ()
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        written = [*self.written, "EOF"] if "<<EOF" in self.command else []
        return "\n".join([f"$ {self.command}", *written, *self.output])


def read_steps(path: Path) -> Iterator[Step]:
    """Read the steps of a recorded session. The lines before the first one are its description."""
    lines = path.read_text("utf-8").splitlines()
    starts = _step_starts(lines)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command, rest = lines[start].removeprefix("$ "), lines[start + 1 : end]
        written: list[str] = []
        if "<<EOF" in command:
            length = rest.index("EOF")
            written, rest = rest[:length], rest[length + 1 :]
        while rest and not rest[-1]:
            rest.pop()
        yield Step(command, tuple(written), tuple(rest))


def _step_starts(lines: Sequence[str]) -> list[int]:
    starts: list[int] = []
    in_file = False
    for number, line in enumerate(lines):
        if in_file:
            in_file = line != "EOF"
        elif line.startswith(COMMANDS):
            starts.append(number)
            in_file = line.endswith("<<EOF")
    return starts


class Shell:
    """Runs the commands of one session in the working folder."""

    def __init__(self, convo: Convo, set_variable: Callable[[str, str], None]) -> None:
        self._convo, self._set_variable = convo, set_variable
        self._placeholders: dict[str, str] = {}
        self._folder = os.fspath(Path.cwd())

    def run(self, step: Step) -> Step:
        """Run a step; returns it with its actual output."""
        words = shlex.split(PLACEHOLDER.sub(self._actual, step.command))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._set_variable(name, value)
            return Step(step.command)
        if words[0] == "cat":
            Path(words[2]).write_text("\n".join([*step.written, ""]), "utf-8")
            return Step(step.command, step.written)
        assert words[0] == "convo", step.command
        if words[-1] == "<<EOF":
            got = run_repl(*words[2:-1], lines=[PLACEHOLDER.sub(self._actual, line) for line in step.written])
            return self._result(step, got)
        stdin = Path(words.pop(words.index("<") + 1)).read_text("utf-8") if "<" in words else ""
        target = Path(words.pop(words.index(">") + 1)) if ">" in words else None
        got = self._convo(*(word for word in words[1:] if word not in ("<", ">")), stdin=stdin)
        if target:
            target.write_text(got.out, "utf-8")
            got = replace(got, out="")
        return self._result(step, got)

    def _result(self, step: Step, got: CommandResult) -> Step:
        output = [*self._stable(got.out), *(f"! {line}".rstrip() for line in self._stable(got.err))]
        return replace(step, output=(*output, *([f"[{got.exit}]"] if got.exit else [])))

    def _stable(self, text: str) -> list[str]:
        if self._folder in text:  # in a table, its length decides the position of the next column
            text = re.sub(r"(?<=\S)  +", "  ", text.replace(self._folder, "FOLDER"))
        text = ID.sub(lambda match: self._placeholder(match[0], f"{match[1]}_"), text)
        text = HASH.sub(lambda match: self._placeholder(match[0], "HASH"), text)
        for pattern, replacement in CHANGING:
            text = pattern.sub(replacement, text)
        return text.splitlines()

    def _placeholder(self, actual: str, kind: str) -> str:
        """Return the placeholder of an id or a hash, which may be shortened."""
        for known, name in self._placeholders.items():
            if known.startswith(actual) or actual.startswith(known):
                return name
        number = 1 + sum(name.startswith(f"{kind}#") for name in self._placeholders.values())
        return self._placeholders.setdefault(actual, f"{kind}#{number}")

    def _actual(self, match: re.Match[str]) -> str:
        return next((actual for actual, name in self._placeholders.items() if name == match[0]), match[0])
