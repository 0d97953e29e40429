"""The screens of `convo diff`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.history.items import Item, assistant_message, user_message
from convo.inspect.diff import SentRequest, diff_histories, diff_requests
from convo.terminal.diff_view import DiffSide, render_history_diff, render_request_diff
from convo.terminal.terminal import DisplayOptions, text_width
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


def test_a_short_group_of_equal_items_is_listed_side_by_side() -> None:
    a = [user_message("a" * 40), *NUMBERS[:3], assistant_message("end")]
    b = [user_message("b" * 80), *NUMBERS[:3]]
    assert [line.rstrip() for line in side_by_side(a, b)[3:]] == [
        "",
        "  A                                                              B",
        f"     1  message user: {'a' * 40} |    1  message user: {'b' * 39}…",
        f"     2  message user: 0{' ' * 39}      2  message user: 0",
        f"     3  message user: 1{' ' * 39}      3  message user: 1",
        f"     4  message user: 2{' ' * 39}      4  message user: 2",
        f"     5  message assistant: end{' ' * 32} <",
        "",
        "  1 only in A, 0 only in B, 1 changed, 3 identical after the first difference",
    ]


def test_a_terminal_shows_a_unified_diff() -> None:
    a = [user_message("hi"), *A]
    b = [user_message("hi"), *B]
    assert side_by_side(a, b, DisplayOptions(40)) == [
        "--- talk.json (A): 9 items, this file",
        "+++ resp_1 (B): 10 items, the endpoint",
        "@@ common prefix: 2 items; item 3",
        "  differs in content[0].text @@",
        "",
        "  2 user: one",
        "- 3 assistant: two",
        "+ 3 assistant: 2",
        "  5 identical items; the last one:",
        "  8 user: 4",
        "- 9 user: only\\x1b here",
        "+ 9 user: end",
        "+ 10 assistant: end",
        "",
        "1 only in B, 2 changed,",
        "5 identical after the first difference",
    ]


def test_a_unified_diff_has_the_colors_of_a_diff_and_its_equal_items_have_none() -> None:
    lines = side_by_side(A, B, DisplayOptions(80, has_color=True))
    assert [line for line in lines if "\x1b" in line] == [
        "\x1b[31m--- talk.json (A): 8 items, this file\x1b[0m",
        "\x1b[32m+++ resp_1 (B): 9 items, the endpoint\x1b[0m",
        "\x1b[36m@@ common prefix: 1 item; item 2 differs in content[0].text @@\x1b[0m",
        "\x1b[31m- 2 assistant: two\x1b[0m",
        "\x1b[32m+ 2 assistant: 2\x1b[0m",
        "\x1b[2m  5 identical items; the last one:\x1b[0m",
        "\x1b[31m- 8 user: only\\x1b here\x1b[0m",
        "\x1b[32m+ 8 user: end\x1b[0m",
        "\x1b[32m+ 9 assistant: end\x1b[0m",
        "\x1b[32m1 only in B\x1b[0m, \x1b[33m2 changed\x1b[0m, \x1b[2m5 identical after the first difference\x1b[0m",
    ]


def test_the_words_that_differ_in_two_similar_texts_are_reversed() -> None:
    a: list[Item] = [user_message("Plan a day in Oslo\x1b for two.")]
    b: list[Item] = [user_message("Plan a week in Oslo\x1b for two.")]
    lines = side_by_side(a, b, DisplayOptions(30, has_color=True))
    assert [line for line in lines if " user: " in line or "Oslo" in line] == [
        "\x1b[31m- 1 user: Plan a \x1b[0m\x1b[31m\x1b[7mday\x1b[0m\x1b[31m in\x1b[0m",
        "\x1b[31m-   Oslo\\x1b for two.\x1b[0m",
        "\x1b[32m+ 1 user: Plan a \x1b[0m\x1b[32m\x1b[7mweek\x1b[0m\x1b[32m in\x1b[0m",
        "\x1b[32m+   Oslo\\x1b for two.\x1b[0m",
    ]
    assert "\x1b" not in "".join(side_by_side(a, b, DisplayOptions(30)))


def unified_items(a: list[Item], b: list[Item], columns: int) -> list[str]:
    """The lines of a unified diff between its head and its totals."""
    _, items, _ = "\n".join(side_by_side(a, b, DisplayOptions(columns))).split("\n\n")
    return items.splitlines()


def test_a_long_text_is_wrapped_with_its_mark_and_an_indent() -> None:
    question = "Which museums are open on Sunday?\n  - and their prices\n\nThanks"
    assert unified_items([user_message("Which museums?")], [user_message(question)], 30) == [
        "- 1 user: Which museums?",
        "+ 1 user: Which museums are",
        "+   open on Sunday?",
        "+     - and their prices",
        "+",
        "+   Thanks",
    ]


def test_two_long_texts_are_shown_from_just_before_their_difference() -> None:
    common = "The museums of Oslo are open on Sunday. " * 40
    a, b = f"{common}The Munch museum is one. {common}", f"{common}The Fram museum is one. {common}"
    lines = unified_items([user_message(a)], [user_message(b)], 40)
    assert lines[:2] == ["- 1 user: … of Oslo are open on Sunday.", "-   The Munch museum is one. The museums"]
    assert lines[7:10] == [
        "-   … 3,225 characters in all",
        "+ 1 user: … of Oslo are open on Sunday.",
        "+   The Fram museum is one. The museums",
    ]
    assert len(lines) == 16


def test_an_item_is_cut_and_a_group_at_the_end_is_only_counted() -> None:
    lines = unified_items([user_message("one"), *NUMBERS], [user_message("two " * 1_000), *NUMBERS], 60)
    assert lines[0] == "- 1 user: one"
    assert len(lines) == 10
    assert lines[-2:] == ["+   … 4,000 characters in all", "  5 identical items"]
    assert unified_items([user_message("one"), NUMBERS[0]], [NUMBERS[0]], 60) == ["- 1 user: one", "  2 user: 0"]


def call(arguments: str, call_id: str = "call_1") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": arguments}


def test_calls_show_their_arguments_and_equal_texts_the_field_that_differs() -> None:
    assert unified_items([call('{"city":"Z\\u00fcrich"}')], [call('{"city":"Bergen"}')], 60) == [
        '- 1 function_call: weather {"city":"Zürich"}',
        '+ 1 function_call: weather {"city":"Bergen"}',
    ]
    lines = unified_items([call("{}")], [call("{}", "call_2")], 120)
    assert ['"call_1"' in line for line in lines] == [True, False]
    assert ['"call_2"' in line for line in lines] == [False, True]


@given(
    st.lists(st.text("ab -/日\t\n\x1b", max_size=80), max_size=4),
    st.lists(st.text("ab -/日\t\n\x1b", max_size=80), max_size=4),
    st.integers(24, 60),
)
def test_no_line_of_a_unified_diff_is_wider_than_the_terminal(a: list[str], b: list[str], columns: int) -> None:
    lines = side_by_side(
        [user_message(text) for text in a], [user_message(text) for text in b], DisplayOptions(columns)
    )
    assert max(map(text_width, lines)) <= columns


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
