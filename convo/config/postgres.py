"""The URL of a PostgreSQL server, looked at without a driver.

A password often holds a sign that means something in a URL, and then the URL says something else,
or nothing. It is told so here, where the words can explain it, and nothing of it is repeated.
What a server or a pooler wants to know behind the "?" is passed on as it is.
"""

import re
from urllib.parse import SplitResult, quote, urlsplit

from convo.config.checks import Unfit

SCHEMES = ("postgresql://", "postgres://")
SPECIAL = "@:/?#%[]"
"""The signs that a user's name or a password cannot hold as they are."""

HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@]*)(?::[0-9]*)?")
"""One host with its port; the name of a folder, for a socket, is percent-encoded."""

BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
PARAMETER = re.compile(r"[A-Za-z_]+=.*")
NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")


def check_url(url: str) -> None:
    """Make sure that `url` can only be read in one way. raises: Unfit"""
    if NOT_IN_A_URL.search(url):
        raise Unfit("has a space or a line break in it, which no URL has; a space is %20")
    if not _is_plain(url):
        signs = ", ".join(f"{sign} as {quote(sign, safe='')}" for sign in SPECIAL)
        raise Unfit(
            "cannot be read as a URL, postgresql://user:password@host:port/database; in a user's name or a"
            f" password these signs must be percent-encoded: {signs}"
        )


def _is_plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    who, _, hosts = parts.netloc.rpartition("@")
    return (
        not set("@[]") & set(who)
        and all(HOST.fullmatch(host) for host in hosts.split(","))
        and not BARE_PERCENT.search(url)
        and _ends_plainly(url, parts)
    )


def _ends_plainly(url: str, parts: SplitResult) -> bool:
    """Whether what stands behind the hosts is a database and parameters, and not half a password."""
    named = all(PARAMETER.fullmatch(part) for part in parts.query.split("&") if part)
    return "#" not in url and "@" not in parts.path and named


def shown(url: str) -> str:
    """A URL that was checked, without its password and its parameters, which may hold another one."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    authority, slash, database = rest.partition("/")
    who, at, hosts = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{hosts}{slash}{database}"
