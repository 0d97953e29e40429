"""Endless lists and endless chains of a server are read up to a limit."""

import json
from collections.abc import Iterator
from itertools import count

import pytest

from convo.chat import view_loader
from tests.command_runner import Convo
from tests.hostile_server import JSON, HostileServer, run_hostile_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileServer]:
    with run_hostile_server() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


def json_answer(value: object) -> Iterator[bytes]:
    return iter([JSON + json.dumps(value).encode()])


def page(*ids: str) -> dict[str, object]:
    content = [{"type": "input_text", "text": "hi"}]
    items = [{"type": "message", "id": item_id, "role": "user", "content": content} for item_id in ids]
    return {"object": "list", "data": items, "first_id": ids[0], "last_id": ids[-1], "has_more": True}


@pytest.mark.parametrize("ids", [("msg_1", "msg_2"), ("msg_1",)])
def test_a_list_that_repeats_a_page_is_not_read_endlessly(
    server: HostileServer, convo: Convo, ids: tuple[str, ...]
) -> None:
    server.answers = lambda request: json_answer(
        page(*ids) if "/items" in request else {"id": "conv_1", "object": "conversation", "created_at": 1}
    )

    got = convo("inspect", "conv_1", "--provider", "openai")

    assert got.exit == 1
    assert "the server's list of items does not end" in got.err
    assert len(server.request_lines) <= 4


def test_an_endless_chain_of_responses_is_read_up_to_a_limit(
    server: HostileServer, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_loader, "MAX_CHAIN_RESPONSES", 5)
    numbers = count(2)

    def answer(request: str) -> Iterator[bytes]:
        if "/input_items" in request:
            return json_answer({**page("msg_1"), "has_more": False})
        response_id = request.split()[1].rpartition("/")[2].partition("?")[0]
        message = {"type": "message", "id": f"msg_{response_id}", "role": "assistant", "content": []}
        previous_id = f"resp_{next(numbers)}"
        return json_answer(
            {"id": response_id, "object": "response", "created_at": 1, "status": "completed", "model": "m",
             "output": [message], "previous_response_id": previous_id}
        )  # fmt: skip

    server.answers = answer

    got = convo("inspect", "resp_1", "--provider", "openai")

    assert got.exit == 0
    assert "longer than 5 responses" in got.out + got.err
    assert len(server.request_lines) <= 7
