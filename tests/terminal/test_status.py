"""The output of /status."""

from dataclasses import replace

from convo.history.items import assistant_message, user_message
from convo.history.records import Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.strategies.strategy import ConversationState
from convo.terminal.status_line import format_status

EMPTY = Path(root_key("local"))
HISTORY = EMPTY.append([user_message("one"), assistant_message("two"), user_message("three")])
SESSION = Session("ses_1", "mine", Strategy.SESSION, "scripted/echo", EMPTY.head, EMPTY.head, 0.0, 0.0)


def rows(text: str) -> dict[str, str]:
    """The values of a status by their labels."""
    return {line[:13].strip(): line[14:] for line in text.splitlines()}


def test_a_new_chat_has_no_name_and_no_handle_yet() -> None:
    session = replace(SESSION, name="", strategy=Strategy.CHAIN)
    status = rows(format_status(session, ConversationState(Strategy.CHAIN, EMPTY, EMPTY.head), "scripted/echo"))
    assert status == {
        "owner": "the endpoint's Responses API (--chain)",
        "session": "(named after the first message)",
        "handle": "(created by the first response)",
        "endpoint": "embedded",
        "model": "scripted/echo",
        "items": "0",
        "turn sends": "the unconfirmed items",
    }


def test_unconfirmed_items_are_counted() -> None:
    state = ConversationState(Strategy.SESSION, HISTORY, HISTORY.first(2).head)
    status = rows(format_status(replace(SESSION, scope=Scope("https://x/v1", "org")), state, "openai/gpt-5"))
    assert status["items"] == "3, 1 unconfirmed"
    assert (status["handle"], status["turn sends"]) == ("(the session name)", "the full history")
    assert (status["endpoint"], status["model"]) == ("https://x/v1 (org)", "openai/gpt-5")
