"""What may be asked for: every field of a request, and what becomes of it.

    honoured here     input, previous_response_id, conversation, store
    the model's       what it cannot honour it refuses by name
    echoed            stands in the response as it was asked for
    refused           what would need something that this endpoint does not have

A field that is in none of these rows is refused by its name: what is dropped in silence is a
wrong answer that nobody notices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from convo.endpoints.contract import INCLUDABLE
from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.checks import (
    Check,
    anything,
    array,
    boolean,
    decimal,
    each,
    fields,
    handle,
    integer,
    metadata,
    object_,
    one_of,
    only,
    string,
    whole,
)
from convo.endpoints.embedded.inputs import is_trigger, items_of, triggered
from convo.items import Item, Json


def _string_or_object(name: str, value: Json) -> None:
    if not isinstance(value, str):
        fields({"type": string()})(name, value)


def _tool(name: str, value: Json) -> None:
    fields({"type": string()})(name, value)
    if value["type"] in ("function", "custom"):
        fields({"name": string()}, {"description": string(), "parameters": object_, "strict": boolean})(name, value)


def _conversation(name: str, value: Json) -> None:
    if isinstance(value, str):
        handle(name, value)
    else:
        fields({"id": handle})(name, value)


def _conversation_id(value: Json) -> str | None:
    return value if isinstance(value, str) or value is None else str(value["id"])


def _stream_options(name: str, value: Json) -> None:
    object_(name, value)
    only(("include_obfuscation",), value, within=f"{name}.")
    if value.get("include_obfuscation") is not None:
        boolean(f"{name}.include_obfuscation", value["include_obfuscation"])


def _background_options(name: str, value: Json) -> None:
    """What runs in the background begins at once: a later window would be a promise of a lower price."""
    object_(name, value)
    only(("completion_window",), value, within=f"{name}.")
    if "completion_window" in value:
        one_of("soonest")(f"{name}.completion_window", value["completion_window"])


REASONING = fields(
    optional={
        "effort": one_of("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "summary": one_of("auto", "concise", "detailed"),
        "generate_summary": one_of("auto", "concise", "detailed"),
    }
)


def _stop(name: str, value: Json) -> None:
    if not isinstance(value, str):
        each(string())(name, value)


MANAGEMENT = fields({"type": one_of("compaction"), "compact_threshold": integer(1)})

HONOURED: Mapping[str, Check] = {
    "input": anything,
    "previous_response_id": handle,
    "conversation": _conversation,
    "store": boolean,
    "stream": boolean,
    "stream_options": _stream_options,
    "context_management": each(MANAGEMENT),
    "client_metadata": object_,
    "background_options": _background_options,
}
"""What the endpoint itself acts on; it always streams. `stream: false` says that nobody is shown the events.

What a client tells of itself in `client_metadata`, as Codex does, is its own affair: it goes no further.
"""

EXTRA: Mapping[str, Check] = {
    "chat_template_kwargs": object_,
    "seed": whole,
    "stop": _stop,
    "top_k": integer(0),
}
"""Not of the API, but of many servers: sent to a provider whose `extra_fields` name them."""

FOR_THE_MODEL: Mapping[str, Check] = {
    **EXTRA,
    "access_programs": object_,
    "frequency_penalty": decimal(-2, 2),
    "image": object_,
    "include": each(one_of(*INCLUDABLE)),
    "max_output_tokens": integer(1),
    "max_tool_calls": integer(1),
    "moderation": object_,
    "parallel_tool_calls": boolean,
    "presence_penalty": decimal(-2, 2),
    "prompt": fields({"id": string()}),
    "prompt_cache_key": string(),
    "prompt_cache_options": object_,
    "prompt_cache_retention": one_of("in_memory", "24h"),
    "reasoning": REASONING,
    "safety_identifier": string(),
    "service_tier": one_of("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
    "temperature": decimal(0, 2),
    "text": fields(optional={"format": fields({"type": string()}), "verbosity": one_of("low", "medium", "high")}),
    "tool_choice": _string_or_object,
    "tools": each(_tool),
    "top_logprobs": integer(0, 20),
    "top_p": decimal(0, 1),
    "truncation": one_of("auto", "disabled"),
    "user": string(),
}

ECHOED: Mapping[str, Check] = {"background": boolean, "instructions": string(), "metadata": metadata}
"""What stands in the response and not among the model's parameters; a model gets instructions by themselves."""

FIELDS: Mapping[str, Check] = {"model": string(), **HONOURED, **FOR_THE_MODEL, **ECHOED}

COUNTED = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text"),
        *("reasoning", "parallel_tool_calls", "truncation"),
    }
)
"""The fields of a request to count tokens."""


