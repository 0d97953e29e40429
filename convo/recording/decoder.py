"""Decode an exchange of the Responses API, Chat Completions or Anthropic Messages into items of the Responses API.

    Chat Completions, Anthropic Messages     item
    messages, text and images                message
    tool_calls, tool_use                     function_call
    tool messages, tool_result               function_call_output
    reasoning_content, thinking              reasoning; the signature of a thinking block is its encrypted content
    any other block                          an item with the type and the fields of the block

The events of a stream are first assembled into an unstreamed response, so an answer has the same items in the response
and in the next request. Bodies are untrusted: a damaged one gives an empty result with a note, never an exception. The
adapters' own translators are for requests that convo sent; they reject fields that it did not request.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from convo.errors import StreamBroken
from convo.history.accumulator import SERVER_TERMINAL_EVENTS, ResponseAccumulator, validate_stream_event
from convo.history.canonical import STRICT_JSON_DECODER, count_value_signs, has_too_many_values, is_utf8_encodable
from convo.history.items import ENCRYPTED_FIELD, Item, Json, is_item, is_valid_id, user_message
from convo.history.records import LINK_STATUSES, LinkStatus, strip_secret_fields, strip_tool_secrets
from convo.history.request_body import split_request_body, strip_body_secrets
from convo.inspect.redaction import SECRET_RULES, Redactor
from convo.models.stream import merge_anthropic_counts, usage_from_anthropic, usage_from_chat
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol

MAX_ITEMS = 20_000
"""Items of one request or response; a longer one is recorded without items."""

MAX_LINES = 1_000_000
MAX_EVENT_VALUES = 2_000_000
"""Lines of a stream, and values in its events, that are decoded; the rest is left out."""

MAX_NAME_CHARS = 200
MAX_ERROR_CHARS = 2000

UNKNOWN_MODEL = "unknown"


@dataclass(frozen=True)
class DecodedRequest:
    """A request to a model.

    model:       as the client named it
    items:       the input
    parameters:  the request without model, input and state, in the names of the Responses API where it has one;
                 without the secrets of tools
    is_stored:   whether the client asked the server to store the response
    notes:       the parts that the record lacks
    body_parts:  the body as the client sent it, from `split_request_body`, without the secrets of tools; empty if it is
                 damaged
    """

    model: str
    items: tuple[Item, ...] = ()
    parameters: Mapping[str, Json] = field(default_factory=dict)
    previous_response_id: str | None = None
    conversation_id: str | None = None
    is_stored: bool = False
    notes: tuple[str, ...] = ()
    body_parts: tuple[Item, ...] = ()


@dataclass(frozen=True)
class DecodedResponse:
    """A response of a model.

    id:     as the server named it; None without a valid id
    usage:  in the form of the Responses API
    error:  {"code", "message"} of a response that did not succeed
    notes:  the parts that the record lacks
    """

    status: LinkStatus
    id: str | None = None
    model: str | None = None
    output: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()


def decode_request(request: ExchangeRequest) -> DecodedRequest:
    """Decode a request. A body that is cut off or damaged gives a request without items, and a note."""
    if has_too_many_values(request.body):
        return DecodedRequest(UNKNOWN_MODEL, notes=("the request has too many values",))
    document = _parse_json(request.body)
    if not isinstance(document, dict):
        reason = "was cut off at the size limit" if request.is_truncated else "is not a JSON object"
        return DecodedRequest(UNKNOWN_MODEL, notes=(f"the body of the request {reason}",))
    lists = [name for name in ("input", "messages") if len(_as_list(document.get(name))) > MAX_ITEMS]
    document |= dict.fromkeys(lists)
    try:
        decoded = _PROTOCOLS[request.protocol].decode_request(document)
        decoded = replace(decoded, body_parts=split_request_body(strip_body_secrets(document)))
    except RecursionError:
        return DecodedRequest(_as_name(document.get("model")), notes=("the request is nested too deeply",))
    if lists or len(decoded.items) > MAX_ITEMS:
        return replace(decoded, items=(), body_parts=(), notes=(f"the request has more than {MAX_ITEMS:,} items",))
    return decoded


def decode_response(request: ExchangeRequest, response: ExchangeResponse) -> DecodedResponse:
    """Decode the response to `request`: server-sent events, messages of a WebSocket, or one JSON object.

    A response that ended early has the status "incomplete" and the output so far, or "failed" without output.
    """
    notes = ("the body of the response was cut off at the size limit",) if response.is_truncated else ()
    document, events, is_whole = _parse_response_body(response.body)
    if not is_whole:
        notes = (*notes, "the response has too many events or values: the rest was left out")
    is_refused = response.status is not None and response.status >= 400
    if is_refused or (document is not None and document.get("error") and not document.get("output")):
        error = _make_error((document or {}).get("error"), f"HTTP status {response.status}")
        return DecodedResponse("failed", error=error, notes=notes)
    try:
        protocol = _PROTOCOLS[request.protocol]
        decoded = protocol.decode_response(document) if document is not None else protocol.decode_events(events)
    except RecursionError:
        return DecodedResponse("failed", error=_make_error(None, "the response is nested too deeply"), notes=notes)
    if len(decoded.output) > MAX_ITEMS:
        decoded = replace(decoded, output=(), notes=(f"the response has more than {MAX_ITEMS:,} items",))
    if decoded.error is not None and decoded.error["code"] == _ENDED_EARLY["code"]:
        if response.error is not None:
            error = _make_error({"code": "connection_failed", "message": response.error}, "the connection failed")
            decoded = replace(decoded, error=error)
        elif document is None and not events and not response.is_truncated:
            error = {"code": "invalid_response", "message": "the body of the response is neither JSON nor events"}
            decoded = replace(decoded, error=error)
    return replace(decoded, notes=(*decoded.notes, *notes))


MAX_EVENT_BYTES = 1024 * 1024
"""Bytes of one event of a stream whose text is shown as it arrives."""


class StreamedText:
    """Returns the text in the events of a stream as they arrive, of one response."""

    def __init__(self, protocol: Protocol) -> None:
        self._find_text = _TEXT_OF_EVENT[protocol]
        self._rest = b""

    def add(self, piece: bytes) -> str:
        """Add bytes of the response, and return the text of the events that they complete."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            self._rest = b""
        return "".join(map(self._read_line, lines))

    def _read_line(self, line: bytes) -> str:
        text = line.removeprefix(b"data:")
        if len(text) == len(line) and not line.startswith(b"{"):
            return ""
        event = _parse_json(text) if b'"delta"' in text else None
        try:
            delta = self._find_text(event) if isinstance(event, dict) else None
        except RecursionError:
            return ""
        return delta if isinstance(delta, str) else ""


