"""ConversationView: everything that is known of one handle, and figures about its links.

A store, a replay file and a remote endpoint each build one `ConversationView`. `PathIndex` stores every node of its
paths once and returns depth, estimated tokens and last keys. Unknown figures are None, never 0.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, NamedTuple

from convo.compaction.window import items_shown_to_model
from convo.config.sections import Price
from convo.history.canonical import digest
from convo.history.items import Item, is_assistant_message, item_preview, item_type
from convo.history.records import Link, Scope, Session, Strategy, is_compaction_link
from convo.history.request_body import SentBody
from convo.history.tree import Key, Node, Path
from convo.inspect.run_timeline import RunTimeline
from convo.report import FLAT, Wire
from convo.strategies.instructions import is_developer_message
from convo.strategies.strategy import STRATEGIES
from convo.usage.cost import Usage
from convo.usage.counting import BYTES_PER_TOKEN, estimate_tokens
from convo.usage.model_info import find_price


class IndexedNode(NamedTuple):
    """One node with its parent and depth.

    parent:  the key of the node before it; the root's key for the first
    depth:   number of items up to and including it
    """

    parent: Key
    item: Item
    depth: int


class PathIndex:
    """An index of nodes by key; grows by whole paths of one tree."""

    def __init__(self, root: Key) -> None:
        self.root = root
        self._nodes: dict[Key, IndexedNode] = {}
        self._tokens: dict[Key, int] = {root: 0}
        self._developer_messages: dict[Key, tuple[Item, ...]] = {root: ()}

    def add(self, path: Path) -> None:
        """Add the nodes of `path`; nodes that are already in the index cost nothing."""
        known_count = next((index for index in range(len(path), 0, -1) if path.nodes[index - 1].key in self._nodes), 0)
        parent = path.nodes[known_count - 1].key if known_count else self.root
        for depth, node in enumerate(path.nodes[known_count:], known_count + 1):
            self._nodes[node.key] = IndexedNode(parent, node.item, depth)
            parent = node.key

    def __contains__(self, key: Key) -> bool:
        return key == self.root or key in self._nodes

    def __iter__(self) -> Iterator[tuple[Key, IndexedNode]]:
        """Iterate over the nodes, each after its parent."""
        return iter(self._nodes.items())

    def item(self, key: Key) -> Item | None:
        """Return the item at `key`; None for the root and for an unknown key."""
        node = self._nodes.get(key)
        return node.item if node else None

    def depth(self, key: Key) -> int:
        """Return the number of items up to and including `key`; 0 for the root. Raises KeyError."""
        return 0 if key == self.root else self._nodes[key].depth

    def tokens_up_to(self, key: Key) -> int:
        """Estimate the tokens of the items up to and including `key`. Raises KeyError.

        Computed on first use: a history without links never needs it.
        """
        if key not in self._tokens:
            for node_key in islice(self._nodes, len(self._tokens) - 1, None):
                node = self._nodes[node_key]
                self._tokens[node_key] = self._tokens[node.parent] + estimate_tokens(node.item)
        return self._tokens[key]

    def developer_messages(self, key: Key) -> tuple[Item, ...]:
        """Return the last two developer messages up to and including `key`; none for an unknown key.

        They decide where a request had its instructions (`convo.strategies.instructions`).
        """
        for node_key in islice(self._nodes, len(self._developer_messages) - 1, None):
            node = self._nodes[node_key]
            before = self._developer_messages[node.parent]
            is_message = is_developer_message(node.item)
            self._developer_messages[node_key] = (*before[-1:], node.item) if is_message else before
        return self._developer_messages.get(key, ())

    def last_keys(self, key: Key, count: int) -> list[Key]:
        """Return the keys of the last `count` nodes of the path to `key`, oldest first. Raises KeyError."""
        keys: list[Key] = []
        while len(keys) < count and key != self.root:
            keys.append(key)
            key = self._nodes[key].parent
        return keys[::-1]

    def keys_after(self, key: Key, depth: int = 0) -> list[Key]:
        """Return the keys of the path to `key` without the first `depth` ones, oldest first. Raises KeyError."""
        return self.last_keys(key, self.depth(key) - depth)

    def is_ancestor(self, key: Key, head: Key) -> bool:
        """Return whether `key` is on the path to `head`; False for an unknown key."""
        if head not in self or key not in self:
            return False
        count = self.depth(head) - self.depth(key)
        return count >= 0 and self.key_before_last(head, count) == key

    def key_before_last(self, key: Key, count: int) -> Key:
        """Return the key before the last `count` nodes of the path to `key`. Raises KeyError."""
        if count >= self.depth(key):
            return self.root
        for _ in range(count):
            key = self._nodes[key].parent
        return key


AGENTS_OPTION = " --agent FILE.py:NAME"
"""The option that `convo resume` needs for a run without a record of its agents or tools."""


class OpenRun(NamedTuple):
    """A run whose calls have no output yet.

    pending_call_ids:  the ids of the calls that wait for approval
    is_paused:         it stopped for an approval; otherwise it was executing its calls
    process:           a description of the process that executes it; "" if there is none
    agents_option:     the option that `convo resume` needs for it; "" for none
    """

    id: str
    pending_call_ids: tuple[str, ...] = ()
    is_paused: bool = False
    process: str = ""
    agents_option: str = AGENTS_OPTION

    @property
    def is_orphaned(self) -> bool:
        """Whether its process ended while it executed its calls."""
        return not self.is_paused and not self.process


@dataclass(frozen=True, repr=False)  # asyncio's debug output formats results, and this repr would be long
class ConversationView:
    """One conversation as far as it is known.

    handle:           a session's name, `resp_...`, `conv_...`, or a file
    scope:            the endpoint of its turns; None for a file without a record
    path:             from the first item to the head; empty if an item of it was deleted
    confirmed_head:   the last node of `path` that the owner confirmed
    links:            its requests, forks included, oldest first
    path_index:       every node of `path` and of the paths of those links
    current_link_id:  the link of the handle; None if there is none
    session:          the record, if the handle is a session's name
    session_names:    the names of the sessions that made the links, by id
    has_all_forks:    whether every fork is among the links; an endpoint cannot list the children of its responses
    has_all_links:    whether no request was left out because there are more than the caller reads
    notes:            other facts that a person should know, one sentence each
    prices:           the user's own prices, by full name of the model
    unreadable_head:  the head of a path that cannot be read because an item of it was deleted
    open_run:         an agent run that is open in the session: no message can be added before it is resumed
    agent:            the agent that answered last, if the session has agents
    run_timeline:     the time line of the agent run that the handle names, if it has entries
    running_texts:    the text so far of recorded responses in progress, by the id of their request; loaded for a watch
    sent_body:        the body of the handle's own request, if that is a recorded one and its body was loaded
    """

    handle: str
    strategy: Strategy
    scope: Scope | None
    path: Path
    confirmed_head: Key
    links: tuple[Link, ...]
    path_index: PathIndex
    current_link_id: str | None = None
    session: Session | None = None
    session_names: Mapping[str, str] = field(default_factory=dict)
    has_all_forks: bool = True
    has_all_links: bool = True
    notes: tuple[str, ...] = ()
    unreadable_head: Key | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    open_run: OpenRun | None = None
    agent: str | None = None
    run_timeline: RunTimeline | None = None
    running_texts: Mapping[str, str] = field(default_factory=dict)
    sent_body: SentBody | None = None

    @property
    def replay_file(self) -> str | None:
        """The path of the replay file; None under another strategy."""
        if not STRATEGIES[self.strategy].uses_file:
            return None
        return self.session.handle if self.session and self.session.handle else self.handle

    @property
    def head(self) -> Key:
        """The last node of the handle's path."""
        return self.unreadable_head or self.path.head

    @property
    def unconfirmed_nodes(self) -> tuple[Node, ...]:
        """The nodes that the owner has not confirmed."""
        return self.path.after(self.confirmed_head)

    @property
    def model(self) -> str | None:
        """The model of the record, or else of the handle's link, with its provider."""
        if self.session:
            return self.session.model
        return next((link.model for link in reversed(self.links) if self.current_link_id in (link.id, None)), None)


