"""The screens of `convo diff`."""

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.inspect.diff import SentRequest, diff_histories, diff_requests
from convo.terminal.diff_view import DiffSide, render_history_diff, render_request_diff
from convo.terminal.terminal import DisplayOptions
from convo.usage.cost import Usage

PLAIN = DisplayOptions()
NUMBERS: list[Item] = [user_message(str(number)) for number in range(5)]
A: list[Item] = [user_message("one"), assistant_message("two"), *NUMBERS, user_message("only\x1b here")]
B: list[Item] = [user_message("one"), assistant_message("2"), *NUMBERS, user_message("end"), assistant_message("end")]


def side_by_side(a: list[Item], b: list[Item], display: DisplayOptions = PLAIN) -> list[str]:
    first, second = DiffSide("talk.json", "this file", a), DiffSide("resp_1", "the endpoint", b)
    return render_history_diff(first, second, diff_histories(a, b), display).splitlines()


def test_everything_after_the_first_difference_is_shown_side_by_side() -> None:
    assert side_by_side(A, B) == [
        "  A  talk.json, 8 items, this file",
        "  B  resp_1, 9 items, the endpoint",
        "     common prefix: 1 item; item 2 differs in content[0].text",
        "",
        "  A                                                              B",
        "     2  message assistant: two                                 |    2  message assistant: 2",
        "  5 items identical",
        "     8  message user: only\\x1b here                            |    8  message user: end",
        "                                                               >    9  message assistant: end",
        "",
        "  0 only in A, 1 only in B, 2 changed, 5 identical after the first difference",
    ]


def test_differences_are_colored_and_equal_groups_are_dim() -> None:
    lines = side_by_side(A, B, DisplayOptions(61, has_color=True))[4:9]
    assert [line.partition("m")[0] for line in lines] == ["\x1b[2", "\x1b[1", "\x1b[2", "\x1b[1", "\x1b[32"]
    assert lines[2] == "\x1b[2m  5 items identical\x1b[0m"


def test_a_short_group_of_equal_items_is_listed_and_sides_are_cut_to_the_terminal() -> None:
    a = [user_message("a" * 40), *NUMBERS[:3], assistant_message("end")]
    b = [user_message("b" * 40), *NUMBERS[:3]]
    assert side_by_side(a, b, DisplayOptions(61)) == [
        "  A  talk.json, 5 items, this file",
        "  B  resp_1, 4 items, the endpoint",
        "     no common prefix; item 1 differs in content[0].text",
        "",
        "  A                              B",
        "     1  message user: aaaaaaa… |    1  message user: bbbbbbb…",
        "     2  message user: 0             2  message user: 0",
        "     3  message user: 1             3  message user: 1",
        "     4  message user: 2             4  message user: 2",
        "     5  message assistant: end <",
        "",
        "  1 only in A, 0 only in B, 1 changed, 3 identical after the first difference",
    ]
    assert side_by_side(a, b, DisplayOptions(20, has_color=True))[4:] == [
        "     items, the",
        "     endpoint",
        "  \x1b[2m \x1b[0m  no common",
        "     prefix; item 1",
        "     differs in",
        "     content[0].text",
        "",
        "\x1b[2m  A                  B\x1b[0m",
        "\x1b[1m     1  message u… |    1  message u…\x1b[0m",
        "     2  message u…      2  message u…",
        "     3  message u…      3  message u…",
        "     4  message u…      4  message u…",
        "\x1b[31m     5  message a… <\x1b[0m",
        "",
        "  1 only in A, 0 only in B, 1 changed, 3 identical after the first difference",
    ]


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (A, A, "identical: 8 items"),
        (A[:1], A[:1], "identical: 1 item"),
        (A, A[:2], "common prefix: 2 items; A has more items"),
        (A[:1], A, "common prefix: 1 item; B has more items"),
        ([], A, "no common prefix; B has more items"),
        (A, B, "common prefix: 1 item; item 2 differs in content[0].text"),
    ],
)
def test_the_first_difference_is_described(a: list[Item], b: list[Item], text: str) -> None:
    lines = side_by_side(a, b)
    assert lines[2].strip() == text
    assert (len(lines) == 3) is (a == b)


def request(name: str, *items: Item, usage: Usage | None = None, prepended: tuple[Item, ...] = ()) -> SentRequest:
    return SentRequest(name, "openai/gpt-5", {"model": "gpt-5", "input": list(items)}, prepended, usage)


def test_two_requests_show_the_byte_that_differs_and_the_cached_tokens() -> None:
    first = request("resp_1", user_message("one"))
    second = request(
        "resp_2", user_message("one"), user_message("more"), usage=Usage(2_000, 1_024, 5), prepended=(A[0],)
    )
    assert render_request_diff(first, second, diff_requests(first, second), DisplayOptions()).splitlines() == [
        "  A           resp_1, openai/gpt-5, 107 bytes",
        "  B           resp_2, openai/gpt-5, 188 bytes, 1 item prepended by the server",
        "  difference  at byte 105, in input[1]",
        "  A has       (nothing)",
        '  B has       {"content":[{"text":"mor…',
        "  prefix      5 tokens at the start of both inputs are the same",
        "  expected    at most 0 of them cached",
        "  reported    1,024 cached of 2,000 input tokens of B",
    ]


def test_two_equal_requests_have_no_difference() -> None:
    first = SentRequest("a.json", "", {"input": "one"})
    assert render_request_diff(first, first, diff_requests(first, first), DisplayOptions()).splitlines() == [
        "  A           a.json, a file, 15 bytes",
        "  B           a.json, a file, 15 bytes",
        "  difference  none, the requests are byte-identical",
        "  prefix      about 5 tokens at the start of both inputs are the same",
        "  expected    at most 5 of them cached",
        "  reported    not reported",
    ]
