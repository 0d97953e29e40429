"""Every key, command and choice of the terminal has a test in a real terminal: a new one without a test fails here."""

import ast
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from convo.cli.slash_commands import SLASH_COMMANDS
from convo.terminal.approval_prompt import (
    CALL_CHOICES,
    CHOICE_SYNONYMS,
    HOSTED_CALL_CHOICES,
    UNKNOWN_OUTCOME_CHOICES,
)
from convo.terminal.line_editor import QUEUE_KEYS, ChoiceMenu, CollapsedPastes, build_key_bindings
from convo.terminal.picker import PICKER_KEYS
from convo.terminal.request_browser import NAMED_KEYS, RequestBrowser
from tests.inspect.conversation_builder import build_chain

FOLDER = Path(__file__).parent

SCREENS = "test_screens.test_every_key_and_command_shows_the_recorded_screen"
MOVES = "test_request_browser.test_keys_that_select_a_request"
PANES = "test_request_browser.test_below_90_columns_enter_and_tab_show_the_detail_and_esc_the_tree"
SEARCH = "test_request_browser.test_search_finds_requests_by_their_texts"
SEARCH_KEYS = "test_request_browser.test_a_search_is_left_with_esc_and_needs_a_text"
MARKS = "test_request_browser.test_d_compares_the_marked_requests"
QUEUE = "test_message_queue.test_up_takes_the_last_message_back_and_keys_edit_it"
ENTRIES = "test_picker.test_page_keys_move_by_the_rows_of_the_list"
CANCEL = "test_picker.test_esc_ctrl_c_and_ctrl_d_change_nothing"
EMACS_KEYS = "test_picker.test_ctrl_n_and_ctrl_p_move_and_a_signal_changes_nothing"
COLOR_SEQUENCE = "test_picker.test_a_color_sequence_among_typed_keys_is_ignored"
APPROVE = "test_approval_prompt.test_each_call_is_asked_separately_and_a_reason_reaches_the_model"
SHORT_FORMS = "test_approval_prompt.test_short_forms_of_the_choices"
STICKY = "test_approval_prompt.test_a_sticky_decision_applies_to_the_other_calls"
LEAVE = "test_approval_prompt.test_leaving_the_prompt_decides_nothing_and_shows_how_to_continue"
UNKNOWN = "test_approval_prompt.test_a_call_with_unknown_outcome_is_run_again_gets_an_output_or_ends_the_run"

LINE_EDITOR_TESTS = {
    "c-m": SCREENS,
    "c-j": SCREENS,
    "escape c-m": SCREENS,
    "escape escape": SCREENS,
    "escape": "test_command_menu.test_a_menu_follows_the_typed_name",
    "escape /": SCREENS,
    "c-r": SCREENS,
    "c-h": "test_collapsed_pastes.test_backspace_deletes_a_collapsed_paste_as_a_whole",
    "c-c": "test_chat_keys.test_ctrl_c_discards_the_typed_line",
    "<sigint>": "test_chat_keys.test_a_sigint_from_another_process_is_a_ctrl_c",
    "<bracketed-paste>": "test_chat_keys.test_a_paste_with_line_breaks_is_one_message",
    "<vt100-mouse-event>": COLOR_SEQUENCE,
    "up": "test_message_queue.test_up_at_an_empty_prompt_edits_the_held_message_that_was_queued_last",
    "c-x c-e": SCREENS,
    **dict.fromkeys(("down", "c-p", "c-n"), "test_approval_prompt.test_arrow_keys_choose_a_decision"),
}

QUEUE_TESTS = {
    "<ignore>": "test_message_queue.test_queued_messages_are_sent_in_order_after_the_answer",
    "<bracketed-paste>": "test_message_queue.test_a_long_paste_is_collapsed_at_the_prompt",
    **dict.fromkeys(("c-m", "c-j", "c-h", "c-w", "c-u", "up"), QUEUE),
}

PICKER_TESTS = {
    **dict.fromkeys(("up", "pageup", "pagedown"), ENTRIES),
    "down": "test_picker.test_enter_continues_the_selected_conversation_in_this_chat",
    **dict.fromkeys(("c-n", "c-p", "<sigint>"), EMACS_KEYS),
    "c-m": "test_picker.test_enter_continues_the_selected_conversation_in_this_chat",
    **dict.fromkeys(("escape", "c-c", "c-d"), CANCEL),
    "<bracketed-paste>": "test_picker.test_a_paste_into_the_search_is_one_line",
    "<vt100-mouse-event>": COLOR_SEQUENCE,
}

