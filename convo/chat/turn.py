"""One request and its response, and the order of commits.

The input is committed before the request; the link, the output, the head and the confirmed head in one
transaction before the last event is yielded. A cancelled response is stored as unconfirmed items, and so is the text
of a running one, at most once a second: a kill keeps it.
A request is retried only until the first output event, and only where the strategy allows it; where the
owner may have received it, its items after the confirmed head are read first and a missed response is recovered.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.prefix_guard import PrefixGuard, find_wrong_forecast
from convo.chat.session_record import NO_UPDATE, ChatDeps, RunUpdate, SessionRecord
from convo.config.sections import ContextLimits
from convo.endpoints.base import LIMIT_FIELD, PAGE_ITEMS, Endpoint, iter_pages
from convo.errors import ConvoError, EndpointFault, LimitReached, RequestRefused, StateFault, StoreFault, StreamBroken
from convo.history.accumulator import (
    START_EVENTS,
    STREAMED_TEXT_DIFFERS,
    STREAMED_TEXT_DIFFERS_MESSAGE,
    TERMINAL_EVENTS,
    TEXT_DELTAS,
    ResponseAccumulator,
    validate_stream_event,
)
from convo.history.items import (
    CONFIGURATION_TYPES,
    Item,
    Json,
    Response,
    StreamEvent,
    called_tools,
    is_client_output,
    is_incomplete_item,
    is_user_message,
    item_type,
    request_title,
)
from convo.history.pairing import open_client_calls
from convo.history.records import (
    ANSWERED_STATUSES,
    COMPARED_PARAMETER,
    COMPARISON_FIELD,
    EMBEDDED_SCOPE,
    IGNORED_PARAMETER,
    LINK_STATUSES,
    NOTICES,
    REMOVED_FIELD,
    UNFINISHED_STATUSES,
    UPSTREAM_ID,
    Link,
    LinkStatus,
    Scope,
    Session,
    Strategy,
    get_link_provider,
    is_compaction_link,
    pick_reported_fields,
    strip_tool_secrets,
)
from convo.history.tree import Path
from convo.runtime import Clock, shielded
from convo.stores.base import Store
from convo.strategies.instructions import (
    build_instruction_message,
    choose_field,
    find_last_instructions,
    is_developer_message,
    omit_repeated_message,
)
from convo.strategies.kept_prefix import KeptPrefix, find_configuration_items, keep_prefix
from convo.strategies.requests import (
    add_cache_options,
    answer_owned_calls,
    apply_cancellation,
    build_request_body,
    decide_retry,
    items_after_confirmed,
    reconcile,
)
from convo.strategies.strategy import ConversationState, RequestInput, RetryAction, last_answer_depth
from convo.usage.cost import Usage
from convo.usage.counting import max_token_count
from convo.usage.model_info import appends_instructions, find_model_window

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from convo.prompt_cache.forecast import PrefixForecast


MAX_TRIES = 4

MAX_PREAMBLE_EVENTS = 1_000
"""Events before the first output event; a stream with more is broken."""

FIRST_WAIT_S, MAX_BACKOFF_S, JITTER_S = 1, 8, 0.25
"""Seconds before the next try: 1, 2, 4, plus up to 0.25 of jitter, unless the endpoint names its own."""

MAX_RETRY_AFTER_S = 60.0
"""Seconds; a longer wait that the endpoint asks for becomes an error instead of a long wait or an early retry."""


@dataclass
class StartedStream:
    """A response that has started: the events received so far, and the stream of the rest."""

    first_events: list[StreamEvent]
    stream: AsyncGenerator[StreamEvent, None]


StreamOpener = Callable[[], Awaitable[AsyncGenerator[StreamEvent, None] | None]]
"""Builds and sends the request; None when the owner turns out to have the response already."""


async def open_with_retry(
    open_stream: StreamOpener,
    strategy: Strategy,
    clock: Clock,
    *,
    check_tail: Callable[[], None],
    notify: Callable[[str], None],
) -> StartedStream | None:
    """Open a stream, with retries where they are safe.

    check_tail:  called before a retry that must read the owner's tail first
    notify:      called with the reason of each retry
    Raises the last error when a retry is not allowed or did not help.
    """
    try:
        return await _start_stream(open_stream)
    except ConvoError as failure:
        if not _can_retry(strategy, failure):
            raise
        first_failure = failure
    return await _retry(open_stream, first_failure, strategy, clock, check_tail=check_tail, notify=notify)


def _can_retry(strategy: Strategy, failure: BaseException) -> bool:
    if not isinstance(failure, ConvoError) or (get_retry_after_s(failure) or 0.0) > MAX_RETRY_AFTER_S:
        return False
    return decide_retry(strategy, failure).action is not RetryAction.NO


async def _retry(
    open_stream: StreamOpener,
    first_failure: ConvoError,
    strategy: Strategy,
    clock: Clock,
    *,
    check_tail: Callable[[], None],
    notify: Callable[[str], None],
) -> StartedStream | None:
    """Retry after `first_failure`. Most requests succeed at once and never import the library."""
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

    # Raised by the first attempt, so that the library counts it and waits after it.
    unraised_failures = [first_failure]

    async def attempt() -> StartedStream | None:
        if unraised_failures:
            raise unraised_failures.pop()
        return await _start_stream(open_stream)

    def prepare_retry(retry_state: "RetryCallState") -> None:
        failure = retry_state.outcome.exception() if retry_state.outcome else None
        if isinstance(failure, ConvoError):
            decision, wait_s = decide_retry(strategy, failure), retry_state.upcoming_sleep
            attempt_text = f"retry {retry_state.attempt_number} of {MAX_TRIES - 1} in {wait_s:.0f} s"
            notify(f"{failure.message}; {attempt_text}: {decision.reason}")
            if decision.action is RetryAction.READ_FIRST:
                check_tail()

    retryer = AsyncRetrying(
        retry=retry_if_exception(lambda failure: _can_retry(strategy, failure)),
        wait=_compute_wait_s,
        stop=stop_after_attempt(MAX_TRIES),
        sleep=clock.sleep,
        before_sleep=prepare_retry,
        reraise=True,
    )
    return await retryer(attempt)


async def _start_stream(open_stream: StreamOpener) -> StartedStream | None:
    stream = await open_stream()
    if stream is None:
        return None
    events: list[StreamEvent] = []
    try:
        async for event in stream:
            events.append(event)
            if len(events) > MAX_PREAMBLE_EVENTS:
                raise StreamBroken("the endpoint sent only start events, and too many of them")
            if event.get("type") not in START_EVENTS:
                return StartedStream(events, stream)
    except BaseException:
        await stream.aclose()
        raise
    raise StreamBroken("the endpoint's stream ended before a response began")


def _compute_wait_s(retry_state: "RetryCallState") -> float:
    from tenacity import wait_exponential_jitter

    requested_wait_s = get_retry_after_s(retry_state.outcome.exception() if retry_state.outcome else None)
    return (
        wait_exponential_jitter(FIRST_WAIT_S, MAX_BACKOFF_S, jitter=JITTER_S)(retry_state)
        if requested_wait_s is None
        else requested_wait_s
    )


def get_retry_after_s(failure: BaseException | None) -> float | None:
    """Return the wait in seconds that the endpoint asks for, if any."""
    return failure.retry_after_s if isinstance(failure, EndpointFault) else None


@dataclass(frozen=True, slots=True)
class OwnerTail:
    """The owner's items after the confirmed head, oldest first, and their links, where known."""

    items: tuple[Item, ...] = ()
    links: tuple[Link, ...] = ()


