"""`convo approvals`: list and decide the pending calls of paused runs without loading their agents."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import AgentRun, Strategy
from convo.runs.serialize import run_from_json, run_to_json
from convo.runs.state import Run
from convo.runs.stored_approvals import list_pending_approvals
from convo.runtime import SystemClock
from convo.stores.base import Store, Transaction
from convo.stores.factory import open_store
from tests.cli.agent_files import read_from_store
from tests.cli.stored_chats import DATABASE, ChatScript, ChatWriter, write_chats
from tests.command_runner import Convo, Launch, run_in_process
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


async def two_paused_runs(writer: ChatWriter) -> None:
    """Store a run that was paused 200 seconds ago, and one with an unknown outcome of 30 seconds ago."""
    for number, (name, run, age_s) in enumerate((("shop", paused(), 200), ("my tea", unknown_outcome(), 30)), 1):
        chat = await writer.chat(Strategy.SESSION, name, "pay it back")
        since = SystemClock().now() - age_s
        row = AgentRun(f"run_{number}", chat.session.id, 1, "paused", run_to_json(run), since, since)
        await writer.store.commit(Transaction(agent_run=row))


def test_the_list_names_call_session_agent_tool_arguments_and_age(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)
    listing = convo("approvals")
    assert (listing.exit, listing.err) == (0, "")
    assert [line.rstrip() for line in listing.out.splitlines()] == [
        "call  session  agent  paused              run    tool                   arguments",
        'u1    my tea   shop   less than a minute  run_2  free, outcome unknown  {"text": "x"}',
        'g1    shop     shop   3 minutes           run_1  guarded                {"text": "x"}',
        'g2    shop     shop   3 minutes           run_1  guarded                {"text": "x"}',
        "m1    shop     shop   3 minutes           run_1  crm.drop               {}",
    ]
    assert convo("approvals", "list").out == listing.out


def call_record(call_id: str, tool: str, arguments: str = '{"text": "x"}', **members: Any) -> dict[str, Any]:
    record = {"run": "run_1", "session": "shop", "session_id": "ses_1", "call_id": call_id, "tool_name": tool}
    return {**record, "arguments": arguments, "agent": "shop", "unknown": False, "left": False, **members}


TEA: dict[str, Any] = {"run": "run_2", "session": "my tea", "session_id": "ses_2", "unknown": True}


def untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check the times of the records, and return the records without them."""
    for record in records:
        age_s = SystemClock().now() - record.pop("since")
        waits_s = record.pop("waits_s")
        assert age_s - 10 < waits_s <= age_s + 0.1
        assert waits_s == round(waits_s, 1)
    return records


def test_json_has_a_record_for_each_call(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)
    assert untimed(convo("approvals", "list", "--json").json()) == [
        call_record("u1", "free", **TEA),
        call_record("g1", "guarded"),
        call_record("g2", "guarded"),
        call_record("m1", "crm.drop", "{}"),
    ]
    assert untimed(convo("approvals", "show", "m1", "u1", "m1", "--json").json()) == [
        call_record("m1", "crm.drop", "{}"),
        call_record("u1", "free", **TEA),
    ]


def test_show_prints_several_calls_with_a_blank_line_between_them(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)
    assert convo("approvals", "show", "m1", "u1").out == (
        "crm.drop needs approval\n"
        "  agent      shop\n"
        "  call       m1\n"
        "  runs       at the provider\n"
        "  arguments  {}\n"
        "  session    shop\n"
        "  run        run_1\n"
        "\n"
        "free has an unknown outcome\n"
        "  agent      shop\n"
        "  call       u1\n"
        "  arguments  {\n"
        '               "text": "x"\n'
        "             }\n"
        "  note       the call was started but has no output: it may or may not have run\n"
        "  session    my tea\n"
        "  run        run_2\n"
    )


RESUME_SHOP = "all calls are decided; to resume: convo resume shop --agent FILE.py:NAME"
RESUME_TEA = "all calls are decided; to resume: convo resume 'my tea' --agent FILE.py:NAME"


