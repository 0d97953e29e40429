"""One request and its response, and the order of commits.

The input is committed before the request; the link, the output, the head and the confirmed head in one
transaction before the last event is yielded. A cancelled response is stored as unconfirmed items.
A request is retried only until the first output event, and only where the strategy allows it; where the
owner may have received it, its items after the confirmed head are read first and a missed response is recovered.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from convo.chat.session_record import NO_UPDATE, ChatDeps, RunUpdate, SessionRecord, shielded
from convo.endpoints.base import LIMIT_FIELD, PAGE_ITEMS, Endpoint, iter_pages
from convo.errors import ConvoError, EndpointFault, LimitReached, StateFault, StateIgnored, StreamBroken
from convo.history.accumulator import (
    START_EVENTS,
    STREAMED_TEXT_DIFFERS,
    STREAMED_TEXT_DIFFERS_MESSAGE,
    TERMINAL_EVENTS,
    ResponseAccumulator,
    StreamedTextChecksum,
    validate_stream_event,
)
from convo.history.items import Item, Json, Response, StreamEvent, is_client_output, is_user_message, item_type
from convo.history.records import (
    EMBEDDED_SCOPE,
    IGNORED_PARAMETER,
    STRATEGY_INFO,
    Link,
    LinkStatus,
    Session,
    Strategy,
    strip_tool_secrets,
)
from convo.history.tree import Path
from convo.runtime import Clock
from convo.stores.base import Store
from convo.strategies.requests import (
    RetryAction,
    apply_cancellation,
    apply_response,
    build_request_body,
    build_request_input,
    decide_retry,
    items_after_confirmed,
    reconcile,
)
from convo.strategies.state import ConversationState, RequestInput, last_answer_depth

if TYPE_CHECKING:
    from tenacity import RetryCallState


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

    events: list[StreamEvent]
    stream: AsyncGenerator[StreamEvent, None]


StreamOpener = Callable[[], Awaitable[AsyncGenerator[StreamEvent, None] | None]]
"""Builds and sends the request; None when the owner turns out to have the response already."""


async def open_with_retry(
    open_stream: StreamOpener,
    strategy: Strategy,
    clock: Clock,
    *,
    doubt: Callable[[], None],
    noted: Callable[[str], None],
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
        failed = failure
    return await _retry(open_stream, failed, strategy, clock, doubt=doubt, noted=noted)


def _can_retry(strategy: Strategy, failure: BaseException) -> bool:
    if not isinstance(failure, ConvoError) or (get_retry_after_s(failure) or 0.0) > MAX_RETRY_AFTER_S:
        return False
    return decide_retry(strategy, failure, answering=False).resend is not RetryAction.NO


async def _retry(
    open_stream: StreamOpener,
    failed: ConvoError,
    strategy: Strategy,
    clock: Clock,
    *,
    doubt: Callable[[], None],
    noted: Callable[[str], None],
) -> StartedStream | None:
    """Retry after `first_failure`. Most requests succeed at once and never import the library."""
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

    first = [failed]

    async def attempt() -> StartedStream | None:
        if first:
            raise first.pop()
        return await _start_stream(open_stream)

    def before_wait(state: "RetryCallState") -> None:
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, ConvoError):
            verdict = decide_retry(strategy, failure, answering=False)
            noted(f"{failure.message}; trying again: {verdict.evidence}")
            if verdict.resend is RetryAction.READ_FIRST:
                doubt()

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda failure: _can_retry(strategy, failure)),
        wait=_compute_wait_s,
        stop=stop_after_attempt(MAX_TRIES),
        sleep=clock.sleep,
        before_sleep=before_wait,
        reraise=True,
    )
    return await retrying(attempt)


async def _start_stream(open_stream: StreamOpener) -> StartedStream | None:
    stream = await open_stream()
    if stream is None:
        return None
    events: list[StreamEvent] = []
    try:
        async for event in stream:
            events.append(event)
            if len(events) > MAX_PREAMBLE_EVENTS:
                raise StreamBroken("the endpoint says again and again that it begins")
            if event.get("type") not in START_EVENTS:
                return StartedStream(events, stream)
    except BaseException:
        await stream.aclose()
        raise
    raise StreamBroken("the endpoint's stream ended before an answer began")


def _compute_wait_s(state: "RetryCallState") -> float:
    from tenacity import wait_exponential_jitter

    named = get_retry_after_s(state.outcome.exception() if state.outcome else None)
    return wait_exponential_jitter(FIRST_WAIT_S, MAX_BACKOFF_S, jitter=JITTER_S)(state) if named is None else named


def get_retry_after_s(failure: BaseException | None) -> float | None:
    """Return the wait in seconds that the endpoint asks for, if any."""
    return failure.retry_after_s if isinstance(failure, EndpointFault) else None


CONTINUABLE_STATUSES = ("completed", "incomplete")
"""Statuses of a response that a chain may continue."""


@dataclass(frozen=True, slots=True)
class OwnerTail:
    """The owner's items after the confirmed head, oldest first, and their links, where known."""

    items: tuple[Item, ...] = ()
    links: tuple[Link, ...] = ()


