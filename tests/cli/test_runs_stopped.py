"""Interrupted and killed agent runs: a call with unknown outcome becomes pending, and no other call runs again."""

import os
import re
import signal
from pathlib import Path
from subprocess import Popen

import pytest

from tests.cli.agent_files import (
    AGENTS,
    LOOK_UP,
    PAID_BACK,
    REFUND,
    agent_flags,
    stored_runs,
    tool_runs,
    two_refund_calls,
)
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.command_runner import Convo, Launch, Start

pytestmark = pytest.mark.needs("posix")

HANGING_AGENTS = AGENTS.replace(
    'note(f"look_up {order}")',
    'note(f"look_up {order}")\n    print("STARTED", flush=True)\n    import time\n    time.sleep(WAIT)',
)
"""Agents whose look_up tool prints STARTED and then sleeps for WAIT seconds."""


@pytest.fixture
def killed_flags(start: Start, home: Path) -> tuple[str, str]:
    """Kill a run while its tool runs; returns the flags of its model."""
    model = scripted_flags(LOOK_UP, PAID_BACK)
    kill_once_started(
        start("chat", *agent_flags("desk", HANGING_AGENTS.replace("WAIT", "60")), *model, "-n", "mine", "A1?")
    )
    agent_flags("desk", AGENTS)
    return model


def kill_once_started(process: Popen[str]) -> None:
    assert process.stderr
    assert "STARTED\n" in iter(process.stderr.readline, "")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def tool_outputs(home: Path) -> list[str]:
    return [item["output"] for item in stored_conversation(home, "mine")[0] if item["type"] == "function_call_output"]