class LinkStats(NamedTuple):
    """The figures of one link.

    sent_count:      number of items sent
    sent_tokens:     their tokens, estimated; None if the items are unknown
    input_count:     number of items that the model received; None if unknown
    usage:           as the endpoint reported it; None if it did not
    input_preview:   the first words of the last item that the model received
    output_preview:  the first words of the answer, or of the error
    """

    sent_count: int
    sent_tokens: int | None
    input_count: int | None
    usage: Usage | None
    input_preview: str
    output_preview: str

    @property
    def is_full_history(self) -> bool:
        """Whether the request contained all items that the model received, not only the delta."""
        return self.sent_count == self.input_count


def compute_link_stats(link: Link, path_index: PathIndex) -> LinkStats:
    """Compute the figures of `link`; figures that need nodes missing in `path_index` are None."""
    usage = Usage.from_json(link.usage)
    if link.input_head not in path_index:
        return LinkStats(link.sent_count, None, None, usage, "", _error_message(link))
    return LinkStats(
        sent_count=link.sent_count,
        sent_tokens=path_index.tokens_up_to(link.input_head)
        - path_index.tokens_up_to(path_index.key_before_last(link.input_head, link.sent_count)),
        input_count=path_index.depth(link.input_head),
        usage=usage,
        input_preview=_preview_or_empty(path_index.item(link.input_head)),
        output_preview=(link.status == "failed" and _error_message(link))
        or _output_preview(link, path_index)
        or _error_message(link),
    )


