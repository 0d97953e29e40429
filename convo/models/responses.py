"""Adapter for the Responses API: OpenAI, Azure OpenAI, vLLM, Ollama; always `store: false`.

The whole history is sent each time. Ids that mean nothing to the server are removed, and encrypted
reasoning is always requested, because the next request needs it. Events pass through unchanged,
except for the server's own response fields.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from convo.config.sections import PROVIDER_EXTRA_FIELDS
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import EndpointFault, StreamBroken
from convo.history.accumulator import validate_stream_event
from convo.history.items import Item, Json, StreamEvent, item_type, to_resendable
from convo.models.base import (
    OPENAI_RESPONSES_EXTRA_FIELDS,
    IssuerTag,
    ModelRequest,
    check_provider_reachable,
    has_issuer_tag,
    is_issued_by,
    make_issuer_tag,
    parse_model_names,
    tag_encrypted_content,
    untag_items,
)
from convo.models.errors import fault_from_event, map_provider_errors, validate_event
from convo.models.http import OpenAIClientOptions, SSEClient, make_http_client, make_openai_client, make_sse_client
from convo.models.stream import is_token_count
from convo.runtime import NewId
from convo.usage.models import has_encrypted_reasoning

if TYPE_CHECKING:
    from httpx2 import AsyncClient


_DRAIN_TIMEOUT_S = 1.0
"""Seconds to wait for the end of the body after the last event."""

_UNSUPPORTED_STATUSES = (404, 405, 501)
"""The statuses of a server that cannot count tokens or cannot compact."""


class ResponsesModel:
    """The models of one account; `http_client` is a transport to use instead of the package's own."""

    def __init__(
        self,
        account: OpenAIClientOptions,
        new_id: NewId,
        *,
        http: "AsyncClient | None" = None,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        extra_fields: Collection[str] = (),
    ) -> None:
        self._account, self._new_id, self._http, self._limits = account, new_id, http, limits
        self._line: SSEClient | None = None
        self._extra = extra_fields

    async def respond(self, ask: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        body = {
            **self._deployed(build_responses_body(ask, self._maker(ask), self._who(ask), self._extra)),
            "stream": True,
        }
        asked, answering = self._account.asked(body), False
        events = ResponsesEventTranslator(self._maker(ask), self._new_id, ask.model)
        async with aclosing(self._connected().streamed("/responses", body, asked, exact=True)) as arriving:
            async for value in arriving:
                event = validate_stream_event(validate_event(value, asked))
                failure = fault_from_event(event, asked, answering=answering)
                if failure:
                    raise failure
                ours = events.read(event)
                if events.end is not None:
                    await _drain_events(arriving)
                    yield events.end
                    return
                if ours is not None:
                    answering = True
                    yield ours
        raise StreamBroken(f"{asked.provider} ended the stream before the answer was whole")

    def ignored(self, ask: ModelRequest) -> tuple[str, ...]:
        return list_ignored_responses_fields(ask, self._maker(ask), self._extra)

    async def warm(self, model: str) -> None:
        await asyncio.to_thread(import_module, "openai")

    async def check_request(self, ask: ModelRequest) -> None:
        build_responses_body(ask, self._maker(ask), self._who(ask))
        await check_provider_reachable(self, self._account.provider)

    async def count(self, ask: ModelRequest) -> int | None:
        body = self._deployed(build_count_body(ask, self._maker(ask), self._who(ask)))
        answer = await self._post("/responses/input_tokens", body)
        found = answer.get("input_tokens") if isinstance(answer, Mapping) else None
        return found if isinstance(found, int) else None

    async def compact(self, ask: ModelRequest) -> Sequence[Item] | None:
        body = self._deployed(build_compact_body(ask, self._maker(ask), self._who(ask)))
        answer = await self._post("/responses/compact", body)
        if answer is None:
            return None
        window = answer.get("output") if isinstance(answer, Mapping) else None
        if not isinstance(window, list) or not all(isinstance(item, dict) for item in window):
            raise StreamBroken(f"{self._account.provider} answered with something that is not a compacted window")
        return [tag_encrypted_content(item, self._maker(ask)) for item in window]

    async def models(self) -> Sequence[str]:
        with map_provider_errors(self._account.asked({})):
            listed = await self._connected().client.get("/models", cast_to=object)
        return parse_model_names(listed, self._account.provider)

    async def aclose(self) -> None:
        if self._line is not None:
            await self._line.client.close()
        elif self._http is not None:
            await self._http.aclose()

    async def _post(self, path: str, body: Mapping[str, Json]) -> Json:
        """Request one JSON object; None from a server that has no such path."""
        try:
            with map_provider_errors(self._account.asked(body)):
                return await self._connected().client.post(path, cast_to=object, body=body)
        except EndpointFault as fault:
            if fault.status in _UNSUPPORTED_STATUSES and fault.code != "model_not_found":
                return None
            raise

    def _deployed(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Set the model name that the account's deployment has."""
        return {**body, "model": self._account.deployment or body["model"]}

    def _maker(self, ask: ModelRequest) -> IssuerTag:
        account = self._account
        return make_issuer_tag(account.provider, ask.model, account.base_url, account.organisation, account.project)

    def _who(self, ask: ModelRequest) -> str:
        return f"{self._account.provider}/{ask.model}"

    def _connected(self) -> SSEClient:
        if self._line is None:
            http = self._http or make_http_client()
            self._line = make_sse_client(
                self._account, make_openai_client(self._account, http, self._limits), http, self._limits
            )
        return self._line


async def _drain_events(arriving: AsyncGenerator[Json, None]) -> None:
    """Read the rest of the stream for a limited time, so that the connection can be reused."""
    with suppress(TimeoutError, EndpointFault):
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            async for _ in arriving:
                pass


_START_EVENTS = frozenset({"response.created", "response.queued", "response.in_progress"})
_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})
_DROPPED_FIELDS = frozenset({"sequence_number", "obfuscation"})

