"""The recorder: write exchanges of other clients to a store, as requests of recorded sessions.

`begin` writes a request with the status "in_progress", so that the inspectors show it at once; `finish` replaces it by
the final one, under the id of the response if the server sent one. Each conversation of a client is a session, whose
id is a hash of the client's own id of it, or of its first message: so every process finds it again.

A recorder that is killed leaves requests in progress. Its lease expires, or its process is known to be dead, and the
next recorder closes them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from convo.config.sections import KNOWN_PROVIDERS
from convo.errors import Conflict, ConvoError, ItemDeleted, NotCanonical, NotFound
from convo.history.accumulator import ResponseAccumulator
from convo.history.canonical import Hash, item_hash
from convo.history.items import Json, StreamEvent, called_tools, is_user_message, request_title
from convo.history.records import (
    EMBEDDED_URL,
    RECORDED_SESSION_PREFIX,
    RECORDING_PARAMETER,
    UNFINISHED_STATUSES,
    Link,
    Scope,
    Session,
    Strategy,
)
from convo.history.request_body import API_PATHS, VERSION_HEADERS
from convo.history.tree import Path, root_key
from convo.recording.client import ClientIdentity, find_session_key, identify_client
from convo.recording.decoder import DecodedRequest, DecodedResponse, decode_request, decode_response
from convo.recording.exchange import ExchangeRequest, ExchangeResponse
from convo.recording.placement import ConversationIndex, PlacedRequest, Placement, hash_setup, item_units
from convo.runtime import Clock, SystemClock, is_process_dead, process_identity, random_id, shielded
from convo.stores.base import ANY_HEAD, AppendItems, Store, Transaction
from convo.stores.lease import LeaseGuard
from convo.stores.request_list import RequestQuery

Decoded = TypeVar("Decoded")

DEFAULT_TTL_S = 7 * 86_400.0
"""Seconds after the last request of a recorded session before it is deleted."""

PRUNES_PER_TTL, MAX_PRUNE_INTERVAL_S = 10, 3600.0
MAX_INDEXES = 64
"""Conversations whose index is kept in memory."""

MAX_INDEXED_REQUESTS = 200
"""Requests of a session that are loaded into its index: the newest ones."""

MAX_INDEXED_BYTES = 64 * 1024 * 1024
"""Bytes of all indexes; the oldest requests are dropped first."""

DECODE_IN_THREAD_BYTES = 64 * 1024
LEASE_TTL_S = 30.0
MAX_ABANDONED = 200
BEGIN_ATTEMPTS = 5
"""Attempts to store a request whose session other processes delete or continue; the last one ignores their head."""

ABANDONED_CHECK_S = 60.0
"""Seconds between two searches for requests of recorders that were killed."""

MAX_LIVE_TEXT_CHARS = 1_000_000
"""Characters of a response in progress that are written before its end."""

MAX_VERSION_CHARS = 1000
VERSION_PARAMETERS = ("beta", "api-version")
"""Parameters of a URL that select a version of an API."""

ENDPOINT_PATHS = {
    "responses": ("/responses",),
    "chat_completions": ("/chat/completions",),
    "messages": ("/v1/messages", "/messages"),
}
"""The end of a URL after which the protocol's base URL ends, as the settings of a provider have it."""


@dataclass
class OpenExchange:
    """A request whose response has not arrived.

    event_count:  events with its text so far in the store's event log
    text_chars:   characters of this text
    """

    link: Link
    index: ConversationIndex
    placement: Placement
    setup: str
    event_count: int = 0
    text_chars: int = 0


