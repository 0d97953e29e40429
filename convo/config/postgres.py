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
PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_ -]*\]|<[A-Za-z][A-Za-z0-9_ -]*>|\{\{?[A-Za-z][A-Za-z0-9_ -]*\}?\}")
"""A place of a template that is to be filled in: [USER], <host>, {{DATABASE}}."""

NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")


PASSWORDS = ("password", "sslpassword")
"""The parameters of a URL that are secret."""


def check_url(url: str) -> None:
    """Make sure that `url` can only be read in one way. raises: Unfit"""
    if left := _placeholders(url):
        raise Unfit(
            f"still has {' and '.join(left)} from a template in it: write your own value there, as in"
            " postgresql://myuser@db.example.com:5432/postgres"
        )
    if NOT_IN_A_URL.search(url):
        raise Unfit("has a space or a line break in it, which no URL has; a space is %20")
    if not _is_plain(url):
        signs = ", ".join(f"{sign} as {quote(sign, safe='')}" for sign in SPECIAL)
        raise Unfit(
            f"cannot be read as a URL; in a user's name or a password these signs must be percent-encoded: {signs};"
            " the whole is postgresql://user@host:port/database, with :password after the user's name if there is one"
        )


def _placeholders(url: str) -> list[str]:
    """Placeholders of a template in `url`, such as [USER].

    A password counts where it is nothing but a place in square brackets, which a real one has percent-encoded.
    """
    who, at, rest = url.partition("?")[0].partition("://")[2].rpartition("@")
    if not at and "@" in url:  # the end of a password, perhaps
        return []
    user, _, password = who.partition(":")
    found = [match[0] for part in (user, rest) for match in PLACEHOLDER.finditer(part)]
    found += [match[0] for match in PLACEHOLDER.finditer(password) if match[0] == password and password[0] == "["]
    return list(dict.fromkeys(found))


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


def without_credentials(url: str) -> str:
    """A URL that was checked, without its password and its parameters, which may hold another one."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    authority, slash, database = rest.partition("/")
    who, at, hosts = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{hosts}{slash}{database}"


def without_password(url: str) -> str:
    """A URL that was checked, with all that it says but its passwords."""
    before, mark, query = url.partition("?")
    scheme, _, rest = before.partition("://")
    authority, slash, database = rest.partition("/")
    who, at, hosts = authority.rpartition("@")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in PASSWORDS]
    return f"{scheme}://{who.partition(':')[0]}{at}{hosts}{slash}{database}{mark if kept else ''}{'&'.join(kept)}"
