"""Adapter for chat completions: DeepSeek, Ollama, vLLM, the local engine.

Parameters are translated, rejected with `Unsupported`, or reported as ignored; none is dropped silently. Chunks are
parsed as plain JSON: unknown fields are kept.

OpenAI's models have custom tools from GPT-5 on: `{"type": "custom", "custom": {"name", "description", "format"}}`, and
calls with `custom` in place of `function` (`openai.types.chat` of openai 3.54.0). The types of that package lack such
calls in chunks; servers send them as `{"index", "id", "type": "custom", "custom": {"name", "input"}}`, where `input` is
a part of the text.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from convo.config.sections import PROVIDER_EXTRA_FIELDS, CustomTools, HostedTools
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import InputFault, StreamBroken, Unsupported, UnsupportedParameter, UnsupportedValue
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import SERVICE_TIER
from convo.history.tree import derive
from convo.models.answer import AnswerTranslator, Call, Piece, PieceKind
from convo.models.base import (
    INCLUDE_ENCRYPTED_REASONING,
    INCLUDE_LOGPROBS,
    NO_ISSUER,
    OPENAI_CHAT_EXTRA_FIELDS,
    RESPONSE_PARAMETERS,
    IssuerTag,
    ListedModels,
    Model,
    ModelRequest,
    check_provider_reachable,
    is_issued_by,
    list_ignored_item_fields,
    list_ignored_parameters,
    make_issuer_tag,
    parse_models,
)
from convo.models.chat_messages import (
    REASONING_CONTENT,
    RETURNED_CALL_FIELDS,
    RETURNED_MESSAGE_FIELDS,
    build_chat_messages,
    encode_returned_fields,
    pick_fields,
)
from convo.models.errors import ErrorContext, fault_from_stream_error
from convo.models.http import SSEClient, Transport, import_packages, make_transport
from convo.models.readers.chat import ChatReader
from convo.models.stream import ResponseEventWriter
from convo.models.tool_mapping import MappedRequest, map_request
from convo.runtime import NewId
from convo.secrets import Secret


class ChatModel(Model):
    """The models of one server.

    defaults:   fields of the body that apply unless the request sets them
    is_served:  a server makes the requests
    transport:  the transport to use, which has limits on the responses; None for a new one
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        new_id: NewId,
        *,
        key: Secret | None = None,
        transport: "Transport | None" = None,
        is_served: bool = False,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        defaults: Mapping[str, Json] | None = None,
        extra_fields: Collection[str] = (),
        hosted_tools: HostedTools = "refuse",
        custom_tools: CustomTools = "auto",
        resend_fields: bool = True,
    ) -> None:
        self._provider, self._base_url, self._key = provider, base_url, key
        self._new_id, self._transport, self._defaults = new_id, transport, defaults or {}
        self._is_served = is_served
        self._limits, self._dialect = limits, detect_chat_dialect(provider, base_url, extra_fields)
        self.hosted_tools: HostedTools = hosted_tools
        self._custom_tools, self._resend_fields = custom_tools, resend_fields
        self._client: SSEClient | None = None

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        mapped = self._map_request(request)
        # Chat completions streams send no usage unless it is asked for.
        body = {**self._build_mapped_body(mapped), "stream": True, "stream_options": {"include_usage": True}}
        writer = ResponseEventWriter(self._new_id, request.model, summarized=request.wants_summary, tools=mapped.tools)
        translator = ChatChunkTranslator(
            writer, self._new_id, self._issuer_tag(request) if self._resend_fields else None
        )
        context, is_streaming = self._error_context(body), False
        async with aclosing(self._stream_chunks(body, context)) as chunks:
            async for chunk in chunks:
                for event in translator.translate_chunk(chunk):
                    yield event
                if translator.reader.error is not None:
                    raise fault_from_stream_error(translator.reader.error, context, is_streaming=is_streaming)
                is_streaming = True
        for event in translator.finish():
            yield event

    async def warm(self, model: str) -> None:
        await import_packages(is_served=self._is_served)
        self._get_client()

    async def check_request(self, request: ModelRequest) -> None:
        self.build_body(request)
        await check_provider_reachable(self, self._provider)

    async def list_models(self) -> ListedModels:
        return parse_models(await self.request_json("/models"), self._provider)

    async def aclose(self) -> None:
        # A transport that was passed in is open before the first request.
        if client := self._client or self._transport:
            await client.aclose()

    def build_body(self, request: ModelRequest) -> dict[str, Json]:
        """Build the body of a request, without the fields for streaming."""
        return self._build_mapped_body(self._map_request(request))

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return list_ignored_chat_fields(
            request,
            self._dialect,
            self._issuer_tag(request),
            self.hosted_tools,
            has_custom_tools=self._has_custom_tools(request),
        )

    async def request_json(self, path: str, body: Mapping[str, Json] | None = None) -> Json:
        """Request one JSON object outside of a response: a POST if there is a body, else a GET."""
        return await self._get_client().request_json(path, body, self._error_context(body or {}))

    def _stream_chunks(self, body: Mapping[str, Json], context: ErrorContext) -> AsyncGenerator[Json, None]:
        return self._get_client().stream_json("/chat/completions", body, context)

    def _map_request(self, request: ModelRequest) -> MappedRequest:
        return map_request(
            request,
            self._model_label(request),
            self.hosted_tools,
            has_custom_tools=self._has_custom_tools(request),
        )

    def _has_custom_tools(self, request: ModelRequest) -> bool:
        return is_custom_tool_model(self._custom_tools, self._base_url, request.model)

    def _build_mapped_body(self, mapped: MappedRequest) -> dict[str, Json]:
        request = mapped.request
        body = _build_body(request, self._model_label(request), self._dialect, self._issuer_tag(request))
        return {**self._defaults, **body}

    def _model_label(self, request: ModelRequest) -> str:
        return f"{self._provider}/{request.model}"

    def _issuer_tag(self, request: ModelRequest) -> IssuerTag:
        """The issuer whose reasoning, and other fields that the server needs back, are sent."""
        return make_issuer_tag(self._provider, request.model, self._base_url) if self._resend_fields else NO_ISSUER

    def _error_context(self, body: Mapping[str, Json]) -> ErrorContext:
        return ErrorContext(self._provider, self._base_url, model=body.get("model"), key=self._key)

    def _get_client(self) -> SSEClient:
        if self._client is None:
            transport = self._transport or make_transport(self._base_url, self._limits, is_served=self._is_served)
            self._client = make_chat_client(self._base_url, self._key, transport, self._limits)
        return self._client


