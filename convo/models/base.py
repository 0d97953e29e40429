"""The base class `Model` and the functions that all adapters share.

A model receives the whole history with each request and keeps no state, so every state strategy works with every model.
The module also groups items by role, names the request fields that an adapter ignores, reads a provider's list of
models, and tags encrypted content with its issuer.

A tag is the prefix of `encrypted_content`: "convo1:provider/model:account:", or in the opaque form, which names no
model, "convo2:digest:". Encrypted content is sent to its issuer only: reasoning of another issuer is omitted, a
compaction item of another issuer is rejected.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

from convo.config.sections import PROVIDER_EXTRA_FIELDS
from convo.errors import EndpointFault, InputFault, KeyRefused, StreamBroken, Unreachable, UnsupportedValue
from convo.history.items import OUTPUT_BY_CLIENT_CALL, Item, Json, StreamEvent, item_type
from convo.history.pairing import call_index_by_output
from convo.history.tree import derive
from convo.models.request_fields import MODEL_FIELDS, REQUEST_FIELDS


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model; models keep no state between requests.

    model:         the provider's own name of the model, without the provider prefix
    input:         the whole history as items, oldest first; every item_reference is already resolved
    instructions:  system instructions of this request only
    parameters:    the other fields of the Responses request, unchanged: temperature, top_p, max_output_tokens, text,
                   tools, tool_choice, reasoning, ...
    comparison_id: the provider's own id of the response in `prompt_cache_options.comparison_response_id`; None if it is
                   not known that this provider made it
    """

    model: str
    input: Sequence[Item]
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    comparison_id: str | None = None

    @property
    def wants_summary(self) -> bool:
        """Whether the request asks for a summary of the reasoning."""
        reasoning = self.parameters.get("reasoning") or {}
        return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


HostedToolsUse: TypeAlias = Literal["run", "auto", "refuse", "omit"]
"""Use of hosted tools: the model's server runs them ("run"), or as the setting `hosted_tools`."""


class Model:
    """A stateless model adapter, or a model over another one.

    An adapter yields events in the Responses API's order: each item is added before its parts and done after them,
    every output item has an id, and no event has a `sequence_number` (the owner of the response counts). The last event
    is the only terminal event: `response.completed`, `response.incomplete` or `response.failed`. Its `response` holds
    only `output`, `usage`, `incomplete_details`, `error` and `model`.

    An adapter raises Unsupported for a request that it cannot honour, before it sends anything, and maps every error of
    a provider or package to `convo.errors`. Closing the generator cancels the request immediately. The caller reads the
    generator to its end or closes it.

    provider:      the provider's name in the settings; None if the model does not know it
    hosted_tools:  the use of hosted tools, among them `mcp`; a server that runs them may know file ids
    """

    provider: str | None = None
    hosted_tools: HostedToolsUse = "refuse"

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        raise NotImplementedError

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        """Return the fields of the request that the model ignores; empty where it sends them all.

        Each is named once, as `list_ignored_parameters` and `list_ignored_item_fields` do.
        """
        return ()

    async def warm(self, model: str) -> None:
        """Do the preparation that the first request to `model` would wait for; send no request.

        Raises the errors that this first request would raise.
        """

    async def check_request(self, request: ModelRequest) -> None:
        """Raise the errors of a request that are known without a response; nothing is billed.

        Checked: the request can be translated, the server is reachable and accepts the key. Not checked: the server has
        the model, the input fits the context window, the quota is sufficient.

        Raises Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused or RequestRefused.
        """

    async def count(self, request: ModelRequest) -> int | None:
        """Return the exact number of input tokens, or None where the provider cannot count them in advance."""
        return None

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        """Return the compacted input as the provider's own compaction makes it; None where it has none.

        Encrypted items of the result can be read by the same model only. Usage is not reported.

        Raises RequestRefused where the provider has no compaction for this model; the caller may summarize instead.
        """
        return None

    async def aclose(self) -> None:
        """Close connections and stop processes. The model is not used afterwards."""


REACHABLE_TIMEOUT_S = 10.0
"""Seconds within which a server must answer the reachability check."""

FORBIDDEN_STATUS = 403
"""The status for a valid key without the permission."""


ListedModels: TypeAlias = Mapping[str, str | None]
"""The shutdown dates of a server's models as YYYY-MM-DD, by name; None where it reports none."""


@runtime_checkable
class ModelLister(Protocol):
    """A server that lists its models."""

    async def list_models(self) -> ListedModels:
        """Return the models by the names that the server accepts, without the provider. Raises EndpointFault."""
        ...

    async def warm(self, model: str) -> None:
        """Do the preparation that needs no request."""
        ...

    async def aclose(self) -> None: ...


