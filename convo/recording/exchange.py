"""The contract between a relay and a recorder: one request, its response, and the recorder's methods.

Bodies are decoded copies of the bytes that passed through. Credentials are removed before an exchange is made: the
relay leaves out `authorization`, `x-api-key`, cookies and the secrets in queries.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Protocol: TypeAlias = Literal["responses", "chat_completions", "messages"]
"""OpenAI Responses, OpenAI Chat Completions, or Anthropic Messages."""


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """One request to a model, as a relay received it.

    id:            unique among the exchanges of the process
    url:           upstream URL, without the secrets in its query
    headers:       names in lower case, without credentials
    body:          decoded bytes; of a WebSocket the `response.create` message
    received_at:   seconds since 1970
    is_truncated:  whether `body` is only the start of the body
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
    """The response to an `ExchangeRequest`.

    status:        HTTP status; None if the connection failed before there was one
    headers:       names in lower case, without credentials
    body:          decoded bytes; server-sent events as received; of a WebSocket the JSON messages, one a line
    first_byte_s:  seconds from the request to the first byte of the body
    duration_s:    seconds from the request to the end of the response
    is_truncated:  whether `body` is only the start of the body
    error:         the reason of a failed connection; None if the response is complete
    """

    status: int | None
    headers: Mapping[str, str]
    body: bytes
    first_byte_s: float | None
    duration_s: float
    is_truncated: bool
    error: str | None


class Recorder(typing.Protocol):
    """Records exchanges. Each `finish` follows the `begin` of its request."""

    async def begin(self, request: ExchangeRequest) -> None:
        """Record a request whose response has not arrived yet."""
        ...

    async def finish(self, request: ExchangeRequest, response: ExchangeResponse) -> None:
        """Record the response to `request`."""
        ...

    async def aclose(self) -> None:
        """Record every request without a response as failed."""
        ...
