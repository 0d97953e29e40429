"""The approval prompt of a paused run, in a real terminal."""

import sys
from pathlib import Path

import pytest

from convo.history.records import ApprovalDecision
from convo.runs.stored_approvals import PendingApproval
from convo.terminal.approval_prompt import render_decision_log, render_pending_call
from convo.terminal.terminal import LINK_SEQUENCE, DisplayOptions
from tests.cli.agent_files import PAID_BACK, REFUND, agent_flags, paused_files, stored_runs, tool_runs, two_refund_calls
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.cli.test_runs_stopped import killed_flags
from tests.terminal.pty_session import CONTROL_SEQUENCES, PtySession, at_terminal

__all__ = ["killed_flags"]

pytestmark = pytest.mark.needs("terminal")

QUESTION = "decision:"


def answer_prompt(terminal: PtySession, text: str, expected: str) -> str:
    """Answer the question at the prompt and wait for `expected`."""
    terminal.type_keys(f"{text}\r")
    return terminal.wait_for_text(expected)


def open_approval_prompt(terminal: PtySession, text: str = "pay it back") -> str:
    """Send a message that leads to an approval question; returns the output up to it."""
    terminal.wait_for_prompt()
    terminal.type_keys(f"{text}\r")
    return terminal.wait_for_text(QUESTION)


def test_the_prompt_shows_the_call_its_arguments_and_the_agent(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "-n", "mine", columns=120) as terminal:
        output = open_approval_prompt(terminal)
        assert "refund needs approval" in output
        assert "─ desk · c1 ─" in output
        assert "│ order  A1 " in output
        assert "│ cents  500 " in output
        assert "> n       reject; a reason may follow\n  y       approve\n" in output
        assert "desk asks for" not in output
        output_after = answer_prompt(terminal, "approve", " · session mine")
        assert "refund returned paid 500 cents back for A1" in output_after
        assert "Paid back." in output_after
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 500"]
    assert paused_files(home) == []


@pytest.mark.parametrize(
    "arguments",
    ['{"cents": 99999, "cents": 1}', '{"pay": {"cents": 99999, "cents": 1}}', '{"cents": 12345678901234567.5}'],
    ids=["two members", "two members of a member", "a rounded number"],
)
def test_arguments_that_would_lose_a_part_are_shown_as_they_are(arguments: str) -> None:
    call = PendingApproval("m1", "bank.refund", arguments, "desk", outcome_unknown=False, is_hosted=True)
    assert f"  arguments  {arguments}\n" in render_pending_call(call, DisplayOptions()) + "\n"
    assert f"│ {arguments} " in render_pending_call(call, DisplayOptions(80))


@pytest.mark.parametrize(
    ("keys", "expected_runs"),
    [("\r", []), ("\x1b[B\r", ["refund A1 500"]), ("\x1b[A\x0e\x10\x0e\x1b[B\r", ["refund A1 500"])],
    ids=["Enter rejects", "Down approves", "the list is a circle"],
)
def test_arrow_keys_choose_a_decision(keys: str, expected_runs: list[str], home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK)) as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, keys.removesuffix("\r"), "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == expected_runs


