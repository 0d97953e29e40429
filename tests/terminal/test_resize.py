"""A terminal that is resized while an answer streams."""

import re

import pytest

from tests.cli.chat_commands import ECHO
from tests.clock import HELD_S
from tests.loopback_server import LoopbackServer
from tests.terminal.screen import open_screen

pytestmark = pytest.mark.needs("terminal")

WORDS = [f"word{index}" for index in range(40)]


@pytest.mark.parametrize("columns", [(60, 90), (90, 60)])
def test_every_word_of_an_open_paragraph_is_shown_once(columns: tuple[int, int], remote_model: LoopbackServer) -> None:
    """The terminal cuts its rows when it becomes narrower, as xterm does; the open paragraph is drawn again."""
    remote_model.replies({"text": " ".join(WORDS)}, chunk=12, delay_s=HELD_S)
    remote_model.release_deltas(14)
    with open_screen("chat", "-n", "mine", columns=columns[0]) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        screen.wait_until(lambda: WORDS[18] in screen.text())
        screen.resize(columns[1])
        remote_model.release_deltas()
        screen.wait_for_prompt("session mine")
        assert re.findall(r"word\d+", screen.text()) == WORDS


def test_the_reasoning_is_erased_after_a_resize(remote_model: LoopbackServer) -> None:
    thoughts = " ".join(f"thought{index}" for index in range(60))
    remote_model.replies({"reasoning": thoughts, "text": "It rains."}, chunk=24, delay_s=HELD_S)
    remote_model.release_deltas(12)
    with open_screen("chat", "-n", "mine", columns=90) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("weather?\r")
        screen.wait_until(lambda: "thought20" in screen.text())
        screen.resize(50)
        remote_model.release_deltas()
        screen.wait_for_prompt("session mine")
        assert "thought" not in screen.text()
        assert "\n● It rains.\n" in screen.text()


def test_a_sent_message_is_wrapped_between_its_words() -> None:
    with open_screen("chat", *ECHO, columns=40) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("How can I keep the state of a conversation?\n")
        screen.wait_for_text("conversa")
        screen.type_keys("Second line, as long as a line of the terminal.\r")
        screen.wait_for_prompt(" output · ")
        rows = screen.text().splitlines()
        start = rows.index("> How can I keep the state of a")
        assert rows[start + 1 : start + 4] == [
            "  conversation?",
            "  Second line, as long as a line of the",
            "  terminal.",
        ]
        sign, first = (screen.screen.buffer[start][column] for column in (0, 2))
        assert (sign.fg, sign.bold, first.bold) == ("cyan", True, True)
        assert not screen.screen.buffer[start + 5][0].bold


def test_no_color_shows_a_sent_message_without_a_style() -> None:
    with open_screen("chat", *ECHO, columns=40, env={"NO_COLOR": "1"}) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("Hello\r")
        screen.wait_for_prompt(" output · ")
        row = screen.text().splitlines().index("> Hello")
        assert not any(screen.screen.buffer[row][column].bold for column in (0, 2))
