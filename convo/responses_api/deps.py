"""Dependencies and options of the endpoint, its active runs, and the write lock.

`ActiveRuns` knows the responses that this process is producing, so that shutdown can wait for
them. The write lock of a conversation is a lease on the store's clock; a lost lease cannot
lose items, because every transaction names the expected head.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from convo.errors import Busy, StoreFault, TryLater
from convo.models.base import Model
from convo.responses_api import errors
from convo.responses_api.encryption import CompactionCipher
from convo.responses_api.truncation import WindowLookup
from convo.runtime import Clock, NewId, process_identity
from convo.stores.base import Store
from convo.stores.lease import LeaseGuard
from convo.usage.models import find_model_window

T = TypeVar("T")


class ActiveBackgroundRun(Protocol):
    """A background response that this process carries out."""

    def next_news(self) -> asyncio.Event:
        """Is set when something of it was kept after this call, and at its end."""
        ...

    async def stop(self) -> None:
        """End it as cancelled, unless it ends by itself just now; returns when that is durable."""
        ...


SETTLE_TIMEOUT_S = 0.05
"""How long a request waits for the answer before it, whose client may have left a moment ago."""

STORE_TIMEOUT_S = 10.0
"""How long it waits for one that is being stored."""


class ForegroundRun:
    """One answer with a reader.

    response_id, conversation: None until they are known
    stopped:    the process ends, and the time for it is over
    closing:    the answer has ended or was cancelled, and is being stored
    suspended:  it waits for its reader, and cannot end by itself
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.response_id: str | None = None
        self.conversation: str | None = None
        self.stopped = self.closing = self.suspended = False
        self.ended = asyncio.Event()
        self._task: asyncio.Task[object] | None = None

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` of the model, until `stop`. raises: TryLater  it was stopped"""
        if self.stopped:
            work.close()
            raise _shutting_down_error()
        self._task, self.suspended = asyncio.current_task(), False
        try:
            return await work
        except asyncio.CancelledError:
            if self.stopped and self._task is not None and self._task.uncancel() == 0:
                raise _shutting_down_error() from None
            raise
        finally:
            self._task, self.suspended = None, True

    def close(self) -> None:
        """The model is not waited for any more; the answer is being stored."""
        self.closing, self.suspended = True, False

    def stop(self) -> None:
        self.stopped = True
        if self._task is not None:
            self._task.cancel()


class ActiveRuns:
    """The tasks of one process, for all its tenants."""

    def __init__(self) -> None:
        self._foreground: set[ForegroundRun] = set()
        self._over = False
        self._tasks: dict[asyncio.Task[None], Callable[[], object]] = {}
        self._responses: dict[str, ActiveBackgroundRun] = {}
        self._closing = False

    def check_open(self) -> None:
        """raises: TryLater  nothing is begun any more"""
        if self._closing:
            raise _shutting_down_error()

    def start(self, work: Coroutine[Any, Any, None], *, stop: Callable[[], object] | None = None) -> asyncio.Task[None]:
        """Carry `work` out; `stop` tells it to come to an end, where it is not to be cancelled."""
        task = asyncio.create_task(work)
        self._tasks[task] = stop or task.cancel
        task.add_done_callback(self._tasks.pop)
        return task

    def enter(self, response_id: str, running: ActiveBackgroundRun) -> None:
        self._responses[response_id] = running

    def leave(self, response_id: str) -> None:
        self._responses.pop(response_id, None)

    def here(self, response_id: str) -> ActiveBackgroundRun | None:
        """The background response of this id, if this process carries it out."""
        return self._responses.get(response_id)

    @contextmanager
    def foreground(self, tenant: str) -> Iterator[ForegroundRun]:
        """Register an answer with a reader while the block runs."""
        answer = ForegroundRun(tenant)
        answer.stopped = self._over
        self._foreground.add(answer)
        try:
            yield answer
        finally:
            self._foreground.discard(answer)
            answer.ended.set()

    async def wait_until_ended(
        self, tenant: str, *, conversation: str | None = None, response_id: str | None = None
    ) -> bool:
        """Wait for an answer of this process that is about to end, as its client may have left.

        It is known by its conversation or by its own id. Returns whether such an answer ended.
        """
        named = conversation or response_id
        of_tenant = (one for one in self._foreground if one.tenant == tenant)
        found = next((one for one in of_tenant if named in (one.conversation, one.response_id)), None)
        if found is None or named is None:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(found.ended.wait(), SETTLE_TIMEOUT_S)
        if found.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(found.ended.wait(), STORE_TIMEOUT_S)
        return found.ended.is_set()

    def close(self) -> None:
        """Begin nothing more."""
        self._closing = True

    async def aclose(self, grace_s: float) -> None:
        """Begin nothing more, and wait until everything that goes on has finished, or marked that it did not.

        grace_s:  seconds after which it is told to stop
        """
        self.close()
        if self._tasks or self._foreground:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await asyncio.gather(
                        *(asyncio.shield(task) for task in self._tasks),
                        *(answer.ended.wait() for answer in self._foreground),
                        return_exceptions=True,
                    )
        self._over = True
        for answer in tuple(self._foreground):
            answer.stop()
        while (left := self._unfinished()) or any(not answer.suspended for answer in self._foreground):
            for stop in left.values():
                stop()
            kept = [answer.ended.wait() for answer in self._foreground if not answer.suspended]
            await asyncio.gather(*left, *kept, return_exceptions=True)

    def _unfinished(self) -> dict[asyncio.Task[None], Callable[[], object]]:
        """Tasks that still run. One that is done stays in `_tasks` until the event loop calls its callback."""
        return {task: stop for task, stop in self._tasks.items() if not task.done()}


def _shutting_down_error() -> TryLater:
    return TryLater("The server is shutting down", code="server_shutting_down", retry_after_s=1.0)


async def await_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Carry `work` to its end, however often whoever waits for it is cancelled meanwhile.

    raises:  what `work` raises; else CancelledError, afterwards, if somebody was cancelled
    """
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as told:
            cancelled = told
    done = task.result()
    if cancelled:
        raise cancelled
    return done


class ModelOpener(Protocol):
    """Opens models by name. Whoever made it closes what it opened with `aclose`."""

    def __call__(self, name: str) -> tuple[Model, str]:
        """The model for "provider/model", and the provider's own name for it.

        raises:  ConvoError  there is no such provider or model, or its key is missing
        """
        ...

    async def aclose(self) -> None: ...


SPECIFICATION_EVENT_NAMES: Final[Mapping[str, str]] = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""Events that the openai package and the specification call differently, by the package's names."""


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """How the endpoint behaves.

    for_clients: the reader is a client behind a connection. An event counts as sent once the next one is asked for.
                A client that disconnects leaves its input and the partial answer in its conversation. A store that
                fails at the end is reported as `response.failed`, not raised
    stateless:  it keeps nothing, and what would need state is refused by its name
    renamed:    what events are called instead of their usual names
    strict:     it refuses what the real API refuses, also where its models would take it
    estimates:  a request for input tokens is answered by the offline tokenizer where the model has no counter
    """

    for_clients: bool = False
    stateless: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    estimates: bool = False


@dataclass(frozen=True, slots=True)
class EndpointDeps:
    """Everything outside that a turn touches.

    sealing:  opens and seals compaction items for the store's tenant
    runs:     what goes on here without a reader
    windows:  how much each model has room for
    """

    store: Store
    models: ModelOpener
    clock: Clock
    new_id: NewId
    sealing: CompactionCipher
    runs: ActiveRuns = field(default_factory=ActiveRuns)
    manner: EndpointOptions = field(default_factory=EndpointOptions)
    windows: WindowLookup = find_model_window


WRITE_LEASE_TTL_S = 6.0


@asynccontextmanager
async def conversation_write_lock(store: Store, conversation_id: str, holder: str) -> AsyncIterator[None]:
    """Hold the right to write this conversation while the block runs.

    holder:  a name that nobody else in this process has
    raises:  TryLater  `conversation_locked`: somebody else holds it
    """
    try:
        hold = await _acquire_lease(store, f"writing {conversation_id}", f"{process_identity()}:{holder}")
    except Busy as busy:
        raise errors.conversation_locked_error() from busy
    try:
        yield
    finally:
        await await_to_completion(hold.release())


async def _acquire_lease(store: Store, name: str, holder: str) -> LeaseGuard:
    """Acquire the lease; a cancellation meanwhile releases it. raises: Busy"""
    taking = asyncio.create_task(LeaseGuard.take(store, name, holder, WRITE_LEASE_TTL_S))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await await_to_completion(_release_acquired(taking))
        raise


async def _release_acquired(taking: asyncio.Task[LeaseGuard]) -> None:
    with suppress(Busy, StoreFault):
        await (await taking).release()
