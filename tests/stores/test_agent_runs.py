"""Agent runs and their calls, on every store."""

from asyncio import gather
from random import Random

import pytest

from convo.errors import Conflict, ConvoError, NotCanonical, NotFound
from convo.history.items import Json, user_message
from convo.history.records import AgentCall, AgentRun, ApprovalDecision
from convo.history.tree import root_key
from convo.stores.base import UNCHANGED_DOCUMENT, AppendItems, HandleMatch, PruneResult, Store, Transaction
from tests.stores.chat_transactions import NOW, link, prose, search_hits, session

ODD: Json = {"text": "half \ud83d, whole \U0001f333 and \x00", "n": 2**70, "f": 1.0, "z": [None, {}], "a": "last"}
RUN = AgentRun("run_1", "ses_1", 1, "running", {"phase": "asking", "odd": ODD}, NOW, NOW + 1)
CALL = AgentCall("run_1", "call_1", NOW + 2)
LONG = prose(Random(4), 5000)
DECISION = ApprovalDecision(
    "run_1", "call_1", "helper", "crm.refund", '{"order": "A\ud83d1"}', True, NOW + 3, "alice", "page"
)
DONE = CALL._replace(has_ended=True, output={"temperature": 21, "odd": ODD})


async def store_runs(store: Store, *runs: AgentRun) -> None:
    """Store each of `runs`, or `RUN`, with its session."""
    for run in runs or (RUN,):
        record = session(id=run.session_id, name=run.session_id)
        await store.commit(Transaction(session=record, agent_run=run))


def next_revision(run: AgentRun = RUN, **fields: object) -> AgentRun:
    """Return the next revision of a run. `fields` override its fields."""
    return run._replace(revision=run.revision + 1, **fields)  # type: ignore[arg-type]


# -- runs -----------------------------------------------------------------------------------------


async def test_a_run_reads_back_as_it_was_written_last(store: Store) -> None:
    await store_runs(store)
    assert await store.agent_run("run_1") == RUN

    paused = next_revision(
        status="paused", document={"phase": "paused"}, source_state_hash="sha256:abc", changed_at=NOW + 9
    )
    await store.commit(Transaction(agent_run=paused))

    assert await store.agent_run("run_1") == paused


async def test_a_run_continues_with_the_stored_document(store: Store) -> None:
    await store_runs(store)
    await store.commit(
        Transaction(agent_run=next_revision(document=UNCHANGED_DOCUMENT, changed_at=NOW + 9), agent_calls=(CALL,))
    )

    assert await store.agent_run("run_1") == next_revision(changed_at=NOW + 9)
    with pytest.raises(Conflict):
        await store.commit(Transaction(agent_run=next_revision(document=UNCHANGED_DOCUMENT)))


async def test_a_new_run_without_a_stored_document_has_an_empty_one(store: Store) -> None:
    await store_runs(store, RUN._replace(document=UNCHANGED_DOCUMENT))

    assert await store.agent_run("run_1") == RUN._replace(document={})


async def test_an_unknown_run_is_none_and_has_no_calls(store: Store) -> None:
    await store_runs(store)
    for name in ["run_2", "", "ses_1", "\ud800"]:
        assert await store.agent_run(name) is None
        assert list(await store.agent_calls(name)) == []


async def test_a_revision_that_does_not_follow_the_stored_one_is_a_conflict_and_changes_nothing(store: Store) -> None:
    await store_runs(store)
    for revision in [0, 1, 3, -1]:
        with pytest.raises(Conflict):
            await store.commit(
                Transaction(
                    (AppendItems(root_key("local"), (user_message("hi"),)),),
                    session=session(id="ses_2", name="two"),
                    agent_run=RUN._replace(revision=revision, status="failed"),
                    agent_calls=(CALL,),
                )
            )

        assert await store.agent_run("run_1") == RUN
        assert list(await store.agent_calls("run_1")) == []
        assert await store.session("two") is None


@pytest.mark.parametrize("revision", [0, 2])
async def test_a_new_run_begins_with_revision_1(store: Store, revision: int) -> None:
    with pytest.raises(Conflict):
        await store_runs(store, RUN._replace(revision=revision))

    assert await store.agent_run("run_1") is None


async def test_the_second_of_two_writers_of_a_run_gets_a_conflict(store: Store) -> None:
    await store_runs(store)
    await store.commit(Transaction(agent_run=next_revision(status="paused")))

    with pytest.raises(Conflict, match="run_1 changed since it was read"):
        await store.commit(Transaction(agent_run=next_revision(status="done")))
    with pytest.raises(Conflict, match="run_1 already exists"):
        await store.commit(Transaction(agent_run=RUN))
    with pytest.raises(Conflict, match="run_9 no longer exists") as missing_run:
        await store.commit(Transaction(agent_run=RUN._replace(id="run_9", revision=4)))
    assert missing_run.value.hint == "convo approvals"
    with pytest.raises(NotFound, match="no run 'run_9'") as unknown_run:
        await store.commit(Transaction(agent_calls=(CALL._replace(run_id="run_9"),)))
    assert unknown_run.value.hint == "convo approvals"


