"""One streamed response: prepare, call the model, stream, commit.

Errors before the first event are raised and store nothing. Later errors end the stream
with `response.failed`. The result is stored before the last event is sent. A chat that closes
the stream cancels the turn; a client of a server that disconnects keeps its input and the part
of the answer that was sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from itertools import count

from convo.errors import Conflict, ConvoError, LimitReached, NotFound, StoreFault, StreamBroken, TryLater
from convo.history.accumulator import ResponseAccumulator, StreamedTextChecksum, validate_stream_event
from convo.history.items import Item, StreamEvent
from convo.history.records import Link
from convo.history.tree import Path
from convo.models.base import get_ignored_fields, get_provider_name
from convo.responses_api import compaction, response
from convo.responses_api.deps import EndpointDeps, await_to_completion, conversation_write_lock
from convo.responses_api.history import (
    LoadedHistory,
    check_call_pairs,
    check_strict_input,
    load_conversation,
    load_request_history,
    remove_incomplete_items,
    resolve_item_ids,
    resolve_references,
    select_new_items,
)
from convo.responses_api.response import TurnResult, build_created_event, build_response, build_terminal_event
from convo.responses_api.validation import ResponseRequest
from convo.stores.base import Store, Transaction

PREPARED_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


@dataclass(frozen=True)
class PreparedTurn:
    """A validated request with its history.

    history:     the history that the endpoint prepends
    input_path:  the whole history that the model receives
    """

    request: ResponseRequest
    before: LoadedHistory
    saw: Path


async def prepare_turn(
    request: ResponseRequest, edges: EndpointDeps, held: AsyncExitStack, last: LoadedHistory | None = None
) -> PreparedTurn:
    """Load the history of `request`; in a conversation, hold the write lock until `exit_stack` is closed.

    last_history:  the history that `request` continues, if it is not in the store

    Raises RequestRefused, NotFound, NotCanonical, TryLater and StoreFault.
    """
    if request.store or request.conversation:
        await edges.store.upkeep.check_room()
    if request.conversation:
        await load_conversation(edges.store, request.conversation)
        await edges.runs.wait_until_ended(edges.store.tenant, conversation=request.conversation)
        await held.enter_async_context(conversation_write_lock(edges.store, request.conversation, edges.new_id("hold")))
    if request.previous and last is None:
        await edges.runs.wait_until_ended(edges.store.tenant, response_id=request.previous)
    history = last or await load_request_history(request, edges.store)
    saw = history.path.grow(
        select_new_items(request.items, history.ids, await resolve_references(request.items, history.ids, edges.store))
    )
    check_call_pairs(saw.items)
    if edges.manner.strict:
        check_strict_input(request.items, history.ids, saw.items)
    return PreparedTurn(request, history, saw)


def stream_model_events(turn: PreparedTurn, edges: EndpointDeps) -> AsyncGenerator[StreamEvent, None]:
    """Stream the model's events.

    Raises WindowExceeded and the errors of `ModelOpener`; iteration raises the errors of `Model.respond`.
    """
    return (
        compaction.respond_with_compaction(turn.request, turn.saw.items, edges)
        if turn.request.generate
        else _stream_prepared_only()
    )


def list_unsent_fields(turn: PreparedTurn, edges: EndpointDeps) -> tuple[str, ...]:
    """Return the fields of the request and its history that the model is not sent, named as in `convo.models.base`."""
    if not turn.request.generate:
        return ()
    model, name = edges.models(turn.request.model)
    named = get_ignored_fields(
        model, compaction.build_response_model_request(turn.request, remove_incomplete_items(turn.saw.items), name)
    )
    return (*named, *(f"stream_options.{name}" for name in ("include_obfuscation",) if turn.request.padded))


def find_implicit_provider(turn: PreparedTurn, edges: EndpointDeps) -> str | None:
    """Return the provider of the model if the model's name does not begin with it."""
    if not turn.request.generate:
        return None
    named = get_provider_name(edges.models(turn.request.model)[0])
    return named if named and not turn.request.model.startswith(f"{named}/") else None


async def _stream_prepared_only() -> AsyncGenerator[StreamEvent, None]:
    """Yield the answer to a request that only prepares the next one."""
    yield {"type": "response.completed", "response": {"output": [], "usage": PREPARED_USAGE}}


TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


EVENTS_PER_LOOP_PASS = 64
"""Events after which the event loop runs other tasks: a model with its whole answer in memory never waits by itself."""


