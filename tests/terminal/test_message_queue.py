"""Messages that are typed while an answer streams: the line that shows them, and the order in which they are sent."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convo.terminal.message_queue import MessageQueue, TypedMessage
from convo.terminal.terminal import text_width
from tests.cli.agent_files import PAID_BACK, REFUND, agent_flags, stored_runs, tool_runs
from tests.cli.chat_commands import stored_messages
from tests.clock import HELD_S
from tests.loopback_server import LoopbackServer
from tests.terminal.screen import TerminalScreen, open_screen

UP = "\x1b[A"


# -- decisions -------------------------------------------------------------------------------------


def queue_of(*texts: str) -> MessageQueue:
    queue = MessageQueue()
    for text in texts:
        queue.type_text(text)
        queue.enter()
    return queue


def test_messages_are_taken_in_order_and_blank_ones_are_not_queued() -> None:
    queue = queue_of("one", "  \n", "", "two")
    assert (queue.take_next(), queue.take_next(), queue.take_next()) == (TypedMessage("one"), TypedMessage("two"), None)


def test_held_messages_are_given_to_the_prompt_one_by_one_before_the_draft() -> None:
    queue = queue_of("one", "two")
    queue.type_text("draft")
    queue.hold()
    assert queue.take_next() is None
    assert [queue.take_for_prompt().text for _ in range(4)] == ["one", "two", "draft", ""]
    queue.type_text("three")
    queue.enter()
    assert queue.take_next() == TypedMessage("three")


def test_holding_an_empty_queue_holds_no_later_message() -> None:
    queue = queue_of()
    queue.hold()
    queue.type_text("one")
    queue.enter()
    assert queue.take_next() == TypedMessage("one")


def test_pasted_parts_stay_with_their_message() -> None:
    queue = queue_of()
    queue.type_text("see ")
    queue.paste("!ls")
    queue.enter()
    assert queue.take_last() == TypedMessage("see !ls", ("!ls",))


@pytest.mark.parametrize(
    ("text", "rest"), [("one two", "one "), ("one two  ", "one "), ("one", ""), ("", ""), ("a\nb", "a\n")]
)
def test_a_word_is_deleted_with_the_blanks_after_it(text: str, rest: str) -> None:
    queue = queue_of()
    queue.type_text(text)
    queue.delete_word()
    assert queue.draft.text == rest


@pytest.mark.parametrize(
    ("queued", "draft", "rows"),
    [
        ((), "", []),
        ((), "hi", ["> hi"]),
        (("a", "b\nc"), "", ["queued: a", "queued: b c · Up to edit"]),
        (("a",), "hi", ["queued: a", "> hi"]),
        (("word " * 40,), "", ["queued: word word wo… · Up to edit"]),
        (tuple("abcde"), "", ["queued: 2 more", "queued: c", "queued: d", "queued: e · Up to edit"]),
        ((), "a\nb\x1b[2J\u202e", [r"> a b\x1b[2J\u202e"]),
    ],
)
def test_the_rows_have_the_messages_and_the_draft(queued: tuple[str, ...], draft: str, rows: list[str]) -> None:
    queue = queue_of(*queued)
    queue.type_text(draft)
    assert queue.render(34) == rows


def test_the_last_row_tells_that_keys_wait_for_the_prompt() -> None:
    queue = queue_of("a")
    queue.is_forwarding = True
    assert queue.render(79) == ["queued: a", "further keys go to the next prompt"]
    queue.type_text("begun")
    assert queue.render(79)[1:] == ["> begun · further keys go to the next prompt"]
    assert queue.render(39)[1:] == ["further keys go to the next prompt"]


@pytest.mark.parametrize("draft", ["word " * 40, "日本語" * 40])
def test_of_a_long_draft_the_end_is_shown(draft: str) -> None:
    queue = queue_of("a")
    queue.type_text(f"{draft}end")
    _, row = queue.render(39)
    assert row.startswith("> ")
    assert row.endswith("end")
    assert text_width(row) <= 39


# -- in a chat -------------------------------------------------------------------------------------

LINES = "".join(f"line {number} of them\n\n" for number in range(40))


def script_answers(model: LoopbackServer, *replies: str, text: str = LINES) -> None:
    """Set the model's answers. The first one begins; `release_deltas` sends the rest."""
    model.replies({"text": text}, *({"text": reply} for reply in replies), chunk=8, delay_s=HELD_S)
    model.release_deltas(2)


@contextmanager
def during_answer(*flags: str, columns: int = 80) -> Iterator[TerminalScreen]:
    """A chat whose first answer has begun."""
    with open_screen("chat", *flags, "-n", "mine", columns=columns) as screen:
        screen.wait_for_prompt("Type /help")
        screen.type_keys("count\r")
        screen.wait_for_text("line 0")
        yield screen


def queue_line(screen: TerminalScreen) -> str:
    """The last line of the screen."""
    return (screen.text().splitlines() or [""])[-1]