BROWSER_TESTS = {
    **dict.fromkeys(("up", "k", "down", "j", "pageup", "pagedown", "home", "g", "end", "G"), MOVES),
    **dict.fromkeys(("c-m", "c-j", "c-i", "escape"), PANES),
    **dict.fromkeys(("/", "n", "N"), SEARCH),
    **dict.fromkeys(("c-h", "c-u", "<bracketed-paste>"), SEARCH_KEYS),
    **dict.fromkeys(("m", " ", "d"), MARKS),
    "f": "test_request_browser.test_f_continues_from_the_response_in_a_chat",
    "c": "test_request_browser.test_c_copies_the_command_that_convo_next_printed_before_the_request",
    "?": "test_request_browser.test_the_help_lists_the_keys",
    **dict.fromkeys(("q", "c-c"), "test_request_browser.test_leaving_restores_the_terminal"),
}

APPROVAL_TESTS = {
    **dict.fromkeys(("approve", "y", "reject"), APPROVE),
    **dict.fromkeys(("a", "e", "l", "q", "n"), SHORT_FORMS),
    **dict.fromkeys(("yes", "leave"), LEAVE),
    **dict.fromkeys(("no", "edit"), "test_approval_prompt.test_an_invalid_answer_is_asked_again"),
    **dict.fromkeys(("always", "never"), STICKY),
    **dict.fromkeys(("again", "o", "abort"), UNKNOWN),
}

UNTYPED_SYNONYMS = {"r": "n", "rerun": "again", "output": "o"}
"""Choices that only differ in their spelling from one that is typed in a test."""

COMMAND_TESTS = {
    "exit": "test_chat.test_exit_ends_the_chat",
    **dict.fromkeys(SLASH_COMMANDS.keys() - {"exit"}, SCREENS),  # test_screens.py fails for one that is not typed
}


def find_line_editor_keys() -> set[str]:
    bindings = build_key_bindings(
        lambda text: None, CollapsedPastes(), ChoiceMenu(), lambda: False, lambda: "", lambda task: None
    )
    return {" ".join(str(getattr(key, "value", key)) for key in binding.keys) for binding in bindings.bindings}


def find_browser_keys() -> set[str]:
    keys = {*RequestBrowser(build_chain(1).view("resp_1")).keys, *NAMED_KEYS}
    return {str(getattr(key, "value", key)) for key in keys}


def find_choices() -> set[str]:
    return {*CALL_CHOICES, *HOSTED_CALL_CHOICES, *UNKNOWN_OUTCOME_CHOICES, *CHOICE_SYNONYMS}


def test_the_line_editor() -> None:
    assert find_line_editor_keys() == LINE_EDITOR_TESTS.keys()


def test_the_queue_of_messages() -> None:
    assert {str(getattr(key, "value", key)) for key in QUEUE_KEYS} == QUEUE_TESTS.keys()


def test_the_pickers() -> None:
    assert {key.value for key in PICKER_KEYS} == PICKER_TESTS.keys()


def test_the_request_browser() -> None:
    assert find_browser_keys() == BROWSER_TESTS.keys()


def test_the_approval_prompt() -> None:
    assert find_choices() == APPROVAL_TESTS.keys() | UNTYPED_SYNONYMS.keys()
    for synonym, typed in UNTYPED_SYNONYMS.items():
        assert CHOICE_SYNONYMS.get(synonym, synonym) == CHOICE_SYNONYMS.get(typed, typed)


def test_the_slash_commands() -> None:
    assert SLASH_COMMANDS.keys() == COMMAND_TESTS.keys()


@lru_cache
def terminal_tests(module: str) -> frozenset[str]:
    """The tests of a module that run in a real terminal: those that are marked so, or all of a marked module."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    is_marked = any(
        isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node) and "'terminal'" in ast.unparse(node)
        for node in tree.body
    )
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        test.name
        for test in tests
        if is_marked or any("'terminal'" in ast.unparse(mark) for mark in test.decorator_list)
    )


@pytest.mark.parametrize(
    "tests", [LINE_EDITOR_TESTS, QUEUE_TESTS, PICKER_TESTS, BROWSER_TESTS, APPROVAL_TESTS, COMMAND_TESTS]
)
def test_every_named_test_runs_in_a_terminal(tests: Mapping[str, str]) -> None:
    for name in set(tests.values()):
        module, _, function = name.partition(".")
        assert function in terminal_tests(module), name
