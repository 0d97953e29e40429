"""Adapter for Anthropic's Messages API.

Parameters are translated, rejected with `Unsupported`, or reported as ignored. The form of `thinking` depends on the
model's version: none before 3.7, a token budget up to 4.5, an effort from 4.6. Thinking blocks are stored whole, as
encrypted reasoning. Newer models check that nothing before a block has changed: by default the adapter asks them to
drop a block that fails, and reports it.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias

from convo.config.sections import HostedTools, PrefixMismatchBehavior
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import EndpointFault, InputFault, StreamBroken, Unsupported, UnsupportedParameter, UnsupportedValue
from convo.history.items import Item, Json, StreamEvent, item_type
from convo.history.records import UPSTREAM_ID
from convo.models.answer import AnswerTranslator, Piece
from convo.models.anthropic_messages import (
    CACHE_BREAKPOINT,
    THINKING_BLOCK_TYPES,
    build_anthropic_messages,
    build_system_blocks,
    find_reasoning_id,
    limit_cache_breakpoints,
    list_dropped_breakpoints,
    split_system_items,
)
from convo.models.base import (
    INCLUDE_LOGPROBS,
    RESPONSE_PARAMETERS,
    UNSUPPORTED_STATUSES,
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
    parse_token_count,
)
from convo.models.errors import ErrorContext, fault_from_stream_error
from convo.models.http import (
    SSEClient,
    import_packages,
    make_transport,
    read_environment_headers,
)
from convo.models.readers.messages import Block, MessagesReader, encode_thinking_block, translate_diagnostics
from convo.models.stream import ResponseEventWriter
from convo.models.tool_mapping import map_request
from convo.runtime import NewId
from convo.secrets import Secret
from convo.usage.cache_rules import CLAUDE_TTLS, find_cache_rules, find_claude_ttl
from convo.usage.model_info import find_model_window


class AnthropicModel(Model):
    """The models of one account; `is_served` if a server makes the requests."""

    def __init__(
        self,
        provider: str,
        base_url: str,
        new_id: NewId,
        *,
        key: Secret | None = None,
        is_served: bool = False,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        extra_fields: Collection[str] = (),
        hosted_tools: HostedTools = "refuse",
        prefix_mismatch_behavior: PrefixMismatchBehavior = "drop_block",
    ) -> None:
        # The paths of requests have /v1 themselves; a base URL may be given with or without it.
        self._provider, self._base_url, self._key = provider, base_url.removesuffix("/v1"), key
        self._new_id, self._is_served, self._limits = new_id, is_served, limits
        self._client: SSEClient | None = None
        self._extra_fields = extra_fields
        self.hosted_tools: HostedTools = hosted_tools
        self._prefix_mismatch_behavior = prefix_mismatch_behavior

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        mapped = map_request(request, self._model_label(request), self.hosted_tools)
        body = {**self._build_mapped_body(mapped.request), "stream": True}
        writer = ResponseEventWriter(self._new_id, request.model, summarized=request.wants_summary, tools=mapped.tools)
        issuer = self._issuer_tag(request)
        translator = AnthropicEventTranslator(
            writer,
            self._new_id,
            issuer,
            is_compared=request.comparison_id is not None,
            find_reasoning_id=lambda path: find_reasoning_id(path, body["messages"], mapped.request.input, issuer),
        )
        context, is_streaming, headers = self._error_context(body), False, self._build_beta_headers(body)
        async with aclosing(self._get_client().stream_json("/v1/messages", body, context, headers=headers)) as values:
            async for value in values:
                for event in translator.translate_event(value):
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

    async def count(self, request: ModelRequest) -> int | None:
        body = {name: value for name, value in self.build_body(request).items() if name in _COUNT_FIELDS}
        try:
            response = await self._get_client().request_json(
                "/v1/messages/count_tokens", body, self._error_context(body), headers=self._build_beta_headers(body)
            )
        except EndpointFault as fault:
            if fault.status in UNSUPPORTED_STATUSES and fault.code != "model_not_found":
                return None
            raise
        return parse_token_count(response)

    async def list_models(self) -> ListedModels:
        # A page has 20 models by default and 1,000 at most.
        response = await self._get_client().request_json("/v1/models", None, self._error_context({}), {"limit": 1000})
        return parse_models(response, self._provider)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def build_body(self, request: ModelRequest) -> dict[str, Json]:
        """Build the body of a request, without `stream`. Raises Unsupported or InputFault."""
        return self._build_mapped_body(map_request(request, self._model_label(request), self.hosted_tools).request)

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return list_ignored_anthropic_fields(request, self._issuer_tag(request), self._extra_fields, self.hosted_tools)

    def _build_mapped_body(self, request: ModelRequest) -> dict[str, Json]:
        body = _build_body(request, self._issuer_tag(request), self._model_label(request), self._extra_fields)
        return _add_block_binding(body, self._prefix_mismatch_behavior)

    def _build_beta_headers(self, body: Mapping[str, Json]) -> dict[str, str]:
        """Build the header with the betas of `body`, and with those of the client's own headers, which it replaces."""
        if "block_binding" not in (body.get("thinking") or {}):
            return {}
        # ANTHROPIC_CUSTOM_HEADERS may set betas, and a request's header replaces the client's.
        own_betas = self._get_client().headers.get(_BETA_HEADER)
        return {_BETA_HEADER: ",".join(filter(None, [own_betas, _BLOCK_BINDING_BETA]))}

    def _model_label(self, request: ModelRequest) -> str:
        return f"{self._provider}/{request.model}"

    def _issuer_tag(self, request: ModelRequest) -> IssuerTag:
        return make_issuer_tag(self._provider, request.model, self._base_url)

    def _error_context(self, body: Mapping[str, Json]) -> ErrorContext:
        return ErrorContext(self._provider, self._base_url, model=body.get("model"), key=self._key)

    def _get_client(self) -> SSEClient:
        if self._client is None:
            self._client = make_anthropic_client(
                self._provider, self._base_url, self._key, self._limits, is_served=self._is_served
            )
        return self._client


