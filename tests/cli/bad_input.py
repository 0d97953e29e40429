"""Support for tests of bad input: the environment of a command, the rows of a table, and the check of a row.

The check runs the real command of a row in its own process, and again with `--json`, in an environment
with a stored session and a replay file. It compares the tables of the database, the contents of the
files and the list of files before and after each command.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.command_runner import CommandResult, Convo, Launch
from tests.loopback_server import LoopbackServer
from tests.models.chat_server import ChatServer, run_chat_server


@dataclass
class CommandEnvironment:
    """The environment of a command: a home with two sessions, a folder, and two servers."""

    home: Path
    folder: Path
    server: LoopbackServer
    chat: ChatServer
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.home / DATABASE

    def set(self, **variables: str) -> None:
        self.environ |= self.server.environ | variables

    def file(self, name: str, content: str | bytes) -> None:
        (self.folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def snapshot(self) -> object:
        """Return the files of the folder and the rows of the store, to compare before and after a command."""
        paths = [path for path in sorted(self.folder.rglob("*")) if not {"loopback", "data"} & set(path.parts)]
        files = {path: path.read_bytes() if path.is_file() else b"" for path in paths}
        return files, table_rows(self.database)


def table_rows(database: Path) -> object:
    """Return the rows of each table, without leases, indexes, the sums of charts and the rows of refused requests.

    For a file that is not an SQLite database, return its bytes; for anything else, False.
    """
    if not database.is_file() or database.read_bytes()[:15] != b"SQLite format 3":
        return database.is_file() and database.read_bytes()
    with closing(sqlite3.connect(database)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        others = ("leases", "words", "unstored_requests", "request_sums")
        table_names = [name for name in tables if not name.startswith(others)]
        return {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in table_names}


@pytest.fixture
def environment(home: Path, tmp_path: Path, loopback: LoopbackServer) -> Iterator[CommandEnvironment]:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "mine", "hi")
        await writer.chat(Strategy.REPLAY, "file", "hi")

    write_chats(home, script)
    with run_chat_server() as chat:
        yield CommandEnvironment(home, tmp_path, loopback, chat)


@dataclass(frozen=True)
class BadInput:
    """One kind of bad input.

    argv:     the command without `convo`
    exit:     the exit code; see README.md, "Help, settings, exit codes"
    code:     the error code in JSON
    message:  the complete error message; `*` matches any text
    hint:     the complete hint; `*` matches any text
    prepare:  prepares the bad input in the environment
    """

    name: str
    argv: str
    exit: int
    code: str
    message: str
    hint: str
    prepare: Callable[[CommandEnvironment], object] = lambda env: None


def matches_pattern(text: str, pattern: str) -> bool:
    """Return whether `text` equals `pattern`, where `*` matches any text."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def check_bad_input(
    row: BadInput, environment: CommandEnvironment, launch: Launch, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the command of a row with text output and with JSON output; assert the error and that nothing changed."""
    row.prepare(environment)
    for name, value in environment.environ.items():
        monkeypatch.setenv(name, value)
    before = environment.snapshot()

    got = launch(*row.argv.split())

    assert (got.exit, got.out) == (row.exit, ""), got
    message, hint = two_lines(got)
    assert matches_pattern(message, row.message), message
    assert matches_pattern(hint, row.hint), hint
    assert environment.snapshot() == before

    json_result = convo(*row.argv.split(), "--json")
    error = json_result.json()["error"]
    assert (json_result.exit, json_result.err) == (row.exit, "")
    assert (error["message"], error["hint"]) == (message, hint)
    assert matches_pattern(error["code"], row.code), error
    assert environment.snapshot() == before


def two_lines(got: CommandResult) -> tuple[str, str]:
    """Return the error message and the hint; assert that stderr contains nothing else."""
    lines = got.err.splitlines()
    assert len(lines) == 2, got.err
    assert lines[0].startswith("convo: ")
    assert lines[1].startswith("  try: ")
    return lines[0].removeprefix("convo: "), lines[1].removeprefix("  try: ")
