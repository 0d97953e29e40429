"""What only its maker can open, and who may be given it again.

A provider hands out its model's reasoning, or a history that it made smaller, sealed. Shown to
another model, account or server, the seal is an error there, and the conversation stands still. So
whoever hands a seal on writes the maker's name in front of it, and is given back only its own:

    convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB...
    form   model        account      the seal as it came

Reasoning of somebody else is left out: what it led to was said beside it. A sealed history of
somebody else stands for everything before it, so it is refused rather than lost.
"""

from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import quote

from convo.errors import Unsupported
from convo.items import Item, kind

FORM = "convo1"
SEAL = "encrypted_content"


def maker(provider: str, model: str, *account: str | None) -> str:
    """The name that stands in front of a seal.

    model:    as it is asked for
    account:  what else must be the same for a seal to be opened: base URL, organisation, project
    """
    where = sha256("\n".join(part or "" for part in account).encode()).hexdigest()[:12]
    return f"{FORM}:{quote(f'{provider}/{model}')}:{where}:"


def signed(item: Item, by: str) -> Item:
    """`item` as it is handed on: `by` made the seal in it, if there is one."""
    return {**item, SEAL: by + item[SEAL]} if isinstance(item.get(SEAL), str) else item


def opened(item: Item, by: str, who: str) -> Item | None:
    """`item` as `by` can open it; None for reasoning of somebody else, or of nobody knows whom.

    A seal without a name on anything but reasoning is left to the server: it was said to be its own.

    who:     the model, for the error's sentence
    raises:  Unsupported  a sealed history of somebody else
    """
    seal = item.get(SEAL)
    if not isinstance(seal, str):
        return item
    if seal.startswith(by):
        return {**item, SEAL: seal[len(by) :]}
    if kind(item) == "reasoning":
        return None
    if seal.startswith(f"{FORM}:"):
        hint = f"go on with {seal.split(':')[1]}, or from before it was sealed"
        raise Unsupported(who, f"a {kind(item)} that another model sealed", param="input", hint=hint)
    return item


def all_opened(items: Iterable[Item], by: str, who: str) -> tuple[Item, ...]:
    """What `opened` leaves of `items`. raises: Unsupported"""
    return tuple(kept for item in items if (kept := opened(item, by, who) if SEAL in item else item) is not None)


def at_its_owner(items: Iterable[Item], by: str, who: str) -> list[Item]:
    """As `all_opened`, for a server that hands its seals out itself: what names no maker is its own.

    raises:  Unsupported
    """
    return [
        kept
        for item in items
        if (kept := opened(item, by, who) if str(item.get(SEAL)).startswith(f"{FORM}:") else item) is not None
    ]
