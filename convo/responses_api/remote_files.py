"""Fetch the files that a client names by URL, from public addresses only.

The host is resolved once, every address is checked, and the connection goes to a checked address, so a
name that resolves differently a moment later changes nothing. Redirects are followed by hand, each as a new
URL. Proxies of the environment are not used, because they would resolve the name again.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, urljoin, urlsplit

from convo.config.sections import FileSettings
from convo.errors import RequestRefused

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.abc import AbstractResolver

MAX_REDIRECTS = 3
MAX_URL_CHARS = 8192
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
OK_STATUS = 200
CHUNK_BYTES = 64 * 1024
RESOLVER_THREADS = 8
CLOUD_METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "instance-data"})

BLOCKED_NETWORKS = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("168.63.129.16/32", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
            *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/3"),
            *(
                "::/3",
                "2001::/23",
                "2001:db8::/32",
                "2002::/16",
                "2620:4f:8000::/48",
                "3fff::/20",
                "4000::/2",
                "8000::/1",
            ),
        ),
    )
)
"""Networks that are not public: IANA's special-purpose addresses, also those with an IPv4 address in IPv6, and
168.63.129.16, where machines in Azure get their metadata. Of IPv6 only 2000::/3 is assigned to hosts.

https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
"""

ALLOWED_MEDIA_TYPES = ("image/", "text/", "application/pdf", "application/json", "application/octet-stream")
"""Starts of media types that are accepted; a page of HTML is text."""


class FetchedFile(NamedTuple):
    """A fetched file; `media_type` has no parameters."""

    name: str
    media_type: str
    content: bytes


class FetchFile(Protocol):
    """Fetches a URL."""

    async def __call__(self, url: str, param: str) -> FetchedFile:
        """Return the file; `param` is the location of the URL in the request, for errors. Raises RequestRefused."""
        ...


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ResolveHost = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host and port; called in a thread. Raises OSError."""


def is_public_address(address: Address, blocked_networks: Sequence[Network] = ()) -> bool:
    """Whether an address is in none of `BLOCKED_NETWORKS` and of the networks that the operator adds."""
    # ::ffff:127.0.0.1 is loopback.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_public_address(address.ipv4_mapped, blocked_networks)
    return not any(address in network for network in (*BLOCKED_NETWORKS, *blocked_networks))


def make_address_check(blocked_networks: Sequence[str]) -> Callable[[Address], bool]:
    """Return the check of addresses that clients name, with the operator's `serve.blocked_networks`."""
    return partial(is_public_address, blocked_networks=tuple(map(ip_network, blocked_networks)))


