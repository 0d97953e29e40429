"""Background responses: start, follow, cancel.

A run starts with a queued link and a lease, and appends its events to a log in the store.
Followers on any replica read that log. One transaction closes the run; it fails if another
process closed it first, so a run ends exactly once. The terminal event is built from the link.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from itertools import count

from convo.errors import Conflict, ConvoError, NotFound, StoreFault
from convo.history.accumulator import ResponseAccumulator
from convo.history.items import Item, StreamEvent
from convo.history.records import Link
from convo.responses_api import errors, response
from convo.responses_api.deps import EndpointDeps
from convo.responses_api.history import load_response_link
from convo.responses_api.response import TurnResult, build_created_event, build_response, build_terminal_event
from convo.responses_api.turn import (
    TERMINAL_EVENTS,
    EventSequencer,
    PreparedTurn,
    ResponseStream,
    accumulate_event,
    commit_turn,
    find_implicit_provider,
    list_unsent_fields,
    prepare_turn,
    stream_model_events,
)
from convo.responses_api.validation import ResponseRequest, integer_validator
from convo.runtime import Clock, process_identity
from convo.stores.base import AppendItems, Store, Transaction, run_lease_name
from convo.stores.lease import LeaseGuard

RUN_LEASE_TTL_S = 10.0
"""Seconds after which a run whose process died counts as abandoned."""

CLOSE_ATTEMPTS, CLOSE_RETRY_S = 20, 1.0
"""Attempts to commit the end of a run to a store that fails, and the seconds between them."""

UNFINISHED_RESULT = TurnResult("in_progress")


class BackgroundRun:
    """One background response in the process that runs it; see `ActiveBackgroundRun`."""

    def __init__(self, turn: PreparedTurn, link: Link, edges: EndpointDeps, held: AsyncExitStack) -> None:
        self.link = link
        self._turn, self._edges, self._held = turn, edges, held
        self._ledger = EventLog(edges.store, edges.clock, link.id, EventSequencer(edges.manner.renamed))
        self._began = edges.clock.ticks()
        self._first_s: float | None = None
        self._so_far: Callable[[], Sequence[Item]] = tuple
        self._stopping, self._why = asyncio.Event(), response.abandoned_result
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._edges.runs.enter(self.link.id, self)
        self._task = self._edges.runs.start(self._carry_out(), stop=self._stopping.set)

    def next_news(self) -> asyncio.Event:
        return self._ledger.next_news()

    async def stop(self) -> None:
        assert self._task is not None  # it is registered only by `start`
        self._why = response.cancelled_result
        self._stopping.set()
        await asyncio.wait({self._task})

    async def _carry_out(self) -> None:
        async with self._held:
            try:
                end = await self._ended()
                if end is not None:
                    await self._end(end)
            finally:
                self._edges.runs.leave(self.link.id)
        self._ledger.ring()

    async def _ended(self) -> TurnResult | None:
        """Return the result of the answer; None if another process ended the run."""
        answering = asyncio.create_task(self._answer())
        keeping = asyncio.create_task(self._ledger.keep())
        stopping = asyncio.create_task(self._stopping.wait())
        tasks = (answering, keeping, stopping)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if answering in done:
            return answering.result()
        if stopping in done:
            return self._why(self._so_far())
        return keeping.result()

    async def _answer(self) -> TurnResult:
        """Append the model's events to the event log."""
        await self._in_progress()
        try:
            async with aclosing(stream_model_events(self._turn, self._edges)) as asked:
                heard = ResponseStream(asked)
                self._so_far = heard.so_far
                event = await heard.first()
                self._first_s = self._edges.clock.ticks() - self._began
                while event["type"] not in TERMINAL_EVENTS:
                    self._ledger.add(event)
                    event = await heard.after(event)
                return heard.ended(event)
        except ConvoError as fault:
            return response.result_from_event(response.build_failed_event(fault, ()))

    async def _in_progress(self) -> None:
        """Append the first events and commit the status. If the store fails now, they are written later."""
        self._ledger.add(build_created_event(self.link))
        self._ledger.add({"type": "response.queued", "response": build_response(self.link, ())})
        self.link = replace(self.link, status="in_progress")
        self._ledger.add({"type": "response.in_progress", "response": build_response(self.link, ())})
        with suppress(StoreFault, Conflict):
            await self._edges.store.commit(Transaction(links=(self.link,)))
            await self._ledger.flush()

    async def _end(self, end: TurnResult) -> None:
        for _ in range(CLOSE_ATTEMPTS):
            try:
                return await self._close(end)
            except StoreFault:
                await self._edges.clock.sleep(CLOSE_RETRY_S)
        return None

    async def _close(self, end: TurnResult) -> None:
        """Commit the end of the run, unless another process ended it. Raises StoreFault."""
        seconds = self._edges.clock.ticks() - self._began
        link = replace(response.finish_turn_link(self.link, self._turn.saw, end, seconds), first_token_s=self._first_s)
        change = response.build_turn_transaction(self._turn.before, self._turn.saw, end, link, self._edges.new_id)
        with suppress(Conflict, NotFound):  # if the run is over, the commit below fails as well
            await self._ledger.flush()
        try:
            await self._edges.store.commit(replace(change, ends=link.id))
        except (Conflict, NotFound) as lost:
            there = await self._edges.store.link(link.id)
            if there is not None and there.status in OPEN_STATUSES and end.acknowledged:
                await self._close(response.result_from_event(response.build_failed_event(lost, end.output)))


