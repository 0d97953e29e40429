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
from convo.history.records import Link, Session
from convo.history.tree import Path, root_key
from convo.stores.base import AgentCall, AgentRun, AppendItems, Conversation, Store, Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.history.json_strategies import ITEMS, JSON
from tests.stores.chat_transactions import NOW, link, session

TOP = root_key("local")
EMPTY = Path(TOP)
NAMES = ["one", "two", "three"]
IDS = [f"resp_{n}" for n in range(6)]
CONVERSATIONS = ["conv_a", "conv_b"]
RUNS = ["run_a", "run_b"]
WORDS = ["yes", "no", "tree", "cafe", "yes tree", '"yes']
Status = Literal["in_progress", "completed"]

UNNEEDED = (
    "SELECT id FROM links WHERE saw IS NULL AND n NOT IN (SELECT parent FROM links WHERE parent IS NOT NULL)"
    " AND n NOT IN (SELECT link FROM sessions WHERE link IS NOT NULL)",
    "SELECT id FROM sessions WHERE record IS NULL AND n NOT IN (SELECT session FROM links WHERE session IS NOT NULL)",
    "SELECT body FROM repeated WHERE n NOT IN (SELECT route FROM links WHERE route IS NOT NULL"
    " UNION SELECT parameters FROM links WHERE parameters IS NOT NULL)",
)
"""Queries for unreferenced rows: rows that are needed only while another row refers to them."""

PLACE = st.integers(min_value=0, max_value=11)
"""Selects one of the known paths, modulo their number."""

HISTORY = st.lists(ITEMS, min_size=1, max_size=3)


