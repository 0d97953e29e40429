"""JSON taken apart into its form and its figures.

The usage of a call is a hundred and fifty bytes of names around a few figures, and the names are
the same after every call. So the form is kept once and each link keeps its figures.
"""

from collections.abc import Iterator

from convo.items import Json
from convo.stores.verbatim import dumps, loads


def mould(value: Json) -> tuple[Json, str | None]:
    """The form of `value`, with 0 for every whole number, and the numbers as "1,2,3".

    returns:  (None, None) for None
    """
    if value is None:
        return None, None
    figures: list[int] = []
    form = _emptied(value, figures)
    return form, dumps(figures)[1:-1]


def cast(form: Json, figures: str) -> Json:
    """The value that `mould` took apart."""
    return _filled(form, iter(loads(f"[{figures}]")))


def _emptied(value: Json, figures: list[int]) -> Json:
    if isinstance(value, dict):
        return {key: _emptied(inner, figures) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_emptied(inner, figures) for inner in value]
    if _is_figure(value):
        figures.append(value)
        return 0
    return value


def _filled(form: Json, figures: Iterator[int]) -> Json:
    if isinstance(form, dict):
        return {key: _filled(inner, figures) for key, inner in form.items()}
    if isinstance(form, list):
        return [_filled(inner, figures) for inner in form]
    return next(figures) if _is_figure(form) else form


def _is_figure(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
