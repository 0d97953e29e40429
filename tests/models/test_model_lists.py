"""The model lists of servers, for each API."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from convo.endpoints.remote import RemoteEndpoint
from convo.errors import ConvoError, KeyRefused, RequestRefused, StreamBroken, TryLater, Unreachable
from convo.models.base import ListedModels, ModelLister, check_provider_reachable, fetch_models, parse_models
from convo.models.chat_completions import ChatModel
from convo.models.http import OpenAIClientOptions
from convo.secrets import Secret
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


async def fetch_names(catalogue: ModelLister, timeout_s: float = 30) -> list[str]:
    return [*await fetch_models(catalogue, "mine", timeout_s=timeout_s)]


async def test_models_are_listed_under_the_names_that_the_server_accepts(
    catalogue: ModelLister, server: ChatServer
) -> None:
    server.refuse(200, TWO)

    assert await fetch_names(catalogue) == ["llama3.2:3b", "org/qwen"]
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/models", "Bearer sk-key")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"data": []}, {}),
        ({"object": "list", "data": None}, {}),
        ([{"id": "one"}], {"one": None}),
        (
            [{"id": "one", "shutdown_date": "2026-12-11"}, {"id": "two", "shutdown_date": None}],
            {"one": "2026-12-11", "two": None},
        ),
        ([{"id": "one", "shutdown_date": "\x1b[2J"}, {"id": "two", "shutdown_date": 7}], {"one": None, "two": None}),
    ],
    ids=["none", "null", "a bare list", "dates", "odd dates"],
)
def test_model_lists_are_read_in_several_forms(body: Any, found: dict[str, str | None]) -> None:
    assert parse_models(body, "mine") == found


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"models": []},
        {"data": [{"name": "x"}]},
        {"data": ["x"]},
        {"data": [{"id": 7}]},
        {"data": {"id": "x"}},
        "<html>",
        7,
    ],
)
def test_a_body_that_is_no_model_list_is_an_error_that_names_the_server(body: Any) -> None:
    with pytest.raises(StreamBroken, match=r"^mine sent a response that is not a list of models$"):
        parse_models(body, "mine")


@pytest.mark.parametrize(("status", "kind"), [(401, KeyRefused), (404, RequestRefused)])
async def test_an_error_status_becomes_an_error_of_this_package(
    status: int, kind: type[Exception], catalogue: ModelLister, server: ChatServer
) -> None:
    server.refuse(status, {"error": {"message": "No: sk-key is wrong.", "type": "x"}})

    with pytest.raises(kind) as error:
        await fetch_names(catalogue)

    assert "sk-key" not in str(error.value)


async def test_a_server_that_does_not_respond_is_skipped(catalogue: ModelLister, server: ChatServer) -> None:
    server.stall()

    with pytest.raises(Unreachable, match=r"mine did not respond in 0[.]1 seconds"):
        await fetch_names(catalogue, timeout_s=0.1)


async def test_an_empty_model_list_is_reported_with_the_setting_to_check() -> None:
    with pytest.raises(StreamBroken) as error:
        parse_models({}, "mine")

    assert error.value.hint == "check its base_url"


class Listing:
    """A server that answers the request for its models with an error, late, or with a list."""

    def __init__(self, error: Exception | None = None, *, wait_s: float = 0.0, warm_s: float = 0.0) -> None:
        self._error, self._wait_s, self._warm_s = error, wait_s, warm_s
        self.calls: list[str] = []

    async def warm(self, model: str) -> None:
        self.calls.append(f"warm {model!r}")
        await asyncio.sleep(self._warm_s)

    async def list_models(self) -> ListedModels:
        self.calls.append("list")
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
        if self._error:
            raise self._error
        return {"one": None}

    async def aclose(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize(
    "error",
    [
        None,
        RequestRefused("no such path", status=404),
        TryLater("busy"),
        KeyRefused("no permission", status=403),
        KeyRefused("the key lacks the scope model.read", status=401),
    ],
)
async def test_a_server_that_responds_is_reachable(error: Exception | None) -> None:
    lister = Listing(error)

    await check_provider_reachable(lister, "mine")

    assert lister.calls == ["warm ''", "list"]


@pytest.mark.parametrize("error", [KeyRefused("wrong"), Unreachable("no route")])
async def test_a_rejected_key_and_an_unreachable_server_are_errors(error: ConvoError) -> None:
    with pytest.raises(type(error)) as raised:
        await check_provider_reachable(Listing(error), "mine")

    assert raised.value is error


async def test_a_server_that_is_silent_is_unreachable_and_preparation_is_not_counted() -> None:
    with pytest.raises(Unreachable, match=r"^mine did not respond in 0[.]01 seconds$"):
        await check_provider_reachable(Listing(wait_s=30), "mine", timeout_s=0.01)

    await check_provider_reachable(Listing(warm_s=0.03), "mine", timeout_s=0.02)
    assert await fetch_models(Listing(warm_s=0.03), "mine", timeout_s=0.02) == {"one": None}


@pytest.mark.parametrize("error", [None, RequestRefused("no")])
async def test_a_server_is_closed_when_its_models_are_listed(error: Exception | None) -> None:
    lister = Listing(error)

    with nullcontext() if error is None else pytest.raises(RequestRefused):
        await fetch_models(lister, "mine", timeout_s=30)

    assert lister.calls == ["warm ''", "list", "close"]
