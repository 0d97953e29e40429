"""`convo import`: each conversation of a file becomes a session; other files are refused."""

import asyncio
import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession

from convo.errors import KeyRefused
from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, stored_conversation, stored_messages, stored_sessions
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import CommandResult, Convo, Start

LLM = Path(__file__).parents[1] / "transfer" / "llm-0.36.db.xz"


@pytest.mark.parametrize("flags", [("-o", "a.json"), ("-o", "a.jsonl"), ("-o", "a.md"), ("-o", "a.html")])
def test_an_exported_session_continues_after_its_import(convo: Convo, home: Path, flags: tuple[str, ...]) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", *flags).exit == 0
    got = convo("import", flags[1], "--as", "again")
    assert (got.exit, got.out, got.err) == (0, "again  2 items\n", "")
    assert convo("chat", *ECHO, "--from", "again", "two").out == "two\n"
    assert stored_messages(home, "again") == ["user: one", "assistant: one", "user: two", "assistant: two"]
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]


def test_an_edit_of_the_text_of_exported_markdown_is_reported_as_without_effect(convo: Convo) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", "-o", "a.md").exit == 0
    Path("a.md").write_text(Path("a.md").read_text().replace("one", "two", 1))
    got = convo("import", "a.md", "--as", "edited")
    assert got.err == (
        "a.md: its text is not that of the data at its end, from which it is imported: an edit of the text has no"
        " effect\n"
    )


