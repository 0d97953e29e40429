"""Convo's own endpoint: in process, over one tenant's store.

`EmbeddedEndpoint` implements the contract, `EmbeddedService` holds one endpoint per tenant and
runs the sweep: it fails abandoned runs, deletes old events and expired files, and prunes by TTL.
`EmbeddedConnection` stores the last response of a `store=false` chain. A stateless server
refuses every field that needs state.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import count

from convo.endpoints.base import IsSteered, ItemPage, SortOrder
from convo.errors import ConvoError, DamagedRow, StoreFault
from convo.history.items import Item, Json, Response, StreamEvent
from convo.history.records import EMBEDDED_SCOPE, RECORDING_PARAMETER, UNFINISHED_STATUSES, Link, Scope
from convo.responses_api import background, errors, history, validation
from convo.responses_api import compaction as compacting
from convo.responses_api.background import follow_response, load_output
from convo.responses_api.conversations import Conversations
from convo.responses_api.deps import ActiveRuns, EndpointDeps, EndpointOptions, ModelOpener
from convo.responses_api.encryption import CompactionCipher
from convo.responses_api.files import FileResolver, Files
from convo.responses_api.history import (
    HistoryCache,
    LoadedHistory,
    check_call_pairs,
    get_polling_end,
    load_item_ids,
    load_request_history,
    load_response_link,
    resolve_references,
    select_new_items,
)
from convo.responses_api.model_input import ModelsWithInput
from convo.responses_api.remote_files import make_file_fetcher
from convo.responses_api.response import abandoned_result, build_compaction_resource, build_response, cancelled_result
from convo.responses_api.truncation import WindowLookup
from convo.responses_api.turn import ResponseTurn
from convo.responses_api.validation import ResponseRequest, referenced_id
from convo.runtime import Clock, NewId
from convo.secrets import Secret
from convo.stores.base import Store
from convo.usage.counting import count_tokens
from convo.usage.model_info import find_model_window

STATE_FIELDS = ("previous_response_id", "conversation", "background", "store")


def to_stateless_body(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return `body` with `store` set to false. Raises RequestRefused if it has a field that needs state."""
    for name in STATE_FIELDS:
        if body.get(name):
            raise errors.stateless_server_error(name)
    return {**body, "store": False}


def check_no_references(request: ResponseRequest) -> None:
    """Raise RequestRefused if an item is only a reference."""
    for index, item in enumerate(request.items):
        if referenced_id(item) is not None:
            raise errors.stateless_server_error(f"input[{index}]")


