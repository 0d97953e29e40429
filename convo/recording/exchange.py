"""A request of another program and its response, as a relay or a server reports them to a recorder.

Bodies are decoded copies. Headers and URLs are without credentials, so a recorder may store both.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Protocol: TypeAlias = Literal["responses", "chat_completions", "messages"]
"""The API of a request: OpenAI Responses, OpenAI Chat Completions, Anthropic Messages."""


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """A request as the server received it.

    id:            "exch_...", unique
    url:           the upstream's URL, without secrets in its query
    headers:       names in lower case; no credentials and no cookies
    body:          without its content encoding; of a WebSocket the text of its `response.create`
    received_at:   seconds since 1970
    is_truncated:  `body` is only the beginning of the body, or its encoding is damaged or unknown
    """

    id: str
    protocol: Protocol
    url: str
    headers: Mapping[str, str]
    body: bytes
    received_at: float
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class ExchangeResponse:
    """The response to an `ExchangeRequest`, complete or as far as it came.

    status:        None if no response started; 101 for a WebSocket
    headers:       names in lower case; no cookies
    body:          without its content encoding: JSON, the text of an event stream, or the JSON messages of a
                   WebSocket, one a line
    first_byte_s:  seconds from the request to the first byte of the body; None without one
    duration_s:    seconds from the request to the end
    is_truncated:  `body` is only the beginning of the body, or its encoding is damaged or unknown
    error:         the reason why the response is missing or incomplete
    """

    status: int | None
    headers: Mapping[str, str]
    body: bytes
    first_byte_s: float | None
    duration_s: float
    is_truncated: bool
    error: str | None


class Recorder(typing.Protocol):
    """Stores exchanges. Each method raises StoreFault."""

    async def begin(self, request: ExchangeRequest) -> None:
        """Record a request whose response is not complete."""
        ...

    async def add_text(self, request: ExchangeRequest, text: str) -> None:
        """Record text of the response to a request that `begin` was called with, as it arrived so far."""
        ...

    async def finish(self, request: ExchangeRequest, response: ExchangeResponse) -> None:
        """Record the response to a request; `begin` was called with it before."""
        ...

    async def aclose(self) -> None:
        """Release everything."""
        ...
