"""Requests to models that left no response in the store: not stored, refused, failed or cancelled before one.

A row has figures and no content. It is no response: no handle finds it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import NamedTuple

from convo.history.canonical import STRICT_JSON_DECODER
from convo.history.records import LINK_STATUSES, LinkStatus


class Retention(NamedTuple):
    """How long rows are kept, in seconds, and how many of a tenant."""

    max_age_s: float
    max_rows: int


DEFAULT_RETENTION = Retention(7 * 86_400, 10_000)


RECORDED_APIS = ("responses", "chat_completions", "messages")
"""The APIs whose requests a server can record."""

MAX_UNRECORDED_CLIENTS = 10

MAX_TIME = 253_402_300_799
"""The end of the year 9999 in seconds since 1970; a row with a later time, or any larger number, is damaged."""

MAX_TEXT_CHARACTERS = 200
"""Characters of a model's name or a client that are kept: both may be a stranger's text."""

ERROR_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
"""Servers send any text as a code, also a sentence that repeats a part of the request."""


@dataclass(frozen=True, slots=True)
class UnstoredRequest:
    """One request, or several of one second that have the same API, model, status, code and client.

    id:             "req_...", as in the response header `x-request-id`; of the first of them
    created_at:     of the first, in seconds since 1970
    api:            "responses", "compact", "chat_completions", "messages" or "embeddings"; "race" for `convo race`
    model:          as the client named it; "" if the request was refused before its body was read
    code:           of the error; null without one
    client:         name and version: "codex 0.171.0"; null if unknown
    latency_s:      until the end of the response, with retries; of the slowest
    first_token_s:  until its first event; null without one
    request_bytes, response_bytes:  of the bodies, in sum
    input_tokens:   as all counts of tokens the sum; null if no response had usage
    count:          the number of requests
    """

    id: str
    created_at: float
    api: str
    model: str
    status: LinkStatus
    code: str | None = None
    client: str | None = None
    latency_s: float | None = None
    first_token_s: float | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    count: int = 1

    @property
    def kind(self) -> tuple[object, ...]:
        """The values that requests of one row share."""
        return (int(self.created_at), self.api, self.model, self.status, self.code, self.client)

    def combine(self, other: "UnstoredRequest") -> "UnstoredRequest":
        """Return the row of both; `other` is of the same kind."""
        slower = max(self, other, key=lambda each: each.latency_s or 0)
        return replace(
            self,
            latency_s=slower.latency_s,
            first_token_s=slower.first_token_s,
            request_bytes=self.request_bytes + other.request_bytes,
            response_bytes=self.response_bytes + other.response_bytes,
            input_tokens=_add(self.input_tokens, other.input_tokens),
            cached_tokens=_add(self.cached_tokens, other.cached_tokens),
            output_tokens=_add(self.output_tokens, other.output_tokens),
            count=self.count + other.count,
        )


def _add(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


def clip_text(text: str) -> str:
    """Return a text as a row keeps it."""
    return text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode().replace("\0", "")


def clean_code(code: object) -> str | None:
    """Return the code of an error as a row keeps it: another text could contain content. None without a code."""
    if not code:
        return None
    return code if isinstance(code, str) and ERROR_CODE.fullmatch(code) else "upstream_error"


def encode_unstored_request(request: UnstoredRequest) -> str:
    return json.dumps({name: value for name, value in asdict(request).items() if value is not None})


FIELD_NAMES = frozenset(field.name for field in fields(UnstoredRequest))

OPTIONAL_FIELDS = frozenset(field.name for field in fields(UnstoredRequest) if field.default is None)

TEXT_FIELDS = frozenset({"id", "api", "model", "status", "code", "client"})

NUMBER = (int, float)


def decode_unstored_requests(bodies: Iterable[str | bytes]) -> Iterator[UnstoredRequest]:
    """Yield the rows that can be read; members of a newer version are ignored."""
    for body in bodies:
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            values = STRICT_JSON_DECODER.decode(body if isinstance(body, str) else body.decode())
            known = {name: value for name, value in values.items() if name in FIELD_NAMES}
            if all(_is_valid(name, value) for name, value in known.items()):
                request = UnstoredRequest(**known)
                if request.status in LINK_STATUSES and request.count >= 1:
                    yield request


def _is_valid(name: str, value: object) -> bool:
    if value is None:
        return name in OPTIONAL_FIELDS
    if name in TEXT_FIELDS:
        return isinstance(value, str)
    return isinstance(value, NUMBER) and 0 <= value <= MAX_TIME
