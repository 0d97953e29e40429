"""Compaction of a conversation: `prepare_compaction`, then `apply_compaction`.

Nothing changes before `apply_compaction`; it creates the branch that keeps the old history, then replaces the history
in one transaction, and keeps items that were appended meanwhile. A kill leaves the history before or after. The
old history stays available: NAME-before (session), a copy of the file (replay), the old resp_ or conv_ id. A
conversation is compacted in place by its endpoint, else a new one is seeded, which needs consent.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from shlex import quote
from typing import Any, NamedTuple, TypeAlias

from convo.chat.conversation import Chat
from convo.chat.files import format_replay_file
from convo.chat.item_file import ReplayFile
from convo.chat.next_request import make_endpoint_counter
from convo.chat.open import iter_numbered_paths, load_conversation_history
from convo.chat.session_record import (
    OWN_CLIENT,
    acquire_compaction_lease,
    add_unstored_requests,
    find_free_session_name,
)
from convo.chat.turn import RequestOptions, make_incomplete_error, make_response_fault
from convo.chat.view_loader import load_response_view
from convo.compaction.planning import (
    CompactionMethod,
    CompactionMode,
    CompactionOptions,
    CompactionPlan,
    HistorySnapshot,
    build_replacements,
    plan_compaction,
    plan_from_items,
)
from convo.compaction.window import (
    build_summary_request,
    extract_summary,
    is_instruction,
    last_compaction_index,
    middle_cut_point,
    summary_message,
)
from convo.endpoints.base import Endpoint
from convo.errors import (
    ConvoError,
    EndpointFault,
    InvalidUsage,
    RequestRefused,
    StateFault,
    StoreFault,
    StreamBroken,
    WindowExceeded,
)
from convo.history.accumulator import TERMINAL_EVENTS
from convo.history.canonical import digest
from convo.history.items import (
    COMPACTION_TRIGGER,
    Item,
    Json,
    Response,
    is_compaction,
    is_summary,
    is_user_message,
    item_type,
    summary_text,
    to_resendable,
)
from convo.history.records import (
    ANSWERED_STATUSES,
    COMPACTION_CONTEXT_MANAGEMENT,
    EMBEDDED_SCOPE,
    Link,
)
from convo.history.tree import Key, Path
from convo.prompt_cache.forecast import PrefixForecast
from convo.report import Count
from convo.stores.base import Transaction
from convo.stores.unstored_requests import UnstoredRequest, clean_code
from convo.strategies.branching import items_after_point, replace_history
from convo.strategies.instructions import build_instruction_message
from convo.strategies.strategy import ConversationState, to_resendable_items
from convo.transfer.convert import delete_seeded_conversation, seed_conversation
from convo.usage.counting import TokenCount, count_item_tokens, count_tokens

COMPACTION_TRIGGER_ITEM: Mapping[str, Json] = {"type": COMPACTION_TRIGGER}
"""Input item that requests a compaction and no response."""


@dataclass(frozen=True, slots=True)
class PreparedCompaction:
    """A compaction that is not applied yet.

    source_path:                the history that it replaces, including the turns that it keeps
    replacement:                the new items; empty if the endpoint compacts in place
    count_before, count_after:  tokens, counted in the same way
    usage:                      of the requests that made it; None if not reported
    prefix:                     what the next request loses because of it; None if nothing is known
    """

    plan: CompactionPlan
    source_path: Path
    replacement: tuple[Item, ...]
    count_before: TokenCount
    count_after: TokenCount
    usage: Mapping[str, Json] | None = None
    notes: tuple[str, ...] = ()
    prefix: PrefixForecast | None = None

    def count_dropped(self) -> "DroppedItems":
        """Count the compacted items that the new history lacks. The endpoint keeps the user's messages, as we do."""
        compacted = self.plan.compacted_items
        kept = self.replacement or [item for item in compacted if is_user_message(item) or is_instruction(item)]
        counts = Counter(digest(to_resendable(item) or {}) for item in kept)
        dropped = []
        for item in compacted:
            counts[item_digest := digest(to_resendable(item) or {})] -= 1
            if counts[item_digest] < 0:
                dropped.append(item)
        types = [item_type(item) for item in dropped]
        calls = sum(kind.endswith("_call") for kind in types)
        tokens = _estimate_part(dropped, self.source_path.items or compacted, self.count_before)
        return DroppedItems(types.count("message"), calls, types.count("reasoning"), tokens)

    def describe_summary(self) -> "SummaryExcerpt | None":
        """Describe the item that replaces the dropped ones; None if the endpoint compacts in place."""
        item = next((item for item in reversed(self.replacement) if is_compaction(item)), None)
        if item is None:
            return None
        text = " ".join(summary_text(item).split()) if is_summary(item) else ""
        tokens = _estimate_part([item], self.replacement, self.count_after)
        return SummaryExcerpt(tokens, text[:MAX_EXCERPT_CHARS] or None)


