"""What a provider's package and the servers behind it say went wrong, in our own words.

    ┌ no connection, a timeout, a base URL that is none        Unreachable, or StreamBroken once answering
    ├ 401, 403                                                 KeyRefused
    ├ 408, 409, 429, 5xx, conversation_locked                  TryLater, with the server's Retry-After
    ├ a model that is not there, however the server puts it    Refused, one sentence that names it
    ├ an input that is longer than the window                  Refused, under one code for all servers
    ├ any other status                                         Refused, with the server's code and param
    └ an error event, or bytes that are no events              as its status says, or StreamBroken once answering

An adapter holds `edge` around each place where it waits for the package, and nothing foreign
comes out. A server may quote the key that it refused, so every message is cleaned of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from convo.config.secret import Secret
from convo.errors import (
    NO_CONNECTION,
    ConvoError,
    EndpointFault,
    KeyRefused,
    Refused,
    StreamBroken,
    TryLater,
    Unreachable,
    WindowExceeded,
)
from convo.items import Event, Json

if TYPE_CHECKING:
    from httpx2 import Response

LONGEST_MESSAGE = 600
"""Characters of a server's own words that are passed on."""

READ_FOR_MESSAGE = 2_000
"""Characters of a server's words that patterns are searched in: over a long text they take long."""

DEEPEST_ERROR = 10
"""Objects inside one another in which an error object is looked for."""

LONGEST_WAIT_S = 24 * 3600.0
"""A server that asks for more patience than this has said nothing that anybody can use."""

KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|xai|key)-[\w*.-]{6,}|\bBearer\s+\S+|(?<!\S)\S*\*{3,}\S*")
NAMES = ("code", "type", "param")
"""Fields of an error object that are no sentence, and go where it goes."""

NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.*\b(not exist|not found|no such|unknown|not available)", re.IGNORECASE | re.DOTALL
)

NO_WORDS = ("not found", "method not allowed")
"""What a web framework says of an address that nobody serves there: no sentence of the provider's."""

OTHER_ERRORS = {"openai": "OpenAIError", "anthropic": "AnthropicError"}
"""What a package calls everything that it raises itself."""

TOO_LONG = WindowExceeded.code
IS_TOO_LONG = re.compile(
    r"prompt is too long|exceed\w*\b.{0,40}\bcontext\b|maximum context length|context window", re.IGNORECASE
)

STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "internal_error": 500,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error event would have had as an answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked for what: the words that a sentence about it needs.

    url:      the base URL
    model:    the model's name when the request named one
    key:      what no message may hold
    package:  whose errors are read: "openai" or "anthropic", which name theirs alike
    """

    provider: str
    url: str = ""
    model: str | None = None
    key: Secret | None = None
    package: str = "openai"

    @property
    def place(self) -> str:
        """The address to show: no user, no password, no query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def clean(self, words: str) -> str:
        """`words` on one line, without anything that looks like a key and without a final stop."""
        if self.key is not None:
            words = words.replace(self.key.reveal(), "***")
        words = words[:READ_FOR_MESSAGE]
        return " ".join(KEY_LIKE.sub("***", words).split())[:LONGEST_MESSAGE].rstrip(". ")

    def names_in(self, error: Mapping[str, Json]) -> dict[str, Any]:
        """`error` with nothing that looks like a key where names should stand."""
        named = {name: self.clean(said) for name in NAMES if isinstance(said := error.get(name), str)}
        return {**error, **named}


class edge:  # noqa: N801 - read as a word: `with edge(asked):`
    """Inside it foreign errors become ours.

    answering:  the server has begun to answer, so what breaks now is an answer
    """

    def __init__(self, asked: Asked, *, answering: bool = False) -> None:
        self._asked, self._answering = asked, answering

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(wrong, Exception) or isinstance(wrong, ConvoError):
            return
        ours = translated(wrong, self._asked, answering=self._answering)
        if ours is not None:
            raise ours from wrong


