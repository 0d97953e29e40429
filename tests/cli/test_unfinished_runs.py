"""Unfinished agent runs in screens and in `convo approvals`: pending calls, and the command that resumes them."""

import os
import shlex
import signal
from pathlib import Path

import pytest

from convo.agents.agent import Agent
from convo.history.records import AgentRun, Strategy
from convo.runs.serialize import run_to_json
from convo.runs.state import RunStarted
from convo.stores.base import Transaction
from tests.cli.agent_files import AGENTS, LOOK_UP, PAID_BACK, REFUND, agent_flags, tool_runs
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.cli.test_approvals import paused_session
from tests.command_runner import Convo, Start
from tests.runs.run_steps import FREE, apply_events, call, make_run, model_response
from tests.runs.test_stored_approvals import paused

HANGING_AGENTS = AGENTS.replace(
    'note(f"look_up {order}")', 'note("begun")\n    print("STARTED", flush=True)\n    import time\n    time.sleep(60)'
)
"""Agents whose look_up tool prints STARTED and then runs longer than the test."""

OWN_MODEL_AGENTS = (
    AGENTS
    + """
from convo.agents import agent_tool
ours = Agent("ours", model="scripted/echo", tools=(refund,))
"""
)


@pytest.fixture(autouse=True)
def change_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def field_text(screen: str, label: str) -> str:
    """The text after a label on a screen."""
    line = next(line for line in screen.splitlines() if line.startswith(f"  {label}  "))
    return line.removeprefix(f"  {label}  ").strip()


def test_the_screens_of_a_session_name_the_pending_run_and_the_command_that_resumes_it(convo: Convo) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    assert convo("chat", *agent_flags(), *model, "-n", "mine", "back").exit == 3
    for command in (("inspect", "mine"), ("sessions", "show", "mine")):
        screen = convo(*command).out
        assert field_text(screen, "run") == "an agent run needs approval: c1"
        assert field_text(screen, "continue") == "convo resume mine"
        assert "convo chat --from" not in screen
    assert convo("resume", "mine", *agent_flags(), *model, "--approve", "c1").exit == 0
    for command in (("inspect", "mine"), ("sessions", "show", "mine")):
        screen = convo(*command).out
        assert field_text(screen, "unconfirmed") == "none"
        assert field_text(screen, "continue") == "convo chat --from mine"


@pytest.mark.needs("posix")
def test_a_run_is_orphaned_only_after_its_process_was_killed(start: Start, convo: Convo, home: Path) -> None:
    model = scripted_flags(LOOK_UP, PAID_BACK)
    process = start("chat", *agent_flags("desk", HANGING_AGENTS), *model, "-n", "mine", "A1?")
    assert process.stderr
    assert "STARTED\n" in iter(process.stderr.readline, "")
    assert (convo("approvals").err, convo("approvals", "--json").json()) == ("no pending calls\n", [])
    screen = convo("inspect", "mine").out
    assert field_text(screen, "run").startswith(f"an agent run is in progress in process {process.pid} on ")
    assert "continue  " not in screen

    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    got, line = convo("approvals"), "1 interrupted run; to resume: convo resume mine\n"
    assert (got.exit, got.out, got.err) == (0, "", line)
    listing = convo("approvals", "--json")
    (orphan,) = listing.json()
    assert (orphan["call_id"], orphan["tool_name"], orphan["session"]) == ("c0", "look_up", "mine")
    assert (orphan["left"], orphan["unknown"], listing.err) == (True, True, line)
    for command in (("inspect", "mine"), ("sessions", "show", "mine")):
        screen = convo(*command).out
        assert field_text(screen, "run") == "an agent run was interrupted during its calls"
        assert field_text(screen, "continue") == "convo resume mine"

    assert convo("resume", "mine", *agent_flags("desk", AGENTS), *model).exit == 3
    (pending,) = convo("approvals", "--json").json()
    assert (pending["call_id"], pending["left"], pending["unknown"]) == ("c0", False, True)
    assert "interrupted run" not in convo("approvals").err


def test_the_suggested_command_keeps_a_model_that_replaced_the_one_of_the_agents(convo: Convo) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    got = convo("chat", *agent_flags("ours", OWN_MODEL_AGENTS), *model, "-n", "mine", "back")
    assert got.exit == 3
    command = got.err.splitlines()[-1].partition("to decide and resume: convo ")[2]
    assert command == f"resume mine --agent bot.py:ours -m {model[1]} --approve c1"
    resumed = convo(*shlex.split(command))
    assert (resumed.exit, resumed.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), resumed.err


@pytest.mark.needs("weights")
def test_after_a_refused_attempt_both_errors_name_the_command_that_continues_its_run(convo: Convo) -> None:
    refused = convo("chat", *agent_flags(), "-m", "local", "-n", "mine", "back")
    hint = "  try: choose another model: convo resume mine --agent bot.py:desk -m provider/model\n"
    assert (refused.exit, refused.err.endswith(f"does not support tools\n{hint}")) == (1, True), refused.err
    model = scripted_flags({"text": "Paid back."})
    again = convo("chat", *agent_flags(), *model, "-n", "mine", "back")
    message, hint = again.err.splitlines()[-2:]
    assert (again.exit, message) == (1, "convo: another session has the name 'mine'")
    command, _, advice = hint.removeprefix("  try: convo ").partition(", ")
    assert (command, advice) == (
        f"resume mine --agent bot.py:desk -m {model[1]}",
        "to continue its run; or choose another name",
    )
    resumed = convo(*shlex.split(command))
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    done = convo("chat", *agent_flags(), *model, "-n", "mine", "back")
    message, hint = done.err.splitlines()[-2:]
    assert message == "convo: another session has the name 'mine'"
    assert hint == "  try: convo chat --from mine continues it, or choose another name"


def test_several_orphaned_runs_are_reported_in_one_line_after_the_pending_calls(convo: Convo, home: Path) -> None:
    run, _ = apply_events(make_run(Agent("shop", tools=(FREE,))), RunStarted())
    interrupted = apply_events(run, model_response(run, call("u1")))[0]

    async def script(writer: ChatWriter) -> None:
        await paused_session("paused", paused())(writer)
        for number, name in enumerate(("shop", "my tea"), 2):
            chat = await writer.chat(Strategy.SESSION, name, "tea")
            row = AgentRun(f"run_{number}", chat.session.id, 1, "running", run_to_json(interrupted), 1.0, 1.0 + number)
            await writer.store.commit(Transaction(agent_run=row))

    write_chats(home, script)
    got = convo("approvals")
    assert [line.split()[0] for line in got.out.splitlines()] == ["call", "g1", "g2", "m1"]
    note = "2 interrupted runs (my tea, shop); to resume: convo resume 'my tea' --agent FILE.py:NAME\n"
    assert (got.exit, got.err) == (0, note)
    records = convo("approvals", "--json").json()
    assert [(one["run"], one["call_id"]) for one in records if one["left"]] == [("run_3", "u1"), ("run_2", "u1")]
    assert convo("approvals", "approve", "u1").exit == 5
