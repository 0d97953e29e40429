"""Responses of `convo serve` clients and sessions of the chat, in one store."""

from pathlib import Path

from tests.cli.chat_commands import ECHO, stored_messages
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo
from tests.server.gateway import run_gateway


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
