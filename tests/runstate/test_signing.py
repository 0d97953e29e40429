"""Who has the key can tell whether anything in a state changed."""

import json

import pytest

from convo.errors import NotSigned, Usage
from convo.runstate import Verdict, decided, of, read, signed, text, unsigned, verify
from convo.runstate.signing import MEMBER
from tests.runstate import snapshots
from tests.runstate.sdk import go_on
from tests.runstate.snapshots import of_label, story
from tests.runstate.test_sdk import ends, quiet, wanted

__all__ = ["quiet"]

KEY = b"sixteen bytes or more"
STATE = snapshots.of("single_approval", "1.21")


def test_a_signed_state_is_verified_with_its_key_and_no_other() -> None:
    again = read(text(signed(STATE, KEY)).encode())
    verify(again, KEY)
    with pytest.raises(NotSigned, match="not this key's"):
        verify(again, b"another key of 16 bytes")


def test_other_spacing_and_another_order_of_keys_change_nothing() -> None:
    turned = dict(reversed(signed(STATE, KEY).document.items()))
    verify(read(json.dumps(turned, indent=3).encode()), KEY)


def test_whatever_is_changed_after_it_was_signed_is_noticed() -> None:
    whole = signed(STATE, KEY)
    changed = [
        {**whole.document, "max_turns": 11},
        {**whole.document, "unknown": None},
        decided(whole, whole.pending, Verdict(approve=True)).document,
    ]
    for document in changed:
        with pytest.raises(NotSigned, match="changed since it was signed"):
            verify(of(document), KEY)


@pytest.mark.parametrize("mark", [None, "x", {}, {"algorithm": "none", "value": ""}, {"algorithm": "hmac-sha256"}])
def test_what_is_no_signature_is_none(mark: object) -> None:
    with pytest.raises(NotSigned):
        verify(of({**STATE.document, MEMBER: mark}), KEY)


def test_a_state_without_a_signature_says_so() -> None:
    with pytest.raises(NotSigned, match="carries no signature"):
        verify(STATE, KEY)
    assert unsigned(signed(STATE, KEY)).document == STATE.document


def test_a_signature_takes_the_place_of_the_one_before() -> None:
    other = b"another key of 16 bytes"
    again = signed(signed(STATE, KEY), other)
    verify(again, other)
    assert again == signed(STATE, other)
    with pytest.raises(NotSigned, match="not this key's"):
        verify(again, KEY)


def test_a_short_key_signs_nothing() -> None:
    with pytest.raises(Usage, match="needs at least 16"):
        signed(STATE, b"short")


async def test_the_sdk_goes_on_from_a_signed_state() -> None:
    for entry in of_label("1.21")[::8]:
        state = read(snapshots.snapshot(entry["file"]))
        whole = signed(decided(state, state.pending, Verdict(approve=True)), KEY)
        assert ends(await go_on(story(entry["file"]), text(whole))) == wanted(entry)
