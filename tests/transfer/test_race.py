"""Races: the same turns with all four strategies, their figures, a strategy that fails, and cleanup."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.chat.open import open_chat
from convo.chat.turn import RequestOptions
from convo.config.sections import Price
from convo.endpoints.base import Endpoint
from convo.errors import RequestRefused
from convo.history.items import Json, StreamEvent, user_message
from convo.history.records import Scope, Session, Strategy
from convo.stores.base import Store, Transaction
from convo.strategies.selection import OwnerSelection
from convo.transfer.race import RACE_ORDER, RaceObserver, RacePlan, RaceResult, RaceTurn, run_race
from convo.usage.cost import Usage
from tests.transfer.compaction_cases import CompactionCase
from tests.transfer.sample_conversations import ConversationHarness

TURNS = ("one", "two and", "three and more")


def make_plan(store: Store, folder: Path, *, keep: bool = False) -> RacePlan:
    case = CompactionCase(store, folder)
    return RacePlan(TURNS, replace(default_options(), model=case.model, wire_model=case.model), case.deps, folder, keep)


def default_options() -> Any:
    from convo.chat.turn import RequestOptions

    return RequestOptions("", "")


async def test_client_owners_send_the_complete_history_and_others_only_new_items(
    harness: ConversationHarness, tmp_path: Path
) -> None:
    results = {result.strategy: result for result in await run_race(make_plan(harness.store, tmp_path))}
    assert [result.sent_count for result in results.values()] == [1 + 3 + 5, 1 + 3 + 5, 3, 3]
    assert results[Strategy.CHAIN].request_bytes < results[Strategy.SESSION].request_bytes
    assert {result.usage for result in results.values()} == {results[Strategy.CHAIN].usage}
    assert all(result.error is None and len(result.turns) == 3 for result in results.values())


async def test_a_race_leaves_nothing_in_the_store(harness: ConversationHarness, tmp_path: Path) -> None:
    await run_race(make_plan(harness.store, tmp_path))
    assert await harness.store.sessions() == []
    assert await harness.store.find_handles("resp_") == []
    assert await harness.store.find_handles("conv_") == []


async def test_a_kept_conversation_can_be_continued(harness: ConversationHarness, tmp_path: Path) -> None:
    results = await run_race(make_plan(harness.store, tmp_path, keep=True))
    assert [result.session for result in results] == [f"race-{strategy}" for strategy in RACE_ORDER]
    assert {one.name for one in await harness.store.sessions()} == {result.session for result in results}


async def test_the_observer_is_called_for_every_turn(harness: ConversationHarness, tmp_path: Path) -> None:
    calls: list[tuple[Strategy, int]] = []
    durations: list[tuple[Strategy, int]] = []
    finished: list[RaceResult] = []
    watch = RaceObserver(
        on_turn_start=lambda strategy, number: calls.append((strategy, number)),
        on_turn_end=lambda strategy, number, turn: durations.append((strategy, number * (turn.request_bytes > 0))),
        on_strategy_end=finished.append,
    )
    results = await run_race(make_plan(harness.store, tmp_path), watch)
    assert durations == [(strategy, number + 1) for strategy, number in calls]
    assert finished == results
    assert calls == [(strategy, number) for strategy in RACE_ORDER for number in range(3)]


class NoConversationEndpoint:
    """An endpoint that refuses requests with a conversation from the second turn on."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._request_count = endpoint, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        if body.get("conversation"):
            self._request_count += 1
            if self._request_count > 1:
                raise RequestRefused("no conversations here", code="unsupported_parameter")
        async for event in self._endpoint.create(body):
            yield event


