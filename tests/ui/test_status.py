"""What /status and /next say."""

import json
from dataclasses import replace

import pytest

from convo.history import Path, Scope, Session, Strategy, root
from convo.items import assistant, user
from convo.strategies import Held
from convo.ui.status import next_request, status

EMPTY = Path(root("local"))
ASKED = EMPTY.grow([user("one"), assistant("two"), user("three")])
SESSION = Session("ses_1", "mine", Strategy.SESSION, "scripted/echo", EMPTY.head, EMPTY.head, 0.0, 0.0)


def rows(text: str) -> dict[str, str]:
    """The lines of a status by their names."""
    return {line[:13].strip(): line[14:] for line in text.splitlines()}


def test_a_new_chat_has_no_name_and_no_handle_yet() -> None:
    session = replace(SESSION, name="", strategy=Strategy.CHAIN)
    shown = rows(status(session, Held(Strategy.CHAIN, EMPTY, EMPTY.head), "scripted/echo"))
    assert shown == {
        "owner": "the endpoint's Responses API (--chain)",
        "session": "(named after the first message)",
        "handle": "(made by the first answer)",
        "endpoint": "embedded",
        "model": "scripted/echo",
        "items": "0",
        "turn sends": "what the owner has not acknowledged",
    }


def test_what_is_unacknowledged_is_counted() -> None:
    held = Held(Strategy.SESSION, ASKED, ASKED.first(2).head)
    shown = rows(status(replace(SESSION, scope=Scope("https://x/v1", "org")), held, "openai/gpt-5"))
    assert shown["items"] == "3, of them 1 unacknowledged"
    assert (shown["handle"], shown["turn sends"]) == ("the session itself", "the whole path")
    assert (shown["endpoint"], shown["model"]) == ("https://x/v1 (org)", "openai/gpt-5")


@pytest.mark.parametrize(
    ("strategy", "mark", "before"),
    [
        (Strategy.SESSION, 2, "nothing stands before it"),
        (Strategy.REPLAY, 2, "nothing stands before it"),
        (Strategy.CHAIN, 0, "nothing stands before it"),
        (Strategy.CHAIN, 1, "the owner puts 1 item of resp_1 before it"),
        (Strategy.CONVERSATION, 2, "the owner puts 2 items of resp_1 before it"),
    ],
)
def test_what_the_owner_puts_before_the_request_is_set_apart(strategy: Strategy, mark: int, before: str) -> None:
    held = Held(strategy, ASKED, ASKED.first(mark).head, "resp_1" if mark else None)
    body = {"model": "m", "input": [user("größer")]}
    first, second, *rest = next_request(held, body, "https://api.example/v1").split("\n")
    assert (first, second) == (before, "POST https://api.example/v1/responses")
    assert json.loads("\n".join(rest)) == {**body, "stream": True}
    assert "größer" in "".join(rest)


def test_a_request_to_our_own_endpoint_does_not_travel() -> None:
    held = Held(Strategy.SESSION, ASKED, ASKED.head)
    _, where, *rest = next_request(held, {"model": "m"}, "embedded").split("\n")
    assert where == "to convo's own endpoint, in this process"
    assert json.loads("\n".join(rest)) == {"model": "m"}