def _text_of_responses_event(event: dict[str, Json]) -> Json:
    return event.get("delta") if event.get("type") == "response.output_text.delta" else None


def _text_of_chat_chunk(chunk: dict[str, Json]) -> Json:
    choices = [choice for choice in _as_dicts(chunk.get("choices")) if not _as_count(choice.get("index"))]
    return _as_dict(choices[0].get("delta")).get("content") if choices else None


def _text_of_messages_event(event: dict[str, Json]) -> Json:
    return _as_dict(event.get("delta")).get("text") if event.get("type") == "content_block_delta" else None


_TEXT_OF_EVENT: Mapping[Protocol, Callable[[dict[str, Json]], Json]] = {
    "responses": _text_of_responses_event,
    "chat_completions": _text_of_chat_chunk,
    "messages": _text_of_messages_event,
}


_ENDED_EARLY = {"code": "stream_ended", "message": "the response ended before it was complete"}


# -- bodies -------------------------------------------------------------------------------------------


def _parse_json(raw: bytes | str) -> Json:
    """Parse a JSON value; None if it is damaged."""
    try:
        return STRICT_JSON_DECODER.decode(raw.decode("utf-8") if isinstance(raw, bytes) else raw)
    except (ValueError, RecursionError):
        return None


def _parse_response_body(body: bytes) -> tuple[dict[str, Json] | None, list[dict[str, Json]], bool]:
    """Return the one object of a response, or its events: server-sent ones, or JSON objects, one a line.

    The last member is whether all events were parsed. Damaged events are left out: a stream may be cut off anywhere.
    """
    document = None if has_too_many_values(body) else _parse_json(body)
    if isinstance(document, dict):
        is_event = isinstance(document.get("type"), str) and str(document["type"]).startswith("response.")
        return (None, [document], True) if is_event else (document, [], True)
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n", MAX_LINES)
    is_whole = len(lines) <= MAX_LINES
    events: list[dict[str, Json]] = []
    value_count = 0
    data: list[bytes] = []
    for line in [*lines[:MAX_LINES], b""]:
        text = None
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"{"):
            text = line
        elif not line and data:
            text, data = b"\n".join(data), []
        if text is None:
            continue
        value_count += count_value_signs(text)
        if value_count > MAX_EVENT_VALUES:
            return None, events, False
        event = _parse_json(text.decode("utf-8", "replace"))
        if isinstance(event, dict):
            events.append(event)
    return None, events, is_whole


