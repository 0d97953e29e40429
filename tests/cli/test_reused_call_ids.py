"""Agents of a model that gives every call the same id, as llama.cpp does: decisions, resuming, RunState."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunState

from convo.history.pairing import call_index_by_output
from tests.cli.agent_files import PAID_BACK, agent_flags, tool_runs
from tests.cli.chat_commands import scripted_flags, stored_conversation, stored_sessions
from tests.command_runner import Convo


def refund(order: str, cents: int) -> dict[str, Any]:
    arguments = json.dumps({"order": order, "cents": cents})
    return {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": arguments}


REPLIES = (
    {"output": [refund("A1", 100)]},
    {"output": [refund("A2", 200), refund("A3", 300)]},
    {"output": [refund("A4", 400)]},
    PAID_BACK,
)


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The flags of an agent whose model calls a tool that needs approval in three responses."""
    monkeypatch.chdir(tmp_path)
    return (*agent_flags(), *scripted_flags(*REPLIES))


OWNERS = {
    "session": (),
    "replay": ("--replay",),
    "chain": ("--chain",),
    "conversation": ("--conversation",),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_each_decision_is_about_one_call_and_each_call_runs_once(
    flags: tuple[str, ...], convo: Convo, home: Path, owner: str
) -> None:
    pending = convo("chat", *flags, *OWNERS[owner], "-n", "mine", "pay back", "--json").json()["pending"]
    assert [call["call_id"] for call in pending] == ["c1"]
    pending = convo("resume", "mine", *flags, "--approve", "c1", "--json").json()["pending"]
    second, third = (call["call_id"] for call in pending)
    assert len({"c1", second, third}) == 3
    pending = convo("resume", "mine", *flags, "--approve", third, "--reject", second, "--json").json()["pending"]
    assert tool_runs() == ["refund A1 100", "refund A3 300"]
    (fourth,) = (call["call_id"] for call in pending)
    got = convo("resume", "mine", *flags, "--approve", fourth)
    assert (got.exit, got.out, tool_runs()[2:]) == (0, "Paid back.\n", ["refund A4 400"])

    items, _ = stored_conversation(home, "mine")
    results = {
        json.loads(items[call]["arguments"])["order"]: items[at]["output"]
        for at, call in call_index_by_output(items).items()
    }
    paid = {order: f"paid {order[1]}00 cents back for {order}" for order in ("A1", "A3", "A4")}
    assert results == {**paid, "A2": "Tool execution was not approved."}
    assert convo("lint", "mine").exit == 0


def export_paused_run(convo: Convo, flags: tuple[str, ...], *more: str) -> Path:
    """Write the state of a run whose fourth call is pending to state.json."""
    assert convo("chat", *flags, "-n", "mine", "pay back").exit == 3
    assert convo("resume", "mine", *flags, "--approve", "all").exit == 3
    assert convo("resume", "mine", *flags, "--approve", "all").exit == 3
    assert convo("export", "mine", "--format", "runstate", *flags[:2], *more, "-o", "state.json").exit == 0
    return Path("state.json")


def test_a_run_state_has_each_id_once_and_is_resumed_elsewhere(
    flags: tuple[str, ...], convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = export_paused_run(convo, flags).read_text()
    state = asyncio.run(RunState.from_string(Agent(name="desk"), text))
    assert len(state.get_interruptions()) == 1
    monkeypatch.setenv("CONVO_HOME", str(tmp_path / "elsewhere"))
    got = convo("resume", "state.json", *flags, "--approve", "all")
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert sorted(tool_runs()) == [f"refund A{number} {number}00" for number in (1, 2, 3, 4)]


def test_a_pending_call_of_a_state_does_not_have_the_output_of_an_earlier_one(
    flags: tuple[str, ...], convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Agents SDK stored such states before 0.20."""
    file = export_paused_run(convo, flags, "--schema", "1.10")
    file.write_text(file.read_text().replace('"c1_4"', '"c1"'))
    monkeypatch.setenv("CONVO_HOME", str(tmp_path / "elsewhere"))
    got = convo("resume", "state.json", *flags, "--approve", "all")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert sorted(tool_runs()) == [f"refund A{number} {number}00" for number in (1, 2, 3, 4)]
    (session,) = stored_sessions(tmp_path / "elsewhere")
    items, _ = stored_conversation(tmp_path / "elsewhere", session.name)
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == [f"paid {number}00 cents back for A{number}" for number in (1, 2, 3, 4)]