async def fetch_models(server: ModelLister, provider: str, *, timeout_s: float) -> ListedModels:
    """Return the models that `server` lists, and close it.

    provider:   the server's name in errors
    timeout_s:  seconds for the response; imports and other preparation are not counted

    Raises EndpointFault.
    """
    try:
        await server.warm("")
        async with asyncio.timeout(timeout_s):
            return await server.list_models()
    except TimeoutError as error:
        raise Unreachable(f"{provider} did not respond in {timeout_s:g} seconds") from error
    finally:
        await server.aclose()


async def check_provider_reachable(
    server: ModelLister, provider: str, *, timeout_s: float = REACHABLE_TIMEOUT_S
) -> None:
    """Check that a server responds and accepts the key. The list of models is requested, which costs nothing.

    Other errors are ignored: some servers have no such list, and some keys may not read it. For the same reason a 403
    and a missing scope are no errors here.

    Raises Unreachable or KeyRefused.
    """
    try:
        await server.warm("")
        async with asyncio.timeout(timeout_s):
            await server.list_models()
    except TimeoutError as error:
        raise Unreachable(f"{provider} did not respond in {timeout_s:g} seconds") from error
    except Unreachable:
        raise
    except KeyRefused as refused:
        if refused.status != FORBIDDEN_STATUS and "scope" not in refused.message:
            raise
    except EndpointFault:
        return


def parse_models(listed: Json, provider: str) -> ListedModels:
    """Parse a server's list of models: a list, or an object with a list in `data`, where null is an empty list.

    Raises StreamBroken for anything else. OpenAI and Azure give each row a `shutdown_date`.
    """
    entries = listed.get("data") or [] if isinstance(listed, Mapping) and "data" in listed else listed
    rows: Json = entries if isinstance(entries, list) else [None]
    if all(isinstance(row, Mapping) and isinstance(row.get("id"), str) for row in rows):
        return {row["id"]: _read_date(row.get("shutdown_date")) for row in rows}
    raise StreamBroken(f"{provider} sent a response that is not a list of models", hint="check its base_url")


def _read_date(value: Json) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value) else None


def parse_token_count(response: Json) -> int | None:
    """Return the input tokens that a server counted; None if its response has no number."""
    token_count = response.get("input_tokens") if isinstance(response, Mapping) else None
    return token_count if isinstance(token_count, int) else None


RoleGroup: TypeAlias = tuple[bool, list[Item]]
"""Whether the items are the assistant's, and the items."""

_ASSISTANT_TYPES = frozenset({"reasoning", *OUTPUT_BY_CLIENT_CALL})


def group_by_role(items: Iterable[Item]) -> list[RoleGroup]:
    """Group `items` into alternating groups of the assistant's items and of all others.

    The outputs of a group's calls come first in the next group, in the order of the calls. An output without a call
    stays in its position.
    """
    history = list(items)
    call_indexes = {
        output_index: call_index
        for output_index, call_index in call_index_by_output(history).items()
        if call_index >= 0 and item_type(history[call_index]) in OUTPUT_BY_CLIENT_CALL
    }
    output_indexes = {call_index: output_index for output_index, call_index in call_indexes.items()}
    ordered: list[tuple[bool, Item]] = []
    open_outputs: list[tuple[bool, Item]] = []  # of the calls in the open group
    for index, item in enumerate(history):
        kind = item_type(item)
        is_assistant = item.get("role") == "assistant" if kind == "message" else kind in _ASSISTANT_TYPES
        if not is_assistant:
            ordered += open_outputs
            open_outputs = []
            if index in call_indexes:
                continue
        elif index in output_indexes:
            open_outputs.append((False, history[output_indexes[index]]))
        ordered.append((is_assistant, item))
    groups: list[RoleGroup] = []
    for is_assistant, item in (*ordered, *open_outputs):
        if not groups or groups[-1][0] != is_assistant:
            groups.append((is_assistant, []))
        groups[-1][1].append(item)
    return groups


ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX = "convo1:", "convo2:"
ENCRYPTED_CONTENT = "encrypted_content"


class IssuerTag(str):
    """The tag of the issuer of encrypted content; `opaque` is the form that names no model."""

    __slots__ = ("opaque",)
    opaque: str


@lru_cache(256)
def make_issuer_tag(provider: str, model: str, *scope_parts: str | None) -> IssuerTag:
    """Build the tag of a model.

    model:        the name in the request
    scope_parts:  the other values that decide whether the content can be decrypted: base URL, organisation, project
    """
    scope_hash = sha256("\n".join(part or "" for part in scope_parts).encode()).hexdigest()[:12]
    tag = IssuerTag(f"{ISSUER_TAG_PREFIX}{quote(f'{provider}/{model}')}:{scope_hash}:")
    tag.opaque = _opaque_tag(tag)
    return tag


