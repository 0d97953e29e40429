"""URLs of files: which addresses are fetched, and what a hostile server can do."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from convo.config.sections import FileSettings
from convo.errors import RequestRefused
from convo.responses_api.files import FileResolver
from convo.responses_api.remote_files import RemoteFiles, is_public_address, make_file_fetcher
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock
from tests.server.conftest import Serve

PRIVATE = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1", "fc00::1", "fec0::1"),
    *("ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
    *("2001:0:1::1", "2001:db8::1", "fd00:ec2::254", "168.63.129.16", "192.0.0.192", "192.88.99.1", "192.175.48.1"),
    *("3fff::1", "2620:4f:8000::1", "5f00::1", "::ffff:168.63.129.16", "100.100.100.200"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_public_address(ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_a_public_address_is_accepted(address: str) -> None:
    assert is_public_address(ip_address(address))


async def refusal(fetch: RemoteFiles, url: str) -> str:
    with pytest.raises(RequestRefused) as caught:
        await fetch(url, "input[0]")
    assert (caught.value.code, caught.value.param) == ("invalid_file_url", "input[0]")
    return caught.value.message.removeprefix("Error while downloading a file: ")


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/"),
        *("http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://localhost/"),
        *("http://169.254.169.254/latest/meta-data/", "http://LOCALHOST./", "http://[fe80::1%25lo]/"),
    ],
)
async def test_no_form_of_a_private_address_is_fetched(url: str) -> None:
    fetch = RemoteFiles(max_bytes=1000, timeout_s=5)
    assert await refusal(fetch, url) in (
        "the URL leads to an address that is not public", "the host of the URL is unknown",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://user:secret@example.com/", "the URL contains credentials"),
        ("http://127.0.0.1@example.com/", "the URL contains credentials"),
        ("ftp://example.com/", "the URL is not an http or https URL"),
        ("file:///etc/passwd", "the URL is not an http or https URL"),
        ("http:///x", "the URL has no public host"),
        ("http://metadata.google.internal/", "the URL has no public host"),
        ("http://example.com:99999/", "the file could not be downloaded"),
        ("http://[x/", "the file could not be downloaded"),
        ("http://example.com/" + "x" * 9000, "the URL is longer than 8192 characters"),
    ],
)
async def test_an_unusable_url_is_refused_before_anything_is_resolved(url: str, reason: str) -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        raise AssertionError(host)

    message = await refusal(RemoteFiles(max_bytes=1000, timeout_s=5, resolve=resolve), url)
    assert message == reason
    assert "secret" not in message


@asynccontextmanager
async def run_server(
    reply: bytes | Callable[[str], bytes], *, endless: bytes = b""
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a raw HTTP server on 127.0.0.1 that answers with `reply`; yield its port and the received heads."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        try:
            writer.write(reply if isinstance(reply, bytes) else reply(heads[-1]))
            while endless:
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads


class Names:
    """A resolver that knows names, each with the answers to one lookup after another."""

    def __init__(self, **answers: list[str]) -> None:
        self._answers, self.asked = answers, list[str]()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        name = host.partition(".")[0]
        if name not in self._answers:
            return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        answers = self._answers[name]
        return [answers.pop(0) if len(answers) > 1 else answers[0]]


def make_fetcher(names: Names, *, max_bytes: int = 1000, timeout_s: float = 5) -> RemoteFiles:
    """A fetcher for which 127.0.0.1 is a public address and 127.0.0.2 and all others are not."""
    return RemoteFiles(
        max_bytes=max_bytes, timeout_s=timeout_s, resolve=names, is_allowed=lambda one: str(one) == "127.0.0.1"
    )


PNG_REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: image/png; x=y\r\ncontent-length: 3\r\n\r\npng"


async def test_a_file_is_fetched_from_the_address_that_was_checked() -> None:
    """The second lookup would lead to a private address: there is none."""
    names = Names(good=["127.0.0.1", "127.0.0.2"])
    async with run_server(PNG_REPLY) as (port, heads):
        found = await make_fetcher(names)(f"http://GOOD.example:{port}/a%20b.png?q=1", "p")

    assert found == ("a b.png", "image/png", b"png")
    assert names.asked == ["good.example"]
    head = heads[0].lower()
    assert head.startswith(f"get /a%20b.png?q=1 http/1.1\r\nhost: good.example:{port}\r\n")
    assert "authorization" not in head
    assert "cookie" not in head


async def test_a_name_server_that_does_not_answer_blocks_no_other_work() -> None:
    may_answer = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        may_answer.wait(30)
        return ["127.0.0.1"]

    fetch = RemoteFiles(max_bytes=10, timeout_s=30, resolve=resolve)
    fetches = [asyncio.create_task(fetch("http://slow.example/", "input")) for _ in range(40)]
    await asyncio.sleep(0)  # they start
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        may_answer.set()
    results = await asyncio.gather(*fetches, return_exceptions=True)
    assert all(isinstance(result, RequestRefused) for result in results)


async def test_a_name_with_one_private_address_among_others_is_refused() -> None:
    class Both(Names):
        def __call__(self, host: str, port: int) -> Sequence[str]:
            return ["127.0.0.1", "10.0.0.1"]

    assert await refusal(make_fetcher(Both()), "http://both.example/") == (
        "the URL leads to an address that is not public"
    )


@pytest.mark.parametrize("target", ["http://bad.example/", "http://127.0.0.2/", "//127.0.0.2/x", "http://2130706434/"])
async def test_each_redirect_is_checked_like_the_first_url(target: str) -> None:
    names = Names(good=["127.0.0.1"], bad=["127.0.0.2"])
    reply = f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n".encode()
    async with run_server(reply) as (port, heads):
        message = await refusal(make_fetcher(names), f"http://good.example:{port}/")
    assert (message, len(heads)) == ("the URL leads to an address that is not public", 1)


async def test_a_relative_redirect_is_followed_and_a_loop_ends() -> None:
    def reply(head: str) -> bytes:
        return (
            PNG_REPLY
            if head.startswith("GET /b ")
            else (b"HTTP/1.1 307 x\r\nlocation: " + (b"/b" if head.startswith("GET /a ") else b"/loop") + b"\r\n\r\n")
        )

    async with run_server(reply) as (port, heads):
        fetch = make_fetcher(Names(good=["127.0.0.1"]))
        assert (await fetch(f"http://good.example:{port}/a", "p")).content == b"png"
        assert await refusal(fetch, f"http://good.example:{port}/loop") == "the URL has more than 3 redirects"
    assert len(heads) == 2 + 4


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"content-length: 1001\r\n", "the file is larger than 1,000 bytes"),
        (b"content-encoding: gzip\r\n", "the server sent a compressed response"),
    ],
)
async def test_a_body_that_is_too_large_or_compressed_is_not_read(head: bytes, reason: str) -> None:
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n" + head + b"\r\n"
    async with run_server(reply, endless=b"" if b"length" in head else b"x" * 4096) as (port, _):
        assert await refusal(make_fetcher(Names(good=["127.0.0.1"])), f"http://good.example:{port}/") == reason


async def test_an_endless_body_is_cut_at_the_limit_and_a_slow_one_at_the_time() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n"
    async with run_server(head, endless=b"x" * 4096) as (port, _):
        message = await refusal(make_fetcher(Names(good=["127.0.0.1"])), f"http://good.example:{port}/")
        assert message == "the file is larger than 1,000 bytes"
        slow = make_fetcher(Names(good=["127.0.0.1"]), max_bytes=10**12, timeout_s=0.1)
        assert await refusal(slow, f"http://good.example:{port}/") == "the server did not send the file in 0.1 seconds"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n", "the server responded with status 404"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-sh\r\ncontent-length: 0\r\n\r\n",
            "files of the media type 'application/x-sh' are not accepted",
        ),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the file could not be downloaded"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", "the file could not be downloaded"),
    ],
)
async def test_a_reply_without_a_usable_file_is_refused(reply: bytes, reason: str) -> None:
    async with run_server(reply) as (port, _):
        assert await refusal(make_fetcher(Names(good=["127.0.0.1"])), f"http://good.example:{port}/") == reason


async def test_urls_of_a_request_are_fetched_only_if_the_setting_allows_it() -> None:
    image = {"type": "input_image", "image_url": "HTTP://good.example:PORT/a.png"}
    async with run_server(PNG_REPLY) as (port, heads):
        part = {**image, "image_url": image["image_url"].replace("PORT", str(port))}
        items = [{"role": "user", "content": [part]}]
        store, clock = MemoryStore(), FixedClock()
        assert make_file_fetcher(FileSettings()) is None
        assert await FileResolver(store, clock).resolve(items, keep_unknown=False) is items
        assert heads == []
        fetch = make_fetcher(Names(good=["127.0.0.1"]))
        (resolved,) = await FileResolver(store, clock, fetch).resolve(items, keep_unknown=False)

    assert resolved["content"] == [{"type": "input_image", "image_url": "data:image/png;base64,cG5n"}]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/x.pdf", "the URL leads to an address that is not public"),
        ("http://8.8.4.4/x.pdf", "the URL leads to an address that is not public"),
        *(
            (url, "Invalid 'input[0].content[0].file_url'. Expected a URL that begins with https://, http:// or data:")
            for url in (
                " http://example.com/",
                "\thttp://example.com/",
                "\0http://example.com/",
                "file:///etc/passwd",
                "x",
            )
        ),
    ],
)
def test_the_gateway_refuses_a_url_that_is_not_public_with_its_location(serve: Serve, url: str, reason: str) -> None:
    """8.8.4.4 is public, but in a network that the operator has blocked."""
    gateway = serve(files=FileSettings(fetch_urls=True), blocked_networks=("8.8.4.0/24",))
    content = [{"type": "input_file", "file_url": url}]
    got = gateway.create_response({"model": "echo", "input": [{"role": "user", "content": content}]})
    error = got.json()["error"]
    assert (got.status_code, error["param"]) == (400, "input[0].content[0].file_url")
    assert reason in error["message"]
