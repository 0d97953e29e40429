"""A history as a model sees it, and the form in which it is sealed."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given

from convo.compaction import Sealed, covered, dumps, fold, last_compaction, loads, seen, short, stands_for
from convo.errors import InputFault
from convo.items import Item
from tests.compaction.histories import histories, instructions, is_whole, message
from tests.items.arbitrary import ITEMS

ASK, ANSWER, MORE = message("user", "Look."), message("assistant", "I looked."), message("user", "Look again.")
RULE = message("developer", "Be brief.")
THEIRS = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB"}


def ours(number: int = 1) -> Item:
    return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"ours {number}"}


class Drawer:
    """Opens what was put into it, and nothing that somebody else sealed."""

    def __init__(self, *sealed: Sealed) -> None:
        self._sealed: Mapping[str, Sealed] = {f"ours {at}": one for at, one in enumerate(sealed, 1)}

    def __call__(self, item: Item) -> Sealed | None:
        return self._sealed.get(item["encrypted_content"])


def test_a_history_without_a_compaction_is_seen_as_it_is() -> None:
    assert seen([ASK, ANSWER], Drawer()) == (ASK, ANSWER)
    assert last_compaction([ASK, ANSWER]) is None


def test_a_compaction_stands_for_everything_before_it() -> None:
    history = [ASK, ANSWER, ours(), MORE]
    sealed = Sealed("local", (RULE,), "They looked.", (ANSWER,), covered([ASK, ANSWER], Drawer()))
    assert seen(history, Drawer(sealed)) == (RULE, stands_for("They looked."), ANSWER, MORE)


def test_a_client_may_leave_out_what_came_before() -> None:
    sealed = Sealed("local", (RULE,), "They looked.", (), covered([RULE, ASK, ANSWER], Drawer()))
    assert seen([ours(), MORE], Drawer(sealed)) == seen([RULE, ASK, ANSWER, ours(), MORE], Drawer(sealed))


def test_messages_that_a_client_puts_before_it_afterwards_are_seen() -> None:
    """An agent writes its instructions anew at the top of every request."""
    sealed = Sealed("local", (), "They looked.", (), covered([ASK, ANSWER], Drawer()))
    assert seen([RULE, MORE, ours()], Drawer(sealed)) == (RULE, MORE, stands_for("They looked."))


def test_words_of_the_user_that_stay_beside_it_are_seen_once() -> None:
    sealed = Sealed("local", (), "They looked.", (), covered([ASK, ANSWER, MORE], Drawer(), beside=[MORE]))
    assert seen([ASK, MORE, ours()], Drawer(sealed)) == (MORE, stands_for("They looked."))


def test_a_second_compaction_stands_for_the_first_one_too() -> None:
    history = [ASK, ANSWER, ours(1), MORE, ANSWER]
    first = Sealed("local", (), "They looked.", (), covered([ASK, ANSWER], Drawer()))
    second = Sealed("local", (), "They looked twice.", (), covered(history, Drawer(first)))
    assert seen([*history, ours(2)], Drawer(first, second)) == (stands_for("They looked twice."),)


def test_what_a_provider_sealed_is_left_to_it_behind_the_messages_before() -> None:
    assert seen([RULE, ASK, ANSWER, THEIRS, MORE], Drawer()) == (RULE, ASK, THEIRS, MORE)


def test_what_cannot_be_opened_is_said_by_whoever_opens_it() -> None:
    def refuse(item: Item) -> Sealed | None:
        raise InputFault("damaged")

    with pytest.raises(InputFault):
        seen([ours()], refuse)


def test_an_older_convo_refuses_a_newer_form() -> None:
    newer = json.dumps({**json.loads(dumps(Sealed("local"))), "v": 2}).encode()
    with pytest.raises(InputFault, match="a newer convo sealed this, in form 2"):
        loads(newer)


@given(ITEMS, ITEMS)
def test_what_is_sealed_comes_out_as_it_went_in(before: Item, after: Item) -> None:
    """Half surrogate pairs, large integers and unknown kinds too."""
    sealed = Sealed("acme", (before,), "Summary \ud83d", (after,), frozenset({short(after)}))
    assert loads(dumps(sealed)) == sealed


@given(histories(), histories())
def test_no_pair_is_torn_and_no_instruction_lost_by_a_compaction(items: list[Item], later: list[Item]) -> None:
    made = fold(items, [1] * len(items), keep=3)
    sealed = Sealed("local", (*made.standing, *made.said), "Short.", made.kept, covered(items, Drawer()))
    found = seen([*items, ours(), *later], Drawer(sealed))
    assert is_whole(found)
    assert sorted(map(short, instructions(found))) == sorted(map(short, instructions([*items, *later])))
    assert seen([ours(), *later], Drawer(sealed)) == found
