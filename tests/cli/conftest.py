"""What stands behind the command line while it is tried."""

import pytest

from tests.loopback import Loopback


@pytest.fixture
def server(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """A server that speaks Responses stands where the default model's endpoint is."""
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    return loopback