@dataclass
class StoreRecorder:
    """Implements `convo.recording.exchange.Recorder` over one tenant's store, which it does not close.

    provider:      the provider's name in the names of models; None derives it from the URL
    ttl_s:         seconds after its last request before a session is deleted; None keeps it
    last_session:  the name of the session of the latest request; "" before the first
    """

    store: Store
    clock: Clock
    provider: str | None = None
    ttl_s: float | None = DEFAULT_TTL_S
    last_session: str = ""
    _open: dict[str, OpenExchange] = field(default_factory=dict)
    _indexes: "OrderedDict[str, ConversationIndex]" = field(default_factory=OrderedDict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _name: str = field(default_factory=lambda: random_id("rec")[4:12])
    _lease: LeaseGuard | None = None
    _pruned_at: float | None = None
    _checked_at: float | None = None

    @property
    def indexed_bytes(self) -> int:
        """Bytes of the requests that are kept in memory to place later ones."""
        return sum(index.size_bytes for index in self._indexes.values())

    async def begin(self, request: ExchangeRequest) -> None:
        """Write a request as in progress. Raises StoreFault."""
        decoded, body_hashes = await _run(partial(_decode_and_hash, request), request.body)
        async with self._lock:
            await self._prepare()
            await shielded(self._begin(request, decoded, body_hashes))

    async def add_text(self, request: ExchangeRequest, text: str) -> None:
        """Append text of the response to the event log, as the server's own responses do. Raises StoreFault."""
        async with self._lock:
            exchange = self._open.get(request.id)
            if exchange is None or exchange.text_chars > MAX_LIVE_TEXT_CHARS:
                return
            await shielded(self._add_text(exchange, text.encode("utf-8", "replace").decode()))

    async def _add_text(self, exchange: OpenExchange, text: str) -> None:
        link_id, events = exchange.link.id, list[StreamEvent]()
        if not exchange.event_count:
            await self.store.commit(Transaction(started_run_id=link_id))
            item: dict[str, Json] = {"type": "message", "role": "assistant", "content": []}
            events += [
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {
                    "type": "response.content_part.added",
                    "output_index": 0,
                    "content_index": 0,
                    "part": {"type": "output_text", "text": "", "annotations": []},
                },
            ]
        events.append({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text})
        numbered = [{**event, "sequence_number": exchange.event_count + index} for index, event in enumerate(events)]
        await self.store.append_events(link_id, numbered)
        exchange.event_count += len(events)
        exchange.text_chars += len(text)

    async def finish(self, request: ExchangeRequest, response: ExchangeResponse) -> None:
        """Write the response to `request`. Raises StoreFault."""
        if request.id not in self._open:
            await self.begin(request)
        decoded = await _run(partial(decode_response, request, response), response.body)
        async with self._lock:
            await shielded(self._finish(request, response, decoded))

    async def aclose(self) -> None:
        """Write every request without a response as failed. Raises StoreFault."""
        async with self._lock:
            for exchange in list(self._open.values()):
                await self._close_interrupted(exchange.link)
            self._open.clear()
            if self._lease is not None:
                await self._lease.release()
                self._lease = None

    async def prune(self) -> int:
        """Delete recorded sessions whose last request is older than the TTL; return their number. Raises StoreFault."""
        if self.ttl_s is None:
            return 0
        count, cutoff = 0, self.clock.now() - self.ttl_s
        for listed in await self.store.sessions():
            if not listed.id.startswith(RECORDED_SESSION_PREFIX) or listed.used_at >= cutoff:
                continue
            session = await self.store.session(listed.id)  # another request may have continued it since it was listed
            if session is None or session.used_at >= cutoff:
                continue
            self._indexes.pop(session.id, None)
            with suppress(NotFound):  # deleted by another process
                await self.store.remove_session(session.id)
                count += 1
        return count

    def prune_interval_s(self) -> float:
        """Return the seconds between two calls of `prune`."""
        return min((self.ttl_s or MAX_PRUNE_INTERVAL_S) / PRUNES_PER_TTL, MAX_PRUNE_INTERVAL_S)

    async def _prepare(self) -> None:
        """Prune if that is due; close the requests of recorders that were killed, at first and then if that is due."""
        now = self.clock.monotonic()
        if self._pruned_at is None or now - self._pruned_at > self.prune_interval_s():
            self._pruned_at = now
            await self.prune()
        if self._lease is None:
            holder = f"{process_identity()}:{self._name}"
            self._lease = await LeaseGuard.acquire(self.store, _lease_name(self._name), holder, LEASE_TTL_S)
        if self._checked_at is None or now - self._checked_at > ABANDONED_CHECK_S:
            self._checked_at = now
            await self.close_abandoned()

    async def close_abandoned(self) -> None:
        """Close the requests in progress of recorders that were killed. Raises StoreFault."""
        page = await self.store.list_requests(RequestQuery(status="in_progress", limit=MAX_ABANDONED))
        for link in (listed.link for listed in page.requests):
            recorder = _recorder_of(link.id)
            if RECORDING_PARAMETER not in link.parameters or recorder in ("", self._name):
                continue
            holder = await self.store.lease_holder(_lease_name(recorder))
            if holder is None or is_process_dead(holder):
                await self._close_interrupted(link)

    async def _close_interrupted(self, link: Link) -> None:
        """Write a request whose response will not come: as incomplete with its text so far, as failed without text.

        Without effect on a request that was deleted, or that another recorder closed.
        """
        error = {"code": "recording_ended", "message": "the recording ended before the response"}
        accumulator, events = ResponseAccumulator(), await self.store.events(link.id)
        for event in events:
            accumulator.add(event)
        output = tuple(accumulator.incomplete_output)
        head = Path(link.head).append(output).head
        closed = replace(link, status="incomplete" if output else "failed", error=error, head=head)
        with suppress(NotFound, ItemDeleted, Conflict):
            await self.store.commit(
                Transaction(
                    appends=(AppendItems(link.head, output),) if output else (),
                    links=(closed,),
                    ended_run_id=link.id if events else None,
                    required_link_id=link.id,
                )
            )

    async def _begin(self, request: ExchangeRequest, decoded: DecodedRequest, body_hashes: Sequence[Hash]) -> None:
        client, scope = identify_client(request.headers), _make_scope(request)
        if scope.url == EMBEDDED_URL:  # a recording of the server itself stays unknown to its API
            decoded = replace(decoded, is_stored=False)
        try:
            setup = hash_setup(decoded.parameters)
            units = await _run(lambda: [item_units(item) for item in decoded.items], request.body)
        except (ValueError, RecursionError):
            decoded = replace(decoded, items=(), parameters={}, notes=("the request is nested too deeply",))
            setup, units = "", []
        previous = await self._find_previous(decoded, scope)
        session_id, is_keyed = self._choose_session(request, decoded, units, client, scope)
        if previous is not None and previous.session_id is not None:
            session_id = previous.session_id
        for attempt in range(1, BEGIN_ATTEMPTS + 1):
            is_last_attempt = attempt == BEGIN_ATTEMPTS
            index = await self._load_index(session_id, is_keyed=is_keyed)
            placement = await self._place(index, decoded, previous, setup, request.body)
            link = self._build_link(request, decoded, placement, client, scope, session_id)
            new_items = placement.path.items[placement.shared_count :]
            appends = [AppendItems(placement.path.key_at(placement.shared_count), new_items)] if new_items else []
            body_keys, shared_count = index.place_body(body_hashes)
            if len(body_keys) > shared_count:
                after = body_keys[shared_count - 1] if shared_count else index.root
                appends.append(AppendItems(after, decoded.body_parts[shared_count:]))
            link = replace(link, body_head=body_keys[-1] if body_keys else None)
            try:
                stored = await self.store.session(session_id)
                session = await self._build_session(stored, link, index, placement, client, decoded)
                # A session that was deleted since it was read must not come back.
                expected_head = ANY_HEAD if is_last_attempt else stored.head if stored else None
                transaction = Transaction(tuple(appends), (link,), session, expected_session_head=expected_head)
                await self.store.commit(transaction)
            except (NotFound, ItemDeleted, Conflict):
                if is_last_attempt:
                    raise
                self._indexes.pop(session_id, None)  # the session was deleted or continued by another process
                previous = await self._find_previous(decoded, scope)
            else:
                if body_keys:
                    index.add_body(body_keys)
                self._open[request.id] = OpenExchange(link, index, placement, setup)
                self.last_session = session.name
                return

    async def _find_previous(self, decoded: DecodedRequest, scope: Scope) -> Link | None:
        """Return the link of the request's `previous_response_id`, if it is recorded."""
        if decoded.previous_response_id is None:
            return None
        link = await self.store.link(decoded.previous_response_id)
        return link if link is not None and link.scope == scope else None

    def _choose_session(
        self,
        request: ExchangeRequest,
        decoded: DecodedRequest,
        units: list[list[bytes]],
        client: ClientIdentity,
        scope: Scope,
    ) -> tuple[str, bool]:
        """Return the id of the request's session, and whether the client itself has an id for it."""
        key = find_session_key(request.headers, decoded.parameters)
        parts = [scope.url.encode(), client.slug.encode()]
        if key is not None:
            parts += [b"key", key.encode("utf-8", "replace")]
        elif not units or decoded.previous_response_id is not None or decoded.conversation_id is not None:
            state = decoded.conversation_id or decoded.previous_response_id or request.id
            parts += [b"id", state.encode("utf-8", "replace")]
        else:
            count = next((index for index, item in enumerate(decoded.items, 1) if is_user_message(item)), len(units))
            parts += [b"prefix", str(decoded.parameters.get("prompt_cache_key") or "").encode("utf-8", "replace")]
            parts += [unit for item in units[:count] for unit in item]
        digest = sha256(b"\0".join(sha256(part).digest() for part in parts)).hexdigest()
        return f"{RECORDED_SESSION_PREFIX}{digest[:24]}", key is not None

    async def _load_index(self, session_id: str, *, is_keyed: bool) -> ConversationIndex:
        """Return the index of a session, with the requests that other processes recorded since."""
        index = self._indexes.get(session_id)
        if index is None:
            index = ConversationIndex(root_key(self.store.tenant), is_keyed)
        self._indexes[session_id] = index
        self._indexes.move_to_end(session_id)
        self._limit_indexes(index)
        session = await self.store.session(session_id)
        if session is None:
            index = self._indexes[session_id] = ConversationIndex(index.root, is_keyed)
            return index
        if session.link_id is None or session.link_id in index.requests:
            return index
        for link in (await self.store.links(session_id))[-MAX_INDEXED_REQUESTS:]:
            if link.status in UNFINISHED_STATUSES or link.id in index.requests:
                continue
            # A request that was deleted meanwhile has no path; the others are placed without it.
            with suppress(NotFound, ItemDeleted, Conflict):
                path = await self._load_path(index, link)
                input_path, setup = path.up_to(link.input_head), hash_setup(link.parameters)
                placement = index.place(input_path.items, setup)
                index.add(
                    PlacedRequest(
                        link.id, link.parent_id, placement.line, setup, path, path.items[len(input_path) :],
                        bool(link.parameters.get("tools")),
                    )
                )  # fmt: skip
                self._limit_indexes(index)
        return index

    def _limit_indexes(self, current: ConversationIndex) -> None:
        """Drop the indexes that were not used for the longest time, then the oldest requests of the current one."""
        while len(self._indexes) > MAX_INDEXES or (self.indexed_bytes > MAX_INDEXED_BYTES and len(self._indexes) > 1):
            self._indexes.popitem(last=False)
        current.drop_oldest(MAX_INDEXED_BYTES)

    async def _load_path(self, index: ConversationIndex, link: Link) -> Path:
        """Return the path of a link; only its part that no loaded path has is read."""
        for known in reversed(list(index.requests.values())[-4:]):
            with suppress(Conflict):
                return known.path.append(await self.store.items_after(link.head, known.path.head))
        return await self.store.path(link.head)

    async def _place(
        self, index: ConversationIndex, decoded: DecodedRequest, previous: Link | None, setup: str, body: bytes
    ) -> Placement:
        if decoded.previous_response_id is None:
            return await _run(partial(index.place, decoded.items, setup), body)
        path = await self.store.path(previous.head) if previous is not None else Path(index.root)
        parent = index.requests.get(decoded.previous_response_id)
        line = parent.line if parent is not None else None
        return Placement(decoded.previous_response_id, line, path.append(decoded.items), len(path))

    def _build_link(
        self,
        request: ExchangeRequest,
        decoded: DecodedRequest,
        placement: Placement,
        client: ClientIdentity,
        scope: Scope,
        session_id: str,
    ) -> Link:
        is_chained = decoded.previous_response_id is not None
        notes = list(decoded.notes)
        if is_chained and placement.shared_count == 0:
            notes.append("the previous response was not recorded, so the history before the input is unknown")
        recording: dict[str, Json] = {"client": client.name, "version": client.version, "protocol": request.protocol}
        path = _api_path(request, scope)
        recording |= {"path": path} if path != API_PATHS[request.protocol] else {}
        headers = {
            name: request.headers[name]
            for name in VERSION_HEADERS
            if 0 < len(request.headers.get(name, "")) <= MAX_VERSION_CHARS
        }
        recording |= {"headers": headers} if headers else {}
        return Link(
            id=f"try_{self._name}_{sha256(request.id.encode()).hexdigest()[:24]}",
            input_head=placement.path.head,
            head=placement.path.head,
            sent_count=len(decoded.items) if is_chained else len(placement.path),
            model=self._name_model(decoded.model, scope),
            strategy=(
                Strategy.CONVERSATION
                if decoded.conversation_id
                else Strategy.CHAIN
                if is_chained or decoded.is_stored
                else Strategy.SESSION
            ),
            status="in_progress",
            created_at=request.received_at,
            parent_id=placement.parent_id,
            session_id=session_id,
            scope=scope,
            conversation_id=decoded.conversation_id,
            previous_response_id=decoded.previous_response_id,
            parameters={
                **decoded.parameters,
                RECORDING_PARAMETER: {**recording, **({"notes": notes} if notes else {})},
            },
            is_stored=decoded.is_stored,
            title=request_title(reversed(placement.path.items)),
        )

    def _name_model(self, model: str, scope: Scope) -> str:
        """Return the full name of a model: "provider/model", with the host where no provider is known."""
        if scope.url == EMBEDDED_URL:
            return model
        by_url = {str(row.get("base_url")): name for name, row in KNOWN_PROVIDERS.items() if row.get("base_url")}
        provider = self.provider or by_url.get(scope.url) or urlsplit(scope.url).hostname or "upstream"
        return f"{provider}/{model}"

    async def _build_session(
        self,
        stored: Session | None,
        link: Link,
        index: ConversationIndex,
        placement: Placement,
        client: ClientIdentity,
        decoded: DecodedRequest,
    ) -> Session:
        """Return the session's record with this request; its head follows the main line.

        stored:  the record so far
        """
        assert link.session_id is not None
        instructions = decoded.parameters.get("instructions")
        if stored is None:
            digits = link.session_id.removeprefix(RECORDED_SESSION_PREFIX)
            name = f"{client.slug}-{digits[:8]}"
            return Session(
                id=link.session_id,
                name=name if await self.store.session(name) is None else f"{client.slug}-{digits}",
                strategy=Strategy.SESSION,
                model=link.model,
                head=link.head,
                confirmed_head=link.head,
                created_at=link.created_at,
                used_at=self.clock.now(),
                scope=link.scope,
                instructions=instructions if isinstance(instructions, str) else None,
            )
        if not self._is_main(index, placement, has_tools=bool(decoded.parameters.get("tools"))):
            return replace(stored, used_at=self.clock.now(), use_order=None)
        return replace(
            stored,
            used_at=self.clock.now(),
            use_order=None,
            model=link.model,
            head=link.head,
            confirmed_head=link.head,
            instructions=instructions if isinstance(instructions, str) else stored.instructions,
        )

    def _is_main(self, index: ConversationIndex, placement: Placement, *, has_tools: bool) -> bool:
        """Return whether the session continues from this request: it is in the main line, or begins it."""
        if placement.line is not None:
            return placement.line == index.main_line
        return not index.requests or (has_tools and not any(known.has_tools for known in index.requests.values()))

    async def _finish(self, request: ExchangeRequest, response: ExchangeResponse, decoded: DecodedResponse) -> None:
        exchange = self._open.pop(request.id)
        started, output, notes = exchange.link, decoded.output, decoded.notes
        try:
            path = exchange.placement.path.append(output)
        except ConvoError:  # an item without a JSON form
            path, output, notes = exchange.placement.path, (), (*notes, "the output is nested too deeply")
        link_id = started.id
        if decoded.id is not None and decoded.id != link_id and await self.store.link(decoded.id) is None:
            link_id = decoded.id
        recording: dict[str, Json] = dict(started.parameters[RECORDING_PARAMETER])
        if notes:
            recording["notes"] = [*recording.get("notes", ()), *notes]
        link = replace(
            started,
            id=link_id,
            head=path.head,
            status=decoded.status,
            tools=called_tools(output),
            duration_s=response.duration_s,
            first_token_s=response.first_byte_s if output else None,
            usage=decoded.usage,
            error=decoded.error,
            reported=decoded.reported,
            parameters={**started.parameters, RECORDING_PARAMETER: recording},
        )
        session = await self.store.session(started.session_id) if started.session_id else None
        is_main = self._is_main(exchange.index, exchange.placement, has_tools=bool(started.parameters.get("tools")))
        if session is not None and is_main:
            session = replace(
                session,
                head=link.head,
                confirmed_head=link.head,
                link_id=link.id,
                used_at=self.clock.now(),
                use_order=None,
            )
        appends = (AppendItems(started.head, tuple(output)),) if output else ()
        ended_run_id = link.id if exchange.event_count and link.id == started.id else None
        # In the same transaction: with two, a reader in between found the request twice, and a kill left both.
        removed_link_id = started.id if link.id != started.id else None
        transaction = Transaction(
            appends,
            (link,),
            session,
            ended_run_id=ended_run_id,
            removed_link_id=removed_link_id,
            required_link_id=started.id,
        )
        try:
            await self.store.commit(transaction)
        except (NotFound, Conflict):  # the request was deleted meanwhile, or another recorder closed it
            return
        placed = PlacedRequest(
            link.id, link.parent_id, exchange.placement.line, exchange.setup, path, tuple(output),
            bool(link.parameters.get("tools")),
        )  # fmt: skip
        await _run(partial(exchange.index.add, placed), request.body)
        self._limit_indexes(exchange.index)


def open_recorder(
    store: Store,
    *,
    provider: str | None = None,
    ttl_s: float | None = DEFAULT_TTL_S,
    clock: Clock | None = None,
) -> StoreRecorder:
    """Open a recorder for the tenant of `store`; the caller closes it before the store.

    provider, ttl_s:  of `StoreRecorder`
    """
    return StoreRecorder(store, clock or SystemClock(), provider, ttl_s)


def _decode_and_hash(request: ExchangeRequest) -> tuple[DecodedRequest, tuple[Hash, ...]]:
    """Decode a request, and hash the parts of its body."""
    decoded = decode_request(request)
    try:
        return decoded, tuple(map(item_hash, decoded.body_parts))
    except NotCanonical:  # nested too deeply
        return replace(decoded, body_parts=()), ()


async def _run(work: Callable[[], Decoded], body: bytes) -> Decoded:
    """Run `work` on a decoded `body`: on a large one in a thread, because it would block the event loop."""
    return await asyncio.to_thread(work) if len(body) > DECODE_IN_THREAD_BYTES else work()


def _make_scope(request: ExchangeRequest) -> Scope:
    """Return the endpoint of a URL: its base URL, without user, query and fragment."""
    try:
        parts = urlsplit(request.url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return Scope("unknown")
    path = parts.path.rstrip("/")
    for end in ENDPOINT_PATHS[request.protocol]:
        base, found, _ = path.rpartition(end)
        if found:
            path = base
            break
    return Scope(urlunsplit((parts.scheme, host, path, "", "")) or "unknown")


def _api_path(request: ExchangeRequest, scope: Scope) -> str:
    """Return the path of a request behind its base URL, with the parameters that select a version of the API."""
    if scope.url == EMBEDDED_URL:
        return API_PATHS[request.protocol]
    try:
        parts = urlsplit(request.url)
        path = parts.path.removeprefix(urlsplit(scope.url).path).rstrip("/") or API_PATHS[request.protocol]
    except ValueError:
        return API_PATHS[request.protocol]
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in VERSION_PARAMETERS])
    return f"{path}?{query}" if query else path


def _lease_name(recorder: str) -> str:
    return f"recorder {recorder}"


def _recorder_of(link_id: str) -> str:
    """Return the name of the recorder in the id of a request in progress; "" for other ids."""
    prefix, _, rest = link_id.partition("_")
    return rest.partition("_")[0] if prefix == "try" and rest.count("_") == 1 else ""
