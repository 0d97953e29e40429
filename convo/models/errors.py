"""Map errors of providers and of HTTP to convo's errors.

    no connection, a timeout, an invalid base URL           Unreachable, or StreamBroken once streaming
    401, 403                                                KeyRefused
    408, 409, 429, 5xx, conversation_locked                 TryLater, with the server's Retry-After
    an unknown model, an input longer than the window       RequestRefused, with one code for all servers
    any other status                                        RequestRefused, with the server's code and param

Adapters wrap every await of a provider in `map_provider_errors`. Keys are removed from all messages.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from convo.config.trust import is_loopback
from convo.errors import (
    NO_CONNECTION,
    ConvoError,
    EndpointFault,
    KeyRefused,
    RequestRefused,
    StreamBroken,
    StreamCut,
    TryLater,
    Unreachable,
    WindowExceeded,
)
from convo.history.items import Json, StreamEvent
from convo.secrets import Secret, mask_key_remains
from convo.usage.model_info import find_shutdown

_MAX_MESSAGE_CHARS = 600
"""Characters of a server's message that are passed on."""

_MAX_SCANNED_CHARS = 2_000
"""Characters of a server's message that patterns are searched in: the search of a long text takes long."""

_MAX_ERROR_DEPTH = 10
"""Nested objects in which an error object is searched."""

_NAME_FIELDS = ("code", "type", "param")
"""Fields of an error object that hold names, not sentences. Keys are removed from them too."""

_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.*\b(not exist|not found|no such|unknown|not available)", re.IGNORECASE | re.DOTALL
)

_FRAMEWORK_MESSAGES = ("not found", "method not allowed")
"""Messages of web frameworks for an unknown path; they are not from the provider."""

_WINDOW_EXCEEDED_CODE = WindowExceeded.code
_WINDOW_EXCEEDED_MESSAGE = re.compile(
    r"prompt is too long|exceed\w*\b.{0,40}\bcontext\b|maximum context length|context window", re.IGNORECASE
)

_PREFIX_MISMATCH_MESSAGE = re.compile(r"bound to a different conversation")
"""Claude's refusal of thinking whose prefix has changed."""

_RETURNED_FIELD_MESSAGE = re.compile(r"thought_signature|reasoning_content|reasoning_details")
"""Refusals of a request without fields of an earlier answer; they are stored in reasoning items."""

