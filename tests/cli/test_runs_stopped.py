"""Runs of agents that are stopped or killed: what ran is not run again, and what nobody knows is asked."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.agenting import AGENTS, BACK, LOOK_UP, agents, ran, runs
from tests.cli.chatting import kept, scripted
from tests.running import Convo, Start

pytestmark = pytest.mark.needs("posix")

HANGS = AGENTS.replace(
    'note(f"look_up {order}")',
    'note(f"look_up {order}")\n    print("STARTED", flush=True)\n    import time\n    time.sleep(WAIT)',
)
"""A tool that says when it has begun and then takes WAIT seconds."""


@pytest.fixture
def killed(start: Start, home: Path) -> tuple[str, str]:
    """A run that was killed while its tool ran; the flags of its model."""
    model = scripted(LOOK_UP, BACK)
    process = start("chat", *agents("desk", HANGS.replace("WAIT", "60")), *model, "-n", "mine", "A1?")
    assert process.stderr
    assert "STARTED\n" in iter(process.stderr.readline, "")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    agents("desk", AGENTS)
    return model


def outputs(home: Path) -> list[str]:
    return [item["output"] for item in kept(home, "mine")[0] if item["type"] == "function_call_output"]


def test_a_call_that_left_no_result_comes_back_as_a_question(killed: tuple[str, str], convo: Convo, home: Path) -> None:
    got = convo("resume", "mine", *agents(), *killed, "--json")
    told = got.json()
    assert got.exit == 3
    assert [(one["call_id"], one["unknown"]) for one in told["pending"]] == [("c0", True)]
    assert told["state_file"] is None
    assert "outcome is unknown; the Agents SDK would run it again" in got.err
    assert ran() == ["look_up A1"]
    assert "look_up, outcome unknown" in convo("approvals").out


@pytest.mark.parametrize(
    ("argv", "ran_after", "output"),
    [
        (["--rerun", "c0"], ["look_up A1", "look_up A1"], "A1 cost 500 cents"),
        (["--output", "c0=A1 = 7"], ["look_up A1"], "A1 = 7"),
        (["--reject", "c0"], ["look_up A1"], "The tool was started, and its outcome is unknown."),
    ],
)
def test_a_person_says_what_became_of_it(
    argv: list[str], ran_after: list[str], output: str, killed: tuple[str, str], convo: Convo, home: Path
) -> None:
    got = convo("resume", "mine", *agents(), *killed, *argv)
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    assert ran() == ran_after
    assert outputs(home) == [output]


def test_nothing_is_said_past_a_run_that_was_cut_off(killed: tuple[str, str], convo: Convo, home: Path) -> None:
    for flags in ((*agents(), *killed), killed):
        got = convo("chat", "-c", *flags, "and?")
        assert (got.exit, got.out) == (1, "")
        assert "its calls have no output yet\n  try: convo resume mine --agent" in got.err
    assert ran() == ["look_up A1"]


def test_an_unknown_outcome_is_not_approved(killed: tuple[str, str], convo: Convo, home: Path) -> None:
    got = convo("resume", "mine", *agents(), *killed, "--approve", "c0")
    assert got.exit == 2
    assert "c0 was started and its outcome is unknown" in got.err
    assert ran() == ["look_up A1"]


def test_a_run_with_an_unknown_outcome_can_be_ended(killed: tuple[str, str], convo: Convo, home: Path) -> None:
    assert convo("resume", "mine", *agents(), *killed, "--abort").exit == 0
    assert (runs(home)[0].status, len(outputs(home))) == ("stopped", 1)
    assert convo("chat", "-c", *agents(), *killed, "and?").exit == 0
    assert ran() == ["look_up A1"]


def test_ctrl_c_leaves_a_run_that_goes_on(start: Start, convo: Convo, home: Path) -> None:
    slow = {"text": "one two three four five six seven eight nine ten " * 10}
    model = scripted(LOOK_UP, slow, chunk=4, delay_s=0.25)
    process = start("chat", *agents(), *model, "-n", "mine", "A1?")
    assert process.stdout
    process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; to go on: convo resume mine --agent bot.py:desk" in err
    got = convo("resume", "mine", *agents(), *scripted(LOOK_UP, {"text": "Five."}))
    assert (got.exit, got.out) == (0, "Five.\n"), got.err
    assert ran() == ["look_up A1"]
