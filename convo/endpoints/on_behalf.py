"""A model that a server asks with its own key, for clients who have another one.

Errors are put into the client's terms. When a provider refuses the server's key, the client's key is not at fault.
A model that the provider does not have is the API's 400 `model_not_found`, which clients do not retry. And a client
that asked for an alias sees the alias, not the model behind it.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from convo.errors import BadSettings, ConvoError, EndpointFault, KeyRefused, Refused
from convo.items import Event, Item, Json
from convo.models.contract import Ask, Model, ignored_by
from convo.models.sealed import without_model


class OnBehalf:
    """`model` as its clients see it.

    provider:  its provider, in sentences
    asked:     the model's name in the request: an alias, a bare name or provider/model
    own:       the provider's own name for the model
    """

    def __init__(self, model: Model, provider: str, *, asked: str, own: str) -> None:
        self._model, self.provider, self._asked, self._own = model, provider, asked, own

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        with self._for_the_client():
            async with aclosing(self._model.respond(ask)) as events:
                async for event in events:
                    yield event if self._own in self._asked else self._hiding_the_model(event)

    async def warm(self, model: str) -> None:
        with self._for_the_client():
            await self._model.warm(model)

    async def check_request(self, ask: Ask) -> None:
        with key_of_the_server(self.provider):
            await self._model.check_request(ask)

    async def count(self, ask: Ask) -> int | None:
        with self._for_the_client():
            return await self._model.count(ask)

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        with self._for_the_client():
            made = await self._model.compact(ask)
        if made is None or self._own in self._asked:
            return made
        return [without_model(item) for item in made]

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        return ignored_by(self._model, ask)

    async def aclose(self) -> None:
        await self._model.aclose()

    @contextmanager
    def _for_the_client(self) -> Iterator[None]:
        try:
            with key_of_the_server(self.provider):
                yield
        except ConvoError as fault:
            if isinstance(fault, EndpointFault) and _is_no_model(fault):
                raise no_model(self._asked, fault) from fault
            fault.args = (self._renamed(fault.message), *fault.args[1:])
            raise

    def _renamed(self, words: str) -> str:
        """`words` with the model under the name that the client knows."""
        if self._own in self._asked:
            return words
        return words.replace(f"{self.provider}/{self._own}", self._asked).replace(self._own, self._asked)

    def _hiding_the_model(self, event: Event) -> Event:
        """`event` with an error's words and the tags of seals as a client that asked for an alias may see them."""
        if "item" in event:
            return {**event, "item": without_model(event["item"])}
        response = event.get("response")
        if not response:
            return event
        hidden = {**response, "output": [without_model(item) for item in response.get("output") or ()]}
        error: Json = response.get("error")
        if error and isinstance(error.get("message"), str):
            hidden["error"] = {**error, "message": self._renamed(error["message"])}
        return {**event, "response": hidden}


def no_model(name: str, why: BadSettings | EndpointFault) -> Refused:
    """What the real API says of a model that is not there; `why` is for the operator of the server."""
    return Refused(
        f"The requested model '{name}' does not exist", code="model_not_found", param="model", hint=why.message
    )


def _is_no_model(fault: EndpointFault) -> bool:
    """Whether a provider does not have the model: it says so, or answers 404 and says nothing else."""
    wordless = fault.status == 404 and isinstance(fault, Refused) and fault.code == Refused.code and fault.param is None
    return fault.code == "model_not_found" or wordless


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
