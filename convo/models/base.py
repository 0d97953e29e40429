"""The `Model` protocol, and what all adapters share.

A model receives the whole history with each request and keeps no state, so every state strategy works
with every model. Here too: groups of items by role, the names of ignored request fields, a provider's
list of models, and the tags that say which model issued encrypted content.

A tag stands in front of `encrypted_content` as "convo1:provider/model:account:"; the opaque form,
"convo2:digest:", names no model. Only the issuer gets its content back: reasoning of another issuer is
omitted, a compaction item of another issuer is rejected.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote

from convo.config.sections import PROVIDER_EXTRA_FIELDS
from convo.errors import EndpointFault, KeyRefused, StreamBroken, Unreachable, Unsupported
from convo.history.items import (
    Item,
    Json,
    StreamEvent,
    get_call_id,
    is_assistant_message,
    is_client_call,
    is_client_output,
    item_type,
)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a model needs to answer once. Nothing is remembered from earlier asks.

    model:         the provider's own name for the model, without the provider in front
    input:         the whole history as items, oldest first; no item_reference is left in it
    instructions:  the system's words for this ask alone
    parameters:    the other fields of the Responses request as they travelled:
                   temperature, top_p, max_output_tokens, text, tools, tool_choice, reasoning, ...
    """

    model: str
    input: Sequence[Item]
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)

    @property
    def wants_summary(self) -> bool:
        """Whether it asks for a summary of the reasoning."""
        reasoning = self.parameters.get("reasoning") or {}
        return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


class Model(Protocol):
    """Answers asks.

    A model promises: events in the Responses API's order, each item added before its parts and
    done after them, ids on every output item, no `sequence_number` (whoever owns the response
    counts), and one terminal event at the end: `response.completed`, `response.incomplete` or
    `response.failed`, whose `response` holds only `output`, `usage`, `incomplete_details`,
    `error` and `model`. It refuses what it cannot honour with `Unsupported` before it asks
    anybody, and translates every foreign error into `convo.errors`. Closing the generator stops
    the work at once. A caller promises: to read to the end, or to close.
    """

    def respond(self, ask: ModelRequest) -> AsyncGenerator[StreamEvent, None]: ...

    async def warm(self, model: str) -> None:
        """Do now what the first ask of `model` would have to wait for; nothing is sent.

        raises:  what that first ask would raise
        """
        ...

    async def check_request(self, ask: ModelRequest) -> None:
        """Refuse now what answering would refuse, as far as that is known without an answer; nothing is billed.

        It is known whether the request can be translated, and whether the server answers and takes the key. It is
        not known whether the server has the model, room for the input, or any quota left.

        raises:  Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused, RequestRefused
        """
        ...

    async def count(self, ask: ModelRequest) -> int | None:
        """Exact input tokens of `ask`, or None where the model cannot tell before it answers."""
        ...

    async def compact(self, ask: ModelRequest) -> Sequence[Item] | None:
        """The window that the provider itself makes of `fetch_model_names.input`; None where it has no compaction.

        It is for the same model: what was sealed only that one can open; usage is not reported here.

        raises:  RequestRefused  it has none for this model; whoever asks may summarise instead
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and processes. The model is not used afterwards."""
        ...


@runtime_checkable
class ReportsIgnoredFields(Protocol):
    """A model that can say what it leaves out of a request."""

    def ignored(self, ask: ModelRequest) -> tuple[str, ...]:
        """Names as in `convo.models.base`, each once."""
        ...


@runtime_checkable
class HasProvider(Protocol):
    """A model that knows the name of its provider in the settings."""

    @property
    def provider(self) -> str: ...


def get_provider_name(model: object) -> str | None:
    """The name of `model`'s provider, where it is known."""
    return model.provider if isinstance(model, HasProvider) else None


def get_ignored_fields(model: object, ask: ModelRequest) -> tuple[str, ...]:
    """What `model` leaves out of `ask`; nothing where it sends everything."""
    return model.ignored(ask) if isinstance(model, ReportsIgnoredFields) else ()


REACHABLE_TIMEOUT_S = 10.0
"""Seconds that a server has to show that it is there."""

FORBIDDEN_STATUS = 403
"""The status for a key that is right and may not do this."""


@runtime_checkable
class ModelLister(Protocol):
    """A server that can be asked which models it has."""

    async def models(self) -> Sequence[str]:
        """Their names as it takes them, without the provider. raises: EndpointFault"""
        ...

    async def warm(self, model: str) -> None:
        """Do what needs no answer."""
        ...

    async def aclose(self) -> None: ...


async def fetch_model_names(server: ModelLister, who: str, *, within_s: float) -> Sequence[str]:
    """The names that `server` gives, which is closed behind it.

    who:       what it is called in errors
    within_s:  seconds for the answer; loading what it takes to ask does not count
    raises:    EndpointFault
    """
    try:
        await server.warm("")
        async with asyncio.timeout(within_s):
            return await server.models()
    except TimeoutError as late:
        raise Unreachable(f"{who} did not answer in {within_s:g} seconds") from late
    finally:
        await server.aclose()