class ResponseStream:
    """The events of one answer; `finished_items` are the complete items so far.

    sent_only:  `items_so_far` counts only events passed to `mark_sent`; else every event that arrived
    hidden:     the reader gets only the last event, so `items_so_far` is empty until then
    """

    def __init__(
        self, answer: AsyncGenerator[StreamEvent, None], *, receipts: bool = False, hidden: bool = False
    ) -> None:
        self._answer, self._receipts, self._hidden = answer, receipts, hidden
        self.finished: list[Item] = []
        self._partial, self._text = ResponseAccumulator(), StreamedTextChecksum()
        self._heard = 0

    def so_far(self) -> list[Item]:
        """Return the finished items, and those with partial text as incomplete."""
        return [] if self._hidden else self.received()

    def received(self) -> list[Item]:
        """Return the same items, whether or not the reader has received them."""
        return self._partial.kept

    def sent(self, event: StreamEvent) -> None:
        """Count `event` as sent to the reader."""
        accumulate_event(self._partial, event)

    async def first(self) -> StreamEvent:
        """Return the first event. Raises StreamBroken if there is none, and the errors of the model."""
        try:
            return self._taken(await anext(self._answer))
        except StopAsyncIteration:
            raise StreamBroken("the model's answer ended before it began") from None

    async def after(self, event: StreamEvent) -> StreamEvent:
        """Return the event after `event`, which is not terminal."""
        if event["type"] == "response.output_item.done":
            self.finished.append(event["item"])
        self._heard += 1
        if self._heard % EVENTS_PER_LOOP_PASS == 0:
            await asyncio.sleep(0)
        try:
            return self._taken(await anext(self._answer))
        except StopAsyncIteration:
            return response.build_failed_event(
                StreamBroken("the model's answer ended before it was whole"), self.finished
            )
        except LimitReached as reached:
            return response.build_limit_event(reached, self.received())
        except ConvoError as fault:
            return response.build_failed_event(fault, self.finished)

    def ended(self, event: StreamEvent) -> response.TurnResult:
        """Return the result of the terminal event `event`."""
        end = response.result_from_event(event)
        whole = "limit" not in (end.error or {})
        return response.with_text_differs_error(end) if whole and self._text.differs(event) else end

    def _taken(self, event: StreamEvent) -> StreamEvent:
        self._text.take(event)
        if not self._receipts:
            self.sent(event)
        return event


def accumulate_event(partial: ResponseAccumulator, event: StreamEvent) -> None:
    """Add `event` to the accumulator; an invalid event is passed on to the reader and adds nothing."""
    with suppress(StreamBroken):
        partial.take(validate_stream_event(event))


