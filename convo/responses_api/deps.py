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

from convo.config.sections import FileSettings
from convo.errors import Busy, StoreFault, TryLater
from convo.models.base import Model
from convo.responses_api import errors
from convo.responses_api.encryption import CompactionCipher
from convo.responses_api.history import HistoryCache
from convo.responses_api.mcp_client import McpOptions
from convo.responses_api.truncation import WindowLookup
from convo.runtime import Clock, NewId, process_identity, shielded
from convo.stores.base import Store
from convo.stores.lease import LeaseGuard
from convo.usage.model_info import find_model_window

T = TypeVar("T")


class ActiveBackgroundRun(Protocol):
    """A background response that this process runs."""

    def next_update(self) -> asyncio.Event:
        """Return an event that is set when something is stored after this call, and at the end of the run."""
        ...

    async def stop(self) -> None:
        """Cancel the run unless it ends by itself now; return when its end is stored."""
        ...


SETTLE_TIMEOUT_S = 0.05
"""Seconds that a request waits for the response before it, whose client may just have disconnected."""

STORE_TIMEOUT_S = 10.0
"""Seconds that it waits for a response that is being stored."""


class ForegroundRun:
    """One foreground response: its caller waits for the events.

    response_id, conversation_id: None until known
    is_stopped:    the process is shutting down, and the grace period is over
    is_closing:    the response has ended or was cancelled, and is being stored
    is_suspended:  it waits for its caller, and cannot end by itself
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.response_id: str | None = None
        self.conversation_id: str | None = None
        self.is_stopped = self.is_closing = self.is_suspended = False
        self.end_event = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        self._loop = asyncio.get_running_loop()  # finding it takes longer than the rest of `wait`

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await `coroutine` of the model until `stop`. Raises TryLater if it was stopped."""
        if self.is_stopped:
            # Python warns of a coroutine that was never awaited.
            coroutine.close()
            raise _shutting_down_error()
        self._task, self.is_suspended = asyncio.current_task(self._loop), False
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self.is_stopped and self._task is not None and self._task.uncancel() == 0:
                raise _shutting_down_error() from None
            raise
        finally:
            self._task, self.is_suspended = None, True

    def begin_close(self) -> None:
        """Mark the response as being stored: the model is no longer awaited."""
        self.is_closing, self.is_suspended = True, False

    def stop(self) -> None:
        self.is_stopped = True
        if self._task is not None:
            self._task.cancel()


class ActiveRuns:
    """The active runs and tasks of one process, for all tenants.

    unstored:  the tenant of each background response with `store: false`, and the time at which it may be deleted
    """

    def __init__(self) -> None:
        self.unstored: dict[str, tuple[str, float]] = {}
        self._foreground: set[ForegroundRun] = set()
        self._is_grace_over = False
        self._tasks: dict[asyncio.Task[None], Callable[[], object]] = {}
        self._background: dict[str, ActiveBackgroundRun] = {}
        self._is_closing = False

    def check_open(self) -> None:
        """Raise TryLater if the process is shutting down."""
        if self._is_closing:
            raise _shutting_down_error()

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], *, stop: Callable[[], object] | None = None
    ) -> asyncio.Task[None]:
        """Start a task for `coroutine`; at shutdown `stop` is called instead of cancelling it."""
        task = asyncio.create_task(coroutine)
        self._tasks[task] = stop or task.cancel
        task.add_done_callback(self._tasks.pop)
        return task

    def register(self, response_id: str, run: ActiveBackgroundRun) -> None:
        self._background[response_id] = run

    def unregister(self, response_id: str) -> None:
        self._background.pop(response_id, None)

    def find_background(self, response_id: str) -> ActiveBackgroundRun | None:
        """Return the background response with this id if this process runs it."""
        return self._background.get(response_id)

    @contextmanager
    def track_foreground(self, tenant: str) -> Iterator[ForegroundRun]:
        """Register a foreground response while the block runs."""
        run = ForegroundRun(tenant)
        run.is_stopped = self._is_grace_over
        self._foreground.add(run)
        try:
            yield run
        finally:
            self._foreground.discard(run)
            run.end_event.set()

    async def wait_until_ended(
        self, tenant: str, *, conversation_id: str | None = None, response_id: str | None = None
    ) -> bool:
        """Wait for a response of this process that is about to end, as its client may have disconnected.

        The response is found by its conversation's id or its own. Returns whether it ended.
        """
        handle = conversation_id or response_id
        tenant_runs = (run for run in self._foreground if run.tenant == tenant)
        match = next((run for run in tenant_runs if handle in (run.conversation_id, run.response_id)), None)
        if match is None or handle is None:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_S):  # `wait_for` of Python 3.11 may lose a cancellation
                await match.end_event.wait()
        if match.is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    await match.end_event.wait()
        return match.end_event.is_set()

    def close(self) -> None:
        """Start nothing more."""
        self._is_closing = True

    async def aclose(self, grace_s: float) -> None:
        """Start nothing more, and wait until every run has finished or has stored that it did not.

        grace_s:  seconds after which the runs are stopped
        """
        self.close()
        if self._tasks or self._foreground:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await asyncio.gather(
                        # The timeout must not cancel them: `stop` lets a background run store how far it came.
                        *(asyncio.shield(task) for task in self._tasks),
                        *(run.end_event.wait() for run in self._foreground),
                        return_exceptions=True,
                    )
        self._is_grace_over = True
        for run in tuple(self._foreground):
            run.stop()
        # A response whose reader asks for no further event cannot end, so it is not waited for.
        while (unfinished := self._unfinished_tasks()) or any(not run.is_suspended for run in self._foreground):
            for stop in unfinished.values():
                stop()
            end_waits = [run.end_event.wait() for run in self._foreground if not run.is_suspended]
            await asyncio.gather(*unfinished, *end_waits, return_exceptions=True)

    def _unfinished_tasks(self) -> dict[asyncio.Task[None], Callable[[], object]]:
        """Return the running tasks. A done task stays in `_tasks` until the event loop calls its callback."""
        return {task: stop for task, stop in self._tasks.items() if not task.done()}


