"""Any server that speaks Responses, asked as if it kept nothing: OpenAI, Azure OpenAI, vLLM, Ollama.

The whole history goes there each time with `store: false`, so the state is whoever's asks, and the
server's own chains and conversations are never used. What is sent and how the answer is read are
plain functions beside this file (`responses_request`, `responses_events`).
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import EndpointFault, StreamBroken
from convo.ids import NewId
from convo.items import Event, Item, Json
from convo.items.wellformed import wellformed
from convo.models.account import Account, connect, fastest, line
from convo.models.catalogue import check_reachable, names
from convo.models.contract import Ask
from convo.models.foreign import checked, edge, error_in
from convo.models.line import Line
from convo.models.responses_events import Events
from convo.models.responses_request import ignored, request, to_compact, to_count
from convo.models.sealed import Maker, maker, signed

if TYPE_CHECKING:
    from httpx2 import AsyncClient

REST_S = 1.0
"""Seconds that the end of a stream may be behind its last event."""

NOT_THERE = (404, 405, 501)
"""What a server answers that cannot count, or cannot compact."""


class ResponsesModel:
    """The models of one account; `http` is a transport to use instead of the package's own."""

    def __init__(
        self,
        account: Account,
        new_id: NewId,
        *,
        http: "AsyncClient | None" = None,
        limits: Limits = DEFAULT_LIMITS,
        extra_fields: Collection[str] = (),
    ) -> None:
        self._account, self._new_id, self._http, self._limits = account, new_id, http, limits
        self._line: Line | None = None
        self._extra = extra_fields

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        body = {**self._deployed(request(ask, self._maker(ask), self._who(ask), self._extra)), "stream": True}
        asked, answering = self._account.asked(body), False
        events = Events(self._maker(ask), self._new_id, ask.model)
        async with aclosing(self._connected().streamed("/responses", body, asked, exact=True)) as arriving:
            async for value in arriving:
                event = wellformed(checked(value, asked))
                failure = error_in(event, asked, answering=answering)
                if failure:
                    raise failure
                ours = events.read(event)
                if events.end is not None:
                    await _rest(arriving)
                    yield events.end
                    return
                if ours is not None:
                    answering = True
                    yield ours
        raise StreamBroken(f"{asked.provider} ended the stream before the answer was whole")

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        return ignored(ask, self._maker(ask), self._extra)

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, "openai")

    async def check_request(self, ask: Ask) -> None:
        request(ask, self._maker(ask), self._who(ask))
        await check_reachable(self, self._account.provider)

    async def count(self, ask: Ask) -> int | None:
        body = self._deployed(to_count(ask, self._maker(ask), self._who(ask)))
        answer = await self._post("/responses/input_tokens", body)
        found = answer.get("input_tokens") if isinstance(answer, Mapping) else None
        return found if isinstance(found, int) else None

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        body = self._deployed(to_compact(ask, self._maker(ask), self._who(ask)))
        answer = await self._post("/responses/compact", body)
        if answer is None:
            return None
        window = answer.get("output") if isinstance(answer, Mapping) else None
        if not isinstance(window, list) or not all(isinstance(item, dict) for item in window):
            raise StreamBroken(f"{self._account.provider} answered with something that is not a compacted window")
        return [signed(item, self._maker(ask)) for item in window]

    async def models(self) -> Sequence[str]:
        with edge(self._account.asked({})):
            listed = await self._connected().client.get("/models", cast_to=object)
        return names(listed, self._account.provider)

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.close()
        elif self._http is not None:
            await self._http.aclose()

    async def _post(self, path: str, body: Mapping[str, Json]) -> Json:
        """One answer; None from a server that has no such address."""
        try:
            with edge(self._account.asked(body)):
                return await self._connected().client.post(path, cast_to=object, body=body)
        except EndpointFault as fault:
            if fault.status in NOT_THERE and fault.code != "model_not_found":
                return None
            raise

    def _deployed(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """`body` under the name that the model has at this account."""
        return {**body, "model": self._account.deployment or body["model"]}

    def _maker(self, ask: Ask) -> Maker:
        account = self._account
        return maker(account.provider, ask.model, account.base_url, account.organisation, account.project)

    def _who(self, ask: Ask) -> str:
        return f"{self._account.provider}/{ask.model}"

    def _connected(self) -> Line:
        if self._line is None:
            http = self._http or fastest()
            self._line = line(self._account, connect(self._account, http, self._limits), http, self._limits)
        return self._line


async def _rest(arriving: AsyncGenerator[Json, None]) -> None:
    """Read what is behind the last event, so that the connection can be used again; it is not waited for long."""
    with suppress(TimeoutError, EndpointFault):
        async with asyncio.timeout(REST_S):
            async for _ in arriving:
                pass
