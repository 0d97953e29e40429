"""Responses of `convo serve` clients and sessions of the chat, in one store."""

import json
import threading
from itertools import chain, repeat
from pathlib import Path

import pytest

from tests.cli.chat_commands import ECHO, stored_messages
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo
from tests.hostile_server import JSON, PIECE, run_hostile_server
from tests.server.gateway import HELD_MODEL, run_gateway, run_gateway_with_upstream


def test_continue_ignores_responses_of_serve_clients(convo: Convo, home: Path, tmp_path: Path) -> None:
    convo("chat", *ECHO, "-n", "mine", "one")
    with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway:
        response_id = gateway.create_response({"model": "echo", "input": "by a client"}).json()["id"]

    got = convo("chat", *ECHO, "-c", "two")
    assert (got.exit, got.out) == (0, "two\n")
    assert stored_messages(home, "mine")[:3] == ["user: one", "assistant: one", "user: two"]
    assert [one["kind"] for one in convo("sessions", "--json").json()] == ["session", "chain"]
    assert response_id in convo("inspect", "resp_").out

    continued = convo("chat", *ECHO, "--from", response_id, "-n", "taken", "three")
    assert continued.exit == 0
    assert [one["name"] for one in convo("sessions", "--json").json()] == ["taken", "mine"]


def test_continue_without_a_session_names_the_command_that_lists_responses_of_serve_clients(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway:
        response_id = gateway.create_response({"model": "echo", "input": "by a client"}).json()["id"]
    got = convo("chat", *ECHO, "-c", "two")
    assert (got.exit, got.out) == (5, "")
    assert "convo inspect resp_" in got.err
    assert response_id in convo("inspect", "resp_").out


def test_the_newest_requests_have_their_status_also_those_that_fail_and_with_the_server_those_in_progress(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    def statuses(*options: str) -> list[str]:
        return [line.split("  ", 1)[1] for line in convo("inspect", "resp_", *options).out.splitlines()]

    file = f"sqlite:{home / DATABASE}"
    ended = ["failed: model_not_found  nope/x", "completed                by a client"]
    with (
        run_gateway_with_upstream(tmp_path / "served", file) as (gateway, upstream),
        upstream.hold_answer("one two") as may_end,
    ):
        gateway.create_response({"model": "echo", "input": "by a client"})
        gateway.create_response({"model": "nope/x", "input": "hi"})
        body = {"model": HELD_MODEL, "input": "Think long", "stream": True}
        client = threading.Thread(target=gateway.create_response, args=[body])
        client.start()
        while not gateway.http.get("/inspect/api/requests").json()["running"]:
            pass
        live = statuses("--server", f"{gateway.root}/v1")
        may_end.set()
        client.join()
    assert live[0].split("  ")[0].strip() in ("waiting", "streaming")
    assert live[0].endswith("  Think long")
    assert live[1:] == ended
    assert statuses() == ["completed                Think long", *ended]
    gone = convo("inspect", "resp_", "--server", gateway.root)
    assert (gone.exit, gone.err.splitlines()[1]) == (1, "  try: convo serve prints its URL when it starts")
    assert convo("inspect", "@last", "--server", gateway.root).exit == 2


ODD_ROWS = ["text", 1, {"id": 1, "status": [2], "title": "a\nb"}, {"id": None}]


@pytest.mark.parametrize("rows", [[row] for row in ODD_ROWS])
def test_an_odd_request_of_a_server_is_listed_on_one_line_or_refused(rows: list[object], convo: Convo) -> None:
    with run_hostile_server(lambda _: iter([JSON, json.dumps({"running": rows, "data": []}).encode()])) as server:
        got = convo("inspect", "resp_", "--server", server.url)
    assert (got.exit in (0, 1, 5), "internal error" in got.err, got.out.count("\n") <= 1) == (True, False, True), got


def test_an_endless_list_of_requests_of_a_server_is_refused(convo: Convo) -> None:
    with run_hostile_server(lambda _: chain([JSON, b'{"running": [], "data": ["'], repeat(b"x" * PIECE))) as server:
        got = convo("inspect", "resp_", "--server", server.url)
    assert (got.exit, got.err.splitlines()[0]) == (1, f"convo: no convo serve answers at {server.url[:-3]}")
