"""One streamed response: prepare, call the model, stream, commit.

Errors before the first event are raised and store nothing. Later errors end the stream
with `response.failed`. The result is stored before the last event is sent. A chat that closes
the stream cancels the turn; a client of a server that disconnects keeps its input and the part
of the response that was sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import count

from convo.endpoints.base import IsSteered
from convo.errors import Conflict, ConvoError, LimitReached, NotFound, StoreFault, StreamBroken, StreamCut, TryLater
from convo.history.accumulator import TERMINAL_EVENTS, ResponseAccumulator, find_event_fault
from convo.history.items import Item, Json, StreamEvent, is_valid_id, item_type, request_title
from convo.history.pairing import build_required_input, has_open_hosted_call
from convo.history.records import (
    EMBEDDED_SCOPE,
    IGNORED_PARAMETER,
    PROVIDER_PARAMETER,
    UPSTREAM_ID,
    Link,
    Strategy,
    get_link_provider,
    strip_item_secrets,
    strip_tool_secrets,
)
from convo.history.tree import Path, derive
from convo.responses_api import response
from convo.responses_api.compaction import CompactionInput, build_response_model_request, respond_with_compaction
from convo.responses_api.deps import EndpointDeps, conversation_write_lock
from convo.responses_api.history import (
    CONTINUABLE_STATUSES,
    LoadedHistory,
    check_call_pairs,
    check_strict_input,
    load_request_history,
    remove_incomplete_items,
    resolve_item_ids,
    resolve_references,
    select_new_items,
)
from convo.responses_api.model_input import ModelWithInput
from convo.responses_api.response import (
    ZERO_USAGE,
    TurnResult,
    build_created_event,
    build_terminal_event,
)
from convo.responses_api.validation import ResponseRequest
from convo.runtime import shielded
from convo.stores.base import Conversation, Store, Transaction, load_conversation


@dataclass(frozen=True)
class PreparedTurn:
    """A validated request with its history.

    history:     the history that the endpoint prepends
    input_path:  the whole history that the model receives, without the credentials of tools
    compaction:  the model and its request, whose input may still be compacted; None if no model is called
    """

    request: ResponseRequest
    history: LoadedHistory
    input_path: Path
    compaction: CompactionInput | None


async def prepare_turn(
    request: ResponseRequest,
    deps: EndpointDeps,
    exit_stack: AsyncExitStack,
    last_history: LoadedHistory | None = None,
    is_steered: IsSteered | None = None,
) -> PreparedTurn:
    """Load the history of `request`; in a conversation, hold the write lock until `exit_stack` is closed.

    last_history:  the history that `request` continues, if it is not in the store
    is_steered:    whether the response ends between two model calls; None: never

    Raises RequestRefused, NotFound, NotCanonical, TryLater, StoreFault and the errors of `ModelOpener`.
    """
    if request.store or request.conversation_id:
        await deps.store.admin.check_disk_space()
    if request.conversation_id:
        if not deps.histories.has(deps.store.tenant, request.conversation_id):
            await load_conversation(deps.store, request.conversation_id)
        await deps.runs.wait_until_ended(deps.store.tenant, conversation_id=request.conversation_id)
        await exit_stack.enter_async_context(
            conversation_write_lock(deps.store, request.conversation_id, deps.new_id("hold"))
        )
    if request.previous_response_id and last_history is None:
        await deps.runs.wait_until_ended(deps.store.tenant, response_id=request.previous_response_id)
    history = last_history or await load_request_history(request, deps.store, deps.histories)
    referenced = await resolve_references(request.items, history.item_ids, deps.store)
    new_items = select_new_items(request.items, history.item_ids, referenced)
    stored_items = derive(new_items, _make_strip_step)
    path = history.path.append(stored_items)
    items = path.items if stored_items == new_items else history.path.items.append(new_items)
    check_call_pairs(items)
    if deps.options.strict:
        check_strict_input(request.items, history.item_ids, items)
    if not request.generate:
        return PreparedTurn(request, history, path, None)
    model, name = deps.models(request.model)
    if is_steered is not None and isinstance(model, ModelWithInput):
        model = model.with_steering(is_steered)
    model_request = build_response_model_request(request, remove_incomplete_items(items), name)
    provider = model.provider or request.model.partition("/")[0]
    comparison_id = await _find_comparison_id(request, provider, deps.store)
    if comparison_id is not None:
        model_request = replace(model_request, comparison_id=comparison_id)
    return PreparedTurn(request, history, path, CompactionInput(model, model_request, items, request.model, deps))


def _make_strip_step() -> Callable[[Sequence[Item]], tuple[Item, ...]]:
    return strip_item_secrets


async def _find_comparison_id(request: ResponseRequest, provider: str, store: Store) -> str | None:
    """Return the provider's own id of the response to compare the prompt cache with; None if it made no such one."""
    response_id = (request.parameters.get("prompt_cache_options") or {}).get("comparison_response_id")
    link = await store.link(str(response_id)) if is_valid_id(response_id) else None
    if link is None or link.scope != EMBEDDED_SCOPE or get_link_provider(link) != provider:
        return None
    upstream_id = link.reported.get(UPSTREAM_ID)
    return upstream_id if isinstance(upstream_id, str) else None