def test_responses_are_imported_with_their_items(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", "-o", "a.jsonl", "--links").exit == 0
    monkeypatch.setenv("CONVO_HOME", str(home.parent / "elsewhere"))
    assert convo("import", "a.jsonl").out == "mine  2 items\n"
    assert convo("export", "mine", "--format", "jsonl", "--links").out == Path("a.jsonl").read_text()
    assert stored_conversation(home.parent / "elsewhere", "mine")[1][0].usage


def test_json_restores_the_conversation_with_its_forks_requests_and_dates(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, "monads", "What is a monad?", "And in Haskell?")
        await writer.retry(chat)
        await writer.fail(chat, "And in C?", KeyRefused("wrong key"))
        await writer.send(chat, "And in Rust?")
        await chat.undo()
        await writer.send(chat, "And in Lisp?")

    write_chats(home, script)
    assert convo("export", "monads", "-o", "monads.json").exit == 0
    before = convo("inspect", "monads", "--json").json()
    (dates,) = [(one.created_at, one.used_at) for one in stored_sessions(home)]

    monkeypatch.setenv("CONVO_HOME", str(home.parent / "elsewhere"))
    assert convo("import", "monads.json").out == "monads  6 items\n"
    assert convo("inspect", "monads", "--json").json() == before
    assert json.loads(Path("monads.json").read_text())["other_items"]
    assert [(one.created_at, one.used_at) for one in stored_sessions(home.parent / "elsewhere")] == [dates]
    assert convo("export", "monads", "--format", "json").out == Path("monads.json").read_text()


@pytest.mark.parametrize("command", ["lint", "inspect", "next", "diff", "repair", "import", "chat"])
def test_every_command_that_takes_a_file_reads_an_export(command: str, convo: Convo) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", "-o", "a.json").exit == 0
    arguments = {
        "next": ["./a.json", *ECHO],
        "diff": ["./a.json", "mine"],
        "repair": ["./a.json", "--as", "repaired.json"],
        "chat": ["--replay", "--from", "./a.json", *ECHO, "two"],
    }
    got = convo(command, *arguments.get(command, ["./a.json"]))
    assert got.exit == 0, got


def test_several_files_and_folders_are_imported_and_an_odd_one_is_reported(convo: Convo, home: Path) -> None:
    for file in ("talks/a.json", "talks/deep/b.jsonl", "talks/.hidden", "c.json"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(json.dumps({"role": "user", "content": file}) + "\n")
    Path("talks", "odd.bin").write_bytes(b"\xff\xfe")
    Path("talks", "agent-1.meta.json").write_text("{}")  # Claude Code writes it beside a transcript
    got = convo("import", "c.json", "talks", "none.json")
    assert (got.exit, got.out) == (
        1,
        "".join(f"{name}  1 item\n" for name in ("c-json", "talks-a-json", "talks-deep-b-jsonl")),
    )
    assert [line for line in got.err.splitlines() if line.startswith("convo: ")] == [
        "convo: talks/odd.bin: the file is not UTF-8 text or a database",
        "convo: no file 'none.json'",
    ]
    assert got.err.splitlines()[0] == "talks: skipped 1 metadata file, *.meta.json"
    failures = [line for line in convo("import", "talks", "--json").out.splitlines() if '"error"' in line]
    assert [json.loads(failure)["handle"] for failure in failures] == ["talks/odd.bin"]
    for flags, message in (
        ("--as", "--as applies to one file, not to 2"),
        ("--only", "--only applies to one file, not to 2"),
    ):
        refused = convo("import", "c.json", "talks/a.json", flags, "x")
        assert (refused.exit, refused.err.splitlines()[0]) == (2, f"convo: {message}")


def test_every_conversation_of_llm_becomes_a_session(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    assert convo("import", "logs.db").out == "Weather in Oslo?  6 items\nSecond one, and more  2 items\n"
    assert {one.name: one.instructions for one in stored_sessions(home)} == {
        "Weather in Oslo?": "Be brief.",
        "Second one, and more": None,
    }
    assert convo("chat", *ECHO, "--from", "Weather in Oslo?", "thanks").out == "thanks\n"


def test_of_several_conversations_those_already_imported_are_skipped(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    assert convo("import", "logs.db").exit == 0
    assert convo("chat", *ECHO, "--from", "Weather in Oslo?", "thanks").exit == 0
    assert convo("sessions", "rm", "Second one, and more", "--yes").exit == 0
    got = convo("import", "logs.db")
    assert got.out == "Weather in Oslo?  6 items  already imported\nSecond one, and more  2 items\n"
    again = [json.loads(line)["session"] for line in convo("import", "logs.db", "--json").out.splitlines()]
    assert (
        sorted(again)
        == sorted(one.name for one in stored_sessions(home))
        == ["Second one, and more", "Weather in Oslo?"]
    )


def test_a_conversation_that_became_shorter_in_its_file_is_already_imported(convo: Convo, home: Path) -> None:
    async def write(count: int) -> None:
        for name in ("one", "two"):
            with closing(SQLiteSession(name, "agents.db")) as session:
                await session.add_items([{"role": "user", "content": f"{name} {number}"} for number in range(count)])

    async def pop() -> None:
        with closing(SQLiteSession("two", "agents.db")) as session:
            await session.pop_item()

    asyncio.run(write(2))
    assert convo("import", "agents.db").out == "one  2 items\ntwo  2 items\n"
    asyncio.run(pop())
    assert convo("import", "agents.db").out == "one  2 items  already imported\ntwo  1 item  already imported\n"


def test_one_of_several_conversations_is_selected_by_its_name(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    several = convo("import", "logs.db", "--as", "oslo")
    assert (several.exit, several.err.splitlines()[1]) == (2, "  try: add --only NAME")
    assert several.err.startswith("convo: --as names one session, and the file contains ")
    assert convo("import", "logs.db", "--only", "nope") == CommandResult(
        5, "", "convo: no conversation in the file 'nope'\n  try: convo import logs.db --dry-run\n"
    )
    assert convo("import", "logs.db", "--only", "Weather in Oslo?", "--as", "oslo").out == "oslo  6 items\n"
    assert [one.name for one in stored_sessions(home)] == ["oslo"]


def test_a_dry_run_lists_the_conversations_and_stores_nothing(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    lines = convo("import", "logs.db", "--dry-run", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"session": None, "name": "Weather in Oslo?", "items": 6, "links": 0, "model": None},
        {"session": None, "name": "Second one, and more", "items": 2, "links": 0, "model": None},
    ]
    assert not home.exists()


def test_a_taken_name_gets_a_number_and_a_requested_one_is_refused(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "hello there"}]')
    (tmp_path / "b.json").write_text('[{"role": "user", "content": "Hello there"}]')
    assert convo("import", "a.json").out == "hello-there  1 item\n"
    assert convo("import", "b.json").out == "hello-there-2  1 item\n"
    assert convo("import", "a.json", "--as", "hello-there-2").exit == 1
    assert convo("import", "a.json", "--as", "resp_1").exit == 2


def test_a_repeated_import_returns_the_existing_session(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "hello there"}]')
    assert convo("import", "a.json").out == "hello-there  1 item\n"
    assert convo("chat", *ECHO, "--from", "hello-there", "and on").exit == 0
    again = convo("import", "a.json")
    assert again.out == "hello-there  1 item  already imported\n"
    assert again.err == "already imported; to import it again: convo import a.json --as NAME\n"
    assert convo("sessions", "rename", "hello-there", "mine").exit == 0
    assert convo("import", "a.json").out == "mine  1 item  already imported\n"
    assert len(stored_sessions(home)) == 1


def test_a_repeated_import_with_a_name_returns_the_session_of_that_name(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "hello there"}]')
    assert convo("import", "a.json").exit == 0
    assert convo("import", "a.json", "--as", "second").out == "second  1 item\n"
    assert convo("import", "a.json", "--as", "second").out == "second  1 item  already imported\n"
    assert convo("sessions", "rename", "second", "third").exit == 0
    assert convo("import", "a.json", "--as", "second").out == "second  1 item\n"
    assert sorted(one.name for one in stored_sessions(home)) == ["hello-there", "second", "third"]


@pytest.mark.needs("linux")
def test_concurrent_imports_of_the_same_file_create_one_session(
    convo: Convo, start: Start, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps([{"role": "user", "content": f"number {number}"} for number in range(200)])
    )
    done = [one.communicate()[1] for one in [start("import", "a.json", "--as", "mine") for _ in range(4)]]
    assert {line for err in done for line in err.splitlines()} <= {
        "already imported; to import it again: convo import a.json --as NAME"
    }
    assert [one.name for one in stored_sessions(home)] == ["mine"]


def write_agents_database(*sessions: tuple[str, list[bytes]]) -> None:
    """Write agents.db with these sessions of the Agents SDK: their names, and the text of each row."""
    for name, rows in sessions:
        with closing(SQLiteSession(name, "agents.db")) as session:
            asyncio.run(session.add_items([{"role": "user", "content": "hi"} for _ in rows]))
        with closing(sqlite3.connect("agents.db")) as db, db:
            ids = db.execute("SELECT id FROM agent_messages WHERE session_id = ? ORDER BY id", (name,)).fetchall()
            for (row_id,), text in zip(ids, rows, strict=True):
                db.execute("UPDATE agent_messages SET message_data = CAST(? AS TEXT) WHERE id = ?", (text, row_id))


def test_a_corrupt_row_spoils_its_session_only_and_is_named(convo: Convo, home: Path) -> None:
    row = json.dumps(HI).encode()
    write_agents_database(("bad", [row, b"{{{"]), ("ok", [row]), ("not UTF-8", [b"\xff"]))
    assert convo("import", "agents.db", "--only", "ok", "--as", "mine") == CommandResult(0, "mine  1 item\n", "")
    only_bad = convo("import", "agents.db", "--only", "bad")
    assert (only_bad.exit, only_bad.out) == (2, "")

    got = convo("import", "agents.db")
    assert (got.exit, got.out) == (2, "ok  1 item\n")
    assert "agents.db: 'bad' cannot be imported: message 2 of 'bad' is not JSON" in got.err
    assert "agents.db: 'not UTF-8' cannot be imported: " in got.err
    assert {one.name for one in stored_sessions(home)} == {"mine", "ok"}

    found = [json.loads(line) for line in convo("import", "agents.db", "--dry-run", "--json").out.splitlines()]
    assert [(one["name"], one.get("error", {}).get("code")) for one in found] == [
        ("ok", None),
        ("bad", "unreadable"),
        ("not UTF-8", "unreadable"),
    ]


def test_an_incomplete_last_line_is_left_out_by_an_option_that_reports_it(convo: Convo, home: Path) -> None:
    lines = [json.dumps(HI), json.dumps({"role": "assistant", "content": "Zürich"}, ensure_ascii=False)]
    whole = "\n".join(lines).encode()
    torn = whole[: whole.index("ü".encode()) + 1]
    Path("talk.jsonl").write_bytes(torn)
    assert convo("import", "talk.jsonl").exit == 2
    got = convo("import", "talk.jsonl", "--skip-incomplete")
    assert (got.exit, got.out) == (0, "hi  1 item\n")
    assert got.err.startswith('left out: line 2, which is incomplete: {"role": "assistant", "content": "Z')

    Path("talk.jsonl").write_bytes(torn.rstrip(b"\xc3"))
    assert "--skip-incomplete leaves out its last line" in convo("import", "talk.jsonl").err
    assert "try: convo import talk.jsonl --skip-incomplete" in convo("lint", "talk.jsonl").err
    for text in (whole, b"[\n" + whole.replace(b"\n", b",\n") + b"\n]"):
        Path("whole.jsonl").write_bytes(text)
        whole_file = convo("import", "whole.jsonl", "--skip-incomplete", "--dry-run")
        assert (whole_file.out, whole_file.err) == ("hi  2 items\n", "")


def test_the_same_items_with_their_responses_are_a_separate_import(convo: Convo, home: Path) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", "-o", "a.jsonl").exit == 0
    assert convo("export", "mine", "-o", "b.jsonl", "--links").exit == 0
    assert convo("sessions", "rm", "mine", "--yes").exit == 0
    assert convo("import", "a.jsonl").out == "one  2 items\n"
    assert convo("import", "b.jsonl").out == "mine  2 items\n"
    assert len(stored_conversation(home, "mine")[1]) == 1


def test_a_removed_session_is_imported_again(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "hello there"}]')
    for _ in range(2):
        assert convo("import", "a.json").out == "hello-there  1 item\n"
        assert convo("sessions", "rm", "hello-there", "--yes").exit == 0
    assert stored_sessions(home) == []


def claude_transcript(*messages: str) -> str:
    """Return a transcript of user messages and answers in turn; each block of an answer is a line."""
    records: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        usage = {"input_tokens": 10, "output_tokens": len(message)}
        answer = {"id": f"msg_{number}", "model": "claude-sonnet-5-5", "usage": usage} if number % 2 else {}
        for text in message.split("|"):
            record = {
                "type": "assistant" if answer else "user",
                "sessionId": "s",
                "uuid": str(len(records)),
                "parentUuid": records[-1]["uuid"] if records else None,
                "timestamp": f"2026-11-28T10:0{number}Z",
                "message": {"content": [{"type": "text", "text": text}], **answer},
            }
            records.append(record)
    return "\n".join(map(json.dumps, records))


def test_a_redacted_transcript_does_not_export_what_an_earlier_import_of_it_had(convo: Convo) -> None:
    transcript = claude_transcript("hello", "hi", "my key is hunter2", "thanks for hunter2")
    Path("secret.jsonl").write_text(transcript)
    Path("redacted.jsonl").write_text(transcript.replace("hunter2", "XXX"))
    assert convo("import", "secret.jsonl", "--as", "secret").exit == 0
    for _ in range(2):
        assert convo("import", "redacted.jsonl", "--as", "clean").out == "clean  4 items\n"
        exported = convo("export", "clean", "--format", "json").out
        assert "hunter2" not in exported
        assert (exported.count("thanks for XXX"), len(json.loads(exported)["links"])) == (1, 2)
        assert convo("sessions", "rm", "clean", "--yes").exit == 0
    assert convo("export", "secret", "--format", "json").out.count("hunter2") == 2


def test_a_transcript_that_was_imported_during_an_answer_is_imported_whole_later(convo: Convo) -> None:
    Path("a.jsonl").write_text(claude_transcript("hello", "hi", "count", "one"))
    assert convo("import", "a.jsonl", "--as", "part").exit == 0
    Path("a.jsonl").write_text(claude_transcript("hello", "hi", "count", "one|two"))
    assert convo("import", "a.jsonl", "--as", "whole").exit == 0
    links = {name: convo("inspect", name, "--json").json()["links"] for name in ("part", "whole")}
    counts = {name: [(len(link["output"]), link["usage"]["output_tokens"]) for link in links[name]] for name in links}
    assert counts == {"part": [(1, 2), (1, 3)], "whole": [(1, 2), (2, 7)]}


@pytest.mark.parametrize(("text", "exit"), [("nonsense", 2), ("", 2), (None, 5)])
def test_a_file_without_items_stores_nothing(
    convo: Convo,
    home: Path,
    tmp_path: Path,
    text: str | None,
    exit: int,  # noqa: A002
) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    got = convo("import", "a.json")
    assert (got.exit, got.out) == (exit, "")
    assert not home.exists()


# -- files without a conversation ------------------------------------------------------------------

HI = {"role": "user", "content": "hi"}
ROLLOUT = (
    {"timestamp": "2026-11-01T10:00:00Z", "type": "session_meta", "payload": {"id": "1", "cwd": "/"}},
    {"timestamp": "2026-11-01T10:00:01Z", "type": "response_item", "payload": {"type": "message", "role": "user"}},
    {"timestamp": "2026-11-01T10:00:02Z", "type": "event_msg", "payload": {"type": "token_count"}},
    {"timestamp": "2026-11-01T10:00:03Z", "type": "turn_context", "payload": {"model": "gpt-5.6"}},
)
EVENTS = ({"type": "response.created", "response": {"id": "resp_1"}}, {"type": "response.completed", "response": {}})
TRANSCRIPT = ({"type": "user", "uuid": "1", "message": {"role": "user", "content": "hi"}},)


@pytest.mark.parametrize("command", [["import", "--dry-run"], ["import"], ["lint"], ["inspect"]])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(ROLLOUT), "item 1 is a 'session_meta' record with a payload, not an item of the API"),
        ("\n".join(map(json.dumps, EVENTS)), "item 1 is a 'response.created' record with a response"),
        (json.dumps(TRANSCRIPT), "item 1 is a 'user' record with a message"),
        (json.dumps({"messages": [{"role": "user", "content": "hi"}]}), "the file is not a list of items"),
        (json.dumps([{"content": "hi"}]), "item 1 has neither a type nor a role"),
        (json.dumps({"object": "list", "data": [HI], "has_more": True}), "is one page of a list (has_more is true)"),
        ("", ""),
        (" \n\n", ""),
    ],
    ids=["rollout", "events", "transcript", "messages", "untyped", "page", "empty", "blank"],
)
def test_a_file_of_other_records_is_refused_by_every_command_that_reads_items(
    command: list[str], text: str, message: str, convo: Convo, home: Path
) -> None:
    Path("log.jsonl").write_text(text)
    got = convo(*command, "./log.jsonl")
    assert (got.exit, got.out) == (2, "")
    assert message.removeprefix("the file ") in got.err
    assert not home.exists() or stored_sessions(home) == []


