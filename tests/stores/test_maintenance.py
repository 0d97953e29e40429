"""Maintenance across tenants on every store: migration, statistics and pruning."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from convo.errors import NotFound
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, PruneResult, Store, Transaction
from convo.stores.memory import MemoryStore
from tests.stores.chat_transactions import NOW, json_bytes, link, prose, search_hits, session
from tests.stores.test_tenants import everything

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("one"), user_message("two"), user_message("three")])
ONE, TWO, THREE = PATH.keys
MANY = 1100
EVENT = {"sequence_number": 0, "type": "response.created"}


# -- the database ---------------------------------------------------------------------------------


async def test_a_second_migration_does_nothing(store: Store) -> None:
    await store.admin.migrate()

    assert list(await store.admin.migrate()) == []
    await store.admin.check_ready()


async def test_a_migration_changes_no_stored_data(store: Store) -> None:
    await store.commit(everything("local"))
    await store.admin.migrate()

    assert await store.link("resp_1") is not None


async def test_the_first_secret_of_a_name_is_shared(store: Store) -> None:
    assert await store.admin.get_or_create_secret("seal", b"first\x00\xff") == b"first\x00\xff"
    assert await store.admin.get_or_create_secret("seal", b"second") == b"first\x00\xff"
    assert await store.for_tenant("guest").admin.get_or_create_secret("seal", b"third") == b"first\x00\xff"
    assert await store.admin.get_or_create_secret("other", b"fourth") == b"fourth"


async def test_tenants_are_listed_once_they_have_stored_something(store: Store) -> None:
    assert list(await store.admin.tenant_names()) == []
    await store.for_tenant("a guest").commit(everything("a guest"))
    await store.commit(everything("local"))
    assert list(await store.admin.tenant_names()) == ["a guest", "local"]


async def test_the_size_on_disk_grows_with_the_stored_data(store: Store) -> None:
    await store.commit(everything("local"))
    before = await store.admin.size_bytes()
    path = Path(ROOT).append([user_message(prose(Random(1), 300_000))])
    record = session(head=path.head, id="ses_large", name="large")
    await store.commit(
        Transaction(appends=(AppendItems(ROOT, tuple(path.items)),), session=record, expected_session_head=None)
    )
    after = await store.admin.size_bytes()
    if isinstance(store, MemoryStore):
        assert (before, after) == (None, None)
    else:
        assert before
        assert after
        assert after > before


async def test_transactions_are_observed_with_their_durations(store: Store) -> None:
    """A failed transaction and those of the other tenants are observed, too."""
    durations: list[float] = []
    store.admin.set_transaction_observer(durations.append)
    counts = []
    await store.commit(everything("local"))
    counts.append(len(durations))
    with pytest.raises(NotFound):
        await store.for_tenant("guest").remove_session("ses_none")
    counts.append(len(durations))
    await store.sessions()
    counts.append(len(durations))
    assert counts == [1, 2, 3]
    assert all(0 < seconds < 60 for seconds in durations)


# -- statistics -----------------------------------------------------------------------------------


async def test_an_empty_store_contains_nothing(store: Store) -> None:
    await store.acquire_lease("chat", "me", 60)

    assert list(await store.admin.tenant_stats()) == []


async def test_each_tenants_rows_and_bytes_are_counted(store: Store) -> None:
    items = tuple(user_message(prose(Random(number), 500)) for number in range(3))
    path = Path(ROOT).append(items)
    responses = [link(f"resp_{n}", path.keys[n], path.head, created_at=NOW + n, session_id="ses_1") for n in range(2)]
    await store.for_tenant("a guest").commit(everything("a guest"))
    await store.commit(
        Transaction((AppendItems(ROOT, items),), tuple(responses), session(head=path.head), started_run_id="resp_0")
    )
    await store.append_events("resp_0", [EVENT, {**EVENT, "sequence_number": 1}])

    guest_stats, local_stats = await store.admin.tenant_stats()
    assert (guest_stats.tenant, local_stats.tenant) == ("a guest", "local")
    assert local_stats.row_counts == {
        "sessions": 1,
        "responses": 2,
        "conversations": 0,
        "items": 3,
        "places": 3,
        "events": 2,
        "runs": 0,
        "files": 0,
    }
    assert guest_stats.row_counts == {
        "sessions": 1,
        "responses": 1,
        "conversations": 1,
        "items": 1,
        "places": 1,
        "events": 0,
        "runs": 0,
        "files": 0,
    }
    assert json_bytes(items) < local_stats.size_bytes < 3 * json_bytes(items)
    assert (local_stats.oldest_at, local_stats.newest_at) == (NOW, NOW + 1)


async def test_each_row_is_estimated_to_take_more_than_its_body(store: Store) -> None:
    sizes = []
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (link("resp_0", THREE),), started_run_id="resp_0"))
    for number in range(4):
        await store.append_events("resp_0", [{"sequence_number": number, "type": "x"}])
        (stats,) = await store.admin.tenant_stats()
        sizes.append(stats.size_bytes)
    body_size = len('{"sequence_number":0,"type":"x"}')
    growths = {after - before for before, after in pairwise(sizes)}
    assert len(growths) == 1
    assert body_size + 8 <= growths.pop() < 10 * body_size


async def test_removed_rows_are_no_longer_counted(store: Store) -> None:
    await store.commit(everything("local"))
    await store.remove_session("ses_1")
    await store.remove_conversation("conv_1")

    assert list(await store.admin.tenant_stats()) == []


async def test_a_name_that_only_a_link_mentions_is_not_counted(store: Store) -> None:
    await store.commit(
        Transaction((AppendItems(ROOT, PATH.items),), (link("resp_2", THREE, parent_id="resp_1", session_id="ses_x"),))
    )

    (stats,) = await store.admin.tenant_stats()
    assert (stats.row_counts["sessions"], stats.row_counts["responses"]) == (0, 1)


# -- pruning --------------------------------------------------------------------------------------


async def prune(store: Store, before: float) -> PruneResult:
    """Prune after two dry runs. Asserts that all three return the same counts."""
    result = await store.admin.prune("local", before, dry_run=True)
    assert await store.admin.prune("local", before, dry_run=True) == result
    assert await store.admin.prune("local", before, dry_run=False) == result
    assert await store.admin.prune("local", before, dry_run=False) == PruneResult(0, 0, 0)
    return result


async def test_a_dry_run_counts_and_removes_nothing(store: Store) -> None:
    await store.commit(everything("local"))

    assert await store.admin.prune("local", NOW + 1, dry_run=True) == PruneResult(1, 1, 1)
    assert len(await store.find_handles("")) == 3


async def test_a_session_is_pruned_by_its_last_use(store: Store) -> None:
    for number, path in enumerate((PATH.first(1), PATH.first(2))):
        response = link(f"resp_{number}", path.head, session_id=f"ses_{number}", created_at=NOW)
        record = session(id=f"ses_{number}", name=f"s{number}", head=path.head, used_at=NOW + number)
        await store.commit(Transaction((AppendItems(ROOT, path.items),), (response,), record))

    assert await prune(store, NOW + 1) == PruneResult(1, 1, 0)
    assert [one.name for one in await store.sessions()] == ["s1"]
    assert await store.link("resp_0") is None
    assert await store.link("resp_1") is not None
    assert await store.path(TWO) == PATH.first(2)


async def test_a_response_without_a_session_is_pruned_by_its_creation(store: Store) -> None:
    responses = [link("resp_1", ONE, created_at=NOW), link("resp_2", TWO, created_at=NOW + 1, parent_id="resp_1")]
    await store.commit(Transaction((AppendItems(ROOT, PATH.items[:2]),), tuple(responses)))

    assert await prune(store, NOW + 1) == PruneResult(0, 1, 0)
    assert await store.link("resp_1") is None
    assert await store.path(TWO) == PATH.first(2)
    assert [one.id for one in await store.related_links("resp_2")] == ["resp_2"]


async def test_responses_that_a_recent_session_made_or_continues_from_stay(store: Store) -> None:
    """The history of a session includes links of its chain that are older than the session."""
    responses = (
        link("resp_1", ONE, created_at=NOW),
        link("resp_2", TWO, created_at=NOW + 1, parent_id="resp_1", session_id="ses_1"),
        link("resp_3", ONE, created_at=NOW + 1, session_id="ses_1"),
        link("resp_4", ONE, created_at=NOW + 1, session_id="ses_never_recorded"),
    )
    record = session(head=TWO, link_id="resp_2", used_at=NOW + 9)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items[:2]),), responses, record))

    assert await prune(store, NOW + 5) == PruneResult(0, 1, 0)
    assert [one.id for one in await store.related_links("resp_2")] == ["resp_1", "resp_2"]
    assert await store.link("resp_3") is not None
    assert await store.link("resp_4") is None


async def test_a_response_of_an_old_session_stays_while_a_recent_one_continues_from_it(store: Store) -> None:
    old = session(id="ses_1", name="old", head=ONE, link_id="resp_1", used_at=NOW)
    recent = session(id="ses_2", name="used", head=TWO, link_id="resp_2", used_at=NOW + 9)
    responses = (link("resp_1", ONE, session_id="ses_1"), link("resp_2", TWO, session_id="ses_2", parent_id="resp_1"))
    await store.commit(Transaction((AppendItems(ROOT, PATH.items[:2]),), responses, old))
    await store.commit(Transaction(session=recent))

    assert await prune(store, NOW + 5) == PruneResult(1, 0, 0)
    assert [one.id for one in await store.related_links("resp_2")] == ["resp_1", "resp_2"]
    assert await prune(store, NOW + 10) == PruneResult(1, 2, 0)
    assert list(await store.admin.tenant_stats()) == []


@pytest.mark.parametrize(("response_at", "pruned"), [(None, 1), (NOW, 1), (NOW + 5, 0)])
async def test_a_conversation_is_pruned_by_its_creation_or_last_response(
    store: Store, response_at: float | None, pruned: int
) -> None:
    conversation = Conversation("conv_1", ONE, NOW, ("a",))
    responses = () if response_at is None else (link("resp_1", ONE, conversation_id="conv_1", created_at=response_at),)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items[:1]),), responses, conversation=conversation))

    assert (await prune(store, NOW + 5)).conversations == pruned
    assert (await store.conversation("conv_1") is None) == bool(pruned)


async def test_a_conversation_is_pruned_with_the_session_of_its_recent_response(store: Store) -> None:
    conversation = Conversation("conv_1", ONE, NOW, ("a",))
    response = link("resp_1", ONE, conversation_id="conv_1", session_id="ses_1", created_at=NOW + 9)
    appends = (AppendItems(ROOT, PATH.items[:1]),)
    await store.commit(Transaction(appends, (response,), session(head=ONE), conversation=conversation))

    assert await prune(store, NOW + 5) == PruneResult(1, 1, 1)
    assert list(await store.admin.tenant_stats()) == []


async def test_the_conversation_of_a_recent_session_stays(store: Store) -> None:
    conversation = Conversation("conv_1", ONE, NOW, ("a",))
    record = session(strategy=Strategy.CONVERSATION, handle="conv_1", head=ONE, used_at=NOW + 9)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items[:1]),), (), record, conversation=conversation))

    assert await prune(store, NOW + 5) == PruneResult(0, 0, 0)
    assert await prune(store, NOW + 10) == PruneResult(1, 0, 1)


async def test_an_open_run_keeps_its_response_its_conversation_and_its_session(store: Store) -> None:
    conversation = Conversation("conv_1", ONE, NOW, ("a",))
    running = link("resp_1", ONE, status="in_progress", conversation_id="conv_1", session_id="ses_1")
    await store.commit(
        Transaction(
            (AppendItems(ROOT, PATH.items[:1]),),
            (running,),
            session(head=ONE),
            conversation=conversation,
            started_run_id="resp_1",
        )
    )

    assert await prune(store, NOW + 5) == PruneResult(0, 0, 0)
    await store.append_events("resp_1", [EVENT])
    await store.commit(Transaction(links=(replace(running, status="completed"),), ended_run_id="resp_1"))
    assert await prune(store, NOW + 5) == PruneResult(1, 1, 1)
    assert list(await store.admin.tenant_stats()) == []


async def test_pruning_removes_more_rows_than_one_batch(store: Store) -> None:
    paths = [Path(ROOT).append([user_message(f"question {number}")]) for number in range(MANY)]
    responses = tuple(link(f"resp_{number}", path.head) for number, path in enumerate(paths))
    await store.commit(Transaction(tuple(AppendItems(ROOT, path.items) for path in paths), responses))

    assert await prune(store, NOW + 1) == PruneResult(0, MANY, 0)
    assert list(await store.admin.tenant_stats()) == []


async def test_only_the_named_tenant_is_pruned(store: Store) -> None:
    guest = store.for_tenant("guest")
    await store.commit(everything("local"))
    await guest.commit(everything("guest"))

    assert await guest.admin.prune("local", NOW + 1, dry_run=False) == PruneResult(1, 1, 1)
    assert len(await guest.find_handles("")) == 3
    assert await store.find_handles("") == []
    assert await store.admin.prune("nobody", NOW + 1, dry_run=False) == PruneResult(0, 0, 0)


async def test_pruned_items_are_not_found_by_a_search(store: Store) -> None:
    await store.commit(everything("local"))
    await prune(store, NOW + 1)

    with pytest.raises(NotFound):
        await store.path(Path(ROOT).append([user_message("hi there")]).head)
    assert await search_hits(store, "hi") == []
