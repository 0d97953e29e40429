"""Models whose input is completed before it is sent: the content of files goes inline.

The stored history keeps file ids and URLs; adapters receive content that every API takes.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from convo.history.items import Item, StreamEvent
from convo.models.base import Model, ModelRequest, get_ignored_fields, get_provider_name, runs_hosted_tools
from convo.responses_api.deps import ModelOpener
from convo.responses_api.files import FileResolver


class ModelsWithInput:
    """Implements `ModelOpener` over another one."""

    def __init__(self, models: ModelOpener, files: FileResolver) -> None:
        self._models, self._files = models, files

    def __call__(self, name: str) -> tuple[Model, str]:
        model, provider_model = self._models(name)
        return ModelWithInput(model, self._files), provider_model

    async def aclose(self) -> None:
        await self._models.aclose()


class ModelWithInput:
    """Implements `Model` over another one."""

    def __init__(self, model: Model, files: FileResolver) -> None:
        self._model, self._files = model, files

    @property
    def provider(self) -> str | None:
        return get_provider_name(self._model)

    @property
    def runs_hosted_tools(self) -> bool:
        return runs_hosted_tools(self._model)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(self._model.respond(await self._complete(request))) as events:
            async for event in events:
                yield event

    async def warm(self, model: str) -> None:
        await self._model.warm(model)

    async def check_request(self, request: ModelRequest) -> None:
        await self._model.check_request(await self._complete(request))

    async def count(self, request: ModelRequest) -> int | None:
        return await self._model.count(await self._complete(request))

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        return await self._model.compact(await self._complete(request))

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return get_ignored_fields(self._model, request)

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _complete(self, request: ModelRequest) -> ModelRequest:
        items = await self._files.resolve(request.input, keep_unknown=runs_hosted_tools(self._model))
        return request if items is request.input else replace(request, input=items)
