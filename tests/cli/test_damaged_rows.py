"""Commands on a store with damaged rows: lists leave them out with one line on stderr, reads of one row fail."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from convo.cli.completion import list_completions
from convo.history.records import AgentRun, Strategy
from convo.stores.base import Transaction
from tests.cli.chat_commands import ECHO
from tests.cli.serve_process import run_serve
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.command_runner import Convo

HINT = "convo store check lists the damaged rows; convo store recover NEW.db copies all others into a new file"

PAUSED = {
    "version": 1,
    "agent": "desk",
    "phase": "PAUSED",
    "turn": 1,
    "batch": [
        {
            "item": {"type": "function_call", "call_id": "call_1", "name": "refund", "arguments": "{}"},
            "id": "call_1",
            "stage": "WAITING",
            "lookup": ["function", "refund"],
            "tool": "h1:0",
            "arguments": "{}",
            "ran": False,
        }
    ],
    "always": [],
}


async def write_chats_and_runs(writer: ChatWriter) -> None:
    for number, name in enumerate(("monads", "tea", "coffee")):
        chat = await writer.chat(Strategy.SESSION, name, f"What is {name}?")
        run = AgentRun(f"run_{number}", chat.session.id, 1, "paused", PAUSED, 1.0, 1.0)
        await writer.store.commit(Transaction(agent_run=run))
    await writer.chat(Strategy.CONVERSATION, "café", "Où est le café?")


@pytest.fixture
def damaged_home(home: Path) -> Path:
    """A home whose store has four sessions, three of them with paused runs."""
    write_chats(home, write_chats_and_runs)
    return home


def change_database(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


DAMAGE_TEA = "UPDATE sessions SET record = '{' WHERE name = 'tea'"
TEA_LEFT_OUT = f"1 damaged row was left out (session 'tea'); {HINT}\n"


def test_the_list_of_sessions_leaves_a_damaged_one_out(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, DAMAGE_TEA)

    got = convo("sessions")
    assert got.exit == 0
    assert [line.split()[0] for line in got.out.splitlines()[1:]] == ["café", "coffee", "monads"]
    assert got.err == TEA_LEFT_OUT
    got = convo("sessions", "--json")
    assert ([one["name"] for one in json.loads(got.out)], got.err) == (["café", "coffee", "monads"], TEA_LEFT_OUT)
    assert convo("sessions", "-n", "3").err == TEA_LEFT_OUT


def test_many_damaged_rows_are_one_line(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, "UPDATE sessions SET record = '{'")

    got = convo("sessions")
    assert got.err.splitlines()[0] == (
        f"4 damaged rows were left out (session 'café', session 'coffee', session 'tea', 1 more); {HINT}"
    )


@pytest.mark.parametrize("argv", [["sessions", "show", "tea"], ["inspect", "tea"], ["chat", "--from", "tea", "hi"]])
def test_a_damaged_session_fails_alone(argv: list[str], convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, DAMAGE_TEA)

    got = convo(*argv)
    assert (got.exit, got.out) == (1, "")
    assert got.err == f"convo: the stored session 'tea' is damaged: its record is not valid JSON\n  try: {HINT}\n"
    assert convo("inspect", "monads").exit == 0


def test_no_other_session_takes_the_place_of_the_last_one(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, "UPDATE sessions SET record = '{' WHERE name = 'café'")

    for argv in (["inspect", "@last"], ["chat", "-c", "hi"]):
        got = convo(*argv)
        assert (got.exit, got.out) == (1, "")
        assert "the stored session 'café' is damaged" in got.err


def test_a_search_leaves_damaged_rows_out(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, DAMAGE_TEA, "UPDATE items SET body = '{' WHERE body LIKE '%What is coffee%'")

    got = convo("sessions", "search", "what is", "--json")
    assert {one["name"] for one in json.loads(got.out)} == {"monads"}
    assert got.err.startswith("3 damaged rows were left out (")
    assert "session 'tea'" in got.err


def test_a_damaged_first_message_is_not_shown(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, "UPDATE items SET body = '{' WHERE body LIKE '%What is tea%'")

    got = convo("sessions")
    assert [line.split()[0] for line in got.out.splitlines()[1:]] == ["café", "coffee", "tea", "monads"]
    assert "What is tea" not in got.out
    assert "1 damaged row was left out (item " in got.err


def test_a_damaged_response_is_left_out_of_its_tree(convo: Convo, damaged_home: Path) -> None:
    change_database(
        damaged_home,
        "UPDATE links SET status = 'x' WHERE session = (SELECT n FROM sessions WHERE name = 'tea')",
    )

    got = convo("inspect", "tea", "--json")
    assert (got.exit, json.loads(got.out)["links"]) == (0, [])
    assert got.err.startswith("1 damaged row was left out (response '")


RUN_DAMAGES = {
    "no JSON": "'{'",
    "no object": "'[]'",
    "no version": "'{}'",
    "no calls": "json_remove(body, '$.batch')",
    "a call without an id": "json_remove(body, '$.batch[0].id')",
    "a call that is a text": """json_set(body, '$.batch[0]', 'x')""",
    "a name that is a number": """json_set(body, '$.batch[0].lookup[1]', 1)""",
    "arguments that are a list": """json_set(body, '$.batch[0].arguments', json('[]'))""",
}


@pytest.mark.parametrize("body", RUN_DAMAGES.values(), ids=RUN_DAMAGES)
def test_a_damaged_paused_run_is_left_out(body: str, convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, f"UPDATE agent_documents SET body = {body} WHERE run = 2")

    got = convo("approvals", "--json")
    assert (got.exit, {one["run"] for one in json.loads(got.out)}) == (0, {"run_0", "run_2"})
    assert got.err == f"1 damaged row was left out (run 'run_1'); {HINT}\n"


NEWER_RUN = "UPDATE agent_documents SET body = json_set(body, '$.version', 9) WHERE run = 2"
UNREADABLE_RUN = (
    "run_1 (session tea) cannot be read, so its pending calls are unknown: "
    "$.version is 9, which this version of convo does not support; supported: 1; "
    "upgrade convo-state if a newer release wrote it\n"
)


def test_a_run_of_a_newer_version_is_named_and_the_others_are_listed(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, NEWER_RUN)

    got = convo("approvals", "--json")
    assert (got.exit, {one["run"] for one in json.loads(got.out)}, got.err) == (2, {"run_0", "run_2"}, UNREADABLE_RUN)
    got = convo("approvals")
    assert (got.exit, got.err) == (2, UNREADABLE_RUN)
    assert "monads" in got.out
    assert "coffee" in got.out
    got = convo("approvals", "show", "call_1", "--run", "tea")
    assert (got.exit, "$.version is 9" in got.err) == (2, True)


def test_the_calls_of_other_runs_can_be_decided_beside_a_run_of_a_newer_version(
    convo: Convo, damaged_home: Path
) -> None:
    change_database(damaged_home, NEWER_RUN)

    assert convo("approvals", "approve", "call_1", "--run", "monads").exit == 0
    got = convo("approvals", "approve", "all")
    assert got.exit == 2
    assert got.err.endswith(UNREADABLE_RUN)
    assert "call_1" in got.err
    assert convo("approvals", "--json").json() == []


def test_the_damaged_run_of_a_session_fails(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, "UPDATE agent_documents SET body = '{' WHERE run = 2")

    got = convo("resume", "tea")
    assert (got.exit, got.out) == (1, "")
    assert "convo: the stored run 'run_1' is damaged: its document is not valid JSON\n" in got.err
    got = convo("inspect", "tea")  # shows the conversation without the run
    assert got.exit == 0
    assert got.err == f"1 damaged row was left out (run 'run_1'); {HINT}\n"


def test_a_session_with_a_damaged_run_can_be_removed(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, "UPDATE agent_documents SET body = '{' WHERE run = 2")

    assert convo("sessions", "rm", "tea", "--yes").exit == 0
    assert "tea" not in convo("sessions").out


def test_a_new_session_does_not_get_the_name_of_a_damaged_one(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, DAMAGE_TEA)

    got = convo("chat", *ECHO, "--", "tea")
    assert got.exit == 0, got.err
    assert convo("sessions", "show", "tea-2").exit == 0


def test_a_completion_writes_nothing_to_the_terminal(
    convo: Convo, damaged_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_database(damaged_home, DAMAGE_TEA)

    names = [name for name, _ in list_completions(["inspect"], "") or ()]
    assert {"monads", "coffee"} <= {*names}
    assert capsys.readouterr().err == ""


def test_the_gateway_lists_the_other_sessions(damaged_home: Path) -> None:
    change_database(damaged_home, DAMAGE_TEA)

    with run_serve() as server:
        for _ in range(2):
            listing = server.http.get("/inspect/api/list").json()
            assert [one["name"] for one in listing["data"]] == ["café", "coffee", "monads"]
        got = server.http.get("/inspect/api/conversations/tea")
        assert (got.status_code, got.json()["error"]["code"]) == (500, "store_damaged")
        assert "tea" not in got.text
        assert server.stop(signal.SIGTERM) == 0
    message = "convo serve: the stored session 'tea' is damaged: its record is not valid JSON"
    assert server.err.splitlines() == [f"{message}; it was left out; {HINT}", message]


def test_the_gateway_lists_the_other_responses(damaged_home: Path) -> None:
    with run_serve() as server:
        first, second = (server.create_response(text, model="scripted/echo")["id"] for text in ("one", "two"))
        change_database(damaged_home, f"UPDATE links SET error = '{{' WHERE id = '{first}'")
        listing = server.http.get("/inspect/api/list").json()
        assert [one["id"] for one in listing["data"] if one["kind"] == "chain"] == [second]
        got = server.http.get(f"/v1/responses/{first}")
        assert (got.status_code, got.json()["error"]["code"]) == (500, "store_damaged")


def test_the_data_of_other_tenants_is_pruned_beside_a_damaged_session(convo: Convo, damaged_home: Path) -> None:
    write_chats(damaged_home, write_chats_and_runs, tenant="office")
    change_database(
        damaged_home, f"{DAMAGE_TEA} AND tenant = 1", "UPDATE sessions SET used_at = 9e9 WHERE record = '{'"
    )
    notice = "tenant local: a damaged session may continue any of the conversations, so none is removed\n"
    failure = f"convo: the stored session 'tea' is damaged: its record is not valid JSON\n  try: {HINT}\n"

    got = convo("store", "prune", "--older-than", "1d", "--json")
    assert (got.exit, [tenant["tenant"] for tenant in got.json()["tenants"]]) == (1, ["office"])
    got = convo("store", "prune", "--older-than", "1d", "--yes")
    assert (got.exit, got.err) == (1, f"{notice}removed\n{failure}")
    assert [line.split()[:2] for line in got.out.splitlines()[1:]] == [["office", "4"]]
    got = convo("store", "prune", "--older-than", "1d", "--yes")
    assert (got.exit, got.out, got.err) == (1, "", notice + failure)
    got = convo("store", "prune", "--older-than", "1d", "--json")
    assert (got.exit, got.json()["error"]["code"]) == (1, "store_damaged")


DAMAGES = (
    DAMAGE_TEA,
    "UPDATE agent_documents SET body = '{' WHERE run = 2",
    "UPDATE links SET status = 'x' WHERE session = (SELECT n FROM sessions WHERE name = 'coffee')",
)


def test_the_check_lists_the_damaged_rows(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, *DAMAGES)

    got = convo("store", "check")
    rows = [line for line in got.out.splitlines() if line.startswith("row: ")]
    assert got.exit == 1
    assert rows == [
        "row: the stored session 'tea' is damaged: its record is not valid JSON",
        f"row: the stored response '{response_of(damaged_home, 'coffee')}' is damaged: its status is invalid",
        "row: the stored run 'run_1' is damaged: its document is not valid JSON",
    ]
    result = convo("store", "check", "--json").json()
    assert {"table": "run", "key": "run_1", "problem": "its document is not valid JSON"} in result["damaged_rows"]
    assert [one["count"] for one in result["problems"] if one["code"] == "row"] == [3]


def test_many_damaged_rows_are_counted(convo: Convo, home: Path) -> None:
    write_chats(home, write_chats_and_runs)
    change_database(
        home,
        "WITH RECURSIVE n (n) AS (SELECT 10 UNION ALL SELECT n + 1 FROM n WHERE n < 210)"
        " INSERT INTO sessions (tenant, id, name, head, mark, used_at, record)"
        " SELECT 1, 'ses_x' || n, 'x' || n, 1, 1, 1, '{' FROM n",
    )

    lines = convo("store", "check").out.splitlines()
    assert len([line for line in lines if line.startswith("row: the stored session 'x")]) == 100
    assert "row: 101 more" in lines


def test_the_recovery_says_which_rows_it_repaired_and_left_out(convo: Convo, damaged_home: Path) -> None:
    change_database(damaged_home, *DAMAGES)
    response_id = response_of(damaged_home, "coffee")

    got = convo("store", "recover", "new.db")
    assert got.exit == 1
    assert [line for line in got.out.splitlines() if not line.startswith("complete")] == [
        "repaired   session 'tea': its record is not valid JSON",
        f"repaired   response '{response_id}': its status is invalid",
        "left out   run 'run_1': its document is not valid JSON",
    ]
    result = convo("store", "recover", "other.db", "--json").json()
    assert [row["table"] for row in result["repaired"]] == ["session", "response"]
    assert result["left_out"] == [{"table": "run", "key": "run_1", "problem": "its document is not valid JSON"}]
    assert convo("store", "check", "--store", "sqlite:new.db").exit == 0


def response_of(home: Path, session: str) -> str:
    with closing(sqlite3.connect(home / DATABASE)) as db:
        sql = "SELECT links.id FROM links JOIN sessions ON sessions.n = session WHERE sessions.name = ?"
        return str(db.execute(sql, (session,)).fetchone()[0])