async def test_a_run_needs_its_session(store: Store) -> None:
    with pytest.raises(NotFound, match="no session 'ses_1'"):
        await store.commit(Transaction(agent_run=RUN))
    await store_runs(store)
    with pytest.raises(NotFound, match="no session 'ses_2'"):
        await store.commit(Transaction(agent_run=next_revision(session_id="ses_2")))

    assert await store.agent_run("run_1") == RUN


async def test_a_session_that_only_a_link_names_has_no_runs(store: Store) -> None:
    """The session itself is not stored, so no removal would ever remove its run."""
    await store.commit(Transaction(links=(link("resp_1", root_key("local"), session_id="ses_1"),)))

    with pytest.raises(NotFound):
        await store.commit(Transaction(agent_run=RUN))


@pytest.mark.parametrize(
    "run",
    [
        RUN._replace(document={"n": float("nan")}),
        RUN._replace(document={"n": {1, 2}}),
        RUN._replace(id="run_\ud800"),
        RUN._replace(source_state_hash="\ud800"),
    ],
    ids=["not a number", "not JSON", "an invalid id", "an invalid state hash"],
)
async def test_a_run_that_cannot_be_written_leaves_nothing_behind(store: Store, run: AgentRun) -> None:
    with pytest.raises(NotCanonical):
        await store_runs(store, run)

    assert await store.session("ses_1") is None
    assert list(await store.agent_runs()) == []


async def test_changing_a_document_or_output_that_was_read_does_not_change_the_store(store: Store) -> None:
    await store_runs(store, RUN._replace(document={"items": ["x"]}))
    await store.commit(Transaction(agent_calls=(DONE._replace(output=["y"]),)))
    loaded = await store.agent_run("run_1")
    assert loaded is not None
    loaded.document["items"].clear()
    (await store.agent_calls("run_1"))[0].output.clear()

    assert await store.agent_run("run_1") == RUN._replace(document={"items": ["x"]})
    assert [call.output for call in await store.agent_calls("run_1")] == [["y"]]


# -- calls ----------------------------------------------------------------------------------------


async def test_calls_come_in_the_order_in_which_they_started(store: Store) -> None:
    await store_runs(store)
    batch = tuple(AgentCall("run_1", f"call_{name}", NOW) for name in "cab")
    await store.commit(Transaction(agent_calls=(AgentCall("run_1", "later", NOW + 1), *batch)))
    await store.commit(Transaction(agent_calls=(batch[1]._replace(has_ended=True, output="sunny"),)))

    names = [(call.call_id, call.has_ended) for call in await store.agent_calls("run_1")]
    assert names == [("call_c", False), ("call_a", True), ("call_b", False), ("later", False)]


async def test_a_call_that_started_reads_back_with_its_output_once_it_ended(store: Store) -> None:
    await store_runs(store)
    await store.commit(Transaction(agent_calls=(CALL,)))
    assert list(await store.agent_calls("run_1")) == [CALL]

    await store.commit(Transaction(agent_run=next_revision(), agent_calls=(DONE,)))

    assert list(await store.agent_calls("run_1")) == [DONE]


async def test_a_call_that_starts_again_has_the_new_start_time(store: Store) -> None:
    """The process of the first start ended, and a user decided to run the call again."""
    await store_runs(store)
    other = AgentCall("run_1", "call_2", NOW + 3)
    restarted = CALL._replace(started_at=NOW + 4)
    for call in (CALL, other, restarted):
        await store.commit(Transaction(agent_calls=(call,)))

    assert list(await store.agent_calls("run_1")) == [other, restarted]


@pytest.mark.parametrize("second", [DONE._replace(output="other", started_at=NOW), CALL], ids=["an end", "a start"])
async def test_a_call_that_has_ended_is_never_replaced(store: Store, second: AgentCall) -> None:
    await store_runs(store)
    await store.commit(Transaction(agent_calls=(CALL, DONE)))
    await store.commit(Transaction(agent_run=next_revision(status="paused"), agent_calls=(second,)))

    assert list(await store.agent_calls("run_1")) == [DONE]
    assert await store.agent_run("run_1") == next_revision(status="paused")


async def test_within_one_change_the_first_end_of_a_call_counts(store: Store) -> None:
    await store_runs(store)
    await store.commit(Transaction(agent_calls=(CALL, DONE, DONE._replace(output="second"), CALL)))

    assert list(await store.agent_calls("run_1")) == [DONE]


