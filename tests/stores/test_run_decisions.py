"""Several deciders of one paused run, in every kind of store: the first decision that is committed counts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from convo.chat.run_decisions import describe_decision, load_new_decisions, save_decisions, wait_for_decisions
from convo.errors import AlreadyDecided, Conflict, NotFound
from convo.history.records import AgentRun, ApprovalDecision
from convo.history.tree import root_key
from convo.runs.serialize import run_to_json
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import list_pending_approvals
from convo.runtime import SystemClock
from convo.stores.base import Store, Transaction
from tests.runs.test_stored_approvals import paused
from tests.stores.chat_transactions import NOW, session


async def store_run(store: Store) -> AgentRun:
    """Store a run with the pending calls g1, g2 and m1."""
    root = root_key(store.tenant)
    run = AgentRun("run_1", "ses_1", 1, "paused", run_to_json(paused()), NOW, NOW)
    record = session(id="ses_1", name="shop", head=root, confirmed_head=root)
    await store.commit(Transaction(session=record, agent_run=run))
    return run


async def decide(
    store: Store, run: AgentRun, call_id: str, name: str, *, approve: bool = True
) -> list[ApprovalDecision] | AlreadyDecided:
    try:
        return await save_decisions(
            store, run, [ApprovalDecided(call_id, approve)], now=NOW + 1, decided_by=name, source="page"
        )
    except AlreadyDecided as error:
        return error


async def load_run(store: Store) -> AgentRun:
    run = await store.agent_run("run_1")
    assert run
    return run


async def test_of_eight_decisions_on_one_call_one_counts_and_the_others_name_who_decided(store: Store) -> None:
    run = await store_run(store)
    results = await asyncio.gather(
        *(decide(store, run, "g1", f"person {number}", approve=number % 2 == 0) for number in range(8))
    )
    (entry,) = await store.approval_decisions("run_1")
    assert [one for one in results if isinstance(one, list)] == [[entry]]
    refusals = [one for one in results if isinstance(one, AlreadyDecided)]
    assert {one.message for one in refusals} == {f"g1 was already {describe_decision(entry)}"}
    assert {(one.decision["decided_by"], one.decision["call_id"]) for one in refusals} == {(entry.decided_by, "g1")}
    changed = await load_run(store)
    assert (changed.revision, [one.call_id for one in list_pending_approvals(changed.document)]) == (2, ["g2", "m1"])


async def test_decisions_on_different_calls_at_once_are_all_kept(store: Store) -> None:
    run = await store_run(store)
    results = await asyncio.gather(*(decide(store, run, call_id, "ann") for call_id in ("g1", "g2", "m1")))
    assert all(isinstance(one, list) for one in results)
    changed = await load_run(store)
    assert (changed.revision, list_pending_approvals(changed.document)) == (4, ())
    decisions = await load_new_decisions(store, run.document, changed)
    assert sorted(one.call_id for one in decisions) == ["g1", "g2", "m1"]


async def test_a_decision_on_a_run_that_was_resumed_or_deleted_is_refused(store: Store) -> None:
    run = await store_run(store)
    resumed = run._replace(revision=2, status="running", document={**run.document, "phase": "calling the model"})
    await store.commit(Transaction(agent_run=resumed))
    with pytest.raises(Conflict, match="run_1 was continued by another process"):
        await save_decisions(store, run, [ApprovalDecided("g1", True)], now=NOW)
    await store.remove_session("ses_1")
    with pytest.raises(NotFound):
        await save_decisions(store, run, [ApprovalDecided("g1", True)], now=NOW)
    assert list(await store.approval_decisions()) == []


@contextmanager
def track_tasks() -> Iterator[list[asyncio.Task[Any]]]:
    """List the tasks that this task and its tasks start. The pool of a database starts its own at any time."""
    own_tasks, loop, tracking_task = list[asyncio.Task[Any]](), asyncio.get_running_loop(), asyncio.current_task()

    def start_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if asyncio.current_task() in (tracking_task, *own_tasks):
            own_tasks.append(task)
        return task

    loop.set_task_factory(start_task)
    try:
        yield own_tasks
    finally:
        loop.set_task_factory(None)


async def test_a_wait_ends_with_a_decision_before_or_during_it_and_leaves_no_task(store: Store) -> None:
    run = await store_run(store)
    with track_tasks() as tasks:
        waiting = asyncio.create_task(wait_for_decisions(store, run, SystemClock()))
        await asyncio.sleep(0)
        await decide(store, run, "g1", "ann")
        await waiting
        await wait_for_decisions(store, run, SystemClock())
        waiting = asyncio.create_task(wait_for_decisions(store, await load_run(store), SystemClock()))
        await asyncio.wait((waiting,), timeout=0.01)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait((waiting,))
    assert [task for task in tasks if not task.done()] == []
