"""A signature for those who pass states around: who has the key can tell whether anything changed.

The format itself proves nothing: whoever can write a file can write an approval, and from 1.15 on
the digest that goes with it. A signature is one more member of the document, `$convoSignature`,
so it goes through a pipe with it. It is HMAC-SHA256 over the document without that member, as
sorted JSON, so other spacing or another order of keys changes nothing. Readers of the format pass
over the member and leave it out when they write: what another program changed is unsigned.

    "$convoSignature": {"algorithm": "hmac-sha256", "value": 64 hex digits}
"""

import hmac
from hashlib import sha256

from convo.errors import NotCanonical, NotSigned, Usage
from convo.items import Json, hash_of
from convo.runstate.paths import without
from convo.runstate.state import State

MEMBER = "$convoSignature"
ALGORITHM = "hmac-sha256"
PURPOSE = b"convo runstate signature 1\n"
SHORTEST = 16
"""Bytes that a key needs at least."""


def signed(state: State, key: bytes) -> State:
    """`state` with a signature of `key` in the place of any other. raises: Usage  the key is too short"""
    plain = unsigned(state)
    mark = {"algorithm": ALGORITHM, "value": _mac(plain.document, key)}
    return State({**plain.document, MEMBER: mark}, state.version)


def unsigned(state: State) -> State:
    """`state` without a signature, as it is after every change."""
    return State(without(state.document, (MEMBER,)), state.version)


def verify(state: State, key: bytes) -> None:
    """Make sure that `state` is as the owner of `key` signed it. raises: NotSigned; Usage  the key is too short"""
    mark = state.document.get(MEMBER)
    if not isinstance(mark, dict):
        raise NotSigned("the state carries no signature of convo's")
    value = str(mark.get("value")) if mark.get("algorithm") == ALGORITHM else ""
    if not hmac.compare_digest(value.encode("utf-8", "replace"), _mac(unsigned(state).document, key).encode()):
        raise NotSigned("the signature is not this key's, or the state was changed since it was signed")


def _mac(document: Json, key: bytes) -> str:
    if len(key) < SHORTEST:
        raise Usage(
            f"a key of {len(key)} bytes signs nothing; it needs at least {SHORTEST}", hint="openssl rand -hex 32"
        )
    try:
        name = hash_of(document)
    except NotCanonical as wrong:
        raise NotSigned(f"the state cannot be signed: {wrong}") from wrong
    return hmac.new(key, PURPOSE + name.encode(), sha256).hexdigest()
