"""Placement: find the request that a stateless request continues, and the part of its path that is stored already.

A stateless request contains its whole history, and an answer comes back in another form: without ids, without
reasoning, with moved cache breakpoints, with parts of messages merged. So two comparisons are made:

* The parent is found by *units*: texts, calls, outputs and other parts in a normal form, without reasoning. The chain
  digest of a unit covers all units before it, so one dictionary finds the longest common prefix.
* Nodes are shared as long as whole *items* have the same meaning, reasoning included. A client that leaves out the
  reasoning has the same parent, and another path.

A request without a common prefix begins a branch. Its parent is the request whose answer it contains (a compaction by
summary), or the last request with the same instructions and tools (a compaction by dropping items), or the last one
with calls that wait for their outputs (a subagent).
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from convo.history.canonical import CANONICAL_ENCODER, SERVER_FIELDS, SERVER_PART_FIELDS, Hash
from convo.history.items import Item, Json, is_client_call, is_client_output, item_text, item_type
from convo.history.tree import Key, Node, Path, child_key

Chain = tuple[bytes, ...]
"""For each unit of a history, the digest of all units up to it."""

IGNORED_FIELDS = SERVER_FIELDS | SERVER_PART_FIELDS | {"cache_control", "prompt_cache_breakpoint", "citations"}
"""Fields that differ between an answer and its copy in the next request."""

TEXT_PARTS = ("input_text", "output_text", "text")

MIN_SUMMARY_CHARS = 40
"""Characters; a shorter answer may be contained in another conversation by chance."""

MAX_BODY_PATHS = 4
"""Bodies of requests whose nodes are known to be stored: the latest ones, of an agent and of its subagents."""

# A search for each answer in all texts took 16 s for 19,000 messages of 1 MB.
RECENT_REQUESTS, RECENT_OUTPUTS = 8, 16
"""Requests whose answers, and the last items of each of them that, are compared with the items of a new branch."""


def item_units(item: Item) -> list[bytes]:
    """Return the units of an item: one for each part of a message, except that an assistant's text is one unit."""
    kind = item_type(item)
    if kind == "reasoning":
        return []
    if kind == "message":
        role = "system" if item.get("role") == "developer" else item.get("role")
        parts = _normalize_parts(item.get("content"))
        if role == "assistant":
            text = "".join(part for part in parts if isinstance(part, str)).strip()
            parts = [*([text] if text else []), *(part for part in parts if not isinstance(part, str))]
        return [_encode([role, part]) for part in parts if part != ""]
    if is_client_call(item):
        arguments = item.get("arguments") if "arguments" in item else item.get("input", item.get("action"))
        return [_encode(["call", item.get("call_id"), item.get("name"), _normalize_json(arguments)])]
    if is_client_output(item):
        return [_encode(["output", item.get("call_id"), _merge_texts(_normalize_parts(item.get("output")))])]
    return [_encode(_drop_fields(item))]


def item_form(item: Item) -> bytes:
    """Return the digest of an item that decides whether its node is shared; reasoning counts, ids do not."""
    if item_type(item) == "reasoning":
        units = [_encode([_drop_fields({**item, "encrypted_content": item.get("encrypted_content")})])]
    else:
        units = item_units(item)
    return sha256(b"\0".join([item_type(item).encode("utf-8", "replace"), *units])).digest()


def chain_units(items: Iterable[Item]) -> Chain:
    """Return the chain of `items`."""
    return tuple(digest for digest, _ in iterate_chain(items))


def iterate_chain(items: Iterable[Item], previous: bytes = b"") -> Iterator[tuple[bytes, int]]:
    """Yield the chain of `items` after a history that ends with the digest `previous`, and the size of each unit."""
    for item in items:
        for unit in item_units(item):
            previous = sha256(previous + unit).digest()
            yield previous, len(unit)