def test_a_call_without_an_output_after_a_kill_becomes_a_pending_call(
    killed_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    got = convo("resume", "mine", *agent_flags(), *killed_flags, "--json")
    result = got.json()
    assert got.exit == 3
    assert [(one["call_id"], one["unknown"]) for one in result["pending"]] == [("c0", True)]
    assert result["state_file"] is None
    assert "outcome is unknown; the Agents SDK would run it again" in got.err
    assert tool_runs() == ["look_up A1"]
    assert "look_up, outcome unknown" in convo("approvals").out


@pytest.mark.parametrize(
    ("argv", "expected_runs", "output"),
    [
        (["--rerun", "c0"], ["look_up A1", "look_up A1"], "A1 cost 500 cents"),
        (["--output", "c0=A1 = 7"], ["look_up A1"], "A1 = 7"),
        (["--reject", "c0"], ["look_up A1"], "The tool was started, and its outcome is unknown."),
        (["--reject", "c0=Ask him."], ["look_up A1"], "The tool was started, and its outcome is unknown. Ask him."),
    ],
)
def test_a_call_with_unknown_outcome_is_resolved_by_a_decision(
    argv: list[str], expected_runs: list[str], output: str, killed_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    got = convo("resume", "mine", *agent_flags(), *killed_flags, *argv)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert tool_runs() == expected_runs
    assert tool_outputs(home) == [output]


def test_no_message_is_accepted_after_an_interrupted_run(
    killed_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    for flags in ((*agent_flags(), *killed_flags), killed_flags):
        got = convo("chat", "-c", *flags, "and?")
        assert (got.exit, got.out) == (1, "")
        assert "its calls have no output yet\n  try: convo resume mine --agent" in got.err
    assert tool_runs() == ["look_up A1"]


def test_a_call_with_unknown_outcome_cannot_be_approved(
    killed_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    for selector in ("c0", "look_up", "all"):
        got = convo("resume", "mine", *agent_flags(), *killed_flags, "--approve", selector)
        assert got.exit == 2
        assert "c0 was started and its outcome is unknown\n  try: --rerun c0, --output c0=TEXT, or --abort" in got.err
    assert tool_runs() == ["look_up A1"]


def test_an_earlier_decision_does_not_resolve_a_call_with_unknown_outcome(
    start: Start, convo: Convo, home: Path
) -> None:
    """A script that repeats the command must not run the tool twice."""
    model = scripted_flags(REFUND, PAID_BACK)
    slow = AGENTS.replace(
        'note(f"refund {order} {cents}")', 'note("refund")\n    print("STARTED", flush=True)\n    WAIT'
    )
    assert convo("chat", *agent_flags("desk"), *model, "-n", "mine", "--state", "state.json", "back").exit == 3
    assert convo("resume", "state.json", "--decide-only", "-o", "decided.json", "--approve", "c1").exit == 0
    hanging = slow.replace("WAIT", "import time; time.sleep(60)")
    kill_once_started(start("resume", "decided.json", *agent_flags("desk", hanging), *model))
    agent_flags("desk", slow.replace("WAIT", "pass"))
    for _ in range(3):
        got = convo("resume", "decided.json", *agent_flags("desk", slow.replace("WAIT", "pass")), *model)
        assert got.exit == 3
        assert "its outcome is unknown" in got.err
        assert got.err.endswith("--agent bot.py:desk with --rerun c1, --output c1=TEXT, or --abort\n")
        assert got.err.count("no state file was written") == 1
    assert tool_runs() == ["refund"]


def test_a_command_repeated_after_a_kill_continues_the_run(start: Start, convo: Convo, home: Path) -> None:
    """The kill interrupts the answer, after the output of the approved call was stored."""
    slow = {"text": "one two three four five six seven eight nine ten " * 200}
    model = scripted_flags(REFUND, slow, delay_s=0.05)
    assert convo("chat", *agent_flags(), *model, "-n", "mine", "back").exit == 3
    argv = ("resume", "mine", *agent_flags(), *model)
    process = start(*argv, "--approve", "c1")
    assert process.stdout
    process.stdout.read(8)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for selector in ("c9", "look_up", "c1=no"):
        wrong = convo(*argv, "--reject" if "=" in selector else "--approve", selector.replace("c1", "c9"))
        assert (wrong.exit, wrong.out) == (5, "")
    fast = scripted_flags(REFUND, slow)
    got = convo("resume", "mine", *agent_flags(), *fast, "--approve", "c1", "--json")
    assert (got.exit, got.json()["output_text"]) == (0, slow["text"]), got.err
    assert "no calls are pending any more; resuming the run\n" in got.err
    assert len(tool_runs()) == 1


@pytest.mark.parametrize("needed", [True, False])
def test_a_decision_is_not_applied_before_the_pending_calls_are_known(
    needed: bool, start: Start, convo: Convo, home: Path
) -> None:
    """The kill interrupts a needs_approval function, which is called again before a decision applies."""
    approval_function = (
        "def asks(context, arguments):\n    ASKS\n    return NEEDED\n\n@tool(needs_approval=asks)\ndef refund"
    )
    text = AGENTS.replace("@tool(needs_approval=True)\ndef refund", approval_function.replace("NEEDED", str(needed)))
    model = scripted_flags(REFUND, PAID_BACK)
    hanging = text.replace("ASKS", 'print("STARTED", flush=True)\n    import time\n    time.sleep(60)')
    kill_once_started(start("chat", *agent_flags("desk", hanging), *model, "-n", "mine", "back"))
    argv = ("resume", "mine", *agent_flags("desk", text.replace("ASKS", "pass")), *model, "--approve", "c1")
    got = convo(*argv)
    assert "the pending calls are not known yet; resuming the run to find them\n" in got.err
    assert (got.exit, got.out) == ((3, "") if needed else (0, "Paid back.\n")), got.err
    if needed:
        assert tool_runs() == []
        assert convo(*argv).out == "Paid back.\n"
    assert len(tool_runs()) == 1


def test_a_run_with_a_call_of_unknown_outcome_can_be_aborted(
    killed_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    assert convo("resume", "mine", *agent_flags(), *killed_flags, "--abort").exit == 0
    assert (stored_runs(home)[0].status, len(tool_outputs(home))) == ("stopped", 1)
    assert convo("chat", "-c", *agent_flags(), *killed_flags, "and?").exit == 0
    assert tool_runs() == ["look_up A1"]


def test_a_run_interrupted_with_ctrl_c_can_be_resumed(start: Start, convo: Convo, home: Path) -> None:
    slow = {"text": "one two three four five six seven eight nine ten " * 10}
    model = scripted_flags(LOOK_UP, slow, chunk=4, delay_s=0.25)
    process = start("chat", *agent_flags(), *model, "-n", "mine", "A1?")
    assert process.stdout
    process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; to resume: convo resume mine --agent bot.py:desk" in err
    got = convo("resume", "mine", *agent_flags(), *scripted_flags(LOOK_UP, {"text": "Five."}))
    assert (got.exit, got.out) == (0, "Five.\n"), got.err
    assert tool_runs() == ["look_up A1"]


SLOW_REFUND = AGENTS.replace(
    'note(f"refund {order} {cents}")',
    """note(f"refund {order} {cents}")
    import time
    if order == "A2":
        while "refund A1 100" not in RAN.read_text():
            time.sleep(0.01)
        print("STARTED", flush=True)
        time.sleep(60)""",
)
"""Agents whose refund tool, for order A2, waits until A1 is refunded, prints STARTED and then sleeps."""


def test_a_run_stopped_during_a_tool_leaves_a_state_file_that_runs_no_tool_again(
    convo: Convo, start: Start, launch: Launch, home: Path
) -> None:
    model = two_refund_calls()
    convo("chat", *agent_flags(text=SLOW_REFUND), *model, "--state", "state.json", "-n", "mine", "pay back")
    flags = ("resume", "state.json", *agent_flags(text=SLOW_REFUND), *model)
    process = start(*flags, "--approve", "all", "-o", "state.json")
    assert process.stderr
    # The output of the other call may come in the same line: print writes the text and the line break separately.
    assert any("STARTED" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    err = process.stderr.read()
    process.wait()
    unknown = re.findall(r"(c\d) was started and its outcome is unknown", err)
    assert "c2" in unknown  # the other call has returned, and its output may be stored or not
    for env in ({"CONVO_HOME": "elsewhere"}, {}):
        got = launch(*flags, "--approve", "c2", env=env)
        assert (got.exit, "c2 was started and its outcome is unknown" in got.err) == (2, True), got.err
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]
    resumed = launch(*flags, *(f"--output={call}=paid" for call in unknown), env={"CONVO_HOME": "elsewhere"})
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert sorted(tool_runs()) == ["refund A1 100", "refund A2 200"]
