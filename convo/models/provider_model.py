"""A provider's model as the rest of convo uses it: ids of calls that the server accepts, and limited responses."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from convo.config.settings import ResponseLimits
from convo.history.call_ids import CallIdRenamer, call_id_form
from convo.history.items import Item, StreamEvent
from convo.models.base import Model, ModelRequest
from convo.models.limits import apply_idle_limit, limit_response_events


class ProviderModel(Model):
    """A model over an adapter.

    is_chat:  the server speaks chat completions
    """

    def __init__(self, model: Model, limits: ResponseLimits, *, is_chat: bool = False) -> None:
        self._model, self._limits, self._is_chat = model, limits, is_chat
        self.hosted_tools = model.hosted_tools
        self._is_warm = False

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if not self._is_warm:
            return self._warm_and_respond(request)
        renamer = self._make_renamer(request)
        return limit_response_events(self._model.respond(replace(request, input=renamer.input)), self._limits, renamer)

    async def _warm_and_respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Import the package in a thread, then respond: an import in the event loop blocks it for a second."""
        await self.warm(request.model)
        async with aclosing(self.respond(request)) as events:
            async for event in events:
                yield event

    async def warm(self, model: str) -> None:
        await self._model.warm(model)
        self._is_warm = True

    async def check_request(self, request: ModelRequest) -> None:
        await self._model.check_request(self._prepare(request))

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return self._model.ignored_fields(request)

    async def count(self, request: ModelRequest) -> int | None:
        return await apply_idle_limit(self._model.count(self._prepare(request)), self._limits)

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        return await apply_idle_limit(self._model.compact(self._prepare(request)), self._limits)

    async def aclose(self) -> None:
        await self._model.aclose()

    def _make_renamer(self, request: ModelRequest) -> CallIdRenamer:
        return CallIdRenamer(request.input, call_id_form(request.model, is_chat=self._is_chat))

    def _prepare(self, request: ModelRequest) -> ModelRequest:
        return replace(request, input=self._make_renamer(request).input)
