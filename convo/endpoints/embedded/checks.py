"""Checks of single values, as a table of requests is made of them.

A check takes the parameter's name and its value, and raises what the real API would answer.
Null stands for "not given" and never gets here.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from convo.endpoints.embedded import refusals
from convo.items import Json
from convo.items.ids import is_id

Check: TypeAlias = Callable[[str, Json], None]

WORDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)

MOST_METADATA, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512


def in_words(value: Json) -> str:
    return next((words for kind, words in WORDS if isinstance(value, kind)), "null")


def anything(name: str, value: Json) -> None:
    """Whatever it is, the model reads it."""


def string(*, longest: int | None = None) -> Check:
    def check(name: str, value: Json) -> None:
        if not isinstance(value, str):
            raise refusals.wrong_type(name, "a string", in_words(value))
        if longest is not None and len(value) > longest:
            raise refusals.too_long(name, "string", longest, len(value))

    return check


def handle(name: str, value: Json) -> None:
    """The id of something that an endpoint keeps."""
    string()(name, value)
    if not is_id(value):
        raise refusals.no_id(name, value)


def boolean(name: str, value: Json) -> None:
    if not isinstance(value, bool):
        raise refusals.wrong_type(name, "a boolean", in_words(value))


def integer(least: int, most: int | None = None) -> Check:
    def check(name: str, value: Json) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusals.wrong_type(name, "an integer", in_words(value))
        _within(name, "integer", value, least, most)

    return check


def whole(name: str, value: Json) -> None:
    """An integer of any size."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusals.wrong_type(name, "an integer", in_words(value))


def decimal(least: float, most: float) -> Check:
    def check(name: str, value: Json) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusals.wrong_type(name, "a decimal", in_words(value))
        _within(name, "decimal", value, least, most)

    return check


def _within(name: str, kind: str, value: float, least: float, most: float | None) -> None:
    if value < least:
        raise refusals.below(name, kind, least, value)
    if most is not None and not value <= most:
        raise refusals.above(name, kind, most, value)


def one_of(*known: str) -> Check:
    def check(name: str, value: Json) -> None:
        if not isinstance(value, str):
            raise refusals.wrong_type(name, "a string", in_words(value))
        if value not in known:
            raise refusals.wrong_value(name, value, known)

    return check


def array(name: str, value: Json) -> None:
    if not isinstance(value, list):
        raise refusals.wrong_type(name, "an array", in_words(value))


def object_(name: str, value: Json) -> None:
    if not isinstance(value, Mapping):
        raise refusals.wrong_type(name, "an object", in_words(value))


def fields(required: Mapping[str, Check] | None = None, optional: Mapping[str, Check] | None = None) -> Check:
    """An object with certain fields; what else it holds is left as it is."""

    def check(name: str, value: Json) -> None:
        object_(name, value)
        for field, inner in (required or {}).items():
            if value.get(field) is None:
                raise refusals.missing(f"{name}.{field}")
            inner(f"{name}.{field}", value[field])
        for field, inner in (optional or {}).items():
            if value.get(field) is not None:
                inner(f"{name}.{field}", value[field])

    return check


def each(inner: Check) -> Check:
    def check(name: str, value: Json) -> None:
        array(name, value)
        for at, one in enumerate(value):
            inner(f"{name}[{at}]", one)

    return check


def metadata(name: str, value: Json) -> None:
    """At most 16 pairs of strings."""
    object_(name, value)
    if len(value) > MOST_METADATA:
        raise refusals.too_many_properties(name, MOST_METADATA, len(value))
    for key, said in value.items():
        string(longest=LONGEST_KEY)(f"{name} key", key)
        string(longest=LONGEST_VALUE)(f"{name}.{key}", said)


def only(known: Collection[str], given: Collection[str], *, within: str = "") -> None:
    """raises: Refused  names the first field that nobody knows, `within` in front"""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise refusals.unknown_parameter(within + unknown[0])
