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

ASK, ANSWER, MORE = message("user", "Look."), message("assistant", "I looked."), message("user", "Look again.")
RULE = message("developer", "Be brief.")
THEIRS = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB"}


def ours(number: int = 1) -> Item:
    return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"ours {number}"}


class Drawer:
    """Returns the content of its own compaction items, and None for those of a provider."""

    def __init__(self, *sealed: CompactionContent) -> None:
        self._sealed: Mapping[str, CompactionContent] = {f"ours {at}": one for at, one in enumerate(sealed, 1)}

    def __call__(self, item: Item) -> CompactionContent | None:
        return self._sealed.get(item["encrypted_content"])


def test_a_history_without_a_compaction_item_is_unchanged() -> None:
    assert items_shown_to_model([ASK, ANSWER], Drawer()) == (ASK, ANSWER)
    assert last_compaction_index([ASK, ANSWER]) is None


def test_a_compaction_item_replaces_all_items_before_it() -> None:
    history = [ASK, ANSWER, ours(), MORE]
    sealed = CompactionContent(
        "local", (RULE,), "They looked.", (ANSWER,), covered_message_digests([ASK, ANSWER], Drawer())
    )
    assert items_shown_to_model(history, Drawer(sealed)) == (RULE, summary_message("They looked."), ANSWER, MORE)


def test_a_client_may_omit_the_items_before_a_compaction_item() -> None:
    sealed = CompactionContent(
        "local", (RULE,), "They looked.", (), covered_message_digests([RULE, ASK, ANSWER], Drawer())
    )
    assert items_shown_to_model([ours(), MORE], Drawer(sealed)) == items_shown_to_model(
        [RULE, ASK, ANSWER, ours(), MORE], Drawer(sealed)
    )


def test_messages_that_a_client_puts_before_a_compaction_item_later_are_visible() -> None:
    """An agent may send new instructions at the start of every request."""
    sealed = CompactionContent("local", (), "They looked.", (), covered_message_digests([ASK, ANSWER], Drawer()))
    assert items_shown_to_model([RULE, MORE, ours()], Drawer(sealed)) == (RULE, MORE, summary_message("They looked."))


def test_user_messages_kept_beside_a_compaction_item_are_included_once() -> None:
    sealed = CompactionContent(
        "local", (), "They looked.", (), covered_message_digests([ASK, ANSWER, MORE], Drawer(), kept_messages=[MORE])
    )
    assert items_shown_to_model([ASK, MORE, ours()], Drawer(sealed)) == (MORE, summary_message("They looked."))


def test_a_second_compaction_item_replaces_the_first() -> None:
    history = [ASK, ANSWER, ours(1), MORE, ANSWER]
    first = CompactionContent("local", (), "They looked.", (), covered_message_digests([ASK, ANSWER], Drawer()))
    second = CompactionContent("local", (), "They looked twice.", (), covered_message_digests(history, Drawer(first)))
    assert items_shown_to_model([*history, ours(2)], Drawer(first, second)) == (summary_message("They looked twice."),)


def test_a_compaction_item_of_a_provider_stays_after_the_messages_before_it() -> None:
    assert items_shown_to_model([RULE, ASK, ANSWER, THEIRS, MORE], Drawer()) == (RULE, ASK, THEIRS, MORE)


def test_an_error_of_decryption_is_passed_on() -> None:
    def refuse(item: Item) -> CompactionContent | None:
        raise InputFault("damaged")

    with pytest.raises(InputFault):
        items_shown_to_model([ours()], refuse)


def test_a_newer_form_is_refused() -> None:
    newer = json.dumps({**json.loads(encode_compaction(CompactionContent("local"))), "v": 2}).encode()
    with pytest.raises(InputFault, match="unsupported compaction version 2"):
        decode_compaction(newer)


@given(ITEMS, ITEMS)
def test_encrypted_content_round_trips(before: Item, after: Item) -> None:
    """Also for lone surrogates, large integers and unknown item types."""
    sealed = CompactionContent("acme", (before,), "Summary \ud83d", (after,), frozenset({digest(after)}))
    assert decode_compaction(encode_compaction(sealed)) == sealed


@given(histories(), histories())
def test_no_pair_is_split_and_no_instruction_lost_by_a_compaction(items: list[Item], later: list[Item]) -> None:
    made = split_for_summary(items, [1] * len(items), keep_tokens=3)
    sealed = CompactionContent(
        "local",
        (*made.instructions, *made.user_messages),
        "Short.",
        made.kept_items,
        covered_message_digests(items, Drawer()),
    )
    found = items_shown_to_model([*items, ours(), *later], Drawer(sealed))
    assert has_complete_pairs(found)
    assert sorted(map(digest, instructions(found))) == sorted(map(digest, instructions([*items, *later])))
    assert items_shown_to_model([ours(), *later], Drawer(sealed)) == found


def test_the_content_is_stored_in_this_form() -> None:
    """Clients store compaction items, so the form must not change."""
    content = CompactionContent("acme", (RULE,), None, (ASK,), frozenset({"b", "a"}))
    assert json.loads(encode_compaction(content)) == {
        "v": 1,
        "tenant": "acme",
        "before": [RULE],
        "summary": None,
        "after": [ASK],
        "covers": ["a", "b"],
    }
    assert expand_compaction(content) == (RULE, ASK)
    assert decode_compaction(encode_compaction(content)) == content
    assert b'"covers":["a","b"]' in encode_compaction(content)


def covered(*messages: Item) -> set[str]:
    """Return the first 16 digits of the digest of each message."""
    return {digest(item).removeprefix("d1:")[:16] for item in messages}


def test_a_message_is_covered_by_the_first_digits_of_its_digest() -> None:
    assert covered_message_digests([RULE, ASK, ANSWER], Drawer()) == covered(RULE, ASK)
    assert covered_message_digests([RULE, ASK], Drawer(), kept_messages=[ASK]) == covered(RULE)
    earlier = CompactionContent("local", covered_digests=frozenset(covered(ASK)))
    assert covered_message_digests([ours(), MORE], Drawer(earlier)) == covered(ASK, MORE)
    assert covered_message_digests([THEIRS, MORE], Drawer(earlier)) == covered(MORE)


def test_the_error_for_a_newer_form_says_what_to_do() -> None:
    newer = json.dumps({**json.loads(encode_compaction(CompactionContent("local"))), "v": 2}).encode()
    with pytest.raises(InputFault) as refused:
        decode_compaction(newer)
    assert refused.value.hint == "upgrade convo-state"


def test_the_last_of_several_compactions_counts() -> None:
    assert last_compaction_index([ours(1), ASK, ours(2), MORE]) == 2
    assert last_compaction_index([ours(1)]) == 0
    assert items_shown_to_model([ASK, THEIRS, ANSWER, MORE, THEIRS, ANSWER], Drawer()) == (ASK, MORE, THEIRS, ANSWER)
