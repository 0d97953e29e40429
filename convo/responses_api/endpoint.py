"""Convo's own endpoint: in process, over one tenant's store.

`EmbeddedEndpoint` implements the contract, `EmbeddedService` holds one endpoint per tenant and
runs the sweep: it fails abandoned runs, deletes old events and prunes by TTL.
`EmbeddedConnection` stores the last response of a `store=false` chain. A stateless server
refuses every field that needs state.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import count

from convo.config.values import Secret
from convo.endpoints.base import ItemPage, SortOrder
from convo.errors import ConvoError, StoreFault
from convo.history.items import Item, Json, Response, StreamEvent
from convo.history.records import EMBEDDED_SCOPE, Link, Scope
from convo.responses_api import background, errors, history, validation
from convo.responses_api import compaction as compacting
from convo.responses_api.background import OPEN_STATUSES, follow_response, load_output
from convo.responses_api.conversations import Conversations
from convo.responses_api.deps import ActiveRuns, EndpointDeps, EndpointOptions, ModelOpener
from convo.responses_api.encryption import CompactionCipher
from convo.responses_api.history import (
    LoadedHistory,
    check_call_pairs,
    load_item_ids,
    load_request_history,
    load_response_link,
    resolve_references,
    select_new_items,
)
from convo.responses_api.response import abandoned_result, build_compaction_resource, build_response, cancelled_result
from convo.responses_api.truncation import WindowLookup
from convo.responses_api.turn import ResponseTurn
from convo.responses_api.validation import ResponseRequest, referenced_id
from convo.runtime import Clock, NewId
from convo.stores.base import Store
from convo.usage.counting import count_tokens
from convo.usage.models import find_model_window

STATE_FIELDS = ("previous_response_id", "conversation", "background", "store")


def to_stateless_body(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return `body` with `store` set to false. Raises RequestRefused if it has a field that needs state."""
    for name in STATE_FIELDS:
        if body.get(name):
            raise errors.stateless_server_error(name)
    return {**body, "store": False}


def check_no_references(request: ResponseRequest) -> None:
    """Raise RequestRefused if an item is only a reference."""
    for at, item in enumerate(request.items):
        if referenced_id(item) is not None:
            raise errors.stateless_server_error(f"input[{at}]")


class EmbeddedConnection:
    """Implements `convo.endpoints.base.ResponsesConnection`."""

    def __init__(self, edges: EndpointDeps) -> None:
        self._edges = edges
        self._last: LoadedHistory | None = None

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self._edges.runs.check_open()
        last = self._last if self._goes_on(body) else None
        try:
            turn = ResponseTurn(
                validation.parse_connection_request(self._allowed(body, last)), self._edges, _if_unstored(last)
            )
            async with aclosing(turn.events()) as events:
                async for event in events:
                    self._note(event, turn, last)
                    yield event
        except ConvoError:
            self._let_go(last)
            raise

    def _goes_on(self, body: Mapping[str, Json]) -> bool:
        """Whether `body` continues the last response of this connection."""
        last = self._last.previous if self._last else None
        return last is not None and body.get("previous_response_id") == last.id

    def _allowed(self, body: Mapping[str, Json], last: LoadedHistory | None) -> Mapping[str, Json]:
        """Return `body` as it is allowed on this connection. Raises RequestRefused."""
        if not self._edges.manner.stateless:
            return body
        if last is None:
            return to_stateless_body(body)
        rest = {name: value for name, value in body.items() if name != "previous_response_id"}
        return {**to_stateless_body(rest), "previous_response_id": body["previous_response_id"]}

    def _note(self, event: StreamEvent, turn: ResponseTurn, last: LoadedHistory | None) -> None:
        """Remember the history of a successful response; forget one whose continuation failed."""
        if event["type"] == "response.failed":
            self._let_go(last)
        elif event["type"] in ("response.completed", "response.incomplete"):
            self._last = turn.left()

    def _let_go(self, last: LoadedHistory | None) -> None:
        if last is not None and self._last is last:
            self._last = None


def _if_unstored(last: LoadedHistory | None) -> LoadedHistory | None:
    """Return `last_history` if its response is not in the store; a stored one may have been deleted since."""
    return last if last is not None and last.previous is not None and not last.previous.stored else None


