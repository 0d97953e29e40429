"""The line that shows the progress of long work: at a real terminal, and nowhere else."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import Any

import pytest

from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.remote_state import create_chain, create_conversation
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer
from tests.terminal.pty_process import end_process
from tests.terminal.pty_session import TIMEOUT_S
from tests.terminal.screen import ROWS, TerminalScreen

pytestmark = pytest.mark.needs("terminal")

HOUR_S = 3600.0


def write_program(delay_s: float) -> list[str]:
    """Write a program that is convo, except that the line appears after `delay_s`; returns its command line."""
    Path("run.py").write_text(
        "import sys\n"
        "from convo.cli import app, progress\n"
        f"progress.SHOW_DELAY_S = {delay_s}\n"
        "code = app.run_command_line(sys.argv[1:])\n"
        "open('rich.txt', 'w').write(str('rich' in sys.modules))\n"
        "sys.exit(code)\n",
        encoding="utf-8",
    )
    return [sys.executable, f"{os.getcwd()}/run.py"]


@contextmanager
def open_progress_screen(
    *argv: str, columns: int = 80, delay_s: float = 0.0, env: Mapping[str, str] | None = None, redirection: str = ""
) -> Iterator[TerminalScreen]:
    """The screen of one command that shows its progress after `delay_s`."""
    import pexpect

    environ = {**os.environ, "TERM": "xterm", **(env or {})}
    environ.pop("COLUMNS", None)
    command = ["-c", f"exec {join([*write_program(delay_s), *argv])} {redirection}"]
    more: Any = {"dimensions": (ROWS, columns), "encoding": "utf-8", "env": environ, "timeout": TIMEOUT_S}
    child = pexpect.spawn("/bin/sh", command, **more)
    child.delaybeforesend = None
    try:
        yield TerminalScreen(child, columns)
    finally:
        end_process(child)


def run_to_end(*argv: str, code: int = 0, **more: Any) -> TerminalScreen:
    with open_progress_screen(*argv, **more) as screen:
        assert screen.wait_for_exit() == code, screen.text()
        return screen


def drawn_frames(screen: TerminalScreen) -> list[str]:
    """The texts that were drawn over each other on one line, without styles and bars."""
    lines = re.split(r"\r\x1b\[2K|\r?\n", screen.raw)
    plain = (re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", line) for line in lines)
    return [" ".join(re.sub(r"[━╸╺-]+", " ", line).split()) for line in plain]


@pytest.fixture
def stored(convo: Convo) -> None:
    assert convo("chat", *ECHO, "-q", "-n", "mine", "hello").exit == 0


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("argv", "frame"),
    [
        (("store", "check"), r"checking: \w+ \d+ of \d+ \d:\d\d:\d\d"),
        (("store", "backup", "copy.db"), r"copying: pages (\d+) of \1 \d:\d\d:\d\d"),
        (("store", "recover", "new.db"), r"recovering: \w+ \d+ of \d+ \d:\d\d:\d\d"),
        pytest.param(("store", "stats"), r"counting \d:\d\d:\d\d", marks=pytest.mark.full),
        pytest.param(
            ("store", "prune", "--older-than", "1d"), r"counting: tenants 1 of 1 \d:\d\d:\d\d", marks=pytest.mark.full
        ),
        (("store", "prune", "--older-than", "1s", "--yes"), r"removing: tenants 1 of 1 \d:\d\d:\d\d"),
        (("store", "migrate", "--store", "sqlite:new.db"), r"migrating: migrations (\d+) of \1 \d:\d\d:\d\d"),
        (("export", "mine", "-o", "mine.json"), r"exporting \d:\d\d:\d\d"),
        (("inspect", "mine", "--no-pager"), r"reading \d:\d\d:\d\d"),
        pytest.param(("diff", "mine", "mine"), r"reading \d:\d\d:\d\d", marks=pytest.mark.full),
        pytest.param(("next", "mine"), r"reading \d:\d\d:\d\d", marks=pytest.mark.full),
        (("convert", "mine", "--to", "conversation"), r"writing \d:\d\d:\d\d"),
    ],
)
def test_work_that_may_be_long_is_shown_with_its_numbers_and_leaves_nothing(argv: tuple[str, ...], frame: str) -> None:
    screen = run_to_end(*argv)
    assert any(re.fullmatch(frame, drawn) for drawn in drawn_frames(screen)), drawn_frames(screen)
    assert "━" not in screen.text().replace("┃", "")
    assert not re.search(r"\d:\d\d:\d\d", screen.text())
    assert not screen.screen.cursor.hidden


def test_an_import_shows_its_conversations_and_prints_each_line_once(convo: Convo) -> None:
    with sqlite3.connect("agents.db") as database:
        database.execute("CREATE TABLE agent_sessions (session_id TEXT, created_at TEXT, updated_at TEXT)")
        database.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT)"
        )
        for number in range(3):
            database.execute("INSERT INTO agent_sessions VALUES (?, '2026-01-01', '2026-01-01')", (f"talk-{number}",))
            message = json.dumps({"role": "user", "content": f"hello {number}"})
            database.execute(
                "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, '2026-01-01')",
                (f"talk-{number}", message),
            )
    database.close()
    screen = run_to_end("import", "agents.db")
    frames = drawn_frames(screen)
    assert any(re.fullmatch(r"reading: sessions 3 of 3 \d:\d\d:\d\d", frame) for frame in frames), frames
    assert any(re.fullmatch(r"importing: conversations 3 of 3 \d:\d\d:\d\d", frame) for frame in frames), frames
    assert screen.text() == "".join(f"talk-{number}  1 item\n" for number in range(3)).rstrip()


@pytest.mark.parametrize("kind", ["responses", "items"])
def test_a_conversation_that_is_read_from_its_endpoint_shows_what_arrived(kind: str, server: LoopbackServer) -> None:
    if kind == "responses":
        handle, texts = create_chain(server, "one", "two", "three")[-1], r"exporting: (responses|items) \d \d:\d\d:\d\d"
    else:
        handle, texts = create_conversation(server, "one", "two"), r"exporting: items 4 \d:\d\d:\d\d"
    screen = run_to_end("export", handle, "--provider", "openai", "-o", "copy.json", env=server.environ)
    assert any(re.fullmatch(texts, frame) for frame in drawn_frames(screen)), drawn_frames(screen)
    assert screen.text().startswith("exported ")


def test_a_conversation_that_is_created_at_an_endpoint_shows_the_items_sent(server: LoopbackServer) -> None:
    items = [{"role": "user", "content": f"item {number}"} for number in range(50)]
    Path("many.json").write_text(json.dumps(items), encoding="utf-8")
    argv = ("convert", "./many.json", "--to", "conversation", "-m", "openai/gpt-5-mini")
    frames = drawn_frames(run_to_end(*argv, env=server.environ))
    assert any(re.fullmatch(r"writing: items \d+( of 50)? \d:\d\d:\d\d", frame) for frame in frames)


def test_a_race_shows_the_strategy_and_ctrl_c_leaves_no_line() -> None:
    slow = scripted_flags(*[{"text": "one two three"}] * 8, delay_s=20)
    with open_progress_screen("race", "hello", "and then?", *slow) as screen:
        screen.wait_until(lambda: any(re.match(r"race: replay 0 of 8", frame) for frame in drawn_frames(screen)))
        screen.type_keys("\x03")
        assert screen.wait_for_exit() == 130
        assert "race" not in screen.text()
        assert (screen.screen.cursor.x, screen.screen.cursor.hidden) == (0, False)


def test_a_race_counts_the_turns_of_all_strategies() -> None:
    frames = drawn_frames(run_to_end("race", "hello", *ECHO))
    assert any(re.fullmatch(r"race: chain 3 of 4 \d:\d\d:\d\d", frame) for frame in frames), frames


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(("columns", "frame"), [(40, r"checking: \w+ \d+ of \d+"), (16, r"checking: .*")])
def test_in_a_narrow_terminal_the_line_is_shorter_and_never_wrapped(columns: int, frame: str) -> None:
    screen = run_to_end("store", "check", columns=columns)
    frames = [drawn for drawn in drawn_frames(screen) if drawn.startswith("checking")]
    assert any(re.fullmatch(frame, drawn) for drawn in frames), frames
    assert all(len(drawn) <= columns for drawn in frames)
    assert "checking" not in screen.text()


@pytest.mark.usefixtures("stored")
def test_without_colors_the_line_has_no_styles() -> None:
    screen = run_to_end("store", "check", env={"NO_COLOR": "1"})
    assert "checking: " in screen.raw
    assert "\x1b[3" not in screen.raw
    assert "\x1b[9" not in screen.raw


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("more", "env", "redirection"),
    [
        (["--json"], {}, ""),
        pytest.param([], {"TERM": "dumb"}, "", marks=pytest.mark.full),
        ([], {"CONVO_EDITING": "plain"}, ""),
        ([], {}, "| cat"),
        pytest.param([], {}, "2> err.txt", marks=pytest.mark.full),
    ],
)
def test_programs_screen_readers_and_terminals_without_a_cursor_get_no_line(
    more: list[str], env: dict[str, str], redirection: str
) -> None:
    with open_progress_screen("store", "check", *more, env=env, redirection=redirection) as screen:
        screen.wait_for_exit()
        written = Path("err.txt").read_text() if redirection.startswith("2>") else ""
        assert "checking" not in screen.raw + written
        assert "\x1b[2K" not in screen.raw + written
        assert ("no problems found" in screen.raw + written) != ("--json" in more)
    assert Path("rich.txt").read_text() == "False"


@pytest.mark.usefixtures("stored")
def test_a_pipe_gets_no_bytes_of_it() -> None:
    result = subprocess.run(
        [*write_program(0.0), "store", "check"], capture_output=True, encoding="utf-8", check=True, timeout=TIMEOUT_S
    )
    assert result.stdout == ""
    assert re.fullmatch(r"sqlite:\S+: no problems found \(.*\)\n", result.stderr)
    assert Path("rich.txt").read_text() == "False"


@pytest.mark.usefixtures("stored")
def test_work_that_ends_before_the_delay_shows_nothing_and_does_not_wait_for_it() -> None:
    screen = run_to_end("store", "check", delay_s=HOUR_S)
    assert "checking" not in screen.raw
    assert Path("rich.txt").read_text() == "False"