def _opaque_tag(tag: str) -> str:
    return f"{OPAQUE_TAG_PREFIX}{sha256(tag.encode()).hexdigest()[:24]}:"


NO_ISSUER = make_issuer_tag("", "")
"""The tag of no issuer: no encrypted content has it."""


def tag_encrypted_content(item: Item, issuer: str) -> Item:
    """Prefix the item's encrypted content, if any, with the tag of its issuer."""
    return (
        {**item, ENCRYPTED_CONTENT: issuer + item[ENCRYPTED_CONTENT]}
        if isinstance(item.get(ENCRYPTED_CONTENT), str)
        else item
    )


def hide_issuer_model(item: Item) -> Item:
    """Replace the item's tag by its opaque form."""
    encrypted = item.get(ENCRYPTED_CONTENT)
    if not isinstance(encrypted, str) or not encrypted.startswith(ISSUER_TAG_PREFIX):
        return item
    prefix, model, scope_hash, rest = encrypted.split(":", 3)
    return {**item, ENCRYPTED_CONTENT: _opaque_tag(f"{prefix}:{model}:{scope_hash}:") + rest}


def untag_item(item: Item, issuer: IssuerTag, model_label: str, *, keep_untagged: bool = False) -> Item | None:
    """Remove the tag of this issuer from `item`. Returns None for reasoning of another issuer.

    keep_untagged:  send reasoning without a tag to the server, which may have issued it to the client directly
    model_label:    the model's name in errors

    Raises Unsupported for a compaction item of another issuer.
    """
    encrypted = item.get(ENCRYPTED_CONTENT)
    if not isinstance(encrypted, str):
        return item
    for tag in (issuer, issuer.opaque):
        if encrypted.startswith(tag):
            return {**item, ENCRYPTED_CONTENT: encrypted[len(tag) :]}
    if item_type(item) == "reasoning":
        return item if keep_untagged and not has_issuer_tag(item) else None
    if encrypted.startswith((ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX)):
        issuer_model = encrypted.split(":")[1] if encrypted.startswith(ISSUER_TAG_PREFIX) else "the model that made it"
        hint = f"continue with {issuer_model}, or fork from before the encrypted item"
        raise UnsupportedValue(model_label, f"a {item_type(item)} encrypted by another model", param="input", hint=hint)
    return item


def has_issuer_tag(item: Item) -> bool:
    """Whether the item's encrypted content has a tag."""
    encrypted = item.get(ENCRYPTED_CONTENT)
    return isinstance(encrypted, str) and encrypted.startswith((ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX))


def is_issued_by(item: Item, issuer: IssuerTag) -> bool:
    """Whether the item's encrypted content has the tag of `issuer`."""
    encrypted = item.get(ENCRYPTED_CONTENT)
    return isinstance(encrypted, str) and encrypted.startswith((issuer, issuer.opaque))


def untag_items(
    items: Iterable[Item], issuer: IssuerTag, model_label: str, *, keep_untagged: bool = False
) -> tuple[Item, ...]:
    """Apply `untag_item` to all items and drop those that return None. Raises Unsupported."""
    untagged = (
        untag_item(item, issuer, model_label, keep_untagged=keep_untagged) if ENCRYPTED_CONTENT in item else item
        for item in items
    )
    return tuple(item for item in untagged if item is not None)


def untag_tagged_items(items: Iterable[Item], issuer: IssuerTag, model_label: str) -> list[Item]:
    """Like `untag_items`, for a server that issues encrypted content itself: untagged content is its own.

    Raises Unsupported.
    """
    untagged = (untag_item(item, issuer, model_label) if has_issuer_tag(item) else item for item in items)
    return [item for item in untagged if item is not None]


OPENAI_CHAT_EXTRA_FIELDS = frozenset(PROVIDER_EXTRA_FIELDS) - {"top_k", "chat_template_kwargs"}
"""The extra fields that chat completions of OpenAI and Azure accept."""

OPENAI_RESPONSES_EXTRA_FIELDS = OPENAI_CHAT_EXTRA_FIELDS - {"seed", "stop"}
"""The extra fields that every server of the Responses API accepts."""

RESPONSE_PARAMETERS = frozenset(REQUEST_FIELDS) - MODEL_FIELDS
"""Parameters of the response resource, which the owner of the state keeps; no adapter sends them as they are."""