async def start_background_run(request: ResponseRequest, edges: EndpointDeps) -> BackgroundRun:
    """Commit the queued run and start it.

    Raises the errors that `Endpoint.create` raises before its first event.
    """
    async with AsyncExitStack() as held:
        turn = await prepare_turn(request, edges, held)
        edges.models(request.model)
        response_id = edges.new_id("resp")
        holder = f"{process_identity()}:{response_id}"
        hold = await LeaseGuard.take(edges.store, run_lease_name(response_id), holder, RUN_LEASE_TTL_S)
        held.push_async_callback(hold.release)
        link = replace(_build_queued_link(turn, response_id, edges), status="queued")
        change = response.build_turn_transaction(turn.before, turn.saw, UNFINISHED_RESULT, link, edges.new_id)
        await commit_turn(edges.store, replace(change, starts=response_id), turn, UNFINISHED_RESULT)
        run = BackgroundRun(turn, link, edges, held.pop_all())
        run.start()
    return run


async def close_detached_run(
    response_id: str, how: Callable[[Sequence[Item]], TurnResult], edges: EndpointDeps
) -> None:
    """End a run of another process, or of none, with the output that its stored events contain.

    Does nothing if the run has ended in the meantime.
    """
    link = await edges.store.link(response_id)
    if link is None or link.status not in OPEN_STATUSES:
        return
    end = how(_items_from_events(await edges.store.events(response_id)))
    path = await edges.store.path(link.saw)
    link = response.finish_turn_link(link, path, end, max(0.0, edges.clock.now() - link.created_at))
    grow = (AppendItems(path.head, end.output),) if end.output else ()
    with suppress(Conflict):
        await edges.store.commit(Transaction(grow=grow, links=(link,), ends=response_id))


def _build_queued_link(turn: PreparedTurn, response_id: str, edges: EndpointDeps) -> Link:
    now = edges.clock.now()
    return response.build_turn_link(
        turn.request,
        turn.before,
        turn.saw,
        response_id=response_id,
        created_at=now,
        first_token_s=None,
        ignored=list_unsent_fields(turn, edges),
        provider=find_implicit_provider(turn, edges),
    )


def _items_from_events(events: Sequence[StreamEvent]) -> list[Item]:
    """Return the items of an unfinished answer, from its events."""
    partial = ResponseAccumulator()
    for event in events:
        accumulate_event(partial, event)
    return partial.kept


FLUSH_INTERVAL_S = 0.1
"""Seconds between two writes."""

STATUS_CHECK_INTERVALS = 20
"""Intervals without an event after which the store is asked whether the run is still open."""

