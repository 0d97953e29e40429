"""The line that shows that work goes on, in a real terminal."""

import asyncio
import os
import re
import threading
from pathlib import Path

import pytest

from convo.terminal.waiting import WaitingLine, format_seconds
from tests.cli.chat_commands import LONG, scripted_flags
from tests.clock import HELD_S
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer
from tests.terminal.pty_session import at_terminal
from tests.terminal.screen import TerminalScreen, open_screen
from tests.terminal.test_capabilities import fake_terminal

pytestmark = pytest.mark.needs("terminal")

SLOW_ANSWER = {"text": "one two"}

PRINTING_AGENT = """
import time
from convo.agents import Agent
from convo.tools import tool

@tool
def measure() -> str:
    "Measure."
    print("measuring", end="", flush=True)
    time.sleep(1)
    print(" is done", flush=True)
    return "5 m"

desk = Agent("desk", tools=(measure,))
"""


IMPORTED = threading.Event()
"""Set by the module that is imported while the line is shown."""


def wait_for_line(screen: TerminalScreen, pattern: str) -> None:
    """Wait until a line matches; on a busy machine the first one may be late."""
    screen.wait_until(lambda: re.search(pattern, screen.text()) is not None)


def test_a_chat_shows_the_time_and_the_key_until_the_answer_begins(remote_model: LoopbackServer) -> None:
    remote_model.replies(SLOW_ANSWER, delay_s=HELD_S)
    with open_screen("chat", "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        wait_for_line(screen, r"waiting \d+ s · Esc to stop")
        remote_model.release_deltas()
        screen.wait_for_prompt("session mine")
        assert "one two\n" in screen.text()
        assert "waiting" not in screen.text()


async def test_the_module_that_the_output_needs_is_imported_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_output.py").write_text(f"from {__name__} import IMPORTED\nIMPORTED.set()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    line = WaitingLine(fake_terminal(), fake_terminal())
    line.preloaded_module = "slow_output"
    async with line.show("waiting"):
        assert await asyncio.to_thread(IMPORTED.wait, 30)


def test_esc_stops_the_wait() -> None:
    with open_screen("chat", *scripted_flags(SLOW_ANSWER, delay_s=25), "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        screen.wait_for_text("Esc to stop")
        screen.type_keys("\x1b")
        screen.wait_for_prompt("stopped; the output so far is saved")
        assert "waiting" not in screen.text()


def test_while_text_arrives_the_time_and_the_key_are_shown_below_it(remote_model: LoopbackServer) -> None:
    remote_model.replies({"text": "one two three"}, chunk=4, delay_s=HELD_S)
    remote_model.release_deltas(1)
    with open_screen("chat", "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        wait_for_line(screen, r"> count\n\n● one\nanswering \d+ s · Esc to stop$")
        remote_model.release_deltas(1)
        wait_for_line(screen, r"> count\n\n● one two\nanswering \d+ s · Esc to stop$")
        remote_model.release_deltas()
        screen.wait_for_prompt("session mine")
        assert "● one two three\n" in screen.text()
        assert "answering" not in screen.text()


def test_in_a_narrow_terminal_the_line_is_cut(remote_model: LoopbackServer) -> None:
    remote_model.replies(SLOW_ANSWER, delay_s=HELD_S)
    with open_screen("chat", "count", columns=20) as screen:
        wait_for_line(screen, r"waiting (\d s · Ct|\d\d s · C)…")
        remote_model.release_deltas()
        assert screen.wait_for_exit() == 0
        assert screen.text().startswith("one two\n")


@pytest.mark.parametrize(
    ("flags", "env"),
    [(["--quiet"], {}), (["--json"], {}), (["--jsonl"], {}), ([], {"CONVO_EDITING": "plain"}), ([], {"TERM": "dumb"})],
)
def test_programs_screen_readers_and_terminals_without_a_cursor_get_no_such_line(
    flags: list[str], env: dict[str, str]
) -> None:
    with at_terminal("chat", *scripted_flags(SLOW_ANSWER, delay_s=0.8), "count", *flags, env=env) as terminal:
        assert terminal.wait_for_exit() == 0
        assert "one two" in terminal.output
        assert "waiting" not in terminal.child.before


@pytest.mark.parametrize("redirection", ["2>err.txt", ">out.txt"])
def test_the_line_is_shown_only_if_both_outputs_are_a_terminal(redirection: str) -> None:
    flags = " ".join(scripted_flags(SLOW_ANSWER, delay_s=0.8))
    with at_terminal(command=f"convo chat {flags} -n mine count {redirection}") as terminal:
        assert terminal.wait_for_exit() == 0
    assert "waiting" not in terminal.child.before + Path(redirection.strip("2>")).read_text()


def test_without_colors_the_line_has_no_styles(remote_model: LoopbackServer) -> None:
    remote_model.replies(SLOW_ANSWER, delay_s=HELD_S)
    with open_screen("chat", "count", env={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}) as screen:
        wait_for_line(screen, r"waiting \d+ s - Ctrl-C to stop")
        remote_model.release_deltas()
        assert screen.wait_for_exit() == 0
        assert "\x1b[3" not in screen.raw


def test_a_tool_that_prints_is_not_erased(remote_model: LoopbackServer) -> None:
    Path("desk.py").write_text(PRINTING_AGENT, encoding="utf-8")
    call = {"call": {"name": "measure", "call_id": "c1"}}
    remote_model.replies(call, {"text": "It is 5 m."}, delay_s=HELD_S)
    with open_screen("chat", "--agent", f"{os.getcwd()}/desk.py:desk", "how long?") as screen:
        wait_for_line(screen, r"waiting \d+ s · Ctrl-C to stop")
        remote_model.release_deltas()
        screen.wait_for_text("It is 5 m.")
        assert screen.wait_for_exit() == 0
        assert "desk calls measure {}\nmeasuring is done\nmeasure returned 5 m\nIt is 5 m.\n" in screen.text()


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (125.2, "2 min 5 s")])
def test_durations_are_in_whole_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("flags", "env"), [((), {}), (("--json",), {}), ((), {"CONVO_EDITING": "plain"})])
def test_a_compaction_shows_the_line_to_a_user(flags: tuple[str, ...], env: dict[str, str], convo: Convo) -> None:
    quick, slow = scripted_flags({"text": LONG}), scripted_flags({"text": "Short."}, delay_s=1.0)
    assert convo("chat", "-q", *quick, "-n", "mine", f"one {LONG}").exit == 0
    assert convo("chat", "-q", "--from", "mine", *quick, f"two {LONG}").exit == 0
    with at_terminal("compact", "mine", *slow, *flags, env=env) as terminal:
        assert terminal.wait_for_exit() == 0
        assert bool(re.search(r"compacting \d s · Ctrl-C to stop", terminal.child.before)) == (not flags and not env)
