"""Compact a history into one compaction item.

The provider's own compaction is used if it has one; otherwise the model writes a summary. A
history too long for one summary is split. A compaction never makes the input larger, and the
item is encrypted for its tenant. `respond_with_compaction` compacts before a response if
the request asks for it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace

from convo.compaction.planning import HistorySplit, split_for_summary
from convo.compaction.window import (
    CompactionContent,
    DecryptCompaction,
    build_summary_request,
    covered_message_digests,
    expand_compaction,
    extract_summary,
    items_shown_to_model,
    last_compaction_index,
    middle_cut_point,
    summary_message,
)
from convo.errors import ConvoError, RequestRefused, StreamBroken, Unsupported
from convo.history.items import Item, Json, StreamEvent, is_user_message, item_type
from convo.history.records import strip_item_secrets
from convo.models.base import Model, ModelRequest
from convo.responses_api import errors, response, truncation
from convo.responses_api.deps import EndpointDeps
from convo.responses_api.history import id_prefix, own_id, remove_incomplete_items, to_api_item
from convo.responses_api.response import ZERO_USAGE, add_usage
from convo.responses_api.truncation import is_window_exceeded
from convo.responses_api.validation import ResponseRequest
from convo.usage.counting import count_item_tokens, count_tokens, max_token_count

KEPT_DIVISOR, USER_TEXT_DIVISOR = 2, 4
"""Divisors of the threshold for the tokens that stay: of the current turn, and of earlier user messages."""

MAX_SPLITS = 6
"""How often a history that is too long for one summary is split in two."""

SUMMARY_PARAMETERS = ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user")
"""Request parameters that concern billing and identity, so they apply to the summary's request as well."""


@dataclass(frozen=True)
class CompactionInput:
    """A model request whose input may be compacted.

    request:     the model request; its `input` is the visible part of `history`
    history:     the whole history as it is stored
    model_name:  the model's name in the client's request
    """

    model: Model
    request: ModelRequest
    history: Sequence[Item]
    model_name: str
    deps: EndpointDeps


@dataclass(frozen=True)
class CompactedInput:
    """The result of a compaction.

    item:           the compaction item
    visible_items:  the model's input in place of the compacted items
    user_items:     user messages that stay outside the item
    usage:          of the compaction; None if the provider did not report it
    """

    item: Item
    visible_items: tuple[Item, ...]
    user_items: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None


async def compact_to_window(compaction: CompactionInput) -> tuple[Sequence[Item], Mapping[str, Json] | None]:
    """Return the input that replaces the whole request's input, and the usage of the compaction.

    It is the provider's own compacted input, or the user messages and one compaction item.
    """
    provider_items = await _compact_by_provider(compaction, compaction.request.input)
    if provider_items is None:
        compacted = await _compact_by_summary(
            compaction,
            split_for_summary(compaction.request.input, count_item_tokens(compaction.request.input)),
            keep_user_items=True,
        )
        return (*compacted.user_items, compacted.item), compacted.usage
    # Codex and others fail unless there is exactly one compaction item.
    if [item_type(item) for item in provider_items].count("compaction") == 1:
        return provider_items, None
    return [(await _build_result(compaction, before=tuple(provider_items))).item], None


async def compact_to_item(compaction: CompactionInput, threshold_tokens: int | None = None) -> CompactedInput | None:
    """Compact the request's input into one compaction item.

    threshold_tokens:  the target size in tokens; the current turn then stays as it is. None compacts everything.

    Returns None if everything was compacted before.
    """
    sizes = count_item_tokens(compaction.request.input)
    if threshold_tokens is None:
        split = split_for_summary(compaction.request.input, sizes)
    else:
        split = split_for_summary(
            compaction.request.input,
            sizes,
            keep_tokens=threshold_tokens // KEPT_DIVISOR,
            user_message_tokens=threshold_tokens // USER_TEXT_DIVISOR,
        )
        if all(is_user_message(item) or item_type(item) == "compaction" for item in split.summarized_items):
            return None  # the remainder of an earlier compaction, without a response since
    await compaction.deps.cipher.load_fernet()  # a result that cannot be encrypted would be paid for all the same
    provider_items = await _compact_by_provider(compaction, split.summarized_items)
    if provider_items is None:
        return await _compact_by_summary(compaction, split, keep_user_items=False)
    return await _build_result(compaction, before=(*split.instructions, *provider_items), after=split.kept_items)


async def _compact_by_provider(compaction: CompactionInput, items: Sequence[Item]) -> Sequence[Item] | None:
    """Return the provider's own compacted input; None if it does not support compaction for this model."""
    try:
        return await compaction.model.compact(replace(compaction.request, input=items)) if items else None
    # Some servers have the path, and refuse it for a model that cannot compact.
    except RequestRefused:
        return None