class EmbeddedConnection:
    """Implements `convo.endpoints.base.ResponsesConnection`."""

    def __init__(self, deps: EndpointDeps) -> None:
        self._deps = deps
        self._last: LoadedHistory | None = None

    async def create(
        self, body: Mapping[str, Json], *, is_steered: IsSteered | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        self._deps.runs.check_open()
        last_history = self._last if self._continues_last(body) else None
        try:
            turn = ResponseTurn(
                validation.parse_connection_request(self._to_allowed_body(body, last_history)),
                self._deps,
                _if_unstored(last_history),
                is_steered,
            )
            async with aclosing(turn.events()) as events:
                async for event in events:
                    self._remember_history(event, turn, last_history)
                    yield event
        except ConvoError:
            self._forget_history(last_history)
            raise

    def _continues_last(self, body: Mapping[str, Json]) -> bool:
        """Whether `body` continues the last response of this connection."""
        previous = self._last.previous if self._last else None
        return previous is not None and body.get("previous_response_id") == previous.id

    def _to_allowed_body(self, body: Mapping[str, Json], last_history: LoadedHistory | None) -> Mapping[str, Json]:
        """Return `body` as it is allowed on this connection. Raises RequestRefused."""
        if not self._deps.options.stateless:
            return body
        if last_history is None:
            return to_stateless_body(body)
        fields = {name: value for name, value in body.items() if name != "previous_response_id"}
        return {**to_stateless_body(fields), "previous_response_id": body["previous_response_id"]}

    def _remember_history(self, event: StreamEvent, turn: ResponseTurn, last_history: LoadedHistory | None) -> None:
        """Remember the history of a successful response; forget one whose continuation failed."""
        if event["type"] == "response.failed":
            self._forget_history(last_history)
        elif event["type"] in ("response.completed", "response.incomplete"):
            self._last = turn.to_history()

    def _forget_history(self, last_history: LoadedHistory | None) -> None:
        if last_history is not None and self._last is last_history:
            self._last = None


def _if_unstored(last_history: LoadedHistory | None) -> LoadedHistory | None:
    """Return `last_history` if its response is not in the store; a stored one may have been deleted since."""
    return (
        last_history
        if last_history is not None and last_history.previous is not None and not last_history.previous.is_stored
        else None
    )


class EmbeddedEndpoint:
    """The endpoint over one tenant's store. Closing it closes the models, not the store.

    runs:         the active runs, if other endpoints of the process share them
    histories:    the cached histories, if other endpoints of the process share them
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
        histories: HistoryCache | None = None,
        options: EndpointOptions | None = None,
        seal_key: Secret | None = None,
        find_window: WindowLookup = find_model_window,
    ) -> None:
        cipher = CompactionCipher(store, seal_key)
        options = options or EndpointOptions()
        models = ModelsWithInput(
            models,
            FileResolver(store, clock, make_file_fetcher(options.files, options.blocked_networks)),
            options.mcp,
            new_id,
        )
        self._deps = EndpointDeps(
            store,
            models,
            clock,
            new_id,
            cipher,
            runs or ActiveRuns(),
            options,
            find_window,
            histories or HistoryCache(),
        )
        self._conversations = Conversations(self._deps)

    @property
    def scope(self) -> Scope:
        return EMBEDDED_SCOPE

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self._deps.runs.check_open()
        request = self._parse_request(body)
        return self._create_in_background(request) if request.background else ResponseTurn(request, self._deps).events()

    async def _create_in_background(self, request: ResponseRequest) -> AsyncGenerator[StreamEvent, None]:
        run = await background.start_background_run(request, self._deps)
        async with aclosing(follow_response(run.link.id, self._deps)) as events:
            async for event in events:
                yield event

    def build_http_request(self, body: Mapping[str, Json]) -> None:
        """Return None: no HTTP request is sent."""

    def connect(self) -> EmbeddedConnection:
        return EmbeddedConnection(self._deps)

    async def retrieve(self, response_id: str) -> Response:
        link = await self._load_link(response_id)
        return build_response(link, await load_output(link, self._deps))

    async def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(follow_response(response_id, self._deps, after=after)) as events:
            async for event in events:
                yield event

    async def cancel(self, response_id: str) -> Response:
        link = await self._load_link(response_id)
        if not link.parameters.get("background"):
            raise errors.not_cancellable_error()
        if link.status in UNFINISHED_STATUSES:
            await self._cancel_run(response_id)
        return await self.retrieve(response_id)

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        request = self._parse_request(validation.parse_compact_body(body))
        history = await self._load_history(request)
        check_call_pairs(history)
        window, usage = await compacting.compact_history(request, history, self._deps)
        return build_compaction_resource(self._deps.new_id("resp"), self._deps.clock.now(), window, usage)

    async def delete(self, response_id: str) -> None:
        link = await self._load_link(response_id)
        if link.status in UNFINISHED_STATUSES:
            await self._cancel_run(response_id)
        self._deps.histories.take(self._deps.store.tenant, response_id)
        await self._deps.store.remove_link(response_id)

    async def list_input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        link = await self._load_link(response_id)
        path = await self._deps.store.path(link.input_head)
        ids = await load_item_ids(self._deps.store, link, path)
        return history.paginate_items(path.items, ids, after=after, before=before, limit=limit, order=order)

    async def count_input_tokens(self, body: Mapping[str, Json]) -> int | None:
        request = self._parse_count_request(body)
        items = await compacting.build_model_input(await self._load_history(request), self._deps)
        tokens = None
        if request.model:
            model, name = self._deps.models(request.model)
            tokens = await model.count(compacting.build_response_model_request(request, items, name))
        if tokens is None and self._deps.options.estimate_tokens:
            token_count = await asyncio.to_thread(
                count_tokens, items, request.instructions, request.parameters.get("tools")
            )
            tokens = token_count.tokens
        return tokens

    async def _load_history(self, request: ResponseRequest) -> Sequence[Item]:
        """Return the whole history of `request`, without storing it.

        Raises the errors of `load_request_history` and `select_new_items`.
        """
        history = await load_request_history(request, self._deps.store, None)
        referenced = await resolve_references(request.items, history.item_ids, self._deps.store)
        return history.path.append(select_new_items(request.items, history.item_ids, referenced)).items

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        return await self._conversations.create(items, metadata)

    async def retrieve_conversation(self, conversation_id: str) -> Mapping[str, Json]:
        return await self._conversations.retrieve(conversation_id)

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        return await self._conversations.update(conversation_id, metadata)

    async def delete_conversation(self, conversation_id: str) -> None:
        await self._conversations.delete(conversation_id)

    async def add_conversation_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        return await self._conversations.add_items(conversation_id, items)

    async def list_conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        return await self._conversations.list_items(
            conversation_id, after=after, before=before, limit=limit, order=order
        )

    async def retrieve_conversation_item(self, conversation_id: str, item_id: str) -> Item:
        return await self._conversations.retrieve_item(conversation_id, item_id)

    async def delete_conversation_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        return await self._conversations.delete_item(conversation_id, item_id)

    async def check_request(self, body: Mapping[str, Json]) -> None:
        request = self._parse_request(body)
        model, name = self._deps.models(request.model)
        items = await compacting.build_model_input(tuple(request.items), self._deps)
        await model.check_request(compacting.build_response_model_request(request, items, name))

    async def warm(self, model: str) -> None:
        opened_model, name = self._deps.models(model)
        await opened_model.warm(name)

    async def mark_abandoned(self, response_id: str) -> None:
        """End an open run without a process as failed; a recorded request belongs to its recorder."""
        link = await self._deps.store.link(response_id)
        if link is not None and RECORDING_PARAMETER in link.parameters:
            return
        await background.close_detached_run(response_id, abandoned_result, self._deps)

    async def aclose(self) -> None:
        await self._deps.runs.aclose(0.0)
        await self._deps.models.aclose()

    def _parse_request(self, body: Mapping[str, Json]) -> ResponseRequest:
        """Parse and validate a request. Raises RequestRefused."""
        if not self._deps.options.stateless:
            return validation.parse_response_request(body)
        request = validation.parse_response_request(to_stateless_body(body))
        check_no_references(request)
        return request

    def _parse_count_request(self, body: Mapping[str, Json]) -> ResponseRequest:
        """Parse and validate a request to count tokens. Raises RequestRefused."""
        request = validation.parse_count_request(body)
        if self._deps.options.stateless:
            to_stateless_body(body)
            check_no_references(request)
        return request

    async def _load_link(self, response_id: str) -> Link:
        """Load the link of a response, even if its client has just disconnected. Raises NotFound."""
        await self._deps.runs.wait_until_ended(self._deps.store.tenant, response_id=response_id)
        return await load_response_link(self._deps.store, response_id, self._deps.clock.now())

    async def _cancel_run(self, response_id: str) -> None:
        """Cancel an open run, in this process or another."""
        run = self._deps.runs.find_background(response_id)
        if run is not None:
            await run.stop()
        else:
            await background.close_detached_run(response_id, cancelled_result, self._deps)


SWEEP_INTERVAL_S = 4.0
EVENT_RETENTION_S = 3600.0
"""Seconds for which the events of a response can still be followed after its end."""

SWEEPS_PER_EVENT_EXPIRY = 15
"""Old events are deleted in every 15th sweep."""

UNSTORED_CHECK_S = 60.0
"""Seconds between two checks whether a background response with `store: false` has ended."""

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
    find_window:   returns the context window of a model
    """

    def __init__(
        self,
        store: Store,
        models: ModelOpener,
        clock: Clock,
        new_id: NewId,
        *,
        fetch_models: FetchModelResources,
        options: EndpointOptions,
        ttl_s: TimeToLive | None = None,
        seal_key: Secret | None = None,
        find_window: WindowLookup = find_model_window,
    ) -> None:
        self._store, self._models, self._clock, self._new_id = store, models, clock, new_id
        self._fetch_models, self._options, self._ttl_s = fetch_models, options, ttl_s
        self._seal_key, self._find_window = seal_key, find_window
        self._runs, self._histories = ActiveRuns(), HistoryCache()
        self._endpoints: dict[str, EmbeddedEndpoint] = {}
        self._pruned_at: dict[str, float] = {}
        self._sweep_task: asyncio.Task[None] | None = None
        self._model_list: tuple[float, Sequence[Mapping[str, Json]]] | None = None
        self._model_list_lock = asyncio.Lock()

    def endpoint_for(self, tenant: str) -> EmbeddedEndpoint:
        self._sweep_task = self._sweep_task or asyncio.create_task(self._sweep_forever())
        if tenant not in self._endpoints:
            store = self._store.for_tenant(tenant)
            self._endpoints[tenant] = EmbeddedEndpoint(
                store,
                self._models,
                self._clock,
                self._new_id,
                runs=self._runs,
                histories=self._histories,
                options=self._options,
                seal_key=self._seal_key,
                find_window=self._find_window,
            )
        return self._endpoints[tenant]

    def files_for(self, tenant: str) -> Files:
        return Files(
            self._store.for_tenant(tenant),
            self._clock,
            self._new_id,
            self._options.files,
            stateless=self._options.stateless,
        )

    async def list_models(self) -> Sequence[Mapping[str, Json]]:
        # Clients that ask at the same time wait for one fetch from the providers.
        async with self._model_list_lock:
            if self._model_list is None or self._clock.monotonic() - self._model_list[0] > MODEL_LIST_MAX_AGE_S:
                self._model_list = self._clock.monotonic(), await self._fetch_models()
            return self._model_list[1]

    async def check_ready(self) -> None:
        self._sweep_task = self._sweep_task or asyncio.create_task(self._sweep_forever())
        await self._store.admin.check_ready()

    async def aclose(self, grace_s: float = 0.0) -> None:
        self._runs.close()
        if self._sweep_task is not None:
            self._sweep_task.cancel()
            await asyncio.gather(self._sweep_task, return_exceptions=True)
        await self._runs.aclose(grace_s)
        await self._models.aclose()

    async def sweep(self, number: int = 0) -> None:
        """Run one sweep; `number` counts them from 0. Raises StoreFault."""
        for tenant, response_id in await self._store.admin.abandoned_runs():
            if self._runs.find_background(response_id) is None:
                try:
                    await self.endpoint_for(tenant).mark_abandoned(response_id)
                # One row that could not be read ended each sweep: responses with a later id stayed in_progress.
                except DamagedRow as error:
                    self._store.report_damaged_row(error)
        if number % SWEEPS_PER_EVENT_EXPIRY == 0:
            await self._store.admin.prune_events(EVENT_RETENTION_S)
            await self._store.admin.prune_files(self._clock.now())
        if self._ttl_s is not None:
            await self._prune(self._ttl_s)
        await self._remove_unstored_responses()

    async def _remove_unstored_responses(self) -> None:
        """Delete the background responses with `store: false` whose time for polling is over."""
        now = self._clock.now()
        for response_id, (tenant, due_at) in list(self._runs.unstored.items()):
            if now < due_at:
                continue
            store = self._store.for_tenant(tenant)
            link = await store.link(response_id)
            polling_end = get_polling_end(link) if link is not None else now
            if polling_end is not None and polling_end <= now:
                if link is not None:
                    await store.remove_link(response_id)
                del self._runs.unstored[response_id]
            else:  # it still runs, or ended later than it was started
                self._runs.unstored[response_id] = tenant, polling_end or now + UNSTORED_CHECK_S

    async def _prune(self, ttl: TimeToLive) -> None:
        """Delete state older than its tenant's TTL, for each tenant that is due."""
        now = self._clock.monotonic()
        for tenant in await self._store.admin.tenant_names():
            ttl_s = ttl(tenant)
            if ttl_s is None or now - self._pruned_at.get(tenant, -math.inf) < prune_interval_s(ttl_s):
                continue
            # Before pruning: a store that fails is not pruned again in each sweep.
            self._pruned_at[tenant] = now
            if any(await self._store.admin.prune(tenant, self._clock.now() - ttl_s, dry_run=False)):
                self._histories.clear()

    async def _sweep_forever(self) -> None:
        for number in count():
            with suppress(StoreFault):
                await self.sweep(number)
            await self._clock.sleep(SWEEP_INTERVAL_S)


def prune_interval_s(ttl_s: float) -> float:
    """Return the seconds between two prunes of data older than `ttl_s`; a sweep may come `SWEEP_INTERVAL_S` later."""
    return min(max(ttl_s / PRUNES_PER_TTL - SWEEP_INTERVAL_S, 0.0), MAX_PRUNE_INTERVAL_S)
