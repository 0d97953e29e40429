"""The token chart of `convo inspect`, at three widths and without Unicode."""

from dataclasses import replace

from convo.history.records import Strategy
from convo.inspect.view import ConversationView
from convo.terminal.inspect_view import render_conversation, render_token_chart
from convo.terminal.terminal import ASCII_BARS, DisplayOptions, text_width
from tests.inspect.conversation_builder import ConversationBuilder


def usage(tokens: int, cached: int = 0) -> dict[str, object]:
    return {"input_tokens": tokens, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": 9}


def growing_chain(**second_turn: object) -> ConversationView:
    """A chain that grows and forks; its middle request is half cached."""
    builder = ConversationBuilder()
    builder.turn("resp_1", "What is a monad?", "A monoid.", usage=usage(20))
    builder.turn("resp_2", "And in Haskell?", "A type class.", after="resp_1", usage=usage(80, 40), **second_turn)
    builder.turn("resp_3", "Again, and simply.", "A box.", after="resp_1", usage=usage(160))
    return builder.view("resp_3")


LEGEND = "█ sent · ▒ prepended by the server · ░ prepended, cached"

IN_80 = f"""\
response    owner  input  cached  ~sent  context
● resp_1    chain     20       0     20  █████
├─● resp_2  chain     80      40      8  ░░░░░░░░░░▒▒▒▒▒▒▒▒██
@ resp_3    chain    160       0      9  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒██

{LEGEND}"""

IN_40 = """\
response    input  cached  context
● resp_1       20       0  ██
├─● resp_2     80      40  ░░░▒▒█
@ resp_3      160       0  ▒▒▒▒▒▒▒▒▒▒▒▒█

█ sent · ▒ prepended by the server
░ prepended, cached"""


def test_a_bar_shows_sent_prepended_and_cached_tokens() -> None:
    assert render_token_chart(growing_chain(), DisplayOptions(80)) == IN_80
    assert render_token_chart(growing_chain(), DisplayOptions(40)) == IN_40


def test_the_chart_fits_and_is_shown_only_in_a_terminal_below_the_tree() -> None:
    for columns in (40, 80, 120):
        output = render_conversation(growing_chain(), DisplayOptions(columns)).split("\n")
        assert max(map(text_width, output)) <= columns
        assert "░" in "".join(output)
    assert "░" not in render_conversation(growing_chain(), DisplayOptions())


def test_the_longest_bar_has_at_least_twelve_cells() -> None:
    assert (
        render_token_chart(growing_chain(), DisplayOptions(39)).splitlines()[3]
        == "@ resp_3      160       0  ▒▒▒▒▒▒▒▒▒▒▒█"
    )


def test_without_unicode_the_signs_are_distinct_letters() -> None:
    output = render_token_chart(growing_chain(), DisplayOptions(80, has_box_chars=False))
    assert output.isascii()
    assert "|-* resp_2  chain     80      40      8  ----------++++++++##" in output
    assert len(set(ASCII_BARS.values())) == len(ASCII_BARS)


def test_without_colours_a_bar_shows_the_same() -> None:
    coloured = render_token_chart(growing_chain(), DisplayOptions(80, has_color=True))
    assert "\x1b[" in coloured
    assert all(bar in coloured for bar in ("█████", "░░░░░░░░░░▒▒▒▒▒▒▒▒██"))


def test_each_row_names_its_strategy_if_there_are_several() -> None:
    mixed = growing_chain(strategy=Strategy.SESSION)
    assert "├─● resp_2  session     80" in render_token_chart(mixed, DisplayOptions(40))
    (line,) = [
        line
        for line in render_conversation(mixed, DisplayOptions(80)).split("\n")
        if "resp_2" in line and "delta" in line
    ]
    assert line.split()[:3] == ["├─●", "resp_2", "session"]


def test_no_chart_is_drawn_without_usage() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "hi", "hello", usage=None)
    assert render_token_chart(builder.view("resp_1"), DisplayOptions(80)) == "no request reported its input tokens"
    assert (
        render_token_chart(replace(builder.view("resp_1"), links=()), DisplayOptions(80))
        == "no request reported its input tokens"
    )
    builder.turn("resp_2", "and you?", "fine", after="resp_1", usage=None)
    output = render_conversation(builder.view("resp_2"), DisplayOptions(80))
    assert output == render_conversation(builder.view("resp_2"), DisplayOptions(80), with_chart=False)