async def load_owner_tail(state: ConversationState, endpoint: Endpoint, store: Store) -> OwnerTail:
    """Load the items that the owner has and this process did not receive.

    Raises StateFault when the conversation lacks the items that it had confirmed.
    """
    is_local = endpoint.scope == EMBEDDED_SCOPE
    if state.owner.uses_response and is_local:
        return await _load_local_chain(state, store)
    if state.owner.uses_conversation and state.handle:
        return await (
            _load_local_conversation(state, store) if is_local else _fetch_remote_conversation(state, endpoint)
        )
    return OwnerTail()


async def _load_local_chain(state: ConversationState, store: Store) -> OwnerTail:
    """Load the response that the embedded endpoint gave to exactly the unconfirmed input, or to a prefix of it.

    A new root may begin with a history of responses: a response to a part of that history does not count.
    """
    confirmed_path = state.path.up_to(state.confirmed_head)
    input_path = confirmed_path.append(state.owner.build_input(state).items)
    answered_path = state.path.first(last_answer_depth(state))
    answered_depth = len(answered_path) and len(confirmed_path) + len(
        state.owner.build_input(replace(state, path=answered_path)).items
    )
    for depth in range(len(input_path), max(len(confirmed_path), answered_depth), -1):
        for link in await store.responses_to(input_path.first(depth).head):
            if (
                # Without a session: no chat has stored this response yet.
                link.session_id is None
                and link.status in ANSWERED_STATUSES
                and link.previous_response_id == state.handle
            ):
                path = await store.path(link.head)
                return OwnerTail(_get_items_after_confirmed(path, state), (link,))
    return OwnerTail()


async def _load_local_conversation(state: ConversationState, store: Store) -> OwnerTail:
    conversation = await store.conversation(state.handle or "")
    if conversation is None:
        return OwnerTail()
    path = await store.path(conversation.head)
    if not path.contains(state.confirmed_head):
        raise _make_drift_fault(state)
    links = await store.responses_to(*(node.key for node in path.after(state.confirmed_head)))
    return OwnerTail(_get_items_after_confirmed(path, state), tuple(link for link in links if link.session_id is None))


async def _fetch_remote_conversation(state: ConversationState, endpoint: Endpoint) -> OwnerTail:
    handle, newest_first = state.handle or "", list[Item]()
    pages = iter_pages(
        lambda after: endpoint.list_conversation_items(handle, after=after, limit=PAGE_ITEMS, order="desc")
    )
    async with aclosing(pages):
        async for page in pages:
            # From the end: the last confirmed item is near it, and a conversation may be long.
            newest_first += page.items
            has_more = page.has_more and bool(page.items)
            tail = items_after_confirmed(state, newest_first)
            if tail is not None and (state.confirmed_head != state.path.root or not has_more):
                return OwnerTail(tuple(tail))
    raise _make_drift_fault(state)