# -- values: any type may be in any place -----------------------------------------------------------


def _as_dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _as_dicts(value: Json) -> list[dict[str, Json]]:
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _as_text(value: Json) -> str:
    """Return a text that can be stored; "" for any other value."""
    return value[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _as_name(value: Json) -> str:
    is_name = isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and is_utf8_encodable(value)
    return str(value) if is_name and value.isprintable() else UNKNOWN_MODEL


def _as_id(value: Json) -> str | None:
    return str(value) if is_valid_id(value) else None


def _as_count(value: Json) -> int:
    return value if type(value) is int else 0


def _without(fields: Mapping[str, Json], *names: str) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in names and value is not None}


_CREDENTIAL_RULES = tuple(rule for rule in SECRET_RULES if rule.kind in ("private-key", "api-key", "token", "password"))


def _make_error(error: Json, default_message: str) -> dict[str, str]:
    """Return the code and the message of an error object of any of the protocols; servers quote refused keys in it."""
    fields = _as_dict(error)
    code = fields.get("code") if isinstance(fields.get("code"), str) else fields.get("type")
    message = _as_text(fields.get("message") if fields else error) or default_message
    redactor = Redactor(_CREDENTIAL_RULES)
    return {
        "code": redactor.redact_text(_as_text(code)[:MAX_NAME_CHARS]) or "upstream_error",
        "message": redactor.redact_text(message),
    }


def _to_items(values: Iterable[Json]) -> tuple[Item, ...]:
    """Return `values` as items; anything that is none is kept in the field `value` of an unknown item.

    Items that list tools, such as `additional_tools`, lose the secrets of these tools.
    """
    items = (value if is_item(value) else {"type": "unknown", "value": value} for value in values)
    return tuple(strip_tool_secrets(item) if "tools" in item else item for item in items)


def _finish_parameters(parameters: dict[str, Json]) -> dict[str, Json]:
    """Return parameters in the form in which they may be stored."""
    stripped = strip_tool_secrets({name: value for name, value in parameters.items() if value is not None})
    return {name: value if name == "tools" else strip_secret_fields(value) for name, value in stripped.items()}


# -- Responses ----------------------------------------------------------------------------------------

_REQUEST_STATE = (
    "model", "input", "previous_response_id", "conversation", "store", "stream", "stream_options", "stream_id",
    "event_id", "type", "client_metadata",
)  # fmt: skip
"""Members of a request, or of a message `response.create`, that a link has in fields of its own, or that are framing.

`client_metadata` has the ids of a client's turn: with them the parameters, which links share, would differ each time.
"""


