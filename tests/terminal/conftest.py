"""Screens are compared as text, so times are shown in UTC."""

import pytest

from tests.loopback_server import LoopbackServer
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]


@pytest.fixture
def remote_model(loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """A server in place of OpenAI: its replies can wait until the test has acted. Commands use its model by default."""
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    return loopback
