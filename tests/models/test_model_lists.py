"""What servers say of their models, whichever language they speak."""

from collections.abc import Sequence
from typing import Any

import pytest

from convo.config.values import Secret
from convo.endpoints.remote import RemoteEndpoint
from convo.errors import KeyRefused, RequestRefused, StreamBroken, Unreachable
from convo.models.base import ModelLister, fetch_model_names, parse_model_names
from convo.models.chat_completions import ChatModel
from convo.models.http import OpenAIClientOptions
from tests.clock import counting_ids
from tests.models.chat_server import ChatServer

TWO = {"object": "list", "data": [{"id": "llama3.2:3b", "object": "model"}, {"id": "org/qwen"}]}


@pytest.fixture(params=["chat", "remote"])
def catalogue(request: pytest.FixtureRequest, server: ChatServer) -> ModelLister:
    """A connection of each kind to the same server."""
    key = Secret("sk-key")
    if request.param == "chat":
        return ChatModel("mine", server.url, counting_ids(), key=key)
    return RemoteEndpoint(OpenAIClientOptions("mine", server.url, key))


async def asked(catalogue: ModelLister, within_s: float = 30) -> Sequence[str]:
    return await fetch_model_names(catalogue, "mine", timeout_s=within_s)


async def test_a_server_names_its_models_as_it_takes_them(catalogue: ModelLister, server: ChatServer) -> None:
    server.refuse(200, TWO)

    assert await asked(catalogue) == ["llama3.2:3b", "org/qwen"]
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/models", "Bearer sk-key")


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ({"data": []}, []),
        ({"object": "list", "data": None}, []),
        ([{"id": "one"}], ["one"]),
    ],
    ids=["none", "null for none", "a bare list"],
)
def test_lists_come_in_several_forms(listed: Any, found: list[str]) -> None:
    assert parse_model_names(listed, "mine") == found


@pytest.mark.parametrize("listed", [{}, {"models": []}, {"data": [{"name": "x"}]}, {"data": {"id": "x"}}, "<html>", 7])
def test_what_is_no_list_of_models_is_an_error_that_names_who_said_it(listed: Any) -> None:
    with pytest.raises(StreamBroken, match="mine sent a response that is not a list of models"):
        parse_model_names(listed, "mine")


@pytest.mark.parametrize(("status", "kind"), [(401, KeyRefused), (404, RequestRefused)])
async def test_a_refusal_is_one_of_ours(
    status: int, kind: type[Exception], catalogue: ModelLister, server: ChatServer
) -> None:
    server.refuse(status, {"error": {"message": "No: sk-key is wrong.", "type": "x"}})

    with pytest.raises(kind) as refused:
        await asked(catalogue)

    assert "sk-key" not in str(refused.value)


async def test_a_server_that_stays_silent_is_passed_over(catalogue: ModelLister, server: ChatServer) -> None:
    server.stall()

    with pytest.raises(Unreachable, match=r"mine did not respond in 0[.]1 seconds"):
        await asked(catalogue, within_s=0.1)