def make_anthropic_client(
    provider: str, base_url: str, key: Secret | None, limits: ResponseLimits, *, is_served: bool
) -> SSEClient:
    """Create the client of one server; the headers of ANTHROPIC_CUSTOM_HEADERS are for Anthropic's own account."""
    headers = read_environment_headers("ANTHROPIC_CUSTOM_HEADERS") if provider == "anthropic" else {}
    headers |= {"anthropic-version": _API_VERSION, **({"x-api-key": key.reveal()} if key else {})}
    return SSEClient(make_transport(base_url, limits, is_served=is_served), base_url, headers, limits)


_API_VERSION = "2023-06-01"


_DEFAULT_REFUSAL = "The model will not answer this."


class AnthropicEventTranslator(AnswerTranslator):
    """Translates the events of one answer, or its whole body, to events of the Responses API."""

    def __init__(
        self,
        writer: ResponseEventWriter,
        new_id: NewId,
        issuer: str,
        *,
        is_compared: bool = False,
        find_reasoning_id: Callable[[str], str | None] = lambda path: None,
    ) -> None:
        """Start a response.

        issuer:             tags the encrypted content (see `convo.models.base`)
        is_compared:        the request names another message, to compare the prompt cache with
        find_reasoning_id:  returns the id of the reasoning item at "messages.N.content.N" of the request
        """
        super().__init__(writer, new_id)
        self.reader = MessagesReader()
        self._issuer = issuer
        self._is_compared, self._find_reasoning_id = is_compared, find_reasoning_id

    def translate_event(self, event: Json) -> Iterator[StreamEvent]:
        """Yield the events for one event."""
        for piece in self.reader.read(event):
            yield from self.add(piece)
        model = self.reader.message.get("model")
        self._writer.model = model if isinstance(model, str) else self._writer.model

    def finish(self) -> Iterator[StreamEvent]:
        """Yield the terminal event. Raises StreamCut, or StreamBroken if no part of the answer can be kept."""
        message, left_out = self.reader.message, {block.type for block in self.reader.blocks} - _TRANSLATED_BLOCKS
        if not message:
            raise StreamBroken("the response has no event of the Messages API", hint="check the provider's base_url")
        if left_out and len(left_out) == len({block.type for block in self.reader.blocks}):
            raise StreamBroken(f"the response contains {min(left_out)}, which was not requested")
        self._report_left_out(left_out)
        self._report_fields(message)
        if message.get("stop_reason") == "refusal":
            details = message.get("stop_details")
            explanation = details.get("explanation") if isinstance(details, Mapping) else None
            yield from self.add(Piece("refusal", str(explanation or _DEFAULT_REFUSAL)))
        yield from self.write_end(self.reader.ending(), self.reader.usage)

    def _encrypted_after(self, source: object) -> Iterator[str]:
        if isinstance(source, Block) and source.is_stopped:
            yield self._issuer + encode_thinking_block(source.to_fields())

    def _report_fields(self, message: Mapping[str, Json]) -> None:
        """Keep the fields that only the provider can know."""
        reported = self._writer.reported
        if isinstance(message.get("id"), str):
            reported[UPSTREAM_ID] = message["id"]
        if self._is_compared:
            reported["prompt_cache_diagnostics"] = translate_diagnostics(message.get("diagnostics"))
        transformations = message.get("input_transformations")
        if isinstance(transformations, list):
            reported["input_transformations"] = list(self._translate_transformations(transformations)) or None

    def _translate_transformations(self, transformations: Sequence[Json]) -> Iterator[Json]:
        """Yield an entry for each block that was dropped; one that was kept is no change of the input."""
        for transformation in transformations:
            if isinstance(transformation, Mapping) and transformation.get("type") == "thinking_dropped":
                path, reason = str(transformation.get("path")), str(transformation.get("reason"))
                item_id = self._find_reasoning_id(path) or path
                yield {
                    "id": item_id,
                    "action": "removed",
                    "reason": reason.replace("_binding_", "_"),
                    "type": "reasoning",
                }