_DEFAULT_ERROR = {"code": "server_error", "message": "The provider stopped the answer."}


class ResponsesEventTranslator:
    """Translates the events of one response; `terminal_event` is set when it arrives."""

    def __init__(self, by: IssuerTag, new_id: NewId, model: str) -> None:
        self.end: StreamEvent | None = None
        self._by, self._new_id, self._model = by, new_id, model
        self._ids: dict[int, str] = {}
        self._done: dict[int, Item] = {}

    def read(self, event: StreamEvent) -> StreamEvent | None:
        """Return the event to pass on; None for keep-alives, the server's response events and the terminal event."""
        name = event["type"]
        if name in _TERMINAL_EVENTS:
            self.end = self._end(event)
            return None
        if name in _ITEM_EVENTS:
            return self._around(event)
        if name in _START_EVENTS or not name.startswith("response."):
            return None
        return self._within(event)

    def _around(self, event: StreamEvent) -> StreamEvent:
        index = event.get("output_index", len(self._ids))
        item = self._named(event.get("item") or {}, index)
        if event["type"] == "response.output_item.done":
            self._done[index] = item
        return {**_without_dropped_fields(event), "output_index": index, "item": item}

    def _within(self, event: StreamEvent) -> StreamEvent:
        """Add the item's id to an event that belongs to an item and lacks it."""
        index = event.get("output_index")
        if event.get("item_id") or index not in self._ids:
            return _without_dropped_fields(event)
        return {**_without_dropped_fields(event), "item_id": self._ids[index]}

    def _end(self, event: StreamEvent) -> StreamEvent:
        response = event.get("response") or {}
        status = str(event["type"]).removeprefix("response.").replace("cancelled", "failed")
        output = [self._named(item, index) for index, item in enumerate(response.get("output") or ())]
        ended: dict[str, Json] = {
            "status": status,
            "model": _str_field(response, "model") or self._model,
            "output": output or [self._done[index] for index in sorted(self._done)],
            "usage": _clean_usage(response.get("usage")),
        }
        if status == "incomplete":
            reason = _str_field(response.get("incomplete_details") or {}, "reason")
            ended["incomplete_details"] = {"reason": reason} if reason else None
        if status == "failed":
            error = response.get("error") or {}
            ended["error"] = {name: _str_field(error, name) or words for name, words in _DEFAULT_ERROR.items()}
        return {"type": f"response.{status}", "response": ended}

    def _named(self, item: Item, index: int) -> Item:
        """Return the item with an id, which is the same in each event, and with its encrypted content tagged."""
        if item.get("id"):
            self._ids[index] = item["id"]
        elif index not in self._ids:
            self._ids[index] = self._new_id(_ID_PREFIXES.get(item_type(item), "item"))
        return tag_encrypted_content({**item, "id": self._ids[index]}, self._by)


_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}


_USAGE_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_USAGE_DETAILS = ("input_tokens_details", "output_tokens_details")


def _clean_usage(reported: Mapping[str, Json] | None) -> Json:
    """Remove the counts that are no numbers of tokens; fields unknown to the API stay."""
    if not reported:
        return None
    used = {name: value for name, value in reported.items() if name not in _USAGE_COUNTS or is_token_count(value)}
    for name in _USAGE_DETAILS:
        if name in used:
            details = used[name] or {}
            used[name] = {figure: value for figure, value in details.items() if is_token_count(value)}
    return used


