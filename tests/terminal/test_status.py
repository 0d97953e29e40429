"""The output of /status."""

from dataclasses import replace

from convo.history.items import assistant_message, user_message
from convo.history.records import Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.strategies.strategy import ConversationState
from convo.terminal.status_line import format_status

EMPTY = Path(root_key("local"))
ASKED = EMPTY.append([user_message("one"), assistant_message("two"), user_message("three")])
SESSION = Session("ses_1", "mine", Strategy.SESSION, "scripted/echo", EMPTY.head, EMPTY.head, 0.0, 0.0)


def rows(text: str) -> dict[str, str]:
    """The values of a status by their labels."""
    return {line[:13].strip(): line[14:] for line in text.splitlines()}


def test_a_new_chat_has_no_name_and_no_handle_yet() -> None:
    session = replace(SESSION, name="", strategy=Strategy.CHAIN)
    shown = rows(format_status(session, ConversationState(Strategy.CHAIN, EMPTY, EMPTY.head), "scripted/echo"))
    assert shown == {
        "owner": "the endpoint's Responses API (--chain)",
        "session": "(named after the first message)",
        "handle": "(created by the first response)",
        "endpoint": "embedded",
        "model": "scripted/echo",
        "items": "0",
        "turn sends": "the unconfirmed items",
    }


def test_unconfirmed_items_are_counted() -> None:
    held = ConversationState(Strategy.SESSION, ASKED, ASKED.first(2).head)
    shown = rows(format_status(replace(SESSION, scope=Scope("https://x/v1", "org")), held, "openai/gpt-5"))
    assert shown["items"] == "3, 1 unconfirmed"
    assert (shown["handle"], shown["turn sends"]) == ("(the session name)", "the full history")
    assert (shown["endpoint"], shown["model"]) == ("https://x/v1 (org)", "openai/gpt-5")