def _get_items_after_confirmed(path: Path, state: ConversationState) -> tuple[Item, ...]:
    return tuple(node.item for node in path.after(state.confirmed_head))


def _make_drift_fault(state: ConversationState) -> StateFault:
    return StateFault(
        f"{state.handle} no longer has the last item that it confirmed",
        hint=f"convo inspect {state.handle}, or open it again: convo chat --conversation --from {state.handle}",
    )


INTERRUPTED_ERROR = {"code": "interrupted", "message": "interrupted before the response was complete"}

TEXT_COMMIT_INTERVAL_S = 1.0
"""Seconds between two commits of the text of a running response; the first text is committed at once."""

MIN_WINDOW_TOKENS = 2_048
"""The smallest context window of models that are in use."""

NON_PARAMETER_FIELDS = frozenset({"model", "input", "previous_response_id", "conversation", "store", "include"})
"""Fields of a request that a link stores in other columns."""


class CacheDiagnostics(NamedTuple):
    """How the requests of a chat ask why the provider's cache missed.

    server:      the base URL
    from_first:  the first request asks, too: Claude compares only with a request that asked, and convo's own endpoint
                 keeps a provider's id of the response only then
    """

    server: str
    from_first: bool


_REFUSING_MODELS: set[tuple[str, str]] = set()
"""The servers and models that refused the field for diagnostics; they are not asked again in this process."""

_DIAGNOSTICS_FIELDS = ("prompt_cache_options", COMPARISON_FIELD, "diagnostics")
"""The names of that field in a refusal by OpenAI or Anthropic."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of a request, without its items.

    model:              "provider/model", for the record
    wire_model:         the model name in the request
    parameters:         further fields of every request
    store:              keep a copy at the endpoint although the client owns the history
    encrypt_reasoning:  the model reasons, and can return its reasoning encrypted
    cache_diagnostics:  None: they do not ask
    instructions_as_message:  new instructions become a message of the history (`convo.strategies.instructions`)
    prefix_guard:       None: no warning of a change of the prefix
    appendable:         the fields that an item of the history changes, to keep the prefix (`strategies.kept_prefix`)
    field_sources:      the setting that sets a field, by the field: "reasoning.effort"
    ignored_settings:   the settings for all models that this model does not support, each as one sentence
    windows:            context windows from the settings
    """

    model: str
    wire_model: str
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    store: bool = False
    encrypt_reasoning: bool = False
    cache_diagnostics: CacheDiagnostics | None = None
    instructions_as_message: bool = False
    prefix_guard: PrefixGuard | None = None
    appendable: Collection[str] = ()
    field_sources: Mapping[str, str] = field(default_factory=dict)
    ignored_settings: Sequence[str] = ()
    windows: Mapping[str, ContextLimits] = field(default_factory=dict)

    def build_input(self, state: ConversationState) -> RequestInput:
        """Build the input of the next request for `state`."""
        request_input = state.owner.build_input(state, store=self.store, encrypt_reasoning=self.encrypt_reasoning)
        is_appended = appends_instructions(self.model)
        return omit_repeated_message(request_input, state, self.instructions, is_appended=is_appended)

    def build_body(self, request_input: RequestInput, prepended_items: Sequence[Item] = ()) -> dict[str, Json]:
        """Build the body of a request with this input; `prepended_items` are those that its owner has already."""
        items = (*prepended_items, *request_input.items) if prepended_items else request_input.items
        is_appended = appends_instructions(self.model)
        instructions = choose_field(self.instructions, items, is_appended=is_appended)
        return build_request_body(
            request_input, model=self.wire_model, instructions=instructions, parameters=self.parameters
        )

    def build_comparison(self, last_link: Link | None, scope: Scope) -> Mapping[str, Json]:
        """Return the option that asks for diagnostics of the cache; none if the next request does not ask.

        last_link:  the last response of the conversation
        scope:      of the endpoint
        """
        diagnostics, own_options = self.cache_diagnostics, self.parameters.get("prompt_cache_options") or {}
        is_own = not isinstance(own_options, Mapping) or COMPARISON_FIELD in own_options
        if diagnostics is None or is_own or (diagnostics.server, self.model) in _REFUSING_MODELS:
            return {}
        is_comparable = (
            last_link is not None
            and last_link.status == "completed"
            and not (last_link.id.startswith("try_") or is_compaction_link(last_link))
            and (last_link.scope, get_link_provider(last_link)) == (scope, self.model.partition("/")[0])
            and (scope != EMBEDDED_SCOPE or UPSTREAM_ID in last_link.reported)
        )
        if last_link is not None and is_comparable:
            return {COMPARISON_FIELD: last_link.id}
        return {COMPARISON_FIELD: None} if diagnostics.from_first else {}

    def plan_link(
        self, body: Mapping[str, Json], path: Path, strategy: Strategy, scope: Scope, planned_at: float
    ) -> Link:
        """Return the link of a request that is not sent yet; `path` is that of its input."""
        parameters = _get_parameters(body)
        return Link(
            "", path.head, path.head, 0, self.model, strategy, "queued", planned_at, scope=scope, parameters=parameters
        )

    def append_input(
        self,
        state: ConversationState,
        items: Sequence[Item],
        previous_instructions: str | None,
        last_link: Link | None,
    ) -> ConversationState:
        """Append new input, after the items that keep the prefix, or a message with the instructions where needed.

        previous_instructions:  those of the turn before
        last_link:              the last response of the conversation
        """
        kept = self.keep_prefix(state.path, last_link, previous_instructions)
        message = build_instruction_message(
            state.path.items, self.instructions, previous_instructions, as_message=self.instructions_as_message
        )
        new_items = [*(kept.items if kept else ()), *items]
        if message and not any(map(is_developer_message, new_items)):
            new_items.insert(0, message)
        return replace(state, path=state.path.append(new_items))

    def keep_prefix(
        self, path: Path, last_link: Link | None, previous_instructions: str | None = None
    ) -> KeptPrefix | None:
        """Return the request after `path` that keeps the prefix of the one before; None if these options do not.

        last_link, previous_instructions:  as in `append_input`
        """
        has_prefix = last_link is not None and last_link.model == self.model and not is_compaction_link(last_link)
        before = last_link.parameters if last_link and has_prefix else None
        appendable = self.appendable
        if not appendable and last_link and has_prefix and self._continues_message(path, last_link):
            appendable = ("instructions",)
        if not (appendable or find_configuration_items(path.items)):
            return None
        return keep_prefix(
            path.items,
            self.instructions,
            self.parameters,
            before,
            appendable=appendable,
            setting_fields=self.field_sources,
            previous_instructions=previous_instructions,
        )

    def _continues_message(self, path: Path, last_link: Link) -> bool:
        """Return whether the request before had the instructions as its last developer message, and others as field.

        The field stays, also without --keep-prefix: to move them into it would lose the prefix that was kept.
        """
        held = last_link.parameters.get("instructions")
        if self.instructions_as_message or held is None or self.instructions in (None, held):
            return False
        if not path.contains(last_link.head):
            return False
        if find_last_instructions(path.items[: path.depth(last_link.head)]) != self.instructions:
            return False
        from convo.usage.cache_rules import find_cache_rules  # only such a history needs the rules

        return "instructions" in find_cache_rules(self.model, self.parameters).appends

    def with_kept_prefix(self, path: Path, last_link: Link | None) -> "RequestOptions":
        """Return the options of a request after `path`, which has the items that keep the prefix, with its fields.

        They do not change if they are derived again.
        """
        kept = self.keep_prefix(path, last_link, self.instructions)
        if kept is None or kept.items:  # without its item a change would be lost
            return self
        return replace(self, instructions=kept.instructions, parameters=kept.parameters, appendable=())


