"""The approval prompt of a paused run, in a real terminal."""

import sys
from pathlib import Path

import pytest

from tests.cli.agent_files import PAID_BACK, REFUND, agent_flags, paused_files, stored_runs, tool_runs, two_refund_calls
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.terminal.pty_session import Person, at_terminal

pytestmark = pytest.mark.needs("terminal")

QUESTION = "approve, reject [REASON], edit, always, never [REASON], leave?"


def answers(person: Person, words: str, until: str) -> str:
    """Answer the question at the prompt and wait for `until`."""
    person.types(f"{words}\r")
    return person.sees(until)


def asked(person: Person, words: str = "pay it back") -> str:
    """Send a message that leads to an approval question; returns the output up to it."""
    person.is_asked()
    person.types(f"{words}\r")
    return person.sees(QUESTION)


def test_the_prompt_shows_the_call_its_arguments_and_the_agent(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "-n", "mine", columns=120) as person:
        shown = asked(person)
        assert "refund needs approval" in shown
        assert "agent      desk" in shown
        assert "call       c1" in shown
        assert '"order": "A1",' in shown
        after = answers(person, "approve", " · session mine")
        assert "refund returned paid 500 cents back for A1" in after
        assert "Paid back." in after
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == ["refund A1 500"]
    assert paused_files(home) == []


def test_each_call_is_asked_separately_and_a_reason_reaches_the_model(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine") as person:
        asked(person)
        answers(person, "y", QUESTION)
        answers(person, "reject not on a Friday", "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    items, _ = stored_conversation(home, "mine")
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == ["paid 100 cents back for A1", "not on a Friday"]


@pytest.mark.parametrize(("word", "done"), [("always", ["refund A1 100", "refund A2 200"]), ("never", [])])
def test_a_sticky_decision_applies_to_the_other_calls(word: str, done: list[str], home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine") as person:
        asked(person)
        answers(person, word, "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    assert sorted(tool_runs()) == done


def test_arguments_are_edited_in_the_editor(tmp_path: Path, home: Path) -> None:
    (tmp_path / "editor.py").write_text(
        "import sys\nplace = sys.argv[1]\nold = open(place).read()\nopen(place, 'w').write(old.replace('500', '1'))\n"
    )
    env = {"EDITOR": f"{sys.executable} {tmp_path / 'editor.py'}"}
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), env=env) as person:
        asked(person)
        assert "desk calls refund {" in answers(person, "edit", "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == ["refund A1 1"]


def test_an_invalid_answer_is_asked_again(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK)) as person:
        asked(person)
        answers(person, "perhaps", "enter approve, reject, edit, always, never or leave (no decision)")
        person.sees(QUESTION)
        answers(person, "edit", "EDITOR is not set")
        person.sees(QUESTION)
        answers(person, "no", "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == []


@pytest.mark.parametrize("key", ["leave\r", "\x03", "\x04"], ids=["leave", "Ctrl-C", "Ctrl-D"])
def test_leaving_the_prompt_decides_nothing_and_shows_how_to_continue(key: str, home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine") as person:
        asked(person)
        person.types(key)
        left = person.is_asked()
        assert "paused; state saved to" in left
        assert "convo resume mine --agent bot.py:desk --approve c1" in left.replace("\n", "")
        assert person.leaves() == 0
    assert (tool_runs(), stored_runs(home)[0].status, len(paused_files(home))) == ([], "paused", 1)
    with at_terminal("chat", "-c", *agent_flags(), *model) as person:
        person.sees(QUESTION)
        answers(person, "yes", "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == ["refund A1 500"]


def test_a_decision_made_before_leaving_is_kept(home: Path) -> None:
    model = two_refund_calls()
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine") as person:
        asked(person)
        answers(person, "reject", QUESTION)
        answers(person, "leave", "paused; state saved to")
        person.is_asked()
        person.types("hello?\r")
        assert "nothing was sent: the run is paused" in person.sees(QUESTION)
        assert "call       c2" in person.shown
        answers(person, "approve", "Paid back.")
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == ["refund A2 200"]


def test_commands_that_would_move_the_head_are_refused_and_the_run_can_be_cancelled(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "-n", "mine") as person:
        asked(person)
        person.types("leave\r")
        person.is_asked()
        assert "is not available while a run is open" in person.says("/undo")
        assert "depends on the decisions" in person.says("/next")
        assert "the run was stopped" in person.says("/stop")
        request = person.says("/next and now?")
        assert all(word in request for word in ('"instructions": "Help."', '"name": "look_up"', "and now?"))
        assert "tools" in person.says("/context")
        assert "is not available with agents" in person.says("/edit hm")
        assert "undid" in person.says("/undo")
        assert person.leaves() == 0
    assert (tool_runs(), stored_runs(home)[0].status) == ([], "stopped")


def test_a_dumb_terminal_gets_the_same_questions_as_plain_lines(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), term="dumb") as person:
        asked(person)
        after = answers(person, "approve", "Paid back.")
        assert "\x1b" not in str(after)
        person.is_asked()
        assert person.leaves() == 0
    assert tool_runs() == ["refund A1 500"]


def test_resume_asks_the_same_questions_at_a_terminal(home: Path) -> None:
    model = two_refund_calls()
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine", "pay it back") as person:
        assert person.ends() == 3
    with at_terminal("resume", "mine", *agent_flags(), *model, "--approve", "c1") as person:
        shown = person.sees(QUESTION)
        assert "approved refund (c1)" in shown
        assert "call       c2" in shown
        answers(person, "reject", "Paid back.")
        assert person.ends() == 0
    assert tool_runs() == ["refund A1 100"]


def test_ctrl_c_in_a_run_leaves_it_resumable(home: Path) -> None:
    slow = scripted_flags(
        {"text": "one two three four five six seven eight " * 10}, {"text": "Fine."}, chunk=4, delay_s=0.25
    )
    with at_terminal("chat", *agent_flags(), *slow, "-n", "mine") as person:
        person.is_asked()
        person.types("hello\r")
        person.sees("two")
        person.presses("c")
        assert "stopped" in person.is_asked()
        assert person.leaves() == 0
    assert stored_runs(home)[0].status == "running"
    quick = scripted_flags({"text": "Fine."})
    with at_terminal("chat", "-c", *agent_flags(), *quick) as person:
        assert "was interrupted; /retry continues it" in person.is_asked()
        assert "Fine." in person.says("/retry")
        assert person.leaves() == 0
    assert stored_runs(home)[0].status == "done"
