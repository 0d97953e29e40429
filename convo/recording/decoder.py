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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from convo.history.accumulator import SERVER_TERMINAL_EVENTS, ResponseAccumulator
from convo.history.canonical import STRICT_JSON_DECODER, count_value_signs, has_too_many_values, is_utf8_encodable
from convo.history.items import ENCRYPTED_FIELD, Item, Json, is_item, is_valid_id, user_message
from convo.history.records import LINK_STATUSES, LinkStatus, pick_reported_fields, strip_tool_secrets
from convo.history.request_body import split_request_body, strip_body_secrets
from convo.inspect.redaction import CREDENTIAL_RULES, Redactor
from convo.models.errors import find_error
from convo.models.readers.chat import ChatReader, read_parts, read_reasoning
from convo.models.readers.messages import MessagesReader, translate_diagnostics
from convo.models.readers.responses import ResponsesReader
from convo.models.stream import Ending
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol
from convo.secrets import strip_secret_fields

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
    reported:  as in `Link`
    """

    status: LinkStatus
    id: str | None = None
    model: str | None = None
    output: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    reported: Mapping[str, Json] = field(default_factory=dict)


def decode_request(request: ExchangeRequest) -> DecodedRequest:
    """Decode a request. A body that is cut off or damaged gives a request without items, and a note."""
    # A body of 32 MB with eleven million empty objects took 165 s and 3.7 GB.
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
    if response.status is not None and response.status >= 400:
        return DecodedResponse("failed", error=_make_error(document, f"HTTP status {response.status}"), notes=notes)
    try:
        decoded = _PROTOCOLS[request.protocol].decode_answer(events if document is None else [document])
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
        self._reader: ChatReader | MessagesReader | None = (
            ChatReader() if protocol == "chat_completions" else MessagesReader() if protocol == "messages" else None
        )
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
        # Only events with text are parsed here; the whole response is decoded at its end.
        event = _parse_json(text) if b'"delta"' in text else None
        try:
            if self._reader is not None:
                return "".join(piece.text for piece in self._reader.read(event) if piece.kind == "text")
        except RecursionError:
            return ""
        fields = _as_dict(event)
        return _as_text(fields.get("delta")) if fields.get("type") == "response.output_text.delta" else ""


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
    # Half a surrogate pair cannot be stored.
    return value[:MAX_ERROR_CHARS].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _as_name(value: Json) -> str:
    is_name = isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and is_utf8_encodable(value)
    return str(value) if is_name and value.isprintable() else UNKNOWN_MODEL


def _as_id(value: Json) -> str | None:
    return str(value) if is_valid_id(value) else None


def _without(fields: Mapping[str, Json], *names: str) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in names and value is not None}


def _make_error(body: Json, default_message: str) -> dict[str, str]:
    """Return the code and the message of a body or event with an error; servers quote refused keys in it."""
    error = find_error(body)
    code = error["code"] if isinstance(error.get("code"), str) else error.get("type")
    redactor = Redactor(CREDENTIAL_RULES)
    return {
        "code": redactor.redact_text(_as_text(code)[:MAX_NAME_CHARS]) or "upstream_error",
        "message": redactor.redact_text(_as_text(error["message"]) or default_message),
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
    # Not the tools again: a property of their schemas may be named like a secret.
    return {**strip_secret_fields(stripped), **({"tools": stripped["tools"]} if "tools" in stripped else {})}


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
        # `store` is true by default in the Responses API, and false in Chat Completions.
        is_stored=body.get("store") is not False,
    )


def _decode_responses_answer(events: Iterable[Json]) -> DecodedResponse:
    reader, accumulator, started, response_id = ResponsesReader(), ResponseAccumulator(), dict[str, Json](), None
    for event in (read for value in events for read in reader.read(value)):
        kind, response = _as_text(event.get("type")), _as_dict(event.get("response"))
        if kind == "error":
            error = _make_error(event, "the stream ended with an error")
            return DecodedResponse("failed", response_id, output=_to_items(accumulator.incomplete_output), error=error)
        if response:
            started, response_id = response, _as_id(response.get("id")) or response_id
        if kind in SERVER_TERMINAL_EVENTS:
            decoded = _decode_responses_response({**response, "status": kind.removeprefix("response.")})
            return replace(decoded, id=decoded.id or response_id)
        accumulator.add(event)
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
        reported=pick_reported_fields(response),
    )


# -- Chat Completions ----------------------------------------------------------------------------------


def _decode_chat_request(body: dict[str, Json]) -> DecodedRequest:
    parameters = _without(
        body, "model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens", "tools",
        "functions", "response_format", "reasoning_effort", "verbosity", "store",
    )  # fmt: skip
    tools = [_decode_chat_tool(tool) for tool in _as_list(body.get("tools"))]
    # The form of OpenAI's first function calls, before `tools`: their calls and outputs have a name and no id.
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
    "thinking", "audio", "annotations",
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
    parts = message.get("content")
    thinking = [part for part in _as_dicts(parts) if part.get("type") == "thinking"]  # Mistral
    others = [part for part in _as_list(parts) if part not in thinking] if thinking else parts
    content = _decode_chat_content(others, text_type)
    if message.get("refusal"):
        content.append({"type": "refusal", "refusal": message["refusal"]})
    if any(_as_dict(message.get("audio")).values()):
        content.append({"type": "output_audio", **_as_dict(message["audio"])})
    items: list[Json] = []
    reasoning = read_reasoning(message) + "".join(text for _, text in read_parts(thinking, "reasoning"))
    if reasoning:
        items.append(_make_reasoning(reasoning))
    calls = [_decode_chat_call(call) for call in _as_list(message.get("tool_calls"))]
    if any(_as_dict(message.get("function_call")).values()):
        calls.append(_decode_chat_call({"function": message["function_call"]}))
    if content or extra or not (items or calls):
        items.append({"type": "message", "role": role, "content": content, **extra})
    return [*items, *calls]


def _decode_chat_call(call: Json) -> Json:
    fields = _as_dict(call)
    kind, extra = fields.get("type") or "function", _without(fields, "id", "type", "function", "custom", "index")
    if kind not in ("function", "custom") or not isinstance(fields.get(kind), dict):
        return call if is_item(call) else {"type": "unknown", "value": call}
    body = fields[kind]
    call_id = fields.get("id") or f"call_{_as_text(body.get('name'))}"
    return {"type": "custom_tool_call" if kind == "custom" else "function_call", "call_id": call_id, **body, **extra}


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
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _decode_chat_answer(chunks: Iterable[Json]) -> DecodedResponse:
    """Decode the chunks of a stream, or a whole body."""
    reader = ChatReader()
    texts: dict[str, list[str]] = {"reasoning": [], "text": [], "refusal": []}
    for chunk in chunks:
        for kind, text, _ in reader.read(chunk):
            if kind in texts:
                texts[kind].append(text)
    reasoning, text, refusal = ("".join(pieces) for pieces in texts.values())
    calls = [
        {"id": call.id or None, "type": kind, kind: {"name": call.name, field: call.arguments}, **call.fields}
        for call in reader.calls
        for kind, field in [("custom", "input") if call.is_custom else ("function", "arguments")]
    ]
    message = {"content": text, "reasoning": reasoning, "refusal": refusal, "tool_calls": calls, **reader.fields}
    has_output = text or reasoning or refusal or calls or reader.fields
    count = 1 + len(reader.other_choices)
    return _make_answer(
        reader.ending(),
        reader.error,
        reader.id,
        reader.model,
        _to_items(_decode_chat_message({"role": "assistant", **message})) if has_output else (),
        reader.usage,
        (f"only the first of {count} choices was recorded",) if count > 1 else (),
    )


def _make_answer(
    ending: Ending | None,
    failure: Json,
    response_id: str | None,
    model: str | None,
    output: tuple[Item, ...],
    usage: Json,
    notes: tuple[str, ...],
) -> DecodedResponse:
    """Build the response from how it ended; `failure` is the event or body with an error."""
    status: LinkStatus
    error: dict[str, str] | None = None
    if failure is not None:
        status, error = "failed", _make_error(failure, "the stream ended with an error")
    elif ending is None:
        status, error = ("incomplete" if output else "failed"), _ENDED_EARLY
    else:
        status = ending.status
        if status == "incomplete":
            error = {"code": str(ending.reason), "message": "the response is incomplete"}
        elif status == "failed":
            error = _make_error(None, f"the provider ended the response with {ending.word!r}")
    return DecodedResponse(status, _as_id(response_id), _as_name(model) if model else None, output, usage, error, notes)


# -- Anthropic Messages ---------------------------------------------------------------------------------


def decode_message(message: dict[str, Json]) -> tuple[Item, ...]:
    """Decode one message of the Messages API."""
    return _to_items(_decode_anthropic_message(message))


def decode_messages_parameters(body: dict[str, Json]) -> Mapping[str, Json]:
    """Decode the parameters of a request to the Messages API."""
    return _decode_messages_request(body).parameters


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


def _decode_messages_answer(events: Iterable[Json]) -> DecodedResponse:
    """Decode the events of a stream, or a whole body."""
    reader = MessagesReader()
    for event in events:
        for _ in reader.read(event):
            pass
    blocks, message = [block.to_fields() for block in reader.blocks], reader.message
    items = _decode_anthropic_message({"role": "assistant", "content": blocks}) if blocks else []
    if explanation := _as_dict(message.get("stop_details")).get("explanation"):
        items.append({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": explanation}]})
    diagnostics = message.get("diagnostics")  # also null if the client did not ask
    reported = {"prompt_cache_diagnostics": translate_diagnostics(diagnostics)} if diagnostics else {}
    answer = _make_answer(
        reader.ending(),
        reader.error,
        message.get("id"),
        message.get("model"),
        _to_items(items),
        reader.usage,
        ("the model refused to answer",) if message.get("stop_reason") == "refusal" else (),
    )
    return replace(answer, reported=reported)


class _ProtocolDecoder(NamedTuple):
    decode_request: Callable[[dict[str, Any]], DecodedRequest]
    decode_answer: Callable[[Iterable[Json]], DecodedResponse]


_PROTOCOLS: Mapping[str, _ProtocolDecoder] = {
    "responses": _ProtocolDecoder(_decode_responses_request, _decode_responses_answer),
    "chat_completions": _ProtocolDecoder(_decode_chat_request, _decode_chat_answer),
    "messages": _ProtocolDecoder(_decode_messages_request, _decode_messages_answer),
}
