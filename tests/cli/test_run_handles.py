"""A run id is a handle of its conversation in every command that accepts a conversation."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.agent_files import (
    LOOK_UP,
    PAID_BACK,
    PAYMENTS_HANDOFF,
    REFUND,
    agent_flags,
    stored_runs,
    tool_runs,
)
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import ChatScript, ChatWriter, write_chats
from tests.cli.test_approvals import paused_session
from tests.command_runner import Convo
from tests.runs.test_stored_approvals import paused

COMMANDS = (
    "inspect HANDLE",
    "inspect HANDLE --json",
    "inspect HANDLE --html -",
    "inspect HANDLE --watch --until-idle",
    "next HANDLE",
    "lint HANDLE",
    "diff HANDLE other",
    "repair HANDLE --as fixed",
    "convert HANDLE --to chain --dry-run",
    "export HANDLE --format jsonl",
    "resume HANDLE",
)


def two_paused_sessions(first_id: str, second_id: str) -> ChatScript:
    """Two sessions, each with a paused run of the given id."""

    async def script(writer: ChatWriter) -> None:
        await paused_session("shop", paused(), first_id)(writer)
        await paused_session("other", paused(), second_id)(writer)

    return script


def test_every_command_accepts_a_run_id_or_its_unique_prefix_for_its_session(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_sessions("run_71", "run_8"))
    for command in COMMANDS:
        session = convo(*shlex.split(command.replace("HANDLE", "shop")))
        for handle in ("run_71", "run_7"):
            got = convo(*shlex.split(command.replace("HANDLE", handle)))
            actual = (got.exit, got.out.replace(handle, "shop"), got.err.replace(handle, "shop"))
            expected = (session.exit, session.out.replace(handle, "shop"), session.err.replace(handle, "shop"))
            assert actual == expected, (command, handle)
        unknown = convo(*shlex.split(command.replace("HANDLE", "run_9")))
        assert (unknown.exit, "no session 'run_9'" in unknown.err + unknown.out) == (5, True), command


def test_inspect_of_a_run_shows_its_guardrails_handoffs_and_tool_calls_on_a_time_line(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = scripted_flags(PAYMENTS_HANDOFF, LOOK_UP, {"text": "You fool."})
    assert convo("chat", *agent_flags("gate"), *model, "-n", "mine", "hello").exit == 1
    (run,) = stored_runs(home)
    _, _, shown = convo("inspect", run.id).out.partition(f"run {run.id}: failed\n")
    assert (
        re.sub(r"\d+\.\d s", "N s", shown)
        == """\
time    event             agent     name         outcome  duration  details
+N s  input guardrail   gate      no_insults   passed   N s
+N s  handoff           gate      to payments  -        -
+N s  tool              -         look_up      done     -         {"order": "A1"}
+N s  output guardrail  payments  no_debts     tripped  N s     an insult
"""
    )
    document = convo("inspect", run.id, "--json").json()["run"]
    assert (document["id"], document["status"], document["omitted"]) == (run.id, "failed", 0)
    assert [(one["kind"], one["name"], one["outcome"], one["target"]) for one in document["timeline"]] == [
        ("guardrail", "no_insults", "passed", None),
        ("handoff", None, None, "payments"),
        ("tool", "look_up", "done", None),
        ("guardrail", "no_debts", "tripped", None),
    ]
    assert "run" not in convo("inspect", "mine", "--json").json()


def test_a_prefix_of_two_runs_is_refused_with_both_ids(convo: Convo, home: Path) -> None:
    write_chats(home, two_paused_sessions("run_71", "run_72"))
    for command in ("inspect", "resume"):
        got = convo(command, "run_7")
        assert (got.exit, "run_71" in got.err, "run_72" in got.err) == (2, True, True)


def test_resume_of_a_session_without_runs_suggests_how_to_continue_it(convo: Convo) -> None:
    assert convo("chat", *scripted_flags({"text": "Hello."}), "--name", "my talk", "hi").exit == 0
    got = convo("resume", "my talk")
    assert (got.exit, got.err) == (
        5,
        "convo: no run 'my talk': this session has no agent run\n  try: convo chat --from 'my talk'\n",
    )


def test_resume_continues_the_run_that_a_prefix_identifies(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = scripted_flags(REFUND, PAID_BACK)
    assert convo("chat", *agent_flags(), *model, "-n", "mine", "back").exit == 3
    got = convo("resume", stored_runs(home)[0].id[:8], *agent_flags(), *model, "--approve", "all")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), got.err
