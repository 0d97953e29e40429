"""The context that a model receives from a history with compaction items, and their encoded content."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given

from convo.compaction.planning import split_for_summary
from convo.compaction.window import (
    CompactionContent,
    covered_message_digests,
    decode_compaction,
    encode_compaction,
    expand_compaction,
    items_shown_to_model,
    last_compaction_index,
    summary_message,
)
from convo.errors import InputFault
from convo.history.canonical import digest
from convo.history.items import Item
from tests.compaction.history_strategies import has_complete_pairs, histories, instructions, message
from tests.history.json_strategies import ITEMS

QUESTION, ANSWER, FOLLOW_UP = (
    message("user", "Look."),
    message("assistant", "I looked."),
    message("user", "Look again."),
)
RULE = message("developer", "Be brief.")
ENDPOINT_COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB"}


def compaction_item(number: int = 1) -> Item:
    return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"ours {number}"}


class ContentReader:
    """Returns the content of its own compaction items, and None for those of a provider."""

    def __init__(self, *content: CompactionContent) -> None:
        self._contents: Mapping[str, CompactionContent] = {f"ours {index}": one for index, one in enumerate(content, 1)}

    def __call__(self, item: Item) -> CompactionContent | None:
        return self._contents.get(item["encrypted_content"])


def test_a_history_without_a_compaction_item_is_unchanged() -> None:
    assert items_shown_to_model([QUESTION, ANSWER], ContentReader()) == [QUESTION, ANSWER]
    assert last_compaction_index([QUESTION, ANSWER]) is None


def test_a_compaction_item_replaces_all_items_before_it() -> None:
    history = [QUESTION, ANSWER, compaction_item(), FOLLOW_UP]
    content = CompactionContent(
        "local", (RULE,), "They looked.", (ANSWER,), covered_message_digests([QUESTION, ANSWER], ContentReader())
    )
    assert items_shown_to_model(history, ContentReader(content)) == (
        RULE,
        summary_message("They looked."),
        ANSWER,
        FOLLOW_UP,
    )


def test_a_client_may_omit_the_items_before_a_compaction_item() -> None:
    content = CompactionContent(
        "local", (RULE,), "They looked.", (), covered_message_digests([RULE, QUESTION, ANSWER], ContentReader())
    )
    assert items_shown_to_model([compaction_item(), FOLLOW_UP], ContentReader(content)) == items_shown_to_model(
        [RULE, QUESTION, ANSWER, compaction_item(), FOLLOW_UP], ContentReader(content)
    )


def test_messages_that_a_client_puts_before_a_compaction_item_later_are_visible() -> None:
    """An agent may send new instructions at the start of every request."""
    content = CompactionContent(
        "local", (), "They looked.", (), covered_message_digests([QUESTION, ANSWER], ContentReader())
    )
    assert items_shown_to_model([RULE, FOLLOW_UP, compaction_item()], ContentReader(content)) == (
        RULE,
        FOLLOW_UP,
        summary_message("They looked."),
    )


def test_user_messages_kept_beside_a_compaction_item_are_included_once() -> None:
    content = CompactionContent(
        "local",
        (),
        "They looked.",
        (),
        covered_message_digests([QUESTION, ANSWER, FOLLOW_UP], ContentReader(), kept_messages=[FOLLOW_UP]),
    )
    assert items_shown_to_model([QUESTION, FOLLOW_UP, compaction_item()], ContentReader(content)) == (
        FOLLOW_UP,
        summary_message("They looked."),
    )


def test_a_second_compaction_item_replaces_the_first() -> None:
    history = [QUESTION, ANSWER, compaction_item(1), FOLLOW_UP, ANSWER]
    first = CompactionContent(
        "local", (), "They looked.", (), covered_message_digests([QUESTION, ANSWER], ContentReader())
    )
    second = CompactionContent(
        "local", (), "They looked twice.", (), covered_message_digests(history, ContentReader(first))
    )
    assert items_shown_to_model([*history, compaction_item(2)], ContentReader(first, second)) == (
        summary_message("They looked twice."),
    )


def test_a_compaction_item_of_a_provider_stays_after_the_messages_before_it() -> None:
    assert items_shown_to_model([RULE, QUESTION, ANSWER, ENDPOINT_COMPACTION, FOLLOW_UP], ContentReader()) == (
        RULE,
        QUESTION,
        ENDPOINT_COMPACTION,
        FOLLOW_UP,
    )


def test_thousands_of_compaction_items_of_a_provider_are_no_error() -> None:
    """A recorded history can have any number of them."""
    history = [QUESTION, ANSWER, *[ENDPOINT_COMPACTION] * 3000, FOLLOW_UP]
    assert items_shown_to_model(history, ContentReader()) == (QUESTION, ENDPOINT_COMPACTION, FOLLOW_UP)


def test_compaction_items_of_a_provider_after_a_known_one_keep_its_messages_of_the_user() -> None:
    content = CompactionContent(
        "local", (RULE,), "They looked.", (), covered_message_digests([QUESTION, ANSWER], ContentReader())
    )
    history = [QUESTION, ANSWER, compaction_item(), FOLLOW_UP, ENDPOINT_COMPACTION, ANSWER, ENDPOINT_COMPACTION]
    shown = items_shown_to_model(history, ContentReader(content))
    assert shown == (RULE, summary_message("They looked."), FOLLOW_UP, ENDPOINT_COMPACTION)


def test_an_error_of_decryption_is_passed_on() -> None:
    def refuse(item: Item) -> CompactionContent | None:
        raise InputFault("damaged")

    with pytest.raises(InputFault):
        items_shown_to_model([compaction_item()], refuse)


def test_a_newer_form_is_refused() -> None:
    newer = json.dumps({**json.loads(encode_compaction(CompactionContent("local"))), "v": 2}).encode()
    with pytest.raises(InputFault, match="unsupported compaction version 2"):
        decode_compaction(newer)


@given(ITEMS, ITEMS)
def test_encrypted_content_round_trips(before: Item, after: Item) -> None:
    """Also for lone surrogates, large integers and unknown item types."""
    content = CompactionContent("acme", (before,), "Summary \ud83d", (after,), frozenset({digest(after)}))
    assert decode_compaction(encode_compaction(content)) == content


@given(histories(), histories())
def test_no_pair_is_split_and_no_instruction_lost_by_a_compaction(items: list[Item], later: list[Item]) -> None:
    split = split_for_summary(items, [1] * len(items), keep_tokens=3)
    content = CompactionContent(
        "local",
        (*split.instructions, *split.user_messages),
        "Short.",
        split.kept_items,
        covered_message_digests(items, ContentReader()),
    )
    found = items_shown_to_model([*items, compaction_item(), *later], ContentReader(content))
    assert has_complete_pairs(found)
    assert sorted(map(digest, instructions(found))) == sorted(map(digest, instructions([*items, *later])))
    assert items_shown_to_model([compaction_item(), *later], ContentReader(content)) == found


def test_the_content_is_stored_in_this_form() -> None:
    """Clients store compaction items, so the form must not change."""
    content = CompactionContent("acme", (RULE,), None, (QUESTION,), frozenset({"b", "a"}))
    assert json.loads(encode_compaction(content)) == {
        "v": 1,
        "tenant": "acme",
        "before": [RULE],
        "summary": None,
        "after": [QUESTION],
        "covers": ["a", "b"],
    }
    assert expand_compaction(content) == (RULE, QUESTION)
    assert decode_compaction(encode_compaction(content)) == content
    assert b'"covers":["a","b"]' in encode_compaction(content)


def covered_digests(*messages: Item) -> set[str]:
    """Return the first 16 digits of the digest of each message."""
    return {digest(item).removeprefix("d1:")[:16] for item in messages}


def test_a_message_is_covered_by_the_first_digits_of_its_digest() -> None:
    assert covered_message_digests([RULE, QUESTION, ANSWER], ContentReader()) == covered_digests(RULE, QUESTION)
    assert covered_message_digests([RULE, QUESTION], ContentReader(), kept_messages=[QUESTION]) == covered_digests(RULE)
    earlier = CompactionContent("local", covered_digests=frozenset(covered_digests(QUESTION)))
    assert covered_message_digests([compaction_item(), FOLLOW_UP], ContentReader(earlier)) == covered_digests(
        QUESTION, FOLLOW_UP
    )
    assert covered_message_digests([ENDPOINT_COMPACTION, FOLLOW_UP], ContentReader(earlier)) == covered_digests(
        FOLLOW_UP
    )


def test_the_error_for_a_newer_form_says_what_to_do() -> None:
    newer = json.dumps({**json.loads(encode_compaction(CompactionContent("local"))), "v": 2}).encode()
    with pytest.raises(InputFault) as error:
        decode_compaction(newer)
    assert error.value.hint == "upgrade convo-state"


def test_the_last_of_several_compactions_counts() -> None:
    assert last_compaction_index([compaction_item(1), QUESTION, compaction_item(2), FOLLOW_UP]) == 2
    assert last_compaction_index([compaction_item(1)]) == 0
    assert items_shown_to_model(
        [QUESTION, ENDPOINT_COMPACTION, ANSWER, FOLLOW_UP, ENDPOINT_COMPACTION, ANSWER], ContentReader()
    ) == (
        QUESTION,
        FOLLOW_UP,
        ENDPOINT_COMPACTION,
        ANSWER,
    )