async def test_a_call_may_end_with_an_empty_output(store: Store) -> None:
    await store_runs(store)
    await store.commit(Transaction(agent_calls=(DONE._replace(output=None),)))
    await store.commit(Transaction(agent_calls=(DONE,)))

    assert list(await store.agent_calls("run_1")) == [DONE._replace(output=None)]


async def test_calls_of_two_runs_may_share_an_id(store: Store) -> None:
    """Call ids come from the provider and are not unique across runs."""
    await store_runs(store, RUN, RUN._replace(id="run_2", session_id="ses_2"))
    await store.commit(Transaction(agent_calls=(DONE, CALL._replace(run_id="run_2"))))

    assert list(await store.agent_calls("run_2")) == [CALL._replace(run_id="run_2")]


INVALID_CALLS: dict[str, tuple[AgentCall, type[ConvoError]]] = {
    "an unknown run": (CALL._replace(run_id="run_9"), NotFound),
    "an output that is not JSON": (DONE._replace(output=float("inf")), NotCanonical),
    "an id that is not text": (CALL._replace(call_id="\ud800"), NotCanonical),
}


@pytest.mark.parametrize(("call", "error"), INVALID_CALLS.values(), ids=INVALID_CALLS)
async def test_a_call_that_cannot_be_written_rolls_back_its_transaction(
    store: Store, call: AgentCall, error: type[ConvoError]
) -> None:
    await store_runs(store)

    with pytest.raises(error):
        await store.commit(Transaction(agent_run=next_revision(), agent_calls=(CALL, call)))

    assert await store.agent_run("run_1") == RUN
    assert list(await store.agent_calls("run_1")) == []


async def test_of_many_concurrent_writers_of_a_run_one_succeeds_and_the_others_get_a_conflict(store: Store) -> None:
    await store_runs(store)
    changes = [Transaction(agent_run=next_revision(document={"by": number})) for number in range(8)]

    results = await gather(*map(store.commit, changes), return_exceptions=True)

    assert [type(result) for result in results].count(Conflict) == 7
    stored = await store.agent_run("run_1")
    assert stored == changes[results.index(None)].agent_run


async def test_calls_that_end_concurrently_are_all_stored(store: Store) -> None:
    await store_runs(store)
    batch = tuple(AgentCall("run_1", f"call_{number}", NOW) for number in range(8))
    await store.commit(Transaction(agent_calls=batch))
    ends = [call._replace(has_ended=True, output=call.call_id) for call in batch]
    await gather(*(store.commit(Transaction(agent_calls=(end,))) for end in (*ends, *ends[::-1])))

    assert list(await store.agent_calls("run_1")) == ends


# -- search ---------------------------------------------------------------------------------------

RUNS = (
    RUN._replace(changed_at=NOW + 1, source_state_hash="s1"),
    RUN._replace(id="run_2", changed_at=NOW + 3, status="paused"),
    RUN._replace(id="run_3", session_id="ses_2", changed_at=NOW + 2, status="paused", source_state_hash="s1"),
)


async def test_runs_are_found_by_session_state_and_status_changed_last_first(store: Store) -> None:
    await store_runs(store, *RUNS)
    for filters, expected in [
        ({}, ["run_2", "run_3", "run_1"]),
        ({"limit": 2}, ["run_2", "run_3"]),
        ({"session_id": "ses_1"}, ["run_2", "run_1"]),
        ({"source_state_hash": "s1"}, ["run_3", "run_1"]),
        ({"status": "paused"}, ["run_2", "run_3"]),
        ({"status": "paused", "session_id": "ses_2", "source_state_hash": "s1"}, ["run_3"]),
        ({"status": "done"}, []),
        ({"session_id": "\ud800"}, []),
    ]:
        runs = await store.agent_runs(**filters)  # type: ignore[arg-type]

        assert [run.id for run in runs] == expected
        assert all(run in RUNS for run in runs)


async def test_a_run_is_found_by_a_prefix_of_its_id(store: Store) -> None:
    await store_runs(store, *RUNS)

    assert list(await store.find_handles("run_")) == [
        HandleMatch("run", "run_2", "paused"),
        HandleMatch("run", "run_3", "paused"),
        HandleMatch("run", "run_1", "running"),
    ]
    assert list(await store.find_handles("run_1")) == [HandleMatch("run", "run_1", "running")]
    assert [match.kind for match in await store.find_handles("", limit=3)] == ["session", "session", "run"]


async def test_a_search_does_not_read_documents_or_outputs(store: Store) -> None:
    await store_runs(store, RUN._replace(document={"text": "needle"}))
    await store.commit(Transaction(agent_calls=(DONE._replace(output="needle"),)))

    assert (await search_hits(store, "needle")) == []


