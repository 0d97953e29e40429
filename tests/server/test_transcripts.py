"""Transcripts of a gateway: every header and field of many responses (see `tests.server.transcripts`)."""

import pytest

from tests.server.gateway import RunningGateway
from tests.server.transcripts import FOLDER, NAMES, Client, read_exchanges


@pytest.mark.parametrize("name", NAMES)
def test_each_request_gets_the_recorded_response(name: str, gateway: RunningGateway) -> None:
    client = Client(gateway)
    for exchange in read_exchanges(FOLDER / f"{name}.txt"):
        assert str(client.send(exchange)) == str(exchange)