def _decode_responses_request(body: dict[str, Json]) -> DecodedRequest:
    request_input, conversation = body.get("input"), body.get("conversation")
    values = [user_message(request_input)] if isinstance(request_input, str) else _as_list(request_input)
    return DecodedRequest(
        model=_as_name(body.get("model")),
        items=_to_items(values),
        parameters=_finish_parameters(_without(body, *_REQUEST_STATE)),
        previous_response_id=_as_id(body.get("previous_response_id")),
        conversation_id=_as_id(conversation if isinstance(conversation, str) else _as_dict(conversation).get("id")),
        is_stored=body.get("store") is not False,
    )


def _decode_responses_events(events: Sequence[dict[str, Json]]) -> DecodedResponse:
    accumulator, started, response_id = ResponseAccumulator(), dict[str, Json](), None
    for event in events:
        kind, response = _as_text(event.get("type")), _as_dict(event.get("response"))
        if kind == "error":
            error = _make_error(event.get("error") or event, "the stream ended with an error")
            return DecodedResponse("failed", response_id, output=_to_items(accumulator.incomplete_output), error=error)
        if response:
            started, response_id = response, _as_id(response.get("id")) or response_id
        if kind in SERVER_TERMINAL_EVENTS:
            decoded = _decode_responses_response({**response, "status": kind.removeprefix("response.")})
            output = decoded.output or _to_items(accumulator.incomplete_output)
            return replace(decoded, id=decoded.id or response_id, output=output)
        try:
            accumulator.add(validate_stream_event(event))
        except (StreamBroken, KeyError, TypeError, AttributeError):
            continue
    output = _to_items(accumulator.incomplete_output)
    return DecodedResponse(
        "incomplete" if output else "failed",
        response_id,
        _as_name(started.get("model")) if started else None,
        output,
        error=_ENDED_EARLY,
    )


def _decode_responses_response(response: dict[str, Json]) -> DecodedResponse:
    reported_status, details = response.get("status"), _as_dict(response.get("incomplete_details"))
    status: LinkStatus = next((known for known in LINK_STATUSES if known == reported_status), "completed")
    error = _make_error(response["error"], "the response failed") if response.get("error") else None
    if error is None and status == "incomplete":
        error = {"code": _as_text(details.get("reason")) or "incomplete", "message": "the response is incomplete"}
    elif error is None and status in ("failed", "cancelled"):
        error = {"code": status, "message": f"the response was {status}" if status == "cancelled" else "it failed"}
    return DecodedResponse(
        status,
        _as_id(response.get("id")),
        _as_name(response["model"]) if response.get("model") else None,
        _to_items(_as_list(response.get("output"))),
        _as_dict(response.get("usage")) or None,
        error,
    )


# -- Chat Completions ----------------------------------------------------------------------------------


def _decode_chat_request(body: dict[str, Json]) -> DecodedRequest:
    parameters = _without(
        body, "model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens", "tools",
        "functions", "response_format", "reasoning_effort", "verbosity", "store",
    )  # fmt: skip
    tools = [_decode_chat_tool(tool) for tool in _as_list(body.get("tools"))]
    tools += [{"type": "function", **tool} for tool in _as_dicts(body.get("functions"))]
    text = {"verbosity": body["verbosity"]} if body.get("verbosity") is not None else {}
    response_format = body.get("response_format")
    if isinstance(response_format, dict):
        schema = _as_dict(response_format.get("json_schema"))
        text["format"] = {**_without(response_format, "json_schema"), **schema}
    parameters |= {
        "max_output_tokens": body.get("max_completion_tokens", body.get("max_tokens")),
        "tools": tools or None,
        "text": text or None,
        "reasoning": {"effort": body["reasoning_effort"]} if body.get("reasoning_effort") is not None else None,
    }
    return DecodedRequest(
        model=_as_name(body.get("model")),
        items=_to_items(
            item
            for message in _as_list(body.get("messages"))
            for item in (_decode_chat_message(message) if isinstance(message, dict) else [message])
        ),
        parameters=_finish_parameters(parameters),
        is_stored=body.get("store") is True,
    )


