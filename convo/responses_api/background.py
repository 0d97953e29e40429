"""Background responses: start, follow, cancel.

A run starts with a queued link and a lease, and appends its events to a log in the store.
Followers on any replica read that log. One transaction closes the run; it fails if another
process closed it first, so a run ends exactly once. The terminal event is built from the link.
`EmbeddedService.sweep` in `endpoint` closes the runs of replicas that died.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from itertools import count

from convo.errors import Conflict, ConvoError, NotFound, StoreFault
from convo.history.accumulator import TERMINAL_EVENTS, ResponseAccumulator, find_event_fault
from convo.history.items import Item, StreamEvent
from convo.history.records import UNFINISHED_STATUSES, Link
from convo.history.tree import Path
from convo.responses_api import errors, response
from convo.responses_api.deps import EndpointDeps
from convo.responses_api.history import UNSTORED_RETENTION_S, load_response_link
from convo.responses_api.response import TurnResult, build_created_event, build_response, build_terminal_event
from convo.responses_api.turn import (
    EventSequencer,
    PreparedTurn,
    ResponseStream,
    build_link,
    commit_turn,
    prepare_turn,
    stream_model_events,
)
from convo.responses_api.validation import ResponseRequest, validate_value
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

    def __init__(self, turn: PreparedTurn, link: Link, deps: EndpointDeps, exit_stack: AsyncExitStack) -> None:
        self.link = link
        self._turn, self._deps, self._exit_stack = turn, deps, exit_stack
        self._event_log = EventLog(deps.store, deps.clock, link.id, EventSequencer(deps.options.event_names))
        self._started_s = deps.clock.monotonic()
        self._first_token_s: float | None = None
        self._items_so_far: Callable[[], Sequence[Item]] = tuple
        self._stop_requested, self._make_stop_result = asyncio.Event(), response.abandoned_result
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._deps.runs.register(self.link.id, self)
        self._task = self._deps.runs.start_task(self._run(), stop=self._stop_requested.set)

    def next_update(self) -> asyncio.Event:
        return self._event_log.next_update()

    async def stop(self) -> None:
        assert self._task is not None  # it is registered only by `start`
        # Without a call of `stop`, as at a shutdown, the run ends as abandoned.
        self._make_stop_result = response.cancelled_result
        self._stop_requested.set()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        async with self._exit_stack:
            try:
                result = await self._await_result()
                if result is not None:
                    await self._close_with_retries(result)
            finally:
                self._deps.runs.unregister(self.link.id)
        self._event_log.notify()

    async def _await_result(self) -> TurnResult | None:
        """Return the result of the response; None if another process ended the run."""
        model_task = asyncio.create_task(self._stream_model())
        flush_task = asyncio.create_task(self._event_log.flush_periodically())
        stop_task = asyncio.create_task(self._stop_requested.wait())
        tasks = (model_task, flush_task, stop_task)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        # Before the result is built: the tasks may still append events.
        await asyncio.gather(*tasks, return_exceptions=True)
        if model_task in done:
            return model_task.result()
        if stop_task in done:
            return self._make_stop_result(self._items_so_far())
        return flush_task.result()

    async def _stream_model(self) -> TurnResult:
        """Append the model's events to the event log."""
        await self._record_start()
        try:
            async with aclosing(stream_model_events(self._turn)) as model_events:
                stream = ResponseStream(model_events)
                self._items_so_far = stream.items_so_far
                event = await stream.read_first()
                self._first_token_s = self._deps.clock.monotonic() - self._started_s
                while event["type"] not in TERMINAL_EVENTS:
                    stream.add(event)
                    self._event_log.append(event)
                    event = await stream.read_next(event)
                return stream.build_result(event)
        except ConvoError as fault:
            return response.result_from_event(response.build_failed_event(fault, ()))

    async def _record_start(self) -> None:
        """Append the first events and commit the status. If the store fails now, they are written later."""
        self._event_log.append(build_created_event(self.link))
        self._event_log.append({"type": "response.queued", "response": build_response(self.link, ())})
        self.link = replace(self.link, status="in_progress")
        self._event_log.append({"type": "response.in_progress", "response": build_response(self.link, ())})
        with suppress(StoreFault, Conflict):
            await self._deps.store.commit(Transaction(links=(self.link,)))
            await self._event_log.flush()

    async def _close_with_retries(self, result: TurnResult) -> None:
        for _ in range(CLOSE_ATTEMPTS):
            try:
                return await self._close(result)
            except StoreFault:
                await self._deps.clock.sleep(CLOSE_RETRY_S)
        return None

    async def _close(self, result: TurnResult) -> None:
        """Commit the end of the run, unless another process ended it. Raises StoreFault."""
        duration_s = self._deps.clock.monotonic() - self._started_s
        link = replace(
            response.finish_turn_link(self.link, self._turn.input_path.append(result.output), result, duration_s),
            first_token_s=self._first_token_s,
        )
        change = response.build_turn_transaction(
            self._turn.history, self._turn.input_path, result, link, self._deps.new_id
        )
        with suppress(Conflict, NotFound):  # if the run is over, the commit below fails as well
            await self._event_log.flush()
        try:
            # The store refuses the end of a run that has ended: of several processes one writes the result.
            await self._deps.store.commit(replace(change, ended_run_id=link.id))
        except (Conflict, NotFound) as error:
            current_link = await self._deps.store.link(link.id)
            if current_link is not None and current_link.status in UNFINISHED_STATUSES and result.is_confirmed:
                await self._close(response.result_from_event(response.build_failed_event(error, result.output)))


