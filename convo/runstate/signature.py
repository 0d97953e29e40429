"""Sign a RunState, and verify a signature.

The signature is HMAC-SHA256 over the canonical JSON without the member `$convoSignature`; spacing and the order of
keys do not matter. A key has at least 16 bytes.
"""

import hmac
from hashlib import sha256

from convo.errors import InvalidUsage, NotCanonical, NotSigned
from convo.history.canonical import item_hash
from convo.history.items import Json
from convo.runstate.document import remove_path
from convo.runstate.run_state import RunState

SIGNATURE_KEY = "$convoSignature"
SIGNATURE_ALGORITHM = "hmac-sha256"
SIGNATURE_PREFIX = b"convo runstate signature 1\n"
MIN_KEY_BYTES = 16


def sign_state(state: RunState, key: bytes) -> RunState:
    """Return `state` with a new signature by `key`. Raises InvalidUsage for a key that is too short."""
    unsigned = remove_signature(state)
    signature = {"algorithm": SIGNATURE_ALGORITHM, "value": _compute_mac(unsigned.document, key)}
    return RunState({**unsigned.document, SIGNATURE_KEY: signature}, state.version)


def remove_signature(state: RunState) -> RunState:
    """Return `state` without a signature; every change removes it."""
    if SIGNATURE_KEY not in state.document:
        return state
    return RunState(remove_path(state.document, (SIGNATURE_KEY,)), state.version)


def verify_signature(state: RunState, key: bytes) -> None:
    """Check that `state` is unchanged since the owner of `key` signed it.

    Raises NotSigned if it is not, and InvalidUsage for a key that is too short.
    """
    signature = state.document.get(SIGNATURE_KEY)
    if not isinstance(signature, dict):
        raise NotSigned("the state has no convo signature")
    value = str(signature.get("value")) if signature.get("algorithm") == SIGNATURE_ALGORITHM else ""
    if not hmac.compare_digest(
        value.encode("utf-8", "replace"), _compute_mac(remove_signature(state).document, key).encode()
    ):
        raise NotSigned("the signature is from another key, or the state was changed since it was signed")


def _compute_mac(document: Json, key: bytes) -> str:
    if len(key) < MIN_KEY_BYTES:
        raise InvalidUsage(
            f"the key has {len(key)} bytes; it needs at least {MIN_KEY_BYTES}",
            hint="create one with openssl rand -hex 32",
        )
    try:
        digest = item_hash(document)
    except NotCanonical as error:
        raise NotSigned(f"the state cannot be signed: {error}") from error
    return hmac.new(key, SIGNATURE_PREFIX + digest.encode(), sha256).hexdigest()
