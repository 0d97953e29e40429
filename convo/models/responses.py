"""Adapter for the Responses API: OpenAI, Azure OpenAI, vLLM, Ollama; always `store: false`.

The whole history is sent each time. Ids that mean nothing to the server are removed, and encrypted
reasoning is always requested, because the next request needs it. Events pass through unchanged,
except for the server's own response fields.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

from convo.config.sections import PROVIDER_EXTRA_FIELDS
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import EndpointFault, StreamBroken, StreamCut
from convo.history.accumulator import ITEM_EVENTS, SERVER_TERMINAL_EVENTS, START_EVENTS, TERMINAL_EVENTS
from convo.history.items import Item, Json, StreamEvent, to_resendable
from convo.history.records import COMPARISON_FIELD, UPSTREAM_ID, pick_reported_fields
from convo.history.tree import JoinedList, derive
from convo.models.base import (
    ENCRYPTED_CONTENT,
    INCLUDE_ENCRYPTED_REASONING,
    OPENAI_RESPONSES_EXTRA_FIELDS,
    RESPONSE_PARAMETERS,
    UNSUPPORTED_STATUSES,
    HostedToolsUse,
    IssuerTag,
    ListedModels,
    Model,
    ModelRequest,
    check_provider_reachable,
    has_issuer_tag,
    is_issued_by,
    make_issuer_tag,
    parse_models,
    parse_token_count,
    tag_encrypted_content,
    untag_items,
)
from convo.models.errors import ErrorContext, fault_from_event, map_custom_model_errors
from convo.models.http import (
    OpenAIClientOptions,
    SSEClient,
    import_packages,
    make_openai_sse_client,
)
from convo.models.readers.responses import ResponsesReader
from convo.models.request_fields import COMPACT_FIELDS, COUNT_FIELDS
from convo.runtime import NewId
from convo.usage.model_info import has_encrypted_reasoning

_DRAIN_TIMEOUT_S = 1.0
"""Seconds to wait for the end of the body after the last event."""


class ResponsesModel(Model):
    """The models of one account; `is_served` if a server makes the requests."""

    hosted_tools: HostedToolsUse = "run"

    def __init__(
        self,
        options: OpenAIClientOptions,
        new_id: NewId,
        *,
        is_served: bool = False,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        extra_fields: Collection[str] = (),
    ) -> None:
        self._options, self._new_id, self._is_served, self._limits = options, new_id, is_served, limits
        self._client: SSEClient | None = None
        self._extra_fields = extra_fields

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self._options.check_fields(request.model, request.parameters)
        body = {
            **self._with_deployment(
                build_responses_body(request, self._issuer_tag(request), self._model_label(request), self._extra_fields)
            ),
            "stream": True,
        }
        context, is_streaming = self._options.make_error_context(body), False
        issuer, reader = self._issuer_tag(request), ResponsesReader(self._new_id)
        is_compared = COMPARISON_FIELD in (request.parameters.get("prompt_cache_options") or {})
        async with aclosing(self._get_client().stream_json("/responses", body, context, strict=True)) as values:
            async for value in values:
                for event in reader.read(value):
                    if event["type"] == "error":
                        raise fault_from_event(event, context, is_streaming=is_streaming)
                    translated = translate_event(event, issuer, request.model, is_compared=is_compared)
                    if translated is None:
                        continue
                    is_streaming = True
                    if translated["type"] in TERMINAL_EVENTS:
                        await _drain_events(values)
                        yield translated
                        return
                    yield translated
        # Before the first event nothing of the answer can be kept.
        kind = StreamCut if is_streaming else StreamBroken
        raise kind(f"{context.provider} ended the stream before the response was complete")

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return list_ignored_responses_fields(request, self._issuer_tag(request), self._extra_fields)

    async def warm(self, model: str) -> None:
        await import_packages(is_served=self._is_served)
        self._get_client()

    async def check_request(self, request: ModelRequest) -> None:
        self._options.check_fields(request.model, request.parameters)
        build_responses_body(request, self._issuer_tag(request), self._model_label(request))
        await check_provider_reachable(self, self._options.provider)

    async def count(self, request: ModelRequest) -> int | None:
        body = self._with_deployment(build_count_body(request, self._issuer_tag(request), self._model_label(request)))
        response = await self._post("/responses/input_tokens", body)
        return parse_token_count(response)

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        body = self._with_deployment(build_compact_body(request, self._issuer_tag(request), self._model_label(request)))
        response = await self._post("/responses/compact", body)
        if response is None:
            return None
        output = response.get("output") if isinstance(response, Mapping) else None
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            raise StreamBroken(f"{self._options.provider} sent a response that is not a compacted input")
        return [tag_encrypted_content(item, self._issuer_tag(request)) for item in output]

    async def list_models(self) -> ListedModels:
        response = await self._get_client().request_json("/models", None, self._options.make_error_context({}))
        return parse_models(response, self._options.provider)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, path: str, body: Mapping[str, Json]) -> Json:
        """Request one JSON object; None from a server that has no such path."""
        try:
            return await self._get_client().request_json(path, body, self._options.make_error_context(body))
        except EndpointFault as fault:
            if fault.status in UNSUPPORTED_STATUSES and fault.code != "model_not_found":
                return None
            raise

    def _with_deployment(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Set the model name that the account's deployment has."""
        return {**body, "model": self._options.deployment or body["model"]}

    def _issuer_tag(self, request: ModelRequest) -> IssuerTag:
        options = self._options
        return make_issuer_tag(options.provider, request.model, options.base_url, options.organisation, options.project)

    def _model_label(self, request: ModelRequest) -> str:
        return f"{self._options.provider}/{request.model}"

    def _get_client(self) -> SSEClient:
        if self._client is None:
            self._client = make_openai_sse_client(self._options, self._limits, is_served=self._is_served)
        return self._client


