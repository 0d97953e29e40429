"""A hall of conversations over each kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.stores.open import open_store
from tests.transfer.histories import Hall


@pytest.fixture(params=["memory", "sqlite"])
async def hall(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hall]:
    monkeypatch.chdir(tmp_path)
    opened = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield Hall(opened, tmp_path)
    await opened.aclose()
