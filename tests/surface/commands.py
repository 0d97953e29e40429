"""The command line of a revision: its commands and options, from `--help` and the completion protocol.

Programs depend on these parts of the help: names of options, the number and choices of their values, defaults and
bounds.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from tests import fork_server
from tests.surface.document import Collection, expand_schema, loads

OPTION = re.compile(
    r"^ {2}(?P<names>-[^\s,]+(?:(?:, | / )-[^\s,]+)*)(?: (?P<value>\S+(?: [A-Z]+)*))?(?: {2,}(?P<text>.*))?$"
)

DETAIL = re.compile(r"\[((?:default: |required|[^\[\]]*[<>]=?)[^\[\]]*)\]")

EXITS = re.compile(r"(?<![\d.])(\d{1,3}) [a-z]")

LISTED = re.compile(r"\w+(?:, \w+)+")

SETTINGS = (
    "",
    "providers.openai",
    "state_storage",
    "serve",
    "serve.limits",
    "serve.limits.keys.alice",
    "limits",
    "profiles.work",
    'prices."a/b"',
    'windows."a/b"',
)
"""Tables of settings; the error for an unknown name in a table lists the valid names."""


COMPLETED = (
    *(("schema",), ("schema", "store"), ("doctor",)),
    *(("config", "set"), ("config", "list"), ("config", "key", "set")),
    *(("convert", "--to"), ("compact", "--mode"), ("export", "--format"), ("lint", "--format"), ("next", "--count")),
)
"""Commands whose next argument is one of a fixed list."""


class RevisionShell(NamedTuple):
    """Runs commands of the revision in a folder.

    home:    the `CONVO_HOME` of its commands
    folder:  the working folder
    before:  arguments that precede every command
    """

    home: Path
    folder: Path
    before: tuple[str, ...] = ()

    def run(self, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        environ = {**os.environ, "CONVO_HOME": str(self.home), **(env or {})}
        return fork_server.run_convo([*self.before, *argv], stdin=stdin, env=environ, cwd=self.folder)

    def start(self, *argv: str, stderr: int = subprocess.DEVNULL, **env: str) -> fork_server.ConvoProcess:
        """Start a command and return its process, with a pipe for stdout."""
        environ, pipe = {**os.environ, "CONVO_HOME": str(self.home), **env}, subprocess.PIPE
        command = [*self.before, *argv]
        return fork_server.ConvoProcess(command, env=environ, cwd=self.folder, stdout=pipe, stderr=stderr)

    def completions(self, *argv: str) -> list[str]:
        """The completion candidates for the last word of `argv`."""
        lines = self.run(*argv[:-1], f"={argv[-1]}", env={"_CONVO_COMPLETE": "1"}).stdout.splitlines()
        return [line.partition("\t")[0] for line in lines]


def collect_commands(collection: Collection, shell: RevisionShell) -> None:
    """Collect every command with its arguments and options."""
    for name, text in iter_help(shell, ()):
        collection.add_value("commands", name, f"arguments: {', '.join(help_arguments(text)) or 'none'}")
        for option, kind in help_options(text):
            collection.add_value("commands", f"{name} {option}", kind)
        if name == "convo":
            collection.add_words("exit codes", "convo --help", EXITS.findall(text.rpartition("Exit codes")[2]))


def iter_help(shell: RevisionShell, command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the full name and the help of a command and of all its subcommands."""
    text = shell.run(*command, "--help").stdout
    yield " ".join(("convo", *command)), text
    if "COMMAND [ARGS]" not in text:
        return
    for below in shell.completions(*command, ""):
        yield from iter_help(shell, (*command, below))


def help_arguments(text: str) -> list[str]:
    """The arguments in the usage line of a help text: required or optional, one or several."""
    usage = " ".join(text.partition("\n\n")[0].split())
    names = usage.partition("[OPTIONS]")[2].split()
    if names[:1] == ["COMMAND"]:
        return ["a command"]
    return [
        f"{'optional' if name.startswith('[') else 'required'}{', several' if name.endswith('...') else ''}"
        for name in names
    ]


def help_options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the long name of each option in a help text, and its names, values, default and bounds."""
    for found, lines in option_lines(text):
        names, value, detail = found["names"], found["value"] or "", " ".join(" ".join(lines).split())
        each = re.split(r", | / ", names)
        longest = next((name for name in each if name.startswith("--")), each[0])
        details = DETAIL.findall(detail)
        yield longest, "; ".join((names, kind_of(value), *details))


def option_lines(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield the first line of each option, and the lines of its help."""
    found, lines = None, []
    for line in text.splitlines():
        if match := OPTION.match(line):
            if found:
                yield found, lines
            found, lines = match, [match["text"] or ""]
        elif line.startswith(" " * 6):
            lines.append(line)
        else:
            if found:
                yield found, lines
            found = None
    if found:
        yield found, lines