@pytest.mark.parametrize(
    ("earlier", "argv", "lines"),
    [
        (
            [],
            ["approve", "g1", "g1", "--run", "run_1"],
            ["approved guarded (g1)", "shop still has pending calls: g2, m1"],
        ),
        ([], ["approve", "m1", "--run", "ses_1"], ["approved crm.drop (m1)", "shop still has pending calls: g1, g2"]),
        ([], ["reject", "m1=no", "--run", "shop"], ["rejected crm.drop (m1)", "shop still has pending calls: g1, g2"]),
        (
            [],
            ["approve", "g1", "--always"],
            ["approved guarded (g1), always", "shop still has pending calls: m1"],
        ),
        (
            [],
            ["approve", "u1", "m1"],
            ["approved free (u1)", "approved crm.drop (m1)", "shop still has pending calls: g1, g2", RESUME_TEA],
        ),
        (
            ["approve", "g1"],
            ["reject", "g1=late"],
            ["rejected guarded (g1), was approved", "shop still has pending calls: g2, m1"],
        ),
        (
            ["approve", "g1"],
            ["reject", "guarded=late", "m1"],
            [
                "rejected guarded (g2)",
                "rejected crm.drop (m1)",
                RESUME_SHOP,
                "guarded (g1) remains approved; to change it: --reject g1",
            ],
        ),
        (
            ["reject", "all", "--run", "run_1"],
            ["approve", "guarded"],
            [
                "guarded (g1) remains rejected; to change it: --approve g1",
                "guarded (g2) remains rejected; to change it: --approve g2",
            ],
        ),
        (["reject", "m1"], ["reject", "crm.drop"], []),
        (
            ["reject", "m1"],
            ["approve", "all", "--run", "run_1"],
            [
                "approved guarded (g1)",
                "approved guarded (g2)",
                RESUME_SHOP,
                "crm.drop (m1) remains rejected; to change it: --approve m1",
            ],
        ),
    ],
)
def test_decisions_and_the_remaining_calls_of_their_runs_are_reported(
    earlier: list[str], argv: list[str], lines: list[str], convo: Convo, home: Path
) -> None:
    write_chats(home, two_paused_runs)
    assert not earlier or convo("approvals", *earlier).exit == 0
    got = convo("approvals", *argv)
    assert (got.exit, got.out, got.err.splitlines()) == (0, "", lines)


def test_decisions_with_json_print_the_calls_that_are_left_of_their_runs(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)
    got = convo("approvals", "approve", "guarded", "--json")
    assert (untimed(got.json()), got.err) == ([call_record("m1", "crm.drop", "{}")], "")
    got = convo("approvals", "reject", "all", "--run", "shop", "--json")
    assert got.json() == []
    assert got.err.splitlines() == [
        "guarded (g1) remains approved; to change it: --reject g1",
        "guarded (g2) remains approved; to change it: --reject g2",
    ]


def test_a_run_without_undecided_calls_is_listed_until_it_is_resumed(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)
    assert convo("approvals", "approve", "all").exit == 0
    assert [line.split()[:1] + line.split()[-2:] for line in convo("approvals").out.splitlines()] == [
        ["call", "tool", "arguments"],
        ["-", "run_1", "decided"],
        ["-", "run_2", "decided"],
    ]
    assert convo("approvals", "--json").json() == []
    got = convo("approvals", "approve", "nobody")
    assert (got.exit, got.err) == (5, "convo: no pending call 'nobody'\n  try: convo approvals\n")


def test_a_call_of_a_session_that_is_open_in_a_chat_is_decided(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_runs)

    async def acquire_lease(store: Store) -> None:
        await store.acquire_lease("session ses_1", "other@elsewhere:1:1", 60)

    read_from_store(home, acquire_lease)
    got = convo("approvals", "approve", "g1")
    assert (got.exit, got.out) == (0, "")
    assert got.err.startswith("approved guarded (g1)\n")
    assert [one["call_id"] for one in convo("approvals", "log", "--json").json()] == ["g1"]


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
    assert convo("approvals", "edit", "g1").err.startswith("approved guarded (g1), with other arguments\n")
    first = stored_run(home).document["batch"][0]
    assert (first["stage"], first["arguments"]) == ("READY", '{"text": "y"}')


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (["approve", "nobody"], 5, "no pending call 'nobody'; pending: g1, g2, m1\n  try: convo approvals\n"),
        (["reject", "gg1=not today"], 5, "no pending call 'gg1'; pending: g1, g2, m1\n  try: convo approvals\n"),
        (["approve", "all", "--run", "shp"], 5, "no paused run 'shp'\n  try: convo approvals\n"),
        (["reject", "g1", "not today"], 5, "try: a reason belongs to its call: convo approvals reject 'g1=not today'"),
        (["show", "nobody"], 5, "no pending call 'nobody'"),
        (["approve", "g1", "--run", "other"], 5, "no paused run 'other'\n  try: convo approvals"),
        (["approve", "g1", "nobody"], 5, "no pending call 'nobody'"),
        (["reject", "g1=a", "g1=b"], 2, "g1 is given two different decisions\n  try: name it once\n"),
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


