"""The same turns under every owner, one owner after the other, with what each of them took.

Every owner gets a session of its own, that goes afterwards with all that it left anywhere: responses
and conversations at the endpoint too. The sessions of a race that was killed are removed by the next
race in the same way; until then `convo chat -c` passes over them. An owner that fails has its error
and the turns that it made; the others run all the same. Who comes first finds the provider's prompt cache empty.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

from convo.config import Price
from convo.endpoints.contract import Endpoint
from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.keeping import remove
from convo.engine.lease import writing
from convo.engine.naming import SCRATCH, free_name
from convo.engine.opening import free_file, open_chat
from convo.engine.turn import Asking
from convo.errors import Busy, ConvoError, EndpointFault, NotFound
from convo.history import HERE, Link, Session, Strategy
from convo.items import Event, Json, user
from convo.strategies import Wanted
from convo.tokens import Usage

ORDER = (Strategy.REPLAY, Strategy.SESSION, Strategy.CONVERSATION, Strategy.CHAIN)

ANSWERED = ("completed", "incomplete")

SCRATCH_NAME = f"{SCRATCH}race-"
"""How the names of sessions begin that are removed when the race ends."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One turn of one owner: the bytes of its requests' bodies, its items, and what the endpoint reported."""

    bytes: int
    items: int
    used: Usage | None
    first_token_s: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Lane:
    """All turns of one owner; `error` is what ended them early, `session` the one that is kept."""

    strategy: Strategy
    laps: tuple[Lap, ...] = ()
    error: Mapping[str, str] | None = None
    session: str | None = None

    @property
    def bytes(self) -> int:
        return sum(lap.bytes for lap in self.laps)

    @property
    def items(self) -> int:
        return sum(lap.items for lap in self.laps)

    @property
    def used(self) -> Usage | None:
        """Tokens of all turns; None where one of them was not reported."""
        told = [lap.used for lap in self.laps if lap.used]
        return sum(told, start=Usage()) if told and len(told) == len(self.laps) else None

    def cost_usd(self, price: Price | None) -> float | None:
        """What all turns cost; None where that of one is not known."""
        costs = [lap.used.cost_usd(price) if lap.used else None for lap in self.laps]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None

    @property
    def first_token_s(self) -> float | None:
        """The time to the first piece of an answer that half of the turns took at most."""
        told = [lap.first_token_s for lap in self.laps if lap.first_token_s is not None]
        return median(told) if told else None

    @property
    def seconds(self) -> float:
        return sum(lap.seconds for lap in self.laps)


@dataclass(frozen=True, slots=True)
class Course:
    """What everybody runs, and where. `folder` holds the file of the replayed conversation."""

    turns: Sequence[str]
    asking: Asking
    edges: Edges
    folder: Path
    keep: bool = False


def unheard(*told: object) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of a race while it runs.

    begins:  before each turn, of the owner and how many turns it has behind it
    took:    after each turn, of the same and what it took
    ended:   of each owner that comes to its end, and be it early
    """

    begins: Callable[[Strategy, int], None] = unheard
    took: Callable[[Strategy, int, Lap], None] = unheard
    ended: Callable[[Lane], None] = unheard


async def race(course: Course, watch: Watch = Watch()) -> list[Lane]:
    """Let every owner run the course. raises: StoreFault; what the model's endpoint says before the first turn"""
    await course.edges.endpoint.warm(course.asking.wire_model)
    await _remove_leftovers(course.edges)
    lanes = []
    for strategy in ORDER:
        lanes.append(await _lane(course, strategy, watch))
        watch.ended(lanes[-1])
    return lanes


async def _lane(course: Course, strategy: Strategy, watch: Watch) -> Lane:
    tally = Tally(course.edges.endpoint)
    edges = replace(course.edges, endpoint=cast(Endpoint, tally))
    name = await free_name(edges.store, f"race-{strategy}" if course.keep else f"{SCRATCH_NAME}{strategy}")
    file = free_file(str(course.folder / f"race-{strategy}.json")) if strategy is Strategy.REPLAY else None
    want = Wanted(strategy, file)
    chat = await open_chat(want, None, course.asking, edges, name=name)
    lane = Lane(strategy, session=name if course.keep else None)
    async with _held(chat, keep=course.keep):
        try:
            for number, words in enumerate(course.turns):
                watch.begins(strategy, number)
                lap = await _lap(chat, words, tally)
                lane = replace(lane, laps=(*lane.laps, lap))
                watch.took(strategy, number + 1, lap)
        except ConvoError as failure:
            lane = replace(lane, error={"code": failure.code, "message": failure.message})
    return lane


async def _lap(chat: Chat, words: str, tally: "Tally") -> Lap:
    tally.bytes = 0
    async with aclosing(chat.say([user(words)])) as events:
        async for _ in events:
            pass
    assert chat.turn
    link = chat.turn.link
    assert link
    if link.status not in ANSWERED:
        raise EndpointFault(f"a turn ended as {link.status}")
    return Lap(tally.bytes, link.sent, Usage.read(link.usage), link.first_token_s, link.seconds or 0.0)


@asynccontextmanager
async def _held(chat: Chat, *, keep: bool) -> AsyncIterator[None]:
    """The right to write one session, which is removed at the end."""
    hold = await writing(chat.edges.store, chat.session)
    try:
        yield
    finally:
        try:
            if not keep:
                await _delete_at_endpoint(chat.session, chat.edges)
        finally:
            await hold.release()
        if not keep and await chat.edges.store.session(chat.session.id):
            await remove(chat.edges.store, [chat.session])


async def _remove_leftovers(edges: Edges) -> None:
    """Remove the sessions of races that were killed, with what they left at this endpoint."""
    for session in await edges.store.sessions():
        if not session.name.startswith(SCRATCH_NAME) or session.scope not in (HERE, edges.endpoint.scope):
            continue
        with suppress(Busy, NotFound):  # that race still runs, or another one removes it at this moment
            hold = await writing(edges.store, session)
            try:
                await _delete_at_endpoint(session, edges)
            finally:
                await hold.release()
            await remove(edges.store, [session])


async def _delete_at_endpoint(session: Session, edges: Edges) -> None:
    """Delete what a session left at a remote endpoint, as far as it can be reached.

    The record goes after this, so that a process killed in between can be finished by another one.
    """
    if session.scope == HERE:
        return
    for link in filter(_kept_there, await edges.store.links(session.id)):
        with suppress(ConvoError):
            await edges.endpoint.delete(link.id)
    if session.strategy is Strategy.CONVERSATION and session.handle:
        with suppress(ConvoError):
            await edges.endpoint.delete_conversation(session.handle)


def _kept_there(link: Link) -> bool:
    return link.stored and link.id.startswith("resp_")


class Tally:
    """An endpoint that counts the bytes of the requests for responses that go through it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        self.bytes += len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
        async with aclosing(self._endpoint.create(body)) as events:
            async for event in events:
                yield event