@dataclass(slots=True)
class RequestTiming:
    """The times of a request.

    started_at:          seconds since 1970
    start_ticks:         monotonic seconds
    first_output_ticks:  monotonic seconds at the first output event
    """

    started_at: float
    start_ticks: float
    first_output_ticks: float | None = None


@dataclass(frozen=True, slots=True)
class InputOverride:
    """The model's input in place of a history that the client owns; the history itself keeps everything.

    path:           of the turn's link
    request_input:  the part of it that is sent
    """

    path: Path
    request_input: RequestInput


ResponseHook = Callable[[ConversationState, tuple[Item, ...], str | None], Awaitable[RunUpdate | None]]
"""Called with the state after a response and the response's items in it, before they are stored.

The last argument is the reason why the response was cut in its calls, which are not run; None for any other response.
Returns the update that is stored in the same transaction, or None to reject the response.
"""


async def return_no_update(state: ConversationState, output: tuple[Item, ...], cut_reason: str | None) -> RunUpdate:
    """Return an empty update: only the response is stored."""
    return NO_UPDATE


class ChatTurn:
    """One request for the unconfirmed input of `record`, and its response.

    link:            the link, once the turn has ended
    response:        the owner's final response, if any
    request_count:   requests that were sent
    is_rejected:     do not store a partial response, unless the owner has it
    prefix:          what the request loses by a change of the prefix; None if it only appends
    wrong_forecast:  how the reasoning that the provider removed differs from `prefix`; None if it does not
    """

    def __init__(
        self,
        record: SessionRecord,
        options: RequestOptions,
        deps: ChatDeps,
        *,
        check_tail: bool,
        notify: Callable[[str], None],
        input_override: InputOverride | None = None,
        on_response: ResponseHook = return_no_update,
    ) -> None:
        """Prepare a turn.

        check_tail:  the owner may already have a part of the input
        notify:      called at once with each message for the user
        """
        self.link: Link | None = None
        self.response: Response | None = None
        self.request_count = 0
        self.is_rejected = False
        self.prefix: PrefixForecast | None = None
        self.wrong_forecast: str | None = None
        self._record, self._options, self._deps = record, options, deps
        self._given_options = options
        self._check_tail, self._notify = check_tail, notify
        self._input_override, self._on_response = input_override, on_response
        self._accumulator = ResponseAccumulator()
        self._has_text_mismatch = False
        self._late_notices: list[str] = []
        self._removed_before: Json = None
        self._ignored_fields: Sequence[str] = ()
        self._requested_state: ConversationState | None = None
        self._request_input = RequestInput((), 0, {})
        self._comparison: Mapping[str, Json] = {}
        self._recovered_path = record.state.path
        self._timing = RequestTiming(deps.clock.now(), deps.clock.monotonic())
        self._next_text_commit_ticks = 0.0

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the response, the last one after the commit.

        Raises the errors of the endpoint and the store; the input stays unconfirmed.
        """
        try:
            async with aclosing(self._stream_response()) as response_events:
                async for event in response_events:
                    await self._process_event(event)
                    yield event
            await self._check_forecast()
            self._notify_late()
        except (asyncio.CancelledError, GeneratorExit):
            await shielded(self._save_partial("cancelled", INTERRUPTED_ERROR))
            raise
        except LimitReached as limit_error:
            last_event = self._make_incomplete_event(limit_error)
            if last_event is None:
                await self._save_partial(
                    "failed", {"code": limit_error.code, "message": limit_error.message, LIMIT_FIELD: limit_error.limit}
                )
                raise
            await self._process_event(last_event)
            yield last_event
            self._notify_late()
        except ConvoError as failure:
            await self._save_partial("failed", {"code": failure.code, "message": failure.message})
            append_setting_source(failure, self._options.field_sources)
            raise

    def _make_incomplete_event(self, limit_error: LimitReached) -> StreamEvent | None:
        """Make the last event of a response that exceeded a size limit, where the client owns the history.

        None where the turn failed: a server that owns the history does not have the partial response.
        """
        if (
            limit_error.is_time_limit
            or self._requested_state is None
            or not self._accumulator.has_output_events
            or self._requested_state.is_server_side
        ):
            return None
        response = {
            "id": self._accumulator.response_id,
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": self._accumulator.incomplete_output,
        }
        return {
            "type": "response.incomplete",
            "response": response,
            LIMIT_FIELD: {"name": limit_error.limit, "message": limit_error.message},
        }

    # -- request ------------------------------------------------------------------------------

    async def _stream_response(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            started = await self._open_stream()
        except RequestRefused as refusal:
            # else an undone turn, or another client, may have left a call without an output in the conversation
            if not self._remember_refused_diagnostics(refusal):
                if not await self._has_unknown_items():
                    raise
                self._require_tail_check()
            started = await self._open_stream()
        if started is None:
            for event in make_recovered_events(self._recovered_path, self._record.last_link):
                yield event
            return
        async with aclosing(started.stream) as stream:
            for event in started.first_events:
                yield event
            async for event in stream:
                yield event
        if not self.link:
            raise StreamBroken("the endpoint's stream ended before the response was complete")

    async def _open_stream(self) -> StartedStream | None:
        return await open_with_retry(
            self._send_request,
            self._record.state.strategy,
            self._deps.clock,
            check_tail=self._require_tail_check,
            notify=self._notify,
        )

    def _remember_refused_diagnostics(self, refusal: RequestRefused) -> bool:
        """Return whether the server refused the field for diagnostics; then it is not sent again."""
        diagnostics, text = self._options.cache_diagnostics, f"{refusal.param} {refusal.message}"
        names_field = refusal.status == 400 and any(name in text for name in _DIAGNOSTICS_FIELDS)
        if diagnostics is None or not self._comparison or not names_field:
            return False
        _REFUSING_MODELS.add((diagnostics.server, self._options.model))
        # The refused request does not count: if this one is not sent, the input can be discarded still.
        self.request_count = 0
        return True

    async def _has_unknown_items(self) -> bool:
        """Whether the conversation is known to have items that this process does not know."""
        state = self._record.state
        with suppress(ConvoError):
            return state.owner.uses_conversation and bool(
                (await load_owner_tail(state, self._deps.endpoint, self._deps.store)).items
            )
        return False

    async def _send_request(self) -> AsyncGenerator[StreamEvent, None] | None:
        record = self._record
        # Before the request: a response that cannot be stored would be paid for all the same.
        await self._deps.store.admin.check_disk_space()
        if record.state.owner.uses_conversation and not record.state.handle:
            conversation = await self._deps.endpoint.create_conversation()
            await record.commit(replace(record.state, handle=conversation["id"]))
        elif self._check_tail and await self._recover_response():
            return None
        path = self._input_override.path if self._input_override else record.state.path
        self._options = self._given_options.with_kept_prefix(path, record.last_link)
        request_input = (
            self._input_override.request_input if self._input_override else self._options.build_input(record.state)
        )
        prepended_items = [node.item for node in record.state.prepended_nodes]
        body = self._options.build_body(request_input, prepended_items)
        if not self.request_count:
            self._check_window(body, path)
            await self._check_prefix(body, path)
        self._requested_state, self._request_input = record.state, request_input
        self.request_count += 1
        if self.request_count == 1:  # the times of a request include those of its retries
            self._timing = RequestTiming(self._deps.clock.now(), self._deps.clock.monotonic())
        self._comparison = self._options.build_comparison(record.last_link, self._deps.endpoint.scope)
        return self._deps.endpoint.create(add_cache_options(body, self._comparison))

    def _check_window(self, body: Mapping[str, Json], path: Path) -> None:
        """Warn if the input probably exceeds the context window. Raises WindowExceeded if it certainly does."""
        link, known_tokens = self._record.last_link, 0
        items: Sequence[Item] = path.items
        usage = Usage.from_json(link.usage) if link and path.contains(link.head) else None
        if link and usage and not is_compaction_link(link):
            items = path.items[path.depth(link.head) :]
            known_tokens = usage.input_tokens + usage.output_tokens
        # The endpoint leaves out or compacts what does not fit.
        is_shortened = body.get("truncation") == "auto" or bool(body.get("context_management"))
        # The model data is loaded, in 7 ms, for inputs that exceed the smallest windows only.
        settings = (None, None) if known_tokens else (body.get("instructions"), body.get("tools"))
        if is_shortened or known_tokens + max_token_count(items, *settings) <= MIN_WINDOW_TOKENS:
            return
        window = find_model_window(self._options.model, self._options.windows)
        # Else the known window is wrong.
        if window is None or known_tokens > window.max_input:
            return
        from convo.usage.window import describe_excess

        excess = describe_excess(items, *settings, self._options.model, window, known_tokens=known_tokens)
        if excess:
            self._notify(f"warning: {excess}")

    async def _check_prefix(self, body: Mapping[str, Json], path: Path) -> None:
        """Warn if the request changes the prefix of the one before. Raises PrefixChanged if the guard is strict."""
        guard, record, scope = self._options.prefix_guard, self._record, self._deps.endpoint.scope
        if guard is None:
            return
        planned = self._options.plan_link(body, path, record.state.strategy, scope, self._timing.started_at)
        forecast = self.prefix = await guard.forecast_turn(self._deps.store, record.last_link, planned, path)
        self._removed_before = record.last_link.reported.get(REMOVED_FIELD) if record.last_link else None
        change = (record.session.link_id, forecast.change) if forecast else None
        warned_change, record.warned_change = record.warned_change, change
        # A request that failed and is sent again loses nothing more.
        if forecast and forecast.has_loss and change != warned_change:
            self._notify(f"warning: {forecast}")

    async def _check_forecast(self) -> None:
        """Note if the provider removed other reasoning than the forecast says."""
        removed = self.link.reported.get(REMOVED_FIELD) if self.link else None
        is_expected = not (self.prefix and self.prefix.lost_reasoning) and removed in ([], self._removed_before)
        if self.link is None or self._options.prefix_guard is None or removed is None or is_expected:
            return
        from convo.chat.view_loader import load_response_view

        view = await load_response_view(self._deps.store, self.link.id, is_branch_only=True)
        self.wrong_forecast = find_wrong_forecast(view)
        if self.wrong_forecast and self._options.cache_diagnostics:
            self._late_notices.append(
                f"note: the provider removed other reasoning than forecast: {self.wrong_forecast}"
            )

    async def _recover_response(self) -> bool:
        """Apply the owner's items that this process missed; return whether no request is needed."""
        record = self._record
        tail = await load_owner_tail(record.state, self._deps.endpoint, self._deps.store)
        self._check_tail = False
        if not tail.items:
            return False
        state, links = answer_owned_calls(reconcile(record.state, tail.items)), self._claim_links(record.state, tail)
        last_link = links[-1] if links else None
        if last_link and state.owner.uses_response:
            state = replace(state, handle=last_link.id)
        self._recovered_path, run_update = state.path, None
        if not state.unconfirmed_nodes:
            output = state.path.items[len(trim_to_last_input(state.path)) :]
            run_update = await self._on_response(state, output, _find_cut_reason(output, last_link))
        await record.commit(
            _append_update_items(state, run_update), *links, last_link=last_link, run_update=run_update or NO_UPDATE
        )
        self._notify(f"the server had already stored {len(tail.items)} items of this turn; using them")
        if state.unconfirmed_nodes:
            return False
        self._requested_state = None
        return True

    def _claim_links(self, state: ConversationState, tail: OwnerTail) -> tuple[Link, ...]:
        """Return the links of the owner's items, assigned to this session."""
        session = self._record.session
        if tail.links:
            parents = (session.link_id, *(link.id for link in tail.links[:-1]))
            pairs = zip(tail.links, parents, strict=True)
            return tuple(replace(link, session_id=session.id, parent_id=parent) for link, parent in pairs)
        confirmed_path = state.path.up_to(state.confirmed_head)
        link = make_recovered_link(
            confirmed_path.append(tail.items),
            len(confirmed_path),
            session,
            link_id=self._deps.new_id("try"),
            model=self._options.model,
            recovered_at=self._deps.clock.now(),
        )
        return (link,) if link else ()

    def _require_tail_check(self) -> None:
        self._check_tail = True

    # -- end of the response ------------------------------------------------------------------

    async def _process_event(self, event: StreamEvent) -> None:
        self._accumulator.add(validate_stream_event(event))
        self._ignored_fields = event.get(IGNORED_PARAMETER) or self._ignored_fields
        if self._accumulator.has_output_events and self._timing.first_output_ticks is None:
            self._timing.first_output_ticks = self._deps.clock.monotonic()
        if event["type"] in TEXT_DELTAS:
            await self._commit_text()
        if event["type"] in TERMINAL_EVENTS:
            limit = event.get(LIMIT_FIELD)
            if limit and event["type"] != "response.failed":
                self._late_notices.append(f"{limit['message']}; raise it: convo config set {limit['name']} VALUE")
            self._has_text_mismatch = not limit and (
                STREAMED_TEXT_DIFFERS in event or self._accumulator.has_different_text(event)
            )
            if self._has_text_mismatch:
                self._late_notices.append(f"warning: {STREAMED_TEXT_DIFFERS_MESSAGE}")
            for notice in event["response"].get(NOTICES) or ():
                self._late_notices.append(f"note: {notice}")
            await self._complete(event["response"], limit)

    def _notify_late(self) -> None:
        """Show the notices of the last event after its text, which a terminal prints in steps."""
        for notice in self._late_notices:
            self._notify(notice)

    async def _commit_text(self) -> None:
        """Commit the text so far, as for a response that was stopped; a store that fails now may work at its end."""
        if self._requested_state is None or self._deps.clock.monotonic() < self._next_text_commit_ticks:
            return
        with suppress(StoreFault):
            state = apply_cancellation(self._requested_state, self._accumulator.output)
            # `used_at` stays the time of the request: the inspector page counts the seconds from it.
            await self._record.commit(state, used_at=self._record.session.used_at)
        self._next_text_commit_ticks = self._deps.clock.monotonic() + TEXT_COMMIT_INTERVAL_S

    async def _complete(self, response: Response, limit: Mapping[str, Json] | None) -> None:
        if not response.get("output") and not limit:  # the output was streamed, and is missing in the last event
            is_complete = response.get("status") in (None, "completed")
            received = self._accumulator.output if is_complete else self._accumulator.incomplete_output
            response = {**response, "output": received}
        self.response = response
        if self._requested_state is None:
            self.link = self._record.last_link
            return
        if response.get("status") == "failed":
            raise make_response_fault(response)
        if limit:
            error = {"code": "max_output_tokens", "message": limit["message"], LIMIT_FIELD: limit["name"]}
            response = {**response, "error": error}
        else:
            self._requested_state.owner.validate_response(response)
        output, owner = tuple(response.get("output") or ()), self._requested_state.owner
        state = owner.apply_response(self._requested_state, self._request_input, response)
        input_path = (
            self._input_override.path if self._input_override else state.path.first(len(state.path) - len(output))
        )
        link = self._make_link(response, await self._choose_link_id(response), input_path, input_path.append(output))
        cut_reason = _find_cut_reason(output, link)
        # A conversation has stored the call already; there the next turn adds an output for it.
        is_cut_off = cut_reason is not None and not owner.uses_conversation
        if is_cut_off:
            state = apply_cancellation(self._requested_state, output)
        run_update = await self._on_response(state, () if is_cut_off else output, cut_reason)
        if is_cut_off or (run_update is None and not owner.uses_conversation):
            self.link = link
            state = state if run_update else self._requested_state
            await self._record.commit(
                state,
                link,
                run_update=run_update or NO_UPDATE,
                view_path=input_path.append(output),
                used_at=link.ended_at,
            )
            return
        view_path = input_path.append(output) if self._input_override else None
        try:
            await self._record.commit(
                _append_update_items(state, run_update),
                link,
                last_link=link,
                run_update=run_update or NO_UPDATE,
                view_path=view_path,
            )
        finally:  # the commit is done, although Ctrl-C may have interrupted the await
            self.link = link if self._record.last_link is link else None

    async def _save_partial(self, status: LinkStatus, error: Mapping[str, Json]) -> None:
        """Store the partial output as unconfirmed items, and a link with the error."""
        if self.link or self._requested_state is None:
            return
        state = (
            self._requested_state
            if self.is_rejected
            else apply_cancellation(self._requested_state, self._accumulator.output)
        )
        partial_output = [node.item for node in state.path.nodes[len(self._requested_state.path) :]]
        response = {"id": self._accumulator.response_id, "status": status, "error": error}
        input_path = self._input_override.path if self._input_override else self._requested_state.path
        self.link = self._make_link(
            response, await self._choose_link_id(response), input_path, input_path.append(partial_output)
        )
        view_path = input_path.append(partial_output) if self._input_override else None
        await self._record.commit(state, self.link, view_path=view_path, used_at=self.link.ended_at)

    async def _choose_link_id(self, response: Response) -> str:
        """Choose the id of the turn's link: the response's own, unless an earlier response of a session has it."""
        response_id: str | None = response.get("id")
        if not response_id:
            return self._deps.new_id("try")
        existing_link = (
            None if self._deps.endpoint.scope == EMBEDDED_SCOPE else await self._deps.store.link(response_id)
        )
        if existing_link is None or existing_link.session_id is None or existing_link.status in UNFINISHED_STATUSES:
            return response_id
        link_id = self._deps.new_id("try")
        self._notify(
            f"warning: the endpoint reused the response id {response_id}; this response is stored as {link_id}"
        )
        return link_id

    def _make_link(self, response: Response, link_id: str, input_path: Path, output_path: Path) -> Link:
        assert self._requested_state is not None
        fields = self._options.build_body(replace(self._request_input, items=()))
        timing, session = self._timing, self._record.session
        return Link(
            id=link_id,
            input_head=input_path.head,
            head=output_path.head,
            sent_count=self._request_input.node_count,
            model=self._options.model,
            strategy=session.strategy,
            status=_choose_link_status(response),
            created_at=timing.started_at,
            parent_id=session.link_id,
            session_id=session.id,
            scope=self._deps.endpoint.scope,
            conversation_id=fields.get("conversation"),
            previous_response_id=fields.get("previous_response_id"),
            duration_s=self._deps.clock.monotonic() - timing.start_ticks,
            first_token_s=None if timing.first_output_ticks is None else timing.first_output_ticks - timing.start_ticks,
            parameters=_get_parameters(fields)
            | ({IGNORED_PARAMETER: list(self._ignored_fields)} if self._ignored_fields else {})
            | ({COMPARED_PARAMETER: bool(self._comparison[COMPARISON_FIELD])} if self._comparison else {}),
            usage=response.get("usage"),
            error=self._make_link_error(response),
            is_stored=bool(fields.get("store", True)),
            reported=pick_reported_fields(response),
            title=request_title(reversed(input_path.items)),
            tools=called_tools(output_path.items[len(input_path) :]),
        )

    def _make_link_error(self, response: Response) -> Mapping[str, Json] | None:
        error = response.get("error") or make_incomplete_error(response)
        mismatch = {"code": "text_differs", "message": STREAMED_TEXT_DIFFERS_MESSAGE}
        return {**mismatch, **(error or {}), STREAMED_TEXT_DIFFERS: True} if self._has_text_mismatch else error


