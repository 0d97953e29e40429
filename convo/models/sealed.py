"""Sealed content that only its maker can open, and the tag that says who made it.

A provider hands out its model's reasoning, or a compacted history, sealed. Shown to another model, account or server,
the seal is an error there. So a tag is put in front of a seal that is handed on, and each maker is given back its own:

    convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB...
    form   model        account      the seal as it came

A gateway's client that asked for an alias gets the opaque form, which is a digest of the other and names no model:

    convo2:3f2a9c41d0b73f2a9c41d0b7:gAAAAAB...

Reasoning of another maker is left out, and reported as ignored: the answer that it led to is beside it. A compacted
history of another maker stands for everything before it, so it is refused rather than lost.
"""

from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import quote

from convo.errors import Unsupported
from convo.items import Item, kind

FORM, OPAQUE = "convo1:", "convo2:"
SEAL = "encrypted_content"


class Maker(str):
    """The tag in front of a maker's seals; `opaque` is the form that names no model."""

    __slots__ = ("opaque",)
    opaque: str


def maker(provider: str, model: str, *account: str | None) -> Maker:
    """The maker of the seals of a model.

    model:    as it is asked for
    account:  what else must be the same for a seal to be opened: base URL, organisation, project
    """
    where = sha256("\n".join(part or "" for part in account).encode()).hexdigest()[:12]
    tag = Maker(f"{FORM}{quote(f'{provider}/{model}')}:{where}:")
    tag.opaque = _opaque(tag)
    return tag


def _opaque(tag: str) -> str:
    return f"{OPAQUE}{sha256(tag.encode()).hexdigest()[:24]}:"


NOBODY = maker("", "")
"""Made no seal."""


def signed(item: Item, by: str) -> Item:
    """`item` as it is handed on: `by` made the seal in it, if there is one."""
    return {**item, SEAL: by + item[SEAL]} if isinstance(item.get(SEAL), str) else item


def without_model(item: Item) -> Item:
    """`item` with its tag in the opaque form."""
    seal = item.get(SEAL)
    if not isinstance(seal, str) or not seal.startswith(FORM):
        return item
    form, model, where, rest = seal.split(":", 3)
    return {**item, SEAL: _opaque(f"{form}:{model}:{where}:") + rest}


def opened(item: Item, by: Maker, who: str, *, foreign: bool = False) -> Item | None:
    """`item` as `by` can open it; None for reasoning of another maker.

    foreign: whether reasoning without a tag is left to the server: a client may have it from there
    who:     the model, for the error's sentence
    raises:  Unsupported  a compacted history of another maker
    """
    seal = item.get(SEAL)
    if not isinstance(seal, str):
        return item
    for tag in (by, by.opaque):
        if seal.startswith(tag):
            return {**item, SEAL: seal[len(tag) :]}
    if kind(item) == "reasoning":
        return item if foreign and not is_tagged(item) else None
    if seal.startswith((FORM, OPAQUE)):
        made = seal.split(":")[1] if seal.startswith(FORM) else "the model that made it"
        hint = f"continue with {made}, or fork from before the sealed item"
        raise Unsupported(who, f"a {kind(item)} that another model sealed", param="input", hint=hint)
    return item


def is_tagged(item: Item) -> bool:
    """Whether a seal says who made it."""
    seal = item.get(SEAL)
    return isinstance(seal, str) and seal.startswith((FORM, OPAQUE))


def is_own(item: Item, by: Maker) -> bool:
    """Whether `by` sealed `item`."""
    seal = item.get(SEAL)
    return isinstance(seal, str) and seal.startswith((by, by.opaque))


def all_opened(items: Iterable[Item], by: Maker, who: str, *, foreign: bool = False) -> tuple[Item, ...]:
    """What `opened` leaves of `items`. raises: Unsupported"""
    found = (opened(item, by, who, foreign=foreign) if SEAL in item else item for item in items)
    return tuple(kept for kept in found if kept is not None)


def at_its_owner(items: Iterable[Item], by: Maker, who: str) -> list[Item]:
    """As `all_opened`, for a server that hands its seals out itself: a seal without a tag is its own.

    raises:  Unsupported
    """
    found = (opened(item, by, who) if is_tagged(item) else item for item in items)
    return [kept for kept in found if kept is not None]
