"""Random sequences of changes give the same results in memory and in a file. SQLite implements both stores.

The file is also closed and opened again. `postgres/test_random_changes.py` compares memory with PostgreSQL, whose
statements differ as well. After each change both stores return the same for every method, a history is
either unchanged or not found, and the file contains each item once.
"""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path as Folder
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from convo.errors import ConvoError
from convo.history.items import Item, Json
from convo.history.records import AgentCall, AgentRun, Link, Session
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.history.json_strategies import ITEMS, JSON
from tests.stores.chat_transactions import NOW, link, search_hits, session

ROOT = root_key("local")
EMPTY = Path(ROOT)
NAMES = ["one", "two", "three"]
IDS = [f"resp_{n}" for n in range(6)]
CONVERSATIONS = ["conv_a", "conv_b"]
RUNS = ["run_a", "run_b"]
QUERIES = ["yes", "no", "tree", "cafe", "yes tree", '"yes']
Status = Literal["in_progress", "completed"]

UNREFERENCED_ROWS = (
    "SELECT id FROM links WHERE saw IS NULL AND n NOT IN (SELECT parent FROM links WHERE parent IS NOT NULL)"
    " AND n NOT IN (SELECT link FROM sessions WHERE link IS NOT NULL)",
    "SELECT id FROM sessions WHERE record IS NULL AND n NOT IN (SELECT session FROM links WHERE session IS NOT NULL)",
    "SELECT body FROM repeated WHERE n NOT IN (SELECT route FROM links WHERE route IS NOT NULL"
    " UNION SELECT parameters FROM links WHERE parameters IS NOT NULL)",
)
"""Queries for unreferenced rows: rows that are needed only while another row refers to them."""

PATH_INDEX = st.integers(min_value=0, max_value=11)
"""Selects one of the known paths, modulo their number."""

HISTORY = st.lists(ITEMS, min_size=1, max_size=3)