_STATUS_BY_ERROR_TYPE = {
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
"""The HTTP status that corresponds to the type of an error event."""


class ErrorContext(NamedTuple):
    """The data of a request that its error messages need.

    url:      the base URL
    model:    the model's name if the request names one
    key:      a secret that no message may contain
    """

    provider: str
    url: str = ""
    model: str | None = None
    key: Secret | None = None

    @property
    def display_url(self) -> str:
        """The URL to display, without user, password and query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def clean_message(self, message: str) -> str:
        """Return the message on one line, with keys masked and without a final full stop."""
        if self.key is not None:
            message = message.replace(self.key.reveal(), "***")
        # A message of a megabyte was searched for keys as a whole.
        message = message[:_MAX_SCANNED_CHARS]
        return " ".join(mask_key_remains(message).split())[:_MAX_MESSAGE_CHARS].rstrip(". ")

    def clean_error_fields(self, error: Mapping[str, Json]) -> dict[str, Any]:
        """Return the error object with keys masked in its name fields."""
        cleaned = {
            name: self.clean_message(value) for name in _NAME_FIELDS if isinstance(value := error.get(name), str)
        }
        return {**error, **cleaned}


class map_provider_errors:  # noqa: N801 - used like a function: `with map_provider_errors(context):`
    """Map provider errors that are raised in the block to convo's errors.

    is_streaming:  the response has begun, so a connection error breaks a response
    """

    def __init__(self, context: ErrorContext, *, is_streaming: bool = False) -> None:
        self._context, self.is_streaming = context, is_streaming

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, ConvoError):
            return
        fault = to_endpoint_fault(error, self._context, is_streaming=self.is_streaming)
        if fault is not None:
            raise fault from error


class map_custom_model_errors(map_provider_errors):  # noqa: N801 - as above
    """Map any exception of a model that a user's agent brings; those of openai and litellm have the HTTP status."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, ConvoError):
            return
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            raise fault_from_status(status, getattr(error, "body", None) or str(error), self._context) from error
        message = self._context.clean_message(f"{type(error).__name__}: {error}")
        raise EndpointFault(f"the model {self._context.provider} raised {message}", code="model_failed") from error


@contextmanager
def translate_server_key_errors(provider: str, *, key_sent: bool = True) -> Iterator[None]:
    """Turn a refusal of the server's key into an EndpointFault, an error of the server.

    key_sent:  whether the provider refused the key; otherwise the server has none
    """
    missing_key_message = f"this server has no usable key for {provider}; GET /v1/models lists the available models"
    try:
        yield
    except KeyRefused as error:
        raise EndpointFault(
            f"{provider} rejected the key of this server" if key_sent else missing_key_message,
            code="provider_key_refused",
            hint=f"the operator of this server must check the key of {provider}",
        ) from error


def to_endpoint_fault(
    error: BaseException, context: ErrorContext, *, is_streaming: bool = False
) -> EndpointFault | None:
    """Map `error` to an EndpointFault; None if neither the transport nor a decoder raised it."""
    import httpx2

    match error:
        case httpx2.HTTPError() | httpx2.InvalidURL() | httpx2.StreamError():
            return _connection_fault(error, context, is_streaming=is_streaming)
        case UnicodeEncodeError():
            return RequestRefused(
                f"{context.provider} does not accept text with half a surrogate pair", code="invalid_input"
            )
    return _unreadable_fault(context) if isinstance(error, ValueError | RecursionError) else None


def _unreadable_fault(context: ErrorContext) -> StreamBroken:
    return StreamBroken(f"{context.provider} sent a response that is not an event stream")


def fault_from_status(
    status: int,
    body: Json,
    context: ErrorContext,
    *,
    retry_after_s: float | None = None,
    should_retry: bool | None = None,
) -> EndpointFault:
    """Build the error for a response with an error status; `body` is an error object or anything else.

    should_retry:  the server's own statement whether a retry makes sense; None if it makes none
    """
    error = context.clean_error_fields(find_error(body))
    message = context.clean_message(error["message"])
    fields: dict[str, Any] = {
        "code": _error_code(error),
        "status": _to_error_status(status),
        "param": error.get("param"),
    }
    if status in (401, 403):
        return KeyRefused(f"{context.provider} refused the key{_format_reason(message)}", **fields)
    if _is_unknown_model(status, error, context):
        return _unknown_model_fault(status, context)
    if status in (400, 413) and (
        error.get("code") == _WINDOW_EXCEEDED_CODE or _WINDOW_EXCEEDED_MESSAGE.search(message)
    ):
        fields |= {"code": _WINDOW_EXCEEDED_CODE, "param": error.get("param") or "input"}
        fault = RequestRefused(message or "the input is longer than the model's context window", **fields)
        return fault.replace_hint(WindowExceeded.hint, WindowExceeded.prompt_hint)
    if status == 400 and _PREFIX_MISMATCH_MESSAGE.search(message):
        fields |= {"code": "prefix_mismatch", "param": error.get("param") or "input"}
        hint = (
            "instructions, tools or earlier items changed after the model's reasoning; set prefix_mismatch_behavior ="
            ' "drop_block" for the provider, or continue from a response before the change'
        )
        return RequestRefused(message, hint=hint, **fields)
    if status == 400 and _RETURNED_FIELD_MESSAGE.search(message):
        hint = "a client that keeps the history must send the reasoning items of each response back"
        return RequestRefused(message, hint=hint, **fields)
    # OpenAI sends insufficient_quota with 429, which a retry cannot help.
    if status == 402 or "insufficient_quota" in (error.get("code"), error.get("type")):
        message = message or f"{context.provider} returned HTTP {status}"
        return RequestRefused(message, hint="the account needs credit: see the provider's billing page", **fields)
    is_temporary = status in (408, 409, 429) or status >= 500 or error.get("code") == "conversation_locked"
    if is_temporary if should_retry is None else should_retry:
        return TryLater(message or f"{context.provider} returned HTTP {status}", retry_after_s=retry_after_s, **fields)
    if not message or message.lower() in _FRAMEWORK_MESSAGES:
        return RequestRefused(
            f"{context.provider} returned HTTP {status} at {context.display_url}", hint="check its base_url", **fields
        )
    return RequestRefused(message, **fields)


def fault_from_stream_error(body: Json, context: ErrorContext, *, is_streaming: bool) -> EndpointFault:
    """Build the error for an error event; before any other event, its type decides as an HTTP status would."""
    error = context.clean_error_fields(find_error(body))
    status = _error_status(error)
    if status is not None and not is_streaming:
        return fault_from_status(status, body, context)
    message = context.clean_message(error["message"]) or f"{context.provider} ended the response with an error"
    return StreamBroken(message, code=_error_code(error), param=error.get("param"))


def fault_from_event(event: StreamEvent, context: ErrorContext, *, is_streaming: bool) -> EndpointFault:
    """Build the error for an `error` event: nested as in the specification, or flat as the package reads it."""
    nested = event.get("error")
    return fault_from_stream_error(
        nested if isinstance(nested, Mapping) else dict(event, type=None), context, is_streaming=is_streaming
    )


def find_error(body: Json) -> dict[str, Json]:
    """Find the error object in a body or event, in any form that a server was seen to send. It always has a message.

    The object is nested in `error` or `detail`, or the first of a list (Gemini). Or the reason is text: in place of the
    object, in a list of `msg` (FastAPI), or in `metadata.raw`, from the server behind a router (OpenRouter).
    """
    for _ in range(_MAX_ERROR_DEPTH):
        if isinstance(body, list) and body and isinstance(body[0], Mapping):
            reasons = [
                entry["msg"] for entry in body if isinstance(entry, Mapping) and isinstance(entry.get("msg"), str)
            ]
            body = "; ".join(reasons) or body[0]
        inner = (body.get("error") or body.get("detail")) if isinstance(body, Mapping) else None
        if inner is None or isinstance(inner, bool):
            break
        body = inner
    if not isinstance(body, Mapping):
        return {"message": body if isinstance(body, str) and not body.lstrip().startswith("<") else ""}
    message, metadata = body.get("message"), body.get("metadata")
    message = message if isinstance(message, str) else _stringify_message(message)
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if isinstance(raw, str) and raw.strip():
        message = ": ".join(filter(None, (message, _find_raw_reason(raw))))
    return {**body, "message": message}


def _find_raw_reason(raw: str) -> str:
    """Return the reason in an error of another server: JSON, or text."""
    try:
        return str(find_error(json.loads(raw))["message"]) or raw
    except (ValueError, RecursionError):
        return raw


def _stringify_message(message: Json) -> str:
    """Convert a message that is not text: some servers send a list."""
    try:
        return str(message or "")
    except RecursionError:
        return ""


def _to_error_status(status: int) -> int:
    """Return `status`, or 502 where it is not an error status: a redirect, or a number outside of HTTP."""
    return status if 400 <= status <= 599 else 502


def _error_code(error: Mapping[str, Json]) -> str | None:
    """Return the error's code or type; a code that only repeats the HTTP status is skipped."""
    candidates = (error.get("code"), error.get("type"))
    # vLLM and OpenRouter repeat the HTTP status as the code.
    return next((name for name in candidates if isinstance(name, str) and name and not name.isdigit()), None)


def _error_status(error: Mapping[str, Json]) -> int | None:
    code = error.get("code")
    if str(code).isdigit() and 400 <= int(str(code)) <= 599:
        return int(str(code))
    statuses = (_STATUS_BY_ERROR_TYPE.get(str(error.get(name))) for name in ("code", "type"))
    return next((status for status in statuses if status), None)


def _is_unknown_model(status: int, error: Mapping[str, Json], context: ErrorContext) -> bool:
    if context.model is None:
        return False
    names_model = status == 404 and error.get("type") == "not_found_error" and context.model in error["message"]
    reports_unknown = names_model or _NO_SUCH_MODEL.search(error["message"][:_MAX_SCANNED_CHARS]) is not None
    return error.get("code") == "model_not_found" or (status in (400, 404) and reports_unknown)


def _unknown_model_fault(status: int, context: ErrorContext) -> RequestRefused:
    shutdown = find_shutdown(f"{context.provider}/{context.model}")
    replacement = shutdown.replacement if shutdown else None
    return RequestRefused(
        f"{context.provider} has no model {context.model!r}" + (f": shutdown on {shutdown}" if shutdown else ""),
        code="model_not_found",
        status=status,
        param="model",
        hint=f"-m {replacement}" if replacement else "convo models lists the models; choose one with -m",
    )


def _format_reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _connection_fault(error: BaseException, context: ErrorContext, *, is_streaming: bool) -> EndpointFault:
    import httpx2

    if is_streaming:
        return StreamCut(f"the connection to {context.provider} broke before the response ended")
    if isinstance(error, httpx2.TimeoutException):
        return Unreachable(f"{context.provider} did not respond in time at {context.display_url}")
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return Unreachable(
            f"{context.display_url!r} is not the URL of a server",
            code=NO_CONNECTION,
            hint="check the provider's base_url",
        )
    if isinstance(error, httpx2.ConnectError):
        reason = context.clean_message(format_connect_error(_find_system_error(error)))
        start = "start it with ollama serve" if context.provider == "ollama" else "start the server"
        is_local = is_loopback(urlsplit(context.url).hostname or "")
        return Unreachable(
            f"cannot reach {context.provider} at {context.display_url}{_format_reason(reason)}",
            code=NO_CONNECTION,
            hint=f"{start}; convo models --local lists those that run on this machine" if is_local else None,
        )
    return Unreachable(f"the connection to {context.provider} at {context.display_url} broke before it responded")


def _find_system_error(error: BaseException) -> BaseException:
    """Return the error of the system that made a client raise `error`; `error` if there is none."""
    cause: BaseException | None = error
    found = error
    while cause is not None and not getattr(found, "errno", None):
        if isinstance(cause, BaseExceptionGroup):  # one for each address of the host
            cause = cause.exceptions[0]
        # aiohttp keeps the error of the system in this attribute.
        cause = getattr(cause, "os_error", cause)
        found = cause if isinstance(cause, OSError) else found
        cause = cause.__cause__ or cause.__context__  # httpcore2 raises its errors without a cause
    return found


def format_connect_error(error: BaseException) -> str:
    """Return the system's message: asyncio puts the address in its place."""
    if not isinstance(error, OSError) or "SSLError" in _class_names(error):
        return str(error)
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else error.strerror or str(error)).lower()


def _class_names(error: BaseException | None) -> set[str]:
    return {base.__name__ for base in type(error).__mro__}