class EmbeddedEndpoint:
    """The endpoint over one tenant's store. Closing it closes the models, not the store.

    runs:         the active runs, if other endpoints of the process share them
    options:      by default those of the chat's own endpoint
    seal_key:     encrypts compaction items; without one the database's own key does
    find_window:  returns the context window of a model
    """

    def __init__(
        self,
        store: Store,
        models: ModelOpener,
        clock: Clock,
        new_id: NewId,
        *,
        runs: ActiveRuns | None = None,
        manner: EndpointOptions | None = None,
        seal_key: Secret | None = None,
        windows: WindowLookup = find_model_window,
    ) -> None:
        sealing = CompactionCipher(store, seal_key)
        self._edges = EndpointDeps(
            store, models, clock, new_id, sealing, runs or ActiveRuns(), manner or EndpointOptions(), windows
        )
        self._conversations = Conversations(self._edges)

    @property
    def scope(self) -> Scope:
        return EMBEDDED_SCOPE

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self._edges.runs.check_open()
        request = self._read(body)
        if request.background:
            run = await background.start_background_run(request, self._edges)
            events = follow_response(run.link.id, self._edges)
        else:
            events = ResponseTurn(request, self._edges).events()
        async with aclosing(events):
            async for event in events:
                yield event

    def wire(self, body: Mapping[str, Json]) -> None:
        """Return None: no HTTP request is sent."""

    def connect(self) -> EmbeddedConnection:
        return EmbeddedConnection(self._edges)

    async def retrieve(self, response_id: str) -> Response:
        link = await self._response(response_id)
        return build_response(link, await load_output(link, self._edges))

    async def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(follow_response(response_id, self._edges, after=after)) as events:
            async for event in events:
                yield event

    async def cancel(self, response_id: str) -> Response:
        link = await self._response(response_id)
        if not link.parameters.get("background"):
            raise errors.not_cancellable_error()
        if link.status in OPEN_STATUSES:
            await self._stop(response_id)
        return await self.retrieve(response_id)

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        request = self._read(validation.parse_compact_body(body))
        history = await self._history(request)
        check_call_pairs(history)
        window, used = await compacting.compact_history(request, history, self._edges)
        return build_compaction_resource(self._edges.new_id("resp"), self._edges.clock.now(), window, used)

    async def delete(self, response_id: str) -> None:
        link = await self._response(response_id)
        if link.status in OPEN_STATUSES:
            await self._stop(response_id)
        await self._edges.store.remove_link(response_id)

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        link = await self._response(response_id)
        path = await self._edges.store.path(link.saw)
        ids = await load_item_ids(self._edges.store, link, path)
        return history.paginate_items(path.items, ids, after=after, before=before, limit=limit, order=order)

    async def count(self, body: Mapping[str, Json]) -> int | None:
        request = self._counted(body)
        items = await compacting.build_model_input(await self._history(request), self._edges)
        tokens = None
        if request.model:
            model, name = self._edges.models(request.model)
            tokens = await model.count(compacting.build_response_model_request(request, items, name))
        if tokens is None and self._edges.manner.estimates:
            counted = await asyncio.to_thread(
                count_tokens, items, request.instructions, request.parameters.get("tools")
            )
            tokens = counted.tokens
        return tokens

    async def _history(self, request: ResponseRequest) -> Sequence[Item]:
        """Return the whole history of `request`, without storing it.

        Raises the errors of `load_request_history` and `select_new_items`.
        """
        history = await load_request_history(request, self._edges.store)
        found = await resolve_references(request.items, history.ids, self._edges.store)
        return history.path.grow(select_new_items(request.items, history.ids, found)).items

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        return await self._conversations.create(items, metadata)

    async def conversation(self, conversation_id: str) -> Mapping[str, Json]:
        return await self._conversations.retrieve(conversation_id)

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        return await self._conversations.update(conversation_id, metadata)

    async def delete_conversation(self, conversation_id: str) -> None:
        await self._conversations.delete(conversation_id)

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        return await self._conversations.add(conversation_id, items)

    async def conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        return await self._conversations.items(conversation_id, after=after, before=before, limit=limit, order=order)

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item:
        return await self._conversations.item(conversation_id, item_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        return await self._conversations.remove(conversation_id, item_id)

    async def check_request(self, body: Mapping[str, Json]) -> None:
        request = self._read(body)
        model, name = self._edges.models(request.model)
        items = await compacting.build_model_input(tuple(request.items), self._edges)
        await model.check_request(compacting.build_response_model_request(request, items, name))

    async def warm(self, model: str) -> None:
        opened, name = self._edges.models(model)
        await opened.warm(name)

    async def mark_abandoned(self, response_id: str) -> None:
        """End an open run without a process as failed."""
        await background.close_detached_run(response_id, abandoned_result, self._edges)

    async def aclose(self) -> None:
        await self._edges.runs.aclose(0.0)
        await self._edges.models.aclose()

    def _read(self, body: Mapping[str, Json]) -> ResponseRequest:
        """Parse and validate a request. Raises RequestRefused."""
        if not self._edges.manner.stateless:
            return validation.parse_response_request(body)
        request = validation.parse_response_request(to_stateless_body(body))
        check_no_references(request)
        return request

    def _counted(self, body: Mapping[str, Json]) -> ResponseRequest:
        """Parse and validate a request to count tokens. Raises RequestRefused."""
        request = validation.parse_count_request(body)
        if self._edges.manner.stateless:
            to_stateless_body(body)
            check_no_references(request)
        return request

    async def _response(self, response_id: str) -> Link:
        """Load the link of a response, even if its client has just disconnected. Raises NotFound."""
        await self._edges.runs.wait_until_ended(self._edges.store.tenant, response_id=response_id)
        return await load_response_link(self._edges.store, response_id)

    async def _stop(self, response_id: str) -> None:
        """Cancel an open run, in this process or another."""
        here = self._edges.runs.here(response_id)
        if here is not None:
            await here.stop()
        else:
            await background.close_detached_run(response_id, cancelled_result, self._edges)


SWEEP_INTERVAL_S = 4.0
EVENT_RETENTION_S = 3600.0
"""Seconds for which the events of a response can still be followed after its end."""

SWEEPS_PER_EVENT_EXPIRY = 15
"""Old events are deleted in every 15th sweep."""

PRUNES_PER_TTL, MAX_PRUNE_INTERVAL_S = 10, 3600.0
"""A tenant's state with a TTL is pruned ten times in that time, and at least once an hour."""

MODEL_LIST_MAX_AGE_S = 60.0

FetchModelResources = Callable[[], Awaitable[Sequence[Mapping[str, Json]]]]
"""Fetches the model lists of all providers; slow."""

TimeToLive = Callable[[str], float | None]
"""Returns the seconds for which a tenant's state is kept; None keeps it forever."""


class EmbeddedService:
    """Implements `convo.endpoints.base.EndpointService`. Closing it closes the models, not the store.

    fetch_models:  fetches the models that can be requested by name; the list is cached for a minute
    ttl_s:         retention of each tenant's state, if it is limited
    seal_key:      encrypts compaction items; without one the database's own key does
    """

    def __init__(
        self,
        store: Store,
        models: ModelOpener,
        clock: Clock,
        new_id: NewId,
        *,
        listed: FetchModelResources,
        manner: EndpointOptions,
        ttl_s: TimeToLive | None = None,
        seal_key: Secret | None = None,
    ) -> None:
        self._store, self._models, self._clock, self._new_id = store, models, clock, new_id
        self._listed, self._manner, self._ttl_s = listed, manner, ttl_s
        self._seal_key = seal_key
        self._runs = ActiveRuns()
        self._endpoints: dict[str, EmbeddedEndpoint] = {}
        self._pruned: dict[str, float] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._list: tuple[float, Sequence[Mapping[str, Json]]] | None = None
        self._asking = asyncio.Lock()

    def of(self, tenant: str) -> EmbeddedEndpoint:
        self._sweeping = self._sweeping or asyncio.create_task(self._sweep_on())
        if tenant not in self._endpoints:
            store = self._store.of(tenant)
            self._endpoints[tenant] = EmbeddedEndpoint(
                store,
                self._models,
                self._clock,
                self._new_id,
                runs=self._runs,
                manner=self._manner,
                seal_key=self._seal_key,
            )
        return self._endpoints[tenant]

    async def models(self) -> Sequence[Mapping[str, Json]]:
        async with self._asking:
            if self._list is None or self._clock.ticks() - self._list[0] > MODEL_LIST_MAX_AGE_S:
                self._list = self._clock.ticks(), await self._listed()
            return self._list[1]

    async def check(self) -> None:
        self._sweeping = self._sweeping or asyncio.create_task(self._sweep_on())
        await self._store.upkeep.check()

    async def aclose(self, grace_s: float = 0.0) -> None:
        self._runs.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._runs.aclose(grace_s)
        await self._models.aclose()

    async def sweep(self, number: int = 0) -> None:
        """Run one sweep; `number` counts them from 0. Raises StoreFault."""
        for tenant, response_id in await self._store.upkeep.abandoned():
            if self._runs.here(response_id) is None:
                await self.of(tenant).mark_abandoned(response_id)
        if number % SWEEPS_PER_EVENT_EXPIRY == 0:
            await self._store.upkeep.forget_events(EVENT_RETENTION_S)
        if self._ttl_s is not None:
            await self._prune(self._ttl_s)

    async def _prune(self, ttl: TimeToLive) -> None:
        """Delete state older than its tenant's TTL, for each tenant that is due."""
        now = self._clock.ticks()
        for tenant in await self._store.upkeep.tenants():
            ttl_s = ttl(tenant)
            if ttl_s is None or now - self._pruned.get(tenant, -math.inf) < prune_interval_s(ttl_s):
                continue
            self._pruned[tenant] = now
            await self._store.upkeep.prune(tenant, self._clock.now() - ttl_s, dry=False)

    async def _sweep_on(self) -> None:
        for number in count():
            with suppress(StoreFault):
                await self.sweep(number)
            await self._clock.sleep(SWEEP_INTERVAL_S)


def prune_interval_s(ttl_s: float) -> float:
    """Return the seconds between two prunes of data older than `ttl_s`; a sweep may come `SWEEP_INTERVAL_S` later."""
    return min(max(ttl_s / PRUNES_PER_TTL - SWEEP_INTERVAL_S, 0.0), MAX_PRUNE_INTERVAL_S)