def _estimate_part(part: Sequence[Item], items: Sequence[Item], count: TokenCount) -> int:
    """Return the tokens of some of `items`, which have `count` tokens together: their endpoint may count others."""
    return round(count.tokens * sum(count_item_tokens(part)) / max(1, sum(count_item_tokens(items))))


MAX_EXCERPT_CHARS = 200


class DroppedItems(NamedTuple):
    """The items that the model does not receive any more.

    calls:   with their outputs
    tokens:  an estimate
    """

    messages: Count
    calls: Count
    reasoning: Count
    tokens: Count


class SummaryExcerpt(NamedTuple):
    """The summary, or the compaction item of an endpoint.

    tokens:   an estimate
    excerpt:  its first 200 characters; null if only the endpoint can read it
    """

    tokens: Count
    excerpt: str | None


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of an applied compaction.

    old_handle:   handle of the history from before the compaction; None if it stays in the same list
    later_count:  number of items that were appended meanwhile and follow the replacement
    """

    prepared: PreparedCompaction
    count_after: TokenCount
    old_handle: str | None
    later_count: int = 0


async def prepare_compaction(
    chat: Chat, options: CompactionOptions, *, confirmed: bool = False, preview: bool = False
) -> PreparedCompaction:
    """Prepare the compaction of `chat` without changing anything.

    confirmed:  whether a conversation may continue under another handle
    preview:    whether it is only shown: needs no consent and no free disk space, and never compacts in place

    Raises StateFault if a call has no output yet or the result would not be smaller, InvalidUsage if the requested
    method is impossible, StoreFull before any request if the disk is nearly full, and the errors of the endpoint.
    """
    snapshot = await _snapshot_history(chat)
    plan = plan_compaction(snapshot, options)
    # A summary that cannot be stored would be paid for all the same.
    if not preview:
        await chat.deps.store.admin.check_disk_space()
    if plan.method is CompactionMethod.IN_PLACE and preview:
        plan = plan_from_items(plan, is_embedded=snapshot.is_embedded)
    if (
        chat.state.owner.uses_conversation
        and plan.method is not CompactionMethod.IN_PLACE
        and not (confirmed or preview)
    ):
        raise _confirmation_required(chat.session.handle)
    if plan.method is CompactionMethod.IN_PLACE:
        count = await _count_conversation(chat, snapshot.path)
        return PreparedCompaction(plan, snapshot.path, (), count, count)
    async with _listed_request(chat):
        output = await run_compaction(
            plan, chat.options, chat.deps.endpoint, allow_fallback=options.mode is CompactionMode.AUTO
        )
        counts: list[tuple[TokenCount, TokenCount]] = []
        # Without the kept turns where the history would not be smaller with them.
        for window in output.replacements:
            counts.append(await _count_before_and_after(chat, snapshot.path.items, window))
            before, after = counts[-1]
            if after.tokens < before.tokens:
                prefix = await _forecast_prefix(chat, Path(snapshot.path.root).append(window))
                return PreparedCompaction(
                    output.plan, snapshot.path, window, before, after, output.usage, output.notes, prefix
                )
        before, after = counts[-1]
        raise StateFault(
            f"the compacted history would not be smaller: {before} tokens before, {after} after; nothing was changed",
            hint="compact a longer history, or use a model that writes shorter summaries",
        )


async def _forecast_prefix(chat: Chat, path: Path) -> PrefixForecast | None:
    """Return what the next request loses if the history becomes `path`, if the request before it is known."""
    guard, last_link = chat.options.prefix_guard, chat.record.last_link
    if guard is None or last_link is None:
        return None
    view = await load_response_view(chat.deps.store, last_link.id, is_branch_only=True)
    return guard.forecast_history(view, path, chat.deps.clock.now())


@asynccontextmanager
async def _listed_request(chat: Chat) -> AsyncIterator[None]:
    """List the request of a compaction while the block runs; if the block fails, store it as an `UnstoredRequest`."""
    (store, _, clock, new_id), lease = chat.deps, None
    started_at, start_ticks = clock.now(), clock.monotonic()
    with suppress(StoreFault):  # a preview also works if the disk is full
        lease = await acquire_compaction_lease(store, chat.session, chat.options.model, started_at)
    try:
        yield
    except (ConvoError, asyncio.CancelledError) as error:
        row = UnstoredRequest(
            new_id("req"),
            started_at,
            "compact",
            chat.options.model,
            "failed" if isinstance(error, ConvoError) else "cancelled",
            code=clean_code(error.code if isinstance(error, ConvoError) else "interrupted"),
            client=OWN_CLIENT,
            latency_s=clock.monotonic() - start_ticks,
        )
        await add_unstored_requests(store, [row])
        raise
    finally:
        if lease:
            await lease.release()


async def apply_compaction(chat: Chat, prepared: PreparedCompaction, *, confirmed: bool = False) -> CompactionResult:
    """Replace the history that `prepared` was made from; the caller has the session's lease.

    Raises Conflict if that history no longer exists, StoreFault, and the errors of the endpoint.
    """
    await chat.ensure_saved()
    if prepared.plan.method is CompactionMethod.IN_PLACE:
        return await _compact_in_place(chat, prepared, confirmed=confirmed)
    if chat.state.owner.uses_conversation:
        return await _compact_into_new_conversation(chat, prepared)
    link_id = chat.deps.new_id("try")
    await chat.refresh()  # so that the branch includes items appended meanwhile
    chat.load_state()
    async with _branch_kept_on_success(chat, link_id) as old_handle:
        await chat.replace_history(
            lambda state: replace_history(state, prepared.source_path, prepared.replacement),
            lambda state: _compaction_link(chat, prepared, state, link_id),
        )
    later_count = len(chat.state.path) - len(chat.state.owner.to_new_items(prepared.replacement))
    return CompactionResult(prepared, prepared.count_after, old_handle, later_count)


async def _snapshot_history(chat: Chat) -> HistorySnapshot:
    """Load the confirmed history; a conversation is read from its endpoint, since others may write to it."""
    state = chat.load_state()
    path = state.path.up_to(state.confirmed_head)
    if state.owner.uses_conversation and state.handle:
        path = await load_conversation_history(state.handle, chat.deps)
    return HistorySnapshot(
        state.strategy, path, chat.deps.endpoint.scope == EMBEDDED_SCOPE, await _stored_responses(chat, state)
    )


async def _stored_responses(chat: Chat, state: ConversationState) -> Mapping[Key, str]:
    """Map history positions to the stored responses that end there."""
    scope, session = chat.deps.endpoint.scope, chat.session
    responses = {
        link.head: link.id
        for link in await chat.deps.store.links(session.id)
        if link.is_stored and link.status in ANSWERED_STATUSES and link.id.startswith("resp_") and link.scope == scope
    }
    if state.owner.uses_response and state.handle:
        return {**responses, state.confirmed_head: state.handle}
    is_edited = (state.path.head, state.confirmed_head) != (session.head, session.confirmed_head)
    return (
        responses
        if is_edited or session.link_id not in responses.values()
        else {**responses, state.confirmed_head: str(session.link_id)}
    )


async def _count_before_and_after(
    chat: Chat, before: Sequence[Item], after: Sequence[Item]
) -> tuple[TokenCount, TokenCount]:
    """Count the tokens of both: by the endpoint, or by our own count where it has none."""
    count_input = make_endpoint_counter(chat.deps.endpoint)
    counts = [
        await count_input({"model": chat.options.wire_model, "input": list(to_resendable_items(items))})
        for items in (before, after)
    ]
    count_before, count_after = counts
    if count_before is not None and count_after is not None:
        return TokenCount(count_before, is_estimate=False), TokenCount(count_after, is_estimate=False)
    return count_tokens(before), count_tokens(after)


async def _count_conversation(chat: Chat, path: Path) -> TokenCount:
    """Count the tokens of a conversation that a model receives."""
    body = {"model": chat.options.wire_model, "conversation": chat.session.handle}
    tokens = await make_endpoint_counter(chat.deps.endpoint)(body)
    return (
        count_tokens(path.items[last_compaction_index(path.items) or 0 :])
        if tokens is None
        else TokenCount(tokens, is_estimate=False)
    )


def _compaction_link(chat: Chat, prepared: PreparedCompaction, state: ConversationState, link_id: str) -> Link:
    """Build the link of a compaction; its replacement is the context of the next request."""
    head = Path(state.path.root).append(state.owner.to_new_items(prepared.replacement)).head
    session = chat.session
    return Link(
        id=link_id,
        input_head=head,
        head=head,
        sent_count=0,
        model=chat.options.model,
        strategy=state.strategy,
        status="completed",
        created_at=chat.deps.clock.now(),
        parent_id=session.link_id,
        session_id=session.id,
        scope=session.scope,
        parameters={"context_management": COMPACTION_CONTEXT_MANAGEMENT},
        usage=prepared.usage,
        is_stored=False,
    )


async def _compact_in_place(chat: Chat, prepared: PreparedCompaction, *, confirmed: bool) -> CompactionResult:
    """Let the endpoint add a compaction item to the conversation.

    Raises InvalidUsage if the endpoint refused and a new conversation was not confirmed. Raises EndpointFault if it
    returned no compaction item; the items that it added are deleted again.
    """
    handle, options = chat.session.handle or "", chat.options
    try:
        response = await collect_response(
            chat.deps.endpoint,
            {
                "model": options.wire_model,
                **_instruction_field(options),
                "input": [COMPACTION_TRIGGER_ITEM],
                "conversation": handle,
            },
        )
    except RequestRefused as refusal:
        if not confirmed:
            raise _confirmation_required(handle) from refusal
        prepared_input = await prepare_compaction(chat, CompactionOptions(mode=CompactionMode.INPUT), confirmed=True)
        return await _compact_into_new_conversation(chat, prepared_input)
    try:
        check_compacted(response)
    except EndpointFault as fault:
        failed_deletions = await _delete_output(chat, handle, response)
        raise EndpointFault(
            f"{fault.message}; {failed_deletions or 'nothing was changed'}",
            code=fault.code,
            hint=f"convo compact {quote(handle)} --mode input --yes, for a new conversation",
        ) from fault
    path = await load_conversation_history(handle, chat.deps)
    output = response.get("output") or ()

    def update_mirror(state: ConversationState) -> ConversationState:
        unconfirmed = [node.item for node in state.unconfirmed_nodes]
        return replace(state, path=path.append(unconfirmed), confirmed_head=path.head)

    def make_link(state: ConversationState) -> Link:
        input_head = path.first(len(path) - len(output)).head
        link = _compaction_link(chat, prepared, state, response.get("id") or chat.deps.new_id("try"))
        usage = response.get("usage")
        return replace(link, input_head=input_head, head=path.head, usage=usage, is_stored=True, conversation_id=handle)

    await chat.replace_history(update_mirror, make_link)
    return CompactionResult(prepared, await _count_conversation(chat, path), None, len(chat.state.unconfirmed_nodes))


async def _delete_output(chat: Chat, handle: str, response: Response) -> str:
    """Delete the items of an unwanted response; returns a description of the failed deletions, or ""."""
    failed_count = 0
    for item in response.get("output") or ():
        try:
            await chat.deps.endpoint.delete_conversation_item(handle, str(item.get("id")))
        except ConvoError:
            failed_count += 1
    return f"{failed_count} items of its response could not be deleted from {handle}" if failed_count else ""


async def _compact_into_new_conversation(chat: Chat, prepared: PreparedCompaction) -> CompactionResult:
    """Seed a new conversation with the replacement and the items appended to the old one meanwhile."""
    old_handle = chat.session.handle
    later_items = items_after_point(await load_conversation_history(old_handle or "", chat.deps), prepared.source_path)
    seeded = await seed_conversation(to_resendable_items((*prepared.replacement, *later_items)), chat.deps)

    def switch_conversation(state: ConversationState) -> ConversationState:
        unconfirmed = [node.item for node in state.unconfirmed_nodes]
        return replace(
            state, path=seeded.path.append(unconfirmed), confirmed_head=seeded.path.head, handle=seeded.handle
        )

    def make_link(state: ConversationState) -> Link:
        link = _compaction_link(chat, prepared, state, chat.deps.new_id("try"))
        return replace(link, input_head=seeded.path.head, head=seeded.path.head)

    try:
        await chat.replace_history(switch_conversation, make_link)
    except BaseException:
        with suppress(ConvoError):
            stored = await chat.deps.store.session(chat.session.id)
            if stored is None or stored.handle != seeded.handle:
                await delete_seeded_conversation(seeded.handle, chat.deps)
        raise
    return CompactionResult(
        prepared, prepared.count_after, old_handle, len(later_items) + len(chat.state.unconfirmed_nodes)
    )


def _confirmation_required(handle: str | None) -> InvalidUsage:
    return InvalidUsage(
        f"{handle} would continue as a new conversation with the compacted history; the old one does not change",
        hint="pass --yes to confirm",
    )


COMPACTION_UNSUPPORTED_STATUSES = (404, 405, 501)
"""HTTP statuses of servers that have no compaction."""

NOT_COMPACTED = "not_compacted"

PREVIOUS_RESPONSE_NOT_FOUND = "previous_response_not_found"

MAX_SUMMARY_SPLITS = 6
"""How often a history that is too long for one summary request is split in two."""


class CompactionOutput(NamedTuple):
    """Result of the requests for a compaction.

    plan:          the plan that succeeded
    replacements:  alternatives for the new history, the more complete one first
    usage:         sum over all requests; None if not reported
    notes:         messages for the user
    """

    plan: CompactionPlan
    replacements: tuple[tuple[Item, ...], ...]
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def run_compaction(
    plan: CompactionPlan, options: RequestOptions, endpoint: Endpoint, *, allow_fallback: bool
) -> CompactionOutput:
    """Request a compaction as planned.

    allow_fallback:  whether another method may be used if the endpoint lacks the planned one

    Raises the errors of the endpoint.
    """
    if plan.method is CompactionMethod.SUMMARY:
        summary, usage, notes = await _summarize(plan, plan.compacted_items, options, endpoint, MAX_SUMMARY_SPLITS)
        return CompactionOutput(
            plan, build_replacements(plan, count_item_tokens(plan.compacted_items), summary), usage, notes
        )
    try:
        response = await endpoint.compact(_compact_body(plan, options))
        check_compacted(response)
    except EndpointFault as fault:
        fallback = _fallback_plan(plan, fault, is_embedded=endpoint.scope == EMBEDDED_SCOPE) if allow_fallback else None
        if fallback is None:
            raise
        result = await run_compaction(fallback, options, endpoint, allow_fallback=True)
        return result._replace(notes=(f"{fault.message}; compacted by {fallback.method} instead", *result.notes))
    window = (*response["output"], *plan.kept_items)
    return CompactionOutput(plan, ((*_lost_instructions(options, window), *window),), response.get("usage"))


def _instruction_field(options: RequestOptions) -> dict[str, Json]:
    """Return the field `instructions` of a compaction; none where they are a message of the history."""
    has_field = options.instructions and not options.instructions_as_message
    return {"instructions": options.instructions} if has_field else {}


def _lost_instructions(options: RequestOptions, window: Sequence[Item]) -> tuple[Item, ...]:
    """Return the message with the instructions if the compacted history lacks it: OpenAI keeps only the user's."""
    as_message = options.instructions_as_message
    message = build_instruction_message(window, options.instructions, options.instructions, as_message=as_message)
    return (message,) if message else ()


