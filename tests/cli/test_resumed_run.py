"""Resumed runs: the whole output of interrupted and aborted runs, decisions, and state files that cannot be written."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import AgentRun
from convo.runs.serialize import PHASE_WORDS, STAGE_WORDS
from convo.runs.state import Phase, Stage
from convo.stores.base import Store, Transaction
from tests.cli.agent_files import (
    AGENTS,
    ASK_DESK,
    PAID_BACK,
    REFUND,
    agent_flags,
    nested_agent_flags,
    paused_files,
    read_from_store,
    stored_runs,
    tool_runs,
    two_refund_calls,
)
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import CommandResult, Convo, Launch

OTHER_HOME = {"CONVO_HOME": "elsewhere"}


def pause_run(convo: Convo, model: tuple[str, str], text: str = AGENTS) -> tuple[str, ...]:
    """Pause the run of the session "mine", with state.json; return the flags of its agents and its model."""
    flags = (*agent_flags(text=text), *model)
    got = convo("chat", *flags, "--state", "state.json", "-n", "mine", "pay back")
    assert got.exit == 3, got.err
    return flags


def change_stored_run(home: Path, change: Callable[[AgentRun, dict[str, Any]], AgentRun]) -> None:
    """Store the run that `change` makes of the stored one and a copy of its document."""
    (row,) = stored_runs(home)
    changed = change(row, json.loads(json.dumps(row.document)))

    async def commit(store: Store) -> None:
        await store.commit(Transaction(agent_run=changed._replace(revision=row.revision + 1)))

    read_from_store(home, commit)


def interrupt_call(home: Path) -> None:
    """Store the run as it is if its process ended while the first call was running."""

    def change(row: AgentRun, document: dict[str, Any]) -> AgentRun:
        document["phase"] = PHASE_WORDS[Phase.RUNNING_TOOLS]
        document["batch"][0]["stage"] = STAGE_WORDS[Stage.RUNNING]
        return row._replace(status="running", document=document)

    change_stored_run(home, change)


def using_agents() -> str:
    return f"using this run's agents: {Path('bot.py').absolute()}:desk"


# -- interrupted runs ---------------------------------------------------------------------------------


def test_a_run_with_a_decided_call_that_was_not_performed_accepts_no_message(convo: Convo, home: Path) -> None:
    flags = pause_run(convo, scripted_flags(REFUND, PAID_BACK))
    assert convo("approvals", "approve", "c1").exit == 0
    got = convo("chat", "-c", *flags, "and?")
    assert (got.exit, got.out) == (1, "")
    assert got.err == (
        "convo: the run of 'mine' was interrupted, and its calls have no output yet\n"
        "  try: convo resume mine --agent bot.py:desk\n"
    )


def test_a_call_with_an_unknown_outcome_is_pending_and_recorded_in_a_named_state_file(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    flags = pause_run(convo, scripted_flags(REFUND, PAID_BACK))
    interrupt_call(home)
    got = convo("resume", "mine", *flags, "-o", "next.json")
    assert (got.exit, got.out) == (3, "")
    *_, note, saved, command = got.err.splitlines()
    assert (note, saved, command) == (
        "c1 was started and its outcome is unknown; the state file records this, and convo resume asks for a decision",
        f"paused; state saved to {tmp_path}/next.json",
        "to decide and resume: convo resume mine --agent bot.py:desk with --rerun c1, --output c1=TEXT, or --abort",
    )
    refused = convo("chat", "-c", *flags, "and?")
    assert refused.err == (
        "convo: the run of 'mine' is paused; pending calls: c1\n"
        "  try: convo resume mine --agent bot.py:desk with --rerun c1, --output c1=TEXT, or --abort\n"
    )
    got = convo("resume", "mine", *flags, "--output", "c1=it was paid", "-q")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", [])
    assert got.err == ""


def test_supplied_outputs_are_reported(convo: Convo, home: Path) -> None:
    flags = pause_run(convo, scripted_flags(REFUND, PAID_BACK))
    interrupt_call(home)
    got = convo("resume", "mine", *flags, "--output", "refund=it was paid")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", [])
    assert "supplied the output of refund (c1)" in got.err.splitlines()


# -- aborted and ended runs ---------------------------------------------------------------------------


def test_an_aborted_run_is_reported(convo: Convo, home: Path) -> None:
    pause_run(convo, two_refund_calls())
    got = convo("resume", "mine", "--reject", "c1", "--abort")
    assert (got.exit, got.out) == (0, "")
    assert got.err.splitlines() == [
        using_agents(),
        "the run is aborted; its conversation can be continued without it",
    ]
    again = convo("resume", "mine", "--abort")
    assert (again.exit, again.out) == (1, "")
    assert again.err.splitlines() == [
        using_agents(),
        "convo: the run of mine has already ended (stopped)",
        "  try: convo inspect mine",
    ]


def test_the_state_file_of_an_aborted_run_is_removed(convo: Convo, home: Path) -> None:
    assert convo("chat", *agent_flags(), *two_refund_calls(), "-n", "mine", "pay back").exit == 3
    assert len(paused_files(home)) == 1
    assert convo("resume", "mine", "--abort").exit == 0
    assert paused_files(home) == []


def test_the_json_of_an_aborted_run_has_its_status_and_no_pending_calls(convo: Convo, home: Path) -> None:
    flags = pause_run(convo, two_refund_calls())
    got = convo("resume", "mine", "--abort", "--json")
    not_called = "The run ended before this tool was called."
    assert (got.exit, got.json()) == (
        0,
        {
            "response_id": None,
            "session": "mine",
            "strategy": "session",
            "conversation_id": None,
            "model": flags[3],
            "agent": "desk",
            "run": stored_runs(home)[0].id,
            "output_text": "",
            "final_output": None,
            "output": [
                {"type": "function_call_output", "call_id": call_id, "output": not_called} for call_id in ("c1", "c2")
            ],
            "usage": None,
            "status": "cancelled",
            "pending": [],
            "state_file": None,
        },
    )


def test_the_json_of_a_paused_run_and_of_a_finished_one(convo: Convo, home: Path, tmp_path: Path) -> None:
    flags = pause_run(convo, scripted_flags(REFUND, PAID_BACK))
    paused = convo("resume", "mine", *flags, "-o", "next.json", "--json")
    (row,) = stored_runs(home)
    common = {
        "session": "mine",
        "strategy": "session",
        "conversation_id": None,
        "model": flags[3],
        "agent": "desk",
        "run": row.id,
    }
    call = {"call_id": "c1", "tool_name": "refund", "arguments": '{"order": "A1", "cents": 500}'}
    assert (paused.exit, paused.json()) == (
        3,
        {
            **common,
            "response_id": None,
            "output_text": "",
            "final_output": None,
            "output": [],
            "usage": None,
            "status": "paused",
            "pending": [{**call, "agent": "desk", "unknown": False}],
            "state_file": f"{tmp_path}/next.json",
        },
    )
    done = convo("resume", "mine", *flags, "--approve", "c1", "--json")
    result = done.json()
    assert result.pop("response_id").startswith("resp_")
    output, message = result.pop("output")
    assert (output["type"], output["call_id"], output["output"]) == (
        "function_call_output",
        "c1",
        "paid 500 cents back for A1",
    )
    assert message["content"][0]["text"] == "Paid back."
    assert {key: result["usage"].pop(key) for key in ("input_tokens", "output_tokens", "total_tokens")} == {
        "input_tokens": 14,
        "output_tokens": 2,
        "total_tokens": 16,
    }
    result.pop("usage")
    assert (done.exit, result) == (
        0,
        {
            **common,
            "output_text": "Paid back.",
            "final_output": "Paid back.",
            "status": "completed",
            "pending": [],
            "state_file": None,
        },
    )


def test_a_finished_state_from_another_machine_is_not_resumed(convo: Convo, home: Path, launch: Launch) -> None:
    flags = pause_run(convo, scripted_flags(REFUND, PAID_BACK))
    assert convo("resume", "state.json", *flags, "--approve", "all", "-o", "done.json").exit == 0
    Path("my done.json").write_text(Path("done.json").read_text())
    for handle, hint in (("-", "cat STATE.json | convo inspect -"), ("my done.json", "convo inspect 'my done.json'")):
        text = Path("done.json").read_text() if handle == "-" else ""
        got = launch("resume", handle, *flags, stdin=text, env=OTHER_HOME)
        assert (got.exit, got.out) == (1, "")
        assert got.err == f"convo: the run of {handle} has already ended\n  try: {hint}\n"


# -- agents, leases and files --------------------------------------------------------------------------


def test_a_run_without_known_agents_needs_their_option(convo: Convo, home: Path, launch: Launch) -> None:
    pause_run(convo, two_refund_calls())
    got = launch("resume", "state.json", "--approve", "c1", env=OTHER_HOME)
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        "convo: resuming a run needs its agents, and none were given\n"
        "  try: convo resume state.json --agent FILE.py:NAME;"
        " or --decide-only -o decided.json, to resume with the Agents SDK\n"
    )


def test_a_session_that_is_open_in_another_process_is_not_resumed(convo: Convo, home: Path) -> None:
    pause_run(convo, two_refund_calls())
    (row,) = stored_runs(home)

    async def acquire_lease(store: Store) -> None:
        await store.acquire_lease(f"session {row.session_id}", "other@elsewhere:1:1", 60)

    read_from_store(home, acquire_lease)
    got = convo("resume", "mine", "--approve", "all")
    assert (got.exit, got.out, tool_runs()) == (1, "", [])
    assert got.err.splitlines() == [
        using_agents(),
        "convo: 'mine' is open in another process (process 1 on other)",
        "  try: wait until that process has closed it",
    ]


def test_without_the_state_that_a_run_was_imported_from_no_state_is_written(
    convo: Convo, home: Path, launch: Launch
) -> None:
    flags = pause_run(convo, two_refund_calls())
    assert launch("resume", "state.json", *flags, env=OTHER_HOME).exit == 3
    (base,) = Path("elsewhere/data/paused").glob("*.base.json")
    base.unlink()
    problem = (
        f"the state that {base.name.removesuffix('.base.json')} was imported from is missing here; fields that only it"
        " contains would be lost"
    )
    got = launch("resume", "@last", *flags, env=OTHER_HOME)
    assert (got.exit, got.out) == (3, "")
    assert got.err.splitlines() == [
        'desk asks for refund {"order": "A1", "cents": 100} (c1); needs approval',
        'desk asks for refund {"order": "A2", "cents": 200} (c2); needs approval',
        f"no state file was written: {problem}",
        "to decide and resume: convo resume pay-back --agent bot.py:desk --approve all",
    ]
    got = launch("export", "@last", "--format", "runstate", *agent_flags(), env=OTHER_HOME)
    assert (got.exit, got.out) == (1, "")
    assert got.err == (f"convo: {problem}\n  try: export the run on the machine that imported it, while it is paused\n")


def test_a_state_file_that_cannot_be_written_after_a_tool_ran_is_an_error(convo: Convo, home: Path) -> None:
    """The tool removes the folder of the file."""
    note = 'note(f"refund {order} {cents}")'
    pause_run(convo, two_refund_calls(), AGENTS.replace(note, f'{note}\n    (RAN.parent / "out").rmdir()'))
    problem = f"{Path('out').absolute()} is not a folder"
    for call_id, number, last, status, out in (
        ("c1", 1, 'desk asks for refund {"order": "A2", "cents": 200} (c2); needs approval', "still paused", ""),
        ("c2", 2, None, "saved", "Paid back.\n"),
    ):
        Path("out").mkdir()
        got = convo("resume", "mine", "--approve", call_id, "-o", "out/next.json")
        assert (got.exit, got.out) == (1, out)
        assert got.err.splitlines() == [
            using_agents(),
            f"approved refund ({call_id})",
            f'desk calls refund {{"order": "A{number}", "cents": {number}00}}',
            f"refund returned paid {number}00 cents back for A{number}",
            *([last] if last else []),
            f"convo: {problem}; the run is {status}",
            "  try: convo approvals",
        ]


def test_agents_with_models_of_their_own_resume_in_another_store(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = nested_agent_flags(
        outer=scripted_flags(ASK_DESK, PAID_BACK), inner=scripted_flags(REFUND, {"text": "The desk has paid."})
    )
    assert convo("chat", *flags, "--state", "state.json", "-n", "mine", "pay back").exit == 3
    monkeypatch.setenv("CONVO_HOME", str(Path("elsewhere").absolute()))
    got = convo("resume", "state.json", *flags, "--approve", "c1")
    assert (got.exit, got.out, tool_runs()) == (0, "Paid back.\n", ["refund A1 500"]), got.err


@pytest.mark.parametrize("source", ["file", "pipe"])
def test_a_state_is_verified_before_its_run_is_resumed(
    source: str, convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_SIGNING_KEY", "a key that is long enough")
    pause_run(convo, two_refund_calls())

    def resume(file: str, *flags: str) -> CommandResult:
        handle, text = ("-", Path(file).read_text()) if source == "pipe" else (file, "")
        return convo("resume", handle, *flags, stdin=text)

    sign = ("--decide-only", "-o", "signed.json", "--sign", "--approve", "all")
    assert convo("resume", "state.json", *sign).exit == 0
    got = resume("state.json", "--verify", "--json")
    assert (got.exit, got.json()["error"]["code"], tool_runs()) == (1, "not_signed", [])
    monkeypatch.setenv("OTHER_KEY", "another key that is long enough")
    got = resume("signed.json", "--verify", "--key-env", "OTHER_KEY", "--json")
    assert (got.exit, got.json()["error"]["code"], tool_runs()) == (1, "not_signed", [])
    got = resume("signed.json", "--verify")
    assert (got.exit, got.out, len(tool_runs())) == (0, "Paid back.\n", 2), got.err


def test_a_signature_is_only_verified_on_request(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_SIGNING_KEY", "a key that is long enough")
    pause_run(convo, two_refund_calls())
    sign = ("--decide-only", "-o", "signed.json", "--sign", "--approve", "all")
    assert convo("resume", "state.json", *sign).exit == 0
    monkeypatch.delenv("CONVO_SIGNING_KEY")
    got = convo("resume", "signed.json")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err


# -- decisions in the file -----------------------------------------------------------------------------


def set_editor(monkeypatch: pytest.MonkeyPatch, arguments: Mapping[str, object]) -> None:
    Path("editor.py").write_text(f"import sys; open(sys.argv[1], 'w').write({json.dumps(arguments)!r})")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {Path('editor.py').absolute()}")


def test_arguments_that_were_edited_in_the_file_are_used(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_run(convo, two_refund_calls())
    set_editor(monkeypatch, {"order": "B1", "cents": 7})
    flags = ("--edit", "c1", "--approve", "c2", "--always")
    assert convo("resume", "state.json", "--decide-only", "-o", "decided.json", *flags).exit == 0
    got = convo("resume", "decided.json", "-q")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert sorted(tool_runs()) == ["refund A2 200", "refund B1 7"]


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        (["--reject", "c1=because"], ["refund A2 200"]),
        (["--reject", "c1"], ["refund A2 200"]),
        (["--approve", "c1"], ["refund A1 100", "refund A2 200"]),
        (["--edit", "c1"], ["refund A2 200", "refund B1 7"]),
    ],
)
def test_a_flag_that_names_the_call_decides_between_the_file_and_the_store(
    flags: list[str], runs: list[str], convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_run(convo, two_refund_calls())
    set_editor(monkeypatch, {"order": "B1", "cents": 7})
    assert convo("approvals", "approve", "all").exit == 0
    assert convo("resume", "state.json", "--decide-only", "-o", "no.json", "--reject", "c1").exit == 3
    got = convo("resume", "no.json", "-q", "--reject", "all", "--approve", "refund")
    assert (got.exit, got.out) == (1, "")
    assert got.err == (
        "convo: c1 is rejected in no.json and approved in the store\n"
        "  try: --approve c1 or --reject c1 to choose the decision\n"
    )
    got = convo("resume", "no.json", "-q", *flags)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert sorted(tool_runs()) == runs
