"""Leases: one writer for each session and file; the second gets an error that names the first and the fix."""

from dataclasses import replace
from pathlib import Path

import pytest

from convo.chat.session_record import acquire_session_lease
from convo.errors import Busy
from convo.history.records import Session, Strategy
from convo.history.tree import Key, root_key
from convo.stores.base import Store

START: Key = root_key("local")


def session(strategy: Strategy = Strategy.SESSION, handle: str | None = None, name: str = "mine") -> Session:
    return Session(
        id=f"ses_{name}", name=name, strategy=strategy, model="scripted/echo", head=START, confirmed_head=START,
        created_at=0, used_at=0, handle=handle,
    )  # fmt: skip


async def busy_error(store: Store, second: Session) -> Busy:
    with pytest.raises(Busy) as caught:
        await acquire_session_lease(store, second)
    return caught.value


@pytest.fixture
async def leased_store(store: Store, tmp_path: Path) -> Store:
    """A store with three leases of a process on another machine, which may be alive."""
    for name in ("session ses_mine", "session ses_two words", f"file {tmp_path}/talk.json"):
        await store.acquire_lease(name, "desk@1:42:17", 3600)
    return store


async def test_a_name_with_a_space_is_quoted_in_the_fork_command(leased_store: Store) -> None:
    assert (await busy_error(leased_store, session(name="two words"))).hint == "convo chat --fork 'two words'"


async def test_a_fork_is_offered_for_a_chain_but_not_for_a_conversation(leased_store: Store) -> None:
    assert (await busy_error(leased_store, session(Strategy.CHAIN, "resp_1"))).hint == "convo chat --fork mine"
    assert (await busy_error(leased_store, session(Strategy.CONVERSATION, "conv_1"))).hint == "close that chat first"


async def test_different_files_and_sessions_have_different_leases(store: Store) -> None:
    leases = [
        await acquire_session_lease(store, each)
        for each in (
            session(),
            session(name="other"),
            session(Strategy.REPLAY, "/tmp/a.json"),
            session(Strategy.REPLAY, "/tmp/b.json"),
        )
    ]
    for lease in leases:
        await lease.release()


async def test_a_released_lease_can_be_acquired_again(store: Store) -> None:
    for _ in range(2):
        await (await acquire_session_lease(store, session())).release()


async def test_a_renamed_session_keeps_its_lease(leased_store: Store) -> None:
    renamed = replace(session(), name="renamed")
    assert (await busy_error(leased_store, renamed)).hint == "convo chat --fork renamed"