def _output_preview(link: Link, path_index: PathIndex) -> str:
    """Preview the first assistant message of the output; without one, its first item."""
    if link.head not in path_index:
        return ""
    output = [path_index.item(key) for key in path_index.keys_after(link.head, path_index.depth(link.input_head))]
    items = [item for item in output if item is not None]
    return _preview_or_empty(next(filter(is_assistant_message, items), items[0] if items else None))


def _preview_or_empty(item: Item | None) -> str:
    return "" if item is None else item_preview(item)


def _error_message(link: Link) -> str:
    return str((link.error or {}).get("message") or "")


class UsageTotals(NamedTuple):
    """The summed figures of the requests with a reported usage.

    resent_tokens:   input tokens that an earlier request on the same branch was already billed for
    cost_usd:        null if the price of one of them is unknown
    known_cost_usd:  cost of those whose price is known, a lower bound of the cost; null if none is known
    unpriced_count:  number of those whose price is unknown
    """

    request_count: Annotated[int, Wire("requests")]
    usage: Annotated[Usage, FLAT]
    resent_tokens: int
    cost_usd: float | None
    known_cost_usd: float | None
    unpriced_count: Annotated[int, Wire("unpriced")]


def link_cost_usd(link: Link, price_settings: Mapping[str, Price]) -> float | None:
    """Return the cost of one request in USD; None if its usage or price is unknown."""
    return _cost_usd(link, Usage.from_json(link.usage), price_settings)


def _cost_usd(link: Link, usage: Usage | None, price_settings: Mapping[str, Price]) -> float | None:
    return None if usage is None else usage.cost_usd(find_price(link.model, price_settings, link.service_tier))


def sum_link_usage(
    links: Sequence[Link],
    price_settings: Mapping[str, Price],
    *,
    other_links: Sequence[Link] = (),
    path_index: PathIndex | None = None,
) -> UsageTotals | None:
    """Sum the usage of `links`; None if none of them reported its usage.

    price_settings:  the user's own prices, by full name of the model
    other_links:     further links that some of `links` continue; their input is re-sent, and not in the sums
    path_index:      the items of the links; without it, no input after a compaction counts as re-sent
    """
    usages = {link.id: usage for link in links if (usage := Usage.from_json(link.usage))}
    if not usages:
        return None
    costs = [_cost_usd(link, usages[link.id], price_settings) for link in links if link.id in usages]
    known_costs = [cost for cost in costs if cost is not None]
    resent_tokens = count_resent_tokens([*other_links, *links], path_index)
    return UsageTotals(
        len(usages),
        sum(usages.values(), Usage()),
        sum(resent_tokens.get(link_id, 0) for link_id in usages),
        sum(known_costs) if len(known_costs) == len(costs) else None,
        sum(known_costs) if known_costs else None,
        len(costs) - len(known_costs),
    )


