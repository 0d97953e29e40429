"""`convo approvals`: list and decide the pending calls of paused runs without loading their agents."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from convo.runs.serialize import run_from_json, run_to_json
from convo.runs.state import Run
from convo.runs.stored_approvals import list_pending_approvals
from convo.stores.base import AgentRun, Transaction
from convo.stores.factory import open_store
from tests.cli.stored_chats import DATABASE, ChatScript, ChatWriter, write_chats
from tests.command_runner import Convo, Launch
from tests.runs.run_steps import call
from tests.runs.test_nested_runs import paused_with_two_clerks
from tests.runs.test_stored_approvals import paused, unknown_outcome


def paused_session(name: str, run: Run, run_id: str = "run_1") -> ChatScript:
    """Return a script that stores a session with this run, paused."""

    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, name, "pay it back")
        now = writer.clock.now()
        agent_run = AgentRun(run_id, chat.session.id, 1, "paused", run_to_json(run), now, now)
        await writer.store.commit(Transaction(agent_run=agent_run))

    return script


def stored_run(home: Path, run_id: str = "run_1") -> AgentRun:
    """Read the run from the store."""

    async def read() -> AgentRun:
        store = open_store(f"sqlite:{home / DATABASE}")
        try:
            run = await store.agent_run(run_id)
            assert run
            return run
        finally:
            await store.aclose()

    return asyncio.run(read())


def call_stages(home: Path) -> dict[str, str]:
    return {one["id"]: one["stage"] for one in stored_run(home).document["batch"]}


def test_an_empty_inbox_is_reported_and_creates_no_store(convo: Convo, home: Path) -> None:
    got = convo("approvals")
    assert (got.exit, got.out, got.err) == (0, "", "no pending calls\n")
    assert convo("approvals", "--json").json() == []
    assert not home.exists()


def test_the_list_names_call_session_agent_tool_arguments_and_age(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    head, first, *rest = convo("approvals").out.splitlines()
    assert head.split() == ["call", "session", "agent", "paused", "run", "tool", "arguments"]
    assert first.split()[:3] == ["g1", "shop", "shop"]
    assert first.rstrip().endswith('run_1  guarded   {"text": "x"}')
    assert [line.split()[0] for line in rest] == ["g2", "m1"]
    assert "\x1b" not in first


def test_json_has_a_record_for_each_call(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    first, _, last = convo("approvals", "list", "--json").json()
    assert first["waits_s"] > 0
    assert {key: first[key] for key in ("run", "session", "call_id", "tool_name", "arguments", "agent", "unknown")} == {
        "run": "run_1",
        "session": "shop",
        "call_id": "g1",
        "tool_name": "guarded",
        "arguments": '{"text": "x"}',
        "agent": "shop",
        "unknown": False,
    }
    assert (last["call_id"], last["tool_name"]) == ("m1", "crm.drop")


def test_show_prints_a_call_completely(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused(call("g1", "guarded", '{"text":"a"}'))))
    assert convo("approvals", "show", "g1").out == (
        "guarded needs approval\n"
        "  agent      shop\n"
        "  call       g1\n"
        "  arguments  {\n"
        '               "text": "a"\n'
        "             }\n"
        "  session    shop\n"
        "  run        run_1\n"
    )


def test_a_call_with_unknown_outcome_is_marked(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", unknown_outcome()))
    assert "free, outcome unknown" in convo("approvals").out
    assert "it may or may not have run" in convo("approvals", "show", "u1").out


def test_a_decision_is_stored_and_nothing_else_changes(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    before = stored_run(home)
    got = convo("approvals", "approve", "g1")
    assert (got.exit, got.out, got.err) == (0, "", "approved guarded (g1)\nshop still has pending calls: g2, m1\n")
    assert call_stages(home) == {"g1": "READY", "g2": "WAITING", "m1": "WAITING"}
    after = stored_run(home)
    assert (after.revision, after.status, after.session_id) == (before.revision + 1, "paused", before.session_id)
    assert run_from_json(after.document, paused().graph).pending != ()


def test_without_a_pending_call_the_suggested_command_works(convo: Convo, home: Path) -> None:
    got = convo("approvals", "approve", "g1")
    assert (got.exit, got.err) == (5, "convo: no pending call 'g1'\n  try: convo approvals\n")
    assert convo("approvals").exit == 0


def test_the_last_decision_prints_the_command_that_resumes_the_run(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    got = convo("approvals", "reject", "all", "--run", "shop")
    assert got.err.splitlines()[-1] == "all calls are decided; to resume: convo resume shop --agent FILE.py:NAME"
    assert convo("approvals", "--json").json() == []
    assert "decided" in convo("approvals").out


def test_a_tool_name_selects_all_of_its_calls_and_a_reason_is_stored(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    convo("approvals", "reject", "guarded=not on a Friday = no")
    outputs = [one["output"] and one["output"]["output"] for one in stored_run(home).document["batch"][:2]]
    assert outputs == ["not on a Friday = no"] * 2
    assert [one["call_id"] for one in convo("approvals", "--json").json()] == ["m1"]


def test_always_applies_to_every_later_call_of_the_tool(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    assert convo("approvals", "approve", "guarded", "--always").exit == 0
    assert call_stages(home) == {"g1": "READY", "g2": "READY", "m1": "WAITING"}
    assert run_from_json(stored_run(home).document, paused().graph).sticky_decisions == {
        ("shop", ("bare", "guarded")): True
    }


def test_arguments_are_edited_in_the_editor(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chats(home, paused_session("shop", paused()))
    (tmp_path / "editor.py").write_text("import sys; open(sys.argv[1], 'w').write('{\"text\": \"y\"}')")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")
    assert convo("approvals", "edit", "g1").exit == 0
    first = stored_run(home).document["batch"][0]
    assert (first["stage"], first["arguments"]) == ("READY", '{"text": "y"}')


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (["approve", "nobody"], 5, "no pending call 'nobody'\n  try: one of g1, g2, m1"),
        (["show", "nobody"], 5, "no pending call 'nobody'"),
        (["approve", "g1", "--run", "other"], 5, "no paused run 'other'\n  try: convo approvals"),
        (["approve", "g1", "nobody"], 5, "no pending call 'nobody'"),
    ],
)
def test_an_invalid_selection_is_refused_and_nothing_changes(
    argv: list[str], exit_code: int, message: str, convo: Convo, home: Path
) -> None:
    write_chats(home, paused_session("shop", paused()))
    before = stored_run(home)
    got = convo("approvals", *argv)
    assert (got.exit, got.out) == (exit_code, "")
    assert message in got.err
    assert stored_run(home) == before


def test_an_id_in_two_runs_is_listed_with_both_runs(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await paused_session("shop", paused())(writer)
        await paused_session("other", paused(), "run_2")(writer)

    write_chats(home, script)
    got = convo("approvals", "approve", "g1")
    assert (got.exit, "--run run_1" in got.err, "--run run_2" in got.err) == (2, True, True)
    assert got.err.endswith("  try: add --run RUN to select one run\n")
    assert convo("approvals", "approve", "g1", "--run", "run_2").exit == 0
    assert [one["run"] for one in convo("approvals", "--json").json() if one["call_id"] == "g1"] == ["run_1"]


def test_an_id_of_two_calls_in_one_run_selects_both(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("trip", paused_with_two_clerks()))
    got = convo("approvals", "approve", "i1")
    assert got.exit == 0, got.err
    assert got.err.count("approved guarded (i1)\n") == 2
    assert convo("approvals", "--json").json() == []


def test_concurrent_decisions_of_two_processes_are_both_stored(launch: Launch, home: Path) -> None:
    write_chats(home, paused_session("shop", paused()))
    assert launch("approvals", "approve", "g1").exit == 0
    assert launch("approvals", "reject", "g2").exit == 0
    assert [one.call_id for one in list_pending_approvals(stored_run(home).document)] == ["m1"]


def test_a_run_of_an_unknown_document_version_is_one_error_sentence(convo: Convo, home: Path) -> None:
    write_chats(home, write_unknown_version)
    got = convo("approvals")
    assert (got.exit, got.out) == (2, "")
    assert "$.version is 9" in got.err


async def write_unknown_version(writer: ChatWriter) -> None:
    chat = await writer.chat(Strategy.SESSION, "shop", "hi")
    document: dict[str, Any] = {**json.loads(json.dumps(run_to_json(paused()))), "version": 9}
    await writer.store.commit(
        Transaction(agent_run=AgentRun("run_1", chat.session.id, 1, "paused", document, 1.0, 1.0))
    )
