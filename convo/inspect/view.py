"""ConversationView: everything that is known of one handle, and figures about its links.

A store, a replay file and a remote endpoint each fill in one `ConversationView`. `PathIndex` holds every node of its
paths once and answers depth, estimated tokens and last keys. Unknown figures are None, never 0.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from convo.config.sections import Price
from convo.history.items import Item, is_assistant_message, item_preview
from convo.history.records import Link, Scope, Session, Strategy
from convo.history.tree import Key, Node, Path
from convo.usage.counting import Usage, estimate_tokens
from convo.usage.models import find_price


@dataclass(frozen=True, slots=True)
class IndexedNode:
    """One node, with what leads up to it.

    before:  the node before; the root before the first
    depth:   how many items lead up to and include it
    """

    before: Key
    item: Item
    depth: int


class PathIndex:
    """An index of places by key; grows by whole paths of one tree."""

    def __init__(self, root: Key) -> None:
        self.root = root
        self._places: dict[Key, IndexedNode] = {}
        self._tokens: dict[Key, int] = {root: 0}

    def add(self, path: Path) -> None:
        """Take in `path`; what it shares with those that are here costs nothing."""
        known = next((at for at in range(len(path), 0, -1) if path.nodes[at - 1].key in self._places), 0)
        before = path.nodes[known - 1].key if known else self.root
        for depth, node in enumerate(path.nodes[known:], known + 1):
            self._places[node.key] = IndexedNode(before, node.item, depth)
            before = node.key

    def __contains__(self, key: Key) -> bool:
        return key == self.root or key in self._places

    def __iter__(self) -> Iterator[tuple[Key, IndexedNode]]:
        """The places, each after the one before it."""
        return iter(self._places.items())

    def item(self, key: Key) -> Item | None:
        """What stands at `key`; None for the root and for what is not known."""
        place = self._places.get(key)
        return place.item if place else None

    def depth(self, key: Key) -> int:
        """How many items lead up to and include `key`; 0 for the root. raises: KeyError"""
        return 0 if key == self.root else self._places[key].depth

    def tokens(self, key: Key) -> int:
        """What the items up to and including `key` take, as an estimate. raises: KeyError

        Nobody asks this of a history without links, so nothing is estimated before somebody does.
        """
        if key not in self._tokens:
            for place in islice(self._places, len(self._tokens) - 1, None):
                found = self._places[place]
                self._tokens[place] = self._tokens[found.before] + estimate_tokens(found.item)
        return self._tokens[key]

    def back(self, key: Key, count: int) -> list[Key]:
        """The last `count` places of the path to `key`, oldest first. raises: KeyError"""
        found: list[Key] = []
        while len(found) < count and key != self.root:
            found.append(key)
            key = self._places[key].before
        return found[::-1]

    def start(self, key: Key, count: int) -> Key:
        """The place before the last `count` of the path to `key`. raises: KeyError"""
        if count >= self.depth(key):
            return self.root
        for _ in range(count):
            key = self._places[key].before
        return key


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose calls have no output yet.

    waits:   the ids of the calls that a person has to decide on
    paused:  it stopped for a person; otherwise it was in the middle of its calls
    by:      the process that performs it, in words; "" where none does any more
    """

    id: str
    waits: tuple[str, ...] = ()
    paused: bool = False
    by: str = ""

    @property
    def left(self) -> bool:
        """Whether it was in the middle of its calls when its process went away."""
        return not self.paused and not self.by


@dataclass(frozen=True, repr=False)  # an event loop spells out what it returns, and this is long
class ConversationView:
    """One conversation as far as it is known.

    handle:    what names it: a session's name, `resp_...`, `conv_...`, or a file
    scope:     the endpoint that its turns go to; None for a file that no record knows
    path:      what the handle stands for, from the first item to its head; empty when it lost an item
    mark:      the last node of `path` that the owner confirmed
    links:     the calls around it, forks included, oldest first
    places:    every node that those links and `path` pass through
    at:        the link at which the handle stands; None where there is none
    session:   the record, when one was named
    names:     the names of the sessions that made the links, by id
    forks:     whether every fork is among the links; an endpoint cannot tell its responses' children
    notes:     what else a person should know, one sentence each
    prices:    what a person said that models cost, by their full names
    lost:      the head of a path that cannot be read because an item on it was deleted
    run:       of agents, which is open in the session: nothing else can be said before it goes on
    """

    handle: str
    strategy: Strategy
    scope: Scope | None
    path: Path
    mark: Key
    links: tuple[Link, ...]
    places: PathIndex
    at: str | None = None
    session: Session | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    forks: bool = True
    notes: tuple[str, ...] = ()
    lost: Key | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    run: OpenRun | None = None

    @property
    def head(self) -> Key:
        """The last node of what the handle stands for."""
        return self.lost or self.path.head

    @property
    def unacknowledged(self) -> tuple[Node, ...]:
        """What was said and not confirmed."""
        return self.path.after(self.mark)

    @property
    def model(self) -> str | None:
        """The model of the record, or of the link at which the handle stands, with its provider."""
        if self.session:
            return self.session.model
        return next((link.model for link in reversed(self.links) if self.at in (link.id, None)), None)