async def load_owner_tail(held: ConversationState, endpoint: Endpoint, store: Store) -> OwnerTail:
    """Load the items that the owner has and this process did not receive.

    Raises StateFault when the conversation lacks the items that it had confirmed.
    """
    here = endpoint.scope == EMBEDDED_SCOPE
    if held.strategy is Strategy.CHAIN and here:
        return await _load_local_chain(held, store)
    if held.strategy is Strategy.CONVERSATION and held.handle:
        return await (_load_local_conversation(held, store) if here else _fetch_remote_conversation(held, endpoint))
    return OwnerTail()


async def _load_local_chain(held: ConversationState, store: Store) -> OwnerTail:
    """Load the response that the embedded endpoint gave to exactly the unconfirmed input, or to a prefix of it.

    A new root may begin with a history of responses: a response to a part of that history does not count.
    """
    confirmed = held.path.upto(held.mark)
    asked = confirmed.grow(build_request_input(held).items)
    seed = held.path.first(last_answer_depth(held))
    known = len(seed) and len(confirmed) + len(build_request_input(replace(held, path=seed)).items)
    for at in range(len(asked), max(len(confirmed), known), -1):
        for link in await store.answers(asked.first(at).head):
            if (
                link.session is None
                and link.status in CONTINUABLE_STATUSES
                and link.previous_response_id == held.handle
            ):
                path = await store.path(link.head)
                return OwnerTail(_get_items_after_confirmed(path, held), (link,))
    return OwnerTail()


async def _load_local_conversation(held: ConversationState, store: Store) -> OwnerTail:
    found = await store.conversation(held.handle or "")
    if found is None:
        return OwnerTail()
    path = await store.path(found.head)
    if not path.passes(held.mark):
        raise _make_drift_fault(held)
    links = await store.answers(*(node.key for node in path.after(held.mark)))
    return OwnerTail(_get_items_after_confirmed(path, held), tuple(link for link in links if link.session is None))


async def _fetch_remote_conversation(held: ConversationState, endpoint: Endpoint) -> OwnerTail:
    handle, newest_first = held.handle or "", list[Item]()
    listed = iter_pages(lambda after: endpoint.conversation_items(handle, after=after, limit=PAGE_ITEMS, order="desc"))
    async with aclosing(listed):
        async for page in listed:
            newest_first += page.items
            more = page.has_more and bool(page.items)
            tail = items_after_confirmed(held, newest_first)
            if tail is not None and (held.mark != held.path.root or not more):
                return OwnerTail(tuple(tail))
    raise _make_drift_fault(held)


def _get_items_after_confirmed(path: Path, held: ConversationState) -> tuple[Item, ...]:
    return tuple(node.item for node in path.after(held.mark))


def _make_drift_fault(held: ConversationState) -> StateFault:
    return StateFault(
        f"{held.handle} no longer holds the last item that it had confirmed",
        hint=f"convo inspect {held.handle}, or go on with it anew: convo chat --conversation --from {held.handle}",
    )


INTERRUPTED_ERROR = {"code": "interrupted", "message": "stopped before the answer was whole"}

UNFINISHED_STATUSES = ("queued", "in_progress")
"""Statuses of a link that the response of the same id replaces."""

NON_PARAMETER_FIELDS = frozenset({"model", "input", "previous_response_id", "conversation", "store", "include"})
"""Fields of a request that a link stores in other columns."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of a request, without its items.

    model:              "provider/model", for the record
    wire_model:         the model name in the request
    parameters:         further fields of every request
    store:              keep a copy at the endpoint although the client owns the history
    encrypt_reasoning:  the model reasons, and can return its reasoning encrypted
    """

    model: str
    wire_model: str
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    store: bool = False
    seal: bool = False

    def sent(self, held: ConversationState) -> RequestInput:
        """Build the input of the next request for `state`."""
        return build_request_input(held, store=self.store, seal=self.seal)

    def body(self, sent: RequestInput) -> dict[str, Json]:
        """Build the body of a request with this input."""
        return build_request_body(
            sent, model=self.wire_model, instructions=self.instructions, parameters=self.parameters
        )


