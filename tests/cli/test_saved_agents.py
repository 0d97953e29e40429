"""`chat -c` and `resume` use the stored agents of a session, and none from a state file or another user's store."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.agent_files import AGENTS, HANDOFF, PAID_BACK, REFUND, agent_flags, stored_runs, tool_runs
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.serve_process import run_serve
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch
from tests.terminal.pty_session import at_terminal

MARKER_AGENTS = AGENTS + '\nimport os\npathlib.Path(os.environ.get("IMPORTED", "imported.txt")).write_text("yes")\n'


@pytest.fixture
def model_flags(convo: Convo, home: Path) -> tuple[str, str]:
    """Create a session with an answer of an agent; returns the flags of its model."""
    model = scripted_flags({"text": "Hello."}, REFUND, PAID_BACK)
    got = convo("chat", *agent_flags(), *model, "-n", "mine", "hi")
    assert got.exit == 0, got.err
    return model


@pytest.fixture
def paused_flags(convo: Convo, home: Path) -> tuple[str, str]:
    model = scripted_flags(REFUND, PAID_BACK)
    assert convo("chat", *agent_flags(), *model, "--state", "state.json", "-n", "mine", "pay back").exit == 3
    return model


def change_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to another folder, where the relative path of the agent file does not exist."""
    Path("away").mkdir()
    monkeypatch.chdir("away")


@pytest.mark.parametrize("flags", [["-c"], ["--from", "mine"], ["--fork", "mine"]])
def test_a_session_continues_with_its_stored_agents_and_model(
    flags: list[str], model_flags: tuple[str, str], convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path("bot.py").absolute()
    change_folder(monkeypatch)
    got = convo("chat", *flags, "--json", "pay back")
    assert (got.exit, [one["call_id"] for one in got.json()["pending"]]) == (3, ["c1"]), got.err
    assert got.json()["model"] == model_flags[1]
    assert f"using this session's agents: {file}:desk" in got.err


def test_the_next_request_is_shown_as_the_stored_agents_would_send_it(
    model_flags: tuple[str, str], convo: Convo
) -> None:
    note = f"using this session's agents: {Path('bot.py').absolute()}:desk\n"
    got = convo("next", "mine", "pay back", "--json")
    body = got.json()["body"]
    assert (got.exit, got.err) == (0, note)
    assert (body["model"], body["instructions"]) == (model_flags[1], "Help.")
    assert [tool["name"] for tool in body["tools"]] == ["refund", "look_up", "who"]
    other = convo("next", "mine", "pay back", "--json", "-m", "scripted/echo")
    assert (other.json()["body"]["model"], other.err) == ("scripted/echo", note)
    plain = convo("next", "mine", "pay back", "--json", "--agent", "none")
    assert ("tools" in plain.json()["body"], plain.err) == (False, "")
    refused = convo("next", "mine", "pay back", "-s", "Be brief.")
    assert (refused.exit, refused.out, refused.err) == (
        2,
        "",
        f"{note}convo: -s and --agent cannot be used together: an agent has its own instructions\n"
        "  try: leave -s out\n",
    )


def test_a_fork_keeps_the_stored_agents(model_flags: tuple[str, str], convo: Convo) -> None:
    assert convo("chat", "--fork", "mine", "-n", "other", "pay back").exit == 3
    got = convo("resume", "other", "--approve", "all")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), got.err


def test_a_flag_takes_precedence_over_the_stored_agents(model_flags: tuple[str, str], convo: Convo) -> None:
    got = convo("chat", "-c", "--agent", "bot.py:guarded", "-m", "scripted/echo", "--json", "hi")
    assert (got.json()["agent"], got.json()["model"]) == ("guarded", "scripted/echo")
    again = convo("chat", "-c", "--json", "hi")
    assert (again.json()["agent"], again.json()["model"]) == ("guarded", "scripted/echo")
    other = convo("chat", "-c", "-m", model_flags[1], "--json", "hi")
    assert (other.json()["agent"], other.json()["model"]) == ("guarded", model_flags[1])


def test_agent_none_continues_a_session_without_its_agents(model_flags: tuple[str, str], convo: Convo) -> None:
    got = convo("chat", "-c", "--agent", "none", "-m", "scripted/echo", "-s", "Be brief.", "ping")
    assert (got.exit, got.out) == (0, "ping\n"), got.err
    assert "agents" not in got.err


@pytest.mark.parametrize("argv", [["chat", "-c", "hi"], ["resume", "mine", "--approve", "all"]])
def test_a_missing_agent_file_is_refused_before_any_request(
    argv: list[str], paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    Path("bot.py").unlink()
    before = stored_runs(home)
    got = convo(*argv)
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        f"convo: the agents of this session were in {Path('bot.py').absolute()}, which is missing or not a file\n"
        "  try: name them with --agent FILE.py:NAME"
        + ("; or continue without agents: --agent none\n" if argv[0] == "chat" else "\n")
    )
    assert stored_runs(home) == before