def _normalize_parts(content: Json) -> list[Json]:
    """Return content as texts and other parts."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return [] if content is None else [_drop_fields(content)]
    return [
        part.get("text") if isinstance(part, Mapping) and part.get("type") in TEXT_PARTS else _drop_fields(part)
        for part in content
    ]


def _merge_texts(parts: Sequence[Json]) -> list[Json]:
    texts = "\n".join(part for part in parts if isinstance(part, str))
    return [texts, *(part for part in parts if not isinstance(part, str))]


def _drop_fields(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {
            name: _drop_fields(member)
            for name, member in value.items()
            if name not in IGNORED_FIELDS and member is not None
        }
    return [_drop_fields(member) for member in value] if isinstance(value, list) else value


def _normalize_json(arguments: Json) -> Json:
    """Return the value of arguments in JSON: clients parse them and serialize them again."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return arguments


def _encode(value: Json) -> bytes:
    """Raises ValueError for NaN, RecursionError for a value that is nested too deeply."""
    return CANONICAL_ENCODER.encode(value).encode("ascii")


def hash_setup(parameters: Mapping[str, Json]) -> str:
    """Return a hash of the instructions and the names of the tools: it distinguishes an agent from its subagents."""
    tools = parameters.get("tools")
    names = [
        str(tool.get("name") or tool.get("type")) if isinstance(tool, Mapping) else ""
        for tool in (tools if isinstance(tools, list) else ())
    ]
    return sha256(_encode([parameters.get("instructions"), names])).hexdigest()


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """One recorded request.

    line:          the id of the first request of its line: an agent, or one of its subagents
    setup:         of `hash_setup`
    path:          the input, and the output behind it
    has_open_call: whether the output has a call that the client runs
    """

    id: str
    parent_id: str | None
    line: str | None
    setup: str
    path: Path
    output: tuple[Item, ...]
    has_tools: bool

    @property
    def has_open_call(self) -> bool:
        return any(map(is_client_call, self.output))


class Placement(NamedTuple):
    """The place of a new request.

    line:          None for a new line
    path:          the input
    shared_count:  nodes of `path` that are stored already
    """

    parent_id: str | None
    line: str | None
    path: Path
    shared_count: int


class _Position(NamedTuple):
    """The request that added a unit, and whether it is in its output."""

    request_id: str
    is_output: bool