EventStream: TypeAlias = Callable[[str | None, Sequence[Item], Mapping[str, Json]], AsyncIterator[Any]]
"""Called with the instructions, the input and the parameters of a request; yields events of the Responses API.

They are models of pydantic, as those of the openai package. It may raise anything.
"""


class CustomModelAdapter(Model):
    """A model that the definition of an agent brings: `stream` makes its requests."""

    hosted_tools: HostedToolsUse = "run"

    def __init__(self, name: str, stream: EventStream, new_id: NewId) -> None:
        self._name, self._stream, self._new_id = name, stream, new_id
        self._issuer = make_issuer_tag("", name)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        reader, context, is_streaming = ResponsesReader(self._new_id), ErrorContext(self._name), False
        items = untag_items(request.input, self._issuer, self._name)
        with map_custom_model_errors(context):
            async for value in self._stream(request.instructions, items, request.parameters):
                for event in reader.read(value.model_dump(mode="json", exclude_none=True)):
                    if event["type"] == "error":
                        raise fault_from_event(event, context, is_streaming=is_streaming)
                    if (translated := translate_event(event, self._issuer, request.model)) is not None:
                        is_streaming = True
                        yield translated
                        if translated["type"] in TERMINAL_EVENTS:
                            return
        raise StreamBroken(f"{self._name} ended the stream before the response was complete")


async def _drain_events(values: AsyncGenerator[Json, None]) -> None:
    """Read the rest of the stream for a limited time, so that the connection can be reused."""
    with suppress(TimeoutError, EndpointFault):
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            async for _ in values:
                pass


_DROPPED_FIELDS = ("sequence_number", "obfuscation")

_DEFAULT_ERROR = {"code": "server_error", "message": "The provider stopped the response."}


def translate_event(
    event: StreamEvent, issuer: IssuerTag, model: str, *, is_compared: bool = False
) -> StreamEvent | None:
    """Return the event to pass on; None for keep-alives and the server's response events.

    is_compared:  the request asks for diagnostics of the cache; the next one may name the server's id of this response
    """
    name = event["type"]
    if name in SERVER_TERMINAL_EVENTS:
        return _make_terminal_event(event, issuer, model, is_compared=is_compared)
    # convo writes these itself, with its own id of the response.
    if name in START_EVENTS or not name.startswith("response."):
        return None
    fields = dict(event)
    for dropped in _DROPPED_FIELDS:
        fields.pop(dropped, None)
    if name in ITEM_EVENTS:
        fields["item"] = tag_encrypted_content(event["item"], issuer)
    return fields


def _make_terminal_event(event: StreamEvent, issuer: IssuerTag, model: str, *, is_compared: bool) -> StreamEvent:
    response = event["response"]
    status = str(event["type"]).removeprefix("response.").replace("cancelled", "failed")
    terminal_response: dict[str, Json] = {
        "status": status,
        "model": _str_field(response, "model") or model,
        "output": [tag_encrypted_content(item, issuer) for item in response["output"]],
        "usage": response.get("usage") or None,
        **pick_reported_fields({**response, UPSTREAM_ID: response.get("id") if is_compared else None}),
    }
    if status == "incomplete":
        reason = _str_field(response.get("incomplete_details") or {}, "reason")
        terminal_response["incomplete_details"] = {"reason": reason} if reason else None
    if status == "failed":
        error = response.get("error") or {}
        terminal_response["error"] = {
            name: _str_field(error, name) or default for name, default in _DEFAULT_ERROR.items()
        }
    return {"type": f"response.{status}", "response": terminal_response}


