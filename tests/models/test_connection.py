"""The transports, credentials, proxies and certificates of a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from convo.config.settings import DEFAULT_RESPONSE_LIMITS
from convo.errors import InvalidSettings, KeyRefused, StreamBroken, Unreachable
from convo.history.items import user_message
from convo.models.base import ModelRequest
from convo.models.chat_completions import ChatModel
from convo.models.http import OpenAIClientOptions, find_proxy, make_openai_sse_client, make_transport
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.chat_server import finish, run_chat_server

LOCAL = "http://127.0.0.1:1/v1"
BOTH = pytest.mark.parametrize("is_served", [False, True], ids=["command", "server"])


def test_without_a_key_no_connection_is_opened() -> None:
    with pytest.raises(KeyRefused, match="mine needs a key"):
        make_openai_sse_client(OpenAIClientOptions("mine", LOCAL), DEFAULT_RESPONSE_LIMITS)


@BOTH
async def test_certificates_that_cannot_be_read_are_an_error_of_the_settings_if_they_are_used(
    is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    await make_transport(LOCAL, DEFAULT_RESPONSE_LIMITS, is_served=is_served).aclose()
    message = "^the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: No such file or directory$"
    with pytest.raises(InvalidSettings, match=message) as error:
        make_transport("https://127.0.0.1:1/v1", DEFAULT_RESPONSE_LIMITS, is_served=is_served)
    assert error.value.hint == "correct the variable, or unset it"


@asynccontextmanager
async def running(model: ChatModel) -> AsyncIterator[ChatModel]:
    try:
        yield model
    finally:
        await model.aclose()


async def ask(model: ChatModel) -> None:
    async for _ in model.respond(ModelRequest("m", [user_message("hi")])):
        pass


@BOTH
async def test_a_chat_completions_server_gets_the_key_and_no_header_of_a_package(is_served: bool) -> None:
    with run_chat_server() as server:
        server.stream(finish("stop"))
        server.stream(finish("stop"))
        url = f"{server.url}/?api-version=1"
        async with running(ChatModel("m", url, counting_ids(), key=Secret("sk-1"), is_served=is_served)) as model:
            await ask(model)
        async with running(ChatModel("m", server.url, counting_ids(), is_served=is_served)) as model:
            await ask(model)

    with_key, without_key = server.requests
    assert (with_key.path, with_key.query) == ("/v1/chat/completions", "api-version=1")
    assert with_key.headers["authorization"] == "Bearer sk-1"
    assert with_key.headers["user-agent"].startswith("convo/")
    assert set(with_key.headers) - set(without_key.headers) == {"authorization"}
    expected = {"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"}
    assert set(without_key.headers) == expected


@BOTH
async def test_a_connection_goes_through_the_proxy_of_the_environment(
    is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    async with proxy, running(ChatModel("m", "http://far.example/v1", counting_ids(), is_served=is_served)) as model:
        with pytest.raises(Exception, match="returned HTTP 503"):
            await ask(model)

    assert heads[0].startswith("post http://far.example/v1/chat/completions http/1.1\r\n")
    assert "\r\nproxy-authorization: basic bwu6chc=\r\n" in heads[0]


@BOTH
async def test_a_socks_proxy_is_refused_by_name_if_a_connection_would_use_it(
    is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NO_PROXY": "127.0.0.1", "HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": ""}.items():
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:pw@127.0.0.1:1")
    for url in (LOCAL, "https://127.0.0.1:1/v1", "http://far.example/v1"):
        await make_transport(url, DEFAULT_RESPONSE_LIMITS, is_served=is_served).aclose()
    message = "^the proxy that the environment sets for far.example is socks5://, not an HTTP proxy$"
    with pytest.raises(InvalidSettings, match=message) as error:
        make_transport("https://far.example/v1", DEFAULT_RESPONSE_LIMITS, is_served=is_served)
    assert error.value.hint == "set HTTPS_PROXY to an http:// URL, or name the host in NO_PROXY"


@pytest.mark.parametrize(
    ("url", "excluded", "proxy"),
    [
        ("http://10.1.2.3:8000/v1", "", "http://proxy:3128"),
        ("http://10.1.2.3:8000/v1", "10.0.0.0/8", None),
        ("http://[fd00::1]/v1", "example.com, fd00::/8", None),
        ("http://10.1.2.3/v1", "192.168.0.0/16,10.1.2.0/33", "http://proxy:3128"),
        ("http://models.example.com/v1", ".example.com", None),
        ("https://models.example.com/v1", "", "http://other:1"),
    ],
)
def test_the_proxy_of_a_server_is_that_of_its_scheme_unless_the_host_or_its_subnet_is_excluded(
    url: str, excluded: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", excluded)
    assert find_proxy(url, {"http": "proxy:3128", "all": "http://other:1", "no": excluded}) == proxy


@BOTH
@pytest.mark.parametrize(
    ("url", "message"),
    [
        (LOCAL, "cannot reach m at http://127.0.0.1:1/v1: .*(refused|failed)"),
        ("127.0.0.1:1/v1", "is not the URL of a server"),
        ("ftp://127.0.0.1/v1", "is not the URL of a server"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_named(is_served: bool, url: str, message: str) -> None:
    async with running(ChatModel("m", url, counting_ids(), is_served=is_served)) as model:
        with pytest.raises(Unreachable, match=message):
            await ask(model)


@BOTH
async def test_a_connection_that_breaks_off_has_one_error_for_both_transports(is_served: bool) -> None:
    with run_chat_server() as server:
        async with running(ChatModel("m", server.url, counting_ids(), is_served=is_served)) as model:
            server.hang_up()
            with pytest.raises(Unreachable, match="broke before it responded"):
                await ask(model)
            server.send_non_http()
            with pytest.raises(Unreachable, match="broke before it responded"):
                await ask(model)
            server.stream({"choices": [{"delta": {"content": "a"}}]}, cut=True)
            with pytest.raises(StreamBroken, match="broke before the response ended"):
                await ask(model)
