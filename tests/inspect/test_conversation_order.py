"""The responses of one conversation in a sequence."""

from dataclasses import replace

from convo.history.records import Strategy
from convo.inspect.tree import order_by_conversation
from tests.inspect.conversation_builder import ConversationBuilder


def conversation() -> ConversationBuilder:
    """Return three turns in one list without recorded parents."""
    talk = ConversationBuilder(Strategy.CONVERSATION)
    talk.turn("resp_1", "a", "b")
    talk.turn("resp_2", "c", "d", after="resp_1")
    talk.turn("resp_3", "e", "f", after="resp_2")
    talk.links = [replace(link, parent_id=None) for link in talk.links]
    return talk


def parents(talk: ConversationBuilder) -> list[tuple[str, str | None]]:
    return [(link.id, link.parent_id) for link in order_by_conversation(talk.links, talk.view("resp_3").path_index)]


def test_each_response_continues_the_one_before_it_in_the_list() -> None:
    talk = conversation()
    talk.links.reverse()
    assert parents(talk) == [("resp_1", None), ("resp_2", "resp_1"), ("resp_3", "resp_2")]


def test_a_recorded_parent_takes_precedence() -> None:
    talk = conversation()
    talk.links[2] = replace(talk.links[2], parent_id="resp_1")
    assert parents(talk)[2] == ("resp_3", "resp_1")


def test_no_response_continues_a_failed_attempt() -> None:
    talk = conversation()
    talk.links[1] = replace(talk.links[1], status="failed")
    assert parents(talk) == [("resp_1", None), ("resp_2", "resp_1"), ("resp_3", "resp_1")]