_TRANSLATED_BLOCKS = frozenset({"text", "tool_use", *THINKING_BLOCK_TYPES})


DEFAULT_MAX_TOKENS = 32_000
"""Output tokens to request if neither the caller nor models.toml sets a maximum."""

_OMITTED_PARAMETERS = RESPONSE_PARAMETERS | {
    # optional and unknown to the API, or limits on hosted tools, which are rejected; reported as ignored
    "user", "prompt_cache_key", "max_tool_calls", "seed", "chat_template_kwargs",
}  # fmt: skip

_NO_OP_VALUES: Mapping[str, Json] = {
    "temperature": 1, "top_p": 1, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0,
    "truncation": "disabled",
}  # fmt: skip
"""Values that request the default behaviour; the newest models accept no temperature at all."""

_COUNT_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")
"""The fields of a body that the number of input tokens depends on."""


@dataclass(frozen=True, slots=True)
class _TranslationContext:
    """All parameters of a request, with the model, its label in errors, the output limit and the extra fields."""

    parameters: Mapping[str, Json]
    model: str
    model_label: str
    max_tokens: int
    extra_fields: frozenset[str] = frozenset()


def build_anthropic_body(
    request: ModelRequest,
    issuer: IssuerTag,
    model_label: str,
    extra_fields: Collection[str] = (),
    hosted_tools: HostedTools = "refuse",
) -> dict[str, Json]:
    """Build the body of a request, without `stream`.

    extra_fields:  the extra fields that are sent (see `convo.models.base`)
    issuer:        the issuer whose reasoning is sent back (see `convo.models.base`)
    model_label:   the model's name in errors
    hosted_tools:  as in `map_request`

    Raises Unsupported for an item or parameter that Claude cannot honour, or InputFault.
    """
    return _build_body(map_request(request, model_label, hosted_tools).request, issuer, model_label, extra_fields)


