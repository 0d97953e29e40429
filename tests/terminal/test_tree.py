"""The tree of the links of a conversation."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from convo.history.records import Strategy
from convo.terminal.inspect_view import fit_link_table, render_conversation
from convo.terminal.tables import table_lines
from convo.terminal.terminal import DisplayOptions, text_width
from tests.inspect.conversation_builder import ConversationBuilder, build_chain


def build_forked() -> ConversationBuilder:
    """Three turns, a branch of two turns after the first one, and a failed attempt."""
    builder = ConversationBuilder()
    builder.turn("try_0a", "What is a monad?", None, error={"code": "x", "message": "Rate limit reached"})
    builder.turn("resp_1", "What is a monad?", "A monoid in the category of endofunctors.")
    builder.turn("resp_2", "And in Haskell?", "A type class with bind and return.", after="resp_1")
    builder.turn("resp_3b", "Say it simply.", "A box that can be chained.", after="resp_1")
    builder.turn("resp_4b", "Simpler!", "A box.", after="resp_3b")
    builder.turn("resp_5", "Show me some.", "Maybe, list, IO.", after="resp_2")
    return builder


def render_tree(builder: ConversationBuilder, head_id: str | None, display: DisplayOptions) -> str:
    return "\n".join(table_lines(fit_link_table(builder.view(head_id), display), display))


NARROW = """\
response     sent     ~tokens  context  input  output  time   preview
┌─○ try_0a   full 1         8        1      -       -  22:13  ✗ failed: What is…
● resp_1     full 1         8        1     12       9  22:14  What is a monad?…
├─● resp_3b  delta 1        8        3     12       9  22:16  Say it simply. →…
│ ● resp_4b  delta 1        6        5     12       9  22:17  Simpler! → A box.
● resp_2     delta 1        8        3     12       9  22:15  And in Haskell? →…
@ resp_5     delta 1        8        5     12       9  22:18  Show me some. →…"""


def test_a_chain_with_forks_in_eighty_columns() -> None:
    assert render_tree(build_forked(), "resp_5", DisplayOptions(80)) == NARROW
    assert max(map(text_width, NARROW.splitlines())) <= 80


WIDE = """\
response     owner  sent     ~tokens  context  input  cached  output  reasoning  model       date        time   \
status     seconds  preview
┌─○ try_0a   chain  full 1         8        1      -       -       -          -  local/demo  2023-11-14  22:13  \
failed         1.2  What is a monad? → Rate limit reached
● resp_1     chain  full 1         8        1     12       4       9          2  local/demo  2023-11-14  22:14  \
completed      1.2  What is a monad? → A monoid in the category of endofunctors.
├─● resp_3b  chain  delta 1        8        3     12       4       9          2  local/demo  2023-11-14  22:16  \
completed      1.2  Say it simply. → A box that can be chained.
│ ● resp_4b  chain  delta 1        6        5     12       4       9          2  local/demo  2023-11-14  22:17  \
completed      1.2  Simpler! → A box.
● resp_2     chain  delta 1        8        3     12       4       9          2  local/demo  2023-11-14  22:15  \
completed      1.2  And in Haskell? → A type class with bind and return.
@ resp_5     chain  delta 1        8        5     12       4       9          2  local/demo  2023-11-14  22:18  \
completed      1.2  Show me some. → Maybe, list, IO."""


OMITTED_COLUMNS = ["reasoning", "model", "cached", "seconds", "~tokens", "output", "input", "time", "context"]


def test_a_narrower_terminal_omits_one_column_after_the_other() -> None:
    """The reasoning tokens are equal on every line here, so only the order of the columns decides."""
    builder = build_chain(3)
    lines = [render_tree(builder, "resp_3", DisplayOptions(columns)).splitlines()[0] for columns in range(119, 29, -1)]
    heads = [line.removesuffix("preview").split() for line in lines]
    assert [head for before, after in pairwise(heads) for head in before if head not in after] == OMITTED_COLUMNS


def test_in_a_pipe_every_line_has_every_column() -> None:
    assert render_tree(build_forked(), "resp_5", DisplayOptions()) == WIDE


def test_the_head_is_marked_on_any_line() -> None:
    lines = render_tree(build_forked(), "resp_3b", DisplayOptions()).splitlines()
    assert [line[:11].rstrip() for line in lines[1:]] == [
        "┌─○ try_0a",
        "● resp_1",
        "├─● resp_2",
        "│ ● resp_5",
        "@ resp_3b",
        "● resp_4b",
    ]


def test_a_long_chain_is_not_indented() -> None:
    lines = render_tree(build_chain(2_000), "resp_2000", DisplayOptions(80)).splitlines()
    assert [line[:2] for line in lines[1:]] == ["● "] * 1_999 + ["@ "]
    assert max(map(text_width, lines)) <= 80


def test_nested_forks_fit_into_a_terminal() -> None:
    builder = build_chain(1)
    for depth in range(60):
        before = "resp_1" if depth == 0 else f"resp_d{depth - 1}"
        builder.turn(f"resp_d{depth}", "down", "and down", after=before)
        builder.turn(f"resp_e{depth}", "along", "the line", after=before)
    lines = render_tree(builder, None, DisplayOptions(80)).splitlines()
    assert len(lines) == 122
    assert max(map(text_width, lines)) <= 80


def test_a_session_that_resends_the_history_shows_full() -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "two")
    builder.turn("resp_2", "three", "four", after="resp_1")
    lines = render_tree(builder, "resp_2", DisplayOptions()).splitlines()
    assert [line.split()[2:5] for line in lines[1:]] == [["session", "full", "1"], ["session", "full", "3"]]


def test_responses_of_several_clients_name_their_owner() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "mine", "yes", session_id="ses_1")
    builder.turn("resp_2", "yours", "no", after="resp_1")
    builder.turn("resp_3", "theirs", "gone", after="resp_1", session_id="ses_9")
    view = builder.view("resp_2", session_names={"ses_1": "monads"})
    lines = list(table_lines(fit_link_table(view, DisplayOptions()), DisplayOptions()))
    assert [re.split(r"  +", line)[1] for line in lines[1:]] == ["monads", "(removed)", "(other client)"]


def test_a_response_names_the_sessions_that_sent_its_branch() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "mine", "yes", session_id="ses_1")
    builder.turn("resp_2", "yours", "no", after="resp_1", session_id="ses_2")
    builder.turn("resp_3", "theirs", "gone", after="resp_1", session_id="ses_3")
    names = {"ses_1": "monads", "ses_2": "side", "ses_3": "other"}
    for display in (DisplayOptions(), DisplayOptions(80)):
        assert "  sent by   sessions monads, side\n" in render_conversation(
            builder.view("resp_2", session_names=names), display
        )
    assert "sent by   session monads\n" in render_conversation(
        builder.view("resp_1", session_names=names), DisplayOptions()
    )


@pytest.mark.parametrize(
    ("ids", "short"),
    [
        (["resp_aaaaaaaa1", "resp_bbbbbbbb1"], ["resp_aaaaaaaa", "resp_bbbbbbbb"]),
        (["resp_aaaaaaaab1", "resp_aaaaaaaac1"], ["resp_aaaaaaaab", "resp_aaaaaaaac"]),
        (["resp_1", "resp_2"], ["resp_1", "resp_2"]),
        (["resp_aaaaaaaaaa"], ["resp_aaaaaaaa"]),
    ],
)
def test_ids_are_shortened_to_a_unique_prefix(ids: list[str], short: list[str]) -> None:
    builder = ConversationBuilder()
    for before, id_ in zip([None, *ids], ids, strict=False):
        builder.turn(id_, "hi", "ho", after=before)
    lines = list(table_lines(fit_link_table(builder.view(ids[-1]), DisplayOptions()), DisplayOptions()))
    assert [re.findall(r"resp_\w+", line) for line in lines[1:]] == [[one] for one in short]


def test_a_conversation_without_responses_has_no_rows() -> None:
    view = replace(build_chain(1).view("resp_1"), links=(), current_link_id=None)
    assert list(table_lines(fit_link_table(view, DisplayOptions()), DisplayOptions()))[1:] == []


SHORT = """\
response     sent     input  output  context       preview
┌─○ try_0a   full 1       -       -                ✗ failed: What is a monad? →…
● resp_1     full 1      12       9  ▓▓▓▓████████  What is a monad? → A monoid…
├─● resp_3b  delta 1     12       9  ░░░░████████  Say it simply. → A box that…
│ ● resp_4b  delta 1     12       9  ░░░░▒▒██████  Simpler! → A box.
● resp_2     delta 1     12       9  ░░░░████████  And in Haskell? → A type…
@ resp_5     delta 1     12       9  ░░░░████████  Show me some. → Maybe, list,…

