"""Pass requests through to a provider's own API: chat completions, embeddings, Anthropic's Messages.

A request keeps its bytes, except for the model's name; a response keeps its status and its bytes. The key is that of
the settings. Limits, timeouts and transports are those of the model adapters.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from convo.config.sections import Provider
from convo.config.settings import ResponseLimits
from convo.errors import LimitReached, UnsupportedValue
from convo.history.items import Json
from convo.models.errors import ErrorContext, map_provider_errors, translate_server_key_errors
from convo.models.http import (
    JSON_DECODER,
    OPENAI_URL,
    SSEClient,
    SSEDecoder,
    TimeSlice,
    fault_from_response,
    import_packages,
    skip_whitespace,
)
from convo.models.readers.chat import ChatReader
from convo.models.readers.messages import MessagesReader


class PassThroughApi(StrEnum):
    """An API that is passed through. The value is the path at the provider, below its base URL."""

    CHAT_COMPLETIONS = "/chat/completions"
    EMBEDDINGS = "/embeddings"
    MESSAGES = "/v1/messages"
    COUNT_MESSAGE_TOKENS = "/v1/messages/count_tokens"

    @property
    def route(self) -> str:
        """The path at the gateway."""
        return self if self.is_anthropic else f"/v1{self}"

    @property
    def is_anthropic(self) -> bool:
        return self in (PassThroughApi.MESSAGES, PassThroughApi.COUNT_MESSAGE_TOKENS)

    @property
    def description(self) -> str:
        """The name of the API in error messages."""
        return {
            PassThroughApi.CHAT_COMPLETIONS: "chat completions",
            PassThroughApi.EMBEDDINGS: "embeddings",
            PassThroughApi.MESSAGES: "Anthropic's Messages API",
            PassThroughApi.COUNT_MESSAGE_TOKENS: "Anthropic's token counting",
        }[self]


def has_api(provider: Provider, api: PassThroughApi) -> bool:
    """Whether the provider has this API. Other servers of the Responses API may lack chat completions."""
    if api.is_anthropic:
        return provider.api == "anthropic"
    is_openai = provider.name == "openai" or provider.base_url == OPENAI_URL
    return provider.api in ("chat", "azure") or (provider.api == "responses" and is_openai)


def check_api_supported(provider: Provider, api: PassThroughApi, requested_name: str) -> None:
    """Raise Unsupported if `provider` does not have this API. No request is sent."""
    if has_api(provider, api):
        return
    hint = "POST /v1/responses accepts every model"
    if provider.api == "responses" and not api.is_anthropic:
        hint += '; a server that also has chat completions can be added as another provider with api = "chat"'
    feature = f"{api.description}: the provider {provider.name} has another API"
    raise UnsupportedValue(requested_name, feature, param="model", hint=hint)


PASSED_REQUEST_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "idempotency-key")
"""Headers of a client that are passed on, in lower case. All others are the gateway's own."""

PASSED_RESPONSE_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id")
PASSED_RESPONSE_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
"""Headers of a response that are passed on. Others name the account, or belong to the connection."""

_EVENT_STREAM = "text/event-stream"
_KEY_MASK = b"***"
_KEY_REFUSED_STATUSES = (401, 403)
_PING_EVENT = re.compile(r'\s*\{\s*"type"\s*:\s*"ping"')


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """The start of a provider's response.

    headers:  those that are passed on, with names in lower case
    body:     the chunks; it raises EndpointFault, among them LimitReached
    usage:    reads the token counts of events as they pass; a whole body must be fed to it
    """

    status: int
    headers: Mapping[str, str]
    body: AsyncGenerator[bytes, None]
    usage: "UsageReader"

    @property
    def is_event_stream(self) -> bool:
        return self.status < 400 and self.headers.get("content-type", "").lower().startswith(_EVENT_STREAM)