def check_compacted(answer: Mapping[str, Json]) -> None:
    """Raise EndpointFault for a response without a compaction item: the endpoint did something else."""
    output = answer.get("output")
    if not isinstance(output, list) or not any(item_type(item) == "compaction" for item in output):
        raise EndpointFault("the response has no compaction item", code=NOT_COMPACTED)


def _compact_body(plan: CompactionPlan, options: RequestOptions) -> dict[str, Json]:
    fields = {"model": options.wire_model, **_instruction_field(options)}
    if plan.method is CompactionMethod.PREVIOUS:
        return {**fields, "previous_response_id": plan.previous_response_id}
    return {**fields, "input": list(to_resendable_items(plan.compacted_items))}


def _fallback_plan(plan: CompactionPlan, fault: EndpointFault, *, is_embedded: bool) -> CompactionPlan | None:
    """Return another plan if the endpoint's error says that it lacks the planned method, else None."""
    if plan.method is CompactionMethod.PREVIOUS and fault.code == PREVIOUS_RESPONSE_NOT_FOUND:
        return plan_from_items(plan, is_embedded=is_embedded)
    if fault.code == NOT_COMPACTED and not is_embedded:
        return CompactionPlan(CompactionMethod.SUMMARY, plan.compacted_items, plan.kept_items, None, plan.focus)
    if plan.method is CompactionMethod.INPUT and fault.status in COMPACTION_UNSUPPORTED_STATUSES and not is_embedded:
        return CompactionPlan(CompactionMethod.SUMMARY, plan.compacted_items, plan.kept_items, None, plan.focus)
    if plan.method is CompactionMethod.PREVIOUS and fault.status in COMPACTION_UNSUPPORTED_STATUSES:
        return CompactionPlan(CompactionMethod.SUMMARY, plan.compacted_items, plan.kept_items, None, plan.focus)
    return None