class EventSequencer:
    """Numbers events, and renames them as configured."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed, self._numbers = renamed, count()

    def __call__(self, event: StreamEvent) -> StreamEvent:
        name = self._renamed.get(event["type"], event["type"])
        return {**event, "type": name, "sequence_number": next(self._numbers)}


DRAIN_LOOP_PASSES = 200
"""Passes of the event loop in which an event that a model has already sent arrives, however busy the machine is."""


class ResponseTurn:
    """One request in progress; `last_history` is the history that it continues, if it is not in the store."""

    def __init__(self, request: ResponseRequest, edges: EndpointDeps, last: LoadedHistory | None = None) -> None:
        self._request, self._edges, self._last = request, edges, last
        self._began = edges.clock.ticks()
        self._told = EventSequencer(edges.manner.renamed)
        self._left: tuple[PreparedTurn, Link, TurnResult] | None = None

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Stream the events of the answer. Raises the errors of `Endpoint.create`."""
        for_clients = self._edges.manner.for_clients
        link: Link | None = None
        end: TurnResult | None = None
        event: StreamEvent | None = None
        async with AsyncExitStack() as held:
            foreground = held.enter_context(self._edges.runs.foreground(self._edges.store.tenant))
            turn = await prepare_turn(self._request, self._edges, held, self._last)
            foreground.conversation = self._request.conversation
            asked = await held.enter_async_context(aclosing(stream_model_events(turn, self._edges)))
            shown = turn.request.shown
            listening = ResponseStream(asked, receipts=for_clients and shown, hidden=for_clients and not shown)
            try:
                event = await foreground.wait(listening.first())
                link = self._begun(turn, answered=True)
                foreground.response_id = link.id
                yield self._told(build_created_event(link))
                yield self._told({"type": "response.in_progress", "response": build_response(link, ())})
                while event["type"] not in TERMINAL_EVENTS:
                    yield self._told(event)
                    if for_clients and shown:
                        listening.sent(event)
                    event = await foreground.wait(listening.after(event))
                end = listening.ended(event)
                foreground.close()
                link, end = await await_to_completion(self._keep_at_last(turn, link, end))
            except (asyncio.CancelledError, GeneratorExit, TryLater) as why:
                if isinstance(why, TryLater) and not foreground.stopped:
                    raise
                foreground.close()
                if end is None and (link is not None or (for_clients and not foreground.stopped)):
                    unsent = event if isinstance(why, GeneratorExit) and for_clients else None
                    link = link or self._begun(turn, answered=False)
                    await self._stop(
                        turn, link, asked, listening, unsent, disconnected=for_clients and not foreground.stopped
                    )
                raise
        assert link is not None
        assert end is not None
        self._left = turn, link, end
        yield self._told(build_terminal_event(link, end.output))

    def left(self) -> LoadedHistory | None:
        """Return the history that a request can continue now; None until the answer has ended, or if it failed."""
        if self._left is None or not self._left[2].acknowledged:
            return None
        turn, link, end = self._left
        path = turn.saw.grow(end.output)
        return LoadedHistory(path, resolve_item_ids(path), previous=link)

    def _begun(self, turn: PreparedTurn, *, answered: bool) -> Link:
        waited = self._edges.clock.ticks() - self._began
        return response.build_turn_link(
            turn.request,
            turn.before,
            turn.saw,
            response_id=self._edges.new_id("resp"),
            created_at=self._edges.clock.now() - waited,
            first_token_s=waited if answered else None,
            ignored=list_unsent_fields(turn, self._edges),
            provider=find_implicit_provider(turn, self._edges),
        )

    async def _stop(
        self,
        turn: PreparedTurn,
        link: Link,
        asked: AsyncGenerator[StreamEvent, None],
        listening: ResponseStream,
        unsent: StreamEvent | None,
        *,
        disconnected: bool,
    ) -> None:
        """Cancel the model and commit the partial answer.

        unsent:        the event that the reader did not receive; None if the model had not sent one
        disconnected:  a client of this server disconnected; else its own process stopped the answer
        """
        end: TurnResult | None = None
        try:
            if unsent is not None and disconnected:
                end = await _drain_finished_response(listening, unsent)
            await asked.aclose()
        finally:
            if end is None:
                end = (response.disconnected_result if disconnected else response.cancelled_result)(listening.so_far())
            await await_to_completion(self._keep(turn, link, end))

    async def _keep_at_last(self, turn: PreparedTurn, link: Link, end: TurnResult) -> tuple[Link, TurnResult]:
        """Commit the result. A server reports a store that fails now in the stream, if the response is streamed."""
        try:
            return await self._keep(turn, link, end)
        except StoreFault:
            if not (self._edges.manner.for_clients and turn.request.shown):
                raise
            return self._finished(turn, link, response.not_stored_result(end.output))

    async def _keep(self, turn: PreparedTurn, link: Link, end: TurnResult) -> tuple[Link, TurnResult]:
        """Commit the result and return it: failed if another writer changed the conversation in the meantime."""
        link, end = self._finished(turn, link, end)
        change = response.build_turn_transaction(turn.before, turn.saw, end, link, self._edges.new_id)
        if not turn.request.store:
            if turn.before.conversation is None or not end.joins:
                return link, end
            change = replace(change, links=())  # the conversation stores its items; the response is not stored
        try:
            await commit_turn(self._edges.store, change, turn, end)
        except Conflict as lost:
            return await self._keep(
                turn, link, response.result_from_event(response.build_failed_event(lost, end.output))
            )
        return link, end

    def _finished(self, turn: PreparedTurn, link: Link, end: TurnResult) -> tuple[Link, TurnResult]:
        return response.finish_turn_link(link, turn.saw, end, self._edges.clock.ticks() - self._began), end


async def _drain_finished_response(listening: ResponseStream, event: StreamEvent) -> TurnResult | None:
    """Return the model's result if it has already sent all of its answer; `event` is the last one that was read."""
    while event["type"] not in TERMINAL_EVENTS:
        following = asyncio.ensure_future(listening.after(event))
        try:
            for _ in range(DRAIN_LOOP_PASSES):
                if following.done():
                    break
                await asyncio.sleep(0)
        finally:
            if not following.done():  # also after a cancellation: a running generator cannot be closed
                following.cancel()
                await await_to_completion(asyncio.wait([following]))
        if following.cancelled():
            return None
        event = following.result()
    end = listening.ended(event)
    return end if end.acknowledged else None


async def commit_turn(store: Store, change: Transaction, turn: PreparedTurn, end: TurnResult) -> None:
    """Commit `change`, even if a node that it builds on was deleted in the meantime, or never stored."""
    try:
        await store.commit(change)
    except NotFound:
        await store.commit(response.rebase_turn_transaction(change, turn.saw, end))
