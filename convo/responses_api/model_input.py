"""Models whose requests are completed before they are sent: files go inline, `mcp` tools are run here.

The stored history keeps file ids, URLs and `mcp_` items; adapters receive content and functions, which every API has.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from convo.endpoints.base import IsSteered
from convo.history.items import Item, StreamEvent
from convo.models.base import Model, ModelRequest
from convo.responses_api.deps import ModelOpener
from convo.responses_api.files import FileResolver
from convo.responses_api.mcp_client import McpOptions
from convo.responses_api.mcp_tools import ApprovedCalls, McpPlan, has_mcp, plan_mcp, respond_with_mcp
from convo.runtime import NewId


def _never() -> bool:
    return False


class ModelsWithInput:
    """Implements `ModelOpener` over another one."""

    def __init__(self, models: ModelOpener, files: FileResolver, mcp: McpOptions, new_id: NewId) -> None:
        self._models, self._files, self._mcp, self._new_id = models, files, mcp, new_id
        self._approved = ApprovedCalls(files.store)

    def __call__(self, name: str) -> tuple[Model, str]:
        model, provider_model = self._models(name)
        return ModelWithInput(model, self._files, self._mcp, self._approved, self._new_id), provider_model

    async def aclose(self) -> None:
        await self._models.aclose()


class ModelWithInput(Model):
    """A model over another one."""

    def __init__(
        self,
        model: Model,
        files: FileResolver,
        mcp: McpOptions,
        approved: ApprovedCalls,
        new_id: NewId,
        is_steered: IsSteered = _never,
    ) -> None:
        self._model, self._files, self._mcp, self._new_id = model, files, mcp, new_id
        self._approved, self._is_steered = approved, is_steered
        self.provider, self.hosted_tools = model.provider, model.hosted_tools

    def with_steering(self, is_steered: IsSteered) -> "ModelWithInput":
        """Return this model for a response that makes no further model call once `is_steered` returns true."""
        return ModelWithInput(self._model, self._files, self._mcp, self._approved, self._new_id, is_steered)

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if has_mcp(request) or self._files.has_files(request.input):
            return self._respond_completed(request)
        return self._model.respond(request)

    async def _respond_completed(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        plan = await self._plan(request)
        responding = (
            respond_with_mcp(
                self._model,
                plan,
                request.input,
                self._new_id,
                request.parameters.get("max_tool_calls"),
                approved=self._approved,
                is_steered=self._is_steered,
            )
            if plan.servers
            else self._model.respond(plan.request)
        )
        async with aclosing(responding) as events:
            async for event in events:
                yield event

    async def warm(self, model: str) -> None:
        await self._model.warm(model)

    async def check_request(self, request: ModelRequest) -> None:
        await self._model.check_request((await self._plan(request)).request)

    async def count(self, request: ModelRequest) -> int | None:
        plan = await self._plan(request)
        return None if plan.servers else await self._model.count(plan.request)  # their tools are not known yet

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        return await self._model.compact((await self._plan(request)).request)

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return self._model.ignored_fields(plan_mcp(request, self._mcp, self.hosted_tools).request)

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _plan(self, request: ModelRequest) -> McpPlan:
        """Complete a request. Raises RequestRefused for a file or an `mcp` tool that cannot be used."""
        items = await self._files.resolve(request.input, keep_unknown=self.hosted_tools == "run")
        completed = request if items is request.input else replace(request, input=items)
        return plan_mcp(completed, self._mcp, self.hosted_tools)
