"""The screen of `convo inspect`: who owns the state, where its head stands, and the tree.

`--chart` shows alone what its requests went through in tokens, `--items` everything that was said. Words
of people and models are never trusted: what a terminal would obey is spelled out.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from shlex import quote

from convo.history import IGNORED, OWNERS, Strategy
from convo.inspection import Known
from convo.inspection.bill import bill
from convo.inspection.shape import provider_of
from convo.items import Item, first_words, is_call, kind, searchable, with_characters
from convo.items.partial import STREAMED, TEXT_DIFFERS
from convo.ui.answer import safe
from convo.ui.chart import chart
from convo.ui.labelled import Line, counted, labelled, waiting
from convo.ui.medium import Medium, cut
from convo.ui.open_run import stands, way_on
from convo.ui.receipt import spent, tokens
from convo.ui.table import Table
from convo.ui.tree import table, tree

NO_CHART = "no request said what its model saw"


def screen(known: Known, medium: Medium, *, bars: bool = True) -> str:
    """The whole screen, without the last line break; `bars`: a terminal also gets the chart."""
    fits = table(known, medium) if known.links else None
    shown = [medium.paint(safe(known.handle), "bold"), *labelled(_facts(known, fits), medium), ""]
    shown += tree(fits, medium) if fits else _listed(known, medium)
    if bars and medium.width is not None and len(known.links) > 1:
        shown += ["", *chart(known, medium)]
    return medium.drawn("\n".join(shown).rstrip("\n"))


def charted(known: Known, medium: Medium) -> str:
    """The chart alone, wherever it goes."""
    return medium.drawn("\n".join(chart(known, medium)) or NO_CHART)


def transcript(known: Known, medium: Medium) -> str:
    """Every item of the path: its number, kind, role and id, then its words in full."""
    said = known.path.place(known.mark)
    return "\n\n".join(
        whole(at, node.item, waits=at > said, medium=medium) for at, node in enumerate(known.path.nodes, 1)
    )


def whole(at: int, item: Item, *, waits: bool, medium: Medium) -> str:
    """One item: its number, kind, role and id, then its words in full."""
    named = " ".join(filter(None, (label(item), str(item.get("id") or ""))))
    status = item.get("status")
    ended = [str(status)] if status not in (None, "completed") else []
    marks = ", ".join(ended + (["unacknowledged"] if waits else []))
    head = safe(f"{at}  {named}" + (f"  ({marks})" if marks else ""))
    words = searchable(item)
    words = safe(with_characters(words) if is_call(item) else words) or with_characters(json.dumps(item))
    return "\n".join([medium.paint(head, "dim"), *(f"   {line}".rstrip() for line in words.split("\n"))])


def _facts(known: Known, fits: Table | None) -> Iterator[Line]:
    yield "owner", f"{OWNERS[known.strategy].words} (--{known.strategy})"
    if known.session:
        yield "session", f"{known.session.name} ({known.session.id})"
        if known.session.handle:
            yield "handle", known.session.handle
    yield "endpoint", str(known.scope) if known.scope else "none yet"
    if known.model:
        yield "model", known.model
    providers = dict.fromkeys(filter(None, map(provider_of, known.links)))
    if providers and [*providers] != [(known.model or "").partition("/")[0]]:  # else the model's name begins with it
        yield "provider", safe(", ".join(providers))
    yield "head", _head(known)
    unacknowledged = [node.item for node in known.unacknowledged]
    if known.session or unacknowledged:
        yield from waiting(unacknowledged, stands(known.run) if known.run else "")
    yield from _bills(known)
    if fits and fits.said:
        yield "each link", " · ".join(f"{head} {cell}" for head, cell in fits.said)
    if not known.forks:
        yield "forks", "this endpoint cannot tell what else goes on from a response"
    ignored = dict.fromkeys(name for link in known.links for name in link.parameters.get(IGNORED, ()))
    if ignored:
        yield "ignored", f"not sent to the model: {safe(', '.join(ignored))}"
    differing = [link.id for link in known.links if STREAMED in (link.error or {})]
    if differing:
        yield "warning", f"{TEXT_DIFFERS}: {safe(', '.join(differing))}"
    for note in known.notes:
        yield "note", note
    if going_on := _go_on(known):
        yield "go on", going_on


def _bills(known: Known) -> Iterator[Line]:
    """What the last request used, and what all that are shown did: two figures that are often taken for each other."""
    last = next((link for link in reversed(known.links) if link.id == known.at), None)
    one, all_ = bill([last] if last else [], known.prices), bill(known.links, known.prices)
    if one:
        yield "last", " · ".join([*tokens(one.used), *spent(one.cost_usd)])
    if all_ and all_.requests > 1:
        again = f"{all_.again:,} of the input billed again" if all_.again else ""
        said = [counted(all_.requests, "request"), *tokens(all_.used), again, *spent(all_.cost_usd)]
        yield "together", " · ".join(filter(None, said))


def _head(known: Known) -> str:
    after = f", @ {known.at}" if known.at else ""
    return f"{counted(len(known.path))}{after}"


def _go_on(known: Known) -> str:
    """The command that goes on from here, where there is one."""
    if known.session:
        return way_on(known.session, known.run)
    if known.strategy is Strategy.REPLAY:
        return f"convo chat --replay --from {quote(known.handle)}"
    if known.strategy is Strategy.CONVERSATION and not known.at:
        return f"convo chat --from {known.handle}"
    at = next((link for link in known.links if link.id == known.at), None)
    kept = at and at.stored and at.status in ("completed", "incomplete") and at.id.startswith("resp_")
    return f"convo chat --from {known.handle}" if kept else ""


def _listed(known: Known, medium: Medium) -> Iterator[str]:
    """What there is to see where no links are known: one line an item."""
    for at, node in enumerate(known.path.nodes, 1):
        line = f"{at:>4}  {label(node.item)}: {safe(first_words(node.item))}"
        yield line if medium.width is None else cut(line, medium.width)


def label(item: Item) -> str:
    """Kind and role: "message user", "function_call"."""
    return _label(kind(item), str(item.get("role") or ""))


@lru_cache(maxsize=256)
def _label(what: str, role: str) -> str:
    return safe(f"{what} {role}" if role else what)