def _decode_chat_tool(tool: Json) -> Json:
    kind = tool.get("type") if isinstance(tool, dict) else None
    definition = tool.get(kind) if isinstance(kind, str) and isinstance(tool, dict) else None
    return {**_without(tool, str(kind)), **definition} if isinstance(definition, dict) else tool


_CHAT_MESSAGE_FIELDS = (
    "role", "content", "refusal", "tool_calls", "function_call", "tool_call_id", "reasoning_content", "reasoning",
    "audio", "annotations",
)  # fmt: skip


def _decode_chat_message(message: dict[str, Json]) -> list[Json]:
    """Return the items of one message; an assistant's reasoning comes first, its calls last."""
    role, extra = message.get("role"), _without(message, *_CHAT_MESSAGE_FIELDS)
    if role in ("tool", "function"):
        call_id = message.get("tool_call_id") or f"call_{_as_text(message.get('name'))}"
        output = message.get("content")
        parts = _decode_chat_content(output, "input_text") if isinstance(output, list) else output
        return [{"type": "function_call_output", "call_id": call_id, "output": parts, **extra}]
    text_type = "output_text" if role == "assistant" else "input_text"
    content = _decode_chat_content(message.get("content"), text_type)
    if message.get("refusal"):
        content.append({"type": "refusal", "refusal": message["refusal"]})
    if message.get("audio"):
        content.append({"type": "output_audio", **_as_dict(message["audio"])})
    items: list[Json] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        items.append(_make_reasoning(reasoning))
    calls = [_decode_chat_call(call) for call in _as_list(message.get("tool_calls"))]
    if isinstance(message.get("function_call"), dict):
        legacy = message["function_call"]
        calls.append({"type": "function_call", "call_id": f"call_{_as_text(legacy.get('name'))}", **legacy})
    if content or extra or not (items or calls):
        items.append({"type": "message", "role": role, "content": content, **extra})
    return [*items, *calls]


def _decode_chat_call(call: Json) -> Json:
    fields = _as_dict(call)
    kind, extra = fields.get("type") or "function", _without(fields, "id", "type", "function", "custom", "index")
    if kind == "custom":
        return {"type": "custom_tool_call", "call_id": fields.get("id"), **_as_dict(fields.get("custom")), **extra}
    if kind == "function" and isinstance(fields.get("function"), dict):
        return {"type": "function_call", "call_id": fields.get("id"), **fields["function"], **extra}
    return call if is_item(call) else {"type": "unknown", "value": call}


def _decode_chat_content(content: Json, text_type: str) -> list[Json]:
    """Return content as parts; an empty text is left out, because clients add and remove it."""
    if isinstance(content, str):
        return [{"type": text_type, "text": content}] if content else []
    parts: list[Json] = []
    for part in _as_list(content):
        match part.get("type") if isinstance(part, dict) else None:
            case "text":
                parts.append({**part, "type": text_type})
            case "image_url":
                image = part.get("image_url")
                fields = {**_as_dict(image), "image_url": _as_dict(image).get("url", image)}
                parts.append({**_without(part, "image_url"), **_without(fields, "url"), "type": "input_image"})
            case "file":
                parts.append({**_without(part, "file"), **_as_dict(part.get("file")), "type": "input_file"})
            case _:
                parts.append(part if isinstance(part, dict) else {"type": "unknown", "value": part})
    return parts


def _make_reasoning(text: Json) -> dict[str, Json]:
    parts = [{"type": "reasoning_text", "text": text}] if isinstance(text, str) else text
    return {"type": "reasoning", "summary": [], "content": parts}