def _build_body(
    request: ModelRequest, issuer: IssuerTag, model_label: str, extra_fields: Collection[str]
) -> dict[str, Json]:
    """Build the body of a request that `map_request` mapped."""
    parameters = {name: value for name, value in request.parameters.items() if value is not None}
    window = find_model_window(request.model)
    max_tokens = parameters.get("max_output_tokens") or (window and window.output) or DEFAULT_MAX_TOKENS
    context = _TranslationContext(parameters, request.model, model_label, max_tokens, frozenset(extra_fields))
    cache_control = _build_cache_control(parameters)
    system_items, items = _split_input(request)
    body: dict[str, Json] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": build_anthropic_messages(items, model_label, issuer),
        "cache_control": None if _is_caching_explicit(parameters) else cache_control,
    }
    system_blocks = build_system_blocks(system_items, model_label, request.instructions)
    message_blocks = [block for message in body["messages"] for block in message["content"]]
    # Also if it is null: Claude compares only with a message that asked for diagnostics, so the first one asks, too.
    if "comparison_response_id" in (parameters.get("prompt_cache_options") or {}):
        body["diagnostics"] = {"previous_message_id": request.comparison_id}
    # System blocks come first in the prompt; the last breakpoints are those that are kept.
    limit_cache_breakpoints([*system_blocks, *message_blocks], cache_control, _max_breakpoints(parameters))
    for fields in (
        {"system": system_blocks} if system_blocks else {},
        *(_translate_parameter(name, context) for name in parameters),
    ):
        body |= {**fields, "output_config": {**body.get("output_config", {}), **fields.get("output_config", {})}}
    return _drop_refused_thinking({name: value for name, value in body.items() if value or name == "messages"})


def _split_input(request: ModelRequest) -> tuple[list[Item], list[Item]]:
    has_system_messages = "instructions" in find_cache_rules(request.model, {}).appends
    return split_system_items(request.input, has_system_messages=has_system_messages)


def list_ignored_anthropic_fields(
    request: ModelRequest,
    issuer: IssuerTag,
    extra_fields: Collection[str] = (),
    hosted_tools: HostedTools = "refuse",
) -> tuple[str, ...]:
    """List the fields that `build_anthropic_body` ignores, named as in `convo.models.base`; none if it refuses them.

    hosted_tools:  as in `map_request`
    """
    try:
        mapped = map_request(request, "", hosted_tools)
    except (InputFault, Unsupported):
        return ()
    parameters = request.parameters
    known_fields = {"prompt_cache_retention", "prompt_cache_options", "safety_identifier"} | (
        _SUPPORTED_EXTRA_FIELDS & frozenset(extra_fields)
    )
    known_fields |= {"service_tier"} if parameters.get("service_tier") in ("default", "auto") else set()
    reasoning_fields = (
        ("effort", "summary", "generate_summary") if _get_thinking_mode(request.model) != "none" else ("effort",)
    )
    names = [*list_ignored_parameters(parameters, known_fields=known_fields, reasoning_fields=reasoning_fields)]
    if (parameters.get("text") or {}).get("verbosity") not in (None, "medium"):
        names.append("text.verbosity")
    options = parameters.get("prompt_cache_options") or {}
    sent_options = {"mode"} | ({"ttl"} if str(options.get("ttl")) in CLAUDE_TTLS else set())
    sent_options |= set() if request.comparison_id is None else {"comparison_response_id"}
    names += [
        f"prompt_cache_options.{name}"
        for name, value in options.items()
        if name not in sent_options and value is not None
    ]
    item_fields = list_ignored_item_fields(request.input)
    names += [*mapped.ignored, *(name for name in item_fields if not name.endswith(f".{CACHE_BREAKPOINT}"))]
    system_items, items = _split_input(request)
    names += list_dropped_breakpoints([*system_items, *items], _max_breakpoints(parameters))
    if any(item_type(item) == "reasoning" and not is_issued_by(item, issuer) for item in request.input):
        names.append("input.reasoning")
    return tuple(dict.fromkeys(names))


_SUPPORTED_EXTRA_FIELDS = frozenset({"top_k", "stop"})
"""The extra fields that the Messages API accepts."""