async def check_provider_reachable(server: ModelLister, who: str, *, within_s: float = REACHABLE_TIMEOUT_S) -> None:
    """Find out whether a server answers and takes the key, by its list of models, which costs nothing.

    Another refusal says nothing about answers: some servers have no list, and some keys may not read it.

    raises:  Unreachable, KeyRefused
    """
    try:
        await server.warm("")
        async with asyncio.timeout(within_s):
            await server.models()
    except TimeoutError as late:
        raise Unreachable(f"{who} did not answer in {within_s:g} seconds") from late
    except Unreachable:
        raise
    except KeyRefused as refused:
        if refused.status != FORBIDDEN_STATUS and "scope" not in refused.message:
            raise
    except EndpointFault:
        return


def parse_model_names(listed: Json, who: str) -> Sequence[str]:
    """The names in what a server answered: a list, or an object that holds one; null where there are none.

    raises:  StreamBroken  it is neither
    """
    found = listed.get("data") or [] if isinstance(listed, Mapping) and "data" in listed else listed
    if isinstance(found, list):
        ids = [one["id"] for one in found if isinstance(one, Mapping) and isinstance(one.get("id"), str)]
        if len(ids) == len(found):
            return ids
    raise StreamBroken(f"{who} answered with something that is not a list of models", hint="check its base_url")


RoleGroup: TypeAlias = tuple[bool, tuple[Item, ...]]
"""Whether it is the assistant's, and what was said in it."""


def group_by_role(items: Iterable[Item]) -> list[RoleGroup]:
    """`items` as runs of the assistant's and of everybody else's, each with whether it is the assistant's.

    What answers a run's calls opens the run behind it, in the order of the calls. An output without
    its call stays where it stood.
    """
    said = tuple(items)
    calls = {get_call_id(item) for item in said if is_client_call(item)}
    answers: dict[str | None, Item] = {get_call_id(item): item for item in said if is_client_output(item)}
    runs: list[RoleGroup] = []
    for ours, group in groupby(said, key=is_from_assistant):
        run = tuple(item for item in group if not (is_client_output(item) and get_call_id(item) in calls))
        runs = _append_group(runs, (ours, run))
        runs = _append_group(runs, (False, _outputs_of_calls(run, answers)))
    return runs


def is_from_assistant(item: Item) -> bool:
    return is_assistant_message(item) or is_client_call(item) or item_type(item) == "reasoning"


def _outputs_of_calls(run: Sequence[Item], answers: dict[str | None, Item]) -> tuple[Item, ...]:
    return tuple(answers[get_call_id(item)] for item in run if is_client_call(item) and get_call_id(item) in answers)


def _append_group(runs: list[RoleGroup], run: RoleGroup) -> list[RoleGroup]:
    """`runs` with `run` behind them, in one with the last where both are the same side's."""
    if not run[1]:
        return runs
    if runs and runs[-1][0] == run[0]:
        return [*runs[:-1], (run[0], runs[-1][1] + run[1])]
    return [*runs, run]


ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX = "convo1:", "convo2:"
ENCRYPTED_CONTENT = "encrypted_content"


class IssuerTag(str):
    """The tag in front of a maker's seals; `opaque` is the form that names no model."""

    __slots__ = ("opaque",)
    opaque: str


def make_issuer_tag(provider: str, model: str, *account: str | None) -> IssuerTag:
    """The maker of the seals of a model.

    model:    as it is asked for
    account:  what else must be the same for a seal to be opened: base URL, organisation, project
    """
    where = sha256("\n".join(part or "" for part in account).encode()).hexdigest()[:12]
    tag = IssuerTag(f"{ISSUER_TAG_PREFIX}{quote(f'{provider}/{model}')}:{where}:")
    tag.opaque = _opaque_tag(tag)
    return tag


def _opaque_tag(tag: str) -> str:
    return f"{OPAQUE_TAG_PREFIX}{sha256(tag.encode()).hexdigest()[:24]}:"


NO_ISSUER = make_issuer_tag("", "")
"""Made no seal."""


def tag_encrypted_content(item: Item, by: str) -> Item:
    """`item` as it is handed on: `by` made the seal in it, if there is one."""
    return (
        {**item, ENCRYPTED_CONTENT: by + item[ENCRYPTED_CONTENT]}
        if isinstance(item.get(ENCRYPTED_CONTENT), str)
        else item
    )


def hide_issuer_model(item: Item) -> Item:
    """`item` with its tag in the opaque form."""
    seal = item.get(ENCRYPTED_CONTENT)
    if not isinstance(seal, str) or not seal.startswith(ISSUER_TAG_PREFIX):
        return item
    form, model, where, rest = seal.split(":", 3)
    return {**item, ENCRYPTED_CONTENT: _opaque_tag(f"{form}:{model}:{where}:") + rest}


