"""Any server that speaks chat completions: DeepSeek, Ollama, vLLM, and convo's own local engine.

What is sent and how the answer is read are plain functions beside this file (`chat_messages`,
`chat_request`, `chat_chunks`); here is only the connection. What comes is read as plain JSON, since
the openai package's typed chunks drop what they do not know.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING

from convo.config.secret import Secret
from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.ids import NewId
from convo.items import Event, Item, Json
from convo.models.account import NO_KEY, Account, connect, fastest
from convo.models.catalogue import check_reachable, names
from convo.models.chat_chunks import Chunks
from convo.models.chat_request import dialect, ignored, request
from convo.models.contract import Ask
from convo.models.foreign import Asked, broken, edge
from convo.models.line import Line
from convo.models.sealed import Maker, maker
from convo.models.stream import Answer

if TYPE_CHECKING:
    from httpx2 import AsyncClient


class ChatModel:
    """One server. `defaults` are fields of the body that hold unless the ask says otherwise."""

    def __init__(
        self,
        provider: str,
        base_url: str,
        new_id: NewId,
        *,
        key: Secret | None = None,
        http: "AsyncClient | None" = None,
        limits: Limits = DEFAULT_LIMITS,
        defaults: Mapping[str, Json] | None = None,
        extra_fields: Collection[str] = (),
    ) -> None:
        self._provider, self._base_url, self._key = provider, base_url, key
        self._new_id, self._http, self._defaults = new_id, http, defaults or {}
        self._limits, self._dialect = limits, dialect(provider, base_url, extra_fields)
        self._line: Line | None = None

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        body = {**self.body(ask), "stream": True, "stream_options": {"include_usage": True}}
        answer = Answer(self._new_id, ask.model, summarized=ask.wants_summary)
        chunks = Chunks(answer, self._new_id, self._maker(ask) if self._dialect.thinks else None)
        async with aclosing(self._chunks(body)) as arriving:
            async for chunk in arriving:
                for event in chunks.read(chunk):
                    yield event
        for event in chunks.end():
            yield event

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, "openai")

    async def check_request(self, ask: Ask) -> None:
        self.body(ask)
        await check_reachable(self, self._provider)

    async def count(self, ask: Ask) -> int | None:
        """Chat completions has no way to ask for it."""
        return None

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        """Nor for this."""
        return None

    async def models(self) -> Sequence[str]:
        return names(await self.fetch("/models"), self._provider)

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.close()
        elif self._http is not None:
            await self._http.aclose()

    def body(self, ask: Ask) -> dict[str, Json]:
        """What `ask` is sent as, apart from the fields about streaming."""
        asked = request(ask, f"{self._provider}/{ask.model}", self._dialect, self._maker(ask))
        return {**self._defaults, **asked}

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        return ignored(ask, self._dialect, self._maker(ask))

    async def fetch(self, path: str, body: Mapping[str, Json] | None = None) -> Json:
        """What else the server tells beside its answers: one object; posts where there is a body."""
        with edge(self._asked(body or {})):
            if body is None:
                return await self._connected().client.get(path, cast_to=object)
            return await self._connected().client.post(path, cast_to=object, body=body)

    async def _chunks(self, body: Mapping[str, Json]) -> AsyncGenerator[Json, None]:
        asked, begun = self._asked(body), False
        async with aclosing(self._connected().streamed("/chat/completions", body, asked)) as arriving:
            async for chunk in arriving:
                if isinstance(chunk, Mapping) and chunk.get("error"):
                    raise broken(chunk, asked, answering=begun)
                begun = True
                yield chunk

    def _maker(self, ask: Ask) -> Maker:
        return maker(self._provider, ask.model, self._base_url)

    def _asked(self, body: Mapping[str, Json]) -> Asked:
        return Asked(self._provider, self._base_url, model=body.get("model"), key=self._key)

    def _connected(self) -> Line:
        if self._line is None:
            account = Account(self._provider, self._base_url, key=self._key or NO_KEY)
            http = self._http or fastest()
            self._line = Line(connect(account, http, self._limits), http, self._limits)
        return self._line
