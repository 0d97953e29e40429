"""One request and its answer, and the order in which they become durable.

    request    built by the owner's strategy, sent again only where that is safe
    answer     streamed; kept as a partial, unacknowledged, when it is cut off
    end        link, output, head and mark in one change, before the last event is handed on

So a kill at any point leaves the conversation before the turn, with its input unacknowledged, or
after it. Streaming and collected use are the same loop: who wants the answer whole reads on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from convo.endpoints.contract import LIMIT
from convo.engine import adopting
from convo.engine.calling import call
from convo.engine.edges import Edges
from convo.engine.owner_tail import Tail, owner_tail
from convo.engine.record import NOTHING, Beside, Record, whole
from convo.errors import ConvoError, EndpointFault, LimitReached, StateIgnored, StreamBroken
from convo.history import HERE, IGNORED, OWNERS, Link, Path, Strategy, storable
from convo.history.link import Status
from convo.items import Event, Item, Json, Response
from convo.items.partial import ENDS, STREAMED, TEXT_DIFFERS, Partial, StreamedText
from convo.items.wellformed import wellformed
from convo.strategies import Held, Sent, body, confirm, interrupt, reconcile, send

STOPPED = {"code": "interrupted", "message": "stopped before the answer was whole"}

UNFINISHED = ("queued", "in_progress")
"""Statuses of a link that the response of the same id replaces."""

NOT_PARAMETERS = frozenset({"model", "input", "previous_response_id", "conversation", "store", "include"})
"""Fields of a request that a link keeps in other columns."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How to ask, apart from what was said.

    model:         "provider/model", for the record
    wire_model:    the name as it travels
    parameters:    further fields of every request
    store:         keep a copy at the endpoint although the client owns the history
    seal:          the model reasons, and can hand its reasoning out encrypted
    """

    model: str
    wire_model: str
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    store: bool = False
    seal: bool = False

    def sent(self, held: Held) -> Sent:
        return send(held, store=self.store, seal=self.seal)

    def body(self, sent: Sent) -> dict[str, Json]:
        return body(sent, model=self.wire_model, instructions=self.instructions, parameters=self.parameters)


@dataclass(slots=True)
class Times:
    """When the request went out, in seconds since 1970 and in ticks, and when its answer's first piece came."""

    at: float
    began: float
    first: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the model sees in place of a history that the client owns; the history itself keeps everything.

    path:  on which the turn's link stands
    sent:  what travels of it
    """

    path: Path
    sent: Sent


Closing = Callable[[Held, tuple[Item, ...]], Awaitable[Beside | None]]
"""Told of a whole answer and where it leaves the conversation, before that is stored; says what is stored with
it, or None: the answer is not wanted."""


async def nothing_beside(held: Held, output: tuple[Item, ...]) -> Beside:
    """The answer is all there is."""
    return NOTHING


class Turn:
    """Asks for one answer to what `record` holds unacknowledged.

    link:      how it ended, once it has
    response:  the owner's final response, when one came
    tries:     how many requests went out
    unwanted:  whatever has come of the answer is not kept, where the owner does not have it
    """

    def __init__(
        self,
        record: Record,
        asking: Asking,
        edges: Edges,
        *,
        doubt: bool,
        noted: Callable[[str], None],
        seen: Seen | None = None,
        closing: Closing = nothing_beside,
    ) -> None:
        """Prepare a turn.

        doubt:  the owner may have taken part of it already
        noted:  told at once, in words, what a person should know
        """
        self.link: Link | None = None
        self.response: Response | None = None
        self.tries = 0
        self.unwanted = False
        self._record, self._asking, self._edges, self._doubt, self._noted = record, asking, edges, doubt, noted
        self._seen, self._closing = seen, closing
        self._partial, self._text, self._differs = Partial(), StreamedText(), False
        self._ignored: Sequence[str] = ()
        self._asked: Held | None = None
        self._sent = Sent((), 0, {})
        self._adopted = record.held.path
        self._times = Times(edges.clock.now(), edges.clock.ticks())

    async def events(self) -> AsyncGenerator[Event, None]:
        """The answer's events, the last one when everything is durable.

        raises:  ConvoError  what endpoint and store answered; the input stays, unacknowledged
        """
        try:
            async with aclosing(self._answer()) as answer:
                async for event in answer:
                    await self._take(event)
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            await whole(self._cut_off("cancelled", STOPPED))
            raise
        except LimitReached as reached:
            last = self._limited(reached)
            if last is None:
                await self._cut_off("failed", {"code": reached.code, "message": reached.message, LIMIT: reached.limit})
                raise
            await self._take(last)
            yield last
        except ConvoError as failure:
            await self._cut_off("failed", {"code": failure.code, "message": failure.message})
            raise

    def _limited(self, reached: LimitReached) -> Event | None:
        """The last event of an answer that reached a limit of size, where the client owns the history.

        None where it failed: a server that owns the history does not have what came of the answer.
        """
        if reached.timed or self._asked is None or not self._partial.began or OWNERS[self._asked.strategy].remembers:
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
            LIMIT: {"name": reached.limit, "message": reached.message},
        }

    # -- asking -------------------------------------------------------------------------------

    async def _answer(self) -> AsyncGenerator[Event, None]:
        strategy = self._record.held.strategy
        opened = await call(self._open, strategy, self._edges.clock, doubt=self._doubting, noted=self._noted)
        if opened is None:
            for event in adopting.events(self._adopted, self._record.last):
                yield event
            return
        async with aclosing(opened.stream) as rest:
            for event in opened.events:
                yield event
            async for event in rest:
                yield event
        if not self.link:
            raise StreamBroken("the endpoint's stream ended before the answer was whole")

    async def _open(self) -> AsyncGenerator[Event, None] | None:
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
        self._times = Times(self._edges.clock.now(), self._edges.clock.ticks())
        return self._edges.endpoint.create(self._asking.body(self._sent))

    async def _settled(self) -> bool:
        """Take up what the owner did although nobody told us; whether nothing is left to ask."""
        record = self._record
        tail = await owner_tail(record.held, self._edges.endpoint, self._edges.store)
        self._doubt = False
        if not tail.items:
            return False
        held, links = reconcile(record.held, tail.items), self._claimed(record.held, tail)
        last = links[-1] if links else None
        if last and held.strategy is Strategy.CHAIN:
            held = replace(held, handle=last.id)
        self._adopted, beside = held.path, None
        if not held.unacknowledged:
            beside = await self._closing(held, held.path.items[len(adopting.question(held.path)) :])
        await record.move(_with(held, beside), *links, last=last, beside=beside or NOTHING)
        self._noted(f"the endpoint had taken {len(tail.items)} items that nobody confirmed; they are kept")
        if held.unacknowledged:
            return False
        self._asked = None
        return True

    def _claimed(self, held: Held, tail: Tail) -> tuple[Link, ...]:
        """The links of what the owner did, as this session's own."""
        session = self._record.session
        if tail.links:
            parents = (session.link, *(link.id for link in tail.links[:-1]))
            found = zip(tail.links, parents, strict=True)
            return tuple(replace(link, session=session.id, parent=parent) for link, parent in found)
        known = held.path.upto(held.mark)
        link = adopting.unheard(
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

    # -- ending -------------------------------------------------------------------------------

    async def _take(self, event: Event) -> None:
        self._partial.take(wellformed(event))
        self._text.take(event)
        self._ignored = event.get(IGNORED) or self._ignored
        if self._partial.began and self._times.first is None:
            self._times.first = self._edges.clock.ticks()
        if event["type"] in ENDS:
            limit = event.get(LIMIT)
            if limit and event["type"] != "response.failed":
                self._noted(f"{limit['message']}; convo config set {limit['name']} VALUE raises it")
            self._differs = not limit and (STREAMED in event or self._text.differs(event))
            if self._differs:
                self._noted(f"warning: {TEXT_DIFFERS}")
            await self._end(event["response"], limit)

    async def _end(self, response: Response, limit: Mapping[str, Json] | None) -> None:
        if not response.get("output") and not limit:  # it was told piece by piece, and left out at the end
            response = {**response, "output": self._partial.output}
        self.response = response
        if self._asked is None:
            self.link = self._record.last
            return
        if response.get("status") == "failed":
            raise failure_in(response)
        if limit:
            error = {"code": "max_output_tokens", "message": limit["message"], LIMIT: limit["name"]}
            response = {**response, "error": error}
        if self._asked.strategy is Strategy.CHAIN and not response.get("id") and not limit:
            raise StateIgnored("the endpoint answered without a response id, from which a chain continues")
        output = tuple(response.get("output") or ())
        held = confirm(self._asked, self._sent, response)
        saw = self._seen.path if self._seen else held.path.first(len(held.path) - len(output))
        beside = await self._closing(held, output)
        link = self._as_link(response, await self._link_id(response), saw, saw.grow(output))
        if beside is None and held.strategy is not Strategy.CONVERSATION:
            self.link = link
            await self._record.move(self._asked, link, seen=saw.grow(output))
            return
        seen = saw.grow(output) if self._seen else None
        try:
            await self._record.move(_with(held, beside), link, last=link, beside=beside or NOTHING, seen=seen)
        finally:  # stored, although Ctrl-C may have come meanwhile
            self.link = link if self._record.last is link else None

    async def _cut_off(self, status: Status, error: Mapping[str, Json]) -> None:
        """Keep what came, unacknowledged, and a link that says why no more did."""
        if self.link or self._asked is None:
            return
        held = self._asked if self.unwanted else interrupt(self._asked, self._partial.output)
        came = [node.item for node in held.path.nodes[len(self._asked.path) :]]
        cut = {"id": self._partial.response_id, "status": status, "error": error}
        saw = self._seen.path if self._seen else self._asked.path
        self.link = self._as_link(cut, await self._link_id(cut), saw, saw.grow(came))
        await self._record.move(held, self.link, seen=saw.grow(came) if self._seen else None)

    async def _link_id(self, response: Response) -> str:
        """The id of the turn's link: the response's own, unless an earlier response of a session has it."""
        given: str | None = response.get("id")
        if not given:
            return self._edges.new_id("try")
        there = None if self._edges.endpoint.scope == HERE else await self._edges.store.link(given)
        if there is None or there.session is None or there.status in UNFINISHED:
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
            parameters=storable({name: value for name, value in fields.items() if name not in NOT_PARAMETERS})
            | ({IGNORED: list(self._ignored)} if self._ignored else {}),
            usage=response.get("usage"),
            error=self._error(response),
            stored=bool(fields.get("store", True)),
        )

    def _error(self, response: Response) -> Mapping[str, Json] | None:
        error = response.get("error") or cut_short(response)
        differs = {"code": "text_differs", "message": TEXT_DIFFERS}
        return {**differs, **(error or {}), STREAMED: True} if self._differs else error


def _with(held: Held, beside: Beside | None) -> Held:
    """`held` with what stands behind the answer at once."""
    return replace(held, path=held.path.grow(beside.then)) if beside and beside.then else held


def cut_short(response: Response) -> Mapping[str, Json] | None:
    """Why an answer is incomplete, as its link keeps it."""
    reason = (response.get("incomplete_details") or {}).get("reason")
    return {"code": reason, "message": "the answer was cut short"} if reason else None


def failure_in(response: Response) -> EndpointFault:
    """The error of a response that failed."""
    error = response.get("error") or {}
    return EndpointFault(error.get("message") or "the model failed", code=error.get("code"), hint="/retry asks again")
