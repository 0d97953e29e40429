"""Modes of the prompt: vi keys, plain lines, no colours, two terminals, and harmful pastes."""

import json
import re
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, stored_conversation, stored_messages
from tests.cli.stored_chats import chat_of, write_chats
from tests.terminal.pty_session import at_terminal
from tests.terminal.screen import open_screen

pytestmark = pytest.mark.needs("terminal")


def test_a_setting_enables_vi_keys(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('editing = "vi"\n')
    with open_screen("chat", *ECHO, "-n", "mine") as screen:
        screen.wait_for_prompt()
        screen.type_keys("helx there")
        screen.wait_for_text("> helx there")
        screen.type_keys("\x1b")
        screen.wait_until(lambda: screen.screen.cursor.x == 11)  # in normal mode the cursor is on the last character
        screen.type_keys("0fxslo\x1b")
        screen.wait_until(lambda: screen.screen.cursor.x == 6)
        screen.type_keys("\r")
        screen.wait_for_prompt("session mine · scripted/echo · 4 tokens")
        screen.type_keys("\x1b")
        screen.type_keys("\x1b")
        screen.wait_for_text("edit> hello there")
    assert stored_messages(home, "mine")[0] == "user: hello there"


def test_a_screen_reader_gets_plain_lines_without_redrawing(home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    with at_terminal(
        "chat", "--from", "mine", env={"CONVO_EDITING": "plain", "NO_COLOR": "1"}, term="xterm"
    ) as terminal:
        terminal.wait_for_text("  one\r\n> ")
        terminal.type_keys("two\r")
        terminal.wait_for_text("two\r\ntwo\r\n")
        terminal.type_keys("!!echo kept\r")
        terminal.wait_for_text("/detach removes it")
        terminal.type_keys("/copy\r")
        terminal.wait_for_text("copied 3 characters")
        assert terminal.end_session() == 0
        assert "\x1b" not in terminal.child.before.replace("\x1b]52;c;dHdv\x07", "")


def test_without_colours_no_colour_is_written(home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    outputs = {}
    for colours in ("", "1"):
        with open_screen("chat", "--from", "mine", env={"NO_COLOR": colours}) as screen:
            screen.wait_for_prompt("/help")
            before = screen.raw
            screen.type_keys("/\t")
            screen.wait_for_text("/status")
            outputs[colours] = before, screen.raw.removeprefix(before)
    coloured = re.compile(r"\x1b\[(?:[\d;]*;)?(?:3|4|9|10)[0-8][\d;]*m")
    assert "\x1b[36m> \x1b[0m\x1b[0m\x1b[1mone\x1b[0m" in outputs[""][0]
    assert not re.search(r"\x1b\[[1-9][\d;]*m", outputs["1"][0])
    assert [bool(coloured.search(menu)) for _, menu in outputs.values()] == [True, False]


@pytest.mark.parametrize("term", ["screen.xterm-256color", "linux", "vt100", "of-tomorrow"])
def test_an_unknown_terminal_gets_only_common_sequences(term: str, home: Path) -> None:
    with open_screen("chat", *ECHO, columns=40, env={"TERM": term}) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("**bold** [a link](https://x.y)\r")
        screen.wait_for_prompt("bold a link (https://x.y)")
        screen.type_keys("/exit\r")
        assert screen.wait_for_exit() == 0
        assert "\x1b]" not in screen.raw
        assert not re.search(r"\x1b\[\?(?!(?:1|7|12|25|2004)[lh])", screen.raw)


def test_two_terminals_share_the_prompt_history(home: Path) -> None:
    with open_screen("chat", *ECHO, "-n", "a") as first, open_screen("chat", *ECHO, "-n", "b") as second:
        for screen, text in ((first, "from the first"), (second, "from the second")):
            screen.wait_for_prompt("/help")
            screen.type_keys(f"{text}\r")
            screen.wait_for_prompt(" output · ")
        first.type_keys("once more\r")
        first.wait_for_prompt("once more ● once more")
        first.type_keys("\x1b[A\x1b[A")
        first.wait_for_text("> from the second")
    typed = [line[1:] for line in (home / "state" / "prompts").read_text().splitlines() if line.startswith("+")]
    assert typed == ["from the first", "from the second", "once more"]


def test_pasted_text_runs_no_command_and_attaches_no_file(tmp_path: Path, home: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.paste("!echo run > made.txt")
        terminal.wait_for_text("made.txt")
        assert "a pasted ! command is not run" in terminal.send_line("")
        terminal.paste("look at @secret.txt")
        terminal.wait_for_text("secret.txt")
        terminal.send_line("")
        terminal.send_line("and @secret.txt")
        assert terminal.end_session() == 0
    assert not (tmp_path / "made.txt").exists()
    items, _ = stored_conversation(home, "mine")
    assert [len(item["content"]) for item in items if item["role"] == "user"] == [1, 2]


def test_a_conversation_that_was_left_can_be_opened_in_another_terminal(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as first:
        first.wait_for_prompt()
        first.send_line("one")
        assert "new conversation: other" in first.send_line("/new other")
        with at_terminal("chat", "--from", "mine") as second:
            assert "> one\n\n● one\n" in second.wait_for_prompt()
            first.send_line("two")
            assert "convo chat --fork mine" in first.send_line("/resume mine")
            assert second.end_session() == 0
        assert "continuing mine, 2 items; other is saved" in first.send_line("/resume mine")
        assert first.end_session() == 0
    assert stored_messages(home, "other") == ["user: two", "assistant: two"]


def test_instructions_apply_to_the_next_message_and_stay_when_the_model_changes(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("/system Be brief.")
        terminal.send_line("/model scripted/echo")
        terminal.send_line("one")
        terminal.send_line("/system -")
        output = terminal.send_line("/next two")
        assert '"instructions"' not in output
        assert terminal.end_session() == 0
    _, (link,) = stored_conversation(home, "mine")
    assert link.parameters["instructions"] == "Be brief."


def test_an_export_has_the_format_of_its_suffix(tmp_path: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert "the conversation is empty, so it cannot be exported" in terminal.send_line("/export talk.json")
        terminal.send_line("one")
        assert "exported 2 items to talk.json" in terminal.send_line("/export talk.json")
        output = terminal.send_line("/export talk.pdf")
        assert "unknown file format .pdf; /export accepts .json, .jsonl" in output
        assert "try: /export talk.md" in output
        assert terminal.end_session() == 0
    items = json.loads((tmp_path / "talk.json").read_text())["items"]
    assert [item["role"] for item in items] == ["user", "assistant"]


def test_an_image_for_a_text_model_is_refused_when_it_is_attached(tmp_path: Path) -> None:
    Path("dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    with at_terminal("chat", "-m", "local/smollm2-135m", "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert "does not support images" in terminal.send_line("/attach dot.png")
        assert "no attachments" in terminal.send_line("/attach")
        assert terminal.end_session() == 0
