"""Adapter for chat completions: DeepSeek, Ollama, vLLM, the local engine.

Parameters are translated, rejected with `Unsupported`, or reported as ignored; none is dropped silently. Chunks are
parsed as plain JSON, since the typed objects of the openai package drop unknown fields.

OpenAI's models have custom tools from GPT-5 on: `{"type": "custom", "custom": {"name", "description", "format"}}`, and
calls with `custom` in place of `function` (`openai.types.chat` of openai 3.54.0). The types of that package lack such
calls in chunks; servers send them as `{"index", "id", "type": "custom", "custom": {"name", "input"}}`, where `input` is
a part of the text.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from convo.config.sections import PROVIDER_EXTRA_FIELDS, CustomTools, HostedTools
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.config.values import Secret
from convo.errors import InputFault, StreamBroken, Unsupported
from convo.history.items import Item, Json, StreamEvent
from convo.models.base import (
    INCLUDE_ENCRYPTED_REASONING,
    INCLUDE_LOGPROBS,
    NO_ISSUER,
    OPENAI_CHAT_EXTRA_FIELDS,
    RESPONSE_PARAMETERS,
    IssuerTag,
    ModelRequest,
    check_provider_reachable,
    is_issued_by,
    list_ignored_item_fields,
    list_ignored_parameters,
    make_issuer_tag,
    parse_model_names,
)
from convo.models.chat_messages import build_chat_messages, encode_reasoning_text
from convo.models.errors import ErrorContext, fault_from_stream_error, map_provider_errors
from convo.models.http import (
    PLACEHOLDER_KEY,
    OpenAIClientOptions,
    SSEClient,
    close_client,
    make_http_client,
    make_openai_client,
)
from convo.models.stream import ResponseEventWriter, usage_from_chat
from convo.models.tool_mapping import MappedRequest, map_request
from convo.runtime import NewId

if TYPE_CHECKING:
    from httpx2 import AsyncClient


class ChatModel:
    """The models of one server. `defaults` are fields of the body that apply unless the request sets them."""

    def __init__(
        self,
        provider: str,
        base_url: str,
        new_id: NewId,
        *,
        key: Secret | None = None,
        http_client: "AsyncClient | None" = None,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        defaults: Mapping[str, Json] | None = None,
        extra_fields: Collection[str] = (),
        hosted_tools: HostedTools = "refuse",
        custom_tools: CustomTools = "auto",
    ) -> None:
        self._provider, self._base_url, self._key = provider, base_url, key
        self._new_id, self._http_client, self._defaults = new_id, http_client, defaults or {}
        self._limits, self._dialect = limits, detect_chat_dialect(provider, base_url, extra_fields)
        self._hosted_tools, self._custom_tools = hosted_tools, custom_tools
        self._client: SSEClient | None = None

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        mapped = self._map_request(request)
        body = {**self._build_mapped_body(mapped), "stream": True, "stream_options": {"include_usage": True}}
        writer = ResponseEventWriter(self._new_id, request.model, summarized=request.wants_summary, tools=mapped.tools)
        translator = ChatChunkTranslator(
            writer, self._new_id, self._reasoning_issuer(request) if self._dialect.has_thinking else None
        )
        async with aclosing(self._stream_chunks(body)) as chunks:
            async for chunk in chunks:
                for event in translator.translate_chunk(chunk):
                    yield event
        for event in translator.finish():
            yield event

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, "openai")

    async def check_request(self, request: ModelRequest) -> None:
        self.build_body(request)
        await check_provider_reachable(self, self._provider)

    async def count(self, request: ModelRequest) -> int | None:
        """Return None: chat completions cannot count tokens."""
        return None

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        """Return None: chat completions has no compaction."""
        return None

    async def list_models(self) -> Sequence[str]:
        return parse_model_names(await self.request_json("/models"), self._provider)

    async def aclose(self) -> None:
        await close_client(self._client, self._http_client)

    def build_body(self, request: ModelRequest) -> dict[str, Json]:
        """Build the body of a request, without the fields for streaming."""
        return self._build_mapped_body(self._map_request(request))

    @property
    def hosted_tools(self) -> HostedTools:
        return self._hosted_tools

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return list_ignored_chat_fields(
            request,
            self._dialect,
            self._reasoning_issuer(request),
            self._hosted_tools,
            has_custom_tools=self._has_custom_tools(request),
        )

    async def request_json(self, path: str, body: Mapping[str, Json] | None = None) -> Json:
        """Request one JSON object outside of a response: a POST if there is a body, else a GET."""
        with map_provider_errors(self._error_context(body or {})):
            if body is None:
                return await self._get_client().client.get(path, cast_to=object)
            return await self._get_client().client.post(path, cast_to=object, body=body)

    async def _stream_chunks(self, body: Mapping[str, Json]) -> AsyncGenerator[Json, None]:
        context, is_streaming = self._error_context(body), False
        async with aclosing(self._get_client().stream_json("/chat/completions", body, context)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Mapping) and chunk.get("error"):
                    raise fault_from_stream_error(chunk, context, is_streaming=is_streaming)
                is_streaming = True
                yield chunk

    def _map_request(self, request: ModelRequest) -> MappedRequest:
        return map_request(
            request,
            self._model_label(request),
            self._hosted_tools,
            has_custom_tools=self._has_custom_tools(request),
        )

    def _has_custom_tools(self, request: ModelRequest) -> bool:
        return is_custom_tool_model(self._custom_tools, self._base_url, request.model)

    def _build_mapped_body(self, mapped: MappedRequest) -> dict[str, Json]:
        request = mapped.request
        body = _build_body(request, self._model_label(request), self._dialect, self._reasoning_issuer(request))
        return {**self._defaults, **body}

    def _model_label(self, request: ModelRequest) -> str:
        return f"{self._provider}/{request.model}"

    def _reasoning_issuer(self, request: ModelRequest) -> IssuerTag:
        """The issuer of the reasoning that the server needs back, if it needs any."""
        return (
            make_issuer_tag(self._provider, request.model, self._base_url) if self._dialect.has_thinking else NO_ISSUER
        )

    def _error_context(self, body: Mapping[str, Json]) -> ErrorContext:
        return ErrorContext(self._provider, self._base_url, model=body.get("model"), key=self._key)

    def _get_client(self) -> SSEClient:
        if self._client is None:
            options = OpenAIClientOptions(self._provider, self._base_url, key=self._key or PLACEHOLDER_KEY)
            http = self._http_client or make_http_client()
            self._client = SSEClient(make_openai_client(options, http, self._limits), http, self._limits)
        return self._client


_T = TypeVar("_T")

_COMPLETED_REASONS = frozenset({"stop", "tool_calls", "function_call", "eos", "end_turn"})
_INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons that make a response incomplete, and the Responses API's names for them."""

