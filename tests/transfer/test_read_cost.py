"""The cost of loading or importing a conversation grows at most linearly with its length."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from convo.chat.view_loader import load_handle_view
from convo.history.records import EMBEDDED_SCOPE, Session, Strategy
from convo.stores.base import AppendItems, Transaction
from convo.stores.factory import open_store
from convo.transfer.convert import SessionWriter, load_source
from convo.transfer.import_ import ImportDefaults, import_document
from tests.call_count import CallCount
from tests.clock import FixedClock, counting_ids
from tests.inspect.conversation_builder import ConversationBuilder

SHORT, LONG = 50, 200
"""Numbers of turns; a turn has two items."""


class Counted:
    """A store that counts the accesses to each of its methods."""

    def __init__(self, url: str) -> None:
        self.store, self.call_counts = open_store(url), Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.call_counts[name] += 1
        return getattr(self.store, name)


async def store_conversation(store: Any, turns: int) -> str:
    """Store a session with `turns` turns and return its id."""
    case, name = ConversationBuilder(Strategy.SESSION), f"ses_{turns}"
    for n in range(turns):
        before = f"{name}_{n - 1}" if n else None
        case.turn(f"{name}_{n}", f"{name} asks {n}", f"{n}", after=before, session_id=name)
    path = case.paths[f"{name}_{turns - 1}"]
    record = Session(name, name, Strategy.SESSION, "local/demo", path.head, path.head, 1.0, 1.0)
    grown = AppendItems(path.root, path.items)
    await store.commit(Transaction((grown,), links=tuple(case.links), session=record, expected_session_head=None))
    return name


async def test_the_number_of_queries_does_not_depend_on_the_length_of_the_conversation(tmp_path: Path) -> None:
    for url in ("memory", f"sqlite:{tmp_path / 'convo.db'}"):
        store = Counted(url)
        asked = []
        for turns in (SHORT, LONG):
            name = await store_conversation(store.store, turns)
            store.call_counts.clear()
            source = await load_source(await load_handle_view(store, name), store)
            assert {one.origin.model for one in source.transfer_items[1::2]} == {"local/demo"}
            asked.append(dict(store.call_counts))
        await store.aclose()
        assert asked[0] == asked[1]


async def test_a_store_with_none_of_the_links_is_queried_once_for_all_of_them(tmp_path: Path) -> None:
    store, empty = open_store("memory"), Counted(f"sqlite:{tmp_path / 'convo.db'}")
    document = (
        await load_source(await load_handle_view(store, await store_conversation(store, SHORT)), store)
    ).to_document()
    writer = SessionWriter(empty, FixedClock(), counting_ids())
    session = await import_document(document, ImportDefaults("local/demo", EMBEDDED_SCOPE), writer)
    assert (empty.call_counts["link"], len(await empty.links(session.id))) == (0, SHORT)
    another = replace(document, name="another")
    second = await import_document(another, ImportDefaults("local/demo", EMBEDDED_SCOPE), writer)
    assert (empty.call_counts["link"], len(await empty.links(session.id))) == (SHORT, SHORT)
    assert list(await empty.links(second.id)) == []
    await store.aclose()
    await empty.aclose()


async def test_four_times_the_turns_take_about_four_times_as_long() -> None:
    store = open_store("memory")
    durations = []
    for turns in (SHORT, LONG):
        view = await load_handle_view(store, await store_conversation(store, turns))
        with CallCount() as steps:
            source = await load_source(view, store)
            source.to_document()
        durations.append(steps.total)
    await store.aclose()
    assert durations[1] < 5 * durations[0]
