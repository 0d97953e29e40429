"""The tree of the links of a conversation."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from convo.history.records import Strategy
from convo.terminal.inspect_view import fit_link_table
from convo.terminal.terminal import DisplayOptions, table_lines, text_width
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