@pytest.mark.parametrize("handle", ["state.json", "mine", "@last", "-"])
def test_a_run_in_the_store_resumes_without_an_agent_option(
    handle: str, paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    text = Path("state.json").read_text() if handle == "-" else ""
    got = convo("resume", handle, "--approve", "all", stdin=text)
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), got.err


def test_an_imported_state_that_was_resumed_once_needs_no_agent_option(
    paused_flags: tuple[str, str], convo: Convo, launch: Launch
) -> None:
    env = {"CONVO_HOME": "elsewhere"}
    got = launch("resume", "state.json", "--approve", "all", env=env)
    assert (got.exit, "needs its agents, and none were given" in got.err, tool_runs()) == (2, True, [])
    assert launch("resume", "state.json", *agent_flags(), *paused_flags, env=env).exit == 3
    got = launch("resume", "state.json", "--approve", "all", env=env)
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), got.err


def test_an_agent_file_named_in_a_state_file_is_never_imported(paused_flags: tuple[str, str], convo: Convo) -> None:
    text = Path("state.json").read_text()
    assert "bot.py" not in text
    Path("evil.py").write_text("import pathlib\npathlib.Path('evil.txt').write_text('ran')\n")
    document = json.loads(text)
    origin = {"agent": str(Path("evil.py").absolute()) + ":desk", "model": None}
    document |= {"origin": origin, "convo": {**document["convo"], "origin": origin, **origin}}
    Path("state.json").write_text(json.dumps(document))
    convo("resume", "state.json", "--approve", "all")
    del document["convo"]["run"]
    Path("state.json").write_text(json.dumps(document))
    assert convo("resume", "state.json", "--approve", "all").exit == 2
    assert not Path("evil.txt").exists()


@pytest.mark.parametrize("argv", [["chat", "-c", "hi"], ["resume", "mine", "--approve", "all"]])
@pytest.mark.parametrize("key", ["none", "another"])
def test_a_store_written_by_another_user_imports_no_agents(
    key: str, argv: list[str], convo: Convo, launch: Launch, home: Path
) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    convo("chat", *agent_flags(text=MARKER_AGENTS), *model, "-n", "mine", "pay back")
    Path("imported.txt").unlink(missing_ok=True)
    other = Path("other")
    if key == "another":
        assert (
            launch("chat", *agent_flags(text=AGENTS), "-m", "scripted/echo", "hi", env={"CONVO_HOME": "other"}).exit
            == 0
        )
    (other / "data").mkdir(parents=True, exist_ok=True)
    for path in home.joinpath(DATABASE).parent.glob(home.joinpath(DATABASE).name + "*"):
        shutil.copy(path, other / path.relative_to(home))
    Path("bot.py").write_text(MARKER_AGENTS)
    got = launch(*argv, env={"CONVO_HOME": "other"})
    assert (got.exit, "stored by another user or on another machine" in got.err) == (2, True), got.err
    assert not Path("imported.txt").exists()


def test_a_modified_row_imports_no_agents(paused_flags: tuple[str, str], convo: Convo, home: Path) -> None:
    Path("evil.py").write_text("import pathlib\npathlib.Path('evil.txt').write_text('ran')\n")
    with closing(sqlite3.connect(home / DATABASE)) as db, db:
        db.execute("UPDATE agent_documents SET body = replace(body, '/bot.py:desk', '/evil.py:desk')")
        assert db.execute("SELECT count(*) FROM agent_documents WHERE body LIKE '%/evil.py:desk%'").fetchone() == (1,)
    got = convo("resume", "mine", "--approve", "all")
    assert (got.exit, "evil.py:desk, were stored by another user" in got.err) == (2, True), got.err
    assert not Path("evil.txt").exists()