@dataclass(frozen=True)
class Request:
    """One request that can be carried out.

    model:         "provider/model", as it was written; "" only where tokens are counted
    items:         the input as items, as they travelled
    previous:      the response to go on from
    conversation:  the conversation to speak in
    parameters:    the fields that say how to answer, with instructions and metadata; nulls left out
    generate:      whether a model is asked; else only what a later request goes on from is prepared
    compact_at:    the tokens from which on the history is made smaller before it is answered
    compact_now:   nothing but a smaller history is asked for
    shown:         whether somebody is shown the events as they come
    padded:        whether padding of events was asked for; there is none
    """

    model: str
    items: tuple[Item, ...] = ()
    previous: str | None = None
    conversation: str | None = None
    store: bool = True
    parameters: Mapping[str, Json] = field(default_factory=dict)
    generate: bool = True
    compact_at: int | None = None
    compact_now: bool = False
    shown: bool = True
    padded: bool = False

    @property
    def background(self) -> bool:
        return bool(self.parameters.get("background"))

    @property
    def instructions(self) -> str | None:
        """For this answer alone: the endpoint does not carry them over."""
        return self.parameters.get("instructions")

    @property
    def for_the_model(self) -> dict[str, Json]:
        return {name: value for name, value in self.parameters.items() if name in FOR_THE_MODEL}


def read(body: Mapping[str, Json]) -> Request:
    """The request in `body`.

    raises:  Refused  names the parameter, in the real API's words
    """
    request = _read(body)
    if not request.model:
        raise refusals.missing("model")
    return request


def _read(body: Mapping[str, Json]) -> Request:
    """As `read`, for a request that need not name a model: `model` is then empty."""
    only(FIELDS, body)
    given = {name: value for name, value in body.items() if value is not None}
    for name, value in given.items():
        FIELDS[name](name, value)
    previous, conversation = given.get("previous_response_id"), _conversation_id(given.get("conversation"))
    if previous and conversation:
        raise refusals.both_owners()
    if given.get("background") and not given.get("store", True):
        raise refusals.not_honoured("background", "an answer that nobody waits for is stored; leave out `store`")
    if not given.get("input") and not (previous or conversation or given.get("prompt")):
        raise refusals.no_input()
    items = items_of("input", given.get("input") or [])
    return Request(
        model=given.get("model", ""),
        items=tuple(item for item in items if not is_trigger(item)),
        previous=previous,
        conversation=conversation,
        store=given.get("store", True),
        parameters={name: value for name, value in given.items() if name in FOR_THE_MODEL or name in ECHOED},
        compact_at=min((one["compact_threshold"] for one in given.get("context_management") or ()), default=None),
        compact_now=triggered(items),
        shown=given.get("stream", True),
        padded=bool((given.get("stream_options") or {}).get("include_obfuscation")),
    )


def read_connected(body: Mapping[str, Json]) -> Request:
    """The request in `body`, which came over a connection that always streams. raises: as for `read`"""
    for name in (name for name in NOT_CONNECTED if body.get(name)):
        raise refusals.not_honoured(name, "not over a connection, where every answer is streamed to whoever asked")
    if body.get("stream") is False:
        raise refusals.not_honoured("stream", "every answer over a connection is streamed")
    generate = body.get("generate")
    if generate is not None:
        boolean("generate", generate)
    request = read({name: value for name, value in body.items() if name not in ("generate", *NOT_CONNECTED)})
    prewarm = (request.parameters.get("prompt_cache_options") or {}).get("prewarm")
    return replace(request, generate=generate is not False and not prewarm)


NOT_CONNECTED = ("background", "stream_options")


def read_count(body: Mapping[str, Json]) -> Request:
    """The request in `body` whose tokens are to be counted. raises: as for `read`"""
    if body.get("personality") is not None:
        raise refusals.not_honoured("personality", "nobody here knows what it would cost")
    only(COUNTED, {name: value for name, value in body.items() if name != "personality"})
    return _read({name: value for name, value in body.items() if name != "personality"})


def to_compact(body: Mapping[str, Json]) -> dict[str, Json]:
    """`body` as the request whose history is to be made smaller. raises: Refused  it has a field of another request"""
    only(COMPACTED, body)
    return {**body, "store": False}


COMPACTED = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "image", "service_tier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    }
)
"""The fields of a request to compact."""


def read_items(value: Json) -> tuple[Item, ...]:
    """The items that a conversation is to get. raises: Refused"""
    array("items", value)
    if len(value) > MOST_ITEMS:
        raise refusals.too_long("items", "array", MOST_ITEMS, len(value))
    items = items_of("items", value)
    if any(map(is_trigger, items)):
        raise refusals.not_honoured("items", "a compaction is asked for with a response, not kept among items")
    return items


MOST_ITEMS = 20
"""How many items a conversation takes at a time."""
