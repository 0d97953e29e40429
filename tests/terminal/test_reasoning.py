"""The display of reasoning."""

from pathlib import Path

from convo.terminal.answer import format_reasoning_line, reasoning_text
from convo.terminal.terminal import DisplayOptions
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo
from tests.terminal.pty_session import at_terminal

REASONING = "The sky scatters blue light more than red. " * 4


def test_the_text_of_reasoning_is_shown_or_its_summary_if_there_is_no_text() -> None:
    summary = [{"type": "summary_text", "text": "In short."}]
    content = [{"type": "reasoning_text", "text": "One."}, {"type": "reasoning_text", "text": "Two."}]
    assert reasoning_text({"type": "reasoning", "summary": summary, "content": content}) == "One.\n\nTwo."
    assert reasoning_text({"type": "reasoning", "summary": summary}) == "In short."
    assert reasoning_text({"type": "reasoning", "summary": [], "encrypted_content": "x"}) == ""


def test_reasoning_is_collapsed_into_one_row_with_its_length() -> None:
    assert format_reasoning_line("Hm.\n\nYes\x1b.", DisplayOptions(40)) == "reasoning: Hm. Yes\\x1b."
    row = format_reasoning_line(REASONING, DisplayOptions(60))
    assert row == "reasoning: The sky scatters blue li… (32 words; /reasoning)"
    assert len(row) < 60
    assert format_reasoning_line("a", DisplayOptions(40, has_color=True)) == "\x1b[2mreasoning: a\x1b[0m"
    assert format_reasoning_line(" ", DisplayOptions(40)) == ""


def test_a_pipe_gets_no_reasoning(convo: Convo) -> None:
    got = convo("chat", *scripted_flags({"reasoning": "Hm.", "text": "Rain."}), "weather?")
    assert (got.out, "reasoning:" in got.err) == ("Rain.\n", False)


def test_in_a_chat_reasoning_is_collapsed_before_the_answer_and_can_be_expanded(home: Path) -> None:
    with at_terminal(
        "chat", *scripted_flags({"reasoning": REASONING.strip(), "text": "Rain."}, {"text": "x"})
    ) as terminal:
        terminal.wait_for_prompt()
        rows = terminal.send_line("weather?").split("\n")
        index = next(index for index, row in enumerate(rows) if row.startswith("reasoning: The sky"))
        assert rows[index + 1] == "Rain."
        assert REASONING.strip() in " ".join(terminal.send_line("/reasoning").split())
        terminal.send_line("again")
        assert "no reasoning in the last turn" in terminal.send_line("/reasoning")
        assert terminal.end_session() == 0
