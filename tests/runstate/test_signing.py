"""Signatures: a reader with the key detects any change of a state."""

import json

import pytest

from convo.errors import InvalidRunState, InvalidUsage, NotSigned
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state, run_state_from_json
from convo.runstate.run_state import RunState
from convo.runstate.signature import SIGNATURE_KEY, remove_signature, sign_state, verify_signature
from convo.runstate.writer import serialize_run_state
from tests.runstate import snapshots
from tests.runstate.sdk import resume_in_sdk
from tests.runstate.snapshots import entries_of_label, load_scenario
from tests.runstate.test_sdk_decisions import expected_outcome, no_logging, run_outcome

__all__ = ["no_logging"]

KEY = b"sixteen bytes or more"
STATE = snapshots.newest_state("single_approval", "1.21")

NO_SIGNATURE = "^the state has no convo signature$"
OTHER_SIGNATURE = "^the signature is from another key, or the state was changed since it was signed$"


def test_a_signed_state_is_verified_with_its_key_and_no_other() -> None:
    again = parse_run_state(serialize_run_state(sign_state(STATE, KEY)).encode())
    verify_signature(again, KEY)
    with pytest.raises(NotSigned, match=OTHER_SIGNATURE):
        verify_signature(again, b"another key of 16 bytes")


def test_whitespace_and_key_order_do_not_change_the_signature() -> None:
    reordered = dict(reversed(sign_state(STATE, KEY).document.items()))
    verify_signature(parse_run_state(json.dumps(reordered, indent=3).encode()), KEY)


def test_any_change_after_signing_is_detected() -> None:
    signed = sign_state(STATE, KEY)
    changed = [
        {**signed.document, "max_turns": 11},
        {**signed.document, "unknown": None},
        apply_verdict(signed, signed.pending, ApprovalVerdict(approve=True)).document,
    ]
    for document in changed:
        with pytest.raises(NotSigned, match=OTHER_SIGNATURE):
            verify_signature(run_state_from_json(document), KEY)


@pytest.mark.parametrize("mark", [None, "x", {}, {"algorithm": "none", "value": ""}, {"algorithm": "hmac-sha256"}])
def test_an_invalid_signature_is_refused(mark: object) -> None:
    with pytest.raises(NotSigned, match=OTHER_SIGNATURE if isinstance(mark, dict) else NO_SIGNATURE):
        verify_signature(run_state_from_json({**STATE.document, SIGNATURE_KEY: mark}), KEY)


def test_an_unsigned_state_is_reported() -> None:
    with pytest.raises(NotSigned, match=NO_SIGNATURE):
        verify_signature(STATE, KEY)
    assert remove_signature(sign_state(STATE, KEY)).document == STATE.document


def test_signing_again_replaces_the_signature() -> None:
    other = b"another key of 16 bytes"
    again = sign_state(sign_state(STATE, KEY), other)
    verify_signature(again, other)
    assert again == sign_state(STATE, other)
    with pytest.raises(NotSigned, match=OTHER_SIGNATURE):
        verify_signature(again, KEY)


def test_a_short_key_is_refused() -> None:
    for function in (sign_state, verify_signature):
        with pytest.raises(InvalidUsage, match=r"^the key has 15 bytes; it needs at least 16$") as error:
            function(sign_state(STATE, KEY), b"k" * 15)
        assert error.value.hint == "create one with openssl rand -hex 32"
    verify_signature(sign_state(STATE, b"k" * 16), b"k" * 16)


def test_a_signature_of_an_older_release_is_verified() -> None:
    document = {
        **STATE.document,
        SIGNATURE_KEY: {
            "algorithm": "hmac-sha256",
            "value": "6598ba21c592d202e62cf45590f659f93879a02ea34bb581bb33e134c9c01386",
        },
    }
    verify_signature(run_state_from_json(document), KEY)
    assert sign_state(STATE, KEY).document == document


async def test_the_sdk_resumes_a_signed_state() -> None:
    for entry in entries_of_label("1.21")[::8]:
        state = parse_run_state(snapshots.snapshot(entry["file"]))
        signed = sign_state(apply_verdict(state, state.pending, ApprovalVerdict(approve=True)), KEY)
        assert run_outcome(
            await resume_in_sdk(load_scenario(entry["file"]), serialize_run_state(signed))
        ) == expected_outcome(entry)


def test_a_state_without_a_canonical_form_cannot_be_signed_or_written() -> None:
    odd = RunState({**STATE.document, "odd": float("inf")}, STATE.version)

    with pytest.raises(NotSigned, match=r"^the state cannot be signed: "):
        sign_state(odd, KEY)
    with pytest.raises(InvalidRunState, match=r"^\$ cannot be written as JSON: Out of range float values"):
        serialize_run_state(odd)
