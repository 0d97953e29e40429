"""The screen of the next request; `tests.cli.test_next` runs its command."""

import json
from dataclasses import replace
from typing import Any

from convo.chat.next_request import NextRequest
from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.inspect.context_window import request_parts, sum_context_usage
from convo.inspect.request_code import build_curl_command
from convo.terminal.inspect_view import render_next_request
from convo.terminal.terminal import DisplayOptions
from convo.usage.model_info import ModelWindow

HISTORY = Path(root_key("local")).append(
    [user_message("one"), assistant_message("two"), user_message("three"), assistant_message("four")]
)
BODY: dict[str, Any] = {"model": "m", "input": [user_message("größer \x1b[31m")], "previous_response_id": "resp_1"}
USAGE = sum_context_usage(
    request_parts(HISTORY.items, "held by resp_1", BODY, None), ModelWindow(10_000), endpoint_count=51
)
REQUEST = NextRequest(
    handle="mine",
    strategy=Strategy.CHAIN,
    owner_handle="resp_1",
    prepended_nodes=tuple(HISTORY.nodes),
    model="openai/m",
    url="https://api.example/v1/responses",
    body=BODY,
    context_usage=USAGE,
    headers={"api-key": "{key}"},
    key_env="MY_KEY",
)


def test_items_that_the_server_prepends_are_shown_separately_and_truncated() -> None:
    lines = render_next_request(REQUEST, DisplayOptions(), max_prepended=2).splitlines()
    assert lines[:6] == [
        "4 items of resp_1 prepended by the server",
        "      2 earlier items not shown",
        "   3  message user: three",
        "   4  message assistant: four",
        "",
        "POST https://api.example/v1/responses",
    ]


def test_the_total_names_its_source_and_its_share_of_the_window() -> None:
    assert render_next_request(REQUEST, DisplayOptions()).splitlines()[-1] == (
        "51 tokens, counted by the endpoint; 0.5% of the context window of 10,000"
    )


def test_no_text_of_the_conversation_moves_the_cursor() -> None:
    output = render_next_request(REQUEST, DisplayOptions(width=60))
    assert "\x1b" not in output
    assert "größer" in output


def test_no_server_side_context_is_stated() -> None:
    assert render_next_request(replace(REQUEST, prepended_nodes=()), DisplayOptions()).startswith(
        "no server-side context\nPOST "
    )


def test_the_curl_command_is_ascii_and_names_only_the_variable_of_the_key() -> None:
    command = build_curl_command("https://api.example/v1/responses", {"api-key": "{key}"}, BODY, "MY_KEY")
    assert command.isascii()
    assert '-H "api-key: ${MY_KEY}"' in command
    assert "\x1b" not in command


def test_a_long_input_has_one_item_per_line_and_is_the_same_json() -> None:
    body = {**BODY, "input": [user_message(f"größer {number}") for number in range(200)]}
    lines = render_next_request(replace(REQUEST, body=body, prepended_nodes=()), DisplayOptions()).splitlines()
    body_lines = lines[lines.index("{") : lines.index("}") + 1]
    assert json.loads("\n".join(body_lines)) == body
    assert len(body_lines) < 210
