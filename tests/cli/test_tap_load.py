"""`convo tap` with many requests of four clients at once: all are recorded, each in the tree of its conversation."""

import asyncio
import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.bench.upstream import serve
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess

CLIENTS = ("codex_exec/0.169.0", "claude-cli/2.1.330", "opencode/1.18.0", "OpenAI/Python 3.54.0")
TURNS = 5


def send_conversations(base_url: str, client: str, count: int) -> None:
    """Send `count` conversations; each request has the messages of all turns so far."""
    with httpx2.Client(trust_env=False, timeout=60) as http:
        for number in range(count):
            headers = {"user-agent": client, "session-id": f"{client} {number}"}
            messages = []
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"<{client} {number}> turn {turn}"})
                body = {"model": "m", "store": False, "input": messages}
                assert http.post(f"{base_url}/responses", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize("conversations", [2, pytest.param(50, marks=pytest.mark.full)])
def test_all_requests_of_four_clients_are_recorded_in_their_trees(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch, conversations: int
) -> None:
    monkeypatch.setenv("CONVO_STORE", f"sqlite:{home / 'tapped.db'}")
    listener, url = listen_on_free_port()
    with serve_in_thread(serve, listener, asyncio.new_event_loop()):
        argv = ["tap", "--upstream", url]
        with ConvoProcess(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
            assert process.stdout
            base_url = process.stdout.readline().strip().partition("=")[2]
            with ThreadPoolExecutor(len(CLIENTS)) as threads:
                list(threads.map(lambda client: send_conversations(base_url, client, conversations), CLIENTS))
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=60)[1]
    count = len(CLIENTS) * conversations * TURNS
    last_lines = f"convo tap: {count:,} requests relayed, {count:,} recorded\nto inspect the last one: convo inspect "
    assert last_lines in errors
    assert errors.partition(last_lines)[2].count("\n") == 1
    assert convo("store", "check").exit == 0
    sessions = convo("sessions", "-n", "0", "--json").json()
    assert len(sessions) == len(CLIENTS) * conversations
    for session in sessions:
        document = convo("inspect", session["name"], "--json").json()
        assert len(document["links"]) == TURNS
        assert {link["status"] for link in document["links"]} == {"completed"}
        assert len(set(re.findall("<.*?>", json.dumps(document["items"])))) == 1
