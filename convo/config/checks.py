"""What a single value may be.

A check takes what TOML, a flag or a variable gave and returns it in its own type, or raises `Unfit`
with the end of a sentence: whoever knows the file and the key writes its beginning. No check
repeats the value it refuses: the wrong value may be a key in the wrong place.
"""

import re
from collections.abc import Callable, Collection
from math import isfinite
from typing import TypeAlias
from urllib.parse import urlsplit

from convo.config.secret import names_a_variable

Check: TypeAlias = Callable[[object], object]

PORTS = 65_536
DAY_S = 86_400


class Unfit(ValueError):
    """A value cannot be used; the message goes on after "FILE: 'key'", as in "must be a string".

    hint:  what to do about it, where that is more than to mend the value
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}


def kind(value: object) -> str:
    """What TOML calls a value of this type."""
    return KINDS.get(type(value), "a date or time")


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(f"must be a string, not {kind(value)}")
    if not value.strip():
        raise Unfit("must not be empty")
    return value.strip()


TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""What a tenant may be called: the name of a key."""


def tenant(value: object) -> str:
    name = text(value)
    if not TENANT.fullmatch(name):
        raise Unfit("must be a key's name: up to 64 letters, digits and . _ @ -, a letter or digit first")
    return name


def variable(value: object) -> str:
    """The name of an environment variable, never what it holds."""
    name = text(value)
    if not names_a_variable(name):
        raise Unfit("must be the name of an environment variable; what stands there may be a key and is not shown")
    return name


def url(value: object) -> str:
    """A base URL without the slash at its end. It is stored with every handle, so it holds no secret."""
    base = text(value).rstrip("/")
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise Unfit("must be a URL: http:// or https://, a host, and a path if there is one")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Unfit("must be a URL without a user, a password or a query; a key belongs in a variable")
    return base


def port(value: object) -> int:
    if type(value) is not int:
        raise Unfit(f"must be a whole number, not {kind(value)}")
    if not 0 <= value < PORTS:
        raise Unfit(f"must be a port from 0 (any free one) to {PORTS - 1}", hint="choose a port, such as 8788")
    return value


def yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unfit(f"must be true or false, not {kind(value)}")
    return value


def amount(value: object) -> float:
    """USD, at least nothing."""
    if type(value) not in (int, float):
        raise Unfit(f"must be a number, not {kind(value)}")
    assert isinstance(value, int | float)
    if not (isfinite(value) and value >= 0):
        raise Unfit("must be a finite number that is not negative")
    return float(value)


def part_or_tokens(value: object) -> float | int:
    """A part of something, up to 1, or more than 1 and tokens; 0 for never."""
    found = amount(value)
    if found > 1 and type(value) is not int:
        raise Unfit("must be a part up to 1, or a whole number of tokens")
    return int(found) if found > 1 else found


def patterns(value: object) -> tuple[str, ...]:
    """Regular expressions, each of which fits at least one character."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise Unfit("must be an array of regular expressions")
    for one in value:
        try:
            empty = re.compile(one).match("")
        except (re.error, OverflowError, RecursionError) as wrong:
            raise Unfit(f"holds {one!r}, which is no regular expression: {wrong}") from wrong
        if empty:
            raise Unfit(f"holds {one!r}, which fits nothing at all and would be found everywhere")
    return tuple(value)


def folders(value: object) -> tuple[str, ...]:
    """Folders, each with its whole path."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one[:1] in ("/", "~") for one in value):
        hint = """convo config set trusted '["/home/you/work"]'"""
        raise Unfit("must be an array of folders with their whole paths", hint=hint)
    return tuple(value)


def at_least(least: int, *, most: int | None = None) -> Check:
    """A whole number that is not below `least`, nor above `most`."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"

    def check(value: object) -> int:
        if type(value) is not int:
            raise Unfit(f"must be a whole number, not {kind(value)}")
        if value < least or (most is not None and value > most):
            raise Unfit(f"must be {bounds}")
        return value

    return check


def seconds(value: object) -> float:
    """A time that is more than nothing, and not longer than a day."""
    if type(value) not in (int, float):
        raise Unfit(f"must be a number of seconds, not {kind(value)}")
    assert isinstance(value, int | float)
    if not 0 < value <= DAY_S:
        raise Unfit(f"must be more than 0 and at most {DAY_S} seconds")
    return float(value)


def one_of(*known: str) -> Check:
    """One of a few words."""

    def check(value: object) -> str:
        word = text(value)
        if word not in known:
            raise Unfit(f"must be one of {', '.join(known)}")
        return word

    return check


def some_of(*known: str) -> Check:
    """Check an array of words among `known`; duplicates are dropped."""

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one in known for one in value):
            raise Unfit(f"must be an array of some of {', '.join(known)}")
        return tuple(dict.fromkeys(value))

    return check


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that `word` was probably meant to be."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1)), None)