def type_until(screen: TerminalScreen, keys: str, line: str) -> None:
    """Type `keys` and wait until the last line of the screen is `line`."""
    screen.type_keys(keys)
    screen.wait_until(lambda: queue_line(screen) == line)


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("columns", [40, 80])
def test_queued_messages_are_sent_in_order_after_the_answer(
    home: Path, columns: int, remote_model: LoopbackServer
) -> None:
    script_answers(remote_model, "two!", "three!")
    with during_answer(columns=columns) as screen:
        type_until(screen, "second mess", "> second mess")
        type_until(screen, "age\r", "queued: second message · Up to edit")
        type_until(screen, "third\r", "queued: third · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_prompt("three!")
        shown = re.sub(r"\n+", "\n", screen.text())
        assert "queued" not in shown
        assert re.search(r"line 39 of them\n1 input .*\n> second message\n● two!\n.*\n> third\n● three!\n", shown)
        screen.type_keys(UP)  # they are in the prompt history
        screen.wait_until(lambda: "\n> third\nsession mine" in screen.text())
    assert stored_messages(home, "mine")[2:] == [
        "user: second message",
        "assistant: two!",
        "user: third",
        "assistant: three!",
    ]


@pytest.mark.needs("terminal")
def test_the_line_below_an_answer_leaves_the_answer_as_it_is(remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        type_until(screen, "next\r", "queued: next · Up to edit")
        remote_model.release_deltas(68)
        # the screen has scrolled, and the line is drawn again
        screen.wait_until(
            lambda: "line 30 of them" in screen.text() and queue_line(screen) == "queued: next · Up to edit"
        )
        lines = screen.text().splitlines()
        numbers = [int(line.split()[1]) for line in lines if line.endswith("of them")]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert len(numbers) > 10


@pytest.mark.needs("terminal")
def test_the_line_is_shown_below_the_wait_for_an_answer(remote_model: LoopbackServer) -> None:
    remote_model.replies({"text": "one"}, {"text": "two"}, delay_s=HELD_S)
    with open_screen("chat") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("count\r")
        screen.wait_for_text("Esc to stop")
        type_until(screen, "next\r", "queued: next · Up to edit")
        assert re.search(r"waiting \d+ s · Esc to stop\nqueued: next · Up to edit$", screen.text())
        remote_model.release_deltas()
        screen.wait_for_prompt("> next")
        assert "queued" not in screen.text()
        assert "waiting" not in screen.text()


@pytest.mark.needs("terminal")
def test_up_takes_the_last_message_back_and_keys_edit_it(home: Path, remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!", "three!")
    with during_answer() as screen:
        type_until(screen, "first\r", "queued: first · Up to edit")
        type_until(screen, "second one\r", "queued: second one · Up to edit")
        type_until(screen, UP, "> second one")
        type_until(screen, "\x7f\x7f", "> second o")
        type_until(screen, "\x17", "> second")
        type_until(screen, "\x15", "queued: first · Up to edit")
        type_until(screen, "a\n", "> a")
        type_until(screen, "b\r", "queued: a b · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_prompt("three!")
    assert stored_messages(home, "mine")[2:] == [
        "user: first",
        "assistant: two!",
        "user: a\nb",
        "assistant: three!",
    ]


@pytest.mark.needs("terminal")
def test_a_draft_stays_for_the_next_prompt(remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        type_until(screen, "next\r", "queued: next · Up to edit")
        type_until(screen, "begun", "> begun")
        remote_model.release_deltas()
        screen.wait_until(lambda: "two!" in screen.text() and "\n> begun\nsession mine" in screen.text())


@pytest.mark.needs("terminal")
def test_keys_that_need_the_editor_wait_for_the_prompt(remote_model: LoopbackServer) -> None:
    script_answers(remote_model, text="line 0 and more " * 8)
    with during_answer() as screen:
        type_until(screen, "/us", "> /us")
        type_until(screen, "\t", "> /us · further keys go to the next prompt")
        remote_model.release_deltas()
        screen.wait_until(lambda: "\n> /usage\nsession mine" in screen.text())


@pytest.mark.needs("terminal")
def test_commands_are_queued_too(remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        type_until(screen, "/rename other\r", "queued: /rename other · Up to edit")
        type_until(screen, "next\r", "queued: next · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_prompt("two!")
        assert re.search(r"> /rename other\nmine renamed to other\n> next\n+● two!\n+.* session other\n", screen.text())


@pytest.mark.needs("terminal")
def test_a_pasted_shell_command_is_not_run_from_the_queue(tmp_path: Path, remote_model: LoopbackServer) -> None:
    script_answers(remote_model)
    with during_answer() as screen:
        type_until(screen, "\x1b[200~!touch made.txt\x1b[201~", "> !touch made.txt")
        type_until(screen, "\r", "queued: !touch made.txt · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_prompt("a pasted ! command is not run")
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.needs("terminal")
def test_a_long_paste_is_collapsed_at_the_prompt(home: Path, remote_model: LoopbackServer) -> None:
    pasted = "\n".join(f"row {number}" for number in range(30))
    script_answers(remote_model, "two!", text="line 0 and more " * 8)
    with during_answer() as screen:
        screen.type_keys(f"\x1b[200~{pasted}\x1b[201~")
        screen.wait_until(lambda: "row 29" in queue_line(screen))
        remote_model.release_deltas()
        screen.wait_for_text("> [pasted 30 lines]")
        screen.type_keys("\r")
        screen.wait_for_prompt("two!")
    assert stored_messages(home, "mine")[2:] == [f"user: {pasted}", "assistant: two!"]


# -- held messages ---------------------------------------------------------------------------------


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_stopping_the_answer_shows_the_messages_and_sends_none(
    home: Path, key: str, remote_model: LoopbackServer
) -> None:
    script_answers(remote_model, "two!", "three!")
    with during_answer() as screen:
        for text in ("first", "second", "third"):
            type_until(screen, f"{text}\r", f"queued: {text} · Up to edit")
        screen.type_keys(key)
        screen.wait_for_text("3 queued messages not sent: Enter sends the one below, Ctrl-C discards it")
        screen.wait_for_text("> first")
        remote_model.release_deltas()
        screen.type_keys(" edited\r")
        screen.wait_for_text("two!")
        screen.wait_for_text("2 queued messages not sent")
        screen.wait_for_text("> second")
        screen.type_keys("\x03")
        screen.wait_for_text("1 queued message not sent")
        screen.wait_for_text("> third")
        screen.type_keys("\r")
        screen.wait_for_prompt("three!")
    assert stored_messages(home, "mine")[2:] == [
        "user: first edited",
        "assistant: two!",
        "user: third",
        "assistant: three!",
    ]


@pytest.mark.needs("terminal")
def test_up_at_an_empty_prompt_edits_the_held_message_that_was_queued_last(remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        for text in ("first", "second", "third"):
            type_until(screen, f"{text}\r", f"queued: {text} · Up to edit")
        screen.type_keys("\x1b")
        screen.wait_for_text("> first")
        screen.type_keys("\x15")
        screen.wait_for_prompt()
        screen.type_keys(UP)
        screen.wait_for_text("> third")
        remote_model.release_deltas()
        screen.type_keys("\r")
        screen.wait_for_text("two!")
        screen.wait_for_text("> second")


@pytest.mark.needs("terminal")
def test_an_error_holds_the_messages_after_it(home: Path, remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        type_until(screen, "/nope\r", "queued: /nope · Up to edit")
        type_until(screen, "next\r", "queued: next · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_text("unknown command '/nope'")
        screen.wait_for_text("1 queued message not sent")
        screen.wait_for_text("> next")
    assert len(stored_messages(home, "mine")) == 2


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("is_held", [False, True])
def test_leaving_says_how_many_messages_were_not_sent(is_held: bool, remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with during_answer() as screen:
        type_until(screen, "/exit\r", "queued: /exit · Up to edit")
        type_until(screen, "next\r", "queued: next · Up to edit")
        if is_held:
            screen.type_keys("\x1b")
            screen.wait_for_text("> /exit")
            screen.type_keys("\r")
        remote_model.release_deltas()
        assert screen.wait_for_exit() == 0
        assert "\n1 queued message not sent\n" in screen.text()


@pytest.mark.needs("terminal")
def test_a_queued_message_decides_no_call_of_an_agent(home: Path, remote_model: LoopbackServer) -> None:
    remote_model.replies({**REFUND, "text": "line 0 and more " * 8}, PAID_BACK, chunk=8, delay_s=HELD_S)
    remote_model.release_deltas(2)
    with during_answer(*agent_flags()) as screen:
        type_until(screen, "y\r", "queued: y · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_text("decision:")
        assert tool_runs() == []
        screen.type_keys("leave\r")
        screen.wait_for_text("1 queued message not sent")
        screen.wait_for_text("> y")
    assert stored_runs(home)[0].status == "paused"


@pytest.mark.needs("terminal")
def test_messages_are_queued_while_an_agent_runs_after_a_decision(home: Path, remote_model: LoopbackServer) -> None:
    remote_model.replies(REFUND, {**PAID_BACK, "text": LINES}, {"text": "two!"}, chunk=8, delay_s=HELD_S)
    remote_model.release_deltas(8)
    with open_screen("chat", *agent_flags(), "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("pay it back\r")
        screen.wait_for_text("decision:")
        screen.type_keys("y\r")
        screen.wait_for_text("line 0")
        type_until(screen, "next\r", "queued: next · Up to edit")
        remote_model.release_deltas()
        screen.wait_for_prompt("two!")
    assert tool_runs() == ["refund A1 500"]
    assert stored_messages(home, "mine")[-2:] == ["user: next", "assistant: two!"]


@pytest.mark.needs("terminal")
def test_quiet_shows_no_line_and_sends_all_the_same(home: Path, remote_model: LoopbackServer) -> None:
    script_answers(remote_model, "two!")
    with open_screen("chat", "-q", "-n", "mine") as screen:
        screen.wait_for_prompt()
        screen.type_keys("count\r")
        screen.wait_for_text("line 0")
        screen.type_keys("next\r")
        remote_model.release_deltas()
        screen.wait_for_prompt("two!")
        assert "queued" not in screen.raw
    assert stored_messages(home, "mine")[2:] == ["user: next", "assistant: two!"]
