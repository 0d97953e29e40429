"""From where a server without keys lets itself be asked.

It listens on this machine alone. That keeps other machines out, and not the web pages that a
browser on this machine shows: a page may point a name of its own at 127.0.0.1 (DNS rebinding), or
send a request across origins without being able to read the answer. So the Host header has to be
an address of this machine, and an Origin has to be the server's own. No CORS header is ever sent.
"""

from collections.abc import Mapping
from functools import lru_cache

from convo.config.trust import is_loopback
from convo.gateway import refusals

_is_loopback = lru_cache(maxsize=256)(is_loopback)
"""Every request asks."""


def check(headers: Mapping[bytes, bytes]) -> None:
    """raises: Refused  a web page stands behind the request"""
    host = headers.get(b"host", b"").decode("latin-1")
    if host and not _is_loopback(without_port(host)):
        raise refusals.foreign_host(host)
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        raise refusals.foreign_origin(origin)


def without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