def _shutting_down_error() -> TryLater:
    return TryLater("The server is shutting down", code="server_shutting_down", retry_after_s=1.0)


class ModelOpener(Protocol):
    """Opens models by name. Its creator closes the opened models with `aclose`."""

    def __call__(self, name: str) -> tuple[Model, str]:
        """Return the model for "provider/model", and the provider's own name for it.

        Raises ConvoError if there is no such provider or model, or if its key is missing.
        """
        ...

    async def aclose(self) -> None: ...


SPECIFICATION_EVENT_NAMES: Final[Mapping[str, str]] = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""The specification's names of events for which the openai package uses other names, by the package's name."""


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Options of the endpoint.

    is_server:        the reader is a network client. An event counts as sent when the next one is requested. If a
                      client disconnects, its input and partial response stay in its conversation. If the store fails
                      at the end, `response.failed` reports it and no error is raised
    stateless:        nothing is stored, and a field that needs state is refused by its name
    event_names:      other names of events, by their usual name
    strict:           requests that the real API refuses are refused, even if the model would accept them
    estimate_tokens:  input tokens are counted by the offline tokenizer if the model has no counter
    files:            limits on uploaded files, and whether URLs of files are fetched
    mcp:              the MCP servers that requests may use
    blocked_networks: networks from which no file is fetched, besides those that are not public
    """

    is_server: bool = False
    stateless: bool = False
    event_names: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    estimate_tokens: bool = False
    files: FileSettings = field(default_factory=FileSettings)
    mcp: McpOptions = field(default_factory=McpOptions)
    blocked_networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointDeps:
    """The dependencies of a turn.

    cipher:       encrypts and decrypts compaction items for the store's tenant
    runs:         the active runs of this process
    histories:    the histories that this process read or wrote last
    find_window:  returns the context window of a model
    """

    store: Store
    models: ModelOpener
    clock: Clock
    new_id: NewId
    cipher: CompactionCipher
    runs: ActiveRuns = field(default_factory=ActiveRuns)
    options: EndpointOptions = field(default_factory=EndpointOptions)
    find_window: WindowLookup = find_model_window
    histories: HistoryCache = field(default_factory=HistoryCache)


WRITE_LEASE_TTL_S = 6.0


@asynccontextmanager
async def conversation_write_lock(store: Store, conversation_id: str, holder: str) -> AsyncIterator[None]:
    """Hold the write lease of this conversation while the block runs.

    holder:  a name that is unique in this process

    Raises TryLater (`conversation_locked`) if another holder has the lease.
    """
    try:
        lease = await _acquire_lease(store, f"writing {conversation_id}", f"{process_identity()}:{holder}")
    except Busy as busy:
        raise errors.conversation_locked_error() from busy
    try:
        yield
    finally:
        await shielded(lease.release())


async def _acquire_lease(store: Store, name: str, holder: str) -> LeaseGuard:
    """Acquire the lease; release it again if cancelled in the meantime. Raises Busy."""
    acquisition = asyncio.create_task(LeaseGuard.acquire(store, name, holder, WRITE_LEASE_TTL_S))
    try:
        return await asyncio.shield(acquisition)
    except asyncio.CancelledError:
        # The store may have given the lease although the caller was cancelled; it would renew itself.
        await shielded(_release_acquired(acquisition))
        raise


async def _release_acquired(acquisition: asyncio.Task[LeaseGuard]) -> None:
    with suppress(Busy, StoreFault):
        await (await acquisition).release()