async def start_background_run(request: ResponseRequest, deps: EndpointDeps) -> BackgroundRun:
    """Commit the queued run and start it.

    Raises the errors that `Endpoint.create` raises before its first event.
    """
    async with AsyncExitStack() as exit_stack:
        turn = await prepare_turn(request, deps, exit_stack)
        response_id = deps.new_id("resp")
        holder = f"{process_identity()}:{response_id}"
        lease = await LeaseGuard.acquire(deps.store, run_lease_name(response_id), holder, RUN_LEASE_TTL_S)
        exit_stack.push_async_callback(lease.release)
        link = replace(build_link(turn, response_id=response_id, created_at=deps.clock.now()), status="queued")
        change = response.build_turn_transaction(turn.history, turn.input_path, UNFINISHED_RESULT, link, deps.new_id)
        await commit_turn(deps.store, replace(change, started_run_id=response_id), turn, UNFINISHED_RESULT)
        if not request.store:
            deps.runs.unstored[response_id] = deps.store.tenant, deps.clock.now() + UNSTORED_RETENTION_S
        # The run keeps the locks that were acquired here until it ends.
        run = BackgroundRun(turn, link, deps, exit_stack.pop_all())
        run.start()
    return run


async def close_detached_run(
    response_id: str, make_result: Callable[[Sequence[Item]], TurnResult], deps: EndpointDeps
) -> None:
    """End a run of another process, or of none, with the output that its stored events contain.

    Does nothing if the run has ended in the meantime.
    """
    link = await deps.store.link(response_id)
    if link is None or link.status not in UNFINISHED_STATUSES:
        return
    result = make_result(_items_from_events(await deps.store.events(response_id)))
    input_path = Path(link.input_head)  # without its items: some may be deleted
    appends = (AppendItems(link.input_head, result.output),) if result.output else ()
    link = response.finish_turn_link(
        link, input_path.append(result.output), result, max(0.0, deps.clock.now() - link.created_at)
    )
    with suppress(Conflict):
        await deps.store.commit(Transaction(appends=appends, links=(link,), ended_run_id=response_id))


def _items_from_events(events: Sequence[StreamEvent]) -> list[Item]:
    """Return the items of an unfinished response, from its events."""
    accumulator = ResponseAccumulator()
    for event in events:
        if find_event_fault(event) is None:
            accumulator.add(event)
    return accumulator.incomplete_output


FLUSH_INTERVAL_S = 0.1
"""Seconds between two writes."""

STATUS_CHECK_INTERVALS = 20
"""Intervals without an event after which the store is asked whether the run is still open."""