def _translate_parameter(name: str, context: _TranslationContext) -> dict[str, Json]:
    """Translate one parameter. Raises Unsupported."""
    value = context.parameters[name]
    if (
        name in _OMITTED_PARAMETERS
        or name == "max_output_tokens"
        or (name in _NO_OP_VALUES and value == _NO_OP_VALUES[name])
    ):
        return {}
    if name in _PARAMETER_TRANSLATORS:
        return _PARAMETER_TRANSLATORS[name](value, context)
    raise UnsupportedParameter(context.model_label, f"the parameter {name!r}", param=name)


def _drop_refused_thinking(body: dict[str, Json]) -> dict[str, Json]:
    """Remove the thinking budget in a turn that began without thinking, where the API would reject it.

    An assistant turn that continues after a tool result must begin with the thinking blocks that led to the call, and
    blocks of another model are not sent. The next turn thinks again.
    """
    last_messages = body["messages"][-2:]
    first_content = (
        len(last_messages) == 2
        and last_messages[1]["content"][0]["type"] == "tool_result"
        and last_messages[0]["content"]
    )
    lacks_thinking = first_content and first_content[0]["type"] not in THINKING_BLOCK_TYPES
    # Models with adaptive thinking accept such a turn.
    if lacks_thinking and _get_thinking_mode(body["model"]) == "budget":
        body.pop("thinking", None)
    return body


_BETA_HEADER = "anthropic-beta"
_BLOCK_BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The beta that allows `thinking.block_binding`, and reports the dropped blocks in `input_transformations`."""

_BINDING_VERSION, _BINDING_FAMILY_VERSIONS = (5, 5), {"fable": (5, 1), "mythos": (5, 1)}
"""The first version whose thinking is bound to its prefix, of the families named and of all others."""


def _add_block_binding(body: dict[str, Json], behavior: PrefixMismatchBehavior) -> dict[str, Json]:
    """Set the behaviour for thinking whose prefix has changed, in every request to a model that checks it.

    Such a model thinks adaptively by default; without thinking the field is rejected. A model whose name has no version
    is sent no field: other servers reject betas that they do not know.
    """
    thinking = body.get("thinking") or {"type": "adaptive"}
    family = next((family for family in _BINDING_FAMILY_VERSIONS if family in body["model"]), "")
    is_bound = _parse_claude_version(body["model"]) >= _BINDING_FAMILY_VERSIONS.get(family, _BINDING_VERSION)
    if (
        behavior == "provider_default"
        or thinking["type"] not in ("adaptive", "enabled")
        or not (is_bound and _MODEL_VERSION.search(body["model"]))
    ):
        return body
    return {**body, "thinking": {**thinking, "block_binding": {"prefix_mismatch_behavior": behavior}}}


# -- parameters -----------------------------------------------------------------------------------


def _make_sampling_translator(name: str) -> Callable[[Json, _TranslationContext], dict[str, Json]]:
    def translate(value: Json, context: _TranslationContext) -> dict[str, Json]:
        # The Responses API allows up to 2, the Messages API up to 1.
        if value > 1:
            raise UnsupportedValue(context.model_label, f"a {name} of {value}", param=name)
        return {name: value}

    return translate


def _translate_tools(tools: Json, context: _TranslationContext) -> dict[str, Json]:
    choice = _translate_tool_choice(context)
    return {"tools": [_translate_tool(tool) for tool in tools], **({"tool_choice": choice} if choice else {})}


def _translate_tool(tool: Json) -> Json:
    # The API requires an input schema; a function without parameters has none.
    schema = {"type": "object", "properties": {}} | (tool.get("parameters") or {})
    description = {"description": tool["description"]} if tool.get("description") else {}
    return {
        "name": tool["name"],
        **description,
        "input_schema": schema,
        **({"strict": True} if tool.get("strict") else {}),
    }


def _translate_tool_choice(context: _TranslationContext) -> dict[str, Json]:
    """Translate the choice of tools and whether calls may be parallel; empty for the default."""
    choice: Json = context.parameters.get("tool_choice") or "auto"
    mode = choice if isinstance(choice, str) else choice["type"]
    if mode not in _TOOL_CHOICES:
        raise UnsupportedValue(context.model_label, f"the tool choice {mode!r}", param="tool_choice")
    chosen: dict[str, Json] = {"type": _TOOL_CHOICES[mode]}
    if mode == "function":
        chosen["name"] = choice["name"]
    if context.parameters.get("parallel_tool_calls") is False and mode != "none":
        chosen["disable_parallel_tool_use"] = True
    return chosen if chosen != {"type": "auto"} else {}


_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none", "function": "tool"}


def _translated_with_tools(value: Json, context: _TranslationContext) -> dict[str, Json]:
    """Return nothing: `_translate_tools` translates the parameter; without tools it has no effect."""
    return {}


def _translate_text(text: Json, context: _TranslationContext) -> dict[str, Json]:
    text_format = text.get("format") or {"type": "text"}
    match text_format.get("type"):
        case "text":
            return {}
        case "json_schema":
            return {"output_config": {"format": {"type": "json_schema", "schema": text_format["schema"]}}}
        case other:
            hint = "set a JSON schema: text.format of type json_schema"
            raise UnsupportedValue(context.model_label, f"the text format {other!r}", param="text.format", hint=hint)


def _translate_reasoning(reasoning: Json, context: _TranslationContext) -> dict[str, Json]:
    return build_thinking_fields(reasoning, context.model, context.model_label, max_tokens=context.max_tokens)


def _translate_include(include: Json, context: _TranslationContext) -> dict[str, Json]:
    """Reject log probabilities. Other values need no field: reasoning is always encrypted, hosted tools rejected."""
    if INCLUDE_LOGPROBS in include:
        raise UnsupportedValue(context.model_label, "logprobs", param="include")
    return {}


MAX_BREAKPOINTS = 4
"""Cache breakpoints that the API accepts in a request, including the automatic one."""


def _build_cache_control(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Build the value of `cache_control`.

    A prefix that is kept for an hour costs 2 times the input price to write, instead of 1.25 times.
    """
    ttl = find_claude_ttl(parameters)
    return {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}


