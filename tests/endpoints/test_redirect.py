"""Redirects are not followed: a request and its headers reach only the configured server."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from convo.endpoints.remote import RemoteEndpoint
from convo.errors import EndpointFault
from convo.history.items import user_message
from convo.models.http import OpenAIClientOptions
from convo.secrets import Secret


@contextmanager
def server(target: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Run a server that redirects every request to `target`. Yields its URL and the list of requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(307 if target else 200)
            if target:
                self.send_header("Location", f"{target}/responses")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the parameter name of the base class
            """Suppress the log output of the base class."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1", paths
        finally:
            http.shutdown()
            thread.join()


async def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: planted")
    with server() as (target, target_paths), server(target) as (url, paths):
        endpoint = RemoteEndpoint(OpenAIClientOptions(base_url=url, key=Secret("sk-planted")))
        with pytest.raises(EndpointFault):
            [event async for event in endpoint.create({"model": "m", "input": [user_message("hi")]})]
        await endpoint.aclose()

    assert paths == ["/v1/responses"]
    assert target_paths == []