def _str_field(fields: Mapping[str, Json], name: str) -> str | None:
    """Return a field that is a string; None for any other value."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


_UNSUPPORTED_EXTRA_FIELDS = frozenset(PROVIDER_EXTRA_FIELDS) - OPENAI_RESPONSES_EXTRA_FIELDS
"""Extra fields that the Responses API does not have."""


def build_responses_body(
    request: ModelRequest, issuer: IssuerTag, model_label: str, extra_fields: Collection[str] = ()
) -> dict[str, Json]:
    """Build the body of a request, without `stream`.

    extra_fields:  the extra fields that are sent (see `convo.models.base`)
    issuer:        the issuer whose encrypted content is sent back (see `convo.models.base`)
    model_label:   the model's name in errors

    Raises Unsupported for a compaction item of another issuer.
    """
    unsupported_fields = _UNSUPPORTED_EXTRA_FIELDS - frozenset(extra_fields)
    parameters = {
        name: value
        for name, value in request.parameters.items()
        if name not in RESPONSE_PARAMETERS and name not in unsupported_fields and value is not None
    }
    include = _include_values(request)
    if options := parameters.get("prompt_cache_options"):
        parameters["prompt_cache_options"] = _with_own_comparison(options, request.comparison_id)
    return {
        **_common_fields(request, issuer, model_label),
        **parameters,
        # convo owns the state: no second copy is kept at the provider.
        "store": False,
        **({"include": include} if include else {}),
    }


def list_ignored_responses_fields(
    request: ModelRequest, issuer: IssuerTag, extra_fields: Collection[str] = ()
) -> tuple[str, ...]:
    """List the fields that `build_responses_body` ignores, named as in `convo.models.base`."""
    names = [
        name
        for name in request.parameters
        if name in _UNSUPPORTED_EXTRA_FIELDS - frozenset(extra_fields) and request.parameters[name] is not None
    ]
    if (request.parameters.get("prompt_cache_options") or {}).get(COMPARISON_FIELD) and not request.comparison_id:
        names.append(f"prompt_cache_options.{COMPARISON_FIELD}")
    if derive(request.input, _make_unsent_reasoning_step, issuer):
        names.append("input.reasoning")
    return tuple(names)


def _with_own_comparison(options: Mapping[str, Json], comparison_id: str | None) -> dict[str, Json]:
    """Name the compared response by the server's own id; leave out one that this server did not make."""
    if not options.get(COMPARISON_FIELD):
        return dict(options)
    others = {name: value for name, value in options.items() if name != COMPARISON_FIELD}
    return {**others, COMPARISON_FIELD: comparison_id} if comparison_id else others


def _make_unsent_reasoning_step(issuer: IssuerTag) -> Callable[[Sequence[Item]], list[Item]]:
    return lambda items: [
        item for item in items if item.get("type") == "reasoning" and not _is_reasoning_sent(item, issuer)
    ]


def _is_reasoning_sent(item: Item, issuer: IssuerTag) -> bool:
    """Whether a reasoning item is sent: it is encrypted, and not tagged with another issuer."""
    encrypted = item.get(ENCRYPTED_CONTENT)
    return bool(encrypted) and (is_issued_by(item, issuer) or not has_issuer_tag(item))


def build_count_body(request: ModelRequest, issuer: IssuerTag, model_label: str) -> dict[str, Json]:
    """Build the body of a request that counts input tokens. Raises Unsupported."""
    return {**_common_fields(request, issuer, model_label), **_pick_parameters(COUNT_FIELDS, request.parameters)}


def build_compact_body(request: ModelRequest, issuer: IssuerTag, model_label: str) -> dict[str, Json]:
    """Build the body of a compaction request. Raises Unsupported."""
    return {**_common_fields(request, issuer, model_label), **_pick_parameters(COMPACT_FIELDS, request.parameters)}


def _common_fields(request: ModelRequest, issuer: IssuerTag, model_label: str) -> dict[str, Json]:
    sent_items = derive(request.input, _make_input_step, issuer, model_label)
    instructions: dict[str, Json] = {} if request.instructions is None else {"instructions": request.instructions}
    return {
        "model": request.model,
        **({"input": JoinedList(sent_items)} if request.input else {}),
        **instructions,
    }


def _make_input_step(issuer: IssuerTag, model_label: str) -> Callable[[Sequence[Item]], list[Item]]:
    def step(items: Sequence[Item]) -> list[Item]:
        # A client may bring reasoning that it got from this server without convo.
        sent = (to_resendable(item) for item in untag_items(items, issuer, model_label, keep_untagged=True))
        return [item for item in sent if item is not None]

    return step


def _include_values(request: ModelRequest) -> list[str]:
    values = list(request.parameters.get("include") or ())
    # Other models refuse the value with 400.
    if has_encrypted_reasoning(request.model) and INCLUDE_ENCRYPTED_REASONING not in values:
        values.append(INCLUDE_ENCRYPTED_REASONING)
    return values


def _pick_parameters(names: frozenset[str], parameters: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name in names and value is not None}
