"""`convo chat --agent` with one message: output, pauses with every owner, state files and options of a run."""

import json
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import item_text
from convo.stores.base import Store
from tests.cli.agent_files import (
    AGENTS,
    HANDOFF,
    LOOK_UP,
    PAID_BACK,
    REFUND,
    SDK,
    agent_flags,
    paused_files,
    read_from_store,
    stored_runs,
    tool_runs,
    two_refund_calls,
)
from tests.cli.chat_commands import receipts, scripted_flags, stored_conversation, stored_messages
from tests.command_runner import Convo, Launch

OWNERS = ("--replay", "--session", "--conversation", "--chain")


def test_the_answer_is_on_stdout_and_the_steps_of_the_run_on_stderr(convo: Convo, home: Path) -> None:
    got = convo(
        "chat", *agent_flags("triage"), *scripted_flags(HANDOFF, LOOK_UP, {"text": "It cost 5."}), "-n", "mine", "A1?"
    )
    assert (got.exit, got.out) == (0, "It cost 5.\n")
    lines = got.err.splitlines()
    assert lines[:3] == [
        "triage hands off to billing",
        'billing calls look_up {"order": "A1"}',
        "look_up returned A1 cost 500 cents",
    ]
    assert lines[3].startswith("agent billing · 3 calls · ")
    assert receipts(lines[3].removeprefix("agent billing · 3 calls · "))[0]["owner"] == "session mine"
    assert "\x1b" not in got.err
    assert [run.status for run in stored_runs(home)] == ["done"]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_run_pauses_and_resumes_with_every_owner(owner: str, convo: Convo, home: Path) -> None:
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK, {"text": "Anything else?"})
    got = convo("chat", *agent_flags(), *model, owner, "-n", "mine", "pay A1 back")
    assert (got.exit, got.out) == (3, ""), got.err
    assert 'desk asks for refund {"order": "A1", "cents": 500} (c1); needs approval' in got.err
    assert tool_runs() == ["look_up A1"]
    resumed = convo("resume", "mine", *agent_flags(), *model, "--approve", "c1")
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert tool_runs() == ["look_up A1", "refund A1 500"]
    next_turn = convo("chat", "-c", *agent_flags(), *model, "thanks")
    assert (next_turn.exit, next_turn.out) == (0, "Anything else?\n"), next_turn.err
    items, links = stored_conversation(home, "mine")
    assert [item.get("call_id") for item in items if item["type"] == "function_call_output"] == ["c0", "c1"]
    assert len(links) == 4


