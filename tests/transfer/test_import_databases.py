"""Databases that other programs wrote: `llm` in both of its layouts, and the Agents SDK."""

import lzma
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession

from convo.errors import Unreadable
from convo.history.items import assistant_message, user_message
from convo.transfer.import_ import read_documents

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgowMDAw", "detail": "auto"}

WEATHER = (
    user_message("Weather in Oslo?"),
    {"type": "function_call", "call_id": "call_oslo", "name": "weather", "arguments": '{"city": "Oslo"}'},
    {"type": "function_call_output", "call_id": "call_oslo", "output": "rain in Oslo"},
    assistant_message("It rains."),
    user_message("a long fragment\nAnd this?", IMAGE),
    assistant_message("Answer to: a long fragment\nAnd this?"),
)


def unpacked(release: str, folder: Path) -> Path:
    """What this release of `llm` logged of two conversations with a model of no provider."""
    file = folder / "logs.db"
    file.write_bytes(lzma.decompress((Path(__file__).parent / f"llm-{release}.db.xz").read_bytes()))
    return file


@pytest.fixture(params=["0.27", "0.36"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def test_conversations_of_llm_are_read_in_both_layouts(logs: Path) -> None:
    one, two = read_documents(str(logs))
    assert (one.name, one.items, one.instructions) == ("Weather in Oslo?", WEATHER, "Be brief.")
    assert (two.name, len(two.items), two.instructions) == ("Second one, and more", 2, None)
    assert one.created_at
    assert 1.79e9 < one.created_at < 1.8e9


def test_a_database_is_left_as_it_was_and_nothing_beside_it(logs: Path) -> None:
    before = logs.read_bytes()
    read_documents(str(logs))
    assert logs.read_bytes() == before
    assert [place.name for place in logs.parent.iterdir()] == ["logs.db"]


def test_a_conversation_that_went_on_in_the_newer_layout_is_read_once(logs: Path) -> None:
    with closing(sqlite3.connect(logs)) as db, db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        if "threads" not in tables:
            return
        thread = db.execute("SELECT id FROM threads ORDER BY id").fetchone()[0]
        db.execute("INSERT INTO conversations (id, name) VALUES (?, 'old')", (thread,))
        db.execute("INSERT INTO responses (id, conversation_id, prompt) VALUES ('r', ?, 'old')", (thread,))
    assert [document.name for document in read_documents(str(logs))] == ["Weather in Oslo?", "Second one, and more"]


ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a": "é🎉"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "4"}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]},
]


async def test_sessions_that_the_agents_sdk_wrote_come_over_item_by_item(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    for name, items in (("thread-7", ITEMS), ("empty", []), ("other", ITEMS[:1])):
        session = SQLiteSession(name, file)
        await session.add_items(items)
        session.close()
    found = {document.name: document for document in read_documents(str(file))}
    assert list(found["thread-7"].items) == ITEMS
    assert list(found["other"].items) == ITEMS[:1]


async def test_a_session_that_is_still_open_is_read_up_to_what_it_wrote(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    session = SQLiteSession("mine", file)
    await session.add_items(ITEMS)
    assert list(read_documents(str(file))[0].items) == ITEMS
    await session.add_items(ITEMS[:1])
    assert list(read_documents(str(file))[0].items) == [*ITEMS, ITEMS[0]]
    session.close()


@pytest.mark.parametrize(
    ("data", "says"), [("nonsense", "is not JSON"), ("{}", "is not an item"), ("[]", "is not an item")]
)
def test_a_row_that_holds_no_item_is_named(tmp_path: Path, data: str, says: str) -> None:
    file = tmp_path / "agents.db"
    SQLiteSession("mine", file).close()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO agent_sessions (session_id) VALUES ('mine')")
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('mine', ?)", (data,))
    with pytest.raises(Unreadable, match=f"message 1 of 'mine' {says}"):
        read_documents(str(file))


def written(place: Path, *statements: str) -> str:
    """A database that nobody's program wrote so."""
    with closing(sqlite3.connect(place)) as db, db:
        for one in statements:
            db.execute(one)
    return str(place)


AGENTS = (
    "CREATE TABLE agent_sessions (session_id, created_at)",
    "CREATE TABLE agent_messages (id, session_id, message_data)",
)


def test_messages_that_go_in_a_circle_are_refused(tmp_path: Path) -> None:
    shutil.copy(unpacked("0.36", tmp_path), tmp_path / "a.db")
    place = written(tmp_path / "a.db", "UPDATE messages SET parent_hash = hash")
    with pytest.raises(Unreadable, match="have a cycle"):
        read_documents(place)


@pytest.mark.parametrize(
    ("row", "item", "says"),
    [
        ("x'ff00'", '\'{"role": "user", "content": "hi"}\'', "a name that is not text"),
        ("'mine'", "x'ff'", "is not JSON"),
        ("'mine'", "5", "is not JSON"),
    ],
)
def test_a_column_of_another_kind_is_refused(tmp_path: Path, row: str, item: str, says: str) -> None:
    rows = (f"INSERT INTO agent_sessions VALUES ({row}, NULL)", f"INSERT INTO agent_messages VALUES (1, {row}, {item})")
    with pytest.raises(Unreadable, match=says):
        read_documents(written(tmp_path / "a.db", *AGENTS, *rows))


@pytest.mark.parametrize("payload", ["[1]", "{", '{"attachment": [1]}', '{"text_ref": 3}', '{"arguments": [1]}'])
@pytest.mark.parametrize("type_", ["text", "attachment", "tool_call", "tool_result"])
def test_a_part_that_is_none_is_refused_or_left_out(tmp_path: Path, type_: str, payload: str) -> None:
    shutil.copy(unpacked("0.36", tmp_path), tmp_path / "a.db")
    place = written(tmp_path / "a.db", f"UPDATE parts SET type = '{type_}', text = NULL, payload = '{payload}'")
    with suppress(Unreadable):
        assert all(one.items for one in read_documents(place))


def test_a_database_of_nobody_that_is_known_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        db.execute("CREATE TABLE t (a)")
    with pytest.raises(Unreadable, match="not from llm or the Agents SDK"):
        read_documents(str(tmp_path / "a.db"))


def test_a_database_that_was_cut_is_refused(logs: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.db"
    shutil.copy(logs, cut)
    with cut.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(Unreadable, match="cannot be read"):
        read_documents(str(cut))
