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
from tests.terminal.pty_session import at_terminal, slow_model_flags, unwrapped

pytestmark = pytest.mark.needs("terminal")


# -- turns -----------------------------------------------------------------------------------------


def test_each_turn_shows_the_answer_and_a_receipt(home: Path) -> None:
    with at_terminal("chat", *ECHO, columns=120) as person:
        person.is_asked()
        for words in ("hello there", "and again"):
            answer, receipt = person.says(words).splitlines()[-2:]
            assert answer == words
            assert receipts(receipt)[0]["owner"] == "session hello-there"
        assert person.leaves() == 0
    assert stored_messages(home, "hello-there") == [
        "user: hello there",
        "assistant: hello there",
        "user: and again",
        "assistant: and again",
    ]


def test_quiet_shows_answers_only(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-q") as person:
        person.is_asked()
        assert person.says("hello").splitlines()[-1] == "hello"
        assert person.leaves() == 0
        assert "come back" not in person.shown


def test_the_last_line_shows_the_command_that_continues_the_chat(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "it's mine") as person:
        person.is_asked()
        person.says("hello")
        assert person.leaves() == 0
        back = person.shown.rpartition("continue: ")[2].strip()
    assert back == """convo chat --from 'it'"'"'s mine'"""
    with at_terminal(command=back) as person:
        person.is_asked()
        assert "session it's mine" in unwrapped(person.says("again"))
        assert person.leaves() == 0
    assert len(stored_messages(home, "it's mine")) == 4


def test_the_continue_command_names_the_settings_file_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "my settings.toml").write_text('[state_storage]\ntype = "sqlite"\nconnection_string = "other.db"\n')
    with at_terminal("--config", "my settings.toml", "chat", *ECHO) as person:
        person.is_asked()
        person.says("hello")
        assert person.leaves() == 0
        back = person.shown.rpartition("continue: ")[2].strip()
    assert back == "convo --config 'my settings.toml' chat --from hello"
    with at_terminal(command=f"{back} again") as person:
        assert person.ends() == 0
        assert "session hello" in unwrapped(person.shown)