async def _compact_by_summary(
    compaction: CompactionInput, split: HistorySplit, *, keep_user_items: bool
) -> CompactedInput:
    """Compact by summary; `keep_user_items` leaves the user messages outside the item."""
    if not split.summarized_items:
        return await _build_result(compaction, after=compaction.request.input)
    await compaction.deps.cipher.load_fernet()  # before the request, as in `compact_to_item`
    summary, usage = await _summarize(compaction, split.summarized_items, MAX_SPLITS)
    input_tokens = sum(count_item_tokens(compaction.request.input))
    for user_messages in (split.user_messages, ()) if summary else ():
        remaining = (*split.instructions, *user_messages, summary_message(summary), *split.kept_items)
        # A summary can be longer than what it replaces; the first try keeps the user's own words, too.
        if sum(count_item_tokens(remaining)) < input_tokens:
            before = split.instructions if keep_user_items else (*split.instructions, *user_messages)
            user_items = user_messages if keep_user_items else ()
            return await _build_result(
                compaction, before=before, summary=summary, after=split.kept_items, user_items=user_items, usage=usage
            )
    return replace(
        await _build_result(compaction, after=compaction.request.input, usage=usage),
        user_items=split.user_messages if keep_user_items else (),
    )


async def _build_result(
    compaction: CompactionInput,
    *,
    before: tuple[Item, ...] = (),
    summary: str | None = None,
    after: Sequence[Item] = (),
    user_items: tuple[Item, ...] = (),
    usage: Mapping[str, Json] | None = None,
) -> CompactedInput:
    """Build the encrypted compaction item; `user_items` are not part of it and stay visible."""
    deps, decrypt = compaction.deps, await load_item_decryptor(compaction.history, compaction.deps)
    covered = covered_message_digests(compaction.history, decrypt, kept_messages=user_items)
    content = CompactionContent(deps.store.tenant, before, summary, tuple(after), covered)
    # The model still gets the credentials of this request's tools; the stored item must have none.
    stored = content._replace(before=strip_item_secrets(content.before), after=strip_item_secrets(content.after))
    item = {
        "id": deps.new_id("cmp"),
        "type": "compaction",
        "encrypted_content": await deps.cipher.encrypt(stored),
    }
    return CompactedInput(item, (*user_items, *expand_compaction(content)), user_items, usage)


async def load_item_decryptor(history: Sequence[Item], deps: EndpointDeps) -> DecryptCompaction:
    """Return the decryptor for `history`; without a compaction item no key is loaded."""
    if last_compaction_index(history) is None:
        return lambda item: None
    return await deps.cipher.load_decryptor()


# -- summary --------------------------------------------------------------------------------------


async def _summarize(
    compaction: CompactionInput, items: Sequence[Item], max_splits: int
) -> tuple[str, Mapping[str, Json] | None]:
    """Return the model's summary of `items`, and its usage; split the items if they do not fit."""
    undecryptable = next((item for item in items if item_type(item) == "compaction"), None)
    if undecryptable is not None:
        raise errors.invalid_encrypted_content_error(undecryptable)
    try:
        return await _request_summary(compaction, items)
    except ConvoError as error:
        middle = middle_cut_point(items)
        if not is_window_exceeded(error) or middle is None or not max_splits:
            raise
    first_summary, first_usage = await _summarize(compaction, items[:middle], max_splits - 1)
    summary, usage = await _summarize(compaction, (summary_message(first_summary), *items[middle:]), max_splits - 1)
    return summary, add_usage(first_usage, usage)


async def _request_summary(compaction: CompactionInput, items: Sequence[Item]) -> tuple[str, Mapping[str, Json] | None]:
    model_request = compaction.request
    request = build_summary_request(items, context=model_request.instructions)
    parameters = {name: value for name, value in model_request.parameters.items() if name in SUMMARY_PARAMETERS}
    last_event: StreamEvent | None = None
    async with aclosing(
        compaction.model.respond(ModelRequest(model_request.model, request.items, request.instructions, parameters))
    ) as events:
        async for event in events:
            last_event = event
    if last_event is None or not str(last_event["type"]).startswith("response.") or "response" not in last_event:
        raise StreamBroken("the model's summary is incomplete")
    result = response.result_from_event(last_event)
    if result.status == "failed":
        raise StreamBroken(f"the model wrote no summary: {(result.error or {}).get('message')}")
    return extract_summary(result.output), result.usage


def respond_with_compaction(compaction: CompactionInput, request: ResponseRequest) -> AsyncGenerator[StreamEvent, None]:
    """Stream the model's events, after a compaction if `request` asks for one. Raises WindowExceeded."""
    is_requested = request.is_compaction or request.compact_threshold is not None
    if is_requested or last_compaction_index(compaction.history) is not None:
        return _respond_compacting(compaction, request)
    return _respond_fitted(compaction, request)


def build_response_model_request(request: ResponseRequest, items: Sequence[Item], name: str) -> ModelRequest:
    """Build the model request; `name` is the provider's own name for the model.

    `truncation` is left out: the endpoint truncates the input itself.
    """
    parameters = {key: value for key, value in request.model_parameters.items() if key != "truncation"}
    return ModelRequest(name, items, request.instructions, parameters)


async def build_model_input(history: Sequence[Item], deps: EndpointDeps) -> Sequence[Item]:
    """Return the items of `history` that the model receives.

    Raises RequestRefused if encrypted content cannot be decrypted here.
    """
    return remove_incomplete_items(items_shown_to_model(history, await load_item_decryptor(history, deps)))


