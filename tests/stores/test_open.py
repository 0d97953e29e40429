"""Which store a URL names, and what naming it costs."""

import os
import subprocess
import sys
from pathlib import Path as File

import pytest

from convo.errors import InvalidUsage
from convo.stores.base import Transaction
from convo.stores.factory import open_store, store_schema_sql
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import session


def test_each_memory_store_is_separate() -> None:
    store = open_store("memory", tenant="guest")

    assert isinstance(store, MemoryStore)
    assert store.tenant == "guest"


async def test_a_sqlite_url_names_a_file(home: File) -> None:
    url = f"sqlite:{home}/deep/convo.db"
    store = open_store(url, tenant="guest")
    assert isinstance(store, SqliteStore)
    await store.commit(Transaction(session=session("guest")))
    await store.aclose()

    again = open_store(url, tenant="guest")
    assert await again.session("one") == session("guest")
    await again.aclose()


async def test_a_tilde_is_the_home_folder(home: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    store = open_store("sqlite:~/convo.db")
    await store.commit(Transaction(session=session()))
    await store.aclose()

    assert os.listdir(home) == ["convo.db"]


@pytest.mark.parametrize("url", ["", "sqlite", "sqlite:", "memory:x", "postgresql:x", "nonsense:x", "/a/path"])
def test_an_unsupported_url_is_refused_with_the_supported_ones(url: str) -> None:
    with pytest.raises(InvalidUsage) as told:
        open_store(url)

    assert told.value.hint == "use one of: memory, sqlite:PATH, postgresql://..."


@pytest.mark.parametrize(
    ("url", "others"), [("memory", ["psycopg", "convo.stores.postgres"]), ("sqlite:x", ["convo.stores.memory"])]
)
def test_a_store_module_is_imported_only_when_it_is_opened(url: str, others: list[str]) -> None:
    script = f"""
import sys
from convo.stores.factory import open_store
early = [name for name in ("sqlite3", "convo.stores.memory", "convo.stores.sqlite") if name in sys.modules]
open_store({url!r}, inline=True)
print(early, [name for name in {[*others, "asyncio", "openai", "pydantic"]!r} if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)

    assert ran.stdout == "[] []\n"


@pytest.mark.parametrize(("url", "partitions"), [("memory", 0), ("nonsense:x", 0), ("sqlite:x", 4), ("memory", 4)])
def test_a_store_without_tables_or_partitions_has_no_statements(url: str, partitions: int) -> None:
    with pytest.raises(InvalidUsage):
        store_schema_sql(url, partitions=partitions)