def test_each_call_is_asked_separately_and_a_reason_reaches_the_model(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, "y", QUESTION)
        answer_prompt(terminal, "reject not on a Friday", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    items, _ = stored_conversation(home, "mine")
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == ["paid 100 cents back for A1", "not on a Friday"]


@pytest.mark.parametrize(("word", "expected_runs"), [("always", ["refund A1 100", "refund A2 200"]), ("never", [])])
def test_a_sticky_decision_applies_to_the_other_calls(word: str, expected_runs: list[str], home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, word, "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert sorted(tool_runs()) == expected_runs


def test_each_receipt_counts_only_the_calls_since_the_one_before(home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK, {"text": "Anything else?"})
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine", columns=120) as terminal:
        output = open_approval_prompt(terminal)
        output += answer_prompt(terminal, "approve", " · session mine")
        terminal.wait_for_prompt()
        output += answer_prompt(terminal, "thank you", " · session mine")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert output.count(" · session mine") == 3
    assert "calls · " not in output


def test_arguments_are_edited_in_the_editor(tmp_path: Path, home: Path) -> None:
    (tmp_path / "editor.py").write_text(
        "import sys\nplace = sys.argv[1]\nold = open(place).read()\nopen(place, 'w').write(old.replace('500', '1'))\n"
    )
    env = {"EDITOR": f"{sys.executable} {tmp_path / 'editor.py'}"}
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), env=env) as terminal:
        open_approval_prompt(terminal)
        assert "desk calls refund {" in answer_prompt(terminal, "edit", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 1"]


def test_an_invalid_answer_is_asked_again(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK)) as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, "perhaps", "enter reject, approve, edit, always, never or leave (no decision)")
        terminal.wait_for_text(QUESTION)
        answer_prompt(terminal, "edit", "EDITOR is not set")
        terminal.wait_for_text(QUESTION)
        answer_prompt(terminal, "no", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == []


@pytest.mark.parametrize("key", ["leave\r", "\x03", "\x04"], ids=["leave", "Ctrl-C", "Ctrl-D"])
def test_leaving_the_prompt_decides_nothing_and_shows_how_to_continue(key: str, home: Path) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        terminal.type_keys(key)
        output = terminal.wait_for_prompt()
        assert "paused; state saved to" in output
        assert "convo resume mine --agent bot.py:desk --approve c1" in output.replace("\n", "")
        assert terminal.end_session() == 0
    assert (tool_runs(), stored_runs(home)[0].status, len(paused_files(home))) == ([], "paused", 1)
    with at_terminal("chat", "-c", *agent_flags(), *model) as terminal:
        terminal.wait_for_text(QUESTION)
        answer_prompt(terminal, "yes", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 500"]


def test_a_decision_made_before_leaving_is_kept(home: Path) -> None:
    model = two_refund_calls()
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, "reject", QUESTION)
        answer_prompt(terminal, "leave", "paused; state saved to")
        terminal.wait_for_prompt()
        terminal.type_keys("hello?\r")
        assert "nothing was sent: the run is paused" in terminal.wait_for_text(QUESTION)
        assert "─ desk · c2 ─" in terminal.output
        answer_prompt(terminal, "approve", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A2 200"]


def test_commands_that_would_move_the_head_are_refused_and_the_run_can_be_cancelled(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        terminal.type_keys("leave\r")
        terminal.wait_for_prompt()
        assert "is not available while a run is open" in terminal.send_line("/undo")
        assert "depends on the decisions" in terminal.send_line("/next")
        assert "the run was stopped" in terminal.send_line("/stop")
        request = terminal.send_line("/next and now?")
        assert all(word in request for word in ('"instructions": "Help."', '"name": "look_up"', "and now?"))
        assert "tools" in terminal.send_line("/context")
        assert "is not available with agents" in terminal.send_line("/edit hm")
        assert "undid" in terminal.send_line("/undo")
        assert terminal.end_session() == 0
    assert (tool_runs(), stored_runs(home)[0].status) == ([], "stopped")


def test_short_forms_of_the_choices(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *two_refund_calls(), "-n", "mine") as terminal:
        open_approval_prompt(terminal)
        answer_prompt(terminal, "e", "EDITOR is not set")
        terminal.wait_for_text(QUESTION)
        for short_form in ("l", "q"):
            answer_prompt(terminal, short_form, "paused; state saved to")
            terminal.wait_for_prompt()
            terminal.type_keys("and?\r")
            terminal.wait_for_text(QUESTION)
        answer_prompt(terminal, "a", QUESTION)
        answer_prompt(terminal, "n", "Paid back.")
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 100"]


@pytest.mark.parametrize(
    ("answer", "expected", "expected_runs", "status"),
    [
        ("again", "Paid back.", ["look_up A1", "look_up A1"], "done"),
        ("o A1 = 7", "Paid back.", ["look_up A1"], "done"),
        ("abort", "", ["look_up A1"], "stopped"),
    ],
)
def test_a_call_with_unknown_outcome_is_run_again_gets_an_output_or_ends_the_run(
    answer: str, expected: str, expected_runs: list[str], status: str, killed_flags: tuple[str, str], home: Path
) -> None:
    with at_terminal("resume", "mine", *agent_flags(), *killed_flags) as terminal:
        output = terminal.wait_for_text(QUESTION)
        assert "look_up has an unknown outcome" in output
        assert "  again   run the call again\n" in output
        assert "  o TEXT  use TEXT as its output\n" in output
        terminal.type_keys(f"{answer}\r")
        terminal.wait_for_exit()
        assert expected in terminal.output
    assert (tool_runs(), stored_runs(home)[0].status) == (expected_runs, status)


def test_a_dumb_terminal_gets_the_same_questions_as_plain_lines(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), term="dumb") as terminal:
        open_approval_prompt(terminal)
        output_after = answer_prompt(terminal, "approve", "Paid back.")
        assert "\x1b" not in str(output_after)
        terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert tool_runs() == ["refund A1 500"]


def test_an_address_among_the_arguments_does_not_widen_the_panel() -> None:
    arguments = '{"url": "https://example.com/orders/A1"}'
    call = PendingApproval("c1", "fetch", arguments, "desk", outcome_unknown=False, is_hosted=False)
    linked = render_pending_call(call, DisplayOptions(200, has_color=True, has_links=True))
    shown = CONTROL_SEQUENCES.sub("", LINK_SEQUENCE.sub("", linked))
    assert shown == CONTROL_SEQUENCES.sub("", render_pending_call(call, DisplayOptions(200, has_color=True)))
    assert linked.count("https://example.com/orders/A1") == 2


def test_resume_asks_the_same_questions_at_a_terminal(home: Path) -> None:
    model = two_refund_calls()
    with at_terminal("chat", *agent_flags(), *model, "-n", "mine", "pay it back") as terminal:
        assert terminal.wait_for_exit() == 3
    with at_terminal("resume", "mine", *agent_flags(), *model, "--approve", "c1") as terminal:
        output = terminal.wait_for_text(QUESTION)
        assert "approved refund (c1)" in output
        assert "─ desk · c2 ─" in output
        answer_prompt(terminal, "reject", "Paid back.")
        assert terminal.wait_for_exit() == 0
    assert tool_runs() == ["refund A1 100"]


def test_a_question_of_a_quiet_resume_shows_its_call(home: Path) -> None:
    with at_terminal("chat", *agent_flags(), *(model := two_refund_calls()), "-n", "mine", "pay it back") as terminal:
        assert terminal.wait_for_exit() == 3
    with at_terminal("resume", "mine", "-q", *agent_flags(), *model, "--approve", "c1") as terminal:
        output = terminal.wait_for_text(QUESTION)
        assert "approved refund (c1)" not in output
        assert "─ desk · c2 ─" in output
        terminal.type_keys("maybe\r")
        assert "(no decision)" in terminal.wait_for_text("(no decision)")
        answer_prompt(terminal, "reject", "Paid back.")
        assert terminal.wait_for_exit() == 0
    assert tool_runs() == ["refund A1 100"]


def test_ctrl_c_in_a_run_leaves_it_resumable(home: Path) -> None:
    slow = scripted_flags(
        {"text": "one two three four five six seven eight " * 10}, {"text": "Fine."}, chunk=4, delay_s=0.25
    )
    with at_terminal("chat", *agent_flags(), *slow, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("hello\r")
        terminal.wait_for_text("two")
        terminal.press_ctrl("c")
        assert "stopped" in terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert stored_runs(home)[0].status == "running"
    quick = scripted_flags({"text": "Fine."})
    with at_terminal("chat", "-c", *agent_flags(), *quick) as terminal:
        assert "was interrupted; /retry continues it" in terminal.wait_for_prompt()
        assert "Fine." in terminal.send_line("/retry")
        assert terminal.end_session() == 0
    assert stored_runs(home)[0].status == "done"


def panel_of(arguments: str, *details: tuple[str, str], columns: int = 40, is_unknown: bool = False) -> list[str]:
    call = PendingApproval(
        "call_0123456789abcdef", "refund", arguments, "desk", outcome_unknown=is_unknown, is_hosted=False
    )
    return render_pending_call(call, DisplayOptions(columns), *details).splitlines()


def test_the_panel_lists_the_arguments_by_name_and_has_the_agent_and_a_short_id_in_its_border() -> None:
    assert panel_of('{"order": "A1", "notes": ["one", 2], "why": "It was broken when it arrived on Friday."}') == [
        "╭─ refund needs approval ──────────────╮",
        "│ order  A1                            │",
        "│ notes  [                             │",
        '│          "one",                      │',
        "│          2                           │",
        "│        ]                             │",
        "│ why    It was broken when it arrived │",
        "│        on Friday.                    │",
        "╰─ desk · call_0123456789ab ───────────╯",
    ]
    assert len(panel_of('{"order": "A1"}', columns=200)[0]) == 80


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("{}", ["no arguments"]),
        ("", ["no arguments"]),
        ("a plain text", ["a plain text"]),
        ("[1]", ["[", "  1", "]"]),
        ('{"": 1}', ["{", '  "": 1', "}"]),
        ('{"a\\nb": 1}', ["{", '  "a\\nb": 1', "}"]),
        ('{"\\u202eb": 1}', ["{", '  "\\u202eb": 1', "}"]),
        ('{"a_name_of_more_than_20": 1}', ["{", '  "a_name_of_more_than_20": 1', "}"]),
        ('{"a": "touch x && date"}', ["a  touch x && date"]),
        *((f'{{"a": {text}}}', [f"a  {text}"]) for text in ('"5"', '"true"', '""', '" b"', '"[b"', '"\\"b"')),
        ('{"a": "\\u001b[2J\\u202e"}', ['a  "\\u001b[2J\\u202e"']),
    ],
)
def test_other_arguments_are_shown_as_they_are_and_no_control_character_reaches_the_panel(
    arguments: str, lines: list[str]
) -> None:
    assert [line[2:-2].rstrip() for line in panel_of(arguments)[1:-1]] == lines


def test_the_panel_of_an_inbox_has_the_full_id_below_the_arguments() -> None:
    assert panel_of('{"order": "A1"}', ("session", "mine"), is_unknown=True, columns=60)[2:-1] == [
        "│                                                          │",
        "│ note     the call was started but has no output: it may  │",
        "│          or may not have run                             │",
        "│ agent    desk                                            │",
        "│ call     call_0123456789abcdef                           │",
        "│ session  mine                                            │",
    ]


def test_a_rejection_in_the_log_has_the_sign_of_a_call_that_does_not_run() -> None:
    decisions = [
        ApprovalDecision("run_1", "c", "a", "t", "{}", approved=approved, decided_at=0.0) for approved in (True, False)
    ]
    lines = render_decision_log(decisions, DisplayOptions(120)).splitlines()
    assert [sign for line in lines for sign in ("✓ approved", "⊘ rejected", "✓ rejected") if sign in line] == [
        "✓ approved",
        "⊘ rejected",
    ]
