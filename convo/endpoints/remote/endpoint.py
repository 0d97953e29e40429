"""The contract's methods against a server.

Everything travels as plain JSON in both directions: the package's typed objects drop or guess what
they do not know, so its resources are used for their paths and its transport, and the bodies are
read here.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.endpoints.contract import COUNTED, Order, Page, Wire
from convo.endpoints.remote.answer import ENDS, check_body, check_id, check_response, continues, conversation_id
from convo.endpoints.remote.connection import ResendingConnection
from convo.errors import EndpointFault, NotFound, StreamBroken
from convo.history import Scope
from convo.items import Event, Item, Json, Response
from convo.models.account import Account, addressed, connect, line
from convo.models.catalogue import check_reachable, names
from convo.models.foreign import Asked, checked, edge, error_in
from convo.models.limited import in_time, limit_events
from convo.models.line import Line
from convo.models.sealed import at_its_owner, maker

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from openai import AsyncOpenAI
    from openai._legacy_response import LegacyAPIResponse

NO_COUNTING = (404, 405)
"""What a server answers that cannot count tokens."""


class Remote:
    """One account at one server; `http` is a transport to use instead of the package's own."""

    def __init__(self, account: Account, *, http: "AsyncClient | None" = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._account, self._http, self._limits = account, http, limits
        self._line: Line | None = None

    @property
    def scope(self) -> Scope:
        return self._account.scope

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        check_body(body)
        body = self._opened(body)
        conversation = str(conversation_id(body.get("conversation")) or "")
        asked, continued = self._asked(body), False
        posted = self._streamed("/responses", {**body, "stream": True}, asked)
        events = limit_events(self._told(posted, asked, ("conversation", conversation)), self._limits)
        async with aclosing(events):
            async for event in events:
                continued = continued or continues(body, event)
                yield event

    def wire(self, body: Mapping[str, Json]) -> Wire:
        check_body(body)
        url, headers = addressed(self._account, "/responses")
        return Wire(url, {**self._opened(body), "stream": True}, headers)

    def connect(self) -> ResendingConnection:
        return ResendingConnection(self.create)

    async def retrieve(self, response_id: str) -> Response:
        check_id("response", response_id)
        raw = self._connected().responses.with_raw_response
        return await self._json(raw.retrieve(response_id), "response", response_id)

    async def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[Event, None]:
        check_id("response", response_id)
        asked = self._asked({})
        query = {"stream": "true", **_given(starting_after=after)}
        streaming = self._streamed(f"/responses/{quote(response_id, safe='')}", None, asked, query)
        events = limit_events(self._told(streaming, asked, ("response", response_id)), self._limits)
        async with aclosing(events):
            async for event in events:
                yield event

    async def cancel(self, response_id: str) -> Response:
        check_id("response", response_id)
        raw = self._connected().responses.with_raw_response
        return await self._json(raw.cancel(response_id), "response", response_id)

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        asked = self._asked(body)
        with edge(asked):
            posted = self._connected().post("/responses/compact", cast_to=object, body=self._opened(body))
            answer = await in_time(posted, self._limits)
        if not isinstance(answer, Mapping):
            raise StreamBroken(f"{asked.provider} answered with something that is not an object")
        return answer

    async def delete(self, response_id: str) -> None:
        check_id("response", response_id)
        raw = self._connected().responses.with_raw_response
        await self._sent(raw.delete(response_id), "response", response_id)

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        check_id("response", response_id)
        raw = self._connected().responses.input_items.with_raw_response
        asked = raw.list(response_id, limit=limit, order=order, **_paged(after, before))
        return _page(await self._json(asked, "response", response_id))

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        raw = self._connected().conversations.with_raw_response
        given = _given(items=self._own(items) or None, metadata=dict(metadata) if metadata else None)
        return await self._json(raw.create(**given), "conversation", "")

    async def conversation(self, conversation_id: str) -> Mapping[str, Json]:
        check_id("conversation", conversation_id)
        raw = self._connected().conversations.with_raw_response
        return await self._json(raw.retrieve(conversation_id), "conversation", conversation_id)

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        check_id("conversation", conversation_id)
        raw = self._connected().conversations.with_raw_response
        return await self._json(raw.update(conversation_id, metadata=dict(metadata)), "conversation", conversation_id)

    async def delete_conversation(self, conversation_id: str) -> None:
        check_id("conversation", conversation_id)
        raw = self._connected().conversations.with_raw_response
        await self._sent(raw.delete(conversation_id), "conversation", conversation_id)

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> Page:
        check_id("conversation", conversation_id)
        raw: Any = self._connected().conversations.items.with_raw_response
        return _page(
            await self._json(raw.create(conversation_id, items=self._own(items)), "conversation", conversation_id)
        )

    async def conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        check_id("conversation", conversation_id)
        raw = self._connected().conversations.items.with_raw_response
        asked = raw.list(conversation_id, limit=limit, order=order, **_paged(after, before))
        return _page(await self._json(asked, "conversation", conversation_id))

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item:
        check_id("conversation", conversation_id)
        check_id("item", item_id)
        raw = self._connected().conversations.items.with_raw_response
        asked = raw.retrieve(item_id, conversation_id=conversation_id)
        return await self._json(asked, "item", item_id, within=conversation_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        check_id("conversation", conversation_id)
        check_id("item", item_id)
        raw = self._connected().conversations.items.with_raw_response
        asked = raw.delete(item_id, conversation_id=conversation_id)
        return await self._json(asked, "item", item_id, within=conversation_id)

    async def count(self, body: Mapping[str, Json]) -> int | None:
        counted = {name: value for name, value in self._opened(body).items() if name in COUNTED}
        try:
            with edge(self._asked(body)):
                posted = self._connected().post("/responses/input_tokens", cast_to=object, body=counted)
                answer = await in_time(posted, self._limits)
        except EndpointFault as fault:
            if fault.status in NO_COUNTING:
                return None
            raise
        found = answer.get("input_tokens") if isinstance(answer, Mapping) else None
        return found if isinstance(found, int) else None

    async def models(self) -> Sequence[str]:
        """Their names, as `convo.models.catalogue` asks for them."""
        with edge(self._asked({})):
            listed = await self._connected().get("/models", cast_to=object)
        return names(listed, self._account.provider)

    async def check_request(self, body: Mapping[str, Json]) -> None:
        await check_reachable(self, self._account.provider)

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, "openai")

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.close()
        elif self._http is not None:
            await self._http.aclose()

    # -- the wire -----------------------------------------------------------------------------

    async def _told(
        self, streaming: AsyncGenerator[Json, None], asked: Asked, meant: tuple[str, str]
    ) -> AsyncGenerator[Event, None]:
        """The events up to the last one of an answer. raises: NotFound  of `meant`;  StreamBroken  it ends before"""
        answering = False
        async with aclosing(self._events(streaming, asked, meant)) as events:
            async for event in events:
                failure = error_in(event, asked, answering=answering)
                if failure:
                    raise failure
                answering = True
                yield event
                if event["type"] in ENDS:
                    return
        raise StreamBroken(f"{asked.provider} ended the stream before the answer was whole")

    async def _events(
        self, streaming: AsyncGenerator[Json, None], asked: Asked, meant: tuple[str, str]
    ) -> AsyncGenerator[Event, None]:
        """The events exactly as they travelled, errors among them."""
        begun = False
        try:
            async with aclosing(streaming) as values:
                async for value in values:
                    begun = True
                    event = checked(value, asked)
                    check_response(event.get("response"), asked.provider)
                    yield event
        except EndpointFault as fault:
            if begun:
                raise
            raise _not_found(fault, meant) or fault from fault.__cause__

    async def _json(
        self, answer: "Awaitable[LegacyAPIResponse[Any]]", kind: str, handle: str, *, within: str = ""
    ) -> Mapping[str, Json]:
        """The body of an answer. raises: as `_sent`; StreamBroken  it is no JSON object, or has a malformed id"""
        response = await self._sent(answer, kind, handle, within=within)
        with edge(self._asked({})):
            found = response.http_response.json()
        if not isinstance(found, dict):
            raise StreamBroken(f"{self._account.provider} answered with something that is not an object")
        check_response(found, self._account.provider)
        return found

    async def _sent(
        self, answer: "Awaitable[LegacyAPIResponse[Any]]", kind: str, handle: str, *, within: str = ""
    ) -> "LegacyAPIResponse[Any]":
        """What came back. raises: NotFound  the server does not know `handle`, or what it is looked for in"""
        try:
            with edge(self._asked({})):
                return await in_time(answer, self._limits)
        except EndpointFault as fault:
            raise _not_found(fault, ("conversation", within), (kind, handle)) or fault from fault.__cause__

    def _opened(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """`body` with what this account's own models sealed for convo opened, and others' reasoning left out."""
        said = body.get("input")
        own = {"input": self._own(said, str(body.get("model")))} if isinstance(said, list) else {}
        return {**body, **own}

    def _own(self, items: Sequence[Item], model: str = "") -> list[Item]:
        account = self._account
        by = maker(account.provider, model, account.base_url, account.organisation, account.project)
        return at_its_owner(items, by, account.provider)

    def _asked(self, body: Mapping[str, Json]) -> Asked:
        account = self._account
        return Asked(account.provider, account.base_url, model=body.get("model"), key=account.token or account.key)

    def _connected(self) -> "AsyncOpenAI":
        client: AsyncOpenAI = self._way().client
        return client

    def _streamed(
        self, path: str, body: Mapping[str, Json] | None, asked: Asked, query: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[Json, None]:
        return self._way().streamed(path, body, asked, query, exact=True)

    def _way(self) -> Line:
        if self._line is None:
            from openai import DefaultAsyncHttpxClient

            http = self._http or DefaultAsyncHttpxClient(follow_redirects=False)
            self._line = line(self._account, connect(self._account, http, self._limits), http, self._limits)
        return self._line


def _not_found(fault: EndpointFault, *meant: tuple[str, str]) -> NotFound | None:
    """What of `meant`, as (kind, handle), a server does not know. A 404 that speaks of none is about the address."""
    said = fault.message.lower() if fault.status == 404 else ""
    by_handle = (one for one in meant if one[1] and one[1].lower() in said)
    by_kind = (one for one in meant if one[1] and one[0] in said)
    found = next(by_handle, None) or next(by_kind, None)
    return NotFound(*found) if found else None


def _given(**fields: Any) -> dict[str, Any]:
    """Fields that say something; the package would send null."""
    return {name: value for name, value in fields.items() if value is not None}


def _paged(after: str | None, before: str | None) -> dict[str, Any]:
    """Where a page lies; the package knows no `before`."""
    return _given(after=after, extra_query={"before": before} if before is not None else None)


def _page(listed: Mapping[str, Json]) -> Page:
    return Page(listed.get("data") or (), has_more=bool(listed.get("has_more")))