INCLUDE_LOGPROBS = "message.output_text.logprobs"
INCLUDE_ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Values of `include` that adapters translate."""

UNSUPPORTED_STATUSES = (404, 405, 501)
"""The statuses of a server that cannot count tokens or cannot compact."""


def read_required_str(item: Item, field: str) -> str:
    """Return a required field of an item. Raises InputFault."""
    value = item.get(field)
    if not isinstance(value, str):
        raise InputFault(f"an item of type {item_type(item)} has no {field!r}")
    return value


_SERVER_ITEM_FIELDS = frozenset({"type", "id", "status", "created_by", "object"})
"""Fields of every item that name it, or that only servers set."""

_TRANSLATED_FIELDS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"role", "content"}),
    "function_call": frozenset({"call_id", "name", "arguments", "namespace"}),
    "function_call_output": frozenset({"call_id", "output", "name", "namespace"}),
    "custom_tool_call": frozenset({"call_id", "name", "input", "namespace"}),
    "custom_tool_call_output": frozenset({"call_id", "output"}),
    "local_shell_call": frozenset({"call_id", "action"}),
    "local_shell_call_output": frozenset({"call_id", "output"}),
    "shell_call": frozenset({"call_id", "action"}),
    "shell_call_output": frozenset({"call_id", "output", "max_output_length"}),
    "apply_patch_call": frozenset({"call_id", "operation"}),
    "apply_patch_call_output": frozenset({"call_id", "output"}),
    "tool_search_call": frozenset({"call_id", "arguments", "execution"}),
    "tool_search_output": frozenset({"call_id", "tools", "execution"}),
    "additional_tools": frozenset({"role", "tools"}),
    "configuration_update": frozenset({"reasoning", "text"}),
}
"""Further fields that a translation keeps, by type of item. Any other type is translated whole, or refused."""

_ITEM_FIELDS = {kind: fields | _SERVER_ITEM_FIELDS for kind, fields in _TRANSLATED_FIELDS.items()}

_EMPTY_VALUES: Sequence[Json] = (None, [], {})

_DEFAULT_ITEM_FIELDS: Mapping[str, Json] = {
    "caller": {"type": "direct"},
    "environment": {"type": "local"},
    "async": False,
}
"""Values of other fields that change nothing."""

_ITEM_TYPES_WITH_PARTS = frozenset({"message", "function_call_output", "custom_tool_call_output"})

_PART_FIELDS = frozenset(
    {"type", "text", "refusal", "image_url", "detail", "filename", "file_data", "input_audio", "logprobs"}
    | {"file_id", "file_url"}  # the content is sent inline, or the part is refused
)


def list_ignored_parameters(
    parameters: Mapping[str, Json], *, known_fields: Collection[str], reasoning_fields: Collection[str]
) -> Iterator[str]:
    """List the optional parameters that a translation drops.

    known_fields:      the extra fields that are sent or translated
    reasoning_fields:  the subfields of `reasoning` that are sent or translated
    """
    for name, value in parameters.items():
        if value is None:
            continue
        if (name in PROVIDER_EXTRA_FIELDS and name not in known_fields) or name == "max_tool_calls":
            yield name
        elif name == "reasoning":
            yield from (
                f"reasoning.{field}" for field in value if value[field] is not None and field not in reasoning_fields
            )


def list_ignored_item_fields(items: Sequence[Item], *, detailed_parts: Collection[str] = ()) -> Sequence[str]:
    """List the fields of items that a translation drops.

    detailed_parts:  the types of the parts whose `detail` is sent
    """
    return derive(items, _make_ignored_fields_step, *detailed_parts)


def _make_ignored_fields_step(*detailed_parts: str) -> Callable[[Sequence[Item]], Iterator[str]]:
    return partial(_iter_ignored_fields, detailed_parts)


def _iter_ignored_fields(detailed_parts: Collection[str], items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        kind = item_type(item)
        if kind == "reasoning":
            continue
        known_fields = _ITEM_FIELDS.get(kind)
        for name in () if known_fields is None else list_unknown_fields(item, known_fields):
            if _DEFAULT_ITEM_FIELDS.get(name) != item[name]:
                yield f"input.{kind}.{name}"
        for parts in (item.get("content"), item.get("output")) if kind in _ITEM_TYPES_WITH_PARTS else ():
            for part in parts if isinstance(parts, list) else ():
                if not isinstance(part, Mapping):
                    continue
                for name in list_unknown_fields(part, _PART_FIELDS):
                    yield f"input.{part.get('type')}.{name}"
                if part.get("detail") not in (None, "auto") and part.get("type") not in detailed_parts:
                    yield f"input.{part.get('type')}.detail"


def list_unknown_fields(value: Mapping[str, Json], known_fields: Collection[str]) -> Iterator[str]:
    """List the fields of `value` that are not empty and not in `known_fields`."""
    for name, inner in value.items():
        if name not in known_fields and inner not in _EMPTY_VALUES:
            yield name
