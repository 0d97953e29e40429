"""Secrets in a RunState: everyone who gets the file can read them.

A state is sent around: to a queue, to a person who decides, into a ticket. The Agents SDK writes the context of the
run into it, and with `include_tracing_api_key` the key for traces. A finding names the place and the kind, never
the value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from convo.inspection.linting.finding import Change, Fault
from convo.inspection.linting.view import View
from convo.inspection.secrets import MARK, RULES, SECRET_NAME
from convo.items import Json

CODE = "secret-in-state"

KINDS = {
    "private-key": "a private key",
    "api-key": "an API key",
    "token": "a token",
    "password": "a password",
}
"""The kinds of secrets that give access; addresses and cards are not searched for here."""

SEALED = frozenset({"encrypted_content"})
"""Fields whose value only its maker can read."""

SHORTEST, CACHED = 8, 100
"""Characters: no rule takes less for a secret; names and words up to 100 come again and again."""

PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class Exposed(NamedTuple):
    """A secret: its JSON path below the document, and its kind in words."""

    path: str
    words: str


def exposed_in(document: Mapping[str, Json]) -> tuple[Exposed, ...]:
    """The secrets in a document, in its order. A name that is itself a secret is written as `*`."""
    return tuple(_walk(document))


def _walk(document: Json) -> Iterator[Exposed]:
    ahead: list[tuple[str, str, Json]] = [("", "", document)]
    while ahead:
        path, name, value = ahead.pop()
        if isinstance(value, Mapping):
            for field in value:
                if words := _kind(field):
                    yield Exposed(f"{path}.*", words)
            inside = [
                (f"{path}{_step(field)}", "" if "logprob" in value else field, one) for field, one in value.items()
            ]
            ahead += reversed(inside)
        elif isinstance(value, list):
            ahead += reversed([(f"{path}[{at}]", name, one) for at, one in enumerate(value)])
        elif isinstance(value, str) and name not in SEALED and (words := _named(name, value) or _kind(value)):
            yield Exposed(path, words)


def _step(field: str) -> str:
    if _kind(field):
        return ".*"
    return f".{field}" if PLAIN_NAME.fullmatch(field) else f"[{field!r}]"


def _named(name: str, value: str) -> str:
    """The kind of a value whose field is named like a secret."""
    said = value.strip()
    is_one = SECRET_NAME.fullmatch(name) and said and MARK not in said and _kind(value) not in KINDS.values()
    return f"a secret, by the name of its field ({name})" if is_one else ""


def _kind(value: str) -> str:
    """The kind of the first secret in a text; "" for none."""
    if len(value) < SHORTEST:
        return ""
    return _kind_of_short(value) if len(value) <= CACHED else _kind_of(value)


def _kind_of(value: str) -> str:
    return next((KINDS[rule.kind] for rule in RULES if rule.kind in KINDS and rule.is_in(value)), "")


_kind_of_short = lru_cache(maxsize=4096)(_kind_of)


def secret_in_state(view: View) -> Iterator[Fault]:
    """A value that looks like a secret, in the state that the items were read from."""
    for path, words in view.exposed:
        yield Fault(f"the file seems to contain {words}", field=path)


def leave_in_state(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """A history that is made of the items does not have the state around them; the file stays as it is."""
    why = "the repaired history has no context; texts of messages are not changed"
    return replace(view, exposed=()), [Change(CODE, "dropped", f"{fault.message}: {why}") for fault in faults]
