"""Race: the same turns with every strategy, one strategy after the other, with tokens, bytes and latency.

Each strategy gets a scratch session that is deleted afterwards, with its responses and conversations at the endpoint;
leftovers of a killed race are removed by the next one. The first strategy finds the provider's prompt cache empty.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

from convo.chat.conversation import Chat
from convo.chat.open import find_free_file, open_chat
from convo.chat.session_admin import delete_sessions
from convo.chat.session_record import (
    ChatDeps,
    acquire_session_lease,
    add_unstored_requests,
    find_free_session_name,
    make_unstored_request,
)
from convo.chat.turn import RequestOptions
from convo.config.sections import Price
from convo.endpoints.base import Endpoint
from convo.errors import Busy, ConvoError, EndpointFault, NotFound
from convo.history.items import Json, StreamEvent, user_message
from convo.history.records import ANSWERED_STATUSES, EMBEDDED_SCOPE, SCRATCH_PREFIX, Link, Session, Strategy
from convo.strategies.selection import OwnerSelection
from convo.strategies.strategy import STRATEGIES
from convo.usage.cost import Usage

RACE_ORDER = tuple(STRATEGIES)

RACE_NAME_PREFIX = f"{SCRATCH_PREFIX}race-"
"""Prefix of the names of sessions that are deleted after the race."""


@dataclass(frozen=True, slots=True)
class RaceTurn:
    """One turn with one strategy: the size of its request bodies, its sent items, and the reported usage and times."""

    request_bytes: int
    sent_count: int
    usage: Usage | None
    first_token_s: float | None
    duration_s: float
    service_tier: str | None = None


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All turns of one strategy; `error` is set if they ended early, `session` names the session if it is kept."""

    strategy: Strategy
    turns: tuple[RaceTurn, ...] = ()
    error: Mapping[str, str] | None = None
    session: str | None = None

    @property
    def request_bytes(self) -> int:
        return sum(turn.request_bytes for turn in self.turns)

    @property
    def sent_count(self) -> int:
        return sum(turn.sent_count for turn in self.turns)

    @property
    def usage(self) -> Usage | None:
        """Tokens of all turns; None unless every turn reported them."""
        reported = [turn.usage for turn in self.turns if turn.usage]
        return sum(reported, start=Usage()) if reported and len(reported) == len(self.turns) else None

    def cost_usd(self, price: Price | None) -> float | None:
        """Return the cost of all turns in USD; None unless every turn's cost is known."""
        # Call by call: a price may apply up to a number of input tokens only.
        costs = [
            turn.usage.cost_usd(price and price.at_tier(turn.service_tier)) if turn.usage else None
            for turn in self.turns
        ]
        known_costs = [cost for cost in costs if cost is not None]
        return sum(known_costs) if known_costs and len(known_costs) == len(costs) else None

    @property
    def first_token_s(self) -> float | None:
        """Median over the turns of the time to the first token, in seconds; None if no turn has one."""
        latencies = [turn.first_token_s for turn in self.turns if turn.first_token_s is not None]
        return median(latencies) if latencies else None

    @property
    def duration_s(self) -> float:
        return sum(turn.duration_s for turn in self.turns)


@dataclass(frozen=True, slots=True)
class RacePlan:
    """The messages of a race and its options; `folder` is for the file of the replay strategy."""

    messages: Sequence[str]
    options: RequestOptions
    deps: ChatDeps
    folder: Path
    keep_sessions: bool = False


def ignore_progress(*progress: object) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class RaceObserver:
    """Callbacks of a race.

    on_turn_start:    before each turn, with the strategy and the number of its finished turns
    on_turn_end:      after each turn, with the same and the result of the turn
    on_strategy_end:  with the result of a strategy, also if it ended early
    """

    on_turn_start: Callable[[Strategy, int], None] = ignore_progress
    on_turn_end: Callable[[Strategy, int, RaceTurn], None] = ignore_progress
    on_strategy_end: Callable[[RaceResult], None] = ignore_progress


async def run_race(plan: RacePlan, observer: RaceObserver = RaceObserver()) -> list[RaceResult]:
    """Run the race with all strategies, one after the other.

    Raises StoreFault, and the errors of loading the model before the first turn.
    """
    # Otherwise the first strategy would have the time in which the model is loaded.
    await plan.deps.endpoint.warm(plan.options.wire_model)
    await _remove_killed_races(plan.deps)
    results = []
    for strategy in RACE_ORDER:
        results.append(await _run_strategy(plan, strategy, observer))
        observer.on_strategy_end(results[-1])
    return results