async def compact_history(
    request: ResponseRequest, history: Sequence[Item], deps: EndpointDeps
) -> tuple[Sequence[Item], Mapping[str, Json] | None]:
    """Return the input that replaces `history`, with ids, and the usage of the compaction.

    Raises RequestRefused and the errors of `ModelOpener`.
    """
    model, name = deps.models(request.model)
    model_request = build_response_model_request(request, await build_model_input(history, deps), name)
    items, usage = await compact_to_window(CompactionInput(model, model_request, history, request.model, deps))
    shown_items = strip_item_secrets(items)
    return [to_api_item(item, own_id(item) or deps.new_id(id_prefix(item))) for item in shown_items], usage


async def _respond_compacting(
    compaction: CompactionInput, request: ResponseRequest
) -> AsyncGenerator[StreamEvent, None]:
    compaction = replace(
        compaction,
        request=replace(compaction.request, input=await build_model_input(compaction.history, compaction.deps)),
    )
    compacted = await _compact_if_requested(compaction, request)
    if compacted is not None and request.is_compaction:
        for event in (*_compaction_events(compacted, by_trigger=True), _compaction_only_event(compacted)):
            yield event
        return
    if compacted is not None:
        compaction = replace(compaction, request=replace(compaction.request, input=compacted.visible_items))
    with _report_undecryptable_item(compaction.request):
        async with (
            aclosing(_respond_fitted(compaction, request)) as model_events,
            aclosing(_prepend_compaction(compacted, model_events)) as events,
        ):
            async for event in events:
                yield event


async def _prepend_compaction(
    compacted: CompactedInput | None, model_events: AsyncGenerator[StreamEvent, None]
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the compaction's events, then those of `model_events`.

    Nothing is yielded before the first of `model_events`: until then the request can still be refused.
    """
    first = await anext(model_events, None)
    for event in _compaction_events(compacted, by_trigger=False) if compacted else ():
        yield event
    if first is not None:
        yield _shift_after_compaction(first, compacted)
    async for event in model_events:
        yield _shift_after_compaction(event, compacted)


@contextmanager
def _report_undecryptable_item(request: ModelRequest) -> Iterator[None]:
    """Name the compaction item in the error if convo did not encrypt it and the model cannot decrypt it either."""
    try:
        yield
    except Unsupported as error:
        index = last_compaction_index(request.input)
        if index is None or error.param != "input":
            raise
        raise errors.invalid_encrypted_content_error(request.input[index], hint=error.hint) from error


async def _compact_if_requested(compaction: CompactionInput, request: ResponseRequest) -> CompactedInput | None:
    """Compact if `request` asks for it now; None if not, or if there is nothing to compact."""
    if request.is_compaction:
        return await compact_to_item(compaction)
    if request.compact_threshold is not None and await asyncio.to_thread(
        _exceeds_threshold, compaction.request, request.compact_threshold
    ):
        return await compact_to_item(compaction, request.compact_threshold)
    return None


def _exceeds_threshold(request: ModelRequest, threshold_tokens: int) -> bool:
    counted = request.input, request.instructions, request.parameters.get("tools")
    # The upper bound is cheap; counting a megabyte takes 30 to 60 ms.
    return max_token_count(*counted) > threshold_tokens and count_tokens(*counted).tokens > threshold_tokens


def _respond_fitted(compaction: CompactionInput, request: ResponseRequest) -> AsyncGenerator[StreamEvent, None]:
    name, provider = compaction.request.model, compaction.model.provider
    window = compaction.deps.find_window(f"{provider}/{name}" if provider else name)
    auto = request.parameters.get("truncation") == "auto"
    return truncation.respond_within_window(
        compaction.model, compaction.request, compaction.model_name, window, auto=auto
    )


def _compaction_events(compacted: CompactedInput, *, by_trigger: bool) -> Iterator[StreamEvent]:
    """Yield the events of the compaction item; `by_trigger`: requested by a trigger item, not by a threshold."""
    yield {"type": "response.output_item.added", "output_index": 0, "item": compacted.item}
    if by_trigger:
        yield {"type": "response.compaction.compacting", "output_index": 0, "item_id": compacted.item["id"]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": compacted.item}


def _compaction_only_event(compacted: CompactedInput) -> StreamEvent:
    return {
        "type": "response.completed",
        "response": {"output": [compacted.item], "usage": compacted.usage or ZERO_USAGE},
    }


def _shift_after_compaction(event: StreamEvent, compacted: CompactedInput | None) -> StreamEvent:
    """Shift an event of the response by one output item, the compaction, if there is one."""
    if compacted is None:
        return event
    if "output_index" in event:
        return {**event, "output_index": event["output_index"] + 1}
    response = event.get("response")
    if not isinstance(response, Mapping):
        return event
    output = [compacted.item, *(response.get("output") or ())]
    return {
        **event,
        "response": {**response, "output": output, "usage": add_usage(compacted.usage, response.get("usage"))},
    }
