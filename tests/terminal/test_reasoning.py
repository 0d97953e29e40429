"""The display of reasoning."""

import re
from functools import partial
from pathlib import Path

from convo.terminal.answer import format_reasoning_line, reasoning_text
from convo.terminal.terminal import DisplayOptions
from convo.terminal.waiting import MAX_REASONING_ROWS
from tests.cli.chat_commands import scripted_flags
from tests.clock import HELD_S
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer
from tests.terminal.pty_session import at_terminal
from tests.terminal.screen import TerminalScreen, open_screen

REASONING = "The sky scatters blue light more than red. " * 4


def test_the_text_of_reasoning_is_shown_or_its_summary_if_there_is_no_text() -> None:
    summary = [{"type": "summary_text", "text": "In short."}]
    content = [{"type": "reasoning_text", "text": "One."}, {"type": "reasoning_text", "text": "Two."}]
    assert reasoning_text({"type": "reasoning", "summary": summary, "content": content}) == "One.\n\nTwo."
    assert reasoning_text({"type": "reasoning", "summary": summary}) == "In short."
    assert reasoning_text({"type": "reasoning", "summary": [], "encrypted_content": "x"}) == ""


def test_reasoning_is_one_dim_row_with_its_tokens_and_seconds() -> None:
    item = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": REASONING * 30}]}
    assert format_reasoning_line(item, 3.21, DisplayOptions(80)) == "reasoning, ~1,294 tokens, 3.2 s"
    in_chat = partial(format_reasoning_line, item, has_slash_commands=True)
    assert in_chat(3.21, DisplayOptions(80)) == "reasoning, ~1,294 tokens, 3.2 s · /reasoning shows it"
    assert in_chat(None, DisplayOptions(40)) == "reasoning, ~1,294 tokens · /reasoning"
    assert in_chat(3.21, DisplayOptions(20)) == "reasoning, ~1,294…"
    assert (
        format_reasoning_line(item, None, DisplayOptions(80, has_color=True))
        == "\x1b[2mreasoning, ~1,294 tokens\x1b[0m"
    )


def test_reasoning_without_text_is_its_seconds_or_nothing() -> None:
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    assert format_reasoning_line(hidden, 3.21, DisplayOptions(80), has_slash_commands=True) == "reasoning, 3.2 s"
    assert format_reasoning_line(hidden, None, DisplayOptions(80)) == ""


def test_a_pipe_gets_no_reasoning(convo: Convo) -> None:
    got = convo("chat", *scripted_flags({"reasoning": "Hm.", "text": "Rain."}), "weather?")
    assert (got.out, "reasoning:" in got.err) == ("Rain.\n", False)


def test_in_a_chat_reasoning_is_one_row_before_the_answer_and_is_unfolded_by_a_command(home: Path) -> None:
    with at_terminal(
        "chat", *scripted_flags({"reasoning": REASONING.strip(), "text": "Rain."}, {"text": "x"})
    ) as terminal:
        terminal.wait_for_prompt()
        rows = terminal.send_line("weather?").split("\n")
        index = next(index for index, row in enumerate(rows) if row.startswith("reasoning, "))
        assert re.fullmatch(r"reasoning, ~\d+ tokens, \d+\.\d s · /reasoning shows it", rows[index])
        assert rows[index + 1 : index + 3] == ["", "● Rain."]
        assert not any("scatters" in row for row in rows)
        assert REASONING.strip() in " ".join(terminal.send_line("/reasoning").split())
        terminal.send_line("again")
        assert "no reasoning in the last turn" in terminal.send_line("/reasoning")
        assert terminal.end_session() == 0


def test_reasoning_is_shown_in_rows_while_it_arrives_and_erased_before_the_answer(
    remote_model: LoopbackServer,
) -> None:
    thoughts = "".join(f"First I add number {index}. Then I check\x1b[31m the sum. " for index in range(14))
    remote_model.replies({"reasoning": thoughts, "text": "It is 4."}, chunk=40, delay_s=HELD_S)
    remote_model.release_deltas(6)
    with open_screen("chat", "-n", "mine", columns=60) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("2 + 2?\r")
        screen.wait_until(lambda: len(reasoning_rows(screen)) >= 3)
        heights = list[int]()
        first_row = reasoning_rows(screen)[0]

        def has_scrolled() -> bool:
            rows = reasoning_rows(screen)
            heights.append(len(rows))
            return bool(rows) and rows[0] != first_row

        remote_model.release_deltas(11)
        screen.wait_until(has_scrolled)
        remote_model.release_deltas()
        assert max(heights) <= MAX_REASONING_ROWS
        screen.wait_for_prompt(" output (")
        rows = [row for row in screen.text().split("\n") if row]
        index = rows.index("● It is 4.")
        assert re.fullmatch(r"reasoning, ~\d+ tokens, \d+\.\d s · /reasoning shows it", rows[index - 1])
        assert rows[index - 2] == "> 2 + 2?"
        assert "check\\x1b[31m" in screen.raw
        assert "\x1b[31m" not in screen.raw


def reasoning_rows(screen: TerminalScreen) -> list[str]:
    """The rows of reasoning below the line that names the key to stop, as they are shown now."""
    lines = screen.text().split("\n")
    start = next((index for index, line in enumerate(lines) if re.search(r"reasoning \d+ s · Esc to stop", line)), None)
    if start is None:
        return []
    return [line for line in lines[start + 1 :] if line.startswith("  ")]