def test_a_pause_exits_3_with_its_state_file_and_the_pending_calls(convo: Convo, home: Path) -> None:
    got = convo("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "--json", "-n", "mine", "pay A1 back")
    result = got.json()
    assert got.exit == 3
    assert (result["status"], result["session"], result["agent"], result["output_text"]) == (
        "paused",
        "mine",
        "desk",
        "",
    )
    assert result["pending"] == [
        {
            "call_id": "c1",
            "tool_name": "refund",
            "arguments": '{"order": "A1", "cents": 500}',
            "agent": "desk",
            "unknown": False,
        }
    ]
    path = Path(result["state_file"])
    assert path.parent == home / "data" / "paused"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    state = convo("inspect", str(path), "--json").json()
    assert (state["schema_version"], state["current_agent"], state["current_turn"]) == ("1.21", "desk", 1)
    assert [one["call_id"] for one in state["pending"]] == ["c1"]


def test_the_state_file_of_a_finished_run_is_removed(convo: Convo, home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    convo("chat", *agent_flags(), *model, "-n", "mine", "pay A1 back")
    assert len(paused_files(home)) == 1
    assert convo("resume", "mine", *agent_flags(), *model, "--approve", "all").exit == 0
    assert paused_files(home) == []


def test_a_named_state_file_is_kept(convo: Convo, home: Path, tmp_path: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    got = convo("chat", *agent_flags(), *model, "--state", "mine.json", "-n", "mine", "pay A1 back")
    assert f"paused; state saved to {tmp_path / 'mine.json'}" in got.err
    assert convo("resume", "./mine.json", *agent_flags(), *model, "--approve", "all").exit == 0
    assert (tmp_path / "mine.json").exists()
    assert paused_files(home) == []


@pytest.mark.parametrize(
    ("path", "exit_code", "message"),
    [
        ("nope/s.json", 1, "nope is not a folder\n  try: choose another file\n"),
        (".", 2, ". is not a regular file, so a state cannot be written to it\n  try: choose another file\n"),
        ("", 2, "--state must not be empty\n  try: convo chat --help\n"),
    ],
)
def test_an_unwritable_state_file_is_refused_before_any_request(
    path: str, exit_code: int, message: str, convo: Convo, home: Path
) -> None:
    got = convo("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "--state", path, "pay A1 back")
    assert (got.exit, got.out, home.exists()) == (exit_code, "", False)
    assert fnmatchcase(got.err, f"*{message}")


def test_a_run_whose_state_file_cannot_be_written_stays_paused_in_the_inbox(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "going").mkdir()
    text = AGENTS.replace('note(f"look_up {order}")', "(RAN.parent / 'going').rmdir()")
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK)
    got = convo("chat", *agent_flags("desk", text), *model, "--state", "going/s.json", "-n", "mine", "pay A1 back")
    path = tmp_path / "going"
    assert (got.exit, got.out) == (1, "")
    assert got.err.endswith(f"convo: {path} is not a folder; the run is still paused\n  try: convo approvals\n")
    assert [one["call_id"] for one in convo("approvals", "--json").json()] == ["c1"]
    assert convo("resume", "mine", *agent_flags("desk", text), *model, "--approve", "all").out == "Paid back.\n"


def test_jsonl_contains_the_events_of_the_model_and_of_the_run(convo: Convo, home: Path) -> None:
    got = convo("chat", *agent_flags(), *scripted_flags(LOOK_UP, REFUND, PAID_BACK), "--jsonl", "pay A1 back")
    assert got.exit == 3
    events = [json.loads(line) for line in got.out.splitlines()]
    run_events = [event["type"] for event in events if event["type"].startswith("convo.")]
    assert run_events == ["convo.started", "convo.tool_started", "convo.tool_output", "convo.paused"]
    assert "response.completed" in {event["type"] for event in events}
    assert events[-1]["pending"][0]["call_id"] == "c1"


def test_the_text_before_a_paused_call_is_the_output_text(convo: Convo, home: Path) -> None:
    texts = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        for text in ("Hello.", "Let me see.")
    ]
    call = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": "A1", "cents": 5}'}
    result = convo("chat", *agent_flags(), *scripted_flags({"output": [*texts, call]}), "--json", "pay").json()
    assert (result["output_text"], result["final_output"]) == ("Let me see.", None)
    assert [item["type"] for item in result["output"]] == ["message", "message", "function_call"]


@pytest.mark.parametrize("output_flags", [[], ["--json"], ["--jsonl"]])
def test_an_incomplete_response_of_an_agent_exits_with_1(output_flags: list[str], convo: Convo, home: Path) -> None:
    model = scripted_flags({"text": "one two three"})
    got = convo("chat", *agent_flags(), *model, "--max-output-tokens", "2", *output_flags, "A1?")
    assert got.exit == 1, got.err
    assert [run.status for run in stored_runs(home)] == ["done"]


def test_a_failed_request_with_json_has_the_command_that_continues_the_run(convo: Convo, home: Path) -> None:
    error = {"error": {"code": "overloaded", "message": "Busy", "status": 500, "retry_after_s": 0}}
    got = convo("chat", *agent_flags(), *scripted_flags(error), "--json", "-n", "my tea", "A1?")
    hint = "convo resume 'my tea' --agent bot.py:desk"
    assert (got.exit, got.json()) == (1, {"error": {"code": "overloaded", "message": "Busy", "hint": hint}})


def test_a_tools_output_can_be_the_answer(convo: Convo, home: Path) -> None:
    got = convo("chat", *agent_flags("final"), *scripted_flags(LOOK_UP), "A1?")
    assert (got.exit, got.out) == (0, "A1 cost 500 cents\n")


def test_a_triggered_guardrail_is_reported_and_fails_the_run(convo: Convo, home: Path) -> None:
    got = convo("chat", *agent_flags("guarded"), *scripted_flags({"text": "hello"}), "you fool")
    assert (got.exit, got.out) == (1, "")
    assert "guardrail no_insults stopped the input: an insult\n" in got.err
    assert "convo: Guardrail no_insults tripped: an insult" in got.err


def test_agents_of_the_agents_sdk_answer_and_pause_too(convo: Convo, home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    assert convo("chat", *agent_flags("desk", SDK), *model, "-n", "mine", "pay A1 back").exit == 3
    got = convo("resume", "mine", *agent_flags("desk", SDK), *model, "--approve", "all")
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert "refund returned paid 500 cents back for A1" in got.err


# -- options of a run --------------------------------------------------------------------------------


def two_models(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return the text of an agent file with two agents, each with its own model."""
    return (
        "from convo.agents import Agent\n"
        f"billing = Agent('billing', model={scripted_flags(second)[1]!r})\n"
        f"triage = Agent('triage', model={scripted_flags(first)[1]!r}, handoffs=(billing,))\n"
    )


def instructions(home: Path, name: str) -> list[Any]:
    _, links = stored_conversation(home, name)
    return [link.parameters.get("instructions") for link in links]


def test_an_input_filter_builds_the_input_of_every_model_call(convo: Convo, home: Path) -> None:
    convo(
        "chat",
        *agent_flags(),
        *scripted_flags(LOOK_UP, PAID_BACK),
        "--input-filter",
        "bot.py:shout",
        "-n",
        "mine",
        "A1?",
    )
    assert instructions(home, "mine") == ["Help. Shout.", "Help. Shout."]


def test_context_values_are_passed_to_the_tools(convo: Convo, home: Path) -> None:
    Path("values.json").write_text('{"customer": "Ada"}')
    got = convo(
        "chat",
        *agent_flags(),
        *scripted_flags({"call": {"name": "who"}}, PAID_BACK),
        "--context",
        "values.json",
        "who?",
    )
    assert "who returned Ada" in got.err


def test_with_nested_history_the_next_agent_gets_a_summary_between_markers(convo: Convo, home: Path) -> None:
    text = two_models(HANDOFF, {"text": "Yes?"})
    got = convo(
        "chat", *agent_flags("triage", text), "--nest-history", "--history-markers", "<<", ">>", "-n", "mine", "help me"
    )
    assert (got.exit, got.out) == (0, "Yes?\n"), got.err
    _, links = stored_conversation(home, "mine")

    async def first_input_text(store: Store) -> str:
        return item_text((await store.path(links[-1].input_head)).items[0])

    summary = read_from_store(home, first_input_text)
    assert "<<\n1. " in summary
    assert "help me" in summary
    assert summary.endswith(">>")
    assert stored_messages(home, "mine")[0] == "user: help me"


def test_with_a_server_side_owner_no_summary_is_sent_and_a_note_is_printed(convo: Convo, home: Path) -> None:
    got = convo(
        "chat",
        "--chain",
        *agent_flags("triage"),
        *scripted_flags(HANDOFF, {"text": "Yes?"}),
        "--nest-history",
        "help me",
    )
    assert got.exit == 0
    assert "note: the handoff triage -> billing continues without a summary" in got.err


def test_a_session_limit_is_refused_with_a_server_side_owner(convo: Convo, home: Path) -> None:
    got = convo("chat", "--chain", *agent_flags(), *scripted_flags(PAID_BACK), "--session-limit", "2", "hi")
    assert (got.exit, got.out) == (2, "")
    assert "cannot be used with --chain" in got.err
    assert stored_runs(home) == []


def test_an_agents_own_model_is_used_unless_another_is_named(convo: Convo, home: Path) -> None:
    text = "from convo.agents import Agent\ndesk = Agent('desk', model='scripted/echo')\n"
    result = convo("chat", *agent_flags("desk", text), "--json", "hello").json()
    assert (result["model"], result["output_text"]) == ("scripted/echo", "hello")
    result = convo("chat", *agent_flags("desk", text), *scripted_flags({"text": "other"}), "--json", "hello").json()
    assert result["output_text"] == "other"


def test_agents_of_one_graph_can_use_models_of_several_providers(convo: Convo, home: Path) -> None:
    text = two_models(HANDOFF, {"text": "from billing"})
    assert convo("chat", *agent_flags("triage", text), "hello").out == "from billing\n"


# -- output of models and tools ----------------------------------------------------------------------


def test_terminal_control_characters_are_escaped(convo: Convo, home: Path) -> None:
    order, call_id = "A\x1b[2J\u202e\u200b", "c\x1b[31m\u2066"
    call = {"call": {"name": "refund", "arguments": {"order": order, "cents": 5}, "call_id": call_id}}
    got = convo("chat", *agent_flags(), *scripted_flags(call), "-n", "mine", "pay back")
    assert got.exit == 3
    output = got.err + got.out + convo("approvals").out + convo("approvals", "show", "all").out
    output += convo("approvals", "show", "nope").err
    assert not set("\x1b\u202e\u2066\u200b") & set(output)
    assert "c\\x1b[31m\\u2066" in output


def test_a_long_output_is_truncated_on_stderr_and_complete_for_the_model(convo: Convo, home: Path) -> None:
    text = AGENTS.replace('return f"{order} cost 500 cents"', 'return "x" * 100_000')
    got = convo("chat", *agent_flags("desk", text), *scripted_flags(LOOK_UP, PAID_BACK), "-n", "mine", "A1?")
    assert "look_up returned xxx" in got.err
    assert "... (100,000 characters)\n" in got.err
    assert max(map(len, got.err.splitlines())) < 500
    items, _ = stored_conversation(home, "mine")
    assert [len(item["output"]) for item in items if item["type"] == "function_call_output"] == [100_000]


# -- a session with an unfinished run ----------------------------------------------------------------


def test_no_message_is_accepted_while_a_run_is_paused(convo: Convo, home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    convo("chat", *agent_flags(), *model, "-n", "mine", "pay A1 back")
    before = stored_conversation(home, "mine")
    got = convo("chat", "-c", *agent_flags(), *model, "and?")
    assert (got.exit, got.out) == (1, "")
    assert got.err == (
        "convo: the run of 'mine' is paused; pending calls: c1\n"
        "  try: convo resume mine --agent bot.py:desk --approve c1\n"
    )
    again = convo("chat", "-c", *model, "and?")
    assert (again.exit, "the run of 'mine' is paused; pending calls: c1" in again.err) == (1, True)
    plain = convo("chat", "-c", "--agent", "none", *model, "and?")
    assert (plain.exit, "'mine' has an open agent run, and its calls have no output yet" in plain.err) == (1, True)
    assert stored_conversation(home, "mine") == before


def test_a_failed_request_reports_the_command_that_continues_the_run(convo: Convo, home: Path) -> None:
    error = {"error": {"code": "overloaded", "message": "Busy", "status": 500, "retry_after_s": 0}}
    model = scripted_flags(LOOK_UP, error)
    got = convo("chat", *agent_flags(), *model, "-n", "mine", "A1?")
    assert got.exit == 1
    assert "try: convo resume mine --agent bot.py:desk" in got.err
    Path(model[1].removeprefix("scripted/")).write_text(json.dumps({"replies": [LOOK_UP, {"text": "Five."}]}))
    resumed = convo("resume", "mine", *agent_flags(), *model)
    assert (resumed.exit, resumed.out) == (0, "Five.\n")
    assert tool_runs() == ["look_up A1"]


def test_decisions_from_another_process_are_applied_by_resume(launch: Launch, convo: Convo, home: Path) -> None:
    model = two_refund_calls()
    assert convo("chat", *agent_flags(), *model, "-n", "mine", "pay back").exit == 3
    assert launch("approvals", "approve", "c1").exit == 0
    assert launch("approvals", "reject", "c2=too late").exit == 0
    assert tool_runs() == []
    got = launch("resume", "mine", *agent_flags(), *model)
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert tool_runs() == ["refund A1 100"]
    items, _ = stored_conversation(home, "mine")
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == ["paid 100 cents back for A1", "too late"]


def test_an_unknown_model_of_an_agent_is_not_blamed_on_an_option(convo: Convo, home: Path) -> None:
    Path("desk.py").write_text("from convo.agents import Agent\ndesk = Agent('desk', model='nope/x')\n")
    got = convo("chat", "--agent", "desk.py:desk", "hello")
    assert (got.exit, got.err.partition(" (known")[0]) == (
        2,
        "convo: an agent's model: no provider 'nope' for 'nope/x'",
    )