def untag_item(item: Item, by: IssuerTag, who: str, *, foreign: bool = False) -> Item | None:
    """`item` as `by` can open it; None for reasoning of another maker.

    foreign: whether reasoning without a tag is left to the server: a client may have it from there
    who:     the model, for the error's sentence
    raises:  Unsupported  a compacted history of another maker
    """
    seal = item.get(ENCRYPTED_CONTENT)
    if not isinstance(seal, str):
        return item
    for tag in (by, by.opaque):
        if seal.startswith(tag):
            return {**item, ENCRYPTED_CONTENT: seal[len(tag) :]}
    if item_type(item) == "reasoning":
        return item if foreign and not has_issuer_tag(item) else None
    if seal.startswith((ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX)):
        made = seal.split(":")[1] if seal.startswith(ISSUER_TAG_PREFIX) else "the model that made it"
        hint = f"continue with {made}, or fork from before the sealed item"
        raise Unsupported(who, f"a {item_type(item)} that another model sealed", param="input", hint=hint)
    return item


def has_issuer_tag(item: Item) -> bool:
    """Whether a seal says who made it."""
    seal = item.get(ENCRYPTED_CONTENT)
    return isinstance(seal, str) and seal.startswith((ISSUER_TAG_PREFIX, OPAQUE_TAG_PREFIX))


def is_issued_by(item: Item, by: IssuerTag) -> bool:
    """Whether `by` sealed `item`."""
    seal = item.get(ENCRYPTED_CONTENT)
    return isinstance(seal, str) and seal.startswith((by, by.opaque))


def untag_items(items: Iterable[Item], by: IssuerTag, who: str, *, foreign: bool = False) -> tuple[Item, ...]:
    """What `untag_item` leaves of `items`. raises: Unsupported"""
    found = (untag_item(item, by, who, foreign=foreign) if ENCRYPTED_CONTENT in item else item for item in items)
    return tuple(kept for kept in found if kept is not None)


def untag_tagged_items(items: Iterable[Item], by: IssuerTag, who: str) -> list[Item]:
    """As `untag_items`, for a server that hands its seals out itself: a seal without a tag is its own.

    raises:  Unsupported
    """
    found = (untag_item(item, by, who) if has_issuer_tag(item) else item for item in items)
    return [kept for kept in found if kept is not None]


OPENAI_CHAT_EXTRA_FIELDS = frozenset(PROVIDER_EXTRA_FIELDS) - {"top_k", "chat_template_kwargs"}
"""Those that chat completions of OpenAI and Azure know."""

OPENAI_RESPONSES_EXTRA_FIELDS = OPENAI_CHAT_EXTRA_FIELDS - {"seed", "stop"}
"""Those that every server of the Responses API knows."""

_ITEM_FIELDS = frozenset(
    {"type", "id", "status", "role", "content", "call_id", "name", "arguments", "output", "created_by", "object"}
)
"""Fields of messages, function calls and their outputs that a translation carries, or that only servers set."""

_PART_FIELDS = frozenset(
    {"type", "text", "refusal", "image_url", "detail", "filename", "file_data", "input_audio", "logprobs"}
)

_TOOL_FIELDS = frozenset({"type", "name", "description", "parameters", "strict"})


def list_ignored_parameters(
    parameters: Mapping[str, Json], *, known: Collection[str], reasoning: Collection[str]
) -> Iterator[str]:
    """The hints among `parameters` that a translation leaves out.

    known:      the extra fields that are sent or translated
    reasoning:  the fields of `reasoning` that are
    """
    for name, value in parameters.items():
        if value is None:
            continue
        if (name in PROVIDER_EXTRA_FIELDS and name not in known) or name == "max_tool_calls":
            yield name
        elif name == "reasoning":
            yield from (f"reasoning.{field}" for field in value if value[field] is not None and field not in reasoning)
        elif name == "tools":
            functions = (tool for tool in value if tool.get("type") == "function")
            yield from (f"tools.{field}" for tool in functions for field in _unknown_fields(tool, _TOOL_FIELDS))


def list_ignored_item_fields(items: Iterable[Item]) -> Iterator[str]:
    """The fields of items that a translation has no place for."""
    for item in items:
        if item_type(item) == "reasoning":
            continue
        yield from (f"input.{item_type(item)}.{field}" for field in _unknown_fields(item, _ITEM_FIELDS))
        for parts in (item.get("content"), item.get("output")):
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, Mapping):
                    yield from (f"input.{part.get('type')}.{field}" for field in _unknown_fields(part, _PART_FIELDS))


def _unknown_fields(value: Mapping[str, Json], known: Collection[str]) -> Iterator[str]:
    """The fields of `value` that say something and are not `known`."""
    return (name for name, inner in value.items() if name not in known and inner not in (None, [], {}))