@dataclass(slots=True)
class RequestTiming:
    """The times of a request.

    started_at:          seconds since 1970
    start_ticks:         monotonic seconds
    first_output_ticks:  monotonic seconds at the first output event
    """

    at: float
    began: float
    first: float | None = None


@dataclass(frozen=True, slots=True)
class InputOverride:
    """The model's input in place of a history that the client owns; the history itself keeps everything.

    path:           of the turn's link
    request_input:  the part of it that is sent
    """

    path: Path
    sent: RequestInput


ResponseHook = Callable[[ConversationState, tuple[Item, ...]], Awaitable[RunUpdate | None]]
"""Called with a complete response and the state after it, before they are stored.

Returns the update that is stored in the same transaction, or None to reject the response.
"""


async def return_no_update(held: ConversationState, output: tuple[Item, ...]) -> RunUpdate:
    """Return an empty update: only the response is stored."""
    return NO_UPDATE


class ChatTurn:
    """One request for the unconfirmed input of `record`, and its response.

    link:           the link, once the turn has ended
    response:       the owner's final response, if any
    request_count:  requests that were sent
    is_rejected:    do not store a partial response, unless the owner has it
    """

    def __init__(
        self,
        record: SessionRecord,
        asking: RequestOptions,
        edges: ChatDeps,
        *,
        doubt: bool,
        noted: Callable[[str], None],
        seen: InputOverride | None = None,
        closing: ResponseHook = return_no_update,
    ) -> None:
        """Prepare a turn.

        check_tail:  the owner may already have a part of the input
        notify:      called at once with each message for the user
        """
        self.link: Link | None = None
        self.response: Response | None = None
        self.tries = 0
        self.unwanted = False
        self._record, self._asking, self._edges, self._doubt, self._noted = record, asking, edges, doubt, noted
        self._seen, self._closing = seen, closing
        self._partial, self._text, self._differs = ResponseAccumulator(), StreamedTextChecksum(), False
        self._ignored: Sequence[str] = ()
        self._asked: ConversationState | None = None
        self._sent = RequestInput((), 0, {})
        self._adopted = record.held.path
        self._times = RequestTiming(edges.clock.now(), edges.clock.ticks())

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the response, the last one after the commit.

        Raises the errors of the endpoint and the store; the input stays unconfirmed.
        """
        try:
            async with aclosing(self._answer()) as answer:
                async for event in answer:
                    await self._take(event)
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            await shielded(self._cut_off("cancelled", INTERRUPTED_ERROR))
            raise
        except LimitReached as reached:
            last = self._limited(reached)
            if last is None:
                await self._cut_off(
                    "failed", {"code": reached.code, "message": reached.message, LIMIT_FIELD: reached.limit}
                )
                raise
            await self._take(last)
            yield last
        except ConvoError as failure:
            await self._cut_off("failed", {"code": failure.code, "message": failure.message})
            raise

    def _limited(self, reached: LimitReached) -> StreamEvent | None:
        """Make the last event of a response that exceeded a size limit, where the client owns the history.

        None where the turn failed: a server that owns the history does not have the partial response.
        """
        if (
            reached.timed
            or self._asked is None
            or not self._partial.began
            or STRATEGY_INFO[self._asked.strategy].remembers
        ):
            return None
        response = {
            "id": self._partial.response_id,
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": self._partial.kept,
        }
        return {
            "type": "response.incomplete",
            "response": response,
            LIMIT_FIELD: {"name": reached.limit, "message": reached.message},
        }

    # -- request ------------------------------------------------------------------------------

    async def _answer(self) -> AsyncGenerator[StreamEvent, None]:
        strategy = self._record.held.strategy
        opened = await open_with_retry(self._open, strategy, self._edges.clock, doubt=self._doubting, noted=self._noted)
        if opened is None:
            for event in make_recovered_events(self._adopted, self._record.last):
                yield event
            return
        async with aclosing(opened.stream) as rest:
            for event in opened.events:
                yield event
            async for event in rest:
                yield event
        if not self.link:
            raise StreamBroken("the endpoint's stream ended before the answer was whole")

    async def _open(self) -> AsyncGenerator[StreamEvent, None] | None:
        record = self._record
        await self._edges.store.upkeep.check_room()
        if record.held.strategy is Strategy.CONVERSATION and not record.held.handle:
            created = await self._edges.endpoint.create_conversation()
            await record.move(replace(record.held, handle=created["id"]))
        elif self._doubt and await self._settled():
            return None
        self._asked = record.held
        self._sent = self._seen.sent if self._seen else self._asking.sent(record.held)
        self.tries += 1
        self._times = RequestTiming(self._edges.clock.now(), self._edges.clock.ticks())
        return self._edges.endpoint.create(self._asking.body(self._sent))

    async def _settled(self) -> bool:
        """Apply the owner's items that this process missed; return whether nothing is left to request."""
        record = self._record
        tail = await load_owner_tail(record.held, self._edges.endpoint, self._edges.store)
        self._doubt = False
        if not tail.items:
            return False
        held, links = reconcile(record.held, tail.items), self._claimed(record.held, tail)
        last = links[-1] if links else None
        if last and held.strategy is Strategy.CHAIN:
            held = replace(held, handle=last.id)
        self._adopted, beside = held.path, None
        if not held.unacknowledged:
            beside = await self._closing(held, held.path.items[len(trim_to_last_input(held.path)) :])
        await record.move(_append_update_items(held, beside), *links, last=last, beside=beside or NO_UPDATE)
        self._noted(f"the endpoint had taken {len(tail.items)} items that nobody confirmed; they are kept")
        if held.unacknowledged:
            return False
        self._asked = None
        return True

    def _claimed(self, held: ConversationState, tail: OwnerTail) -> tuple[Link, ...]:
        """Return the links of the owner's items, assigned to this session."""
        session = self._record.session
        if tail.links:
            parents = (session.link, *(link.id for link in tail.links[:-1]))
            found = zip(tail.links, parents, strict=True)
            return tuple(replace(link, session=session.id, parent=parent) for link, parent in found)
        known = held.path.upto(held.mark)
        link = make_recovered_link(
            known.grow(tail.items),
            len(known),
            session,
            link_id=self._edges.new_id("try"),
            model=self._asking.model,
            at=self._edges.clock.now(),
        )
        return (link,) if link else ()

    def _doubting(self) -> None:
        self._doubt = True

    # -- end of the response ------------------------------------------------------------------

    async def _take(self, event: StreamEvent) -> None:
        self._partial.take(validate_stream_event(event))
        self._text.take(event)
        self._ignored = event.get(IGNORED_PARAMETER) or self._ignored
        if self._partial.began and self._times.first is None:
            self._times.first = self._edges.clock.ticks()
        if event["type"] in TERMINAL_EVENTS:
            limit = event.get(LIMIT_FIELD)
            if limit and event["type"] != "response.failed":
                self._noted(f"{limit['message']}; convo config set {limit['name']} VALUE raises it")
            self._differs = not limit and (STREAMED_TEXT_DIFFERS in event or self._text.differs(event))
            if self._differs:
                self._noted(f"warning: {STREAMED_TEXT_DIFFERS_MESSAGE}")
            await self._end(event["response"], limit)

    async def _end(self, response: Response, limit: Mapping[str, Json] | None) -> None:
        if not response.get("output") and not limit:  # the output was streamed, and is missing in the last event
            response = {**response, "output": self._partial.output}
        self.response = response
        if self._asked is None:
            self.link = self._record.last
            return
        if response.get("status") == "failed":
            raise make_response_fault(response)
        if limit:
            error = {"code": "max_output_tokens", "message": limit["message"], LIMIT_FIELD: limit["name"]}
            response = {**response, "error": error}
        if self._asked.strategy is Strategy.CHAIN and not response.get("id") and not limit:
            raise StateIgnored("the endpoint answered without a response id, from which a chain continues")
        output = tuple(response.get("output") or ())
        held = apply_response(self._asked, self._sent, response)
        saw = self._seen.path if self._seen else held.path.first(len(held.path) - len(output))
        beside = await self._closing(held, output)
        link = self._as_link(response, await self._link_id(response), saw, saw.grow(output))
        if beside is None and held.strategy is not Strategy.CONVERSATION:
            self.link = link
            await self._record.move(self._asked, link, seen=saw.grow(output))
            return
        seen = saw.grow(output) if self._seen else None
        try:
            await self._record.move(
                _append_update_items(held, beside), link, last=link, beside=beside or NO_UPDATE, seen=seen
            )
        finally:  # the commit is done, although Ctrl-C may have interrupted the await
            self.link = link if self._record.last is link else None

    async def _cut_off(self, status: LinkStatus, error: Mapping[str, Json]) -> None:
        """Store the partial output as unconfirmed items, and a link with the error."""
        if self.link or self._asked is None:
            return
        held = self._asked if self.unwanted else apply_cancellation(self._asked, self._partial.output)
        came = [node.item for node in held.path.nodes[len(self._asked.path) :]]
        cut = {"id": self._partial.response_id, "status": status, "error": error}
        saw = self._seen.path if self._seen else self._asked.path
        self.link = self._as_link(cut, await self._link_id(cut), saw, saw.grow(came))
        await self._record.move(held, self.link, seen=saw.grow(came) if self._seen else None)

    async def _link_id(self, response: Response) -> str:
        """Choose the id of the turn's link: the response's own, unless an earlier response of a session has it."""
        given: str | None = response.get("id")
        if not given:
            return self._edges.new_id("try")
        there = None if self._edges.endpoint.scope == EMBEDDED_SCOPE else await self._edges.store.link(given)
        if there is None or there.session is None or there.status in UNFINISHED_STATUSES:
            return given
        own = self._edges.new_id("try")
        self._noted(f"warning: the endpoint used the response id {given} again; this response is kept as {own}")
        return own

    def _as_link(self, response: Response, link_id: str, saw: Path, head: Path) -> Link:
        assert self._asked is not None
        fields = self._asking.body(replace(self._sent, items=()))
        times, session = self._times, self._record.session
        return Link(
            id=link_id,
            saw=saw.head,
            head=head.head,
            sent=self._sent.nodes,
            model=self._asking.model,
            strategy=session.strategy,
            status=response.get("status") or "completed",
            created_at=times.at,
            parent=session.link,
            session=session.id,
            scope=self._edges.endpoint.scope,
            conversation_id=fields.get("conversation"),
            previous_response_id=fields.get("previous_response_id"),
            seconds=self._edges.clock.ticks() - times.began,
            first_token_s=None if times.first is None else times.first - times.began,
            parameters=strip_tool_secrets(
                {name: value for name, value in fields.items() if name not in NON_PARAMETER_FIELDS}
            )
            | ({IGNORED_PARAMETER: list(self._ignored)} if self._ignored else {}),
            usage=response.get("usage"),
            error=self._error(response),
            stored=bool(fields.get("store", True)),
        )

    def _error(self, response: Response) -> Mapping[str, Json] | None:
        error = response.get("error") or make_incomplete_error(response)
        differs = {"code": "text_differs", "message": STREAMED_TEXT_DIFFERS_MESSAGE}
        return {**differs, **(error or {}), STREAMED_TEXT_DIFFERS: True} if self._differs else error


