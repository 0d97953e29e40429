"""The outputs in which answers are rendered as Markdown, and those that get the text unchanged."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from convo.terminal.answer import AnswerPrinter, make_answer_renderer
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo
from tests.terminal.markdown.markdown_layout import displayed_lines
from tests.terminal.pty_session import at_terminal
from tests.terminal.test_answer import delta, item_done, message
from tests.terminal.test_capabilities import fake_terminal

MARKDOWN = "# Title\n\n- **one**\n- `two`\n\n```py\nx = 1\n```\n\n[a](http://b.c)"
RENDERED = ["Title", "", "• one", "• two", "", "── py", "x = 1", "──", "", "a (http://b.c)"]


def test_a_pipe_gets_the_text_of_the_model_unchanged(convo: Convo) -> None:
    for flags in ((), ("--no-stream",), ("--plain",)):
        assert convo("chat", *scripted_flags({"text": MARKDOWN}, chunk=3), "hi", *flags).out == MARKDOWN + "\n"


@pytest.mark.parametrize("term", ["dumb", "unknown", None])
def test_a_dumb_terminal_gets_no_markdown_rendering(term: str | None) -> None:
    assert make_answer_renderer(fake_terminal(), {"TERM": term} if term else {}) is None
    assert make_answer_renderer(fake_terminal(), {"TERM": "xterm"}) is not None
    assert make_answer_renderer(io.StringIO(), {"TERM": "xterm"}) is None


def test_parts_messages_and_calls_start_on_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out, err = fake_terminal(), io.StringIO()
    renderer = make_answer_renderer(out, {"TERM": "xterm", "NO_COLOR": "1"})
    assert renderer
    printer = AnswerPrinter(out, err, is_streamed=True, renderer=renderer)
    printer.print_event(delta("*a*", part=0))
    printer.print_event(delta("- b\x1b", part=1))
    printer.print_event(item_done(0, message("*a*", "- b\x1b")))
    printer.print_event(item_done(1, {"type": "function_call", "name": "f", "arguments": "{}"}))
    printer.print_event(delta("## c", item=2))
    printer.finish()
    assert not printer.has_open_line
    output = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert output.startswith("*a*\n• b\\x1b\n")
    assert output.endswith("## c\n")
    assert err.getvalue() == "[function_call] f {}\n"


def test_in_a_chat_answers_are_rendered_unless_disabled(home: Path) -> None:
    model = scripted_flags({"text": MARKDOWN}, chunk=7)
    one_shot = f"convo chat {' '.join(model)} -q hi"
    with at_terminal(command=f"{one_shot}; CONVO_ANSWERS=plain {one_shot}; CONVO_EDITING=plain {one_shot}") as terminal:
        assert terminal.wait_for_exit() == 0
        assert displayed_lines(terminal.child.before, 80) == [*RENDERED, *MARKDOWN.split("\n"), *MARKDOWN.split("\n")]


def test_at_the_prompt_an_answer_is_rendered_while_it_arrives(home: Path) -> None:
    with at_terminal("chat", *scripted_flags({"text": MARKDOWN}, {"text": "**b**"}, chunk=3), "-q") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hi")
        assert displayed_lines(terminal.child.before, 80)[-len(RENDERED) :] == RENDERED
        terminal.send_line("hi")
        assert displayed_lines(terminal.child.before, 80)[-1] == "b"
        assert terminal.end_session() == 0


def test_the_renderer_is_not_imported_before_the_first_text() -> None:
    code = (
        "import sys, convo.cli.commands.chat, convo.cli.chat, convo.cli.repl, convo.terminal.answer\n"
        "print([name for name in ('markdown_it', 'pygments') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("environ", "clickable"),
    [
        ({"TERM": "xterm-256color"}, False),
        *(({"TERM": name}, True) for name in ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra")),
        *(({"TERM": name}, True) for name in ("wezterm", "contour")),
        *(({"TERM_PROGRAM": name}, True) for name in ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper")),
        *(({"TERM_PROGRAM": name}, True) for name in ("Tabby", "rio", "WarpTerminal")),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"VTE_VERSION": "7006"}, True),
        ({"VTE_VERSION": "4601"}, False),
        *(({name: "x"}, True) for name in ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM")),
        ({"TERM": "tmux-256color", "VTE_VERSION": "7006"}, False),
        ({"TMUX": "/tmp/x", "TERM_PROGRAM": "iTerm.app"}, False),
    ],
)
def test_links_are_clickable_in_terminals_that_support_them(environ: dict[str, str], clickable: bool) -> None:
    out = fake_terminal()
    renderer = make_answer_renderer(out, {"TERM": "xterm-256color", **environ})
    printer = AnswerPrinter(out, io.StringIO(), is_streamed=True, renderer=renderer)
    printer.print_event(delta("[a](http://b.c)"))
    printer.finish()
    assert (b"\x1b]8;" in out.buffer.getvalue()) is clickable  # type: ignore[attr-defined]
