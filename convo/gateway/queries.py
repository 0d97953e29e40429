"""What may stand behind the question mark, and how it is read.

A route names its parameters; one that it does not name is refused by its name, as a field of a
body is. Lists come as `include=a&include=b` and, as the openai package writes them, as `include[]=a`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from convo.endpoints.contract import INCLUDABLE
from convo.gateway import refusals
from convo.items import Json


@dataclass(frozen=True, slots=True)
class Query:
    """One parameter.

    read:    its value from the words that were given; raises `Refused`
    schema:  the same as JSON Schema, for the document of this API
    many:    whether it may be given more than once
    """

    name: str
    read: Callable[[str, str], Any]
    schema: Mapping[str, Json]
    words: str
    many: bool = False


def string(name: str, said: str) -> str:
    return said


def integer(name: str, said: str) -> int:
    digits = said.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise refusals.wrong_type(name, "an integer")
    return int(said)


def _boolean(name: str, said: str) -> bool:
    if said not in ("true", "false"):
        raise refusals.wrong_type(name, "a boolean")
    return said == "true"


def _included(name: str, said: str) -> str:
    if said not in INCLUDABLE:
        raise refusals.wrong_value(name, said, INCLUDABLE)
    return said


def _order(name: str, said: str) -> str:
    if said not in ("asc", "desc"):
        raise refusals.wrong_value(name, said, ("asc", "desc"))
    return said


INCLUDE = Query(
    "include",
    _included,
    {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}},
    "What to show as well; everything that is kept is shown in any case.",
    many=True,
)
PAGING = (
    Query("limit", integer, {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Items on a page."),
    Query("order", _order, {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "By age."),
    Query("after", string, {"type": "string"}, "The id of the item that the page begins behind."),
    Query("before", string, {"type": "string"}, "The id of the item that the page ends before."),
)
LISTING = (*PAGING, INCLUDE)
STREAM = Query("stream", _boolean, {"type": "boolean", "default": False}, "Answer with server-sent events.")
STARTING_AFTER = Query(
    "starting_after", integer, {"type": "integer"}, "The sequence number of the event to go on behind."
)
OBFUSCATION = Query("include_obfuscation", _boolean, {"type": "boolean"}, "Padding of events; there is none.")


def read(raw: bytes, known: Sequence[Query]) -> dict[str, Any]:
    """The parameters in a query string, by name; lists as lists.

    raises:  Refused  an unknown one, one that is given twice, or a wrong value
    """
    if not raw:
        return {}
    found: dict[str, Any] = {}
    by_name = {query.name: query for query in known}
    for said_name, said in parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="replace"):
        name = said_name.removesuffix("[]")
        query = by_name.get(name)
        if query is None or (said_name != name and not query.many):
            raise refusals.unknown_parameter(said_name)
        if query.many:
            found.setdefault(name, []).append(query.read(name, said))
        elif name in found:
            raise refusals.given_twice(name)
        else:
            found[name] = query.read(name, said)
    return found


def paging(query: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that an endpoint's lists take."""
    return {name: value for name, value in query.items() if name != "include"}