def count_resent_tokens(links: Iterable[Link], path_index: PathIndex | None) -> dict[str, int]:
    """Return by id the input tokens of each link that an earlier request on its branch was already billed for.

    They are the input of the request that it continues, at most its own input. After a compaction they are estimated:
    the summary is new input, and the items that the compaction kept are a part of the earlier input.
    A link is missing if it reported no usage, or if its earlier request, its usage or the items of either are unknown.
    """
    links_by_id = {link.id: link for link in links}
    usages = {link.id: usage for link in links_by_id.values() if (usage := Usage.from_json(link.usage))}
    compactions = _CompactionIndex(path_index)
    counts: dict[str, int] = {}
    for link, earlier in compactions.find_earlier_requests(links_by_id):
        if earlier.id not in usages or link.id not in usages:
            continue
        input_tokens, earlier_tokens = usages[link.id].input_tokens, usages[earlier.id].input_tokens
        resent: float | None = earlier_tokens
        if link.parent_id and link.parent_id != earlier.id:
            share = compactions.estimate_kept_share(links_by_id[link.parent_id].head, link, earlier)
            resent = None if share is None else earlier_tokens * share
        elif (last := compactions.find_last(link.input_head)) and compactions.is_output(last, earlier):
            # `earlier` was billed for its compacted input, too: only the items after the compaction are new
            resent = input_tokens - compactions.estimate_tokens_after(last, link)
        elif last and last != compactions.find_last(earlier.input_head):
            share = compactions.estimate_kept_share(last, link, earlier)
            resent = None if share is None else earlier_tokens * share
        if resent is not None:
            counts[link.id] = max(0, min(input_tokens, earlier_tokens, round(resent)))
    return counts


class _CompactionIndex:
    """The compactions in the histories of links.

    The estimate for a compaction is made once for all its forks.
    """

    def __init__(self, path_index: PathIndex | None) -> None:
        self._path_index = path_index or PathIndex(Key(""))
        self._kept_tokens: dict[tuple[Key, Key], tuple[int, int] | None] = {}
        self._last_compactions: dict[Key, Key | None] = {self._path_index.root: None}
        for key, node in self._path_index:
            last = key if item_type(node.item) == "compaction" else self._last_compactions[node.parent]
            self._last_compactions[key] = last

    def find_earlier_requests(self, links: Mapping[str, Link]) -> Iterator[tuple[Link, Link]]:
        """Yield each link with the request before it on its branch that was no compaction, if there is one."""
        earlier_requests: dict[str, Link | None] = {}
        for link in links.values():
            between: list[str] = []  # the link itself and the compactions before it
            earlier: Link | None = link
            while earlier and earlier.id not in earlier_requests:
                earlier_requests[earlier.id] = None  # the end of a cycle, too
                between.append(earlier.id)
                earlier = links.get(earlier.parent_id or "")
                if earlier and not self._is_compaction(earlier):
                    break
            else:
                earlier = earlier_requests[earlier.id] if earlier else None
            earlier_requests.update(dict.fromkeys(between, earlier))
        for link_id, found in earlier_requests.items():
            if found:
                yield links[link_id], found

    def find_last(self, head: Key) -> Key | None:
        """Return the key of the last compaction item in the path to `head`; None also for an unknown path."""
        return self._last_compactions.get(head)

    def is_output(self, key: Key, link: Link) -> bool:
        """Return whether `link` produced the item at `key`."""
        return key in self._output_keys(link)

    def estimate_tokens_after(self, compaction: Key, link: Link) -> int:
        """Estimate the tokens of the items after `compaction` in the input of `link`."""
        index = self._path_index
        keys = index.keys_after(link.input_head, index.depth(compaction))
        return sum(estimate_tokens(item) for key in keys if (item := index.item(key)) is not None)

    def estimate_kept_share(self, window_head: Key, link: Link, earlier: Link) -> float | None:
        """Estimate the share of the input tokens of `earlier` that `link` sent again; None if the items are unknown.

        window_head:  the end of the history that a compaction between them left
        """
        heads = (window_head, earlier.input_head)
        # Compared for each fork again, 600 forks of 500 items took 2.5 s.
        if heads not in self._kept_tokens:
            self._kept_tokens[heads] = self._estimate_kept_tokens(*heads)
        counts = self._kept_tokens[heads]
        if counts is None:
            return None
        kept_tokens, total_tokens = counts
        for name in ("instructions", "tools"):
            value = earlier.parameters.get(name)
            tokens = len(json.dumps(value)) // BYTES_PER_TOKEN if value else 0
            total_tokens += tokens
            kept_tokens += tokens if value == link.parameters.get(name) else 0
        return kept_tokens / total_tokens if total_tokens else 0

    def _estimate_kept_tokens(self, window_head: Key, earlier_head: Key) -> tuple[int, int] | None:
        """Estimate the tokens of the earlier items that the window still has, and of all earlier items."""
        items, earlier_items = self._history_items(window_head), self._history_items(earlier_head)
        if items is None or earlier_items is None:
            return None
        kept = Counter(map(digest, _items_shown(items)))
        kept_tokens = total_tokens = 0
        for item in _items_shown(earlier_items):
            tokens, item_digest = estimate_tokens(item), digest(item)
            total_tokens += tokens
            if kept[item_digest]:
                kept[item_digest] -= 1
                kept_tokens += tokens
        return kept_tokens, total_tokens

    def _is_compaction(self, link: Link) -> bool:
        """Return whether `link` made a compaction and no answer."""
        output = self._output_keys(link)
        return all(self._last_compactions[key] == key for key in output) if output else is_compaction_link(link)

    def _output_keys(self, link: Link) -> Sequence[Key]:
        index = self._path_index
        if link.head not in index or link.input_head not in index:
            return ()
        return index.keys_after(link.head, index.depth(link.input_head))

    def _history_items(self, head: Key) -> list[Item] | None:
        index = self._path_index
        if head not in index:
            return None
        return [item for key in index.keys_after(head) if (item := index.item(key)) is not None]


