"""Tables of sessions, search results and stored data."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.lookup import SessionSummary
from convo.history.items import Item
from convo.history.records import STRATEGY_INFO, Session
from convo.stores.base import PruneResult, TenantStats
from convo.terminal.terminal import Column, DisplayOptions, escape_control_chars, fit_columns, table_lines

if TYPE_CHECKING:
    from convo.inspect.view import OpenRun


class SearchResult(NamedTuple):
    """The location of a search result.

    item_number:  the item's number on its path, from 1
    item_count:   items of the session; None when the item is on a branch that is no longer current
    author:       the item's role, or else its type
    """

    session: Session
    at: int
    of: int | None
    who: str
    snippet: str

    def __str__(self) -> str:
        return f"{self.at}/{self.of}" if self.of else f"{self.at}, on a branch"


def render_session_list(glances: Sequence[SessionSummary], medium: DisplayOptions) -> str:
    """Render one line for each session."""
    sessions = [one.session for one in glances]
    columns = [
        Column("session", [one.name for one in sessions], style="id"),
        Column("owner", [str(one.strategy) for one in sessions], goes=3),
        Column("model", [one.model for one in sessions], goes=0),
        Column("items", [f"{one.items:,}" for one in glances], right=True, goes=2),
        Column("turns", [f"{one.turns:,}" for one in glances], right=True, goes=1),
        Column("used", [format_local_time(one.used_at) for one in sessions]),
        Column("first words", [one.words for one in glances]),
    ]
    return medium.drawn("\n".join(table_lines(fit_columns(columns, medium), medium)))


def render_session(
    glance: SessionSummary, said: Sequence[Item], medium: DisplayOptions, run: "OpenRun | None" = None
) -> str:
    """Render all fields of a session's record.

    unconfirmed:  items that the owner has not confirmed
    open_run:     the agent run that is open in the session
    """
    from convo.terminal.terminal import key_value_lines

    name = medium.paint(escape_control_chars(glance.session.name), "bold")
    return medium.drawn("\n".join([name, *key_value_lines(_session_rows(glance, said, run), medium)]))


def render_search_results(places: Sequence[SearchResult], medium: DisplayOptions) -> str:
    """Render one line for each item that a search found."""
    columns = [
        Column("session", [place.session.name for place in places], style="id"),
        Column("item", [str(place) for place in places]),
        Column("by", [place.who for place in places], goes=0),
        Column("words", [place.snippet for place in places]),
    ]
    return medium.drawn("\n".join(table_lines(fit_columns(columns, medium), medium)))


def format_local_time(at: float) -> str:
    """Format a time in the local time zone, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _session_rows(glance: SessionSummary, said: Sequence[Item], run: "OpenRun | None") -> list[tuple[str, str]]:
    from convo.terminal.status_line import describe_open_run, format_continue_command
    from convo.terminal.terminal import format_count, unconfirmed_rows

    session, on = glance.session, format_continue_command(glance.session, run)
    opened = describe_open_run(run) if run else ""
    unread = [*([("waiting", opened)] if opened else []), ("waiting", f"{format_count(glance.waiting)} unacknowledged")]
    system = [("system", session.instructions)] if session.instructions else []
    return [
        ("id", session.id),
        ("owner", f"{STRATEGY_INFO[session.strategy].words} (--{session.strategy})"),
        ("handle", session.handle or "none: its name is its handle"),
        ("endpoint", str(session.scope)),
        ("model", session.model),
        *system,
        ("head", f"{session.head[:12]}, {format_count(glance.items)}"),
        ("mark", f"{session.mark[:12]}, {format_count(glance.items - glance.waiting)} confirmed"),
        *(unconfirmed_rows(said, opened) if len(said) == glance.waiting else unread),
        ("turns", f"{glance.turns:,}"),
        ("created", format_local_time(session.created_at)),
        ("used", format_local_time(session.used_at)),
        *([("go on", on)] if on else []),
    ]


SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")
SIZE_UNIT_FACTOR = 1000

KIND_DROP_ORDER = {"places": 0, "events": 1, "items": 2}
"""Drop order of the columns on a narrow terminal."""


def render_tenant_stats(kept: Sequence[TenantStats], medium: DisplayOptions) -> str:
    """Render one line for each tenant."""
    columns = [
        Column("tenant", [one.tenant for one in kept], style="id"),
        *(
            Column(kind, [f"{one.rows[kind]:,}" for one in kept], right=True, goes=KIND_DROP_ORDER.get(kind))
            for kind in kept[0].rows
        ),
        Column("size", [format_bytes(one.bytes) for one in kept], right=True),
        Column("oldest", [_format_optional_time(one.oldest) for one in kept]),
        Column("newest", [_format_optional_time(one.newest) for one in kept]),
    ]
    return medium.drawn("\n".join(table_lines(fit_columns(columns, medium), medium)))


def render_prune_results(found: Sequence[tuple[str, PruneResult]], medium: DisplayOptions) -> str:
    """Render one line for each tenant that loses data."""
    columns = [
        Column("tenant", [name for name, _ in found], style="id"),
        *(
            Column(kind, [f"{getattr(one, kind):,}" for _, one in found], right=True)
            for kind in ("sessions", "responses", "conversations")
        ),
    ]
    return medium.drawn("\n".join(table_lines(fit_columns(columns, medium), medium)))


def format_bytes(count: int) -> str:
    """Format bytes in the largest unit of which there is at least one: "999 B", "1.5 MB"."""
    figure, unit = float(count), 0
    while round(figure, 1) >= SIZE_UNIT_FACTOR and unit < len(SIZE_UNITS) - 1:
        figure, unit = figure / SIZE_UNIT_FACTOR, unit + 1
    return f"{figure:,.1f} {SIZE_UNITS[unit]}" if unit else f"{count} B"


def _format_optional_time(moment: float | None) -> str:
    return "" if moment is None else format_local_time(moment)
