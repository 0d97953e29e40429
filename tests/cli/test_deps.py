"""Reading from the store without an event loop."""

import asyncio
from pathlib import Path

import pytest

from convo.cli.deps import read_from_store
from convo.config.loader import load_settings
from convo.errors import NotFound
from convo.history.records import Session, Strategy
from convo.stores.base import Store
from tests.cli.stored_chats import chat_of, write_chats
from tests.cli.test_app import imported_modules


def test_a_store_is_read_without_an_event_loop(home: Path) -> None:
    write_chats(home, chat_of("tea", Strategy.SESSION, "hi"))

    async def read_session(store: Store) -> Session | None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return await store.session("tea")

    session = read_from_store(load_settings(), read_session)
    assert session
    assert session.name == "tea"


def test_listing_sessions_does_not_import_asyncio(home: Path) -> None:
    write_chats(home, chat_of("tea", Strategy.SESSION, "hi"))
    assert "asyncio" not in imported_modules("sessions", "list")


def test_an_exception_of_the_read_function_is_raised(home: Path) -> None:
    async def raise_not_found(store: Store) -> None:
        raise NotFound("session", "nope")

    with pytest.raises(NotFound):
        read_from_store(load_settings(), raise_not_found)
    assert not home.exists()


def test_a_read_function_that_suspends_is_refused_without_an_event_loop(home: Path) -> None:
    ended: list[str] = []

    async def wait(store: Store) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append("closed")

    with pytest.raises(RuntimeError) as caught:
        read_from_store(load_settings(), wait)
    assert str(caught.value) == "the coroutine has to wait, and no event loop is running"
    assert ended == ["closed"]
