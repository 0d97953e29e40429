"""`convo export --format runstate`: an agent run in a form that can be resumed elsewhere."""

import asyncio
import json
from pathlib import Path

import pytest
from agents import Agent, RunState

from tests.cli.agent_files import PAID_BACK, agent_flags, tool_runs, two_refund_calls
from tests.command_runner import Convo


@pytest.fixture
def paused_flags(convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Pause a run at two refund calls; returns the flags of its model."""
    monkeypatch.chdir(tmp_path)
    model = two_refund_calls(PAID_BACK)
    assert convo("chat", *agent_flags(), *model, "--state", "state.json", "-n", "mine", "pay back").exit == 3
    return model


EXPORT_RUN = ("export", "mine", "--format", "runstate", *("--agent", "bot.py:desk"))


def test_the_exported_run_state_equals_the_state_file_of_the_pause(paused_flags: tuple[str, str], convo: Convo) -> None:
    got = convo(*EXPORT_RUN)
    assert (got.exit, got.err) == (0, "")
    assert got.json() == json.loads(Path("state.json").read_text())
    assert (convo(*EXPORT_RUN, "-o", "-"), Path("-").exists()) == (got, False)


def test_the_agents_sdk_reads_an_exported_run_state(paused_flags: tuple[str, str], convo: Convo) -> None:
    state = asyncio.run(RunState.from_string(Agent(name="desk"), convo(*EXPORT_RUN).out))
    assert len(state.get_interruptions()) == 2


def test_an_older_schema_version_is_written_on_request(paused_flags: tuple[str, str], convo: Convo) -> None:
    got = convo(*EXPORT_RUN, "--schema", "1.6", "-o", "old.json", "--json")
    assert got.json() == {"file": "old.json", "format": "runstate"}
    assert json.loads(Path("old.json").read_text())["$schemaVersion"] == "1.6"
    assert all(line.startswith("lost: ") for line in got.err.splitlines())


def test_an_exported_run_resumes_in_another_home(
    paused_flags: tuple[str, str], convo: Convo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert convo(*EXPORT_RUN, "-o", "moved.json").exit == 0
    monkeypatch.setenv("CONVO_HOME", str(tmp_path / "elsewhere"))
    got = convo("resume", "moved.json", *agent_flags(), *paused_flags, "--approve", "c1", "--approve", "c2")
    assert (got.exit, got.out) == (0, "Paid back.\n")
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]


@pytest.mark.parametrize(
    ("argv", "exit_code"),
    [
        (("export", "mine", "--format", "runstate"), 2),
        ((*EXPORT_RUN, "--redact"), 2),
        ((*EXPORT_RUN, "--links"), 2),
        (("export", "mine", "--agent", "bot.py:desk"), 2),
        (("export", "nope", *EXPORT_RUN[2:]), 5),
        ((*EXPORT_RUN, "--schema", "0.1"), 2),
    ],
)
def test_options_that_do_not_apply_to_a_run_are_refused(
    paused_flags: tuple[str, str], convo: Convo, argv: tuple[str, ...], exit_code: int
) -> None:
    got = convo(*argv)
    assert (got.exit, got.out) == (exit_code, "")


KEPT_APPROVAL = {"approved": ["c1"], "rejected": True}
KEPT_REJECTION = {"approved": True, "rejected": ["c1"], "rejection_messages": {"c1": "too late"}}


@pytest.mark.parametrize(
    ("decision", "sticky", "expected"),
    [
        (("approve", "c1"), ("reject", "c2"), KEPT_APPROVAL),
        (("reject", "c1=too late"), ("approve", "c2"), KEPT_REJECTION),
    ],
)
@pytest.mark.parametrize("is_exported", [True, False])
def test_a_decision_on_one_call_stays_beside_a_sticky_decision_on_its_tool(
    paused_flags: tuple[str, str],
    convo: Convo,
    decision: tuple[str, str],
    sticky: tuple[str, str],
    expected: dict[str, object],
    is_exported: bool,
) -> None:
    """In the export of a session, and in a state file that is decided twice."""
    for (verb, call), *always in (decision,), (sticky, "--always"):
        if is_exported:
            assert convo("approvals", verb, call, *always).exit == 0
        else:
            decided = convo("resume", "state.json", "--decide-only", f"--{verb}", call, *always, "-o", "state.json")
            assert decided.exit == (0 if always else 3)
    state = convo(*EXPORT_RUN).json() if is_exported else json.loads(Path("state.json").read_text())
    (owned,) = state["context"]["function_tool_approvals"]
    assert {key: value for key, value in owned["decision"].items() if key != "sticky_scope"} == expected
