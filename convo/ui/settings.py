"""Settings as a table: what holds, and who said so."""

from collections.abc import Sequence

from convo.config import Setting, Storage
from convo.config.origin import LAYER_WORDS, dotted
from convo.config.trust import visible
from convo.items import Json
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

IGNORED = "ignored, "
"""Before the origin of a value that an untrusted file sets."""


def table(there: Sequence[Setting], medium: Medium, ignored: Sequence[Setting] = ()) -> str:
    """A line for each value, as TOML writes it where that differs from the word alone; ignored ones come last."""
    every = [*there, *ignored]
    origins = [str(one.origin) for one in there] + [f"{IGNORED}{one.origin}" for one in ignored]
    columns = [
        Column("setting", [visible(dotted(one.key)) for one in every], style="id"),
        Column("value", [visible(shown(one.value)) for one in every]),
        Column("origin", [visible(origin) for origin in origins]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def as_rows(there: Sequence[Setting], ignored: Sequence[Setting] = ()) -> list[Json]:
    """The same for programs. Ignored values come first, so that by its key the one that holds is found last."""
    return [_as_row(one, ignored=True) for one in ignored] + [_as_row(one, ignored=False) for one in there]


def _as_row(one: Setting, *, ignored: bool) -> Json:
    return {
        "key": dotted(one.key),
        "value": None if one.value is None else _as_json(one.value),
        "layer": LAYER_WORDS[one.origin.layer],
        "profile": one.origin.profile or None,
        "place": one.origin.place,
        "ignored": ignored,
    }


def shown(value: object) -> str:
    if value is None:
        return "(not shown)"
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is tuple:
        return f"[{', '.join(map(repr, value))}]"
    if isinstance(value, Storage) and value.ttl is not None:
        return f"{value}, for {value.ttl:g} s"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _as_json(value: object) -> Json:
    if type(value) is tuple:
        return list(value)
    return value if isinstance(value, bool | int | float | str) else shown(value)