class SideBySide(RuleBasedStateMachine):
    """Each rule applies one change to both stores and compares the results."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.file = Folder(self.folder.name) / "convo.db"
        self.loop = asyncio.new_event_loop()
        self.memory: Store = MemoryStore()
        self.sqlite: Store = self.reopened()
        self.paths = [EMPTY]
        self.moment = NOW

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.aclose())
        self.loop.close()
        self.folder.cleanup()

    def reopened(self) -> Store:
        return SqliteStore(SqliteDatabase(self.file, synchronous="OFF"))

    # -- calls to both stores ---------------------------------------------------------------------

    def both(self, question: str, *words: object, **options: object) -> Any:
        """Call a method of both stores. Asserts that the results are equal and returns one."""
        return self._same((self.memory, self.sqlite), question, words, options)

    def on_both(self, question: str, *words: object, **options: object) -> Any:
        """Call a method of `admin` of both stores. Asserts that the results are equal and returns one."""
        return self._same((self.memory.admin, self.sqlite.admin), question, words, options)

    def _same(self, sides: Any, question: str, words: Any, options: Any) -> Any:
        asked = (outcome(getattr(side, question)(*words, **options)) for side in sides)
        ours, theirs = (self.loop.run_until_complete(answer) for answer in asked)
        assert ours == theirs
        return ours

    def commit(self, change: Transaction) -> bool:
        return self.both("commit", change) is None

    def path(self, place: int) -> Path:
        return self.paths[place % len(self.paths)]

    def now(self) -> float:
        self.moment += 1.5
        return self.moment

    def session(self, name: str) -> Session | None:
        found: Session | None = self.loop.run_until_complete(self.memory.session(name))
        return found

    # -- changes ----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), place=PLACE, items=HISTORY, fresh=st.booleans(), text=JSON)
    def say(self, name: str, place: int, items: list[Item], fresh: bool, text: Json) -> None:
        """Continue a session from any known history, even one that the stores no longer have."""
        path = self.path(place).append(items)
        there = self.session(name)
        record = there or session(id=f"ses_{name}", name=name)
        record = replace(record, head=path.head, used_at=self.now(), instructions=json.dumps(text))
        grow = (AppendItems(TOP, path.items),) if fresh else (AppendItems(self.path(place).head, tuple(items)),)
        if self.commit(Transaction(grow, session=record, expected_session_head=there.head if there else None)):
            self.paths.append(path)

    @rule(
        name=st.sampled_from(NAMES),
        place=PLACE,
        field=st.sampled_from(["head", "confirmed_head", "file_head"]),
        id_=st.sampled_from([None, *IDS]),
    )
    def move(self, name: str, place: int, field: str, id_: str | None) -> None:
        there = self.session(name)
        if there:
            moved = replace(there, **{field: self.path(place).head}, link_id=id_, used_at=self.now())  # type: ignore[arg-type]
            self.commit(Transaction(session=moved, expected_session_head=there.head))

    @rule(name=st.sampled_from(NAMES), other=st.sampled_from([*NAMES, "four"]), place=PLACE)
    def rename_or_be_stale(self, name: str, other: str, place: int) -> None:
        there = self.session(name)
        if there:
            self.commit(Transaction(session=replace(there, name=other), expected_session_head=self.path(place).head))

    @rule(
        id_=st.sampled_from(IDS),
        saw=PLACE,
        items=st.lists(ITEMS, max_size=2),
        parent=st.sampled_from([None, *IDS]),
        name=st.sampled_from([None, *NAMES]),
        status=st.sampled_from(["in_progress", "completed"]),
        value=JSON,
        talk=st.sampled_from([None, *CONVERSATIONS]),
    )
    def call(
        self,
        id_: str,
        saw: int,
        items: list[Item],
        parent: str | None,
        name: str | None,
        status: Status,
        value: Json,
        talk: str | None,
    ) -> None:
        before = self.path(saw)
        after = before.append(items)
        made = replace(
            link(
                id_, before.head, after.head, parent_id=parent, session_id=name and f"ses_{name}", created_at=self.now()
            ),
            status=status,
            parameters={"value": value},
            usage={"value": value},
            conversation_id=talk,
            previous_response_id=parent,
        )
        if self.commit(Transaction((AppendItems(before.head, tuple(items)),), (made,))):
            self.paths.append(after)

    @rule(id_=st.sampled_from(CONVERSATIONS), place=PLACE, items=st.lists(ITEMS, max_size=2), stale=st.booleans())
    def converse(self, id_: str, place: int, items: list[Item], stale: bool) -> None:
        there: Conversation | None = self.loop.run_until_complete(self.memory.conversation(id_))
        path = self.path(place).append(items)
        expect = (None if stale else there.head) if there else (TOP if stale else None)
        ids = tuple(str(node.item.get("id") or f"given_{node.key[:6]}") for node in path.nodes)
        made = Conversation(id_, path.head, NOW + CONVERSATIONS.index(id_), ids, {"at": str(self.now())})
        change = Transaction(
            (AppendItems(self.path(place).head, tuple(items)),), conversation=made, expected_conversation_head=expect
        )
        if self.commit(change):
            self.paths.append(path)

    @rule(place=PLACE)
    def erase(self, place: int) -> None:
        self.commit(Transaction(erased_nodes=(self.path(place).head,)))

    @rule(id_=st.sampled_from(IDS), ends=st.booleans(), status=st.sampled_from(["in_progress", "completed"]))
    def run(self, id_: str, ends: bool, status: Status) -> None:
        """Start or end a background run and store its link. Both stores refuse an unknown or closed run."""
        there: Link | None = self.loop.run_until_complete(self.memory.link(id_))
        after = (replace(there, status=status),) if there else ()
        self.commit(
            Transaction(links=after, ended_run_id=id_) if ends else Transaction(links=after, started_run_id=id_)
        )

    @rule(place=PLACE, other=PLACE)
    def tail(self, place: int, other: int) -> None:
        self.both("items_after", self.path(place).head, self.path(other).head)

    @rule(id_=st.sampled_from(IDS), numbers=st.lists(st.integers(min_value=0, max_value=9), max_size=3), value=JSON)
    def append(self, id_: str, numbers: list[int], value: Json) -> None:
        self.both("append_events", id_, [{"sequence_number": number, "value": value} for number in numbers])

    @rule(
        run=st.sampled_from(RUNS),
        name=st.sampled_from(NAMES),
        step=st.sampled_from([0, 1, 1, 1, 2]),
        status=st.sampled_from(["running", "paused"]),
        value=JSON,
        called=st.lists(st.tuples(st.sampled_from(RUNS), st.sampled_from("ab"), st.booleans()), max_size=3),
    )
    def go_on(
        self,
        run: str,
        name: str,
        step: int,
        status: Literal["running", "paused"],
        value: Json,
        called: list[tuple[str, str, bool]],
    ) -> None:
        """Write a revision of an agent run, with calls of either run. `step` may make the revision invalid."""
        there: AgentRun | None = self.loop.run_until_complete(self.memory.agent_run(run))
        revision = (there.revision if there else 0) + step
        made = AgentRun(run, f"ses_{name}", revision, status, {"value": value}, NOW, self.now())
        calls = tuple(AgentCall(other, call_id, self.now(), ended, value) for other, call_id, ended in called)
        self.commit(Transaction(agent_run=made, agent_calls=calls))

    @rule(back=st.integers(min_value=-1, max_value=40), dry=st.booleans())
    def prune(self, back: int, dry: bool) -> None:
        for ask in {True, dry}:
            self.on_both("prune", "local", self.moment - back, dry_run=ask)

    @rule(name=st.sampled_from(NAMES))
    def remove_session(self, name: str) -> None:
        there = self.session(name)
        self.both("remove_session", there.id if there else "nobody")

    @rule(id_=st.sampled_from(IDS))
    def remove_link(self, id_: str) -> None:
        self.both("remove_link", id_)

    @rule(id_=st.sampled_from(CONVERSATIONS))
    def remove_conversation(self, id_: str) -> None:
        self.both("remove_conversation", id_)

    @rule()
    def close_and_open(self) -> None:
        self.loop.run_until_complete(self.sqlite.aclose())
        self.sqlite = self.reopened()

    # -- invariants -------------------------------------------------------------------------------

    @invariant()
    def both_answer_the_same(self) -> None:
        self.both("sessions")
        self.both("find_handles", "", limit=100)
        for name in NAMES:
            self.both("links", f"ses_{name}")
        for id_ in IDS:
            self.both("link", id_)
            self.both("related_links", id_)
            self.both("events", id_, after=1)
        for id_ in CONVERSATIONS:
            there = self.both("conversation", id_)
            self.both("conversation_links", id_)
            for item_id in there.item_ids if there else ():
                self.both("item", item_id)
        for run in RUNS:
            self.both("agent_run", run)
            self.both("agent_calls", run)
        self.both("agent_runs", status="paused")
        abandoned = (self.loop.run_until_complete(one.admin.abandoned_runs()) for one in (self.memory, self.sqlite))
        assert len({frozenset(found) for found in abandoned}) == 1
        for words in WORDS:
            both = (self.memory, self.sqlite)
            ours, theirs = (self.loop.run_until_complete(self.hits(store, words)) for store in both)
            assert ours == theirs

    async def hits(self, store: Store, words: str) -> object:
        """Return the hits of a search as a set, because each store has its own order."""
        return {(hit.session.id, hit.key, json.dumps(hit.item)) for hit in await store.search_items(words, limit=1000)}

    @invariant()
    def a_history_reads_as_it_was_made_or_not_at_all(self) -> None:
        for path in self.paths:
            read = self.both("path", path.head)
            if isinstance(read, Path):
                assert read == path
            self.both("responses_to", path.head)
            for node in path.nodes[-1:]:
                self.both("item", str(node.item.get("id")))
                self.both("item", f"msg_{node.key[:32]}")

    @invariant()
    def the_file_is_sound_and_holds_each_item_once(self) -> None:
        if not self.file.exists():
            return
        db = sqlite3.connect(self.file)
        try:
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
            bodies = [json.dumps(json.loads(body), sort_keys=True) for (body,) in db.execute("SELECT body FROM items")]
            for unneeded in UNNEEDED:
                assert db.execute(unneeded).fetchall() == []
            names = "SELECT n FROM names WHERE n NOT IN (SELECT n FROM items) AND n NOT IN (SELECT n FROM repeated)"
            assert db.execute(names).fetchall() == []
            assert len(set(bodies)) == len(bodies) == db.execute("SELECT count(*) FROM hashes").fetchone()[0]
        finally:
            db.close()


async def outcome(asked: Awaitable[Any]) -> Any:
    """Return the result of a store's method, or the type and the message of its error."""
    try:
        answer = await asked
    except ConvoError as refused:
        return type(refused), str(refused)
    return list(answer) if isinstance(answer, (list, tuple)) else answer


TestSideBySide = SideBySide.TestCase
TestSideBySide.settings = settings(max_examples=5, stateful_step_count=20)


@pytest.mark.full
def test_both_stores_return_the_same_for_random_programs() -> None:
    run_state_machine_as_test(SideBySide, settings=settings(max_examples=400, stateful_step_count=50))