class SummaryResult(NamedTuple):
    """A model's summary; `usage` and `notes` as in `CompactionOutput`."""

    text: str
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def _summarize(
    plan: CompactionPlan, items: Sequence[Item], options: RequestOptions, endpoint: Endpoint, max_splits: int
) -> SummaryResult:
    """Let the model summarize `items`; a history that is too long is summarized in two steps."""
    request = build_summary_request(items, focus=plan.focus, context=options.instructions)
    body = {"model": options.wire_model, "instructions": request.instructions, "input": list(request.items)}
    try:
        return _parse_summary(await collect_response(endpoint, {**body, "store": False}))
    # Some servers report a context that is too long in a response with status "failed", not as an HTTP error.
    except (EndpointFault, WindowExceeded) as error:
        middle = middle_cut_point(items)
        if not max_splits or middle is None or error.code != WindowExceeded.code:
            raise
    first = await _summarize(plan, items[:middle], options, endpoint, max_splits - 1)
    second = await _summarize(plan, (summary_message(first.text), *items[middle:]), options, endpoint, max_splits - 1)
    return SummaryResult(
        second.text, _add_usage(first.usage, second.usage), tuple(dict.fromkeys(first.notes + second.notes))
    )


async def collect_response(endpoint: Endpoint, body: Mapping[str, Json]) -> Response:
    """Return the completed response to `body`. Raises the errors of the endpoint, and EndpointFault if it failed."""
    response: Response | None = None
    async with aclosing(endpoint.create(body)) as events:
        async for event in events:
            response = event["response"] if event["type"] in TERMINAL_EVENTS else response
    if response is None:
        raise StreamBroken("the endpoint's stream ended before the response was complete")
    if response.get("status") == "failed":
        raise make_response_fault(response)
    return response


