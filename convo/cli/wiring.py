"""Opens what a command needs: settings, the store, the endpoint behind a model.

Everything is opened here and closed here, in the order in which it depends on one another, and
imported only when it is asked for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from convo.config import Choice, Record, Settings, Sources, Storage, choose, resolve
from convo.config.providers import NEEDS_NO_URL
from convo.history import OWNERS, Session
from convo.items import Json
from convo.stores.contract import Store

if TYPE_CHECKING:
    from convo.endpoints.contract import Endpoint
    from convo.engine.turn import Asking

Result = TypeVar("Result")


@asynccontextmanager
async def store_of(settings: Settings, *, inline: bool = False) -> AsyncIterator[Store]:
    """The store that the settings name, open as long as the block runs; reading makes no database."""
    from convo.stores.open import open_store

    store = open_store(url_of(settings.storage), tenant=settings.tenant, inline=inline)
    try:
        yield store
    finally:
        await store.aclose()


def url_of(storage: Storage) -> str:
    """What `open_store` takes; a chat without a store keeps its state as long as it runs."""
    return storage.url.reveal() if storage.url else "memory" if storage.type == "none" else str(storage)


def from_store(settings: Settings, read: Callable[[Store], Awaitable[Result]]) -> Result:
    """What `read` finds in the store, for a command that has nothing else to do.

    Stores in this process are read without an event loop: it would take longer than the reading.
    """
    inline = settings.storage.type != "postgres"

    async def found() -> Result:
        async with store_of(settings, inline=inline) as store:
            return await read(store)

    if inline:
        return at_once(found())
    import asyncio

    return asyncio.run(found())


def at_once(work: Coroutine[object, None, Result]) -> Result:
    """Carry out what never waits. raises: what `work` raises; RuntimeError  it had to wait"""
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    work.close()
    raise RuntimeError("this had to wait for something, and no event loop runs")


@asynccontextmanager
async def endpoint_for(choice: Choice, settings: Settings, store: Store) -> AsyncIterator["Endpoint"]:
    """The endpoint that the chosen model has, open as long as the block runs."""
    endpoint = endpoint_of(choice, settings, store)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()


def endpoint_of(choice: Choice, settings: Settings, store: Store) -> "Endpoint":
    """The endpoint that the chosen model has; whoever asked closes it."""
    from convo.clock import SystemClock
    from convo.endpoints.open import open_endpoint
    from convo.ids import random_id

    return open_endpoint(choice.provider, settings=settings, store=store, clock=SystemClock(), new_id=random_id)


def chosen(sources: Sources, session: Session | None, *, model: str | None = None) -> tuple[Settings, Choice]:
    """The settings with the session's own record among them, and the model that they come to.

    model:   said in the chat, and stronger than any flag
    raises:  WrongOwner  it would leave the endpoint that holds the session
             BadSettings
    """
    record = record_of(session) if session else None
    settings = resolve(sources, record)
    bound = record if session and OWNERS[session.strategy].remembers and session.handle else None
    where = "/model" if model else "-m"
    choice = choose(settings, model, where=where, record=bound)
    return settings._replace(providers={**settings.providers, choice.provider.name: choice.provider}), choice


def record_of(session: Session) -> Record:
    """What the settings need to know of a session."""
    scope = session.scope
    return Record(session.name, session.model, scope.url, scope.organisation, scope.project)


def asking_of(
    choice: Choice, *, instructions: str | None, parameters: Mapping[str, Json], store: bool = False
) -> "Asking":
    """How the chosen model is asked; `store` and `parameters` as `Asking` has them."""
    from convo.engine.turn import Asking
    from convo.tokens import seals_reasoning

    remote = choice.provider.endpoint == "remote"
    return Asking(
        model=str(choice.name),
        wire_model=choice.name.model if remote else str(choice.name),
        instructions=instructions,
        parameters=parameters,
        store=store,
        seal=remote and seals_reasoning(choice.name.model),
    )


def counts_here(choice: Choice) -> bool:
    """Whether the chosen model's endpoint can count without leaving this machine."""
    return choice.provider.api in NEEDS_NO_URL