def test_without_messages_no_continue_command_is_shown(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert person.leaves() == 0
        assert "come back" not in person.shown


def test_files_of_the_command_line_are_attached_to_the_first_message(tmp_path: Path, home: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    with at_terminal("chat", *ECHO, "-n", "mine", "-a", "notes.md") as person:
        person.is_asked()
        person.says("what is this?")
        person.says("thanks")
        assert person.leaves() == 0
    items, _ = stored_conversation(home, "mine")
    assert [len(item["content"]) for item in items if item["role"] == "user"] == [2, 1]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_chat_works_in_a_terminal_of_any_width(columns: int, home: Path) -> None:
    words = " ".join(f"word{number}" for number in range(30))
    with at_terminal("chat", *ECHO, "-n", "mine", columns=columns) as person:
        person.is_asked()
        assert words in " ".join(person.says(words).split())  # whole words, in as many rows as needed
        assert "/retry" in person.says("/help")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == [f"user: {words}", f"assistant: {words}"]


def test_a_terminal_without_a_cursor_gets_plain_lines(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags({"text": "fine"}), "-n", "mine", term="dumb") as person:
        person.is_asked()
        person.types("hello\r")
        person.sees("two")
        person.presses("c")
        assert "\x1b" not in person.sees("undoes the turn")
        person.is_asked()
        person.presses("c")
        person.sees("press Ctrl-C again or Ctrl-D to exit")
        person.is_asked()
        assert "fine" in person.says("again")
        assert person.leaves() == 0
        assert "\x1b" not in person.child.before
    assert len(stored_messages(home, "mine")) == 4


def test_without_a_terminal_on_stderr_no_control_sequences_are_written(home: Path) -> None:
    with at_terminal(command="convo chat -m scripted/echo 2>log") as person:
        person.types("hello\r")
        person.sees("hello\r\nhello\r\n")
        assert person.leaves() == 0
    log = Path("log").read_text()
    assert "\x1b" not in log
    assert "> " not in log
    assert len(receipts(log)) == 1
    assert log.endswith("continue: convo chat --from hello\n")


# -- commands --------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        shown = person.says("/help")
        for command in ("/help", "/status", "/next", "/inspect", "/model", "/retry", "/undo", "/exit", "//text"):
            assert re.search(rf"^  {command} .*[a-z]", shown, re.MULTILINE), command
        assert re.search(r"^  /cost +show the cost of the session$", shown, re.MULTILINE)


def test_exit_ends_the_chat() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.types("/exit\r")
        assert person.ends() == 0


UNKNOWN = {
    "/stat": "/status, or //stat for a message",
    "/xyzzy and more": "/help, or //xyzzy for a message",
    "  /undoo": "/undo, or //undoo for a message",
    "/": "/help, or // for a message",
    "/usr/bin/env is what?": "/help, or //usr/bin/env for a message",
}


def test_an_unknown_command_is_never_sent(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        for typed, hint in UNKNOWN.items():
            shown = person.says(typed)
            assert f"convo: unknown command '{typed.split()[0]}'; nothing was sent\n  try: {hint}\n" in shown
        person.pastes("\n/xyzzy")
        person.sees("/xyzzy")
        assert "unknown command '/xyzzy'; nothing was sent" in person.says("")
        person.says("hello")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_two_slashes_start_a_message_with_one(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "\n/x y\n" in person.says("//x y")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: /x y", "assistant: /x y"]


def test_status_and_next_and_inspect_show_the_state(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", columns=120) as person:
        person.is_asked()
        first = receipts(person.says("one"))[0]["id"]
        assert first
        status = person.says("/status")
        assert "the endpoint's Responses API (--chain)" in status
        assert first in status
        shown = person.says("/next two")
        assert f"2 items of {first} prepended by the server" in shown
        assert f'"previous_response_id": "{first}"' in shown
        assert shown.count('"text": "') == 1
        assert first[:10] in person.says("/inspect")
        assert "no session 'nope'\n  try: /resume lists the recent conversations\n" in person.says("/inspect nope")
        assert person.leaves() == 0
    assert len(stored_messages(home, "mine")) == 2


def test_model_shows_and_changes_the_model(home: Path) -> None:
    _, other = scripted_flags({"text": "I am the other one."})
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "model scripted/echo" in person.says("/model")
        assert "no provider 'nope'" in person.says("/model nope/x")
        assert "model scripted/echo" in person.says("/model")
        assert other in person.says(f"/model {other}").replace("\n", "")
        assert "I am the other one." in person.says("hello")
        assert person.leaves() == 0
    _, links = stored_conversation(home, "mine")
    assert [link.model for link in links] == [other]


def test_a_model_that_contradicts_the_strategy_is_refused(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", env={"OPENAI_API_KEY": "test-key"}) as person:
        person.is_asked()
        person.says("hello")
        assert "convo convert mine" in person.says("/model openai/gpt-5")
        assert "\nagain\n" in person.says("again")
        assert person.leaves() == 0


def test_retry_sends_the_same_again_and_undo_removes_it(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("one")
        person.says("two")
        assert "\ntwo\n" in person.says("/retry")
        assert 'undid "two"' in person.says("/undo")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]


def test_retry_without_messages_is_reported_without_a_receipt() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        shown = person.says("/retry")
        assert "convo: the conversation has no message yet\n" in shown
        assert receipts(shown) == []


# -- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--session", "--chain", "--replay"])
def test_an_undone_turn_can_be_redone(flag: str, home: Path) -> None:
    with at_terminal("chat", *ECHO, flag, "-n", "mine") as person:
        person.is_asked()
        for words in ("one", "two"):
            person.says(words)
        assert 'undid "two"; the next message continues after 2 items' in person.says("/undo")
        assert 'redid "two"; the next message continues after 4 items' in person.says("/redo")
        assert "nothing to redo" in person.says("/redo")
        assert 'went back to before "one"; the next message continues after 0 items' in person.says("/rewind 0")
        assert "redid" in person.says("/redo")
        person.says("three")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == [
        f"{who}: {words}" for words in ("one", "two", "three") for who in ("user", "assistant")
    ]


def test_a_fork_continues_in_its_own_session(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "the conversation is empty, so it cannot be forked" in person.says("/fork")
        for words in ("one", "two"):
            person.says(words)
        assert "continuing mine-2, 2 items; mine is unchanged" in person.says("/fork 1")
        assert "session mine-2" in unwrapped(person.says("other"))
        assert "choose a turn from 0 (the start) to 2 (the last)" in person.says("/fork 7")
        assert "takes a turn number" in person.says("/rewind x")
        assert person.leaves() == 0
        assert person.shown.rpartition("continue: ")[2].strip() == "convo chat --from mine-2"
    assert stored_messages(home, "mine-2") == ["user: one", "assistant: one", "user: other", "assistant: other"]
    assert len(stored_messages(home, "mine")) == 4


def test_a_fork_of_a_fork_has_its_own_file(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--replay", "-n", "mine") as person:
        person.is_asked()
        for words in ("one", "two"):
            person.says(words)
        person.says("/fork")
        assert "continuing mine-3, 2 items; mine-2 is unchanged" in person.says("/fork 1")
        assert "conversation-3.json" in person.says("three").replace("\n  ", "")
        assert person.leaves() == 0
    assert stored_messages(home, "mine-3") == ["user: one", "assistant: one", "user: three", "assistant: three"]
    assert [len(json.loads(place.read_text())) for place in sorted(Path().glob("*.json"))] == [4, 4, 4]
    assert len({session.handle for session in stored_sessions(home)}) == 3


def test_the_last_message_can_be_edited_and_sent_again(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("hello")
        person.types("/edit\r")
        person.sees("edit> ")
        person.types(", you")
        assert person.says("").splitlines()[-3] == "hello, you"
        assert person.says("/edit goodbye").splitlines()[-3] == "goodbye"
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: goodbye", "assistant: goodbye"]


def test_an_unchanged_message_is_not_sent_again(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("hello")
        person.types("/edit\r")
        person.sees("edit> ")
        person.presses("c")
        assert "nothing was changed" in person.is_asked()
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


@pytest.mark.parametrize("keys", [["/edit\r"], ["\x1b", "\x1b"]])
def test_ctrl_d_at_the_edit_prompt_does_not_end_the_chat(keys: list[str], home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("hello")
        for key in keys:
            person.types(key)
        person.sees("edit> ")
        person.presses("u")
        person.presses("d")
        assert "nothing was changed" in person.is_asked()
        assert person.says("still here").splitlines()[-3] == "still here"
        assert person.leaves() == 0
    assert stored_messages(home, "mine")[-2:] == ["user: still here", "assistant: still here"]


def test_turns_of_a_conversation_cannot_be_undone() -> None:
    with at_terminal("chat", *ECHO, "--conversation", "-n", "mine") as person:
        person.is_asked()
        person.says("hello")
        for command in ("/undo", "/rewind 0", "/fork", "/edit other"):
            assert "convo convert conv_" in person.says(command), command
        assert person.leaves() == 0


def test_context_shows_the_use_of_the_window_by_part(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", "-s", "Be brief.") as person:
        person.is_asked()
        assert "instructions" in person.says("/context")
        person.says("one two three")
        shown = person.says("/context")
        parts = [line.split()[0] for line in shown.splitlines() if line.endswith("%")]
        assert parts == ["instructions", "your", "answers"]
        assert "8 tokens, counted by the endpoint" in shown
        assert person.leaves() == 0
