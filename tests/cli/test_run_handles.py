"""A run's id names its conversation wherever a conversation is asked for."""

import shlex
from pathlib import Path

import pytest

from tests.cli.agenting import BACK, REFUND, agents, ran, runs
from tests.cli.chatting import scripted
from tests.cli.held import Story, Teller, held
from tests.cli.test_approvals import waits
from tests.running import Convo
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


def two(one: str, other: str) -> Story:
    """Two sessions, and the ids of their runs."""

    async def story(teller: Teller) -> None:
        await waits("shop", paused(), one)(teller)
        await waits("other", paused(), other)(teller)

    return story


def test_every_command_takes_a_run_and_its_unique_beginning_for_its_session(convo: Convo, home: Path) -> None:
    held(home, two("run_71", "run_8"))
    for command in COMMANDS:
        session = convo(*shlex.split(command.replace("HANDLE", "shop")))
        for handle in ("run_71", "run_7"):
            got = convo(*shlex.split(command.replace("HANDLE", handle)))
            plain = (got.exit, got.out.replace(handle, "shop"), got.err.replace(handle, "shop"))
            assert plain == (session.exit, session.out, session.err), (command, handle)
        unknown = convo(*shlex.split(command.replace("HANDLE", "run_9")))
        assert (unknown.exit, "no session 'run_9'" in unknown.err + unknown.out) == (5, True), command


def test_a_beginning_that_two_runs_have_is_refused_with_both(convo: Convo, home: Path) -> None:
    held(home, two("run_71", "run_72"))
    for command in ("inspect", "resume"):
        got = convo(command, "run_7")
        assert (got.exit, "run_71" in got.err, "run_72" in got.err) == (2, True, True)


def test_resume_goes_on_with_the_run_that_a_beginning_names(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = scripted(REFUND, BACK)
    assert convo("chat", *agents(), *model, "-n", "mine", "back").exit == 3
    got = convo("resume", runs(home)[0].id[:8], *agents(), *model, "--approve", "all")
    assert (got.exit, got.out, ran()) == (0, "Paid back.\n", ["refund A1 500"]), got.err