def _str_field(fields: Mapping[str, Json], name: str) -> str | None:
    """Return a field that is a string; None for any other value."""
    found = fields.get(name)
    return found if isinstance(found, str) else None


def _without_dropped_fields(event: StreamEvent) -> dict[str, Json]:
    return {name: value for name, value in event.items() if name not in _DROPPED_FIELDS}


_INCLUDE_ENCRYPTED_REASONING = "reasoning.encrypted_content"

_OMITTED_PARAMETERS = frozenset(
    {
        # belong to the response resource, which the owner of the state keeps
        "store", "stream", "stream_options", "background", "metadata",
        "previous_response_id", "conversation", "context_management",
    }
)  # fmt: skip

_UNSUPPORTED_EXTRA_FIELDS = frozenset(PROVIDER_EXTRA_FIELDS) - OPENAI_RESPONSES_EXTRA_FIELDS
"""Extra fields that the Responses API does not have."""

_COUNT_PARAMETERS = frozenset({"tools", "tool_choice", "text", "reasoning", "parallel_tool_calls", "truncation"})
"""The parameters that the number of input tokens depends on."""

_COMPACT_PARAMETERS = frozenset({"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier"})
"""The parameters that a compaction request accepts."""


def build_responses_body(ask: ModelRequest, by: IssuerTag, who: str, extra: Collection[str] = ()) -> dict[str, Json]:
    """Build the body of a request, without `stream`.

    extra_fields:  the extra fields that are sent (see `convo.models.base`)
    issuer:        the issuer whose encrypted content is sent back (see `convo.models.base`)
    model_label:   the model's name in errors

    Raises Unsupported for a compaction item of another issuer.
    """
    unknown = _UNSUPPORTED_EXTRA_FIELDS - frozenset(extra)
    asked = {
        name: value
        for name, value in ask.parameters.items()
        if name not in _OMITTED_PARAMETERS and name not in unknown and value is not None
    }
    included = _include_values(ask)
    return {**_common_fields(ask, by, who), **asked, "store": False, **({"include": included} if included else {})}


def list_ignored_responses_fields(ask: ModelRequest, by: IssuerTag, extra: Collection[str] = ()) -> tuple[str, ...]:
    """List the fields that `build_responses_body` ignores, named as in `convo.models.base`."""
    names = [
        name
        for name in ask.parameters
        if name in _UNSUPPORTED_EXTRA_FIELDS - frozenset(extra) and ask.parameters[name] is not None
    ]
    if any(item_type(item) == "reasoning" and not _is_reasoning_sent(item, by) for item in ask.input):
        names.append("input.reasoning")
    return tuple(names)


def _is_reasoning_sent(item: Item, by: IssuerTag) -> bool:
    """Whether a reasoning item is sent: it is encrypted, and not tagged with another issuer."""
    seal = item.get("encrypted_content")
    return bool(seal) and (is_issued_by(item, by) or not has_issuer_tag(item))


def build_count_body(ask: ModelRequest, by: IssuerTag, who: str) -> dict[str, Json]:
    """Build the body of a request that counts input tokens. Raises Unsupported."""
    return {**_common_fields(ask, by, who), **_pick_parameters(_COUNT_PARAMETERS, ask.parameters)}


def build_compact_body(ask: ModelRequest, by: IssuerTag, who: str) -> dict[str, Json]:
    """Build the body of a compaction request. Raises Unsupported."""
    return {**_common_fields(ask, by, who), **_pick_parameters(_COMPACT_PARAMETERS, ask.parameters)}


def _common_fields(ask: ModelRequest, by: IssuerTag, who: str) -> dict[str, Json]:
    told: dict[str, Json] = {} if ask.instructions is None else {"instructions": ask.instructions}
    return {"model": ask.model, **({"input": _input_items(ask, by, who)} if ask.input else {}), **told}


def _input_items(ask: ModelRequest, by: IssuerTag, who: str) -> list[Item]:
    sent = (to_resendable(item) for item in untag_items(ask.input, by, who, foreign=True))
    return [item for item in sent if item is not None]


def _include_values(ask: ModelRequest) -> list[str]:
    wanted = list(ask.parameters.get("include") or ())
    if has_encrypted_reasoning(ask.model) and _INCLUDE_ENCRYPTED_REASONING not in wanted:
        wanted.append(_INCLUDE_ENCRYPTED_REASONING)
    return wanted


def _pick_parameters(names: frozenset[str], parameters: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name in names and value is not None}