OPEN_STATUSES = ("queued", "in_progress")


class EventLog:
    """The event log of one response, in order."""

    def __init__(self, store: Store, clock: Clock, response_id: str, told: EventSequencer) -> None:
        self._store, self._clock, self._id, self._told = store, clock, response_id, told
        self._waiting: list[StreamEvent] = []
        self._doubtful = False
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()

    def next_news(self) -> asyncio.Event:
        return self._news

    def ring(self) -> None:
        """Notify followers."""
        self._news.set()
        self._news = asyncio.Event()

    def add(self, event: StreamEvent) -> None:
        self._waiting.append(self._told(event))

    async def flush(self) -> None:
        """Append the buffered events to the store.

        Raises Conflict if the run is over, and StoreFault, after which the events stay in the buffer.
        """
        async with self._writing:
            if self._doubtful:
                await self._leave_out_what_is_kept()
            if not self._waiting:
                return
            batch = tuple(self._waiting)
            self._doubtful = True
            await self._store.append(self._id, batch)
            self._doubtful = False
            del self._waiting[: len(batch)]
        self.ring()

    async def keep(self) -> None:
        """Flush the buffer periodically; return when another process ended the run."""
        for beat in count(1):
            await self._clock.sleep(FLUSH_INTERVAL_S)
            with suppress(StoreFault):  # the buffer is written when the store works again
                if not await self._kept(look=beat % STATUS_CHECK_INTERVALS == 0):
                    return

    async def _kept(self, *, look: bool) -> bool:
        """Flush if there are events; return whether the run is open. Raises StoreFault."""
        try:
            if self._waiting:
                await self.flush()
            elif look:
                return await self._open()
        except (Conflict, NotFound):
            return await self._open()
        return True

    async def _open(self) -> bool:
        link = await self._store.link(self._id)
        return link is not None and link.status in OPEN_STATUSES

    async def _leave_out_what_is_kept(self) -> None:
        """Drop the stored events from the buffer: a store that failed may still have written the last batch."""
        last = self._waiting[0]["sequence_number"] - 1 if self._waiting else -1
        kept = await self._store.events(self._id, after=last)
        del self._waiting[: len(kept)]
        self._doubtful = False


EVENT_POLL_S = 0.25


async def follow_response(
    response_id: str, edges: EndpointDeps, *, after: int | None = None
) -> AsyncGenerator[StreamEvent, None]:
    """Implement `Endpoint.follow`."""
    last = -1 if after is None else after
    if after is not None:
        integer_validator(0)("starting_after", after)
    while True:
        here = edges.runs.here(response_id)
        news = here.next_news() if here else None
        link = await load_response_link(edges.store, response_id)
        if not link.parameters.get("background"):
            raise errors.not_streamable_error(response_id)
        for event in await edges.store.events(response_id, after=last):
            yield event
            last = event["sequence_number"]
        if link.status not in OPEN_STATUSES:
            break
        await _wait_for_update(news, edges)
    number = await _terminal_sequence_number(response_id, edges, last)
    if number > last:
        yield {**build_terminal_event(link, await load_output(link, edges)), "sequence_number": number}


async def load_output(link: Link, edges: EndpointDeps) -> Sequence[Item]:
    """Return the output of a response, even if an earlier item was deleted. Raises ItemDeleted."""
    return await edges.store.tail(link.head, link.saw)


async def _wait_for_update(news: asyncio.Event | None, edges: EndpointDeps) -> None:
    if news is None:
        await edges.clock.sleep(EVENT_POLL_S)
    else:
        await news.wait()


async def _terminal_sequence_number(response_id: str, edges: EndpointDeps, last: int) -> int:
    """Return the number after the last stored event; `last` is the number of the last event sent.

    Raises RequestRefused if the events have expired.
    """
    near = await edges.store.events(response_id, after=last - 1) or await edges.store.events(response_id)
    if not near:
        raise errors.events_expired_error(response_id)
    return int(near[-1]["sequence_number"]) + 1
