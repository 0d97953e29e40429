"""What may stand in a settings file, as data, and the walk that holds a file against it.

`SHAPE` is the whole list: a table in it is a table in the file, and a check is a value. The walk
flattens a document into leaves, (key, value) pairs that are right each for itself, so that layers
can be laid over each other value by value. The first thing that is wrong ends it, by file and key.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, cast

from convo.config.checks import (
    Check,
    Unfit,
    amount,
    at_least,
    folders,
    kind,
    nearest,
    one_of,
    part_or_tokens,
    patterns,
    port,
    seconds,
    some_of,
    tenant,
    text,
    url,
    variable,
    yes_or_no,
)
from convo.config.durations import duration, durations
from convo.config.origin import Key, dotted
from convo.config.prices import Price, Room
from convo.config.providers import EXTRA_FIELDS, FILE_APIS, OWNERS_OF
from convo.config.rates import KeyLimits
from convo.config.storage import TYPES, from_table
from convo.errors import BadSettings


class Named(NamedTuple):
    """A table whose names are the writer's own; `check` looks at a name."""

    check: Callable[[str], None]
    shape: "Shape"


class Whole(NamedTuple):
    """A table that is one value: a layer gives all of it or none."""

    shape: "Shape"
    make: Callable[[Mapping[str, object]], object]


Shape: TypeAlias = Check | Mapping[str, "Shape"] | Named | Whole


def provider_name(name: str) -> None:
    if not name or "/" in name or name != name.strip():
        raise Unfit("is not a provider's name: one word without '/'")


def alias_name(name: str) -> None:
    if not name or "/" in name or name != name.strip():
        raise Unfit("is not an alias: one word without '/'")


def profile_name(name: str) -> None:
    if not name or name != name.strip():
        raise Unfit("is not a profile's name: one word")


def model_name(name: str) -> None:
    provider, slash, model = name.partition("/")
    if not (provider and slash and model):
        raise Unfit("is not a model's full name, provider/model", hint='write it in quotes: "provider/model"')


def price(table: Mapping[str, object]) -> Price:
    figures = cast(Mapping[str, float], table)
    if missing := [name for name in ("input", "output") if name not in figures]:
        raise Unfit(
            f"needs {' and '.join(missing)}, in USD per million tokens",
            hint=f"add {' and '.join(f'{name} = 0.25' for name in missing)}, or what the model costs",
        )
    plain = figures["input"]
    return Price(plain, figures["output"], figures.get("cached", plain), figures.get("written", plain))


def room(table: Mapping[str, object]) -> Room:
    figures = cast(Mapping[str, int], table)
    if "context" not in figures:
        raise Unfit("needs context, in tokens", hint="add context = 128000, or how many tokens the model takes")
    return Room(figures["context"], figures.get("output"))


PROVIDER: dict[str, Shape] = {
    "api": one_of(*FILE_APIS),
    "base_url": url,
    "key_env": variable,
    "token_env": variable,
    "owner": one_of(*OWNERS_OF),
    "organisation": text,
    "project": text,
    "api_version": text,
    "deployment": text,
    "key_file": text,
    "keyring": yes_or_no,
    "extra_fields": some_of(*EXTRA_FIELDS),
}


def key_limits(table: Mapping[str, object]) -> KeyLimits:
    said = cast(Mapping[str, int], table)
    return KeyLimits(concurrent=said.get("concurrent"), per_minute=said.get("per_minute"))


def key_name(name: str) -> None:
    tenant(name)


RATE = at_least(0, most=100_000)

KEY_LIMITS: dict[str, Shape] = {"concurrent": RATE, "per_minute": RATE}

SERVE: dict[str, Shape] = {
    "host": text,
    "port": port,
    "keys_file": text,
    "seal_key_env": variable,
    "max_body_bytes": at_least(1024),
    "max_header_bytes": at_least(1024),
    "max_depth": at_least(10, most=500),
    "max_items": at_least(1),
    "max_requests": at_least(1),
    "read_s": seconds,
    "write_s": seconds,
    "keepalive_s": seconds,
    "grace_s": seconds,
    "reasoning_events": one_of("openai", "specification"),
    "limits": {
        **KEY_LIMITS,
        "process_per_minute": RATE,
        "keys": Named(key_name, Whole(KEY_LIMITS, key_limits)),
    },
}

LIMITS: dict[str, Shape] = {
    "answer_bytes": at_least(1024),
    "answer_events": at_least(10),
    "answer_s": seconds,
    "idle_s": seconds,
    "event_bytes": at_least(1024),
    "output_bytes": at_least(1024),
    "body_bytes": at_least(1024),
}

STORAGE: dict[str, Shape] = {
    "type": one_of(*TYPES),
    "connection_string": text,
    "ttl": duration,
    "ttls": durations,
}

PRICE: dict[str, Shape] = {"input": amount, "cached": amount, "written": amount, "output": amount}