█ sent · ▓ sent, cached · ▒ prepended by the server · ░ prepended, cached"""

SHORT_IN_40 = """\
response     input  preview
┌─○ try_0a       -  ✗ failed: What is a…
● resp_1        12  What is a monad? →…
├─● resp_3b     12  Say it simply. → A…
│ ● resp_4b     12  Simpler! → A box.
● resp_2        12  And in Haskell? → A…
@ resp_5        12  Show me some. →…"""


def render_short_tree(builder: ConversationBuilder, head_id: str | None, display: DisplayOptions) -> str:
    return render_conversation(builder.view(head_id), display, with_panel=False).partition("\n\n")[2]


def test_a_terminal_shows_a_short_tree_with_bars() -> None:
    assert render_short_tree(build_forked(), "resp_5", DisplayOptions(80)) == SHORT
    assert render_short_tree(build_forked(), "resp_5", DisplayOptions(40)) == SHORT_IN_40
    ascii_tree = render_short_tree(build_forked(), "resp_5", DisplayOptions(80, has_box_chars=False))
    assert ascii_tree.isascii()


def test_a_branch_is_below_the_request_that_it_forks_from() -> None:
    builder = build_chain(2)
    builder.turn("resp_a1", "first fork", "yes", after="resp_1")
    builder.turn("resp_b1", "second fork", "yes", after="resp_1")
    builder.turn("resp_b2", "goes on", "yes", after="resp_b1")
    builder.turn("resp_c1", "fork of a fork", "yes", after="resp_b1")
    lines = render_short_tree(builder, "resp_2", DisplayOptions(100)).splitlines()
    assert [line[:13].rstrip() for line in lines[1:-2]] == [
        "● resp_1",
        "├─● resp_a1",
        "├─● resp_b1",
        "│ ├─● resp_b2",
        "│ ● resp_c1",
        "@ resp_2",
    ]


def test_branches_of_one_request_are_forks_without_a_word() -> None:
    builder = build_chain(2)
    builder.turn("resp_a1", "first fork", "yes", after="resp_1")
    builder.turn("resp_b1", "second fork", "yes", after="resp_1")
    lines = render_short_tree(builder, "resp_2", DisplayOptions(40)).splitlines()
    assert [line[:18].rstrip() for line in lines[1:5]] == [
        "● resp_1        12",
        "├─● resp_a1     12",
        "├─● resp_b1     12",
        "@ resp_2        12",
    ]


def test_another_start_has_its_own_continuation_below_it() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_a1", "one start", "yes")
    builder.turn("resp_a2", "goes on", "yes", after="resp_a1")
    builder.turn("resp_b1", "another start", "yes")
    lines = render_short_tree(builder, "resp_b1", DisplayOptions(100)).splitlines()
    assert [line[:11].rstrip() for line in lines[1:-2]] == ["┌─● resp_a1", "│ ● resp_a2", "@ resp_b1"]


def test_the_tree_lines_are_dim_and_the_id_has_the_accent_color() -> None:
    lines = render_short_tree(build_forked(), "resp_5", DisplayOptions(80, has_color=True)).splitlines()
    assert lines[3].startswith("\x1b[2m├─\x1b[0m\x1b[36m● resp_3b\x1b[0m")


def test_the_legend_is_dim_and_its_signs_have_the_color_of_the_bars() -> None:
    lines = render_short_tree(build_forked(), "resp_5", DisplayOptions(80, has_color=True)).splitlines()
    assert lines[-2] == ""
    assert lines[-1].startswith("\x1b[36m█\x1b[0m \x1b[2msent\x1b[0m\x1b[2m · \x1b[0m\x1b[36m▓\x1b[0m")


def test_a_short_tree_fits_into_every_terminal_and_has_a_line_for_each_request() -> None:
    builder = build_chain(1)
    for depth in range(60):
        before = "resp_1" if depth == 0 else f"resp_d{depth - 1}"
        builder.turn(f"resp_d{depth}", "down", "and down", after=before)
        builder.turn(f"resp_e{depth}", "along", "the line", after=before)
    for columns in (1, 20, 40, 80, 120):
        lines = render_short_tree(builder, None, DisplayOptions(columns)).splitlines()
        assert len(lines) >= 122
        assert max(map(text_width, lines[:122])) <= columns
    long = render_short_tree(build_chain(2_000), "resp_2000", DisplayOptions(80)).splitlines()
    assert [line[:2] for line in long[1:-2]] == ["● "] * 1_999 + ["@ "]


def test_less_important_columns_of_a_short_tree_make_room_for_the_preview() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "What is a monad?", "yes", session_id="ses_1")
    builder.turn("resp_2", "And in Haskell, with words?", "no", after="resp_1", session_id="ses_2")
    view = builder.view("resp_2", session_names={"ses_1": "a-session-named", "ses_2": "another"})
    headings = {}
    for columns in (80, 100):
        text = render_conversation(view, DisplayOptions(columns), with_panel=False).partition("\n\n")[2]
        headings[columns] = text.partition("\n")[0].split()
        assert "And in Haskell" in text
    assert headings[100] == ["response", "session", "sent", "input", "output", "context", "preview"]
    assert len(headings[80]) < len(headings[100])
    assert "session" in headings[80]