def _parse_summary(response: Response) -> SummaryResult:
    summary = extract_summary(response.get("output") or ())
    if not summary:
        raise StreamBroken("the model returned an empty summary")
    incomplete = make_incomplete_error(response)
    notes = (f"the summary is incomplete ({incomplete['code']}): its end is missing",) if incomplete else ()
    return SummaryResult(summary, response.get("usage"), notes)


def _add_usage(first: Mapping[str, Json] | None, second: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """Add the tokens of two requests, without their details."""
    if not first or not second:
        return first or second
    return {name: (first.get(name) or 0) + (second.get(name) or 0) for name in ("input_tokens", "output_tokens")}


BRANCH_SUFFIX = "before"


@asynccontextmanager
async def _branch_kept_on_success(chat: Chat, link_id: str) -> AsyncIterator[str | None]:
    """Keep the current history of `chat` under its own handle, and yield the handle. Raises StoreFault and Conflict.

    If the block fails, the branch is removed, unless the store shows that the link was committed all the same.
    """
    session = chat.session
    if session.replay_file:
        name, remove_branch = _branch_replay_file(chat)
    elif not chat.state.is_server_side:
        name, remove_branch = await _branch_session(chat)
    else:
        yield session.handle
        return
    try:
        yield name
    except BaseException:
        if remove_branch:
            await _remove_unless_committed(chat, link_id, remove_branch)
        raise


RemoveBranch: TypeAlias = Callable[[], Awaitable[None]]


async def _remove_unless_committed(chat: Chat, link_id: str, remove_branch: RemoveBranch) -> None:
    """Call `remove_branch`, except if the link was committed or the store cannot be read."""
    with suppress(ConvoError):
        stored = await chat.deps.store.session(chat.session.id)
        if stored is None or stored.link_id != link_id:
            await remove_branch()


async def _branch_session(chat: Chat) -> tuple[str, RemoveBranch | None]:
    """Create a session with the same head, and return its name; an earlier copy is reused."""
    store, session = chat.deps.store, chat.session
    base_name = f"{session.name}-{BRANCH_SUFFIX}"
    for existing in await store.sessions():
        if existing.head == session.head and existing.name.startswith(base_name):
            return existing.name, None
    name = await find_free_session_name(store, base_name)
    stored = await store.session(session.id)
    use_order = (
        max(stored.use_order - 1, 0) if stored and stored.use_order else 0
    )  # below the session's own, so that `-c` continues that one
    branch = replace(
        session, id=chat.deps.new_id("ses"), name=name, created_at=chat.deps.clock.now(), use_order=use_order
    )
    await store.commit(Transaction(session=branch, expected_session_head=None))

    async def remove_branch() -> None:
        await store.remove_session(branch.id)

    return name, remove_branch


def _branch_replay_file(chat: Chat) -> tuple[str, RemoveBranch | None]:
    """Copy the replay file in its folder, and return the path.

    An equal copy is reused. A copy with only the first items of the history, which an interrupted compaction left,
    is replaced.
    """
    stem, suffix = os.path.splitext(chat.session.handle or "")
    items = list(chat.state.path.items)
    size = len(format_replay_file(items))
    for path in iter_numbered_paths(f"{stem}-{BRANCH_SUFFIX}{suffix}"):
        if not os.path.lexists(path):
            break
        copied = _read_list(FilePath(path), size)
        # A kill between the copy and the replacement leaves a copy without the newest items; compared whole, copies
        # collected.
        if copied and copied == items[: len(copied)]:
            if len(copied) < len(items):
                ReplayFile(path).write(items)
            return path, None
    ReplayFile(path).write(items)

    async def remove_branch() -> None:
        with suppress(OSError):
            os.unlink(path)

    return path, remove_branch


def _read_list(file: FilePath, size: int) -> list[Any]:
    """Return the JSON list in a regular file of at most `size` bytes; an empty one if there is none."""
    try:
        value = json.loads(file.read_bytes()) if file.is_file() and file.stat().st_size <= size else []
    except (OSError, ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