@dataclass
class ConversationIndex:
    """The requests of one recorded session.

    is_keyed:    the client has an id for the session, so all requests belong together
    size_bytes:  of the units of all requests; a unit that several requests share counts once
    """

    root: Key
    is_keyed: bool
    requests: dict[str, PlacedRequest] = field(default_factory=dict)
    size_bytes: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _positions: dict[bytes, _Position] = field(default_factory=dict)
    _forms: dict[Key, bytes] = field(default_factory=dict)
    _body_paths: "deque[tuple[Key, ...]]" = field(default_factory=lambda: deque(maxlen=MAX_BODY_PATHS))

    @property
    def main_line(self) -> str | None:
        """The line of the first request with tools, else of the first request: agents also send requests for titles."""
        placed = list(self.requests.values())
        return next((request.line for request in placed if request.has_tools), placed[0].line if placed else None)

    def place(self, items: Sequence[Item], setup: str) -> Placement:
        """Find the place of a request whose whole input is `items`.

        Raises ValueError or RecursionError for items that have no JSON form.
        """
        chain = chain_units(items)
        position, matched = None, 0
        for matched in range(len(chain), 0, -1):
            position = self._positions.get(chain[matched - 1])
            if position is not None:
                break
        owner = self.requests[position.request_id] if position is not None else None
        path, shared_count = self._share_nodes(owner, items)
        if owner is not None and position is not None:
            parent_id = owner.id if position.is_output else owner.parent_id
            is_repeated = matched == len(chain)
            if parent_id is not None or is_repeated:
                return Placement(parent_id, owner.line, path, shared_count)
            if (summary := self._find_summarized(items)) is not None:
                return Placement(summary.id, summary.line, path, shared_count)
            if owner.setup == setup or not self.is_keyed:
                return Placement(None, owner.line, path, shared_count)
        elif (summary := self._find_summarized(items)) is not None:
            return Placement(summary.id, summary.line, path, shared_count)
        if not self.is_keyed:
            return Placement(None, None, path, shared_count)
        return Placement(*self._find_branch_parent(setup, has_prefix=owner is not None), path, shared_count)

    def add(self, request: PlacedRequest) -> None:
        """Add a request whose response has ended; `line` None starts a line."""
        placed = PlacedRequest(
            request.id, request.parent_id, request.line or request.id, request.setup, request.path, request.output,
            request.has_tools,
        )  # fmt: skip
        self.requests[placed.id] = placed
        input_items = placed.path.items[: len(placed.path) - len(placed.output)]
        last, size_bytes = b"", 0
        for last, unit_bytes in iterate_chain(input_items):
            size_bytes += unit_bytes if last not in self._positions else 0
            self._positions.setdefault(last, _Position(placed.id, is_output=False))
        for digest, unit_bytes in iterate_chain(placed.output, last):
            size_bytes += unit_bytes if digest not in self._positions else 0
            self._positions[digest] = _Position(placed.id, is_output=True)
        self._sizes[placed.id] = size_bytes
        self.size_bytes += size_bytes

    def drop_oldest(self, max_bytes: int) -> None:
        """Drop the oldest requests until the others have at most `max_bytes`; the latest one is kept."""
        if self.size_bytes <= max_bytes:
            return
        for request_id in list(self.requests)[:-1]:
            del self.requests[request_id]
            self.size_bytes -= self._sizes.pop(request_id, 0)
            if self.size_bytes <= max_bytes:
                break
        kept = self.requests
        self._positions = {digest: one for digest, one in self._positions.items() if one.request_id in kept}
        self._forms.clear()

    def place_body(self, part_hashes: Sequence[Hash]) -> tuple[tuple[Key, ...], int]:
        """Return the keys of a request's body, and how many of its first nodes a recent body has."""
        keys, key = list[Key](), self.root
        for part_hash in part_hashes:
            key = child_key(key, part_hash)
            keys.append(key)
        shared_counts = (
            next((index for index, pair in enumerate(zip(keys, known, strict=False)) if pair[0] != pair[1]), len(known))
            for known in self._body_paths
        )
        return tuple(keys), min(max(shared_counts, default=0), len(keys))

    def add_body(self, keys: tuple[Key, ...]) -> None:
        """Add the keys of a body that is stored."""
        self._body_paths.append(keys)

    def _share_nodes(self, owner: PlacedRequest | None, items: Sequence[Item]) -> tuple[Path, int]:
        """Return the path of `items`, and how many of its nodes are those of the owner's path."""
        shared_count = 0
        if owner is not None:
            for node, item in zip(owner.path.nodes, items, strict=False):
                if self._form_of(node) != item_form(item):
                    break
                shared_count += 1
        base = owner.path.first(shared_count) if owner is not None else Path(self.root)
        return base.append(items[shared_count:]), shared_count

    def _form_of(self, node: Node) -> bytes:
        if node.key not in self._forms:
            self._forms[node.key] = item_form(node.item)
        return self._forms[node.key]

    def _find_summarized(self, items: Sequence[Item]) -> PlacedRequest | None:
        """Return the latest request whose answer is in one of `items`: as a text within a message, or as an item."""
        texts = [item_text(item) for item in items if item_type(item) == "message"]
        forms = {item_form(item) for item in items if item_type(item).startswith("compaction")}
        for request in list(self.requests.values())[: -RECENT_REQUESTS - 1 : -1]:
            for output in request.output[-RECENT_OUTPUTS:]:
                answer = item_text(output).strip() if item_type(output) == "message" else ""
                if len(answer) >= MIN_SUMMARY_CHARS and any(answer in text for text in texts):
                    return request
                if forms and item_form(output) in forms:
                    return request
        return None

    def _find_branch_parent(self, setup: str, *, has_prefix: bool) -> tuple[str | None, str | None]:
        """Return the parent and the line of a branch that shares no answer with an earlier request."""
        latest_first = list(self.requests.values())[::-1]
        if not has_prefix:
            main_line = self.main_line
            main_requests = (request for request in latest_first if request.line == main_line)
            same = next((request for request in main_requests if request.setup == setup), None)
            if same is not None:
                return same.id, same.line
        caller = next((request for request in latest_first if request.has_open_call and request.setup != setup), None)
        return (caller.id if caller else None), None