class StoreComparison(RuleBasedStateMachine):
    """Each rule applies one change to both stores and compares the results."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.file = Folder(self.folder.name) / "convo.db"
        self.loop = asyncio.new_event_loop()
        self.memory: Store = MemoryStore()
        self.sqlite: Store = self.open_again()
        self.paths = [EMPTY]
        self.current_time = NOW

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.aclose())
        self.loop.close()
        self.folder.cleanup()

    def open_again(self) -> Store:
        return SqliteStore(SqliteDatabase(self.file, synchronous="OFF"))

    # -- calls to both stores ---------------------------------------------------------------------

    def call_both(self, method: str, *args: object, **kwargs: object) -> Any:
        """Call a method of both stores. Asserts that the results are equal and returns one."""
        return self._compare((self.memory, self.sqlite), method, args, kwargs)

    def call_both_admins(self, method: str, *args: object, **kwargs: object) -> Any:
        """Call a method of `admin` of both stores. Asserts that the results are equal and returns one."""
        return self._compare((self.memory.admin, self.sqlite.admin), method, args, kwargs)

    def _compare(self, targets: Any, method: str, args: Any, kwargs: Any) -> Any:
        calls = (outcome(getattr(target, method)(*args, **kwargs)) for target in targets)
        memory_result, sqlite_result = (self.loop.run_until_complete(call) for call in calls)
        assert memory_result == sqlite_result
        return memory_result

    def commit(self, change: Transaction) -> bool:
        return self.call_both("commit", change) is None

    def path(self, index: int) -> Path:
        return self.paths[index % len(self.paths)]

    def now(self) -> float:
        self.current_time += 1.5
        return self.current_time

    def session(self, name: str) -> Session | None:
        stored: Session | None = self.loop.run_until_complete(self.memory.session(name))
        return stored

    # -- changes ----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), index=PATH_INDEX, items=HISTORY, fresh=st.booleans(), text=JSON)
    def append_turn(self, name: str, index: int, items: list[Item], fresh: bool, text: Json) -> None:
        """Continue a session from any known history, even one that the stores no longer have."""
        path = self.path(index).append(items)
        stored = self.session(name)
        record = stored or session(id=f"ses_{name}", name=name)
        record = replace(record, head=path.head, used_at=self.now(), instructions=json.dumps(text))
        appends = (AppendItems(ROOT, path.items),) if fresh else (AppendItems(self.path(index).head, tuple(items)),)
        if self.commit(Transaction(appends, session=record, expected_session_head=stored.head if stored else None)):
            self.paths.append(path)

    @rule(
        name=st.sampled_from(NAMES),
        index=PATH_INDEX,
        field=st.sampled_from(["head", "confirmed_head", "file_head"]),
        record_id=st.sampled_from([None, *IDS]),
    )
    def move_head(self, name: str, index: int, field: str, record_id: str | None) -> None:
        stored = self.session(name)
        if stored:
            updated = replace(stored, **{field: self.path(index).head}, link_id=record_id, used_at=self.now())  # type: ignore[arg-type]
            self.commit(Transaction(session=updated, expected_session_head=stored.head))

    @rule(name=st.sampled_from(NAMES), other=st.sampled_from([*NAMES, "four"]), index=PATH_INDEX)
    def rename_session(self, name: str, other: str, index: int) -> None:
        stored = self.session(name)
        if stored:
            self.commit(Transaction(session=replace(stored, name=other), expected_session_head=self.path(index).head))

    @rule(
        record_id=st.sampled_from(IDS),
        input_index=PATH_INDEX,
        items=st.lists(ITEMS, max_size=2),
        parent=st.sampled_from([None, *IDS]),
        name=st.sampled_from([None, *NAMES]),
        status=st.sampled_from(["in_progress", "completed"]),
        value=JSON,
        conversation_id=st.sampled_from([None, *CONVERSATIONS]),
    )
    def store_link(
        self,
        record_id: str,
        input_index: int,
        items: list[Item],
        parent: str | None,
        name: str | None,
        status: Status,
        value: Json,
        conversation_id: str | None,
    ) -> None:
        before = self.path(input_index)
        after = before.append(items)
        response = replace(
            link(
                record_id,
                before.head,
                after.head,
                parent_id=parent,
                session_id=name and f"ses_{name}",
                created_at=self.now(),
            ),
            status=status,
            parameters={"value": value},
            usage={"value": value},
            conversation_id=conversation_id,
            previous_response_id=parent,
        )
        if self.commit(Transaction((AppendItems(before.head, tuple(items)),), (response,))):
            self.paths.append(after)

    @rule(
        record_id=st.sampled_from(CONVERSATIONS),
        index=PATH_INDEX,
        items=st.lists(ITEMS, max_size=2),
        stale=st.booleans(),
    )
    def store_conversation(self, record_id: str, index: int, items: list[Item], stale: bool) -> None:
        stored: Conversation | None = self.loop.run_until_complete(self.memory.conversation(record_id))
        path = self.path(index).append(items)
        expected_head = (None if stale else stored.head) if stored else (ROOT if stale else None)
        ids = tuple(str(node.item.get("id") or f"given_{node.key[:6]}") for node in path.nodes)
        conversation = Conversation(
            record_id, path.head, NOW + CONVERSATIONS.index(record_id), ids, {"at": str(self.now())}
        )
        change = Transaction(
            (AppendItems(self.path(index).head, tuple(items)),),
            conversation=conversation,
            expected_conversation_head=expected_head,
        )
        if self.commit(change):
            self.paths.append(path)

    @rule(index=PATH_INDEX)
    def erase_node(self, index: int) -> None:
        self.commit(Transaction(erased_nodes=(self.path(index).head,)))

    @rule(record_id=st.sampled_from(IDS), ends=st.booleans(), status=st.sampled_from(["in_progress", "completed"]))
    def start_or_end_run(self, record_id: str, ends: bool, status: Status) -> None:
        """Start or end a background run and store its link. Both stores refuse an unknown or closed run."""
        stored: Link | None = self.loop.run_until_complete(self.memory.link(record_id))
        links = (replace(stored, status=status),) if stored else ()
        self.commit(
            Transaction(links=links, ended_run_id=record_id)
            if ends
            else Transaction(links=links, started_run_id=record_id)
        )

    @rule(index=PATH_INDEX, other=PATH_INDEX)
    def read_tail(self, index: int, other: int) -> None:
        self.call_both("items_after", self.path(index).head, self.path(other).head)

    @rule(
        record_id=st.sampled_from(IDS), numbers=st.lists(st.integers(min_value=0, max_value=9), max_size=3), value=JSON
    )
    def append_events(self, record_id: str, numbers: list[int], value: Json) -> None:
        self.call_both("append_events", record_id, [{"sequence_number": number, "value": value} for number in numbers])

    @rule(
        run=st.sampled_from(RUNS),
        name=st.sampled_from(NAMES),
        step=st.sampled_from([0, 1, 1, 1, 2]),
        status=st.sampled_from(["running", "paused"]),
        value=JSON,
        call_specs=st.lists(st.tuples(st.sampled_from(RUNS), st.sampled_from("ab"), st.booleans()), max_size=3),
    )
    def write_agent_run(
        self,
        run: str,
        name: str,
        step: int,
        status: Literal["running", "paused"],
        value: Json,
        call_specs: list[tuple[str, str, bool]],
    ) -> None:
        """Write a revision of an agent run, with calls of either run. `step` may make the revision invalid."""
        stored: AgentRun | None = self.loop.run_until_complete(self.memory.agent_run(run))
        revision = (stored.revision if stored else 0) + step
        agent_run = AgentRun(run, f"ses_{name}", revision, status, {"value": value}, NOW, self.now())
        calls = tuple(AgentCall(other, call_id, self.now(), ended, value) for other, call_id, ended in call_specs)
        self.commit(Transaction(agent_run=agent_run, agent_calls=calls))

    @rule(back=st.integers(min_value=-1, max_value=40), dry=st.booleans())
    def prune(self, back: int, dry: bool) -> None:
        for dry_run in {True, dry}:
            self.call_both_admins("prune", "local", self.current_time - back, dry_run=dry_run)

    @rule(name=st.sampled_from(NAMES))
    def remove_session(self, name: str) -> None:
        stored = self.session(name)
        self.call_both("remove_session", stored.id if stored else "nobody")

    @rule(record_id=st.sampled_from(IDS))
    def remove_link(self, record_id: str) -> None:
        self.call_both("remove_link", record_id)

    @rule(record_id=st.sampled_from(IDS), new_id=st.sampled_from(IDS), status=st.sampled_from(["failed", "completed"]))
    def replace_link(self, record_id: str, new_id: str, status: Status) -> None:
        """Store a link again under another id, or remove it if that is its own."""
        stored: Link | None = self.loop.run_until_complete(self.memory.link(record_id))
        links = (replace(stored, id=new_id, status=status),) if stored else ()
        self.commit(Transaction(links=links, removed_link_id=record_id))

    @rule(record_id=st.sampled_from(CONVERSATIONS))
    def remove_conversation(self, record_id: str) -> None:
        self.call_both("remove_conversation", record_id)

    @rule()
    def close_and_open(self) -> None:
        self.loop.run_until_complete(self.sqlite.aclose())
        self.sqlite = self.open_again()

    # -- invariants -------------------------------------------------------------------------------

    @invariant()
    def both_stores_are_equal(self) -> None:
        self.call_both("sessions")
        self.call_both("find_handles", "", limit=100)
        for name in NAMES:
            self.call_both("links", f"ses_{name}")
        for record_id in IDS:
            self.call_both("link", record_id)
            self.call_both("related_links", record_id)
            self.call_both("events", record_id, after=1)
        for record_id in CONVERSATIONS:
            stored = self.call_both("conversation", record_id)
            self.call_both("conversation_links", record_id)
            for item_id in stored.item_ids if stored else ():
                self.call_both("item", item_id)
        for run in RUNS:
            self.call_both("agent_run", run)
            self.call_both("agent_calls", run)
        self.call_both("agent_runs", status="paused")
        abandoned = (self.loop.run_until_complete(one.admin.abandoned_runs()) for one in (self.memory, self.sqlite))
        assert len({frozenset(found) for found in abandoned}) == 1
        for query in QUERIES:
            stores = (self.memory, self.sqlite)
            memory_hits, sqlite_hits = (self.loop.run_until_complete(self.hits(store, query)) for store in stores)
            assert memory_hits == sqlite_hits

    async def hits(self, store: Store, query: str) -> object:
        """Return the hits of a search as a set, because each store has its own order."""
        return {(hit.owner, hit.key, json.dumps(hit.item)) for hit in await search_hits(store, query, limit=1000)}

    @invariant()
    def histories_are_unchanged_or_missing(self) -> None:
        for path in self.paths:
            result = self.call_both("path", path.head)
            if isinstance(result, Path):
                assert result == path
            self.call_both("responses_to", path.head)
            for node in path.nodes[-1:]:
                self.call_both("item", str(node.item.get("id")))
                self.call_both("item", f"msg_{node.key[:32]}")

    @invariant()
    def the_database_is_sound_and_has_each_item_once(self) -> None:
        if not self.file.exists():
            return
        db = sqlite3.connect(self.file)
        try:
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
            bodies = [json.dumps(json.loads(body), sort_keys=True) for (body,) in db.execute("SELECT body FROM items")]
            for query in UNREFERENCED_ROWS:
                assert db.execute(query).fetchall() == []
            names = "SELECT n FROM names WHERE n NOT IN (SELECT n FROM items) AND n NOT IN (SELECT n FROM repeated)"
            assert db.execute(names).fetchall() == []
            assert len(set(bodies)) == len(bodies) == db.execute("SELECT count(*) FROM hashes").fetchone()[0]
        finally:
            db.close()


async def outcome(operation: Awaitable[Any]) -> Any:
    """Return the result of a store's method, or the type and the message of its error."""
    try:
        result = await operation
    except ConvoError as error:
        return type(error), str(error)
    return list(result) if isinstance(result, (list, tuple)) else result


TestStoreComparison = StoreComparison.TestCase
TestStoreComparison.settings = settings(max_examples=5, stateful_step_count=20)


@pytest.mark.full
def test_both_stores_return_the_same_for_random_programs() -> None:
    run_state_machine_as_test(StoreComparison, settings=settings(max_examples=400, stateful_step_count=50))
