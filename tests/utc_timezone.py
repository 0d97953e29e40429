"""A fixture that sets the time zone to UTC, because screens show local times."""

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def utc_timezone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