async def _run_strategy(plan: RacePlan, strategy: Strategy, observer: RaceObserver) -> RaceResult:
    endpoint = CountingEndpoint(plan.deps.endpoint)
    deps = plan.deps._replace(endpoint=cast(Endpoint, endpoint))
    name = await find_free_session_name(
        deps.store, f"race-{strategy}" if plan.keep_sessions else f"{RACE_NAME_PREFIX}{strategy}"
    )
    file = find_free_file(str(plan.folder / f"race-{strategy}.json")) if STRATEGIES[strategy].uses_file else None
    selection = OwnerSelection(strategy, file)
    chat = await open_chat(selection, None, plan.options, deps, name=name)
    result = RaceResult(strategy, session=name if plan.keep_sessions else None)
    async with _session_lease(chat, keep_session=plan.keep_sessions):
        try:
            for number, text in enumerate(plan.messages):
                observer.on_turn_start(strategy, number)
                turn = await _run_turn(chat, text, endpoint)
                result = replace(result, turns=(*result.turns, turn))
                observer.on_turn_end(strategy, number + 1, turn)
        except ConvoError as failure:
            result = replace(result, error={"code": failure.code, "message": failure.message})
    return result


async def _run_turn(chat: Chat, text: str, endpoint: "CountingEndpoint") -> RaceTurn:
    endpoint.request_bytes = 0
    async with aclosing(chat.send([user_message(text)])) as events:
        async for _ in events:
            pass
    assert chat.turn
    link = chat.turn.link
    assert link
    if link.status not in ANSWERED_STATUSES:
        raise EndpointFault(f"a turn ended with status {link.status}")
    return RaceTurn(
        endpoint.request_bytes,
        link.sent_count,
        Usage.from_json(link.usage),
        link.first_token_s,
        link.duration_s or 0.0,
        link.service_tier,
    )


@asynccontextmanager
async def _session_lease(chat: Chat, *, keep_session: bool) -> AsyncIterator[None]:
    """Hold the lease of a session; without `keep_session` the session is deleted at the end."""
    lease = await acquire_session_lease(chat.deps.store, chat.session)
    try:
        yield
    finally:
        try:
            if not keep_session:
                await _delete_at_endpoint(chat.session, chat.deps)
        finally:
            await lease.release()
        if not keep_session and await chat.deps.store.session(chat.session.id):
            links = await chat.deps.store.links(chat.session.id)
            await add_unstored_requests(chat.deps.store, [make_unstored_request(link, "race") for link in links])
            await delete_sessions(chat.deps.store, [chat.session])


async def _remove_killed_races(deps: ChatDeps) -> None:
    """Delete the sessions of killed races, with their data at this endpoint."""
    for session in await deps.store.sessions():
        if not session.name.startswith(RACE_NAME_PREFIX) or session.scope not in (EMBEDDED_SCOPE, deps.endpoint.scope):
            continue
        with suppress(Busy, NotFound):  # that race still runs, or another process deletes it now
            lease = await acquire_session_lease(deps.store, session)
            try:
                await _delete_at_endpoint(session, deps)
            finally:
                await lease.release()
            await delete_sessions(deps.store, [session])


async def _delete_at_endpoint(session: Session, deps: ChatDeps) -> None:
    """Delete a session's responses and conversation at a remote endpoint, ignoring its errors.

    The record is deleted after this: if the process is killed in between, another one can repeat the deletion.
    """
    if session.scope == EMBEDDED_SCOPE:
        return
    for link in filter(_is_stored_response, await deps.store.links(session.id)):
        with suppress(ConvoError):
            await deps.endpoint.delete(link.id)
    if session.conversation_id:
        with suppress(ConvoError):
            await deps.endpoint.delete_conversation(session.conversation_id)


def _is_stored_response(link: Link) -> bool:
    return link.is_stored and link.id.startswith("resp_")


class CountingEndpoint:
    """An endpoint that counts the bytes of its requests for responses."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.request_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.request_bytes += len(
            json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        )
        async with aclosing(self._endpoint.create(body)) as events:
            async for event in events:
                yield event
