"""The next request on a screen; that its command runs is tried in `tests.cli.test_next`."""

import json
from dataclasses import replace
from typing import Any

from convo.history import Path, Strategy, root
from convo.inspection.coming import Coming
from convo.inspection.window import filled, requested
from convo.items import assistant, user
from convo.tokens import Window
from convo.ui.coming import curl, screen
from convo.ui.medium import Medium

ASKED = Path(root("local")).grow([user("one"), assistant("two"), user("three"), assistant("four")])
BODY: dict[str, Any] = {"model": "m", "input": [user("größer \x1b[31m")], "previous_response_id": "resp_1"}
FILLING = filled(requested(ASKED.items, "held by resp_1", BODY, None), Window(10_000), counted=51)
COMING = Coming(
    handle="mine",
    strategy=Strategy.CHAIN,
    owner="resp_1",
    before=tuple(ASKED.nodes),
    model="openai/m",
    url="https://api.example/v1/responses",
    body=BODY,
    filling=FILLING,
    headers={"api-key": "{key}"},
    key_env="MY_KEY",
)


def test_what_the_owner_puts_before_it_stands_apart_and_the_last_of_many_will_do() -> None:
    lines = screen(COMING, Medium(), most=2).splitlines()
    assert lines[:6] == [
        "the owner puts 4 items of resp_1 before it",
        "      2 items before these",
        "   3  message user: three",
        "   4  message assistant: four",
        "",
        "POST https://api.example/v1/responses",
    ]


def test_the_sum_says_who_counted_and_what_of_the_window_it_takes() -> None:
    assert screen(COMING, Medium()).splitlines()[-1] == (
        "51 tokens, counted by the endpoint; 0.5% of a window of 10,000"
    )


def test_nothing_that_was_said_moves_the_cursor() -> None:
    shown = screen(COMING, Medium(width=60))
    assert "\x1b" not in shown
    assert "größer" in shown


def test_nothing_before_it_is_said_in_words() -> None:
    assert screen(replace(COMING, before=()), Medium()).startswith("nothing stands before it\nPOST ")


def test_a_command_is_ascii_and_names_the_variable_alone() -> None:
    command = curl(COMING)
    assert command.isascii()
    assert '-H "api-key: ${MY_KEY}"' in command
    assert "\x1b" not in command


def test_a_long_input_has_an_item_a_line_and_is_the_same_json() -> None:
    body = {**BODY, "input": [user(f"größer {number}") for number in range(200)]}
    lines = screen(replace(COMING, body=body, before=()), Medium()).splitlines()
    shown = lines[lines.index("{") : lines.index("}") + 1]
    assert json.loads("\n".join(shown)) == body
    assert len(shown) < 210