def resolve_host(host: str, port: int) -> Sequence[str]:
    """Resolve a host by the operating system, also in the decimal, octal and hexadecimal forms of addresses."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


@cache
def _resolver_threads() -> ThreadPoolExecutor:
    """Return threads for resolving only: a name server that does not answer would fill those of the whole process."""
    return ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolve")


class RemoteFiles:
    """Implements `FetchFile` for http and https.

    max_bytes:   of one file
    timeout_s:   for one file, redirects included
    is_allowed:  whether a connection may be made to an address
    """

    def __init__(
        self, *, max_bytes: int, timeout_s: float, resolve: ResolveHost = resolve_host,
        is_allowed: Callable[[Address], bool] = is_public_address,
    ) -> None:  # fmt: skip
        self._max_bytes, self._timeout_s = max_bytes, timeout_s
        self._resolve, self._is_allowed = resolve, is_allowed

    async def __call__(self, url: str, param: str) -> FetchedFile:
        from aiohttp import ClientError

        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch(url, param)
        except TimeoutError as error:
            raise _refused(param, f"the server did not send the file in {self._timeout_s:g} seconds") from error
        except (ClientError, OSError, ValueError) as error:  # ValueError: a URL that cannot be parsed
            raise _refused(param, "the file could not be downloaded") from error

    async def resolve_public(self, url: str, param: str) -> tuple[str, Sequence[str]]:
        """Return the host and the allowed addresses of a URL. Raises RequestRefused."""
        if len(url) > MAX_URL_CHARS:
            raise _refused(param, f"the URL is longer than {MAX_URL_CHARS} characters")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise _refused(param, "the URL is not an http or https URL")
        if parts.username is not None or parts.password is not None:
            raise _refused(param, "the URL contains credentials")
        host = (parts.hostname or "").rstrip(".").lower()
        if not host or host in CLOUD_METADATA_HOSTS:
            raise _refused(param, "the URL has no public host")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            loop = asyncio.get_running_loop()
            addresses = await loop.run_in_executor(_resolver_threads(), self._resolve, host, port)
        except (OSError, UnicodeError) as error:
            raise _refused(param, "the host of the URL is unknown") from error
        if not addresses or not all(self._is_allowed(ip_address(one.partition("%")[0])) for one in addresses):
            raise _refused(param, "the URL leads to an address that is not public")
        return host, addresses

    async def _fetch(self, url: str, param: str) -> FetchedFile:
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector

        for _ in range(MAX_REDIRECTS + 1):
            host, addresses = await self.resolve_public(url, param)
            # Resolved once: a second look-up could lead to another address than the one that was checked.
            connector = TCPConnector(resolver=_make_fixed_resolver(host, addresses), use_dns_cache=False)
            async with (
                ClientSession(
                    connector=connector, cookie_jar=DummyCookieJar(), trust_env=False, auto_decompress=False,
                    headers={"accept-encoding": "identity", "user-agent": "convo"},
                ) as session,
                session.get(_with_host(url, host), allow_redirects=False, max_line_size=MAX_URL_CHARS) as response,
            ):  # fmt: skip
                if response.status in REDIRECT_STATUSES and "location" in response.headers:
                    url = urljoin(url, response.headers["location"])
                    continue
                return await self._read(response, url, param)
        raise _refused(param, f"the URL has more than {MAX_REDIRECTS} redirects")

    async def _read(self, response: "ClientResponse", url: str, param: str) -> FetchedFile:
        if response.status != OK_STATUS:
            raise _refused(param, f"the server responded with status {response.status}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused(param, "the server sent a compressed response")
        media_type = response.content_type.lower()
        if not media_type.startswith(ALLOWED_MEDIA_TYPES):
            raise _refused(param, f"files of the media type '{media_type[:64]}' are not accepted")
        if (response.content_length or 0) > self._max_bytes:
            raise _refused(param, f"the file is larger than {self._max_bytes:,} bytes")
        content = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            content += chunk
            if len(content) > self._max_bytes:
                raise _refused(param, f"the file is larger than {self._max_bytes:,} bytes")
        name = PurePosixPath(unquote(urlsplit(url).path)).name or "file"
        return FetchedFile(name[:255], media_type, bytes(content))


def make_file_fetcher(settings: FileSettings, blocked_networks: Sequence[str] = ()) -> FetchFile | None:
    """Return the function that fetches URLs of files; None if the settings do not allow it."""
    if not settings.fetch_urls:
        return None
    is_allowed = make_address_check(blocked_networks)
    return RemoteFiles(max_bytes=settings.max_file_bytes, timeout_s=settings.fetch_s, is_allowed=is_allowed)


def _with_host(url: str, host: str) -> str:
    """Return the URL with the host as it was resolved, so that the client asks the resolver for the same host."""
    parts = urlsplit(url)
    shown_host = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=shown_host + (f":{parts.port}" if parts.port else "")).geturl()


def _make_fixed_resolver(host: str, addresses: Sequence[str]) -> "AbstractResolver":
    """Return an aiohttp resolver for one host, with its checked addresses."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class FixedResolver(AbstractResolver):
        async def resolve(
            self, name: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            if name.rstrip(".").lower() != host:
                raise OSError(f"unexpected host {name}")
            return [
                ResolveResult(
                    hostname=name,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        async def close(self) -> None:
            """Do nothing."""

    return FixedResolver()


def _refused(param: str, reason: str) -> RequestRefused:
    return RequestRefused(f"Error while downloading a file: {reason}", code="invalid_file_url", param=param)