def _decode_chat_events(chunks: Sequence[dict[str, Json]]) -> DecodedResponse:
    """Assemble the chunks of the first choice, and decode the completion."""
    message: dict[str, Json] = {"role": "assistant"}
    calls: dict[int | str | None, dict[str, Json]] = {}
    call_texts: dict[tuple[int | str | None, str], list[str]] = {}
    lists: dict[str, list[Json]] = {}
    head: dict[str, Json] = {}
    texts: dict[str, list[str]] = {}
    finish_reason: Json = None
    last_call: int | str | None = None
    choice_indexes = {0}
    for chunk in chunks:
        if chunk.get("error"):
            head["error"] = chunk["error"]
        head |= {name: chunk[name] for name in ("id", "model", "usage") if chunk.get(name)}
        for choice in _as_dicts(chunk.get("choices")):
            choice_indexes.add(_as_count(choice.get("index")))
            if _as_count(choice.get("index")):
                continue
            delta = _as_dict(choice.get("delta"))
            for name, value in delta.items():
                if name == "tool_calls":
                    for piece in _as_dicts(value):
                        index = piece.get("index")
                        if not isinstance(index, int):
                            index = _as_text(piece.get("id")) or last_call
                        last_call = index
                        call = calls.setdefault(index, {})
                        for kind, text in _add_chat_call_piece(call, piece):
                            call_texts.setdefault((index, kind), []).append(text)
                elif name == "role" or value is None:
                    continue
                elif isinstance(value, str):
                    texts.setdefault(name, []).append(value)
                elif isinstance(value, list):
                    lists.setdefault(name, []).extend(value)
                else:
                    message[name] = value
            finish_reason = choice.get("finish_reason") or finish_reason
    message |= lists
    message |= {name: "".join(pieces) for name, pieces in texts.items()}
    for (index, kind), pieces in call_texts.items():
        calls[index][kind][_CALL_TEXTS[kind]] = "".join(pieces)
    if calls:
        message["tool_calls"] = list(calls.values())
    choices = [{"index": index, "message": message, "finish_reason": finish_reason} for index in choice_indexes]
    return _decode_chat_response({**head, "choices": choices})


_CALL_TEXTS = {"function": "arguments", "custom": "input"}
"""The field of each kind of call whose pieces are appended."""


