"""The responses of one conversation in a sequence."""

from dataclasses import replace

from convo.history.records import Strategy
from convo.inspect.tree import order_by_conversation
from tests.inspect.conversation_builder import ConversationBuilder


def conversation() -> ConversationBuilder:
    """Return three turns in one list without recorded parents."""
    builder = ConversationBuilder(Strategy.CONVERSATION)
    builder.turn("resp_1", "a", "b")
    builder.turn("resp_2", "c", "d", after="resp_1")
    builder.turn("resp_3", "e", "f", after="resp_2")
    builder.links = [replace(link, parent_id=None) for link in builder.links]
    return builder


def parents(builder: ConversationBuilder) -> list[tuple[str, str | None]]:
    return [
        (link.id, link.parent_id) for link in order_by_conversation(builder.links, builder.view("resp_3").path_index)
    ]


def test_each_response_continues_the_one_before_it_in_the_list() -> None:
    builder = conversation()
    builder.links.reverse()
    assert parents(builder) == [("resp_1", None), ("resp_2", "resp_1"), ("resp_3", "resp_2")]


def test_a_recorded_parent_takes_precedence() -> None:
    builder = conversation()
    builder.links[2] = replace(builder.links[2], parent_id="resp_1")
    assert parents(builder)[2] == ("resp_3", "resp_1")


def test_no_response_continues_a_failed_attempt() -> None:
    builder = conversation()
    builder.links[1] = replace(builder.links[1], status="failed")
    assert parents(builder) == [("resp_1", None), ("resp_2", "resp_1"), ("resp_3", "resp_1")]
