"""The forms that records have in every database.

What queries ask for stands in columns, the rest as JSON. The usage of a call is a hundred and fifty
bytes of names around a few figures, and the names are the same after every call: so its form is
kept once, with the other things that call after call repeats, and each link keeps its figures.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from convo.history import Key, Link, Scope, Session, Strategy
from convo.items import Json
from convo.stores.verbatim import dumps, loads

PARENTS_ID = ""
"""Stands in `previous` for the parent's own id, which a chain's request nearly always names."""


def link_of(row: Sequence[Any]) -> Link:
    """A link from its columns.

    row:  id, parent, session, saw, head, sent, route, status, created_at, previous, seconds,
          first_token_s, parameters, usage, error; keys as bytes, JSON as text
    """
    (link_id, parent, session, saw, head, sent, route, status, created_at, previous, *rest) = row
    (seconds, first_token_s, parameters, figures, error) = rest
    model, strategy, url, organisation, project, conversation, stored, form = loads(route)
    return Link(
        id=link_id,
        saw=Key(saw.hex()),
        head=Key(head.hex()),
        sent=sent,
        model=model,
        strategy=Strategy(strategy),
        status=status,
        created_at=created_at,
        parent=parent,
        session=session,
        scope=Scope(url, organisation, project),
        conversation_id=conversation,
        previous_response_id=parent if previous == PARENTS_ID else previous,
        seconds=seconds,
        first_token_s=first_token_s,
        parameters=loads(parameters) if parameters else {},
        usage=cast(form, figures) if figures is not None else None,
        error=loads(error) if error else None,
        stored=stored,
    )


def route_of(made: Link) -> tuple[list[Json], str | None]:
    """What call after call repeats of a link, and the figures of its usage."""
    form, figures = mould(made.usage)
    place = [made.scope.url, made.scope.organisation, made.scope.project]
    return [made.model, made.strategy, *place, made.conversation_id, made.stored, form], figures


def previous_of(made: Link) -> str | None:
    """What stands in `previous`."""
    chained = made.parent is not None and made.previous_response_id == made.parent
    return PARENTS_ID if chained else made.previous_response_id


def session_of(row: Sequence[Any]) -> Session:
    """A session from its columns.

    row:  id, name, head, mark, written, link, used_at, record, used; keys as bytes
    """
    session_id, name, head, mark, written, link, used_at, text, used = row
    strategy, model, created_at, url, organisation, project, handle, instructions = loads(text)
    return Session(
        id=session_id,
        name=name,
        strategy=Strategy(strategy),
        model=model,
        head=Key(head.hex()),
        mark=Key(mark.hex()),
        created_at=created_at,
        used_at=used_at,
        scope=Scope(url, organisation, project),
        link=link,
        handle=handle,
        written=Key(written.hex()) if written else None,
        instructions=instructions,
        use=used,
    )


def record_of(made: Session) -> str:
    """What stands in a session's `record`. raises: NotCanonical"""
    place = [made.scope.url, made.scope.organisation, made.scope.project]
    return dumps([made.strategy, made.model, made.created_at, *place, made.handle, made.instructions])


# -- moulds ---------------------------------------------------------------------------------------


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