@dataclass(frozen=True, slots=True)
class LinkStats:
    """One link in figures.

    sent:         items that travelled
    sent_tokens:  what they take, as an estimate; None when they are not known
    saw:          items that the model saw; None when they are not known
    used:         as the endpoint reported it; None when it did not
    said:         the first words of the last item that the model saw
    answered:     the first words of the answer, or of the error
    """

    sent: int
    sent_tokens: int | None
    saw: int | None
    used: Usage | None
    said: str
    answered: str

    @property
    def full(self) -> bool:
        """Whether the request held all that the model saw, rather than what its owner lacked."""
        return self.sent == self.saw


def compute_link_stats(link: Link, places: PathIndex) -> LinkStats:
    """The figures of `link`; what `places` does not hold is left open."""
    used = Usage.read(link.usage)
    if link.saw not in places:
        return LinkStats(link.sent, None, None, used, "", _error_message(link))
    return LinkStats(
        sent=link.sent,
        sent_tokens=places.tokens(link.saw) - places.tokens(places.start(link.saw, link.sent)),
        saw=places.depth(link.saw),
        used=used,
        said=_preview_or_empty(places.item(link.saw)),
        answered=_output_preview(link, places) or _error_message(link),
    )


def _output_preview(link: Link, places: PathIndex) -> str:
    """A message says what an answer is about; where there is none, its first item does."""
    if link.head not in places:
        return ""
    output = [places.item(key) for key in places.back(link.head, places.depth(link.head) - places.depth(link.saw))]
    said = [item for item in output if item is not None]
    return _preview_or_empty(next(filter(is_assistant_message, said), said[0] if said else None))


def _preview_or_empty(item: Item | None) -> str:
    return "" if item is None else item_preview(item)


def _error_message(link: Link) -> str:
    return str((link.error or {}).get("message") or "")


class UsageTotals(NamedTuple):
    """The figures of some requests.

    requests:  how many reported what they used
    again:     input tokens that an earlier request on the same line had been billed for
    cost_usd:  None where the price of one of them is not known
    """

    requests: int
    used: Usage
    again: int
    cost_usd: float | None


def link_cost_usd(link: Link, own: Mapping[str, Price]) -> float | None:
    """What one request cost in USD; None where it did not say what it used, or no price is known."""
    used = Usage.read(link.usage)
    return None if used is None else used.cost_usd(find_price(link.model, own))


def sum_link_usage(links: Sequence[Link], own: Mapping[str, Price]) -> UsageTotals | None:
    """What `links` come to; None where none of them said what it used.

    own:  prices that a person gave, by full name
    """
    used = {link.id: found for link in links if (found := Usage.read(link.usage))}
    if not used:
        return None
    costs = [link_cost_usd(link, own) for link in links if link.id in used]
    known = [cost for cost in costs if cost is not None]
    again = (
        min(used[link.id].input, used[link.parent].input) for link in links if link.id in used and link.parent in used
    )
    return UsageTotals(
        len(used), sum(used.values(), Usage()), sum(again), sum(known) if len(known) == len(costs) else None
    )


class ChartCell(NamedTuple):
    """A piece of a row: whether it travelled, and whether the cache held it."""

    sent: bool
    cached: bool


class InputTokenShare(NamedTuple):
    """One request, in tokens; `sent` and `cached` are parts of `seen`.

    seen:  as the endpoint reported it; None where it did not
    sent:  an estimate, but for a request that held everything; None where its items are not known
    """

    seen: int | None = None
    sent: int | None = None
    cached: int = 0

    def cells(self, room: int, most: int) -> tuple[ChartCell, ...]:
        """The row in cells, as many as `room` where `max_input_tokens` tokens were seen; never none for something."""
        if not self.seen:
            return ()
        count = max(1, round(room * self.seen / most))
        cached = round(count * self.cached / self.seen)
        sent = max(1, round(count * self.sent / self.seen)) if self.sent else 0
        return tuple(ChartCell(at >= count - sent, at < cached) for at in range(count))


def input_token_share(was: LinkStats) -> InputTokenShare:
    """Where the tokens of one request came from."""
    if was.used is None:
        return InputTokenShare()
    seen = was.used.input
    sent = seen if was.full else None if was.sent_tokens is None else min(was.sent_tokens, seen)
    return InputTokenShare(seen, sent, min(was.used.cached, seen))


def max_input_tokens(shares: Sequence[InputTokenShare]) -> int:
    """The tokens of the longest row; 0 where none is known."""
    return max((one.seen or 0 for one in shares), default=0)


CHARS_BEFORE_MATCH = 20
"""How many characters stand before the first word that was found."""


def search_snippet(text: str, words: str, width: int = 60) -> str:
    """At most `width` characters of `text` on one line, around the first of `words` that is in it."""
    line = " ".join(text.split())
    folded = _fold_case(line)
    places = [folded.find(_fold_case(word)) for word in words.split()]
    found = min((place for place in places if place >= 0), default=0)
    start = max(0, found - CHARS_BEFORE_MATCH) if len(line) > width else 0
    start = min(start, max(0, len(line) - width))
    end = start + width
    before, after = ("…" if start else ""), ("…" if end < len(line) else "")
    return before + line[start + len(before) : end - len(after)] + after


def _fold_case(text: str) -> str:
    """`text` without case and marks, sign for sign, so that places in it are places in `text`."""
    return "".join(unicodedata.normalize("NFKD", sign)[0].lower()[:1] or sign for sign in text)