def make_chat_client(base_url: str, key: Secret | None, transport: Transport, limits: ResponseLimits) -> SSEClient:
    """Create the client of a chat completions server."""
    headers = {} if key is None else {"authorization": f"Bearer {key.reveal()}"}
    return SSEClient(transport, base_url, headers, limits)


_BASE_URL_HINT = "check the provider's base_url; it often ends in /v1"


class ChatChunkTranslator(AnswerTranslator):
    """Translates one answer, in chunks or whole, to events of the Responses API."""

    def __init__(self, writer: ResponseEventWriter, new_id: NewId, issuer: str | None = None) -> None:
        """`issuer` tags the fields that go back to the server (see `convo.models.chat_messages`); None: none do."""
        super().__init__(writer, new_id)
        self.reader = ChatReader()
        self._issuer = issuer
        self._reasoning: list[str] = []

    def translate_chunk(self, chunk: Json) -> Iterable[StreamEvent]:
        """Return the events of one chunk."""
        plain = self.reader.read_plain(chunk)
        if plain is None:
            return self._translate_pieces(chunk)
        kind, text = plain
        if kind == "reasoning" and self._issuer is not None:
            self._reasoning.append(text)
        event = self.extend(kind, text)
        return self.add(Piece(kind, text)) if event is None else (event,)

    def _translate_pieces(self, chunk: Json) -> Iterator[StreamEvent]:
        for piece in self.reader.read(chunk):
            if piece.kind == "reasoning" and self._issuer is not None:
                self._reasoning.append(piece.text)
            yield from self.add(piece, self.reader.logprobs)
        self._writer.model = self.reader.model or self._writer.model

    def finish(self) -> Iterator[StreamEvent]:
        """Yield the terminal event. Raises StreamCut, or StreamBroken if no chunk had a choice."""
        if not self.reader.has_choices:
            raise StreamBroken("the response has no chat completions event", hint=_BASE_URL_HINT)
        if self.reader.service_tier is not None:
            self._writer.reported[SERVICE_TIER] = self.reader.service_tier
        self._report_left_out(self.reader.unknown_parts | (self.reader.fields.keys() & {"audio"}))
        yield from self.write_end(self.reader.ending(), self.reader.usage)

    def _encrypted_before(self, kind: PieceKind | Literal["end"], source: object) -> Iterator[str]:
        """Yield the fields of the message and of a call that go back to the server."""
        if self._issuer is None or kind == "reasoning":
            return
        fields = pick_fields(self.reader.fields, RETURNED_MESSAGE_FIELDS)
        text, self._reasoning = "".join(self._reasoning), []
        if text and self.reader.has_reasoning_content:
            fields[REASONING_CONTENT] = text
        if fields:
            for name in fields:
                self.reader.fields.pop(name, None)
            yield self._issuer + encode_returned_fields(message=fields)
        if isinstance(source, Call) and (fields := pick_fields(source.fields, RETURNED_CALL_FIELDS)):
            yield self._issuer + encode_returned_fields(call=fields)


