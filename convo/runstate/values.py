"""The application's own values, on their way into a state and out of it.

A mapping of JSON values is kept and comes back as it was. Anything else a state can only describe:
it is refused here rather than written as something that it is not, unless whoever keeps it says by
name how it becomes a mapping.
"""

from collections.abc import Mapping

from convo.errors import InputFault, NotCanonical
from convo.items import Json, hash_of
from convo.runstate.paths import at
from convo.tools import NO_VALUES

NONE = {"original_type": "none", "serialized_via": "none", "requires_deserializer": False, "omitted": False}
MAPPING = {**NONE, "original_type": "mapping", "serialized_via": "mapping"}


def context(values: Mapping[str, Json], base: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """The members of a state's context that hold `values`; those of `base` where they hold the same.

    raises:  InputFault  a value is not JSON
    """
    if base and (base.get("context") or {}) == values:
        return {key: base[key] for key in ("context", "context_meta") if key in base}
    if not isinstance(values, Mapping):
        raise InputFault(f"the context is a {type(values).__name__}, and only a mapping comes back as it was")
    for name, value in values.items():
        _check(name, value)
    return {"context": dict(values) or None, "context_meta": MAPPING if values else NONE}


def values_of(document: Json) -> Mapping[str, Json]:
    """The application's own values; NO_VALUES where it gave none. raises: InputFault  they were no mapping"""
    said, meta = described(document), at(document, ("context", "context_meta")) or {}
    if meta.get("omitted") or meta.get("requires_deserializer") or not isinstance(said or {}, dict):
        kinds = meta.get("class_path") or meta.get("original_type") or "no mapping"
        raise InputFault(
            f"the context of this run was {kinds}, which a state only describes",
            hint="--context FILE.json, or FILE.py:NAME of what makes values of it",
        )
    return NO_VALUES if said is None else dict(said)


def described(document: Json) -> Json:
    """The application's own context as a state describes it: a mapping, the fields of something else, or nothing."""
    return at(document, ("context", "context"))


def _check(name: str, value: Json) -> None:
    try:
        hash_of({name: value})
    except NotCanonical as wrong:
        raise InputFault(f"the context's {name!r} is not JSON, and would not come back as it was") from wrong
