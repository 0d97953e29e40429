"""The first difference between a local record and the history of its owner."""

import pytest

from convo.inspect.diff import describe_drift
from tests.inspect.conversation_builder import alternating_messages


@pytest.mark.parametrize(
    ("local", "remote", "sentence"),
    [
        (["a", "b"], ["a", "b"], ""),
        (["a"], ["a", "b"], "the file has 1 item more than this record"),
        (["a"], ["a", "b", "c"], "the file has 2 items more than this record"),
        (["a", "b"], ["a"], "the file lacks 1 item that this record has"),
        (["a", "b"], ["a", "c"], "the file and this record differ from item 2 on"),
        (["a", "b", "c", "d"], ["a", "b"], "the file lacks 2 items that this record has"),
        ([], ["a"] * 1_234, "the file has 1,234 items more than this record"),
        ([], [], ""),
    ],
)
def test_the_first_difference_is_described_in_a_sentence(local: list[str], remote: list[str], sentence: str) -> None:
    assert describe_drift(alternating_messages(*local), alternating_messages(*remote), "the file") == sentence


def test_an_item_in_another_form_does_not_differ() -> None:
    assert (
        describe_drift(alternating_messages("a"), [{"role": "user", "content": "a", "id": "msg_1"}], "the file") == ""
    )