SETTINGS: dict[str, Shape] = {
    "model": text,
    "tenant": tenant,
    "compact_at": part_or_tokens,
    "editing": one_of("emacs", "vi", "plain"),
    "answers": one_of("markdown", "plain"),
    "redact": patterns,
    "providers": Named(provider_name, PROVIDER),
    "aliases": Named(alias_name, text),
    "state_storage": Whole(STORAGE, from_table),
    "serve": SERVE,
    "limits": LIMITS,
    "prices": Named(model_name, Whole(PRICE, price)),
    "windows": Named(model_name, Whole({"context": at_least(1), "output": at_least(1)}, room)),
}

SHAPE: dict[str, Shape] = {
    **SETTINGS,
    "trusted": folders,
    "profile": text,
    "profiles": Named(profile_name, SETTINGS),
}

MEANT = {
    "api_key": "key_env",
    "key": "key_env",
    "token": "token_env",
    "organization": "organisation",
    "url": "base_url",
    "connection": "connection_string",
}
"""What people write where they mean another name."""


def leaves(document: Mapping[str, object], place: str) -> Iterator[tuple[Key, object]]:
    """Every value of a parsed file with its key, checked.

    place:   the file's full name, for errors
    raises:  BadSettings  an unknown key, a wrong type, a value out of its range
    """
    return _walk((), document, SHAPE, place)


def fitting_leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    """Every value at and below `key` of an untrusted file, each with its key. Never raises.

    A value is None where it is invalid or no setting, as it may be a secret in the wrong place, and
    for regular expressions, as trying one can take forever.
    """
    shape: Shape | None = SHAPE
    for name in key:
        shape = _shape_below(name, shape)
    yield from _fitting_leaves(key, value, shape)


def _fitting_leaves(key: Key, value: object, shape: Shape | None) -> Iterator[tuple[Key, object]]:
    if isinstance(shape, Named | Mapping) and isinstance(value, dict):
        for name, below in value.items():
            yield from _fitting_leaves((*key, name), below, _shape_below(name, shape))
        return
    if shape is None or shape is patterns:
        yield key, None
        return
    try:
        yield from _walk(key, value, shape, "")
    except BadSettings:
        yield key, None


def _shape_below(name: str, shape: Shape | None) -> Shape | None:
    """The shape of what `name` is in a table of this shape; None where it has no such setting."""
    if isinstance(shape, Named):
        try:
            shape.check(name)
        except Unfit:
            return None
        return shape.shape
    return shape.get(name) if isinstance(shape, Mapping) else None


def checked(key: Key, value: object, check: Check, place: str) -> object:
    """`value` as `check` returns it. raises: BadSettings  names place and key"""
    try:
        return check(value)
    except Unfit as unfit:
        raise BadSettings(f"{place}: '{dotted(key)}' {unfit}", hint=unfit.hint) from unfit


def check_at(key: Key) -> Check:
    """The check of the value at `key`, which is in `SHAPE`."""
    shape: Shape = SHAPE
    for name in key:
        shape = shape.shape if isinstance(shape, Named) else cast(Mapping[str, Shape], shape)[name]
    assert callable(shape)
    return shape


def shape_at(key: Key, place: str) -> Shape:
    """What may stand at `key`, which somebody named. raises: BadSettings  there is no such setting"""
    shape: Shape = SHAPE
    for depth in range(1, len(key) + 1):
        while isinstance(shape, Whole):
            shape = shape.shape
        if callable(shape):
            raise BadSettings(f"{place}: '{dotted(key[: depth - 1])}' is one value and no table")
        shape = _below(key[:depth], shape, place, hint=_another(key[:depth], shape))
    return shape


def _walk(key: Key, value: object, shape: Shape, place: str) -> Iterator[tuple[Key, object]]:
    if callable(shape):
        yield key, checked(key, value, shape, place)
        return
    if not isinstance(value, dict):
        raise BadSettings(f"{place}: '{dotted(key)}' must be a table, not {kind(value)}")
    if isinstance(shape, Whole):
        inner = {key[-1]: found for key, found in _walk(key, value, shape.shape, place)}
        yield key, checked(key, inner, cast(Check, shape.make), place)
        return
    for name, below in value.items():
        yield from _walk((*key, name), below, _below((*key, name), shape, place), place)


def _below(key: Key, shape: Mapping[str, Shape] | Named, place: str, *, hint: str | None = None) -> Shape:
    """The shape of what stands at `key`, whose table has `shape`; `hint` is what to do where it has no such name."""
    if isinstance(shape, Named):
        checked(key, key[-1], cast(Check, shape.check), place)
        return shape.shape
    if key[-1] not in shape:
        raise BadSettings(f"{place}: no setting '{dotted(key)}'; {_advice(key[-1], shape)}", hint=hint)
    return shape[key[-1]]


def _advice(name: str, known: Mapping[str, Shape]) -> str:
    near = _meant(name, known)
    return f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"


def _another(key: Key, shape: Mapping[str, Shape] | Named) -> str | None:
    """How the setting is set that is meant by `key`, or the first one that there is; None where a name is free."""
    if isinstance(shape, Named):
        return None
    near = _meant(key[-1], shape)
    words = f"convo config set {dotted((*key[:-1], near or next(iter(shape))))} VALUE"
    return words if near else f"{words}, or another one of these"


def _meant(name: str, known: Mapping[str, Shape]) -> str | None:
    meant = MEANT.get(name)
    return meant if meant in known else nearest(name, known)
