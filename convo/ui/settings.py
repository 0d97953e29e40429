"""Settings as a table: what holds, and who said so."""

from collections.abc import Sequence

from convo.config import Setting, Storage
from convo.config.origin import dotted
from convo.items import Json
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines


def table(there: Sequence[Setting], medium: Medium) -> str:
    """A line for each value, as TOML writes it where that differs from the word alone."""
    columns = [
        Column("setting", [dotted(one.key) for one in there], style="id"),
        Column("value", [shown(one.value) for one in there]),
        Column("origin", [str(one.origin) for one in there]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def as_rows(there: Sequence[Setting]) -> list[Json]:
    """The same for programs."""
    return [
        {
            "key": dotted(one.key),
            "value": _as_json(one.value),
            "layer": one.origin.layer.name.lower(),
            "profile": one.origin.profile or None,
            "place": one.origin.place,
        }
        for one in there
    ]


def shown(value: object) -> str:
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
