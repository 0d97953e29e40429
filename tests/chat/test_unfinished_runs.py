"""Unfinished agent runs: paused, running in a process, or orphaned."""

from typing import Any

import pytest

from convo.agent_runner.persistence import list_orphaned_runs, load_run_row
from convo.agents.agent import Agent
from convo.chat.session_record import acquire_session_lease
from convo.chat.view_loader import load_handle_view, load_open_run
from convo.errors import AmbiguousHandle, NotFound
from convo.history.items import assistant_message
from convo.history.records import AgentCall, AgentRun, Session, Strategy
from convo.inspect.view import OpenRun
from convo.runs.serialize import run_to_json
from convo.runs.state import Run, RunStarted
from convo.runtime import process_identity
from convo.stores.base import Lease, Store, Transaction
from tests.chat.conftest import ChatHarness, send
from tests.runs.run_steps import FREE, apply_events, call, make_run, model_response
from tests.runs.test_stored_approvals import paused

OTHER_PROCESS = "another-machine:7:1"


def make_running_run(*ids: str) -> Run:
    """A run whose calls have started."""
    run, _ = apply_events(make_run(Agent("shop", tools=(FREE,))), RunStarted())
    return apply_events(run, model_response(run, *map(call, ids or ("c1",))))[0]


async def store_run(
    harness: ChatHarness, run: Run, *, run_id: str = "run_1", name: str = "shop", **more: Any
) -> Session:
    """A session whose newest run is stored; the members `more` are added to its document."""
    chat = await harness.open(Strategy.SESSION, name=name)
    await send(chat, "pay it back")
    row = AgentRun(run_id, chat.session.id, 1, "running", {**run_to_json(run), **more}, 1.0, 1.0)
    if run.pending:
        row = AgentRun(run_id, chat.session.id, 1, "paused", row.document, 1.0, 1.0)
    await harness.store.commit(Transaction(agent_run=row))
    return chat.session


async def acquire_lease(store: Store, session: Session, holder: str) -> Lease:
    return await store.acquire_lease(f"session {session.id}", holder, 60)


async def test_a_paused_run_is_open_and_names_its_pending_calls(harness: ChatHarness) -> None:
    session = await store_run(harness, paused())
    run = OpenRun("run_1", ("g1", "g2", "m1"), is_paused=True)
    assert await load_open_run(harness.store, session) == run
    assert (await load_handle_view(harness.store, "shop")).open_run == run
    assert await list_orphaned_runs(harness.store) == []


async def test_a_run_without_a_process_is_orphaned_and_names_the_calls_with_unknown_outcome(
    harness: ChatHarness,
) -> None:
    session = await store_run(harness, make_running_run("c1", "c2"))
    run = make_running_run("c1", "c2")
    entries = [
        AgentCall("run_1", f"{run.turn}/{name}", 1.0, has_ended=name == "c1", output="x") for name in ("c1", "c2")
    ]
    await harness.store.commit(Transaction(agent_calls=tuple(entries)))
    open_run = await load_open_run(harness.store, session)
    assert open_run == OpenRun("run_1")
    assert open_run.is_orphaned
    (orphan,) = await list_orphaned_runs(harness.store)
    assert (orphan.run.id, orphan.session.name, [entry.call_id for entry in orphan.calls]) == ("run_1", "shop", ["c2"])
    assert (orphan.calls[0].tool, orphan.calls[0].outcome_unknown) == ("free", True)


@pytest.mark.parametrize(("retried", "unknown"), [((), ["c1"]), (("c1",), [])])
async def test_the_stored_calls_show_whether_a_ready_call_started(
    harness: ChatHarness, retried: tuple[str, ...], unknown: list[str]
) -> None:
    run = make_running_run()
    ready = [{**entry, "stage": "READY"} for entry in run_to_json(run)["batch"]]
    await store_run(harness, run, batch=ready, again=list(retried))
    assert [entry.calls for entry in await list_orphaned_runs(harness.store)] == [()]
    await harness.store.commit(Transaction(agent_calls=(AgentCall("run_1", f"{run.turn}/c1", 1.0),)))
    (orphan,) = await list_orphaned_runs(harness.store)
    assert [entry.call_id for entry in orphan.calls] == unknown


async def test_a_run_whose_process_may_be_alive_is_not_orphaned(harness: ChatHarness) -> None:
    session = await store_run(harness, make_running_run())
    own_lease = await acquire_session_lease(harness.store, session)
    open_run = await load_open_run(harness.store, session)
    assert open_run
    assert (open_run.process.startswith("process "), open_run.is_orphaned, await list_orphaned_runs(harness.store)) == (
        True,
        False,
        [],
    )
    await own_lease.release()
    assert [orphan.run.id for orphan in await list_orphaned_runs(harness.store)] == ["run_1"]

    lease = await acquire_lease(harness.store, session, OTHER_PROCESS)
    assert await list_orphaned_runs(harness.store) == []
    await harness.store.release_lease(lease)

    machine, pid, started = process_identity().split(":")
    await acquire_lease(harness.store, session, f"{machine}:{pid}:{int(started or 0) + 1}")
    assert [orphan.run.id for orphan in await list_orphaned_runs(harness.store)] == ["run_1"]


async def test_a_run_without_calls_is_not_open(harness: ChatHarness) -> None:
    run, _ = apply_events(make_run(Agent("shop")), RunStarted())
    session = await store_run(harness, run)
    assert (await load_open_run(harness.store, session), await list_orphaned_runs(harness.store)) == (None, [])


async def test_only_the_newest_run_of_a_session_counts(harness: ChatHarness) -> None:
    session = await store_run(harness, make_running_run())
    run, _ = apply_events(make_run(Agent("shop")), RunStarted())
    done, _ = apply_events(run, model_response(run, assistant_message("done")))
    await harness.store.commit(
        Transaction(agent_run=AgentRun("run_2", session.id, 1, "done", run_to_json(done), 2.0, 2.0))
    )
    assert (await load_open_run(harness.store, session), await list_orphaned_runs(harness.store)) == (None, [])


async def test_a_paused_run_of_an_unknown_document_version_is_open(harness: ChatHarness) -> None:
    session = await store_run(harness, paused(), version=9)
    assert await load_open_run(harness.store, session) == OpenRun("run_1", is_paused=True)


async def test_a_run_id_or_its_unique_prefix_finds_the_session(harness: ChatHarness) -> None:
    await store_run(harness, paused(), run_id="run_12")
    await store_run(harness, paused(), run_id="run_21", name="other")
    for handle, name, run in (("run_12", "shop", "run_12"), ("run_2", "other", "run_21")):
        view = await load_handle_view(harness.store, handle)
        assert (view.handle, (await load_run_row(harness.store, handle)).id) == (name, run)
    for load in (load_handle_view, load_run_row):
        with pytest.raises(AmbiguousHandle):
            await load(harness.store, "run_")
        with pytest.raises(NotFound):
            await load(harness.store, "run_3")
