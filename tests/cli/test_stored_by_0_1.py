"""A store that convo 0.1.0 wrote is migrated when it is opened, and its conversations and runs continue.

`stored_by_0_1/README.md` lists its content.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from convo.history.items import Item, item_text
from convo.history.records import Strategy
from convo.stores.sqlite.connection import SCHEMA_VERSION
from tests.cli.chat_commands import stored_conversation, stored_sessions
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch

STORED = Path(__file__).parent / "stored_by_0_1"
FILES = ("talk.json", "refund.json", "signed.json", "bot.py", "scripts/long.json", "scripts/refund.json")
KEY = "a key that only this fixture has"
REPLACE_SECRET = "UPDATE secrets SET value = zeroblob(32) WHERE name = 'seal'"

SESSIONS = {
    "by-session": Strategy.SESSION,
    "by-conversation": Strategy.CONVERSATION,
    "by-chain": Strategy.CHAIN,
    "hello": Strategy.REPLAY,
}
ANSWERS = {"by-session": "Once more.", "by-conversation": "Then, ", "by-chain": "Then, ", "hello": "Once more."}
"""The first words of each session's next answer from its scripted model."""


@pytest.fixture(autouse=True)
def database(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Restore the stored database as the user's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONVO_SIGNING_KEY", KEY)
    (tmp_path / "scripts").mkdir()
    for name in FILES:
        shutil.copy(STORED / name, tmp_path / name)
    file = home / DATABASE
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as db:
        db.executescript((STORED / "store.sql").read_text("utf-8").replace("@FOLDER@", str(tmp_path)))
    return file


def test_a_store_that_another_process_has_open_is_migrated_with_one_line_on_stderr(
    database: Path, launch: Launch
) -> None:
    with closing(sqlite3.connect(database)) as server:
        server.execute("PRAGMA journal_mode = WAL")
        server.execute("SELECT count(*) FROM sessions").fetchone()
        results = [launch("sessions") for _ in range(2)]
    warning = "restart it if it is of an earlier version"
    assert [(got.exit, got.err.count(warning), got.err.count("\n")) for got in results] == [(0, 1, 1), (0, 0, 0)]
    assert str(database) in results[0].err


def schema_version(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        number: int = db.execute("PRAGMA user_version").fetchone()[0]
        return number


def item_texts(items: list[Item]) -> list[str]:
    return [item_text(item) for item in items]


def test_the_store_is_of_schema_3_and_is_migrated_without_a_problem(convo: Convo, database: Path) -> None:
    assert schema_version(database) == 3
    assert convo("store", "migrate").exit == 0
    assert schema_version(database) == SCHEMA_VERSION
    checked = convo("store", "check", "--json")
    assert (checked.exit, checked.json()["problems"]) == (0, []), checked
    assert checked.json()["rows"]["items"] == 23
    assert checked.json()["rows"]["sessions"] == 6


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_of_each_strategy_continues(convo: Convo, home: Path, name: str) -> None:
    before, links = stored_conversation(home, name)
    got = convo("chat", "-q", "--from", name, "Once more.")
    assert got.exit == 0, got
    assert got.out.startswith(ANSWERS[name])

    after, links_after = stored_conversation(home, name)
    assert item_texts(after) == [*item_texts(before), "Once more.", got.out.removesuffix("\n")]
    assert len(links_after) == len(links) + 1
    assert next(one.strategy for one in stored_sessions(home) if one.name == name) is SESSIONS[name]
    assert convo("store", "check").exit == 0


def test_a_replay_file_gets_the_next_turn(convo: Convo) -> None:
    assert convo("chat", "-q", "--from", "hello", "Once more.").exit == 0
    assert item_texts(json.loads(Path("talk.json").read_text("utf-8"))) == [
        *("Hello.", "Hello.", "How are you?", "How are you?", "Once more.", "Once more."),
    ]


@pytest.mark.parametrize("name", ["by-conversation", "by-chain"])
def test_an_encrypted_item_is_decrypted_with_the_stored_key_and_no_other(
    convo: Convo, database: Path, name: str
) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(REPLACE_SECRET)
    assert convo("chat", "-q", "--from", name, "Once more.").exit == 1


@pytest.mark.parametrize("handle", ["refund", "./refund.json"])
def test_a_paused_run_resumes_when_its_call_is_approved(convo: Convo, home: Path, handle: str) -> None:
    assert [one["call_id"] for one in convo("inspect", "./refund.json", "--json").json()["pending"]] == ["c1"]
    got = convo("resume", handle, "--agent", "bot.py:desk", "--approve", "all")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got
    assert "paid 500 cents back for A1" in got.err
    items, _ = stored_conversation(home, "refund")
    assert [item["type"] for item in items] == [
        *("message", "message", "function_call", "function_call_output", "message"),
    ]
    assert convo("store", "check").exit == 0


def test_a_signed_state_is_verified_and_resumes(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("resume", "signed.json", "--verify", "--agent", "bot.py:desk")
    monkeypatch.setenv("CONVO_SIGNING_KEY", "a key that signed nothing here")
    refused = convo(*flags)
    assert (refused.exit, refused.out) == (1, "")
    monkeypatch.setenv("CONVO_SIGNING_KEY", KEY)
    got = convo(*flags)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got


def test_an_export_with_links_is_the_same_and_is_imported(convo: Convo, home: Path) -> None:
    before = (STORED / "by-session.jsonl").read_bytes()
    assert convo("export", "by-session", "--format", "jsonl", "--links", "-o", "again.jsonl").exit == 0
    assert Path("again.jsonl").read_bytes() == before

    shutil.copy(STORED / "by-session.jsonl", "other.jsonl")
    assert convo("sessions", "rm", "by-session", "--yes").exit == 0
    imported = convo("import", "other.jsonl")
    assert imported.exit == 0, imported
    assert convo("chat", "-q", "--from", "by-session", "Once more.").out == "Once more.\n"


def test_the_stored_text_is_found_in_a_search(convo: Convo) -> None:
    hits = convo("sessions", "search", "explain", "--json").json()
    assert {one["name"] for one in hits} == {"by-conversation", "by-chain"}


def test_the_same_decision_signed_again_has_the_same_signature(convo: Convo) -> None:
    got = convo("resume", "refund.json", "--decide-only", "-o", "again.json", "--approve", "c1", "--sign")
    assert got.exit == 0, got
    assert signature("again.json") != signature("signed.json")  # the state of another run
    got = convo("resume", "signed.json", "--decide-only", "-o", "same.json", "--approve", "c1", "--sign")
    assert got.exit == 0, got
    assert signature("same.json") == signature("signed.json")


def signature(file: str) -> str:
    value: str = json.loads(Path(file).read_text("utf-8"))["$convoSignature"]["value"]
    return value