_BASE_URL_HINT = "check the provider's base_url; it often ends in /v1"


class ChatChunkTranslator:
    """Translates the chunks of one response to events of the Responses API."""

    def __init__(self, writer: ResponseEventWriter, new_id: NewId, issuer: str | None = None) -> None:
        """`issuer` tags the reasoning where the server needs it back (see `convo.models.base`)."""
        self._writer, self._new_id, self._issuer = writer, new_id, issuer
        self._open_call: tuple[int, str] | None = None
        self._has_chunks = False
        self._has_arguments = True
        self._reasoning_deltas: list[str] = []
        self._logprobs: list[Json] = []
        self._finish_reason: str | None = None
        self._usage: Json = None

    def translate_chunk(self, chunk: Json) -> Iterator[StreamEvent]:
        """Yield the events of one chunk. Raises StreamBroken for anything that is no chunk of chat completions."""
        chunk = _typed(chunk, dict)
        self._has_chunks = True
        self._writer.model = _typed(chunk.get("model"), str) or self._writer.model
        usage = chunk.get("usage") or _typed(chunk.get("x_groq"), dict).get("usage")
        if usage:
            self._usage = usage_from_chat(_typed(usage, dict), is_strict=True)
        for raw_choice in _typed(chunk.get("choices"), list):
            choice = _typed(raw_choice, dict)
            self._logprobs += map(_translate_logprob, _typed(_typed(choice.get("logprobs"), dict).get("content"), list))
            yield from self._translate_delta(_typed(choice.get("delta"), dict))
            self._finish_reason = _typed(choice.get("finish_reason"), str) or self._finish_reason

    def finish(self) -> Iterator[StreamEvent]:
        """Yield the terminal event. Raises StreamBroken without a finish reason."""
        if not self._has_chunks:
            raise StreamBroken("the response has no chat completions event", hint=_BASE_URL_HINT)
        if self._finish_reason is None:
            raise StreamBroken("the response ended before it was complete")
        if self._finish_reason in _COMPLETED_REASONS:
            yield from self._finish_reasoning()
            yield from self._finish_call()
            yield from self._writer.write_completed(self._usage)
        elif self._finish_reason in _INCOMPLETE_REASONS:
            yield from self._writer.write_incomplete(_INCOMPLETE_REASONS[self._finish_reason], self._usage)
        else:
            message = f"the provider ended the response with {self._finish_reason!r}"
            yield from self._writer.write_failed("server_error", message, self._usage)

    def _translate_delta(self, delta: Mapping[str, Json]) -> Iterator[StreamEvent]:
        # some servers send the same text in both fields
        reasoning = _typed(delta.get("reasoning_content") or delta.get("reasoning") or "", str)
        text, refusal = _typed(delta.get("content"), str), _typed(delta.get("refusal"), str)
        calls = _typed(delta.get("tool_calls"), list)
        if reasoning or text or refusal:
            yield from self._finish_call()
            self._open_call = None
        if reasoning:
            if self._issuer is not None:
                self._reasoning_deltas.append(reasoning)
            yield from self._writer.write_reasoning(reasoning)
        if text or refusal or calls:
            yield from self._finish_reasoning()
        if text:
            logprobs, self._logprobs = self._logprobs, []
            yield from self._writer.write_text(text, logprobs)
        if refusal:
            yield from self._writer.write_refusal(refusal)
        for piece in calls:
            yield from self._translate_tool_call(_typed(piece, dict))

    def _finish_reasoning(self) -> Iterator[StreamEvent]:
        """End the reasoning; store its text as encrypted content where the server needs it back."""
        text, self._reasoning_deltas = "".join(self._reasoning_deltas), []
        if text and self._issuer is not None:
            yield from self._writer.write_encrypted_content(self._issuer + encode_reasoning_text(text))

    def _translate_tool_call(self, delta: Mapping[str, Json]) -> Iterator[StreamEvent]:
        """Translate a part of a call. A new index or a new id starts the next call: some servers send no index."""
        custom = _typed(delta.get("custom"), dict)
        function = custom or _typed(delta.get("function"), dict)
        index, call_id = _typed(delta.get("index"), int), _typed(delta.get("id"), str)
        if self._open_call is None or self._open_call[0] != index or call_id not in ("", self._open_call[1]):
            name = _typed(function.get("name"), str)
            if not name:
                raise StreamBroken("the response mixes the parts of its tool calls")
            yield from self._finish_call()
            self._open_call, self._has_arguments = (index, call_id or self._new_id("call")), bool(custom)
            start = self._writer.start_custom_call if custom else self._writer.start_function_call
            yield from start(self._open_call[1], name)
        arguments = _typed(function.get("input" if custom else "arguments"), str)
        self._has_arguments = self._has_arguments or bool(arguments)
        yield from self._writer.write_arguments(arguments)

    def _finish_call(self) -> Iterator[StreamEvent]:
        """Write empty arguments for a call without any: some servers send none."""
        if not self._has_arguments:
            self._has_arguments = True
            yield from self._writer.write_arguments("{}")