def stream_model_events(turn: PreparedTurn) -> AsyncGenerator[StreamEvent, None]:
    """Stream the model's events. Raises WindowExceeded; iteration raises the errors of `Model.respond`."""
    return (
        _stream_prepared_only() if turn.compaction is None else respond_with_compaction(turn.compaction, turn.request)
    )


def build_link(turn: PreparedTurn, *, response_id: str, created_at: float, first_token_s: float | None = None) -> Link:
    """Build the link of a response that has started.

    Its parameters also list the request fields that were not sent to the model, named as in `convo.models.base`, and
    the model's provider if the model's name does not begin with it.
    """
    request, parameters = turn.request, strip_tool_secrets(turn.request.parameters)
    if turn.compaction is not None:
        model = turn.compaction.model
        ignored = list(model.ignored_fields(turn.compaction.request))
        if request.include_obfuscation:
            ignored.append("stream_options.include_obfuscation")
        if ignored:
            parameters[IGNORED_PARAMETER] = ignored
        provider = model.provider
        if provider and not request.model.startswith(f"{provider}/"):
            parameters[PROVIDER_PARAMETER] = provider
    return Link(
        id=response_id,
        input_head=turn.input_path.head,
        head=turn.input_path.head,
        sent_count=len(turn.input_path) - len(turn.history.path),
        model=request.model,
        strategy=Strategy.CONVERSATION if request.conversation_id else Strategy.CHAIN,
        status="in_progress",
        created_at=created_at,
        parent_id=request.previous_response_id,
        conversation_id=request.conversation_id,
        previous_response_id=request.previous_response_id,
        first_token_s=first_token_s,
        parameters=parameters,
        is_stored=request.store,
        title=request_title(reversed(turn.input_path.items)),
    )