_UNCHANGED_PARAMETERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")

_OMITTED_PARAMETERS = RESPONSE_PARAMETERS | {"max_tool_calls"}
"""`max_tool_calls` limits hosted tools, which are rejected; it is reported as ignored."""

_NO_OP_VALUES: Mapping[str, Json] = {"truncation": "disabled"}
"""Values that request the default behaviour."""

_OPENAI_HOSTS = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com")


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """The differences of one server's API.

    max_tokens_field:  the field that limits the output
    has_thinking:      the server accepts `thinking` and refuses a turn with calls but no `reasoning_content`
    has_reasoning:     the server may send reasoning; it becomes the summary if one is requested
    extra_fields:      the extra fields that are sent (see `convo.models.base`)
    """

    max_tokens_field: str = "max_tokens"
    has_thinking: bool = False
    has_reasoning: bool = True
    extra_fields: frozenset[str] = frozenset()


def detect_chat_dialect(provider: str, base_url: str, extra_fields: Collection[str] = ()) -> ChatDialect:
    """Detect the dialect of a server by its provider name and base URL.

    OpenAI's reasoning models reject `max_tokens`; all other servers accept it and some accept nothing else.
    """
    host = urlsplit(base_url).hostname or ""
    return ChatDialect(
        max_tokens_field="max_completion_tokens" if is_openai_server(base_url) else "max_tokens",
        has_thinking=provider == "deepseek" or host.endswith("deepseek.com"),
        extra_fields=frozenset(extra_fields)
        | (OPENAI_CHAT_EXTRA_FIELDS if is_openai_server(base_url) else frozenset()),
    )


def is_openai_server(base_url: str) -> bool:
    """Whether a server is OpenAI's own or Azure's."""
    return (urlsplit(base_url).hostname or "").endswith(_OPENAI_HOSTS)


_CUSTOM_TOOL_MODELS = re.compile(r"gpt-[5-9](?!\d)(?!.*-chat)")
"""Matches the names of OpenAI's models with custom tools; gpt-5-chat and gpt-35-turbo have none."""


def is_custom_tool_model(custom_tools: CustomTools, base_url: str, model: str) -> bool:
    """Whether a model has custom tools: as the provider's setting says, else by its server and its name."""
    if custom_tools != "auto":
        return custom_tools == "native"
    return is_openai_server(base_url) and _CUSTOM_TOOL_MODELS.match(model) is not None


def list_ignored_chat_fields(
    request: ModelRequest,
    dialect: ChatDialect = ChatDialect(),
    issuer: IssuerTag = NO_ISSUER,
    hosted_tools: HostedTools = "refuse",
    *,
    has_custom_tools: bool = False,
) -> tuple[str, ...]:
    """List the fields that `build_chat_body` ignores, named as in `convo.models.base`; none if it refuses the request.

    hosted_tools, has_custom_tools:  as in `map_request`
    """
    try:
        mapped = map_request(request, "", hosted_tools, has_custom_tools=has_custom_tools)
    except (InputFault, Unsupported):
        return ()
    reasoning_fields = ("effort", "summary", "generate_summary") if dialect.has_reasoning else ("effort",)
    names = [
        *list_ignored_parameters(
            request.parameters, known_fields=dialect.extra_fields, reasoning_fields=reasoning_fields
        )
    ]
    if issuer is NO_ISSUER and INCLUDE_ENCRYPTED_REASONING in (request.parameters.get("include") or ()):
        names.append(f"include.{INCLUDE_ENCRYPTED_REASONING}")
    names += [*mapped.ignored, *list_ignored_item_fields(request.input, detailed_parts=("input_image",))]
    if derive(request.input, _make_unsent_reasoning_step, issuer):
        names.append("input.reasoning")
    return tuple(dict.fromkeys(names))


def _make_unsent_reasoning_step(issuer: IssuerTag) -> Callable[[Sequence[Item]], list[Item]]:
    return lambda items: [item for item in items if item.get("type") == "reasoning" and not is_issued_by(item, issuer)]