def _items_shown(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items that a model receives; the content of a compaction item is encrypted."""
    return items_shown_to_model(items, lambda item: None)


class ChartCell(NamedTuple):
    """One cell of a row: whether its tokens were sent, and whether they were cached."""

    is_sent: bool
    is_cached: bool


class InputTokenShare(NamedTuple):
    """The input tokens of one request; `sent_tokens` and `cached_tokens` are parts of `input_tokens`.

    input_tokens:  as the endpoint reported it; None if it did not
    sent_tokens:   an estimate, except for a request with the full history; None if its items are unknown
    """

    input_tokens: int | None = None
    sent_tokens: int | None = None
    cached_tokens: int = 0

    def to_cells(self, max_cells: int, max_tokens: int) -> tuple[ChartCell, ...]:
        """Return the row's cells: `max_cells` for `max_tokens` input tokens, at least one for a nonzero figure."""
        if not self.input_tokens:
            return ()
        count = max(1, round(max_cells * self.input_tokens / max_tokens))
        cached = round(count * self.cached_tokens / self.input_tokens)
        sent = max(1, round(count * self.sent_tokens / self.input_tokens)) if self.sent_tokens else 0
        return tuple(ChartCell(index >= count - sent, index < cached) for index in range(count))


def input_token_share(stats: LinkStats) -> InputTokenShare:
    """Return the input tokens of one request by source."""
    if stats.usage is None:
        return InputTokenShare()
    input_tokens = stats.usage.input_tokens
    sent_tokens = (
        input_tokens
        if stats.is_full_history
        else None
        if stats.sent_tokens is None
        else min(stats.sent_tokens, input_tokens)
    )
    return InputTokenShare(input_tokens, sent_tokens, min(stats.usage.cached_tokens, input_tokens))


def max_input_tokens(shares: Sequence[InputTokenShare]) -> int:
    """Return the input tokens of the longest row; 0 if none is known."""
    return max((share.input_tokens or 0 for share in shares), default=0)


MAX_CHARS_BEFORE_MATCH = 20
"""Characters shown before the first match, at most a third of all."""


def search_snippet(text: str, query: str, width: int = 60) -> str:
    """Return at most `width` characters of `text` on one line, around the first word of `query` that it contains."""
    line = " ".join(text.split())
    folded = _fold_case(line)
    positions = [folded.find(_fold_case(word)) for word in query.split()]
    match_start = min((position for position in positions if position >= 0), default=0)
    start = max(0, match_start - min(MAX_CHARS_BEFORE_MATCH, width // 3)) if len(line) > width else 0
    start = min(start, max(0, len(line) - width))
    end = start + width
    before, after = ("…" if start else ""), ("…" if end < len(line) else "")
    return before + line[start + len(before) : end - len(after)] + after


def _fold_case(text: str) -> str:
    """Remove case and diacritics, one character for each, so that indexes stay valid in `text`."""
    return "".join(unicodedata.normalize("NFKD", char)[0].lower()[:1] or char for char in text)
