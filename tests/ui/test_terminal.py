"""`convo chat` as a person meets it: the real command in a real terminal."""

import os
import re
import signal
from pathlib import Path

import pytest

from convo.history import Strategy
from tests.cli.chatting import ECHO, kept, receipts, said, scripted
from tests.cli.held import held, talks
from tests.loopback import Loopback, answers
from tests.running import Convo
from tests.ui.terminal import at_terminal

pytestmark = pytest.mark.needs("terminal")

LONG = {"text": "one two three four five six seven eight nine ten " * 10}


def slowly(*after: dict[str, object]) -> tuple[str, str]:
    """A first answer that takes half a minute, and then others."""
    return scripted(LONG, *after, chunk=4, delay_s=0.25)


# -- talking ---------------------------------------------------------------------------------------


def test_each_turn_shows_the_answer_and_a_receipt(home: Path) -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        for words in ("hello there", "and again"):
            answer, receipt = person.says(words).splitlines()[-2:]
            assert answer == words
            assert receipts(receipt)[0]["owner"] == "session hello-there"
        assert person.leaves() == 0
    assert said(home, "hello-there") == [
        "user: hello there",
        "assistant: hello there",
        "user: and again",
        "assistant: and again",
    ]


def test_quiet_shows_answers_alone(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-q") as person:
        person.is_asked()
        assert person.says("hello").splitlines()[-1] == "hello"
        assert person.leaves() == 0
        assert "come back" not in person.shown


def test_the_last_line_says_how_to_come_back_and_works_as_it_stands(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "it's mine") as person:
        person.is_asked()
        person.says("hello")
        assert person.leaves() == 0
        back = person.shown.rpartition("come back: ")[2].strip()
    assert back == """convo chat --from 'it'"'"'s mine'"""
    with at_terminal(command=back) as person:
        person.is_asked()
        assert "session it's mine" in person.says("again")
        assert person.leaves() == 0
    assert len(said(home, "it's mine")) == 4


def test_the_way_back_names_the_settings_that_know_the_store(tmp_path: Path) -> None:
    (tmp_path / "my settings.toml").write_text('[state_storage]\ntype = "sqlite"\nconnection_string = "other.db"\n')
    with at_terminal("--config", "my settings.toml", "chat", *ECHO) as person:
        person.is_asked()
        person.says("hello")
        assert person.leaves() == 0
        back = person.shown.rpartition("come back: ")[2].strip()
    assert back == "convo --config 'my settings.toml' chat --from hello"
    with at_terminal(command=f"{back} again") as person:
        assert person.ends() == 0
        assert "session hello" in person.shown


def test_nothing_said_is_nothing_to_come_back_to(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert person.leaves() == 0
        assert "come back" not in person.shown


def test_files_of_the_command_line_go_with_the_first_message(tmp_path: Path, home: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    with at_terminal("chat", *ECHO, "-n", "mine", "-a", "notes.md") as person:
        person.is_asked()
        person.says("what is this?")
        person.says("thanks")
        assert person.leaves() == 0
    items, _ = kept(home, "mine")
    assert [len(item["content"]) for item in items if item["role"] == "user"] == [2, 1]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_terminal_of_any_width_will_do(columns: int, home: Path) -> None:
    words = " ".join(f"word{number}" for number in range(30))
    with at_terminal("chat", *ECHO, "-n", "mine", columns=columns) as person:
        person.is_asked()
        assert words in person.says(words)
        assert "/retry" in person.says("/help")
        assert person.leaves() == 0
    assert said(home, "mine") == [f"user: {words}", f"assistant: {words}"]


def test_a_terminal_without_a_cursor_gets_plain_lines(home: Path) -> None:
    with at_terminal("chat", *slowly({"text": "fine"}), "-n", "mine", term="dumb") as person:
        person.is_asked()
        person.types("hello\r")
        person.sees("two")
        person.presses("c")
        assert "\x1b" not in person.sees("takes it back")
        person.is_asked()
        person.presses("c")
        person.sees("Ctrl-C again or Ctrl-D leaves")
        person.is_asked()
        assert "fine" in person.says("again")
        assert person.leaves() == 0
        assert "\x1b" not in person.child.before
    assert len(said(home, "mine")) == 4


def test_without_a_terminal_on_stderr_nothing_is_drawn_into_the_file(home: Path) -> None:
    with at_terminal(command="convo chat -m scripted/echo 2>log") as person:
        person.types("hello\r")
        person.sees("hello\r\nhello\r\n")
        assert person.leaves() == 0
    log = Path("log").read_text()
    assert "\x1b" not in log
    assert "> " not in log
    assert len(receipts(log)) == 1
    assert log.endswith("come back: convo chat --from hello\n")


# -- commands --------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        shown = person.says("/help")
        for command in ("/help", "/status", "/next", "/inspect", "/model", "/retry", "/undo", "/exit", "//text"):
            assert re.search(rf"^  {command} .*[a-z]", shown, re.MULTILINE), command


def test_exit_leaves() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.types("/exit\r")
        assert person.ends() == 0


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/stat", "/status, or //stat for a message"),
        ("/xyzzy and more", "/help, or //xyzzy for a message"),
        ("  /undoo", "/undo, or //undoo for a message"),
        ("/", "/help, or // for a message"),
        ("/usr/bin/env is what?", "/help, or //usr/bin/env for a message"),
    ],
)
def test_an_unknown_command_is_never_sent(typed: str, hint: str, home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        shown = person.says(typed)
        assert f"convo: no command '{typed.split()[0]}'; nothing was sent\n  try: {hint}\n" in shown
        person.says("hello")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: hello", "assistant: hello"]


def test_two_slashes_say_one(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "\n/x y\n" in person.says("//x y")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: /x y", "assistant: /x y"]


def test_status_and_next_and_inspect_show_the_state(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine") as person:
        person.is_asked()
        first = receipts(person.says("one"))[0]["id"]
        assert first
        status = person.says("/status")
        assert "the endpoint's Responses API (--chain)" in status
        assert first in status
        shown = person.says("/next two")
        assert f"the owner puts 2 items of {first} before it" in shown
        assert f'"previous_response_id": "{first}"' in shown
        assert shown.count('"text": "') == 1
        assert first[:10] in person.says("/inspect")
        assert "no session 'nope'" in person.says("/inspect nope")
        assert person.leaves() == 0
    assert len(said(home, "mine")) == 2


def test_model_shows_and_changes_who_answers(home: Path) -> None:
    _, other = scripted({"text": "I am the other one."})
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "model scripted/echo" in person.says("/model")
        assert "no provider 'nope'" in person.says("/model nope/x")
        assert "model scripted/echo" in person.says("/model")
        assert other in person.says(f"/model {other}").replace("\n", "")
        assert "I am the other one." in person.says("hello")
        assert person.leaves() == 0
    _, links = kept(home, "mine")
    assert [link.model for link in links] == [other]


def test_a_model_that_would_leave_the_owner_is_refused(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--chain", "-n", "mine", env={"OPENAI_API_KEY": "test-key"}) as person:
        person.is_asked()
        person.says("hello")
        assert "convo convert mine" in person.says("/model openai/gpt-5")
        assert "\nagain\n" in person.says("again")
        assert person.leaves() == 0


def test_retry_asks_the_same_again_and_undo_takes_it_back(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("one")
        person.says("two")
        assert "\ntwo\n" in person.says("/retry")
        assert 'took back "two"' in person.says("/undo")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: one", "assistant: one"]


def test_retry_of_nothing_is_told_without_a_receipt() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        shown = person.says("/retry")
        assert "convo: nothing was said yet\n" in shown
        assert receipts(shown) == []


# -- keys ------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_and_not_the_chat(home: Path) -> None:
    with at_terminal("chat", *slowly({"text": "fine"}), "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.presses("c")
        shown = person.is_asked()
        assert receipts(shown)[0]["status"] == "cancelled"
        assert "stopped; what came so far is kept; /retry asks again, /undo takes it back\n" in shown
        assert "2 unacknowledged" in person.says("/status")
        assert "\nfine\n" in person.says("go on")
        assert person.leaves() == 0
    before, partial, *after = said(home, "mine")
    assert before == "user: count"
    assert partial.startswith("assistant: one two")
    assert partial.endswith("…")
    assert after == ["user: go on", "assistant: fine"]


def test_ctrl_c_at_an_empty_prompt_hints_and_the_second_one_leaves() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.presses("c")
        assert "Ctrl-C again or Ctrl-D leaves\n" in person.is_asked()
        person.presses("c")
        assert person.ends() == 130


def test_two_quick_ctrl_c_leave_as_well() -> None:
    """The second one comes before the prompt stands again."""
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.presses("c")
        person.sees("leaves")
        person.presses("c")
        assert person.ends() == 130


def test_an_interrupt_from_elsewhere_is_a_ctrl_c() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.child.kill(signal.SIGINT)
        assert "Ctrl-C again or Ctrl-D leaves\n" in person.is_asked()
        person.child.kill(signal.SIGINT)
        assert person.ends() == 130


def test_a_message_between_them_makes_the_second_ctrl_c_a_first() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        for _ in range(2):
            person.presses("c")
            assert "Ctrl-C again" in person.is_asked()
            person.says("hello")
        assert person.leaves() == 0


def test_ctrl_c_throws_away_what_was_typed(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.types("never mind")
        person.sees("mind")
        person.presses("c")
        assert "Ctrl-C again" not in person.is_asked()
        assert "\nhello\n" in person.says("hello")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: hello", "assistant: hello"]


def test_being_told_to_end_at_the_prompt_gives_the_terminal_back() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.child.kill(signal.SIGTERM)
        assert person.ends() == 143
        assert "\x1b[?2004l" in person.child.before


def test_a_terminal_that_goes_away_leaves_the_partial_answer(home: Path) -> None:
    with at_terminal("chat", *slowly(), "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.child.close()
    assert said(home, "mine")[1].startswith("assistant: one two")


# -- pasting, and what is no text ------------------------------------------------------------------

PASTED = "line one\n/undo\r\n  line three"
MEANT = "line one\n/undo\n  line three"


def test_a_paste_with_line_breaks_is_one_message(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.pastes(PASTED)
        person.sees("three")
        assert MEANT in person.says("")
        assert person.leaves() == 0
    assert said(home, "mine") == [f"user: {MEANT}", f"assistant: {MEANT}"]


def test_a_paste_while_an_answer_comes_waits_for_enter(home: Path) -> None:
    model = scripted({"text": "one two three four five six"}, {"text": "fine"}, chunk=4, delay_s=0.2)
    with at_terminal("chat", *model, "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.pastes("line one\nline two")
        person.sees("six")
        person.is_asked()
        person.sees("line two")
        assert "\nfine\n" in person.says("")
        assert person.leaves() == 0
    assert said(home, "mine")[2:] == ["user: line one\nline two", "assistant: fine"]


def test_bytes_that_are_no_text_are_replaced(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        os.write(person.child.child_fd, b"caf\xe9 noir\r")
        assert "caf\ufffd noir" in person.is_asked()
        assert person.leaves() == 0
    assert said(home, "mine")[0] == "user: caf\ufffd noir"


# -- history ---------------------------------------------------------------------------------------


def test_what_was_typed_is_remembered_for_this_user_alone(home: Path) -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.says("remember me")
        person.leaves()
    place = home / "state" / "prompts"
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    with at_terminal("chat", *ECHO, "-n", "next") as person:
        person.is_asked()
        person.types("\x1b[A")
        person.sees("remember me")
        person.says("")
        person.leaves()
    assert said(home, "next")[0] == "user: remember me"


def test_a_history_that_cannot_be_kept_costs_nothing_else(home: Path) -> None:
    (home / "state" / "prompts").mkdir(parents=True)
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("one")
        assert "\ntwo\n" in person.says("two")
        assert person.leaves() == 0
    assert len(said(home, "mine")) == 4


# -- what goes wrong -------------------------------------------------------------------------------


def test_an_error_neither_ends_the_chat_nor_loses_the_message(loopback: Loopback, home: Path) -> None:
    loopback.replies({"text": "Fine now."})
    refusal = {"message": "Not like this.", "type": "invalid_request_error", "param": None, "code": "odd"}
    loopback.arm(answers(400, refusal))
    with at_terminal("chat", "-n", "mine", env=loopback.environ) as person:
        person.is_asked()
        shown = person.says("hello")
        assert receipts(shown)[0]["status"] == "failed"
        assert "convo: Not like this\n  try: " in shown
        shown = person.says("/retry")
        assert "\nFine now.\n" in shown
        assert len(receipts(shown)) == 1
        assert person.leaves() == 0
    assert loopback.bodies[0] == loopback.bodies[1]
    assert said(home, "mine") == ["user: hello", "assistant: Fine now."]


def test_a_server_that_is_down_costs_nothing_but_the_answer(home: Path) -> None:
    down = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "test-key"}
    with at_terminal("chat", "-n", "mine", env=down) as person:
        person.is_asked()
        shown = person.says("hello")
        assert "convo: cannot reach openai at http://127.0.0.1:9/v1" in shown
        assert "  try: " in shown
        assert "1 unacknowledged" in person.says("/status")
        person.says("/model scripted/echo")
        assert "\nhello\n" in person.says("/retry")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: hello", "assistant: hello"]


def test_ctrl_c_ends_the_wait_for_a_server_that_is_busy(loopback: Loopback, home: Path) -> None:
    loopback.replies({"text": "Here I am."})
    loopback.arm(answers(503, {"message": "Overloaded."}, {"retry-after": "60"}))
    with at_terminal("chat", "-n", "mine", env=loopback.environ) as person:
        person.is_asked()
        person.types("hello\r")
        person.sees("trying again")
        person.presses("c")
        assert receipts(person.is_asked())[0]["status"] == "cancelled"
        assert "\nHere I am.\n" in person.says("/retry")
        assert person.leaves() == 0
    assert said(home, "mine") == ["user: hello", "assistant: Here I am."]


# -- somebody else ---------------------------------------------------------------------------------


@pytest.mark.parametrize("yes", [True, False])
def test_a_session_that_is_open_elsewhere_is_offered_as_a_fork(yes: bool, home: Path) -> None:
    held(home, talks("mine", Strategy.SESSION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.is_asked()
        with at_terminal("chat", "--from", "mine") as second:
            asked = second.sees("[y/N] ")
            assert f"'mine' is open in another process (process {first.child.pid} on " in asked
            second.types("y\r" if yes else "\r")
            if yes:
                second.is_asked()
                assert "session mine-2" in second.says("mine too")
                assert second.leaves() == 0
            else:
                assert second.ends() == 1
                assert "try: convo chat --fork mine" in second.shown
        first.says("go on")
        assert first.leaves() == 0
    assert said(home, "mine") == ["user: one", "assistant: one", "user: go on", "assistant: go on"]
    if yes:
        assert said(home, "mine-2")[2:] == ["user: mine too", "assistant: mine too"]


def test_ctrl_c_at_the_offer_changes_nothing(home: Path) -> None:
    held(home, talks("mine", Strategy.SESSION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.is_asked()
        with at_terminal("chat", "--from", "mine") as second:
            second.sees("[y/N] ")
            second.presses("c")
            assert second.ends() == 130


def test_a_script_is_told_and_not_asked(home: Path, convo: Convo) -> None:
    held(home, talks("mine", Strategy.CONVERSATION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.is_asked()
        got = convo("chat", "--from", "mine", "two")
        assert (got.exit, got.out) == (1, "")
        assert got.err.endswith("  try: leave that chat first\n")


def test_json_without_a_question_is_refused_at_a_terminal() -> None:
    with at_terminal("chat", *ECHO, "--json") as person:
        assert person.ends() == 2
        assert '"code": "usage"' in person.shown
