"""What only its maker can open, on its way to somebody else.

A provider seals its model's reasoning, and a history that it made smaller. Shown to another model,
organisation or base URL, the seal is an error. Who made one is known by the link that it came with,
or by the name that convo writes in front of it:

    convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB...      a provider's, as a gateway hands it on
    convoseal1:gAAAAAB...                            a gateway's own, for any model behind it
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from convo.history import HERE, Link
from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.thoughts import drop_thoughts
from convo.inspection.linting.view import View
from convo.items import Item, kind

CODE = "sealed-elsewhere"

SEAL = "encrypted_content"
NAMED, GATEWAYS = "convo1:", "convoseal1:"

DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
"""The end of a snapshot's name: the same model."""


def sealed_elsewhere(view: View) -> Iterator[Fault]:
    """A seal that the next turn's model, organisation or base URL did not make, as far as its maker is known."""
    for at, item in _sealed(view):
        why = _foreign(str(item[SEAL]), view.origins[at], view)
        if why:
            yield Fault(f"the {kind(item)} was sealed by {why}", at, f".{SEAL}")


def unknown_makers(view: View) -> str:
    """Why some seals were not judged, as a sentence; "" when all were."""
    unknown = sum(not _known(str(item[SEAL]), view.origins[at], view) for at, item in _sealed(view))
    if not unknown:
        return ""
    sealed = f"{unknown:,} sealed item" + ("" if unknown == 1 else "s")
    return f"{sealed} not judged: nothing here says who sealed {'it' if unknown == 1 else 'them'}, or who will be asked"


def drop_sealed(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Reasoning goes; what it led to was said beside it. A sealed history stands for what is nowhere else."""
    return drop_thoughts(CODE, view, [one for at, one in of_items(faults) if kind(view.items[at]) == "reasoning"])


def _sealed(view: View) -> Iterator[tuple[int, Item]]:
    """The items that travel sealed."""
    for at, item in enumerate(view.items):
        if isinstance(item.get(SEAL), str) and item[SEAL] and view.travels[at]:
            yield at, item


def _known(seal: str, origin: Link | None, view: View) -> bool:
    """Whether both the maker of a seal and whoever will be asked are known."""
    if view.model is None or view.scope is None:
        return False
    return origin is not None or seal.startswith((NAMED, GATEWAYS))


def _foreign(seal: str, origin: Link | None, view: View) -> str:
    """Who made a seal, if that is not who will be asked; "" where it is, or where nobody knows."""
    if view.model is None or view.scope is None:
        return ""
    if seal.startswith(GATEWAYS):
        elsewhere = origin.scope if origin else HERE
        return "" if elsewhere == view.scope else f"the gateway at {elsewhere}, and {view.scope} is asked next"
    if origin and origin.scope != view.scope:
        return f"{origin.scope}, and {view.scope} is asked next"
    maker = unquote(seal.split(":")[1]) if seal.startswith(NAMED) else origin.model if origin else view.model
    return "" if _model(maker) == _model(view.model) else f"{maker}, and {view.model} is asked next"


def _model(name: str) -> str:
    return DATED.sub("", name)