class PassThroughClient:
    """Sends requests to one provider. No connection is made before the first one.

    make_client:  creates the SSE client when the packages of its transport have been imported
    context:      names the provider, and the key that no response may contain
    deployment:   Azure: the name that is sent for every model
    in_path:      whether the model's name is a part of the path, as in older versions of Azure's API
    """

    def __init__(
        self,
        make_client: Callable[[], SSEClient],
        context: ErrorContext,
        limits: ResponseLimits,
        *,
        deployment: str | None = None,
        in_path: bool = False,
    ) -> None:
        self._make_client, self._context, self._limits = make_client, context, limits
        self._deployment, self._in_path = deployment, in_path
        self._client: SSEClient | None = None

    @asynccontextmanager
    async def send(
        self,
        api: PassThroughApi,
        content: bytes,
        model: str,
        *,
        is_streamed: bool,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> AsyncIterator[UpstreamResponse]:
        """Send the JSON object `content` with this model, and yield the response; leaving the block closes it.

        is_streamed:  the request asks for events: the response has the limits of a stream, else those of a body

        Raises EndpointFault, also if the provider refuses the key, which is not the client's. Every other error status
        is a response.
        """
        if self._client is None:  # an import in the event loop blocks it for a second
            await import_packages(is_served=True)
            self._client = self._client or self._make_client()
        own_name = self._deployment or model
        path = f"/deployments/{quote(own_name, safe='')}{api}" if self._in_path else str(api)
        body = await replace_model(content, own_name)
        request = self._client.send_bytes(
            path, body, self._context, headers=headers, query=query, is_streamed=is_streamed
        )
        async with request as response:
            if response.status_code in _KEY_REFUSED_STATUSES or 300 <= response.status_code < 400:
                with map_provider_errors(self._context):
                    await response.aread()
                with translate_server_key_errors(self._context.provider):
                    raise fault_from_response(response, self._context)
            of_connection = {name.strip().lower() for name in response.headers.get("connection", "").split(",")}
            passed_headers = {
                name.lower(): value
                for name, value in response.headers.items()
                if (name.lower() in PASSED_RESPONSE_HEADERS or name.lower().startswith(PASSED_RESPONSE_PREFIXES))
                and name.lower() not in of_connection
            }
            chunks, usage = _map_errors(response.aiter_bytes(), self._context), UsageReader(api)
            if not response.is_success:
                chunks = _mask_key(chunks, self._context)
            elif is_streamed:
                chunks = limit_stream(chunks, self._limits, usage.feed_event)
            async with aclosing(chunks):
                yield UpstreamResponse(response.status_code, passed_headers, chunks, usage)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _map_errors(pieces: AsyncIterator[bytes], context: ErrorContext) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. Raises EndpointFault for an error of the transport."""
    mapped_errors = map_provider_errors(context)
    while True:
        with mapped_errors:
            piece = await anext(pieces, None)
        if piece is None:
            return
        mapped_errors.is_streaming = True
        yield piece


async def _mask_key(pieces: AsyncGenerator[bytes, None], context: ErrorContext) -> AsyncGenerator[bytes, None]:
    """Yield an error's body, which is short, without the key that was sent."""
    body = b"".join([piece async for piece in pieces])
    yield body.replace(context.key.reveal().encode(), _KEY_MASK) if context.key is not None else body


async def limit_stream(
    pieces: AsyncGenerator[bytes, None], limits: ResponseLimits, on_event: Callable[[str], object]
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a stream of events, unchanged, as long as it stays within `limits`.

    Comments and pings do not count as progress. `on_event` is called with the data of each event.

    Raises LimitReached.
    """
    clock, decoder, time_slice = asyncio.get_running_loop().time, SSEDecoder(limits.event_bytes), TimeSlice()
    deadline, idle_deadline, event_count = clock() + limits.answer_s, clock() + limits.idle_s, 0
    async with aclosing(pieces):
        while True:
            timeout = asyncio.timeout_at(min(deadline, idle_deadline))
            try:
                async with timeout:
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                if not timeout.expired():
                    raise
                name = "answer_s" if deadline <= idle_deadline else "idle_s"
                raise LimitReached(name, getattr(limits, name)) from error
            if piece is None:
                return
            try:
                events = decoder.feed(piece)
            except UnicodeDecodeError:  # passed on: the client rejects text that is not UTF-8
                events = []
            event_count += len(events)
            if event_count > limits.answer_events:
                raise LimitReached("answer_events", limits.answer_events)
            for data in events:
                on_event(data)
                if not _PING_EVENT.match(data):
                    idle_deadline = clock() + limits.idle_s
            yield piece
            await time_slice.checkpoint()


# -- the model's name -----------------------------------------------------------------------------

_PARSE_IN_THREAD_BYTES = 256 * 1024
"""A larger body is parsed in a thread: it would block the event loop for milliseconds."""


async def replace_model(content: bytes, model: str) -> bytes:
    """Replace the value of `model` in the JSON object `content`, which has been validated; all other bytes stay."""
    if len(content) > _PARSE_IN_THREAD_BYTES:
        return await asyncio.to_thread(_replace_model, content, model)
    return _replace_model(content, model)


def _replace_model(content: bytes, model: str) -> bytes:
    text = content.decode()
    position = skip_whitespace(text, 0) + 1
    while True:
        name, position = JSON_DECODER.raw_decode(text, skip_whitespace(text, position))
        start = skip_whitespace(text, skip_whitespace(text, position) + 1)
        value, end = JSON_DECODER.raw_decode(text, start)
        if name == "model":
            return content if value == model else (text[:start] + json.dumps(model) + text[end:]).encode()
        position = skip_whitespace(text, end) + 1


# -- usage ----------------------------------------------------------------------------------------


class UsageReader:
    """Reads the token counts of a response while it passes. `usage` is in the form of the Responses API."""

    def __init__(self, api: PassThroughApi) -> None:
        self._api = api
        self._reader: ChatReader | MessagesReader = MessagesReader() if api.is_anthropic else ChatReader()

    @property
    def usage(self) -> Json:
        """The usage so far; None if the provider reported none."""
        return None if self._api is PassThroughApi.COUNT_MESSAGE_TOKENS else self._reader.usage

    def feed_event(self, data: str) -> None:
        """Read the data of one event."""
        if '"usage"' in data:
            self._feed_json(data)

    async def feed_body(self, body: bytes) -> None:
        """Read a whole body; a large one is parsed in a thread."""
        if len(body) > _PARSE_IN_THREAD_BYTES:
            await asyncio.to_thread(self._feed_json, body)
        else:
            self._feed_json(body)

    def _feed_json(self, text: str | bytes) -> None:
        """Read the usage of a body, or of one event; text that is not JSON has none."""
        try:
            value: Json = json.loads(text)
        except (ValueError, RecursionError):
            return
        for _ in self._reader.read(value):
            pass