def _is_caching_explicit(parameters: Mapping[str, Json]) -> bool:
    """Whether only the breakpoints of the request are cached; by default also the prefix up to the last block."""
    return bool((parameters.get("prompt_cache_options") or {}).get("mode") == "explicit")


def _max_breakpoints(parameters: Mapping[str, Json]) -> int:
    return MAX_BREAKPOINTS if _is_caching_explicit(parameters) else MAX_BREAKPOINTS - 1


def _translated_to_cache_control(value: Json, context: _TranslationContext) -> dict[str, Json]:
    """Return nothing: `_build_cache_control` translates the parameter."""
    return {}


def _translate_service_tier(tier: Json, context: _TranslationContext) -> dict[str, Json]:
    """Exclude more expensive capacity for the default tier; the other tiers have no equivalent and are optional."""
    return {"service_tier": "standard_only"} if tier == "default" else {}


def _translate_top_k(value: Json, context: _TranslationContext) -> dict[str, Json]:
    return {"top_k": value} if "top_k" in context.extra_fields else {}


def _translate_stop(value: Json, context: _TranslationContext) -> dict[str, Json]:
    sequences = [value] if isinstance(value, str) else value
    return {"stop_sequences": sequences} if "stop" in context.extra_fields else {}


def _translate_safety_identifier(identifier: Json, context: _TranslationContext) -> dict[str, Json]:
    return {"metadata": {"user_id": identifier}}


_PARAMETER_TRANSLATORS: dict[str, Callable[[Json, _TranslationContext], dict[str, Json]]] = {
    "temperature": _make_sampling_translator("temperature"),
    "top_p": _make_sampling_translator("top_p"),
    "tools": _translate_tools,
    "tool_choice": _translated_with_tools,
    "parallel_tool_calls": _translated_with_tools,
    "text": _translate_text,
    "reasoning": _translate_reasoning,
    "include": _translate_include,
    "prompt_cache_retention": _translated_to_cache_control,
    "prompt_cache_options": _translated_to_cache_control,
    "service_tier": _translate_service_tier,
    "safety_identifier": _translate_safety_identifier,
    "top_k": _translate_top_k,
    "stop": _translate_stop,
}
"""Translations of the parameters that the Messages API names otherwise: from the value and the context."""