def test_a_run_of_an_older_release_continues_with_a_note(
    paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    assert convo("resume", "mine", "--approve", "all").exit == 0
    with closing(sqlite3.connect(home / DATABASE)) as db, db:
        db.execute("UPDATE agent_documents SET body = json_remove(body, '$.origin')")
    got = convo("chat", "-c", "-m", "scripted/echo", "ping")
    assert (got.exit, got.out) == (0, "ping\n")
    assert "the agents of this session are not stored" in got.err


def test_a_decision_in_the_inbox_keeps_the_stored_agents(paused_flags: tuple[str, str], convo: Convo) -> None:
    assert convo("approvals", "approve", "all").exit == 0
    got = convo("resume", "mine")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err


def test_convo_serve_imports_no_agents_of_its_store(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convo("chat", *agent_flags(text=MARKER_AGENTS), *scripted_flags(REFUND, PAID_BACK), "-n", "mine", "pay back")
    Path("imported.txt").unlink()
    with run_serve() as server:
        for path in ("/", "/v1/models", "/inspector/sessions"):
            server.http.get(path)
        (run,) = stored_runs(home)
        server.http.get(f"/inspector/sessions/{run.session_id}")
        server.create_response("hi", model="scripted/echo")
    assert not Path("imported.txt").exists()


@pytest.mark.needs("terminal")
def test_resuming_a_session_without_its_agents_at_the_prompt_prints_a_note(
    model_flags: tuple[str, str], home: Path
) -> None:
    with at_terminal("chat", *ECHO, "-n", "other") as terminal:
        terminal.wait_for_prompt()
        assert "mine used agents, and this chat does not; to use them: convo chat --from mine" in terminal.send_line(
            "/resume mine"
        )
        assert terminal.end_session() == 0


@pytest.mark.needs("terminal")
def test_the_status_of_a_resumed_conversation_does_not_show_the_run_of_the_one_before(convo: Convo) -> None:
    convo("chat", *ECHO, "-n", "plain", "hi")
    with at_terminal("chat", *agent_flags(text=MARKER_AGENTS), *ECHO, "-n", "agents") as terminal:
        terminal.wait_for_prompt()
        assert ", agent " in terminal.send_line("/status")
        terminal.send_line("/resume plain")
        assert ", agent " not in terminal.send_line("/status")
        assert terminal.end_session() == 0


def test_a_conversation_stays_with_the_agent_that_answered_last(convo: Convo, home: Path) -> None:
    model = scripted_flags(HANDOFF, {"text": "Billing."}, {"text": "Again."}, REFUND, PAID_BACK, {"text": "Paid."})
    flags = (*agent_flags("triage"), *model)
    first = convo("chat", *flags, "-n", "mine", "hi")
    assert "agent billing · 2 calls" in first.err
    assert convo("chat", *flags, "-c", "--json", "and now?").json()["agent"] == "billing"
    assert convo("inspect", "mine", "--json").json()["agent"] == "billing"
    assert ["agent", "billing"] in [line.split() for line in convo("inspect", "mine").out.splitlines()]
    assert convo("next", "mine", "and?", "--json").json()["body"]["instructions"] == "Pay back."
    assert convo("chat", "-c", "pay back").exit == 3
    resumed = convo("resume", "mine", "--approve", "all", "--json")
    assert (resumed.json()["agent"], resumed.json()["output_text"]) == ("billing", "Paid back."), resumed.err
    assert [convo("chat", "--fork", "mine", "--json", "hi").json()["agent"] for _ in range(2)] == ["billing"] * 2


def test_start_agent_chooses_the_agent_and_the_conversation_stays_with_it(convo: Convo, home: Path) -> None:
    flags = (*agent_flags("triage"), *ECHO)
    assert convo("chat", *flags, "-n", "mine", "--start-agent", "billing", "--json", "hi").json()["agent"] == "billing"
    assert convo("chat", "-c", "--json", "hi").json()["agent"] == "billing"
    assert convo("chat", "-c", "--start-agent", "Triage", "--json", "hi").json()["agent"] == "triage"
    assert convo("chat", "-c", "--agent", "bot.py:billing", "--json", "hi").json()["agent"] == "billing"
    Path("named.py").write_text(AGENTS.replace('Agent("billing"', 'Agent("Billing desk"'))
    got = convo("chat", "--agent", "named.py:triage", *ECHO, "--start-agent", "billing", "--json", "hi")
    assert got.json()["agent"] == "Billing desk", got.err
    unknown = convo("chat", *flags, "--start-agent", "payments", "hi")
    assert (unknown.exit, unknown.err.splitlines()[-1]) == (5, "  try: choose one of triage, billing"), unknown.err


def test_a_prompt_lists_the_agents_and_chooses_the_next_one(home: Path) -> None:
    model = scripted_flags(HANDOFF, {"text": "Billing."}, {"text": "Again."}, {"text": "Back."})
    with at_terminal("chat", *agent_flags("triage"), *model, "-n", "mine", columns=120) as terminal:
        terminal.wait_for_prompt()
        assert "agent billing" in terminal.send_line("hi")
        assert "agent billing" in terminal.send_line("and now?")
        assert "* billing" in terminal.send_line("/agent")
        assert "look_up" in terminal.send_line("/tools")
        assert "choose one of triage, billing" in terminal.send_line("/agent payments")
        assert "* triage" in terminal.send_line("/agent triage")
        assert "agent triage" in terminal.send_line("hello")
        terminal.send_line("/undo")
        assert "* billing" in terminal.send_line("/agent")
        assert terminal.end_session() == 0