def test_a_command_that_reads_items_refuses_a_transcript_and_names_import(convo: Convo) -> None:
    Path("log.jsonl").write_text("\n".join(map(json.dumps, ROLLOUT)))
    hint = "convo import ./log.jsonl, if Codex or Claude Code wrote it; then use the session"
    assert hint in convo("lint", "./log.jsonl").err
    assert convo("import", "log.jsonl", "--dry-run").exit == 0


@pytest.mark.parametrize("command", [["import", "--dry-run"], ["lint"], ["inspect"]])
def test_every_command_reads_items_in_the_same_formats(command: list[str], convo: Convo) -> None:
    odd = {"type": "hologram", "id": "h_1", "light": [1]}
    asked = {"role": "user", "content": 'what is "current_agent" in {"$schemaVersion": "1.9"}?'}
    files = {
        "list.json": json.dumps([HI, odd]),
        "lines.jsonl": f"{json.dumps(HI)}\n{json.dumps(odd)}\n",
        "request.json": json.dumps({"model": "m", "input": [HI, odd]}),
        "page.json": json.dumps({"object": "list", "data": [HI, odd], "has_more": False}),
        "bom.json": "\ufeff" + json.dumps([HI, odd]),
        "words of a RunState.jsonl": f"{json.dumps(asked)}\n{json.dumps(odd)}\n",
        "reasoning of a turn.json": json.dumps({"reasoning": {"context": "current_turn"}, "input": [asked, odd]}),
        "none.json": "[]",
    }
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
        got = convo(*command, f"./{name}")
        assert got.exit == 0, (name, got)
        assert ("2 items" in got.out) == (name != "none.json")
    Path("text.json").write_text(json.dumps({"model": "m", "input": "hello"}))
    got = convo(*command, "./text.json")
    assert (got.exit, "1 item" in got.out) == (0, True)