def kind_of(value: str) -> str:
    """The kind of an option: a flag, a choice, or a number of values."""
    if not value:
        return "flag"
    if "|" in value:
        return f"one of {value.strip('<>[]{}')}"
    number = len(value.split())
    return "one value" if number == 1 else f"{number} values"


def collect_completions(collection: Collection, shell: RevisionShell, tree: Path) -> None:
    """Collect the completion scripts, and the candidates for arguments and for values of options."""
    for file in sorted((tree / "completions").iterdir()):
        collection.add_names("completion scripts", [file.name])
        if file.suffix != ".1":
            code = "\n".join(line for line in file.read_text().splitlines() if not line.lstrip().startswith("#"))
            collection.add_value("completion scripts", f"{file.name} text", " ".join(code.split()))
    for name in ("bash", "zsh", "fish", "powershell"):
        got = shell.run("--completion", name)
        collection.add_value("completion scripts", f"--completion {name}", f"exit {got.returncode}, {bool(got.stdout)}")
    for command in COMPLETED:
        collection.add_words("completions", " ".join(command), shell.completions(*command, ""))
    collection.add_value("commands", "convo --man", f"exit {shell.run('--man').returncode}")
    collection.add_value("commands", "convo --version", shell.run("--version").stdout.split()[0])


def collect_settings(collection: Collection, shell: RevisionShell) -> None:
    """Collect every setting with its default and the words that it accepts."""
    for setting in loads(shell.run("config", "--json").stdout) or ():
        value = setting["value"]
        masked = collection.masks.masked(value) if isinstance(value, str) else repr(value)
        collection.add_value("settings", f"default {setting['key']}", masked)
        collection.add_words("settings", "layers", [setting["layer"]])
    unknown_keys = [(f"{table}.zzz" if table else "zzz", "zzz") for table in SETTINGS]
    tables = {
        table: _longest_list(error) for table, error in zip(SETTINGS, set_values(shell, unknown_keys), strict=True)
    }
    keys = [
        f"{table}.{name}" if table else name
        for table, names in tables.items()
        for name in names
        if not table or names != tables[_above(table)]
    ]
    collection.add_names("settings", (f"key {key}" for key in keys))
    own_keys = [key for key in keys if not key.startswith("profiles.")]
    candidates = [
        (key, word)
        for key, error in zip(own_keys, set_values(shell, [(key, "zzz") for key in own_keys]), strict=True)
        for word in _longest_list(error)
    ]
    for (key, word), error in zip(
        candidates, set_values(shell, [_listed(key, word) for key, word in candidates]), strict=True
    ):
        if error is None:
            collection.add_words("settings", f"words {key}", [word])


def set_values(shell: RevisionShell, pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    """Run `convo config set KEY VALUE` for each pair in a separate CONVO_HOME; returns each error, None for success."""

    def attempt(numbered: tuple[int, tuple[str, str]]) -> str | None:
        number, (key, value) = numbered
        table, _, name = key.rpartition(".")
        arguments = (table, f"{{ {name} = '{value}' }}") if table.endswith('"') else (key, value)
        got = shell.run("config", "set", *arguments, env={"CONVO_HOME": f"{shell.home}-{number}"})
        shutil.rmtree(f"{shell.home}-{number}", ignore_errors=True)
        return got.stderr if got.returncode else None

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(attempt, enumerate(pairs)))


def _above(table: str) -> str:
    """The nearest table in `SETTINGS` that contains a table; the error for an unknown table lists its names."""
    return max((one for one in SETTINGS if one != table and table.startswith(one)), key=len)


def _longest_list(message: str | None) -> list[str]:
    """The longest list of words in the first line of an error message."""
    lists = LISTED.findall((message or "").partition("\n")[0])
    return max(lists, key=len).split(", ") if lists else []


def _listed(key: str, word: str) -> tuple[str, str]:
    """A setting and a word as its value, in a list for `extra_fields`."""
    return key, f'["{word}"]' if key.endswith(".extra_fields") else word


def collect_schemas(collection: Collection, shell: RevisionShell) -> None:
    """Collect the JSON Schemas of the JSON output of all commands."""
    for line in shell.run("schema").stdout.splitlines():
        name, _, identity = line.rpartition(" ")
        collection.add_value("schemas", name.strip(), identity)
        schema = loads(shell.run("schema", *name.split()).stdout)
        collection.add_schema("schemas", identity, expand_schema(schema))


def collect_rules(collection: Collection, shell: RevisionShell) -> None:
    """Collect the lint rules with their severities, and whether each has a page."""
    for line in shell.run("lint", "--explain", "all").stdout.splitlines():
        code, severity = line.split()[:2]
        page = shell.run("lint", "--explain", code)
        collection.add_value("lint rules", code, f"{severity}, {'page' if page.stdout else 'no page'}")
