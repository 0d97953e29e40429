"""`convo chat` in a real terminal: turns, commands and heads."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.chat_commands import (
    ECHO,
    receipts,
    scripted_flags,
    stored_conversation,
    stored_messages,
    stored_sessions,
)
from tests.terminal.pty_session import at_terminal, slow_model_flags, unwrap_lines

pytestmark = pytest.mark.needs("terminal")


# -- turns -----------------------------------------------------------------------------------------


def test_each_turn_shows_the_answer_and_a_receipt(home: Path) -> None:
    with at_terminal("chat", *ECHO, columns=120) as terminal:
        terminal.wait_for_prompt()
        for text in ("hello there", "and again"):
            empty_line, answer, another, receipt, last = terminal.send_line(text).splitlines()[-5:]
            assert (empty_line, answer, another, last) == ("", f"● {text}", "", "")
            assert receipts(receipt)[0]["owner"] == "session hello-there"
        assert terminal.end_session() == 0
    assert stored_messages(home, "hello-there") == [
        "user: hello there",
        "assistant: hello there",
        "user: and again",
        "assistant: and again",
    ]


def test_quiet_shows_answers_only(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-q") as terminal:
        terminal.wait_for_prompt()
        assert terminal.send_line("hello").splitlines()[-1] == "hello"
        assert terminal.end_session() == 0
        assert "continue: " not in terminal.output


def test_the_last_line_shows_the_command_that_continues_the_chat(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "it's mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        assert terminal.end_session() == 0
        command = terminal.output.rpartition("continue: ")[2].strip()
    assert command == """convo chat --from 'it'"'"'s mine'"""
    with at_terminal(command=command) as terminal:
        terminal.wait_for_prompt()
        assert "session it's mine" in unwrap_lines(terminal.send_line("again"))
        assert terminal.end_session() == 0
    assert len(stored_messages(home, "it's mine")) == 4


def test_the_continue_command_names_the_settings_file_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "my settings.toml").write_text('[state_storage]\ntype = "sqlite"\nconnection_string = "other.db"\n')
    with at_terminal("--config", "my settings.toml", "chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        assert terminal.end_session() == 0
        command = terminal.output.rpartition("continue: ")[2].strip()
    assert command == "convo --config 'my settings.toml' chat --from hello"
    with at_terminal(command=f"{command} again") as terminal:
        assert terminal.wait_for_exit() == 0
        assert "session hello" in unwrap_lines(terminal.output)


def test_without_messages_no_continue_command_is_shown(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
        assert "continue: " not in terminal.output


def test_files_of_the_command_line_are_attached_to_the_first_message(tmp_path: Path, home: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    with at_terminal("chat", *ECHO, "-n", "mine", "-a", "notes.md") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("what is this?")
        terminal.send_line("thanks")
        assert terminal.end_session() == 0
    items, _ = stored_conversation(home, "mine")
    assert [len(item["content"]) for item in items if item["role"] == "user"] == [2, 1]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_chat_works_in_a_terminal_of_any_width(columns: int, home: Path) -> None:
    text = " ".join(f"word{number}" for number in range(30))
    with at_terminal("chat", *ECHO, "-n", "mine", columns=columns) as terminal:
        terminal.wait_for_prompt()
        assert text in " ".join(terminal.send_line(text).split())  # whole words, in as many rows as needed
        assert "/retry" in terminal.send_line("/help")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == [f"user: {text}", f"assistant: {text}"]


def test_a_terminal_without_a_cursor_gets_plain_lines(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags({"text": "fine"}), "-n", "mine", term="dumb") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("hello\r")
        terminal.wait_for_text("two")
        terminal.press_ctrl("c")
        assert "\x1b" not in terminal.wait_for_text("undoes the turn")
        terminal.wait_for_prompt()
        terminal.press_ctrl("c")
        terminal.wait_for_text("press Ctrl-C again or Ctrl-D to exit")
        terminal.wait_for_prompt()
        assert "fine" in terminal.send_line("again")
        assert terminal.end_session() == 0
        assert "\x1b" not in terminal.child.before
    assert len(stored_messages(home, "mine")) == 4


def test_without_a_terminal_on_stderr_no_control_sequences_are_written(home: Path) -> None:
    with at_terminal(command="convo chat -m scripted/echo 2>log") as terminal:
        terminal.type_keys("hello\r")
        terminal.wait_for_text("hello\r\n\x1b[36m●\x1b[0m hello\r\n")
        assert terminal.end_session() == 0
    log = Path("log").read_text()
    assert "\x1b" not in log
    assert "> " not in log
    assert len(receipts(log)) == 1
    assert log.endswith("continue: convo chat --from hello\n")


# -- commands --------------------------------------------------------------------------------------


def test_exit_ends_the_chat() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("/exit\r")
        assert terminal.wait_for_exit() == 0


UNKNOWN = {
    "/stat": "/status, or //stat to send it as a message",
    "/xyzzy and more": "/help, or //xyzzy to send it as a message",
    "  /undoo": "/undo, or //undoo to send it as a message",
    "/": "/help, or // to send it as a message",
    "/usr/bin/env is what?": "/help, or //usr/bin/env to send it as a message",
}


def test_an_unknown_command_is_never_sent(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        for typed, hint in UNKNOWN.items():
            output = terminal.send_line(typed)
            assert f"convo: unknown command '{typed.split()[0]}'; nothing was sent\n  try: {hint}\n" in output
        terminal.paste("\n/xyzzy")
        terminal.wait_for_text("/xyzzy")
        assert "unknown command '/xyzzy'; nothing was sent" in terminal.send_line("")
        terminal.send_line("hello")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_status_and_next_and_inspect_show_the_state(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", columns=120) as terminal:
        terminal.wait_for_prompt()
        owner, _, first = str(receipts(terminal.send_line("one"))[0]["owner"]).partition(" ")
        assert owner == "chain"
        assert re.fullmatch("resp_[0-9a-f]{12}", first)
        status = terminal.send_line("/status")
        assert "the endpoint's Responses API (--chain)" in status
        assert first in status
        output = terminal.send_line("/next two")
        assert f"2 items of {first}" in output
        assert f'"previous_response_id": "{first}' in output
        assert output.count('"text": "') == 1
        assert first[:10] in terminal.send_line("/inspect")
        assert "no session 'nope'\n  try: /resume lists the recent conversations\n" in terminal.send_line(
            "/inspect nope"
        )
        assert terminal.end_session() == 0
    assert len(stored_messages(home, "mine")) == 2


def test_model_changes_the_model(home: Path) -> None:
    _, other = scripted_flags({"text": "I am the other one."})
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert "no provider 'nope'" in terminal.send_line("/model nope/x")
        assert "model       scripted/echo" in terminal.send_line("/status")
        shown = terminal.send_line(f"/model {other}")
        assert other in "".join(line.strip() for line in shown.splitlines())
        assert "I am the other one." in terminal.send_line("hello")
        assert terminal.end_session() == 0
    _, links = stored_conversation(home, "mine")
    assert [link.model for link in links] == [other]


def test_a_model_that_contradicts_the_strategy_is_refused(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", env={"OPENAI_API_KEY": "test-key"}) as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        assert "convo convert mine" in terminal.send_line("/model openai/gpt-5")
        assert "\n● again\n" in terminal.send_line("again")
        assert terminal.end_session() == 0


def test_retry_sends_the_same_again_and_undo_removes_it(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("one")
        terminal.send_line("two")
        assert "\n● two\n" in terminal.send_line("/retry")
        assert 'undid "two"' in terminal.send_line("/undo")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]


def test_retry_without_messages_is_reported_without_a_receipt() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        output = terminal.send_line("/retry")
        assert "convo: the conversation has no message yet\n" in output
        assert receipts(output) == []


# -- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--session", "--chain", "--replay"])
def test_an_undone_turn_can_be_redone(flag: str, home: Path) -> None:
    with at_terminal("chat", *ECHO, flag, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        for text in ("one", "two"):
            terminal.send_line(text)
        assert 'undid "two"; the next message continues after 2 items' in terminal.send_line("/undo")
        assert 'redid "two"; the next message continues after 4 items' in terminal.send_line("/redo")
        assert "nothing to redo" in terminal.send_line("/redo")
        assert 'went back to before "one"; the next message is the first one' in terminal.send_line("/rewind 0")
        assert "redid" in terminal.send_line("/redo")
        terminal.send_line("three")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == [
        f"{role}: {text}" for text in ("one", "two", "three") for role in ("user", "assistant")
    ]


def test_a_fork_continues_in_its_own_session(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert "the conversation is empty, so it cannot be forked" in terminal.send_line("/fork")
        for text in ("one", "two"):
            terminal.send_line(text)
        assert "continuing mine-2, 2 items; mine is unchanged" in terminal.send_line("/fork 1")
        assert "session mine-2" in unwrap_lines(terminal.send_line("other"))
        assert "choose a turn from 0 (the start) to 2 (the last)" in terminal.send_line("/fork 7")
        assert "takes a turn number" in terminal.send_line("/rewind x")
        assert terminal.end_session() == 0
        assert terminal.output.rpartition("continue: ")[2].strip() == "convo chat --from mine-2"
    assert stored_messages(home, "mine-2") == ["user: one", "assistant: one", "user: other", "assistant: other"]
    assert len(stored_messages(home, "mine")) == 4


def test_a_fork_of_a_fork_has_its_own_file(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--replay", "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        for text in ("one", "two"):
            terminal.send_line(text)
        terminal.send_line("/fork")
        assert "continuing mine-3, 2 items; mine-2 is unchanged" in terminal.send_line("/fork 1")
        assert "conversation-3.json" in terminal.send_line("three")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine-3") == ["user: one", "assistant: one", "user: three", "assistant: three"]
    assert [len(json.loads(path.read_text())) for path in sorted(Path().glob("*.json"))] == [4, 4, 4]
    assert len({session.handle for session in stored_sessions(home)}) == 3


def test_the_last_message_can_be_edited_and_sent_again(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        terminal.type_keys("/edit\r")
        terminal.wait_for_text("edit> ")
        terminal.type_keys(", you")
        assert "\n● hello, you\n" in terminal.send_line("")
        assert "\n● goodbye\n" in terminal.send_line("/edit goodbye")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: goodbye", "assistant: goodbye"]


def test_an_unchanged_message_is_not_sent_again(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        terminal.type_keys("/edit\r")
        terminal.wait_for_text("edit> ")
        terminal.press_ctrl("c")
        assert "nothing was changed" in terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


@pytest.mark.parametrize("keys", ["/edit\r", "\x1b\x1b"])
def test_ctrl_d_at_the_edit_prompt_does_not_end_the_chat(keys: str, home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        terminal.type_keys(keys)
        terminal.wait_for_text("edit> ")
        terminal.press_ctrl("u")
        terminal.press_ctrl("d")
        assert "nothing was changed" in terminal.wait_for_prompt()
        assert "\n● still here\n" in terminal.send_line("still here")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine")[-2:] == ["user: still here", "assistant: still here"]


def test_turns_of_a_conversation_cannot_be_undone() -> None:
    with at_terminal("chat", *ECHO, "--conversation", "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("hello")
        for command in ("/undo", "/rewind 0", "/fork", "/edit other"):
            assert "convo convert conv_" in terminal.send_line(command), command
        assert terminal.end_session() == 0