# -- passwords -------------------------------------------------------------------------------------

URLS = [
    "postgresql://u:SECRET@host:5432/db",
    "postgres://u:SECRET@host/db?sslmode=require",
    "postgresql://u:SE/CRET@host/db",
    "postgresql://u:a@b#SECRET@host/db",
    "postgresql://u:12345/SECRET@host/db",
    "postgresql://u:with SECRET@host/db",
    "postgresql+psycopg://u:SECRET@host/db",
    "postgresql://host/db?user=u&password=SECRET",
    "postgresql://u:SECRET@[::1]/db",
    "mysql://root:SECRET@host",
    "https://u:SECRET@host/v1",
    "https://host/v1?api_key=SECRET",
    "host=localhost user=u password=SECRET dbname=db",
]
COMMANDS = [
    ["import"],
    ["import", "--dry-run", "--json"],
    ["inspect"],
    ["lint"],
    ["next"],
    ["chat", "--from"],
    ["chat", "--fork"],
    ["chat", "-m"],
    ["chat", "-a"],
    ["export"],
    ["diff", "mine"],
    ["compact"],
    ["convert", "--to", "chain"],
    ["resume"],
    ["store", "stats", "--store"],
    ["store", "check", "--store"],
    ["store", "migrate", "--print", "--store"],
    ["serve", "--port", "0", "--host"],
    ["config", "set"],
    ["models", "--provider"],
    ["sessions", "show"],
    ["sessions", "rm", "--yes"],
    ["doctor"],
    ["schema"],
    ["--config"],
    ["--profile"],
    [],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_password_in_a_url_is_never_printed(
    command: list[str], convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_DEBUG", "1")
    for url in URLS:
        got = convo(*command, url, stdin="hi")
        assert "SECRET" not in got.out + got.err, url


def test_a_handle_of_megabytes_is_truncated_in_the_error(convo: Convo) -> None:
    got = convo("inspect", "x" * 5_000_000)
    assert got.exit == 5
    assert len(got.err) < 300


def test_an_html_page_without_data_is_refused_with_the_supported_files(convo: Convo) -> None:
    Path("page.html").write_text("<!DOCTYPE html><html></html>")
    got = convo("import", "page.html")
    assert (got.exit, got.err.splitlines()[1]) == (
        2,
        "  try: use a file that convo export wrote without --no-data, or a list of items",
    )
