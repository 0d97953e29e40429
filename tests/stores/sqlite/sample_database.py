"""A database with every kind of record. Some of its rows are only in its log."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path as File

from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AgentCall, AgentRun, AppendItems, Conversation, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, answer, link, prose, session


def build_database(file: File) -> None:
    """Build a database with a log that is not empty.

    It has two tenants, some twenty sessions, conversations, runs, large items and free pages.
    """
    asyncio.run(_filled(file))


async def _filled(file: File) -> None:
    work = file.with_name("building.db")
    store = SqliteStore(SqliteDatabase(work, synchronous="OFF"))
    dice = random.Random(1)
    for number in range(24):
        tenant = "guest" if number % 6 == 5 else "local"
        await _chat(store.for_tenant(tenant), dice, number, tenant)
    for number in (3, 9, 15):
        await store.remove_session(f"ses_{number}")
    with closing(sqlite3.connect(work)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA wal_autocheckpoint = 0")
    await store.database.read(lambda db: db.execute("PRAGMA wal_autocheckpoint = 0").fetchall())
    await _chat(store, dice, 100, "local")
    for part in ("", "-wal"):  # the state that a killed process leaves
        shutil.copy(f"{work}{part}", f"{file}{part}")
    await store.aclose()
    work.unlink()


async def _chat(store: SqliteStore, dice: random.Random, number: int, tenant: str) -> None:
    record = session(tenant, id=f"ses_{number}", name=f"chat {number}")
    path, expect, before = Path(record.head), None, None
    for turn in range(dice.randrange(3, 12)):
        said = user_message(prose(dice, 15_000 if number % 8 == 1 else 300))
        asked = path.append([said])
        path = asked.append([answer(dice, dice.randrange(100, 3000))])
        made = replace(
            link(f"resp_{number}_{turn}", asked.head, path.head, sent_count=len(asked)),
            session_id=record.id, parent_id=before, conversation_id=f"conv_{number}", created_at=NOW + number + turn,
            usage={"input_tokens": turn}, parameters={"instructions": f"Be {number % 3}."},
        )  # fmt: skip
        record = replace(record, head=path.head, confirmed_head=path.head, link_id=made.id, used_at=NOW + turn)
        ids = tuple(f"msg_{place}" for place in range(len(path)))
        held = Conversation(f"conv_{number}", path.head, NOW, ids)
        await store.commit(
            Transaction((AppendItems(asked.first(len(asked) - 1).head, path.items[-2:]),), (made,), record,
                   conversation=held if number % 4 == 2 else None, started_run_id=made.id, expected_session_head=expect)
        )  # fmt: skip
        await store.append_events(made.id, [{"sequence_number": 0, "type": "x"}])
        expect, before = path.head, made.id
    run = AgentRun(f"run_{number}", record.id, 1, "paused", {"version": 1, "agent": "a", "phase": "X"}, NOW, NOW)
    await store.commit(
        Transaction(agent_run=run, agent_calls=(AgentCall(run.id, "call_1", NOW, has_ended=True, output="done"),))
    )
    assert root_key(tenant)
