"""The store that a URL selects, and the modules that its opening imports."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path as File

import pytest

from convo.errors import InvalidUsage
from convo.installation import make_install_command
from convo.stores.base import Transaction
from convo.stores.factory import (
    backup_store,
    check_store,
    is_store_writable,
    open_store,
    probe_store,
    recover_store,
    store_schema_sql,
)
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

    reopened = open_store(url, tenant="guest")
    assert await reopened.session("one") == session("guest")
    await reopened.aclose()


async def test_a_tilde_is_the_home_folder(home: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    store = open_store("sqlite:~/convo.db")
    await store.commit(Transaction(session=session()))
    await store.aclose()

    assert os.listdir(home) == ["convo.db"]


@pytest.mark.parametrize("url", ["", "sqlite", "sqlite:", "memory:x", "postgresql:x", "nonsense:x", "/a/path"])
def test_an_unsupported_url_is_refused_with_the_supported_ones(url: str) -> None:
    with pytest.raises(InvalidUsage) as caught:
        open_store(url)

    assert caught.value.hint == "use one of: memory, sqlite:PATH, postgresql://..."


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
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)

    assert result.stdout == "[] []\n"


def no_progress(step: str, done: int, total: int) -> None:
    """Report no progress."""


NEW_FILE = File("new.db")
HELP_HINT = "convo --help"
UNSUPPORTED: dict[str, tuple[Callable[[], object], str, str]] = {
    "open": (
        lambda: open_store("nonsense:x"),
        "'nonsense' is not a type of store",
        "use one of: memory, sqlite:PATH, postgresql://...",
    ),
    "check": (
        lambda: asyncio.run(check_store("memory", no_progress)),
        "a store of type 'memory' cannot be checked",
        "use --store sqlite:PATH or postgresql://...",
    ),
    "check without a path": (
        lambda: asyncio.run(check_store("sqlite:", no_progress)),
        "a store of type 'sqlite' cannot be checked",
        "use --store sqlite:PATH or postgresql://...",
    ),
    **{
        f"back up {url}": (
            partial(backup_store, url, NEW_FILE, no_progress),
            f"a store of type {kind!r} is not a file",
            "use --store sqlite:PATH",
        )
        for url, kind in (("memory", "memory"), ("sqlite:", "sqlite"))
    },
    **{
        f"recover {url}": (
            partial(recover_store, url, NEW_FILE, no_progress),
            f"a store of type {kind!r} is not a file, so it cannot be recovered",
            "restore a backup with pg_restore, or use --store sqlite:PATH",
        )
        for url, kind in (("memory", "memory"), ("sqlite:", "sqlite"))
    },
    "tables of memory": (lambda: store_schema_sql("memory"), "a store of type 'memory' has no tables", HELP_HINT),
    "tables of nonsense": (
        lambda: store_schema_sql("nonsense:x"),
        "a store of type 'nonsense' has no tables",
        HELP_HINT,
    ),
    "partitions": (
        lambda: store_schema_sql("sqlite:x", partitions=4),
        "only a PostgreSQL store supports partitions",
        "add --store postgresql://...",
    ),
    "one migration": (
        lambda: store_schema_sql("sqlite:x", after_migration=1),
        "only a PostgreSQL store prints single migrations",
        "convo store migrate",
    ),
}


@pytest.mark.parametrize(("call", "message", "hint"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_store_of_a_type_that_cannot_do_it_is_refused(call: Callable[[], object], message: str, hint: str) -> None:
    with pytest.raises(InvalidUsage) as caught:
        call()
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_file_can_be_written_if_it_or_the_folder_that_is_there_can(tmp_path: File) -> None:
    (tmp_path / "convo.db").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    writable = {name: is_store_writable(f"sqlite:{tmp_path}/{name}") for name in ("convo.db", "new/deep.db", "broken")}

    assert writable == {"convo.db": True, "new/deep.db": True, "broken": False}
    assert not is_store_writable(f"sqlite:{tmp_path}/convo.db/below.db")


@pytest.mark.parametrize("url", ["memory", "sqlite:", "postgresql://nobody@nowhere/convo"])
def test_a_store_without_a_file_counts_as_writable(url: str) -> None:
    assert is_store_writable(url)


@pytest.mark.parametrize("module", ["psycopg", "psycopg_pool"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_missing_driver_for_postgresql_is_named_with_its_extra(
    module: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    calls: list[Callable[[], object]] = [
        lambda: open_store(f"{scheme}://host/db"),
        lambda: asyncio.run(probe_store(f"{scheme}://host/db")),
        lambda: asyncio.run(check_store(f"{scheme}://host/db", no_progress)),
        lambda: store_schema_sql(f"{scheme}://host/db"),
    ]
    for call in calls:
        with pytest.raises(InvalidUsage) as caught:
            call()
        assert caught.value.message == "PostgreSQL needs the extra [postgres], which is not installed"
        assert caught.value.hint == make_install_command("postgres")
