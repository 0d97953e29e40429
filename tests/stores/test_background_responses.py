"""Background responses, which continue without the client's connection, on every store."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from convo.errors import Conflict, InputFault, NotFound
from convo.history.items import StreamEvent, assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AbandonedRun, AppendItems, Store, Transaction, run_lease_name
from tests.stores.chat_transactions import link, session

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("hi"), assistant_message("hello")])
INPUT_HEAD = PATH.keys[0]
QUEUED = link("resp_1", INPUT_HEAD, status="queued")
DONE = replace(QUEUED, head=PATH.head, status="completed")
EXPIRED_TTL_S = -1.0
"""Seconds to live of a lease that has already expired when it is acquired."""


async def start_runs(store: Store, *names: str) -> None:
    """Store a queued response and start its run, for each of `names` or for resp_1."""
    for name in names or ("resp_1",):
        await store.commit(
            Transaction((AppendItems(ROOT, PATH.items),), (replace(QUEUED, id=name),), started_run_id=name)
        )


def events(*sequence: int) -> list[StreamEvent]:
    return [{"type": "response.output_text.delta", "sequence_number": n, "delta": f"word {n} \ud83d"} for n in sequence]


def sequence_numbers(items: Sequence[StreamEvent]) -> list[int]:
    return [event["sequence_number"] for event in items]


# -- events ---------------------------------------------------------------------------------------


async def test_events_are_read_back_in_order(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(0, 1, 2))
    await store.append_events("resp_1", [])
    await store.append_events("resp_1", events(3, 7))

    assert await store.events("resp_1") == events(0, 1, 2, 3, 7)


async def test_a_reader_resumes_after_the_last_sequence_number_it_saw(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(0, 1))
    await store.append_events("resp_1", events(2, 5))
    for after, expected in [(-1, [0, 1, 2, 5]), (0, [1, 2, 5]), (1, [2, 5]), (3, [5]), (5, [])]:
        assert sequence_numbers(await store.events("resp_1", after=after)) == expected


async def test_an_event_out_of_sequence_is_a_conflict_and_stores_nothing(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(0, 1, 2))
    for out_of_order, message in [
        ([2], "event 2 does not follow event 2"),
        ([1], "event 1 does not follow event 2"),
        ([3, 3], "event 3 does not follow event 3"),
        ([4, 3], "event 3 does not follow event 4"),
    ]:
        with pytest.raises(Conflict, match=f"^{message}$"):
            await store.append_events("resp_1", events(*out_of_order))

        assert sequence_numbers(await store.events("resp_1")) == [0, 1, 2]


async def test_the_largest_number_of_an_event_is_that_of_a_column(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(2**63 - 1))

    assert sequence_numbers(await store.events("resp_1")) == [2**63 - 1]


async def test_an_event_without_a_number_is_refused(store: Store) -> None:
    await start_runs(store)
    for number in [None, "1", 1.0, True, -1, 2**63]:
        with pytest.raises(InputFault, match=r"^an event has no sequence number$"):
            await store.append_events("resp_1", [*events(0), {"sequence_number": number}])

        assert await store.events("resp_1") == []


async def test_an_event_that_cannot_be_stored_is_refused_with_its_batch(store: Store) -> None:
    await start_runs(store)

    with pytest.raises(InputFault):
        await store.append_events("resp_1", [*events(0), {"sequence_number": 1, "delta": float("nan")}])

    assert await store.events("resp_1") == []


async def test_changing_an_event_that_was_read_does_not_change_the_store(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", [{"sequence_number": 0, "item": {"content": ["x"]}}])
    (await store.events("resp_1"))[0]["item"]["content"].clear()

    assert await store.events("resp_1") == [{"sequence_number": 0, "item": {"content": ["x"]}}]


@pytest.mark.parametrize("name", ["nope", "", "\ud800"])
async def test_a_response_that_never_ran_has_no_events_and_accepts_none(store: Store, name: str) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (QUEUED,), session(head=PATH.head)))
    for response in (name, "resp_1"):
        with pytest.raises(Conflict):
            await store.append_events(response, events(0))
        assert await store.events(response) == []


# -- end of a run ---------------------------------------------------------------------------------


async def test_a_run_may_start_for_a_stored_response(store: Store) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (QUEUED,)))
    await store.commit(Transaction(started_run_id="resp_1"))
    await store.append_events("resp_1", events(0))

    assert sequence_numbers(await store.events("resp_1")) == [0]


@pytest.mark.parametrize("name", ["resp_2", "\ud800"])
async def test_a_run_without_its_response_is_refused(store: Store, name: str) -> None:
    with pytest.raises(NotFound, match=r"^no response "):
        await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (QUEUED,), started_run_id=name))

    assert await store.link("resp_1") is None


async def test_an_ended_run_keeps_its_events_and_accepts_no_more(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(0, 1))
    await store.commit(Transaction((AppendItems(INPUT_HEAD, PATH.items[1:]),), (DONE,), ended_run_id="resp_1"))

    with pytest.raises(Conflict, match=r"^'resp_1' is not running$"):
        await store.append_events("resp_1", events(2))
    assert sequence_numbers(await store.events("resp_1")) == [0, 1]
    assert await store.link("resp_1") == DONE
    assert await store.admin.abandoned_runs() == []


@pytest.mark.parametrize("event_numbers", [[], [0, 1]], ids=["without events", "with events"])
async def test_of_an_end_and_a_cancellation_only_the_first_is_stored(store: Store, event_numbers: list[int]) -> None:
    """When two replicas end one run, the second gets a conflict and stores nothing."""
    await start_runs(store)
    await store.append_events("resp_1", events(*event_numbers))
    await store.commit(Transaction(links=(replace(QUEUED, status="cancelled"),), ended_run_id="resp_1"))

    with pytest.raises(Conflict):
        await store.commit(
            Transaction(
                (AppendItems(INPUT_HEAD, PATH.items[1:]),), (DONE,), session(head=PATH.head), ended_run_id="resp_1"
            )
        )

    response = await store.link("resp_1")
    assert response is not None
    assert response.status == "cancelled"
    assert await store.session("one") is None
    with pytest.raises(NotFound):
        await store.path(PATH.head)


@pytest.mark.parametrize("name", ["resp_1", "nope", "\ud800"])
async def test_a_response_that_never_ran_cannot_end(store: Store, name: str) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (QUEUED,)))

    with pytest.raises(Conflict):
        await store.commit(Transaction(links=(DONE,), ended_run_id=name))


async def test_a_stale_head_keeps_a_run_open(store: Store) -> None:
    """One transaction stores the link and the end of the run. If it fails, the run is still open."""
    await start_runs(store)

    with pytest.raises(Conflict):
        await store.commit(
            Transaction(links=(DONE,), session=session(), expected_session_head=PATH.head, ended_run_id="resp_1")
        )

    await store.append_events("resp_1", events(0))
    assert await store.link("resp_1") == QUEUED


async def test_a_queued_response_is_replaced_until_it_is_final(store: Store) -> None:
    await start_runs(store)
    for status in ("in_progress", "completed"):
        await store.commit(Transaction(links=(replace(QUEUED, status=status),)))
    await store.commit(Transaction(links=(replace(QUEUED, status="failed"),)))

    response = await store.link("resp_1")
    assert response is not None
    assert response.status == "completed"


# -- removal --------------------------------------------------------------------------------------


async def test_removing_a_response_removes_its_run_and_its_events(store: Store) -> None:
    await start_runs(store)
    await store.append_events("resp_1", events(0))
    await store.remove_link("resp_1")

    assert await store.events("resp_1") == []
    assert await store.admin.abandoned_runs() == []
    with pytest.raises(Conflict):
        await store.append_events("resp_1", events(1))
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (QUEUED,)))
    assert await store.events("resp_1") == []
    with pytest.raises(Conflict):
        await store.append_events("resp_1", events(1))


async def test_removing_a_session_removes_the_events_of_its_responses(store: Store) -> None:
    response = replace(QUEUED, session_id="ses_1")
    await store.commit(
        Transaction((AppendItems(ROOT, PATH.items),), (response,), session(head=PATH.head), started_run_id="resp_1")
    )
    await store.append_events("resp_1", events(0))
    await store.remove_session("ses_1")

    assert await store.events("resp_1") == []
    assert await store.admin.abandoned_runs() == []


async def test_events_are_removed_some_time_after_the_end(store: Store) -> None:
    await start_runs(store, "resp_1", "resp_2")
    for name in ("resp_1", "resp_2"):
        await store.append_events(name, events(0, 1))
    await store.commit(Transaction(links=(replace(QUEUED, status="failed"),), ended_run_id="resp_1"))

    assert await store.admin.prune_events(60) == 0
    assert sequence_numbers(await store.events("resp_1")) == [0, 1]
    assert await store.admin.prune_events(-60) == 1
    assert await store.events("resp_1") == []
    assert sequence_numbers(await store.events("resp_2")) == [0, 1]
    assert await store.link("resp_1") == replace(QUEUED, status="failed")
    assert await store.admin.prune_events(-60) == 0


# -- abandoned runs -------------------------------------------------------------------------------


async def test_a_run_without_a_live_lease_is_abandoned(store: Store) -> None:
    await start_runs(store, "resp_1", "resp_2", "resp_3")
    await store.acquire_lease("running resp_1", "alive", 60)
    await store.acquire_lease(run_lease_name("resp_2"), "dead", EXPIRED_TTL_S)

    assert set(await store.admin.abandoned_runs()) == {AbandonedRun("local", "resp_2"), AbandonedRun("local", "resp_3")}


async def test_a_run_is_abandoned_once_its_lease_is_released(store: Store) -> None:
    await start_runs(store)
    lease = await store.acquire_lease(run_lease_name("resp_1"), "me", 60)
    assert await store.admin.abandoned_runs() == []
    await store.release_lease(lease)

    assert await store.admin.abandoned_runs() == [("local", "resp_1")]


async def test_the_lease_of_another_tenant_does_not_count(store: Store) -> None:
    await start_runs(store)
    await store.for_tenant("guest").acquire_lease(run_lease_name("resp_1"), "theirs", 60)

    assert await store.for_tenant("guest").admin.abandoned_runs() == [("local", "resp_1")]
