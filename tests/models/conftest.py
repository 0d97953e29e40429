"""A server that speaks as it is told to, for whoever asks one."""

from collections.abc import Iterator

import pytest

from tests.models.chat_server import ChatServer, run_chat_server


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server