async def test_another_tenant_cannot_read_or_change_a_run(store: Store) -> None:
    other = store.for_tenant("guest")
    await store_runs(store)
    await store.commit(Transaction(agent_calls=(DONE,)))

    assert await other.agent_run("run_1") is None
    assert [*await other.agent_runs(), *await other.agent_calls("run_1"), *await other.find_handles("run")] == []
    with pytest.raises(NotFound):
        await other.commit(Transaction(agent_calls=(CALL,)))
    root = root_key("guest")
    guest_run = RUN._replace(document={"mine": False})
    await other.commit(Transaction(session=session("guest", head=root), agent_run=guest_run))
    assert (await store.agent_run("run_1"), await other.agent_run("run_1")) == (RUN, guest_run)


# -- removal --------------------------------------------------------------------------------------


async def test_removing_a_session_removes_its_runs_and_their_calls(store: Store) -> None:
    await store_runs(store, *RUNS)
    await store.commit(Transaction(agent_calls=(DONE, CALL._replace(run_id="run_3"))))
    await store.remove_session("ses_1")

    assert [run.id for run in await store.agent_runs()] == ["run_3"]
    assert len(await store.agent_calls("run_3")) == 1
    with pytest.raises(NotFound):
        await store.commit(Transaction(agent_calls=(CALL,)))
    await store_runs(store)
    assert list(await store.agent_calls("run_1")) == []


async def test_pruning_a_session_removes_its_runs_and_a_remaining_session_keeps_them(store: Store) -> None:
    for number, run in enumerate(RUNS[1:]):
        record = session(id=run.session_id, name=run.session_id, used_at=NOW + number)
        await store.commit(Transaction(session=record, agent_run=run, agent_calls=(CALL._replace(run_id=run.id),)))

    assert await store.admin.prune("local", NOW + 1, dry_run=True) == PruneResult(1, 0, 0)
    assert len(await store.agent_runs()) == 2
    assert await store.admin.prune("local", NOW + 1, dry_run=False) == PruneResult(1, 0, 0)
    assert [run.id for run in await store.agent_runs()] == ["run_3"]
    assert list(await store.agent_calls("run_2")) == []


async def test_runs_are_counted_with_their_documents_and_outputs(store: Store) -> None:
    await store_runs(store, *RUNS)
    (before,) = await store.admin.tenant_stats()
    await store.commit(
        Transaction(agent_run=next_revision(RUNS[0], document={"x": LONG}), agent_calls=(DONE._replace(output=LONG),))
    )

    (after,) = await store.admin.tenant_stats()
    assert before.row_counts["runs"] == after.row_counts["runs"] == 3
    assert 1.2 * len(LONG) < after.size_bytes - before.size_bytes < 2.2 * len(LONG)


# -- decisions ------------------------------------------------------------------------------------


async def test_the_log_of_decisions_is_appended_to_and_read_newest_first(store: Store) -> None:
    other_run = RUN._replace(id="run_2", session_id="ses_2")
    await store_runs(store, RUN, other_run)
    rejected = DECISION._replace(approved=False, reason="\x00 not \udc00", is_sticky=True, decided_by=None)
    in_other_run = rejected._replace(run_id="run_2", decided_at=NOW + 4)
    await store.commit(Transaction(agent_run=next_revision(), approval_decisions=(DECISION, rejected)))
    await store.commit(Transaction(approval_decisions=(in_other_run,)))

    assert list(await store.approval_decisions()) == [in_other_run, rejected, DECISION]
    assert list(await store.approval_decisions("run_1")) == [rejected, DECISION]
    assert list(await store.approval_decisions(limit=1)) == [in_other_run]
    assert list(await store.for_tenant("else").approval_decisions()) == []
    assert list(await store.for_tenant("else").approval_decisions("run_1")) == []
    assert list(await store.approval_decisions("run_\ud800")) == []


async def test_a_decision_is_stored_only_with_the_change_of_its_run(store: Store) -> None:
    await store_runs(store)
    with pytest.raises(Conflict):
        await store.commit(Transaction(agent_run=RUN, approval_decisions=(DECISION,)))
    with pytest.raises(NotFound):
        await store.commit(Transaction(approval_decisions=(DECISION._replace(run_id="run_9"),)))
    with pytest.raises(NotFound):
        await store.for_tenant("else").commit(Transaction(approval_decisions=(DECISION,)))
    assert list(await store.approval_decisions()) == []


async def test_the_decisions_are_deleted_with_the_session_of_their_run(store: Store) -> None:
    await store_runs(store)
    await store.commit(Transaction(approval_decisions=(DECISION,)))
    await store.remove_session("ses_1")
    await store_runs(store)
    assert list(await store.approval_decisions()) == []
