"""The fixture `server`: a loopback server with prepared responses."""

from collections.abc import Iterator

import pytest

from tests.models.chat_server import ChatServer, run_chat_server


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server
