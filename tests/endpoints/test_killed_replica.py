"""A replica is killed with SIGKILL during a background response, and another replica recovers the response."""

import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedService
from convo.runtime import SystemClock, process_identity, random_id
from convo.stores.base import run_lease_name
from convo.stores.factory import open_store
from convo.stores.lease import LeaseGuard
from tests.command_runner import ROOT
from tests.endpoints.endpoint_calls import texts
from tests.endpoints.gated_model import no_models, open_gated_model

PROGRAM = """
import asyncio, sys
from contextlib import aclosing
from convo.runtime import SystemClock
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import random_id
from convo.stores.factory import open_store
from tests.endpoints.gated_model import GatedModel

WHOLE = {"type": "message", "id": "msg_w", "role": "assistant", "content": [{"type": "output_text", "text": "whole"}]}

async def main():
    endpoint = EmbeddedEndpoint(open_store(sys.argv[1]), GatedModel(first=WHOLE), SystemClock(), random_id)
    async with aclosing(endpoint.create({"model": "m", "input": "a", "background": True})) as answer:
        async for event in answer:
            if event["type"] == "response.created":
                print(event["response"]["id"], flush=True)
            if event["type"] == "response.output_text.delta" and event["delta"] == "one ":
                print(event["sequence_number"], flush=True)

asyncio.run(main())
"""


@pytest.fixture
def killed(tmp_path: Path) -> tuple[str, str, int]:
    """The URL of a store, the id of a response that ran in it, and the sequence number of its last printed event."""
    url = f"sqlite:{tmp_path / 'convo.db'}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as replica:
        assert replica.stdout
        response, number = replica.stdout.readline().strip(), int(replica.stdout.readline())
        replica.send_signal(signal.SIGKILL)
    return url, response, number


async def test_after_a_replica_is_killed_its_sent_events_can_be_followed_and_completed_items_are_stored(
    killed: tuple[str, str, int],
) -> None:
    url, response, number = killed
    store = open_store(url)
    service = EmbeddedService(
        store,
        open_gated_model(),
        SystemClock(),
        random_id,
        fetch_models=no_models,
        options=EndpointOptions(is_server=True),
    )
    running = await service.endpoint_for("local").retrieve(response)
    lease = await LeaseGuard.acquire(
        store, run_lease_name(response), f"{process_identity()}:test", 1.0
    )  # the process that held the lease is dead
    await lease.release()

    await service.sweep()

    failed = await service.endpoint_for("local").retrieve(response)
    async with aclosing(service.endpoint_for("local").follow(response)) as following:
        received = [event async for event in following]
    await service.aclose()
    await store.aclose()
    assert running["status"] == "in_progress"
    assert (failed["status"], texts(failed["output"])) == ("failed", ["whole", "one "])
    assert failed["error"]["message"] == "The server that ran this response stopped."
    assert [event["sequence_number"] for event in received] == list(range(number + 2))
    assert received[-1] == {"type": "response.failed", "response": failed, "sequence_number": number + 1}
