"""A hall of conversations, and one that is compacted, over each kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.transfer.histories import Hall
from tests.transfer.talks import Talk


@pytest.fixture(params=["memory", "sqlite"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield opened
    await opened.aclose()


@pytest.fixture
def hall(kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hall:
    monkeypatch.chdir(tmp_path)
    return Hall(kept, tmp_path)


@pytest.fixture
def talk(kept: Store, tmp_path: Path) -> Talk:
    return Talk(kept, tmp_path)