def _add_chat_call_piece(call: dict[str, Json], piece: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Add a part of a call: names and ids replace the earlier ones. Return the kind and text of appended parts."""
    call |= _without(piece, "index", *_CALL_TEXTS)
    texts: list[tuple[str, str]] = []
    for kind, field_name in _CALL_TEXTS.items():
        fields = piece.get(kind)
        if isinstance(fields, dict):
            target = call.setdefault(kind, {})
            target |= _without(fields, field_name)
            text = fields.get(field_name)
            texts.append((kind, text if isinstance(text, str) else ""))
    return texts


_CHAT_INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}


def _decode_chat_response(completion: dict[str, Json]) -> DecodedResponse:
    choices = _as_dicts(completion.get("choices"))
    choice = choices[0] if choices else {}
    message, reason = _as_dict(choice.get("message")), choice.get("finish_reason")
    incomplete_code = _CHAT_INCOMPLETE_REASONS.get(_as_text(reason))
    has_output = any(value for name, value in message.items() if name != "role")
    output = _to_items(_decode_chat_message({"role": "assistant", **message})) if has_output else ()
    usage = _as_dict(completion.get("usage"))
    error: dict[str, str] | None = None
    status: LinkStatus = "completed"
    if completion.get("error"):
        status, error = "failed", _make_error(completion["error"], "the stream ended with an error")
    elif incomplete_code is not None:
        status, error = "incomplete", {"code": incomplete_code, "message": "the response is incomplete"}
    elif reason is None:
        status, error = ("incomplete" if output else "failed"), _ENDED_EARLY
    return DecodedResponse(
        status,
        _as_id(completion.get("id")),
        _as_name(completion["model"]) if completion.get("model") else None,
        output,
        usage_from_chat(usage) if usage else None,
        error,
        (f"only the first of {len(choices)} choices was recorded",) if len(choices) > 1 else (),
    )


# -- Anthropic Messages ---------------------------------------------------------------------------------


def _decode_messages_request(body: dict[str, Json]) -> DecodedRequest:
    parameters = _without(body, "model", "messages", "stream", "system", "max_tokens", "tools")
    system = body.get("system")
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else _as_dicts(system)
    tools = [
        {**_without(tool, "input_schema"), "type": "function", "parameters": tool.get("input_schema")}
        if isinstance(tool, dict) and tool.get("type") in (None, "custom")
        else tool
        for tool in _as_list(body.get("tools"))
    ]
    details = [_without(block, "text") for block in blocks]
    parameters |= {
        "instructions": "\n\n".join(str(block.get("text") or "") for block in blocks) or None,
        "system": details if any(set(detail) - {"type"} for detail in details) else None,
        "max_output_tokens": body.get("max_tokens"),
        "tools": tools or None,
    }
    return DecodedRequest(
        model=_as_name(body.get("model")),
        items=_to_items(
            item
            for message in _as_list(body.get("messages"))
            for item in (_decode_anthropic_message(message) if isinstance(message, dict) else [message])
        ),
        parameters=_finish_parameters(parameters),
    )


def _decode_anthropic_message(message: dict[str, Json]) -> list[Json]:
    """Return the items of one message, in the order of its blocks; consecutive text and media are one message item."""
    role, content = message.get("role"), message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _as_list(content)
    text_type = "output_text" if role == "assistant" else "input_text"
    items: list[Json] = []
    parts: list[Json] | None = None
    for block in blocks:
        part = _decode_anthropic_part(block, text_type)
        if part is not None and parts is None:
            parts = []
            items.append({"type": "message", "role": role, "content": parts})
        if part is not None and parts is not None:
            parts.append(part)
        else:
            items.append(_decode_anthropic_block(block))
            parts = None
    extra = _without(message, "role", "content")
    if not items or (extra and not isinstance(items[0], dict)):
        items.insert(0, {"type": "message", "role": role, "content": []})
    return [{**items[0], **extra}, *items[1:]] if extra else items


def _decode_anthropic_part(block: Json, text_type: str) -> dict[str, Json] | None:
    """Return a block of text or media as a content part; None for any other block."""
    match block.get("type") if isinstance(block, dict) else None:
        case "text":
            return {**block, "type": text_type}
        case "image":
            return {**_without(block, "source"), **_decode_anthropic_source(block.get("source"), "image_url")} | {
                "type": "input_image"
            }
        case "document":
            title = {"filename": block["title"]} if block.get("title") else {}
            source = _decode_anthropic_source(block.get("source"), "file_data")
            return {**_without(block, "source", "title"), **source, **title, "type": "input_file"}
    return None


def _decode_anthropic_source(source: Json, data_field: str) -> dict[str, Json]:
    """Return the source of media: a data URL, a URL, or the id of a file; any other source stays as it is."""
    match _as_dict(source).get("type"):
        case "base64":
            return {data_field: f"data:{source.get('media_type')};base64,{source.get('data')}"}
        case "url":
            return {"image_url" if data_field == "image_url" else "file_url": source.get("url")}
        case "file":
            return {"file_id": source.get("file_id")}
    return {"source": source}


def _decode_anthropic_block(block: Json) -> Json:
    fields = _as_dict(block)
    match fields.get("type"):
        case "thinking":
            extra = _without(fields, "type", "thinking", "signature")
            signature = {ENCRYPTED_FIELD: fields["signature"]} if fields.get("signature") else {}
            return {**_make_reasoning(fields.get("thinking") or ""), **signature, **extra}
        case "redacted_thinking":
            extra = _without(fields, "type", "data")
            return {"type": "reasoning", "summary": [], ENCRYPTED_FIELD: fields.get("data"), **extra}
        case "tool_use":
            extra = _without(fields, "type", "id", "name", "input")
            arguments = json.dumps(fields.get("input", {}))
            call = {"call_id": fields.get("id"), "name": fields.get("name"), "arguments": arguments}
            return {"type": "function_call", **call, **extra}
        case "tool_result":
            extra = _without(fields, "type", "tool_use_id", "content", "is_error")
            content = fields.get("content")
            parts = (
                [_decode_anthropic_part(part, "input_text") or part for part in content]
                if isinstance(content, list)
                else content
            )
            status = {"status": "incomplete"} if fields.get("is_error") else {}
            result = {"call_id": fields.get("tool_use_id"), "output": "" if parts is None else parts}
            return {"type": "function_call_output", **result, **status, **extra}
    return block


_ANTHROPIC_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""The field of the delta, which is also the field of the block, except for JSON."""


def _decode_messages_events(events: Sequence[dict[str, Json]]) -> DecodedResponse:
    """Assemble the message from the events, and decode it."""
    message: dict[str, Json] = {}
    blocks: dict[Json, dict[str, Json]] = {}
    texts: dict[tuple[Json, str], list[str]] = {}
    for event in events:
        index = event.get("index") if isinstance(event.get("index"), int) else -1
        match event.get("type"):
            case "message_start":
                message |= _as_dict(event.get("message"))
            case "content_block_start":
                blocks[index] = dict(_as_dict(event.get("content_block")))
            case "content_block_delta":
                delta = _as_dict(event.get("delta"))
                name = _ANTHROPIC_DELTAS.get(_as_text(delta.get("type")), "")
                block = blocks.setdefault(index, {"type": "text"})
                if name and isinstance(delta.get(name), str):
                    texts.setdefault((index, name), []).append(delta[name])
                elif "citation" in delta:
                    if not isinstance(block.get("citations"), list):
                        block["citations"] = []
                    block["citations"].append(delta["citation"])
            case "message_delta":
                message |= _as_dict(event.get("delta"))
                message["usage"] = merge_anthropic_counts(_as_dict(message.get("usage")), _as_dict(event.get("usage")))
            case "error":
                message["error"] = event.get("error")
    for (index, name), pieces in texts.items():
        text = "".join(pieces)
        if name == "partial_json":
            arguments = _parse_json(text)
            blocks[index]["input"] = text if arguments is None else arguments
        else:
            earlier = blocks[index].get(name)
            blocks[index][name] = (earlier if isinstance(earlier, str) else "") + text
    return _decode_messages_response({**message, "content": list(blocks.values())})


def _decode_messages_response(message: dict[str, Json]) -> DecodedResponse:
    blocks, reason = _as_list(message.get("content")), message.get("stop_reason")
    output = _to_items(_decode_anthropic_message({"role": "assistant", "content": blocks})) if blocks else ()
    usage = _as_dict(message.get("usage"))
    error: dict[str, str] | None = None
    status: LinkStatus = "completed"
    if message.get("error"):
        status, error = "failed", _make_error(message["error"], "the stream ended with an error")
    elif reason in ("max_tokens", "model_context_window_exceeded"):
        status, error = "incomplete", {"code": "max_output_tokens", "message": "the response is incomplete"}
    elif reason is None:
        status, error = ("incomplete" if output else "failed"), _ENDED_EARLY
    return DecodedResponse(
        status,
        _as_id(message.get("id")),
        _as_name(message["model"]) if message.get("model") else None,
        output,
        usage_from_anthropic(usage) if usage else None,
        error,
        ("the model refused to answer",) if reason == "refusal" else (),
    )


class _ProtocolDecoders(NamedTuple):
    decode_request: Callable[[dict[str, Any]], DecodedRequest]
    decode_response: Callable[[dict[str, Any]], DecodedResponse]
    decode_events: Callable[[Sequence[dict[str, Any]]], DecodedResponse]


_PROTOCOLS: Mapping[str, _ProtocolDecoders] = {
    "responses": _ProtocolDecoders(_decode_responses_request, _decode_responses_response, _decode_responses_events),
    "chat_completions": _ProtocolDecoders(_decode_chat_request, _decode_chat_response, _decode_chat_events),
    "messages": _ProtocolDecoders(_decode_messages_request, _decode_messages_response, _decode_messages_events),
}
