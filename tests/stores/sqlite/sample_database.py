"""A database with every kind of record. Some of its rows are only in its log."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path as File

from convo.history.items import user_message
from convo.history.records import AgentCall, AgentRun
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, FileQuota, StoredFile, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, answer, link, prose, session


def build_database(file: File, chats: int = 24) -> None:
    """Build a database with a log that is not empty.

    It has two tenants, a session for each chat, conversations, runs, uploaded files, large items and free pages.
    """
    asyncio.run(_fill(file, chats))


async def _fill(file: File, chats: int) -> None:
    working_file = file.with_name("building.db")
    store = SqliteStore(SqliteDatabase(working_file, synchronous="OFF"))
    rng = random.Random(1)
    for number in range(chats):
        tenant = "guest" if number % 6 == 5 else "local"
        await _add_chat(store.for_tenant(tenant), rng, number, tenant)
        content = rng.randbytes(4 ** (number % 8))
        uploaded = StoredFile(f"file_{number}", f"{number}.bin", "user_data", "text/plain", len(content), NOW)
        assert await store.add_file(uploaded, content, FileQuota(chats, 10**9))
    for number in range(3, chats, 6):
        await store.remove_session(f"ses_{number}")
    with closing(sqlite3.connect(working_file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA wal_autocheckpoint = 0")
    await store.database.read(lambda db: db.execute("PRAGMA wal_autocheckpoint = 0").fetchall())
    await _add_chat(store, rng, 100, "local")
    for suffix in ("", "-wal"):  # the state that a killed process leaves
        shutil.copy(f"{working_file}{suffix}", f"{file}{suffix}")
    await store.aclose()
    working_file.unlink()


async def _add_chat(store: SqliteStore, rng: random.Random, number: int, tenant: str) -> None:
    record = session(tenant, id=f"ses_{number}", name=f"chat {number}")
    path, expected_head, parent_id = Path(record.head), None, None
    for turn in range(rng.randrange(3, 12)):
        message = user_message(prose(rng, 15_000 if number % 8 == 1 else 300))
        input_path = path.append([message])
        path = input_path.append([answer(rng, rng.randrange(100, 3000))])
        response = replace(
            link(f"resp_{number}_{turn}", input_path.head, path.head, sent_count=len(input_path)),
            session_id=record.id, parent_id=parent_id, conversation_id=f"conv_{number}", created_at=NOW + number + turn,
            usage={"input_tokens": turn}, parameters={"instructions": f"Be {number % 3}."},
        )  # fmt: skip
        record = replace(record, head=path.head, confirmed_head=path.head, link_id=response.id, used_at=NOW + turn)
        ids = tuple(f"msg_{index}" for index in range(len(path)))
        conversation = Conversation(f"conv_{number}", path.head, NOW, ids)
        await store.commit(
            Transaction(
                (AppendItems(input_path.first(len(input_path) - 1).head, path.items[-2:]),), (response,), record,
                conversation=conversation if number % 4 == 2 else None, started_run_id=response.id,
                expected_session_head=expected_head,
            )
        )  # fmt: skip
        await store.append_events(response.id, [{"sequence_number": 0, "type": "x"}])
        expected_head, parent_id = path.head, response.id
    run = AgentRun(f"run_{number}", record.id, 1, "paused", {"version": 1, "agent": "a", "phase": "X"}, NOW, NOW)
    await store.commit(
        Transaction(agent_run=run, agent_calls=(AgentCall(run.id, "call_1", NOW, has_ended=True, output="done"),))
    )
    assert root_key(tenant)
