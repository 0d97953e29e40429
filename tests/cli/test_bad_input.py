"""Bad input: one error message, one hint, the right exit code, and no changes."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.bad_input import BadInput, CommandEnvironment, check_bad_input, environment
from tests.command_runner import Convo, Launch

__all__ = ["environment"]

LIST_HINT = 'use a list of items, such as [{"role": "user", "content": "hi"}]'


def write_file(name: str, content: str | bytes) -> Callable[[CommandEnvironment], object]:
    return lambda env: env.file(name, content)


def write_bad_json(content: str | bytes) -> Callable[[CommandEnvironment], object]:
    return write_file("bad.json", content)


def set_newer_schema(environment: CommandEnvironment) -> None:
    with closing(sqlite3.connect(environment.database)) as db:
        db.execute("PRAGMA user_version = 999")


def replace_with_other_database(environment: CommandEnvironment) -> None:
    with closing(sqlite3.connect(environment.folder / "other.db")) as db:
        db.execute("CREATE TABLE others (one)")
        db.commit()
    os.replace(environment.folder / "other.db", environment.database)


def replace_with_folder(environment: CommandEnvironment) -> None:
    environment.database.unlink()
    environment.database.mkdir()


ECHO = "-m scripted/echo"

HANDLES = [
    BadInput(
        "an unknown session", f"chat {ECHO} --from nope hi", 5, "not_found", "no session 'nope'", "convo sessions"
    ),
    BadInput(
        "an unknown response",
        f"chat {ECHO} --chain --from resp_nope hi",
        5,
        "not_found",
        "no response 'resp_nope'",
        "convo sessions",
    ),
    BadInput(
        "an unknown conversation",
        f"chat {ECHO} --conversation --from conv_nope hi",
        5,
        "not_found",
        "no conversation 'conv_nope'",
        "convo sessions",
    ),
    BadInput(
        "an unknown source of a fork",
        f"chat {ECHO} --fork nope hi",
        5,
        "not_found",
        "no session 'nope'",
        "convo sessions",
    ),
    BadInput("an unknown handle of inspect", "inspect nope", 5, "not_found", "no session 'nope'", "convo sessions"),
    BadInput(
        "an unknown session to show",
        "sessions show nope",
        5,
        "not_found",
        "no session 'nope'",
        "convo sessions",
    ),
]

REPLAY = f"chat {ECHO} --replay --from bad.json hi"
FILES = [
    BadInput(
        "a truncated replay file",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json is not JSON: Unterminated string *",
        "fix the file, which may be incomplete, or choose another file",
        write_bad_json('[{"role": "user", "con'),
    ),
    BadInput(
        "an object as a replay file",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json is not a list of items",
        LIST_HINT,
        write_bad_json('{"model": "m"}'),
    ),
    BadInput(
        "numbers as items",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json is not a list of items",
        LIST_HINT,
        write_bad_json("[1, 2]"),
    ),
    BadInput(
        "an object that is not an item",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json: item 2 has neither a type nor a role",
        LIST_HINT,
        write_bad_json('[{"role": "user", "content": "hi"}, {"text": "hi"}]'),
    ),
    BadInput(
        "a message without content",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json: item 1 is a message without content",
        LIST_HINT,
        write_bad_json('[{"role": "user"}]'),
    ),
    BadInput(
        "NaN in an item",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json: an item has no exact JSON form: *",
        "check the file, or choose another one",
        write_bad_json('[{"type": "x", "n": NaN}]'),
    ),
    BadInput(
        "invalid UTF-8",
        REPLAY,
        2,
        "unreadable",
        "*/bad.json cannot be read: it is not UTF-8",
        "check the file, or choose another one",
        write_bad_json(b"\xff\xfe"),
    ),
    BadInput(
        "a folder as a replay file",
        f"chat {ECHO} --replay --from . hi",
        2,
        "unreadable",
        "* is a folder, not a replay file",
        "check the file, or choose another one",
    ),
    BadInput(
        "a device as a replay file",
        f"chat {ECHO} --replay --from /dev/null hi",
        2,
        "unreadable",
        "/dev/null is a pipe or a device, not a replay file",
        "check the file, or choose another one",
    ),
    BadInput(
        "a missing folder",
        f"chat {ECHO} --replay --from no/such/talk.json hi",
        2,
        "unreadable",
        "*/no/such is not a folder, so talk.json cannot be written there",
        "check the file, or choose another one",
    ),
    BadInput(
        "a folder to inspect",
        "inspect ./",
        2,
        "unreadable",
        "* is a folder, not a replay file",
        "choose a file in it",
    ),
    BadInput(
        "a folder to attach", f"chat {ECHO} -a . hi", 2, "unreadable", ". is a folder", "attach a file from this folder"
    ),
    BadInput(
        "an invalid schema",
        f"chat {ECHO} --schema bad.json hi",
        2,
        "unreadable",
        "bad.json is not JSON: *",
        "check the file, or choose another one",
        write_bad_json("{"),
    ),
]

STORES = [
    BadInput(
        "a database from a newer version",
        "sessions",
        1,
        "store_too_new",
        "*/convo.db has schema 999; this version of convo supports schemas up to *",
        "upgrade convo-state, or set CONVO_HOME to another folder",
        set_newer_schema,
    ),
    BadInput(
        "a chat on a newer database",
        f"chat {ECHO} hi",
        1,
        "store_too_new",
        "*/convo.db has schema 999; this version of convo supports schemas up to *",
        "upgrade convo-state, or set CONVO_HOME to another folder",
        set_newer_schema,
    ),
    BadInput(
        "a file that is not a database",
        f"chat {ECHO} hi",
        1,
        "store_unavailable",
        "*/convo.db is not a database",
        "convo store recover NEW.db --store sqlite:*/convo.db",
        lambda env: env.database.write_bytes(b"not a database " * 100),
    ),
    BadInput(
        "another program's database",
        f"chat {ECHO} hi",
        1,
        "store_unavailable",
        "*/convo.db is a database of another program",
        "set CONVO_HOME to another folder",
        replace_with_other_database,
    ),
    BadInput(
        "a folder as a database",
        f"chat {ECHO} hi",
        1,
        "store_unavailable",
        "*/convo.db is a folder, not a database",
        "check the folder of the store; CONVO_HOME sets it",
        replace_with_folder,
    ),
]

SETTINGS = [
    BadInput(
        "invalid TOML",
        "--config bad.toml chat hi",
        2,
        "bad_settings",
        "*/bad.toml, line 1: is not TOML: *",
        "correct the value where it is set",
        write_file("bad.toml", "model = \n"),
    ),
    BadInput(
        "an unknown setting",
        "--config bad.toml chat hi",
        2,
        "bad_settings",
        "*/bad.toml: no setting 'modle'; did you mean 'model'?",
        "correct the value where it is set",
        write_file("bad.toml", "modle = 'x'\n"),
    ),
    BadInput(
        "a missing settings file",
        "--config nope.toml chat hi",
        2,
        "bad_settings",
        "*/nope.toml: no such settings file",
        "set another file with --config",
    ),
    BadInput(
        "an invalid base URL",
        "chat hi",
        2,
        "bad_settings",
        "OPENAI_BASE_URL must be a URL: http:// or https://, a host, and an optional path",
        "correct the value where it is set",
        lambda env: env.set(OPENAI_BASE_URL="nonsense"),
    ),
    BadInput(
        "an unknown provider",
        "chat -m nope/x hi",
        2,
        "bad_settings",
        "-m: no provider 'nope' for 'nope/x' (known: anthropic, *)",
        "choose one of them, or add [providers.nope] to config.toml",
    ),
    BadInput(
        "missing weights",
        "chat -m local/./none.gguf hi",
        2,
        "unreadable",
        "*/none.gguf cannot be read: No such file or directory",
        "check the file, or choose another one",
    ),
    BadInput(
        "an unknown local model",
        "chat -m local/none hi",
        1,
        "model_missing",
        "no local model 'none'",
        "use local (the built-in model) or local/PATH.gguf",
    ),
]

TABLE = [*HANDLES, *FILES, *STORES, *SETTINGS]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_bad_input_is_an_error_of_two_lines_and_changes_nothing(
    row: BadInput, environment: CommandEnvironment, launch: Launch, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bad_input(row, environment, launch, convo, monkeypatch)


def test_the_sessions_of_the_table_of_bad_input_can_be_continued(environment: CommandEnvironment, convo: Convo) -> None:
    """So the errors in the table come from the bad input and not from the stored sessions."""
    for name in ("mine", "file"):
        assert convo("chat", "--from", name, *ECHO.split(), "and now?").out == "and now?\n"
    assert len(json.loads((environment.folder / "talk.json").read_text())) == 4


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        ("inspect ./page.html", "convo import ./page.html, if convo exported this page; then use the session"),
        (f"chat {ECHO} --agent bots/desk.py hi", "--agent bots/desk.py:desk"),
    ],
)
def test_a_suggested_step_is_possible(argv: str, hint: str, convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html>\n<title>a page</title>\n")
    (tmp_path / "bots").mkdir()
    (tmp_path / "bots" / "desk.py").write_text('from convo.agents import Agent\ndesk = Agent("desk")\n')
    got = convo(*argv.split())
    assert got.exit == 2
    assert got.err.splitlines()[1] == f"  try: {hint}"