def test_the_log_has_each_decision_with_its_arguments(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (convo("approvals", "log").err, convo("approvals", "log", "--json").json()) == ("no decisions\n", [])
    write_chats(home, two_paused_runs)
    (tmp_path / "editor.py").write_text("import sys; open(sys.argv[1], 'w').write('{\"text\": \"y\"}')")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {tmp_path / 'editor.py'}")
    assert convo("approvals", "edit", "g1", "--run", "shop").exit == 0
    assert convo("approvals", "reject", "g2=not on a Friday", "--always", "--run", "shop").exit == 0
    assert convo("approvals", "approve", "g2", "--run", "shop").exit == 0
    names = ("call_id", "decision", "always", "reason", "arguments", "decided_by", "source")
    assert [tuple(entry[name] for name in names) for entry in convo("approvals", "log", "--json").json()] == [
        ("g2", "approve", False, None, '{"text": "x"}', None, "command"),
        ("g2", "reject", True, "not on a Friday", '{"text": "x"}', None, "command"),
        ("g1", "approve", False, None, '{"text": "y"}', None, "command"),
    ]
    (first, *_, last) = convo("approvals", "log", "--run", "shop").out.splitlines()
    assert first.split() == ["time", "decision", "key", "call", "agent", "run", "tool", "arguments", "reason"]
    assert last.split()[2:] == ["approved", "-", "g1", "shop", "run_1", "guarded", '{"text":', '"y"}']
    got = convo("approvals", "log", "--run", "nobody")
    assert (got.exit, got.err.splitlines()[0]) == (5, "convo: no session 'nobody'")


def test_both_calls_with_one_id_are_logged(convo: Convo, home: Path) -> None:
    write_chats(home, paused_session("trip", paused_with_two_clerks()))
    assert convo("approvals", "approve", "i1").exit == 0
    assert [entry["call_id"] for entry in convo("approvals", "log", "--json").json()] == ["i1", "i1"]


def list_in_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    return run_in_process("approvals", is_terminal=True).out


def test_a_terminal_names_the_decided_runs_below_the_pending_calls(
    home: Path, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chats(home, two_paused_runs)
    pending = list_in_terminal(100, monkeypatch)
    assert "all calls are decided" not in pending
    assert convo("approvals", "approve", "all", "--run", "shop").exit == 0
    lines = list_in_terminal(100, monkeypatch).splitlines()
    assert lines[-2:] == ["", "✓ shop: all calls are decided; to resume: convo resume shop --agent FILE.py:NAME"]
    assert convo("approvals", "approve", "all").exit == 0
    lines = list_in_terminal(60, monkeypatch).splitlines()
    assert lines == [
        "✓ my tea: all calls are decided; to resume:",
        "  convo resume 'my tea' --agent FILE.py:NAME",
        "✓ shop: all calls are decided; to resume:",
        "  convo resume shop --agent FILE.py:NAME",
    ]


def test_a_narrow_terminal_shows_the_tool_and_not_the_id_of_a_call(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chats(home, paused_session("shop", paused(call("call_4dc9e3fada7d4438c5bff57de178f56a", "guarded"))))
    narrow, wide = (list_in_terminal(columns, monkeypatch) for columns in (40, 100))
    assert "call_4" not in narrow
    assert "shop" in narrow
    assert "call_4dc9e3fada7d4438c5bff57de178f56a" in wide