def translated(wrong: BaseException, asked: Asked, *, answering: bool = False) -> EndpointFault | None:
    """`wrong` as one of ours; None when it is not the package's, its transport's or a decoder's."""
    import httpx2

    package = import_module(asked.package)
    if isinstance(wrong, package.APIConnectionError) and isinstance(wrong.__cause__, EndpointFault):
        return wrong.__cause__
    if isinstance(wrong, package.APIStatusError):
        if wrong.response.is_success:
            return broken(wrong.body, asked, answering=answering)
        return refusal(wrong.status_code, wrong.body, asked, **_advice(wrong.response.headers))
    if isinstance(wrong, package.APIConnectionError):
        return _unconnected(wrong.__cause__ or wrong, asked, answering=answering)
    if isinstance(wrong, package.APIError):
        return broken(wrong.body, asked, answering=answering)
    match wrong:
        case httpx2.HTTPError() | httpx2.InvalidURL() | httpx2.StreamError():
            return _unconnected(wrong, asked, answering=answering)
        case UnicodeEncodeError():
            return Refused(f"{asked.provider} cannot be sent text with half a character in it", code="invalid_input")
    if "ClientError" in _kinds(wrong):  # aiohttp's own, which its transport lets through
        return _unconnected(wrong, asked, answering=answering)
    if isinstance(wrong, getattr(package, OTHER_ERRORS[asked.package]) | ValueError | RecursionError):
        return StreamBroken(f"{asked.provider} answered with something that is not a stream of events")
    return None


def refusal(
    status: int, body: Json, asked: Asked, *, retry_after_s: float | None = None, again: bool | None = None
) -> EndpointFault:
    """The error that a server answered with `status` and `body`, an error object if it is a good one.

    again:  what the server itself says of asking once more; None: nothing
    """
    error = asked.names_in(_error_object(body))
    words = asked.clean(error["message"])
    fields: dict[str, Any] = {"code": _code(error), "status": _as_an_error(status), "param": error.get("param")}
    if status in (401, 403):
        return KeyRefused(f"{asked.provider} refused the key{_because(words)}", **fields)
    if _is_unknown_model(status, error, asked):
        return _unknown_model(status, asked)
    if status in (400, 413) and (error.get("code") == TOO_LONG or IS_TOO_LONG.search(words)):
        fields |= {"code": TOO_LONG, "param": error.get("param") or "input"}
        return Refused(words or "the input is longer than the model's window", hint=WindowExceeded.hint, **fields)
    if status == 402 or error.get("code") == "insufficient_quota":
        words = words or f"{asked.provider} answered {status}"
        return Refused(words, hint="the account needs credit: see the provider's billing page", **fields)
    passes = status in (408, 409, 429) or status >= 500 or error.get("code") == "conversation_locked"
    if passes if again is None else again:
        return TryLater(words or f"{asked.provider} answered {status}", retry_after_s=retry_after_s, **fields)
    if not words or words.lower() in NO_WORDS:
        return Refused(f"{asked.provider} answered {status} at {asked.place}", hint="check its base_url", **fields)
    return Refused(words, **fields)


def refused(answer: "Response", asked: Asked) -> EndpointFault:
    """The error that `answer` is, which has been read and is none of success."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        body = answer.text
    return refusal(answer.status_code, body, asked, **_advice(answer.headers))


def broken(body: Json, asked: Asked, *, answering: bool) -> EndpointFault:
    """The error event `body` of a stream, read as an answer's status when nothing else came before."""
    error = asked.names_in(_error_object(body))
    status = _status(error)
    if status is not None and not answering:
        return refusal(status, body, asked)
    words = asked.clean(error["message"]) or f"{asked.provider} broke off its answer"
    return StreamBroken(words, code=_code(error), param=error.get("param"))


def error_in(event: Event, asked: Asked, *, answering: bool) -> EndpointFault | None:
    """The error that an event is, nested as the specification has it or flat as the package reads it."""
    if event["type"] != "error":
        return None
    nested = event.get("error")
    return broken(nested if isinstance(nested, Mapping) else dict(event, type=None), asked, answering=answering)


def checked(event: Json, asked: Asked) -> Event:
    """raises: StreamBroken  it is not an event at all"""
    if not isinstance(event, dict):
        raise StreamBroken(f"{asked.provider} answered with something that is not a stream of events")
    if not isinstance(event.get("type"), str):
        return {**event, "type": "error"} if event.get("error") else {**event, "type": ""}
    return event


