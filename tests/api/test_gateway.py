"""`asgi_app` is the gateway of `convo serve` in another server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from openai import OpenAI
from starlette.applications import Starlette
from starlette.routing import Mount

from convo import asgi_app, open_store
from convo.errors import InvalidSettings
from tests.asgi_server import start_loop_thread

REQUEST: Any = {"model": "scripted/echo", "input": "hello"}


@contextmanager
def serve(application: Any) -> Iterator[str]:
    """Serve an application with uvicorn and its lifespan; yields its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_config=None))
    thread = start_loop_thread(asyncio.new_event_loop(), server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def ask(url: str) -> str:
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        first = client.responses.create(**REQUEST)
        return str(client.responses.create(**REQUEST, previous_response_id=first.id).id)


async def count_items(response_id: str, path: str) -> int:
    async with open_store(path) as store:
        return len(await store.items(response_id))


def test_uvicorn_serves_it_and_the_store_has_the_responses() -> None:
    with serve(asgi_app(store="sqlite:served.db")) as url:
        response_id = ask(url)
    assert asyncio.run(count_items(response_id, "sqlite:served.db")) == 4


def test_it_is_mounted_below_a_path() -> None:
    gateway = asgi_app(store="memory")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield  # Starlette runs no lifespan of a mounted application
        await gateway.aclose()

    with serve(Starlette(routes=[Mount("/convo", gateway)], lifespan=lifespan)) as url:
        assert ask(f"{url}/convo")
        assert httpx2.get(f"{url}/convo/v1/nothing").json()["error"]["message"] == "Invalid URL (GET /v1/nothing)."
        assert httpx2.get(f"{url}/convo/inspector/inspector.js").status_code == 200
        foreign = httpx2.get(f"{url}/convo/v1/models", headers={"host": "evil.example"})
        assert foreign.json()["error"]["code"] == "host_not_allowed"


async def test_without_keys_another_machine_is_refused() -> None:
    gateway, sent = asgi_app(store="memory"), []
    scope = {"type": "http", "method": "GET", "path": "/v1/models", "raw_path": b"/v1/models", "query_string": b""}

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await gateway({**scope, "headers": [(b"host", b"localhost")], "client": ("10.0.0.5", 4711)}, receive, send)
    await gateway.aclose()
    assert sent[0]["status"] == 403
    assert b"caller_not_allowed" in sent[1]["body"]


async def test_a_store_that_cannot_be_opened_ends_the_start(tmp_path: Any) -> None:
    (tmp_path / "folder.db").mkdir()
    gateway, sent = asgi_app(store=f"sqlite:{tmp_path}/folder.db"), []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await gateway({"type": "lifespan"}, receive, send)
    assert [one["type"] for one in sent] == ["lifespan.startup.failed"]


def test_settings_that_cannot_be_served_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSettings):
        asgi_app("missing.toml")
