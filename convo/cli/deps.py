"""Stores, endpoints and model choices for commands, opened from the settings.

Imports are made inside the functions: most commands need only the store.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from convo.config.loader import RecordedEndpoint, SettingsInputs, choose_model, resolve_settings
from convo.config.sections import APIS_WITHOUT_URL
from convo.config.settings import ModelChoice, Settings
from convo.config.storage import Storage
from convo.history.items import Json
from convo.history.records import STRATEGY_INFO, Session
from convo.stores.base import Store

if TYPE_CHECKING:
    from convo.chat.turn import RequestOptions
    from convo.endpoints.base import Endpoint


Result = TypeVar("Result")


@asynccontextmanager
async def open_configured_store(settings: Settings, *, inline: bool = False) -> AsyncIterator[Store]:
    """The store that the settings name, open as long as the block runs; reading makes no database."""
    from convo.stores.factory import open_store

    store = open_store(get_store_url(settings.storage), tenant=settings.tenant, inline=inline)
    try:
        yield store
    finally:
        await store.aclose()


def get_store_url(storage: Storage) -> str:
    """What `open_store` takes; a chat without a store keeps its state as long as it runs."""
    return storage.url.reveal() if storage.url else "memory" if storage.type == "none" else str(storage)


def read_from_store(settings: Settings, read: Callable[[Store], Awaitable[Result]]) -> Result:
    """What `read` finds in the store, for a command that has nothing else to do.

    Stores in this process are read without an event loop: it would take longer than the reading.
    """
    inline = settings.storage.type != "postgres"

    async def found() -> Result:
        async with open_configured_store(settings, inline=inline) as store:
            return await read(store)

    if inline:
        return run_sync(found())
    import asyncio

    return asyncio.run(found())


def run_sync(work: Coroutine[object, None, Result]) -> Result:
    """Carry out what never waits. raises: what `work` raises; RuntimeError  it had to wait"""
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    work.close()
    raise RuntimeError("this had to wait for something, and no event loop runs")


@asynccontextmanager
async def endpoint_session(choice: ModelChoice, settings: Settings, store: Store) -> AsyncIterator["Endpoint"]:
    """The endpoint that the chosen model has, open as long as the block runs."""
    endpoint = open_chosen_endpoint(choice, settings, store)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()


def open_chosen_endpoint(choice: ModelChoice, settings: Settings, store: Store) -> "Endpoint":
    """The endpoint that the chosen model has; whoever asked closes it."""
    from convo.chat.endpoint_factory import open_endpoint
    from convo.runtime import SystemClock, random_id

    return open_endpoint(choice.provider, settings=settings, store=store, clock=SystemClock(), new_id=random_id)


def choose_session_model(
    sources: SettingsInputs, session: Session | None, *, model: str | None = None
) -> tuple[Settings, ModelChoice]:
    """The settings with the session's own record among them, and the model that they come to.

    model:   said in the chat, and stronger than any flag
    raises:  WrongOwner  it would leave the endpoint that holds the session
             InvalidSettings
    """
    record = make_recorded_endpoint(session) if session else None
    settings = resolve_settings(sources, record)
    bound = record if session and STRATEGY_INFO[session.strategy].remembers and session.handle else None
    where = "/model" if model else "-m"
    choice = choose_model(settings, model, where=where, record=bound)
    return settings._replace(providers={**settings.providers, choice.provider.name: choice.provider}), choice


def make_recorded_endpoint(session: Session) -> RecordedEndpoint:
    """What the settings need to know of a session."""
    scope = session.scope
    return RecordedEndpoint(session.name, session.model, scope.url, scope.organisation, scope.project)


def make_request_options(
    choice: ModelChoice, *, instructions: str | None, parameters: Mapping[str, Json], store: bool = False
) -> "RequestOptions":
    """How the chosen model is asked; `store` and `parameters` as `RequestOptions` has them."""
    from convo.chat.turn import RequestOptions
    from convo.usage.models import has_encrypted_reasoning

    remote = choice.provider.endpoint == "remote"
    return RequestOptions(
        model=str(choice.name),
        wire_model=choice.name.model if remote else str(choice.name),
        instructions=instructions,
        parameters=parameters,
        store=store,
        seal=remote and has_encrypted_reasoning(choice.name.model),
    )


def can_count_locally(choice: ModelChoice) -> bool:
    """Whether the chosen model's endpoint can count without leaving this machine."""
    return choice.provider.api in APIS_WITHOUT_URL
