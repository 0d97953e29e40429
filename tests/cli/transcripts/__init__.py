"""Transcripts of a shell: commands with their whole output.

Each `.txt` file is a transcript in an empty folder. A line that begins with "$ " is a command, the lines after it are
its output; "! " begins a line of standard error, and the last line is the exit code in brackets, if it is not 0:

    $ convo sessions show nope
    ! convo: no session 'nope'
    [5]

A command has one of four forms: `convo ... [< FILE] [> FILE]`, `convo chat ... <<EOF` with the lines that are typed at
its prompt, `export NAME=VALUE`, and `cat > FILE <<EOF`; the lines follow up to EOF. Ids, hashes, times, sizes and the
folder differ in each run: the output has `resp_#1`, `HASH#1`, `TIME`, `N s`, `SIZE` and `FOLDER` in their place, and a
command may name `resp_#1`. In a transcript whose name begins with `terminal_`, the output is that of a terminal of 80
columns, and `\\e` is the escape character.

`python -m tests.cli.transcripts [NAME ...]` runs the commands and writes the files again: read the difference before
you commit it.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.command_runner import CommandResult, run_in_process
from tests.placeholders import Placeholders
from tests.terminal.plain_repl import run_repl

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

COMMANDS = ("$ convo ", "$ cat > ", "$ export ")


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
    """Read the steps of a transcript. The lines before the first one are its description."""
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
    """Runs the commands of one transcript in the working folder."""

    def __init__(self, transcript: str, set_variable: Callable[[str, str], None]) -> None:
        self._is_terminal, self._set_variable = transcript.startswith("terminal_"), set_variable
        self._placeholders = Placeholders()

    def run(self, step: Step) -> Step:
        """Run a step; returns it with its actual output."""
        words = shlex.split(self._placeholders.actual(step.command))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._set_variable(name, value)
            return Step(step.command)
        if words[0] == "cat":
            Path(words[2]).write_text("\n".join([*step.written, ""]), "utf-8")
            return Step(step.command, step.written)
        assert words[0] == "convo", step.command
        if words[-1] == "<<EOF":
            lines = [self._placeholders.actual(line) for line in step.written]
            got = run_repl(*words[2:-1], lines=lines, terminal=self._is_terminal)
            return self._result(step, got)
        stdin = Path(words.pop(words.index("<") + 1)).read_text("utf-8") if "<" in words else ""
        target = Path(words.pop(words.index(">") + 1)) if ">" in words else None
        got = run_in_process(
            *(word for word in words[1:] if word not in ("<", ">")), stdin=stdin, is_terminal=self._is_terminal
        )
        if target:
            target.write_text(got.out, "utf-8")
            got = replace(got, out="")
        return self._result(step, got)

    def _result(self, step: Step, got: CommandResult) -> Step:
        out_text, err_text = (self._placeholders.stable(text).replace("\x1b", "\\e") for text in (got.out, got.err))
        if self._is_terminal:  # the length of the folder decides where a notice is wrapped
            err_text = err_text.replace("\n  FOLDER", " FOLDER")
        out, err = out_text.splitlines(), err_text.splitlines()
        while out and not out[-1]:
            out.pop()
        output = [*out, *(f"! {line}".rstrip() for line in err)]
        return replace(step, output=(*output, *([f"[{got.exit}]"] if got.exit else [])))