def _get_parameters(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parameters of a request as a link has them."""
    return strip_tool_secrets({name: value for name, value in body.items() if name not in NON_PARAMETER_FIELDS})


def append_setting_source(failure: ConvoError, field_sources: Mapping[str, str]) -> None:
    """Name the setting of a field, and its removal as a fix, in an error about that field of the request."""
    name = getattr(failure, "param", None)
    if not isinstance(name, str):
        return
    for field_name, source in field_sources.items():
        if name == field_name or name.startswith(f"{field_name}.") or field_name.startswith(f"{name}."):
            failure.args = (f"{failure.message}; {field_name} is set by {source}",)
            failure.add_hint("remove that setting (convo config unset)")
            return


def _find_cut_reason(output: Sequence[Item], link: Link | None) -> str | None:
    """Return why no tool of a response is run: it was cut, and has calls. None for any other response."""
    open_calls = open_client_calls(output)
    is_cut = link is not None and link.status == "incomplete"
    if not open_calls or not (is_cut or any(map(is_incomplete_item, open_calls))):
        return None
    error = (link.error if link else None) or {}
    return str(error.get("code") or "incomplete")


def _choose_link_status(response: Response) -> LinkStatus:
    """Return the status of a response's link; one that the API does not have is derived from the other members."""
    # Stored as it came, a response with another status could not be read again.
    status = next((known for known in LINK_STATUSES if known == response.get("status")), None)
    return status or ("incomplete" if response.get("incomplete_details") else "completed")


def _append_update_items(state: ConversationState, run_update: RunUpdate | None) -> ConversationState:
    """Return `state` with the items of `run_update` appended."""
    return (
        replace(state, path=state.path.append(run_update.appended_items))
        if run_update and run_update.appended_items
        else state
    )


def make_incomplete_error(response: Response) -> Mapping[str, Json] | None:
    """Return the reason of an incomplete response in the form of a link's error."""
    reason = (response.get("incomplete_details") or {}).get("reason")
    return {"code": reason, "message": "the response is incomplete"} if reason else None


def make_response_fault(response: Response) -> EndpointFault:
    """Return the error of a failed response."""
    error = response.get("error") or {}
    fault = EndpointFault(error.get("message") or "the model failed", code=error.get("code"))
    return fault.replace_hint(StreamBroken.hint, StreamBroken.prompt_hint)


def make_recovered_link(
    path: Path, confirmed_count: int, session: Session, *, link_id: str, model: str, recovered_at: float
) -> Link | None:
    """Make the link of the response that `path` ends with; None when it ends with input.

    confirmed_count:  nodes at the start of `path` that were confirmed before
    recovered_at:     seconds since 1970
    """
    input_path = trim_to_last_input(path)
    if len(input_path) == len(path) or len(input_path) <= confirmed_count:
        return None
    return Link(
        id=link_id,
        input_head=input_path.head,
        sent_count=len(input_path) - confirmed_count,
        head=path.head,
        model=model,
        strategy=session.strategy,
        status="completed",
        created_at=recovered_at,
        parent_id=session.link_id,
        session_id=session.id,
        scope=session.scope,
        conversation_id=session.handle,
    )


def make_recovered_events(path: Path, link: Link | None) -> Iterator[StreamEvent]:
    """Yield the events of the response that `path` ends with."""
    output = path.items[len(trim_to_last_input(path)) :]
    for index, item in enumerate(output):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    response_link = link if link and not link.id.startswith("try_") else None
    response = {
        "id": response_link and response_link.id,
        "status": response_link.status if response_link else "completed",
        "output": list(output),
        "usage": response_link and response_link.usage,
    }
    yield {"type": "response.completed", "response": response}


def trim_to_last_input(path: Path) -> Path:
    """Return `path` up to and including the last input item: a user message, a tool output or an approval response."""
    return path.first(max((depth for depth, item in enumerate(path.items, 1) if _is_client_input(item)), default=0))


def _is_client_input(item: Item) -> bool:
    return (
        is_user_message(item)
        or is_client_output(item)
        or is_developer_message(item)
        or item_type(item) in ("mcp_approval_response", *CONFIGURATION_TYPES)
    )
