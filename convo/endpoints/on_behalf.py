"""A model that a server asks with its own key, for clients who have another one.

When a provider turns the server's key down, the client's is right all the same: it is told of a fault
behind the server, and not to look for another key.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from convo.errors import EndpointFault, KeyRefused
from convo.items import Event, Item
from convo.models.contract import Ask, Model


class OnBehalf:
    """`model` as its clients see it; `provider` is what it is called in sentences."""

    def __init__(self, model: Model, provider: str) -> None:
        self._model, self._provider = model, provider

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        with key_of_the_server(self._provider):
            async with aclosing(self._model.respond(ask)) as events:
                async for event in events:
                    yield event

    async def warm(self, model: str) -> None:
        with key_of_the_server(self._provider):
            await self._model.warm(model)

    async def count(self, ask: Ask) -> int | None:
        with key_of_the_server(self._provider):
            return await self._model.count(ask)

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        with key_of_the_server(self._provider):
            return await self._model.compact(ask)

    async def aclose(self) -> None:
        await self._model.aclose()


@contextmanager
def key_of_the_server(provider: str, *, asked: bool = True) -> Iterator[None]:
    """Turn a refusal of the server's key into a fault of the server.

    asked:   whether the provider turned it down; else the server had none to show
    raises:  EndpointFault
    """
    lacks = f"this server has no usable key for {provider}; GET /v1/models lists what it can ask"
    try:
        yield
    except KeyRefused as refused:
        raise EndpointFault(
            f"{provider} did not take the key of this server" if asked else lacks,
            code="provider_key_refused",
            hint=f"whoever runs this server looks at the key of {provider}",
        ) from refused