async def _stream_prepared_only() -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of a request that only prepares the next one."""
    yield {"type": "response.completed", "response": {"output": [], "usage": ZERO_USAGE}}


EVENTS_PER_LOOP_PASS = 64
"""Events after which the event loop runs other tasks: a model with the whole response in memory never waits."""


class ResponseStream:
    """The events of one response, and what they contain.

    finished_items:  the complete items of the events that were read
    accumulator:     the events passed to `add`
    is_hidden:       the reader gets only the last event, so `items_so_far` is empty until then
    """

    def __init__(self, events: AsyncGenerator[StreamEvent, None], *, is_hidden: bool = False) -> None:
        self._events, self._is_hidden = events, is_hidden
        self.finished_items: list[Item] = []
        self.accumulator = ResponseAccumulator()
        self._open_indexes: set[Json] = set()
        self._event_count = 0

    def items_so_far(self) -> list[Item]:
        """Return the finished items, and those with partial text as incomplete."""
        return [] if self._is_hidden else self.accumulator.incomplete_output

    def add(self, event: StreamEvent) -> None:
        """Count `event` as received by the reader; an invalid one is passed on to it and adds nothing."""
        if find_event_fault(event) is None:
            self.accumulator.add(event)

    async def read_first(self) -> StreamEvent:
        """Return the first event. Raises StreamBroken if there is none, and the errors of the model."""
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            raise StreamBroken("the model's response ended before its first event") from None

    async def read_next(self, event: StreamEvent) -> StreamEvent:
        """Return the event after `event`, which is not terminal."""
        if event["type"] == "response.output_item.done":
            self.finished_items.append(event["item"])
            self._open_indexes.discard(event.get("output_index"))
        elif event["type"] == "response.output_item.added":
            self._open_indexes.add(event.get("output_index"))
        self._event_count += 1
        if self._event_count % EVENTS_PER_LOOP_PASS == 0:
            await asyncio.sleep(0)
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            cut = StreamCut("the model's response ended before it was complete")
            return response.build_cut_event(cut, self.accumulator.incomplete_output)
        except StreamCut as cut:
            return response.build_cut_event(cut, self.accumulator.incomplete_output)
        except LimitReached as limit:
            return response.build_limit_event(limit, self.accumulator.incomplete_output)
        except ConvoError as fault:
            return response.build_failed_event(fault, self.accumulator.incomplete_output)

    def can_end_before(self, event: StreamEvent) -> bool:
        """Whether the response can end between its finished items and `event`, and a user message continue it.

        It cannot after reasoning, which belongs to the next item, before the output of a call that the provider runs,
        nor if the client has to send something first.
        """
        return (
            event["type"] == "response.output_item.added"
            and not self._open_indexes
            and bool(self.finished_items)
            and item_type(self.finished_items[-1]) != "reasoning"
            and not has_open_hosted_call(self.finished_items)
            and not any(map(build_required_input, self.finished_items))
        )

    def build_result(self, event: StreamEvent) -> response.TurnResult:
        """Return the result of the terminal event `event`."""
        result = response.result_from_event(event)
        is_complete = "limit" not in (result.error or {})
        return (
            response.with_text_differs_error(result)
            if is_complete and self.accumulator.has_different_text(event)
            else result
        )


class EventSequencer:
    """Numbers events, and renames them as configured."""

    def __init__(self, event_names: Mapping[str, str]) -> None:
        self._event_names, self._numbers = event_names, count()

    def __call__(self, event: StreamEvent) -> StreamEvent:
        name = self._event_names.get(event["type"], event["type"])
        return {**event, "type": name, "sequence_number": next(self._numbers)}


DRAIN_LOOP_PASSES = 200
"""Passes of the event loop in which an event that a model has already sent arrives, however busy the machine is."""


class ResponseTurn:
    """One request in progress.

    last_history:  the history that it continues, if it is not in the store
    is_steered:    asked between two output items: if it is true, the response ends there; None: never
    """

    def __init__(
        self,
        request: ResponseRequest,
        deps: EndpointDeps,
        last_history: LoadedHistory | None = None,
        is_steered: IsSteered | None = None,
    ) -> None:
        self._request, self._deps, self._last, self._is_steered = request, deps, last_history, is_steered
        self._started_s = deps.clock.monotonic()
        self._sequencer = EventSequencer(deps.options.event_names)
        self._finished_turn: tuple[PreparedTurn, Link, TurnResult] | None = None

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Stream the events of the response. Raises the errors of `Endpoint.create`."""
        is_server = self._deps.options.is_server
        is_stored = self._request.store or self._request.conversation_id is not None
        link: Link | None = None
        result: TurnResult | None = None
        event: StreamEvent | None = None
        async with AsyncExitStack() as exit_stack:
            foreground = exit_stack.enter_context(self._deps.runs.track_foreground(self._deps.store.tenant))
            turn = await prepare_turn(self._request, self._deps, exit_stack, self._last, self._is_steered)
            foreground.conversation_id = self._request.conversation_id
            model_events = await exit_stack.enter_async_context(aclosing(stream_model_events(turn)))
            stream = ResponseStream(model_events, is_hidden=is_server and not turn.request.stream)
            try:
                event = await foreground.wait(stream.read_first())
                link = self._build_link(turn, has_answered=True)
                foreground.response_id = link.id
                created_event = build_created_event(link)
                yield self._sequencer(created_event)
                yield self._sequencer({"type": "response.in_progress", "response": created_event["response"]})
                while event["type"] not in TERMINAL_EVENTS:
                    # A chat of this process has the event as soon as it is yielded.
                    if not is_server:
                        stream.add(event)
                    yield self._sequencer(event)
                    if is_server:  # a client may disconnect before it has received the event
                        stream.add(event)
                    event = await foreground.wait(stream.read_next(event))
                    if self._is_steered is not None and self._is_steered() and stream.can_end_before(event):
                        event = response.build_steered_event(stream.finished_items)
                result = stream.build_result(event)
                foreground.begin_close()
                commit = self._commit_or_report(turn, link, result)
                link, result = await (shielded(commit) if is_stored else commit)  # else nothing is awaited there
            except (asyncio.CancelledError, GeneratorExit, TryLater) as error:
                # TryLater is also an error of the provider; only that of a shutdown stores a partial response.
                if isinstance(error, TryLater) and not foreground.is_stopped:
                    raise
                foreground.begin_close()
                if result is None and (link is not None or (is_server and not foreground.is_stopped)):
                    # A generator is closed at its yield: the event there did not reach the client.
                    unsent = event if isinstance(error, GeneratorExit) and is_server else None
                    link = link or self._build_link(turn, has_answered=False)
                    await self._cancel(
                        turn, link, model_events, stream, unsent, disconnected=is_server and not foreground.is_stopped
                    )
                raise
        assert link is not None
        assert result is not None
        self._finished_turn = turn, link, result
        yield self._sequencer(build_terminal_event(link, result.output, with_upstream_id=not is_server))

    def to_history(self) -> LoadedHistory | None:
        """Return the history that a request can continue now; None until the response has ended, or if it failed."""
        if self._finished_turn is None or not self._finished_turn[2].is_confirmed:
            return None
        turn, link, result = self._finished_turn
        path = turn.input_path.append(result.output)
        return LoadedHistory(path, resolve_item_ids(path), previous=link)

    def _build_link(self, turn: PreparedTurn, *, has_answered: bool) -> Link:
        elapsed_s = self._deps.clock.monotonic() - self._started_s
        return build_link(
            turn,
            response_id=self._deps.new_id("resp"),
            # The time of the request: the link is built with the first event.
            created_at=self._deps.clock.now() - elapsed_s,
            first_token_s=elapsed_s if has_answered else None,
        )

    async def _cancel(
        self,
        turn: PreparedTurn,
        link: Link,
        model_events: AsyncGenerator[StreamEvent, None],
        stream: ResponseStream,
        unsent: StreamEvent | None,
        *,
        disconnected: bool,
    ) -> None:
        """Cancel the model and commit the partial response.

        unsent:        the event that the reader did not receive; None if the model had not sent one
        disconnected:  a client of this server disconnected; else its own process stopped the response
        """
        result: TurnResult | None = None
        try:
            if unsent is not None and disconnected:
                result = await _drain_finished_response(stream, unsent)
            await model_events.aclose()
        finally:
            if result is None:
                result = (response.disconnected_result if disconnected else response.cancelled_result)(
                    stream.items_so_far()
                )
            await shielded(self._commit_result(turn, link, result))

    async def _commit_or_report(self, turn: PreparedTurn, link: Link, result: TurnResult) -> tuple[Link, TurnResult]:
        """Commit the result. A server reports a store that fails now in the stream, if the response is streamed."""
        try:
            return await self._commit_result(turn, link, result)
        except StoreFault:
            if not (self._deps.options.is_server and turn.request.stream):
                raise
            result = response.not_stored_result(result.output)
            return self._finish_link(link, turn.input_path.append(result.output), result), result

    async def _commit_result(self, turn: PreparedTurn, link: Link, result: TurnResult) -> tuple[Link, TurnResult]:
        """Commit the result and return it: failed if another writer changed the conversation in the meantime."""
        path = turn.input_path.append(result.output)
        link = self._finish_link(link, path, result)
        if not turn.request.store and (turn.history.conversation is None or not result.is_appended):
            return link, result
        change = response.build_turn_transaction(turn.history, turn.input_path, result, link, self._deps.new_id)
        if not turn.request.store:
            change = replace(change, links=())  # the conversation stores its items; the response is not stored
        try:
            await commit_turn(self._deps.store, change, turn, result)
        except Conflict as conflict:
            return await self._commit_result(
                turn, link, response.result_from_event(response.build_failed_event(conflict, result.output))
            )
        self._cache_history(link, path, change.conversation)
        return link, result

    def _cache_history(self, link: Link, path: Path, conversation: Conversation | None) -> None:
        """Keep the history that the next request continues."""
        handle = conversation.id if conversation else link.id
        if conversation or (link.conversation_id is None and link.status in CONTINUABLE_STATUSES):
            history = LoadedHistory(path, conversation=conversation)
            self._deps.histories.add(self._deps.store.tenant, handle, history)

    def _finish_link(self, link: Link, path: Path, result: TurnResult) -> Link:
        return response.finish_turn_link(link, path, result, self._deps.clock.monotonic() - self._started_s)


async def _drain_finished_response(stream: ResponseStream, event: StreamEvent) -> TurnResult | None:
    """Return the model's result if it has already sent all of its response; `event` is the last one that was read."""
    unsent = []
    while event["type"] not in TERMINAL_EVENTS:
        unsent.append(event)
        next_event = asyncio.ensure_future(stream.read_next(event))
        try:
            for _ in range(DRAIN_LOOP_PASSES):
                if next_event.done():
                    break
                await asyncio.sleep(0)
        finally:
            if not next_event.done():  # also after a cancellation: a running generator cannot be closed
                next_event.cancel()
                await shielded(asyncio.wait([next_event]))
        if next_event.cancelled():
            return None
        event = next_event.result()
    for unsent_event in unsent:
        stream.add(unsent_event)
    result = stream.build_result(event)
    return result if result.is_confirmed else None


async def commit_turn(store: Store, transaction: Transaction, turn: PreparedTurn, result: TurnResult) -> None:
    """Commit `transaction`, even if a node that it builds on was deleted in the meantime, or never stored."""
    try:
        await store.commit(transaction)
    except NotFound:
        await store.commit(response.rebase_turn_transaction(transaction, turn.input_path, result))