def _error_object(body: Json) -> dict[str, Json]:
    """The error object in `body`, always with a message: some servers nest it, some send only words."""
    for _ in range(DEEPEST_ERROR):
        inner = body.get("error", body.get("detail")) if isinstance(body, Mapping) else None
        if inner is None:
            break
        body = inner
    if isinstance(body, Mapping):
        message = body.get("message")
        return {**body, "message": message if isinstance(message, str) else _shown(message)}
    words = body if isinstance(body, str) and not body.lstrip().startswith("<") else ""
    return {"message": words}


def _shown(message: Json) -> str:
    """A message that is not text, as some servers list several."""
    try:
        return str(message or "")
    except RecursionError:
        return ""


def _as_an_error(status: int) -> int:
    """`status`, or 502 where it is none of an error: a redirection, or a number that HTTP does not have."""
    return status if 400 <= status <= 599 else 502


def _code(error: Mapping[str, Json]) -> str | None:
    """The error's own name; a code that only repeats the status is none."""
    named = (error.get("code"), error.get("type"))
    return next((name for name in named if isinstance(name, str) and name and not name.isdigit()), None)


def _status(error: Mapping[str, Json]) -> int | None:
    code = error.get("code")
    if str(code).isdigit() and 400 <= int(str(code)) <= 599:
        return int(str(code))
    named = (STATUS_OF.get(str(error.get(name))) for name in ("code", "type"))
    return next((status for status in named if status), None)


def _is_unknown_model(status: int, error: Mapping[str, Json], asked: Asked) -> bool:
    if asked.model is None:
        return False
    named = status == 404 and error.get("type") == "not_found_error" and asked.model in error["message"]
    said_so = named or NO_SUCH_MODEL.search(error["message"][:READ_FOR_MESSAGE]) is not None
    return error.get("code") == "model_not_found" or (status in (400, 404) and said_so)


def _unknown_model(status: int, asked: Asked) -> Refused:
    return Refused(
        f"{asked.provider} has no model {asked.model!r}",
        code="model_not_found",
        status=status,
        param="model",
        hint="convo models lists what can be used; choose one with -m",
    )


def _because(words: str) -> str:
    return f": {words}" if words else ""


def _unconnected(wrong: BaseException, asked: Asked, *, answering: bool) -> EndpointFault:
    import httpx2

    if answering:
        return StreamBroken(f"the connection to {asked.provider} broke before the answer ended")
    below = _kinds(wrong.__cause__)  # aiohttp's transport takes all for timeouts
    if isinstance(wrong, httpx2.TimeoutException) and ("TimeoutError" in below or "ClientError" not in below):
        return Unreachable(f"{asked.provider} did not answer in time at {asked.place}")
    if isinstance(wrong, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return Unreachable(
            f"{asked.place!r} is not the address of a server", code=NO_CONNECTION, hint="check the provider's base_url"
        )
    if isinstance(wrong, httpx2.ConnectError) or "ClientConnectorError" in below:
        words = asked.clean(str(getattr(wrong.__cause__, "os_error", wrong)))
        return Unreachable(f"cannot reach {asked.provider} at {asked.place}{_because(words)}", code=NO_CONNECTION)
    return Unreachable(f"the connection to {asked.provider} at {asked.place} broke before it answered")


def _kinds(wrong: BaseException | None) -> set[str]:
    return {kind.__name__ for kind in type(wrong).__mro__}


def _advice(headers: Mapping[str, str]) -> dict[str, Any]:
    """What a server says of asking again: whether, and when."""
    said = headers.get("x-should-retry")
    again = None if said not in ("true", "false") else said == "true"
    return {"retry_after_s": _retry_after_s(headers), "again": again}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds from Retry-After in any of its forms; None where it asks for no wait that can be had."""
    wait_s = _wait_s(headers)
    return max(0.0, wait_s) if wait_s is not None and wait_s <= LONGEST_WAIT_S else None


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """What Retry-After says, whatever it is; a date counts from the server's own Date."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / per_second
        except (KeyError, ValueError):
            continue
    try:
        until, now = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
        return (until - now).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
