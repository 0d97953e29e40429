"""Import of databases of other programs: `llm` with both of its schemas, and the Agents SDK."""

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


def unpack_database(release: str, folder: Path) -> Path:
    """Unpack the database in which `release` of `llm` logged two conversations; their model belongs to no provider."""
    file = folder / "logs.db"
    file.write_bytes(lzma.decompress((Path(__file__).parent / f"llm-{release}.db.xz").read_bytes()))
    return file


@pytest.fixture(params=["0.27", "0.36"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack_database(request.param, tmp_path)


def test_conversations_of_llm_are_imported_from_both_schemas(logs: Path) -> None:
    one, two = read_documents(str(logs))
    assert (one.name, one.items, one.instructions) == ("Weather in Oslo?", WEATHER, "Be brief.")
    assert (two.name, len(two.items), two.instructions) == ("Second one, and more", 2, None)
    assert one.created_at
    assert 1.79e9 < one.created_at < 1.8e9


def test_the_database_is_unchanged_and_no_file_is_added(logs: Path) -> None:
    before = logs.read_bytes()
    read_documents(str(logs))
    assert logs.read_bytes() == before
    assert [path.name for path in logs.parent.iterdir()] == ["logs.db"]


def test_a_conversation_that_continues_in_the_newer_schema_is_imported_once(logs: Path) -> None:
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


async def test_sessions_of_the_agents_sdk_are_imported_item_by_item(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    for name, items in (("thread-7", ITEMS), ("empty", []), ("other", ITEMS[:1])):
        session = SQLiteSession(name, file)
        await session.add_items(items)
        session.close()
    found = {document.name: document for document in read_documents(str(file))}
    assert list(found["thread-7"].items) == ITEMS
    assert list(found["other"].items) == ITEMS[:1]


async def test_an_open_session_is_imported_up_to_its_last_commit(tmp_path: Path) -> None:
    file = tmp_path / "agents.db"
    session = SQLiteSession("mine", file)
    await session.add_items(ITEMS)
    assert list(read_documents(str(file))[0].items) == ITEMS
    await session.add_items(ITEMS[:1])
    assert list(read_documents(str(file))[0].items) == [*ITEMS, ITEMS[0]]
    session.close()


@pytest.mark.parametrize(
    ("data", "message"), [("nonsense", "is not JSON"), ("{}", "is not an item"), ("[]", "is not an item")]
)
def test_a_row_without_an_item_is_named(tmp_path: Path, data: str, message: str) -> None:
    file = tmp_path / "agents.db"
    SQLiteSession("mine", file).close()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO agent_sessions (session_id) VALUES ('mine')")
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('mine', ?)", (data,))
    with pytest.raises(Unreadable, match=f"message 1 of 'mine' {message}"):
        read_documents(str(file))


def create_database(path: Path, *statements: str) -> str:
    """Create a database with contents that no real program writes."""
    with closing(sqlite3.connect(path)) as db, db:
        for one in statements:
            db.execute(one)
    return str(path)


AGENTS = (
    "CREATE TABLE agent_sessions (session_id, created_at)",
    "CREATE TABLE agent_messages (id, session_id, message_data)",
)


def test_messages_with_a_cycle_are_refused(tmp_path: Path) -> None:
    shutil.copy(unpack_database("0.36", tmp_path), tmp_path / "a.db")
    path = create_database(tmp_path / "a.db", "UPDATE messages SET parent_hash = hash")
    with pytest.raises(Unreadable, match="have a cycle"):
        read_documents(path)


@pytest.mark.parametrize(
    ("row", "item", "message"),
    [
        ("x'ff00'", '\'{"role": "user", "content": "hi"}\'', "a name that is not text"),
        ("'mine'", "x'ff'", "is not JSON"),
        ("'mine'", "5", "is not JSON"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, row: str, item: str, message: str) -> None:
    rows = (f"INSERT INTO agent_sessions VALUES ({row}, NULL)", f"INSERT INTO agent_messages VALUES (1, {row}, {item})")
    with pytest.raises(Unreadable, match=message):
        read_documents(create_database(tmp_path / "a.db", *AGENTS, *rows))


@pytest.mark.parametrize("payload", ["[1]", "{", '{"attachment": [1]}', '{"text_ref": 3}', '{"arguments": [1]}'])
@pytest.mark.parametrize("type_", ["text", "attachment", "tool_call", "tool_result"])
def test_an_invalid_part_is_refused_or_omitted(tmp_path: Path, type_: str, payload: str) -> None:
    shutil.copy(unpack_database("0.36", tmp_path), tmp_path / "a.db")
    path = create_database(tmp_path / "a.db", f"UPDATE parts SET type = '{type_}', text = NULL, payload = '{payload}'")
    with suppress(Unreadable):
        assert all(one.items for one in read_documents(path))


def test_an_unknown_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        db.execute("CREATE TABLE t (a)")
    with pytest.raises(Unreadable, match="not from llm or the Agents SDK"):
        read_documents(str(tmp_path / "a.db"))


def test_a_truncated_database_is_refused(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    shutil.copy(logs, path)
    with path.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(Unreadable, match="cannot be read"):
        read_documents(str(path))


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def call_output(call_id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


THREADS = (
    "CREATE TABLE conversations (id, name)",
    "CREATE TABLE responses (id, conversation_id, prompt)",
    "CREATE TABLE threads (id, name, tip_message_hash, datetime_utc)",
    "CREATE TABLE messages (hash, parent_hash, role)",
    "CREATE TABLE parts (id, message_hash, position, type, text, payload)",
    "CREATE TABLE fragments (id, content)",
    "CREATE TABLE attachments (id, type, path, url, content)",
    "INSERT INTO threads VALUES ('t', 'mine', 'b', '2026-01-02T03:04:05')",
    "INSERT INTO messages VALUES ('b', 'a', 'assistant'), ('a', NULL, 'critic')",
)

PARTS: list[tuple[str, list[Any]]] = [
    ("(7, 'a', 0, 'text', 'hi', NULL)", [{"type": "input_text", "text": "hi"}]),
    ("(7, 'a', 0, 'text', '', NULL), (8, 'a', 1, 'text', 'b', NULL)", [{"type": "input_text", "text": "b"}]),
    (
        """(7, 'a', 0, 'text', NULL, '{"text_ref": [{"literal": "a "}, {"fragment": 3}, {"fragment": 4}]}')""",
        [{"type": "input_text", "text": "a long"}],
    ),
    (
        """(7, 'a', 0, 'attachment', NULL, '{"attachment": {"id": "gone"}}')""",
        [{"type": "input_text", "text": "[an attachment that is gone: gone]"}],
    ),
    *(
        (f"""(7, 'a', 0, 'attachment', NULL, '{{"attachment": {{"id": "{attachment}"}}}}')""", [part])
        for attachment, part in {
            "png": {"type": "input_image", "image_url": "data:image/png;base64,iQ==", "detail": "auto"},
            "png-url": {"type": "input_image", "image_url": "https://a.example/b", "detail": "auto"},
            "bytes": {
                "type": "input_file",
                "filename": "attachment",
                "file_data": "data:application/octet-stream;base64,AA==",
            },
            "pdf-url": {"type": "input_file", "file_url": "https://a.example/b"},
            "path": {"type": "input_text", "text": "[an attachment that was not kept: /tmp/b.png]"},
        }.items()
    ),
]

ATTACHMENTS = """INSERT INTO attachments VALUES
    ('png', 'image/png', NULL, NULL, x'89'),
    ('png-url', 'image/png', NULL, 'https://a.example/b', NULL),
    ('bytes', NULL, NULL, 'https://a.example/b', x'00'),
    ('pdf-url', 'application/pdf', NULL, 'https://a.example/b', NULL),
    ('path', 'image/png', '/tmp/b.png', NULL, NULL)"""


@pytest.mark.parametrize(("parts", "content"), PARTS)
def test_the_parts_of_a_message_become_its_content(tmp_path: Path, parts: str, content: list[Any]) -> None:
    rows = (f"INSERT INTO parts VALUES {parts}", "INSERT INTO fragments VALUES (3, 'long')", ATTACHMENTS)
    (document,) = read_documents(create_database(tmp_path / "a.db", *THREADS, *rows))

    assert document.items == ({"type": "message", "role": "user", "content": content},)
    assert (document.name, document.created_at, document.confirmed_count) == ("mine", 1_767_323_045, 1)


def test_calls_outputs_and_reasoning_split_a_message(tmp_path: Path) -> None:
    rows = """INSERT INTO parts VALUES
        (1, 'b', 0, 'text', 'one', NULL),
        (2, 'b', 1, 'reasoning', 'hm', NULL),
        (3, 'b', 2, 'reasoning', NULL, NULL),
        (4, 'b', 3, 'tool_call', NULL, '{"name": "f", "arguments": {"a": 1}}'),
        (5, 'b', 4, 'tool_call', NULL, '{"name": "g", "tool_call_id": "c5", "server_executed": true}'),
        (6, 'b', 5, 'tool_result', NULL, '{"output": "hot", "tool_call_id": "c6"}'),
        (9, 'b', 5, 'tool_result', NULL, '{"output": [1]}'),
        (7, 'b', 6, 'tool_result', NULL, '{"output": "hot", "server_executed": true}'),
        (8, 'b', 7, 'text', 'two', NULL)"""
    (document,) = read_documents(create_database(tmp_path / "a.db", *THREADS, rows))

    assert list(document.items) == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        function_call("call_4", "f", '{"a": 1}'),
        call_output("c6", "hot"),
        call_output("call_9", "[1]"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
    ]


def test_a_system_message_at_the_start_of_a_thread_is_its_instructions(tmp_path: Path) -> None:
    rows = (
        "UPDATE messages SET role = 'system' WHERE hash = 'a'",
        "INSERT INTO parts VALUES (1, 'a', 0, 'text', 'Be brief.', NULL), (2, 'b', 0, 'text', 'ok', NULL)",
    )
    (document,) = read_documents(create_database(tmp_path / "a.db", *THREADS, *rows))

    assert (document.instructions, len(document.items), document.confirmed_count) == ("Be brief.", 1, 1)


RESPONSES = (
    "CREATE TABLE conversations (id, name)",
    "CREATE TABLE responses (id, conversation_id, datetime_utc, prompt, system, response, reasoning)",
    "CREATE TABLE tool_calls (id, response_id, name, arguments, tool_call_id)",
    "CREATE TABLE tool_results (id, response_id, name, output, tool_call_id)",
    "INSERT INTO conversations VALUES ('c', 'mine'), ('empty', 'none')",
    "INSERT INTO responses VALUES ('r2', 'c', '2026-01-02T03:04:06', 'two', 'later', 'b', 'hm')",
    "INSERT INTO responses VALUES ('r1', 'c', '2026-01-02T03:04:05', 'one', 'Be brief.', NULL, NULL)",
    "INSERT INTO tool_calls VALUES (1, 'r1', 'f', '{\"a\": 1}', NULL), (2, 'r1', 'g', NULL, 'c2')",
    "INSERT INTO tool_results VALUES (1, 'r2', 'f', 'hot', NULL), (2, 'r2', 'g', 'cold', 'c2')",
)


def test_a_conversation_in_the_older_schema_has_its_responses_in_order(tmp_path: Path) -> None:
    (document,) = read_documents(create_database(tmp_path / "a.db", *RESPONSES))

    assert list(document.items) == [
        user_message("one"),
        function_call("call_f_0", "f", '{"a": 1}'),
        function_call("c2", "g", "{}"),
        call_output("call_f_0", "hot"),
        call_output("c2", "cold"),
        user_message("two"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        assistant_message("b"),
    ]
    assert (document.name, document.instructions, document.created_at) == ("mine", "Be brief.", 1_767_323_045)


def test_a_row_of_an_unknown_form_is_named_as_one(tmp_path: Path) -> None:
    path = create_database(tmp_path / "a.db", *THREADS, "INSERT INTO parts VALUES (1, 'b', 0, 'text', NULL, '[1]')")
    with pytest.raises(Unreadable, match=r": a row of the database has an unknown form$"):
        read_documents(path)


def test_an_unknown_database_is_refused_with_the_list_of_supported_ones(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as error:
        read_documents(create_database(tmp_path / "a.db", "CREATE TABLE t (a)"))
    assert error.value.hint == (
        "choose a database of llm or the Agents SDK; convo sessions lists the sessions of convo"
    )