def _translate_logprob(value: Json) -> Json:
    fields = _typed(value, dict)
    logprob = fields.get("logprob")
    translated: dict[str, Json] = {
        "token": _typed(fields.get("token"), str),
        "bytes": _typed(fields.get("bytes"), list),
        "logprob": logprob if isinstance(logprob, int) else _typed(logprob, float),
    }
    if "top_logprobs" in fields:
        translated["top_logprobs"] = [
            _translate_logprob(alternative) for alternative in _typed(fields["top_logprobs"], list)
        ]
    return translated


def _typed(value: Json, expected: type[_T]) -> _T:
    """Return `value`, or the empty value of the type for null. Raises StreamBroken for another type."""
    if value is None:
        return expected()
    if isinstance(value, expected):
        return value
    raise StreamBroken("the response has a field that chat completions does not define")


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
    has_thinking:      the server accepts `thinking` and needs its reasoning back in a turn with calls
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
    if not dialect.has_thinking and INCLUDE_ENCRYPTED_REASONING in (request.parameters.get("include") or ()):
        names.append(f"include.{INCLUDE_ENCRYPTED_REASONING}")
    names += [*mapped.ignored, *list_ignored_item_fields(request.input, detailed_parts=("input_image",))]
    if any(
        item.get("type") == "reasoning" and not (dialect.has_thinking and is_issued_by(item, issuer))
        for item in request.input
    ):
        names.append("input.reasoning")
    return tuple(dict.fromkeys(names))


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
        request.input, model_label, request.instructions, reasoning_issuer=issuer if dialect.has_thinking else None
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
            body |= {name: value} if name in dialect.extra_fields else {}
        elif name not in _OMITTED_PARAMETERS and _NO_OP_VALUES.get(name) != value:
            raise Unsupported(model_label, f"the parameter {name!r}", param=name)
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
            raise Unsupported(model_label, f"the text format {other!r}", param="text.format")


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