def build_chat_body(
    request: ModelRequest,
    model_label: str,
    dialect: ChatDialect = ChatDialect(),
    issuer: IssuerTag = NO_ISSUER,
    hosted_tools: HostedTools = "refuse",
) -> dict[str, Json]:
    """Build the body of a request, without `stream`.

    model_label:   the model's name in errors
    issuer:        the issuer of the reasoning that is sent (see `convo.models.base`)
    hosted_tools:  as in `map_request`

    Raises Unsupported for an item or parameter that this server cannot honour.
    """
    return _build_body(map_request(request, model_label, hosted_tools).request, model_label, dialect, issuer)


def _build_body(request: ModelRequest, model_label: str, dialect: ChatDialect, issuer: IssuerTag) -> dict[str, Json]:
    """Build the body of a request that `map_request` mapped."""
    messages = build_chat_messages(
        request.input, model_label, request.instructions, issuer=issuer, needs_reasoning=dialect.has_thinking
    )
    body: dict[str, Json] = {"model": request.model, "messages": messages}
    parameters = {name: value for name, value in request.parameters.items() if value is not None}
    for name, value in parameters.items():
        if name in _UNCHANGED_PARAMETERS:
            body[name] = value
        elif name in _PARAMETER_TRANSLATORS:
            body |= _PARAMETER_TRANSLATORS[name](value, parameters, model_label)
        elif name == "max_output_tokens":
            body[dialect.max_tokens_field] = value
        elif name == "reasoning":
            body |= _translate_reasoning(value, dialect)
        elif name in PROVIDER_EXTRA_FIELDS:
            # `list_ignored_chat_fields` reports those that are left out.
            body |= {name: value} if name in dialect.extra_fields else {}
        elif name not in _OMITTED_PARAMETERS and _NO_OP_VALUES.get(name) != value:
            raise UnsupportedParameter(model_label, f"the parameter {name!r}", param=name)
    return body


def _translate_tools(tools: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    return {"tools": [_translate_tool(tool) for tool in tools]}


def _translate_tool(tool: Json) -> Json:
    if tool["type"] == "custom":
        return {"type": "custom", "custom": _translate_custom_tool(tool)}
    function = {
        name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None
    }
    return {"type": "function", "function": function}


def _translate_custom_tool(tool: Json) -> Json:
    """Translate a custom tool: chat completions has the grammar one level deeper than the Responses API."""
    custom = {name: tool[name] for name in ("name", "description") if tool.get(name) is not None}
    if tool.get("format"):
        grammar = {name: value for name, value in tool["format"].items() if name != "type"}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return custom


def _translate_tool_choice(choice: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    if isinstance(choice, str):
        return {"tool_choice": choice}
    kind = choice["type"]
    return {"tool_choice": {"type": kind, kind: {"name": choice["name"]}}}


def _translate_parallel_tool_calls(value: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    # OpenAI refuses the parameter in a request without tools.
    return {"parallel_tool_calls": value} if parameters.get("tools") else {}


def _translate_text(text: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    verbosity = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    return verbosity | _translate_text_format(text.get("format") or {"type": "text"}, model_label)


def _translate_text_format(text_format: Json, model_label: str) -> dict[str, Json]:
    match text_format.get("type"):
        case "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            schema: dict[str, Json] = {name: value for name, value in text_format.items() if name != "type"}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case other:
            raise UnsupportedValue(model_label, f"the text format {other!r}", param="text.format")


def _translate_reasoning(reasoning: Json, dialect: ChatDialect) -> dict[str, Json]:
    effort = reasoning.get("effort")
    if effort == "none" and dialect.has_thinking:
        return {"thinking": {"type": "disabled"}}
    return {"reasoning_effort": effort} if effort else {}


def _translate_include(include: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    """Translate log probabilities only: reasoning needs no parameter, and hosted tools are rejected elsewhere."""
    return {"logprobs": True} if INCLUDE_LOGPROBS in include else {}


def _translate_top_logprobs(top_logprobs: Json, parameters: Mapping[str, Json], model_label: str) -> dict[str, Json]:
    return {"logprobs": True, "top_logprobs": top_logprobs} if top_logprobs else {}


_PARAMETER_TRANSLATORS: dict[str, Callable[[Json, Mapping[str, Json], str], dict[str, Json]]] = {
    "tools": _translate_tools,
    "tool_choice": _translate_tool_choice,
    "parallel_tool_calls": _translate_parallel_tool_calls,
    "text": _translate_text,
    "include": _translate_include,
    "top_logprobs": _translate_top_logprobs,
}
"""Translations of the parameters that chat completions names otherwise.

Each gets the value, all parameters and the model's label.
"""