ThinkingMode: TypeAlias = Literal["none", "budget", "adaptive"]

_MODEL_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:-(\d{1,2}))?(?!\d)")

_NEWEST_VERSION = (99, 0)
MIN_THINKING_TOKENS = 1024
"""Tokens; the API rejects a smaller budget."""

_THINKING_TOKENS = {
    "minimal": MIN_THINKING_TOKENS,
    "low": 4096,
    "medium": 10_240,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 32_768,
}
"""Thinking budget in tokens, by effort."""

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
"""The Messages API's effort for each effort of the Responses API."""


def build_thinking_fields(
    reasoning: Mapping[str, Json], model: str, model_label: str, *, max_tokens: int
) -> dict[str, Json]:
    """Build the fields of a request that `reasoning` asks for.

    max_tokens:  the limit of the whole output, thinking included

    Raises Unsupported.
    """
    effort, summary = reasoning.get("effort"), reasoning.get("summary") or reasoning.get("generate_summary")
    display = {"display": "summarized"} if summary else {}
    if effort is not None and effort != "none" and effort not in _EFFORTS:
        raise UnsupportedValue(model_label, f"the reasoning effort {effort!r}", param="reasoning.effort")
    match _get_thinking_mode(model):
        case "none" if effort not in (None, "none"):
            raise UnsupportedValue(model_label, "a reasoning effort", param="reasoning.effort")
        case "budget" if effort not in (None, "none"):
            return {
                "thinking": {
                    "type": "enabled",
                    "budget_tokens": _thinking_budget_tokens(effort, max_tokens, model_label),
                    **display,
                }
            }
        case "adaptive" if effort == "none":
            return _disable_thinking(model, model_label)
        case "adaptive" if effort or display:
            effort_fields = {"output_config": {"effort": _translate_effort(effort, model)}} if effort else {}
            return {"thinking": {"type": "adaptive", **display}, **effort_fields}
    return {}


def _get_thinking_mode(model: str) -> ThinkingMode:
    version = _parse_claude_version(model)
    if version >= (4, 6):
        return "adaptive"
    return "budget" if version >= (3, 7) else "none"


def _parse_claude_version(model: str) -> tuple[int, int]:
    """Return major and minor version of a model name: (4, 0) for "claude-opus-4-20250514"."""
    match = _MODEL_VERSION.search(model)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST_VERSION


def _thinking_budget_tokens(effort: str, max_tokens: int, model_label: str) -> int:
    """Return the thinking budget in tokens: at most 3/4 of the output limit, but at least the minimum."""
    if max_tokens <= MIN_THINKING_TOKENS:
        raise UnsupportedValue(
            model_label, f"a reasoning effort within {max_tokens} output tokens", param="max_output_tokens"
        )
    return max(MIN_THINKING_TOKENS, min(_THINKING_TOKENS[effort], max_tokens * 3 // 4))


def _translate_effort(effort: str, model: str) -> str:
    """Translate an effort; version 4.6 has no xhigh, so it becomes max."""
    return "max" if effort == "xhigh" and _parse_claude_version(model) == (4, 6) else _EFFORTS[effort]


def _disable_thinking(model: str, model_label: str) -> dict[str, Json]:
    """Disable thinking: up to 4.8 it is off by default; some of the later models cannot disable it."""
    if _parse_claude_version(model) < (5, 0):
        return {}
    if _parse_claude_version(model) >= (5, 5) and "opus" in model:
        raise UnsupportedValue(model_label, "the reasoning effort 'none'", param="reasoning.effort", hint="use low")
    can_use_between_tools = _parse_claude_version(model) >= (5, 5) and "sonnet" in model
    return {"thinking": {"type": "between_tools" if can_use_between_tools else "disabled"}}
