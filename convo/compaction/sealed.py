"""What stands sealed inside one `compaction` item.

    {"v": 1, "tenant": "local",
     "before": [items], "summary": "...", "after": [items],
     "covers": ["3f2a9c41d0b7a5e8", ...]}

Opened, it is read in this order: what was kept from before, the summary, what was kept as it was. It is
whole: a client may send what came before the item again, or leave it out. What it sends again and what
stands here already is told by `covers`, the names of the messages that this item takes the place of.

    1   the first form
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from convo.errors import InputFault
from convo.items import Item, Json, digest

VERSION = 1
DIGITS = 16


@dataclass(frozen=True, slots=True)
class Sealed:
    """One compaction.

    tenant:   whose history it was; nobody else's
    before:   instructions, and words of the user, that stand before the summary
    summary:  None where nothing had to be summarised
    after:    the end of the history as it was
    covers:   the messages that must not be shown beside it, as `short` names them
    """

    tenant: str
    before: tuple[Item, ...] = ()
    summary: str | None = None
    after: tuple[Item, ...] = ()
    covers: frozenset[str] = frozenset()


def short(item: Item) -> str:
    """The first hex digits of what `item` means; enough to tell the messages of one history apart."""
    return digest(item).partition(":")[2][:DIGITS]


def dumps(sealed: Sealed) -> bytes:
    """`sealed` as it is encrypted."""
    form: Mapping[str, Json] = {
        "v": VERSION,
        "tenant": sealed.tenant,
        "before": list(sealed.before),
        "summary": sealed.summary,
        "after": list(sealed.after),
        "covers": sorted(sealed.covers),
    }
    return json.dumps(form, separators=(",", ":")).encode("ascii")


def loads(raw: bytes) -> Sealed:
    """What `dumps` wrote.

    raises:  InputFault  a newer convo wrote it
    """
    form = json.loads(raw)
    if form["v"] != VERSION:
        raise InputFault(f"a newer convo sealed this, in form {form['v']}", hint="upgrade convo-state")
    return Sealed(
        tenant=form["tenant"],
        before=tuple(form["before"]),
        summary=form["summary"],
        after=tuple(form["after"]),
        covers=frozenset(form["covers"]),
    )
