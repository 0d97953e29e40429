"""What /status says."""

from dataclasses import replace

from convo.history import Path, Scope, Session, Strategy, root
from convo.items import assistant, user
from convo.strategies import Held
from convo.ui.status import status

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