def _append_update_items(held: ConversationState, beside: RunUpdate | None) -> ConversationState:
    """Return `state` with the items of `run_update` appended."""
    return replace(held, path=held.path.grow(beside.then)) if beside and beside.then else held


def make_incomplete_error(response: Response) -> Mapping[str, Json] | None:
    """Return the reason of an incomplete response in the form of a link's error."""
    reason = (response.get("incomplete_details") or {}).get("reason")
    return {"code": reason, "message": "the answer was cut short"} if reason else None


def make_response_fault(response: Response) -> EndpointFault:
    """Return the error of a failed response."""
    error = response.get("error") or {}
    return EndpointFault(error.get("message") or "the model failed", code=error.get("code"), hint="/retry asks again")


def make_recovered_link(
    path: Path, known: int, session: Session, *, link_id: str, model: str, at: float
) -> Link | None:
    """Make the link of the response that `path` ends with; None when it ends with input.

    confirmed_count:  nodes at the start of `path` that were confirmed before
    found_at:         seconds since 1970
    """
    saw = trim_to_last_input(path)
    if len(saw) == len(path) or len(saw) <= known:
        return None
    return Link(
        id=link_id,
        saw=saw.head,
        sent=len(saw) - known,
        head=path.head,
        model=model,
        strategy=session.strategy,
        status="completed",
        created_at=at,
        parent=session.link,
        session=session.id,
        scope=session.scope,
        conversation_id=session.handle,
    )


def make_recovered_events(path: Path, link: Link | None) -> Iterator[StreamEvent]:
    """Yield the events of the response that `path` ends with."""
    answer = path.items[len(trim_to_last_input(path)) :]
    for at, item in enumerate(answer):
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    known = link if link and not link.id.startswith("try_") else None
    response = {
        "id": known and known.id,
        "status": known.status if known else "completed",
        "output": list(answer),
        "usage": known and known.usage,
    }
    yield {"type": "response.completed", "response": response}


def trim_to_last_input(path: Path) -> Path:
    """Return `path` up to and including the last input item: a user message, a tool output or an approval response."""
    return path.first(max((at for at, item in enumerate(path.items, 1) if _is_client_input(item)), default=0))


def _is_client_input(item: Item) -> bool:
    return is_user_message(item) or is_client_output(item) or item_type(item) == "mcp_approval_response"
