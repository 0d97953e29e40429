"""A server that speaks as it is told to, for whoever asks one."""

from collections.abc import Iterator

import pytest

from tests.models.chat_server import ChatServer, serving


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as server:
        yield server