class EventLog:
    """The event log of one response, in order."""

    def __init__(self, store: Store, clock: Clock, response_id: str, sequencer: EventSequencer) -> None:
        self._store, self._clock, self._response_id, self._sequencer = store, clock, response_id, sequencer
        self._unflushed: list[StreamEvent] = []
        self._is_last_append_unknown = False
        self._flush_lock = asyncio.Lock()
        self._update = asyncio.Event()

    def next_update(self) -> asyncio.Event:
        return self._update

    def notify(self) -> None:
        """Notify followers."""
        self._update.set()
        self._update = asyncio.Event()

    def append(self, event: StreamEvent) -> None:
        self._unflushed.append(self._sequencer(event))

    async def flush(self) -> None:
        """Append the buffered events to the store.

        Raises Conflict if the run is over, and StoreFault, after which the events stay in the buffer.
        """
        async with self._flush_lock:
            if self._is_last_append_unknown:
                await self._drop_stored_events()
            if not self._unflushed:
                return
            # A copy: events are appended while the store writes.
            batch = tuple(self._unflushed)
            # Set before the write: a connection that breaks does not tell whether the events were stored.
            self._is_last_append_unknown = True
            await self._store.append_events(self._response_id, batch)
            self._is_last_append_unknown = False
            del self._unflushed[: len(batch)]
        self.notify()

    async def flush_periodically(self) -> None:
        """Flush the buffer periodically; return when another process ended the run."""
        for interval in count(1):
            await self._clock.sleep(FLUSH_INTERVAL_S)
            with suppress(StoreFault):  # the buffer is written when the store works again
                if not await self._flush_if_open(check_status=interval % STATUS_CHECK_INTERVALS == 0):
                    return

    async def _flush_if_open(self, *, check_status: bool) -> bool:
        """Flush if there are events; return whether the run is open. Raises StoreFault."""
        try:
            if self._unflushed:
                await self.flush()
            elif check_status:
                return await self._is_run_open()
        except (Conflict, NotFound):
            return await self._is_run_open()
        return True

    async def _is_run_open(self) -> bool:
        link = await self._store.link(self._response_id)
        return link is not None and link.status in UNFINISHED_STATUSES

    async def _drop_stored_events(self) -> None:
        """Drop the stored events from the buffer: a store that failed may still have written the last batch."""
        last_stored = self._unflushed[0]["sequence_number"] - 1 if self._unflushed else -1
        stored_events = await self._store.events(self._response_id, after=last_stored)
        del self._unflushed[: len(stored_events)]
        self._is_last_append_unknown = False


EVENT_POLL_S = 0.25


async def follow_response(
    response_id: str, deps: EndpointDeps, *, after: int | None = None
) -> AsyncGenerator[StreamEvent, None]:
    """Implement `Endpoint.follow`."""
    last_number = -1 if after is None else after
    if after is not None:
        validate_value("starting_after", after, {"type": "integer", "minimum": 0})
    while True:
        run = deps.runs.find_background(response_id)
        # Before the events are read, so that one that is stored meanwhile is not missed.
        update = run.next_update() if run else None
        # Before the events: a link that has ended has all of them.
        link = await load_response_link(deps.store, response_id, deps.clock.now())
        if not link.parameters.get("background"):
            raise errors.not_streamable_error(response_id)
        for event in await deps.store.events(response_id, after=last_number):
            yield event
            last_number = event["sequence_number"]
        if link.status not in UNFINISHED_STATUSES:
            break
        await _wait_for_update(update, deps)
    number = await _terminal_sequence_number(response_id, deps, last_number)
    if number > last_number:
        yield {**build_terminal_event(link, await load_output(link, deps)), "sequence_number": number}


async def load_output(link: Link, deps: EndpointDeps) -> Sequence[Item]:
    """Return the output of a response, even if an earlier item was deleted. Raises ItemDeleted."""
    return await deps.store.items_after(link.head, link.input_head)


async def _wait_for_update(update: asyncio.Event | None, deps: EndpointDeps) -> None:
    if update is None:
        await deps.clock.sleep(EVENT_POLL_S)
    else:
        await update.wait()


async def _terminal_sequence_number(response_id: str, deps: EndpointDeps, last_number: int) -> int:
    """Return the number after the last stored event; `last` is the number of the last event sent.

    Raises RequestRefused if the events have expired.
    """
    events = await deps.store.events(response_id, after=last_number - 1) or await deps.store.events(response_id)
    if not events:
        raise errors.events_expired_error(response_id)
    return int(events[-1]["sequence_number"]) + 1