async def test_a_failing_strategy_does_not_end_the_race(harness: ConversationHarness, tmp_path: Path) -> None:
    there = make_plan(harness.store, tmp_path)
    edges = there.deps._replace(endpoint=cast(Endpoint, NoConversationEndpoint(there.deps.endpoint)))
    results = {result.strategy: result for result in await run_race(replace(there, deps=edges))}
    failed_result = results.pop(Strategy.CONVERSATION)
    assert failed_result.error == {"code": "unsupported_parameter", "message": "no conversations here"}
    assert len(failed_result.turns) == 1
    assert all(result.error is None for result in results.values())
    assert await harness.store.sessions() == []


@pytest.mark.parametrize("reporting", [0, 2])
def test_usage_is_unknown_unless_every_turn_reported_it(reporting: int) -> None:
    from convo.transfer.race import RaceResult, RaceTurn
    from convo.usage.cost import Usage

    turns = [RaceTurn(10, 1, Usage(input_tokens=5) if number < reporting else None, None, 1.0) for number in range(3)]
    result = RaceResult(Strategy.CHAIN, tuple(turns))
    assert result.usage is None
    assert (result.request_bytes, result.first_token_s, result.duration_s) == (30, None, 3.0)


async def test_a_turn_is_measured_by_the_bytes_of_its_requests(harness: ConversationHarness, tmp_path: Path) -> None:
    plan = make_plan(harness.store, tmp_path)
    results = {result.strategy: result for result in await run_race(replace(plan, messages=("größe",)))}
    body = {"model": plan.options.wire_model, "input": [user_message("größe")], "store": False}
    expected = len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())

    assert results[Strategy.SESSION].request_bytes == expected
    assert [turn.sent_count for turn in results[Strategy.SESSION].turns] == [1]


def test_the_figures_of_a_strategy_are_those_of_all_its_turns() -> None:
    price = Price(input=2.0, output=10.0, cached=1.0)
    turns = (
        RaceTurn(10, 1, Usage(1_000_000, 500_000, 100_000), 0.5, 1.0),
        RaceTurn(20, 2, Usage(1_000_000, 0, 0), 0.1, 2.0),
        RaceTurn(30, 3, Usage(0, 0, 100_000), None, 4.0),
    )
    result = RaceResult(Strategy.CHAIN, turns)

    assert (result.request_bytes, result.sent_count, result.duration_s) == (60, 6, 7.0)
    assert result.usage == Usage(2_000_000, 500_000, 200_000)
    assert result.first_token_s == 0.3
    assert result.cost_usd(price) == pytest.approx(1.0 + 0.5 + 1.0 + 2.0 + 1.0)
    assert result.cost_usd(None) is None
    assert replace(result, turns=(*turns, RaceTurn(1, 1, None, None, 1.0))).cost_usd(price) is None
    assert (RaceResult(Strategy.CHAIN).usage, RaceResult(Strategy.CHAIN).cost_usd(price)) == (None, None)


async def test_the_remains_of_a_killed_race_are_removed_by_the_next_race(
    harness: ConversationHarness, tmp_path: Path
) -> None:
    """Sessions with another name, at another endpoint or with an active lease are not removed."""
    case = CompactionCase(harness.store, tmp_path)
    sessions: dict[str, Session] = {}
    for name in ("@race-chain", "@race-session", "race-chain", "@other", "@race-there"):
        chat = await open_chat(OwnerSelection(Strategy.SESSION), None, case_options(case), case.deps, name=name)
        async for _ in chat.send([user_message("hi")]):
            pass
        sessions[name] = chat.session
    there = replace(sessions["@race-there"], scope=Scope("https://elsewhere.example/v1"))
    await harness.store.commit(Transaction(session=there, expected_session_head=there.head))
    await harness.store.acquire_lease(f"session {sessions['@race-session'].id}", "desk@1:42:17", 3600)

    await run_race(replace(make_plan(harness.store, tmp_path), messages=()))

    assert {session.name for session in await harness.store.sessions()} == {
        "@race-session",
        "race-chain",
        "@other",
        "@race-there",
    }


def case_options(case: CompactionCase) -> RequestOptions:
    return RequestOptions(case.model, case.model)
