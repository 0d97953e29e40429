"""Claude, through Anthropic's own package and its Messages API.

What is sent and how the answer is read are plain functions beside this file
(`anthropic_messages`, `anthropic_request`, `anthropic_thinking`, `anthropic_events`); here is only
the connection. The package is an extra and loads on first use. What its variables say in the
environment is for Anthropic's own account, and put aside for every other server.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from convo.config.secret import Secret
from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import EndpointFault, ModelMissing
from convo.ids import NewId
from convo.items import Event, Item, Json
from convo.models.account import NO_KEY
from convo.models.anthropic_events import Blocks
from convo.models.anthropic_request import COUNTED, ignored, request
from convo.models.bodies import limit_bodies
from convo.models.catalogue import check_reachable, names
from convo.models.contract import Ask
from convo.models.foreign import Asked, broken, edge
from convo.models.line import Line
from convo.models.sealed import Maker, maker
from convo.models.stream import Answer

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import AsyncClient

PACKAGE = "anthropic"

NO_COUNTING = (404, 405, 501)
"""What a server answers that cannot count tokens."""


class AnthropicModel:
    """One account; `http` is a transport to use instead of the package's own."""

    def __init__(
        self,
        provider: str,
        base_url: str,
        new_id: NewId,
        *,
        key: Secret | None = None,
        http: "AsyncClient | None" = None,
        limits: Limits = DEFAULT_LIMITS,
        extra_fields: Collection[str] = (),
    ) -> None:
        self._provider, self._base_url, self._key = provider, base_url.removesuffix("/v1"), key
        self._new_id, self._http, self._limits = new_id, http, limits
        self._line: Line | None = None
        self._extra = extra_fields

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        body = {**self.body(ask), "stream": True}
        answer = Answer(self._new_id, ask.model, summarized=ask.wants_summary)
        blocks = Blocks(answer, self._maker(ask))
        async with aclosing(self._events(body)) as arriving:
            async for told in arriving:
                for event in blocks.read(told):
                    yield event
        for event in blocks.end():
            yield event

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, PACKAGE)

    async def check_request(self, ask: Ask) -> None:
        self.body(ask)
        await check_reachable(self, self._provider)

    async def count(self, ask: Ask) -> int | None:
        body = {name: value for name, value in self.body(ask).items() if name in COUNTED}
        try:
            with edge(self._asked(body)):
                counted = await self._connected().client.post("/v1/messages/count_tokens", cast_to=object, body=body)
        except EndpointFault as fault:
            if fault.status in NO_COUNTING and fault.code != "model_not_found":
                return None
            raise
        found = counted.get("input_tokens") if isinstance(counted, Mapping) else None
        return found if isinstance(found, int) else None

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        """Claude's own compaction is not released yet."""
        return None

    async def models(self) -> Sequence[str]:
        with edge(self._asked({})):
            listed = await self._connected().client.get("/v1/models?limit=1000", cast_to=object)
        return names(listed, self._provider)

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.close()
        elif self._http is not None:
            await self._http.aclose()

    def body(self, ask: Ask) -> dict[str, Json]:
        """What `ask` is sent as, apart from the field about streaming. raises: Unsupported, InputFault"""
        return request(ask, self._maker(ask), f"{self._provider}/{ask.model}", self._extra)

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        return ignored(ask, self._maker(ask), self._extra)

    async def _events(self, body: Mapping[str, Json]) -> AsyncGenerator[Json, None]:
        asked, begun = self._asked(body), False
        async with aclosing(self._connected().streamed("/v1/messages", body, asked)) as values:
            async for value in values:
                if isinstance(value, Mapping) and value.get("type") == "error":
                    raise broken(value, asked, answering=begun)
                begun = True
                yield value

    def _maker(self, ask: Ask) -> Maker:
        return maker(self._provider, ask.model, self._base_url)

    def _asked(self, body: Mapping[str, Json]) -> Asked:
        return Asked(self._provider, self._base_url, model=body.get("model"), key=self._key, package=PACKAGE)

    def _connected(self) -> Line:
        if self._line is None:
            from anthropic import DefaultAsyncHttpxClient

            ambient = self._provider == "anthropic"
            http = limit_bodies(self._http or DefaultAsyncHttpxClient(follow_redirects=False), self._limits)
            client = _client(self._base_url, self._key or NO_KEY, http, ambient=ambient)
            self._line = Line(client, http, self._limits)
        return self._line


def installed() -> None:
    """raises: ModelMissing  Anthropic's package is not here; it is an extra"""
    if find_spec(PACKAGE) is None:
        raise ModelMissing(f"the {PACKAGE} package is not installed", hint=f"pip install 'convo-state[{PACKAGE}]'")


def _client(base_url: str, key: Secret, http: "AsyncClient", *, ambient: bool) -> "AsyncAnthropic":
    """The package's client, without retries of its own; `ambient`: ANTHROPIC_CUSTOM_HEADERS count."""
    from anthropic import AsyncAnthropic, Omit

    lines = "" if ambient else os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "")
    planted = filter(None, (line.partition(":")[0].strip() for line in lines.split("\n")))
    headers: dict[str, Any] = {**{name: Omit() for name in planted}, "X-Api-Key": key.reveal()}
    return AsyncAnthropic(
        api_key=key.reveal(),
        base_url=base_url,
        max_retries=0,
        http_client=http,
        default_headers=headers,
    )
