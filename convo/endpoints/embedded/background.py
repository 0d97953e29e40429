"""A response that nobody has to wait for.

    begin       the request with its history, its right to be carried out, and a queued link: durable, then told
    carry out   the model's events into the ledger; the link is in progress meanwhile
    end         one change closes the run and moves the conversation; the last event is made from the link

It ends once, whoever ends it: the change that does it asks that the run is open. Somebody may stop
it from another replica, or find it abandoned; then what is said here no longer counts.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace

from convo.endpoints.embedded import ending
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.ending import Ended
from convo.endpoints.embedded.ledger import OPEN, Ledger
from convo.endpoints.embedded.listening import TERMINAL, Listening, Telling, gather
from convo.endpoints.embedded.opening import Opened, answer, ignored, opened, provider
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import created, resource
from convo.endpoints.embedded.turn import commit
from convo.errors import Conflict, ConvoError, NotFound, StoreFault
from convo.history import Link
from convo.items import Event, Item
from convo.items.partial import Partial
from convo.processes import this_process
from convo.stores.contract import Change, Growth, run_lease
from convo.stores.leasing import Hold

TTL_S = 10.0
"""Seconds after which a run whose process died is known to be abandoned."""

TRIES, PAUSE_S = 20, 1.0
"""How often, and how many seconds apart, the end of a run is brought to a store that fails."""

NOTHING = Ended("in_progress")


class Run:
    """One background response in the process that carries it out; see `runs.Running`."""

    def __init__(self, turn: Opened, link: Link, edges: Edges, held: AsyncExitStack) -> None:
        self.link = link
        self._turn, self._edges, self._held = turn, edges, held
        self._ledger = Ledger(edges.store, edges.clock, link.id, Telling(edges.manner.renamed))
        self._began = edges.clock.ticks()
        self._first_s: float | None = None
        self._so_far: Callable[[], Sequence[Item]] = tuple
        self._stopping, self._why = asyncio.Event(), ending.abandoned
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._edges.runs.enter(self.link.id, self)
        self._task = self._edges.runs.start(self._carry_out(), stop=self._stopping.set)

    def next_news(self) -> asyncio.Event:
        return self._ledger.next_news()

    async def stop(self) -> None:
        assert self._task is not None  # nobody knows it before it was started
        self._why = ending.stopped
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

    async def _ended(self) -> Ended | None:
        """How the answer ended; None when somebody else ended the run."""
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

    async def _answer(self) -> Ended:
        """Put what the model says into the ledger."""
        await self._in_progress()
        try:
            async with aclosing(answer(self._turn, self._edges)) as asked:
                heard = Listening(asked)
                self._so_far = heard.so_far
                event = await heard.first()
                self._first_s = self._edges.clock.ticks() - self._began
                while event["type"] not in TERMINAL:
                    self._ledger.add(event)
                    event = await heard.after(event)
                return heard.ended(event)
        except ConvoError as fault:
            return ending.ended(ending.broken_off(fault, ()))

    async def _in_progress(self) -> None:
        """Say that it was taken, and that it goes on. A store that fails just now hears of it later."""
        self._ledger.add(created(self.link))
        self._ledger.add({"type": "response.queued", "response": resource(self.link, ())})
        self.link = replace(self.link, status="in_progress")
        self._ledger.add({"type": "response.in_progress", "response": resource(self.link, ())})
        with suppress(StoreFault, Conflict):
            await self._edges.store.commit(Change(links=(self.link,)))
            await self._ledger.flush()

    async def _end(self, end: Ended) -> None:
        for _ in range(TRIES):
            try:
                return await self._close(end)
            except StoreFault:
                await self._edges.clock.sleep(PAUSE_S)
        return None

    async def _close(self, end: Ended) -> None:
        """Make the end durable, unless somebody else ended the run. raises: StoreFault"""
        seconds = self._edges.clock.ticks() - self._began
        link = replace(ending.finished(self.link, self._turn.saw, end, seconds), first_token_s=self._first_s)
        change = ending.change_for(self._turn.before, self._turn.saw, end, link, self._edges.new_id)
        with suppress(Conflict, NotFound):  # if the run is over, the change is told so as well
            await self._ledger.flush()
        try:
            await self._edges.store.commit(replace(change, ends=link.id))
        except (Conflict, NotFound) as lost:
            there = await self._edges.store.link(link.id)
            if there is not None and there.status in OPEN and end.acknowledged:
                await self._close(ending.ended(ending.broken_off(lost, end.output)))


async def begin(request: Request, edges: Edges) -> Run:
    """Take `request` on: when this returns it is durable, and carried out.

    raises:  as `Endpoint.create`, before its first event
    """
    async with AsyncExitStack() as held:
        turn = await opened(request, edges, held)
        edges.models(request.model)
        response_id = edges.new_id("resp")
        holder = f"{this_process()}:{response_id}"
        hold = await Hold.take(edges.store, run_lease(response_id), holder, TTL_S)
        held.push_async_callback(hold.release)
        link = replace(_begun(turn, response_id, edges), status="queued")
        change = ending.change_for(turn.before, turn.saw, NOTHING, link, edges.new_id)
        await commit(edges.store, replace(change, starts=response_id), turn, NOTHING)
        run = Run(turn, link, edges, held.pop_all())
        run.start()
    return run


async def end_elsewhere(response_id: str, how: Callable[[Sequence[Item]], Ended], edges: Edges) -> None:
    """End a run that another process carries out, or nobody: what had come of it is kept, as far as it was told.

    Nothing happens when it ended meanwhile.
    """
    link = await edges.store.link(response_id)
    if link is None or link.status not in OPEN:
        return
    end = how(_told(await edges.store.events(response_id)))
    path = await edges.store.path(link.saw)
    link = ending.finished(link, path, end, max(0.0, edges.clock.now() - link.created_at))
    grow = (Growth(path.head, end.output),) if end.output else ()
    with suppress(Conflict):
        await edges.store.commit(Change(grow=grow, links=(link,), ends=response_id))


def _begun(turn: Opened, response_id: str, edges: Edges) -> Link:
    now = edges.clock.now()
    return ending.begun(
        turn.request,
        turn.before,
        turn.saw,
        response_id=response_id,
        created_at=now,
        first_token_s=None,
        ignored=ignored(turn, edges),
        provider=provider(turn, edges),
    )


def _told(events: Sequence[Event]) -> list[Item]:
    """What these events say of an answer that did not end."""
    partial = Partial()
    for event in events:
        gather(partial, event)
    return partial.kept
