"""`convo chat -t NAME` at a terminal."""

from pathlib import Path

import pytest

from tests.cli.chat_commands import ECHO, stored_conversation
from tests.terminal.pty_session import at_terminal

pytestmark = pytest.mark.needs("terminal")


@pytest.fixture
def templates(home: Path) -> Path:
    """The folder of the user's templates."""
    folder = home / "config" / "templates"
    folder.mkdir(parents=True)
    return folder


def test_a_template_with_only_instructions_starts_an_interactive_chat(home: Path, templates: Path) -> None:
    (templates / "brief.toml").write_text(
        'model = "scripted/echo"\nsystem = "Be $how."\nparams = {temperature = 0.3}\nvars = {how = "brief"}\n'
    )
    with at_terminal("chat", "-t", "brief", "-n", "mine", columns=120) as terminal:
        terminal.wait_for_prompt()
        assert "Be brief." in terminal.send_line("/system")
        assert "temperature 0.3  (set for this chat)" in terminal.send_line("/status")
        terminal.send_line("hello")
        assert terminal.end_session() == 0
    _, [link] = stored_conversation(home, "mine")
    assert (link.parameters["instructions"], link.parameters["temperature"]) == ("Be brief.", 0.3)


def test_a_template_with_a_prompt_sends_it_and_ends(templates: Path) -> None:
    (templates / "joke.toml").write_text('prompt = "Tell a joke."\n')
    with at_terminal("chat", *ECHO, "-t", "joke") as terminal:
        terminal.wait_for_text("Tell a joke.")
        assert terminal.wait_for_exit() == 0


def test_a_template_with_input_needs_a_message_at_a_terminal(templates: Path) -> None:
    (templates / "ask.toml").write_text('prompt = "Ask: $input"\n')
    with at_terminal("chat", *ECHO, "-t", "ask") as terminal:
        terminal.wait_for_text("template 'ask' contains $input and needs a message")
        assert terminal.wait_for_exit() == 2
