"""Tables of sessions, search results and stored data."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.lookup import SessionSummary
from convo.history.items import Item
from convo.history.records import LinkStatus, Session
from convo.stores.base import PruneResult, TenantStats
from convo.strategies.strategy import STRATEGIES
from convo.terminal.statuses import STATUS_MARKS, Status, format_sign, open_run_mark, open_run_word, status_column
from convo.terminal.tables import Column, fit_box, render_table
from convo.terminal.terminal import (
    DisplayOptions,
    escape_control_chars,
    format_count,
    key_value_lines,
    unconfirmed_rows,
)

if TYPE_CHECKING:
    from convo.inspect.view import OpenRun


NO_OPEN_RUNS: "Mapping[str, OpenRun]" = MappingProxyType({})
NO_STATUSES: Mapping[str, LinkStatus] = MappingProxyType({})

MIN_NAME_COLUMNS, MIN_MESSAGE_COLUMNS = 16, 20
"""Columns to which the name of a session and its first message are cut where they do not fit."""

MIN_WIDE_MESSAGE_COLUMNS = 48
"""The same for the first message on a wide terminal if all sessions have the same model."""

WIDE_TERMINAL_COLUMNS = 120

STATUS_WORDS: Mapping[LinkStatus, str] = {"completed": "done", "in_progress": "in progress"}
"""Short words for the statuses of a list; other statuses are the API's words."""


class SearchResult(NamedTuple):
    """The location of a search result.

    item_number:          the item's number on its path, from 1
    item_count:           items of the session; None when the item is on a branch that is no longer current
    author:               of the item: its role, "summary", or its type
    other_session_count:  other sessions that have the item, such as forks
    """

    session: Session
    item_number: int
    item_count: int | None
    author: str
    snippet: str
    other_session_count: int = 0

    def __str__(self) -> str:
        return f"{self.item_number}/{self.item_count}" if self.item_count else f"{self.item_number}, on a branch"


def render_session_list(
    summaries: Sequence[SessionSummary],
    display: DisplayOptions,
    now: float,
    open_runs: "Mapping[str, OpenRun]" = NO_OPEN_RUNS,
    last_statuses: Mapping[str, LinkStatus] = NO_STATUSES,
) -> str:
    """Render one line for each session; on a terminal with the time since its last use, elsewhere with the time.

    A terminal also shows the status of the open agent run or else of the last request.

    open_runs:      the agent runs that are open in these sessions, by session id
    last_statuses:  of the last request of each session, by session id
    """
    sessions = [summary.session for summary in summaries]
    is_terminal = display.width is not None
    has_statuses = is_terminal and bool(open_runs or last_statuses)
    statuses = [_session_status(open_runs.get(session.id), last_statuses.get(session.id)) for session in sessions]
    columns = [
        Column("session", [session.name for session in sessions], style="id", min_width=MIN_NAME_COLUMNS),
        *([status_column("status", statuses, display)] if has_statuses else []),
        Column("owner", [str(session.strategy) for session in sessions], drop_order=3),
        Column("model", [session.model for session in sessions], drop_order=0),
        Column("items", [f"{summary.item_count:,}" for summary in summaries], align_right=True, drop_order=2),
        Column("turns", [f"{summary.turn_count:,}" for summary in summaries], align_right=True, drop_order=1),
        Column(
            "used",
            [
                format_age(session.used_at, now) if is_terminal else format_local_time(session.used_at)
                for session in sessions
            ],
        ),
        Column(
            "first message",
            [summary.first_words for summary in summaries],
            drop_order=5,
            min_width=_min_message_columns(sessions, display),
        ),
    ]
    return render_table(columns, display)


def _min_message_columns(sessions: Sequence[Session], display: DisplayOptions) -> int:
    """Return the columns of the first message, before which less important columns are dropped."""
    has_one_model = len(sessions) > 1 and len({session.model for session in sessions}) == 1
    is_wide = (display.width or 0) >= WIDE_TERMINAL_COLUMNS
    return MIN_WIDE_MESSAGE_COLUMNS if is_wide and has_one_model else MIN_MESSAGE_COLUMNS


def _session_status(run: "OpenRun | None", last_status: LinkStatus | None) -> Status:
    """Return the status of a session; an empty text if it has no request."""
    if run:
        return Status(open_run_word(run), open_run_mark(run))
    if last_status is None:
        return Status("")
    return Status(STATUS_WORDS.get(last_status, last_status), STATUS_MARKS[last_status])


def render_session(
    summary: SessionSummary, unconfirmed: Sequence[Item], display: DisplayOptions, open_run: "OpenRun | None" = None
) -> str:
    """Render all fields of a session's record.

    unconfirmed:  items that the owner has not confirmed
    open_run:     the agent run that is open in the session
    """
    name = display.apply_style(escape_control_chars(summary.session.name), "bold")
    signs = {"run": format_sign(open_run_mark(open_run), display)} if open_run else {}
    rows = _session_rows(summary, unconfirmed, open_run)
    return display.translate_box_chars("\n".join([name, *key_value_lines(rows, display, signs=signs)]))


def render_search_results(results: Sequence[SearchResult], query: str, display: DisplayOptions) -> str:
    """Render one line for each item that a search found; a narrow column still shows the word that was found."""
    columns = [
        Column(
            "session",
            min_width=MIN_NAME_COLUMNS,
            cells=[
                result.session.name
                + (f" and {format_count(result.other_session_count, 'other')}" if result.other_session_count else "")
                for result in results
            ],
            style="id",
        ),
        Column("item", [str(result) for result in results]),
        Column("role", [result.author for result in results], drop_order=0),
        Column("text", [result.snippet for result in results]),
    ]
    if display.width is not None:
        from convo.inspect.view import search_snippet

        # Cut again for the columns that are left: at 80 columns no row showed the word that was found.
        table = fit_box(columns, display)
        if table.columns[-1].heading == "text":
            snippets = [search_snippet(result.snippet, query, table.widths[-1]) for result in results]
            columns[-1] = columns[-1]._replace(cells=snippets)
    return render_table(columns, display)


def format_local_time(timestamp: float) -> str:
    """Format a time in the local time zone, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))


MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
MAX_AGE_DAYS = 30
"""Age from which on the date is shown."""


def format_age(timestamp: float, now: float) -> str:
    """Format the time since `timestamp` in its largest unit up to days: "5 min ago"; the date if it is long ago."""
    seconds = now - timestamp
    if seconds < 2 * MINUTE_S:
        return "just now"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S:.0f} min ago"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S:.0f} h ago"
    if seconds < MAX_AGE_DAYS * DAY_S:
        return f"{format_count(int(seconds // DAY_S), 'day')} ago"
    return format_local_time(timestamp)[: len("2026-01-31")]


def _session_rows(
    summary: SessionSummary, unconfirmed: Sequence[Item], open_run: "OpenRun | None"
) -> list[tuple[str, str]]:
    from convo.terminal.status_line import describe_open_run, format_continue_command

    session, command = summary.session, format_continue_command(summary.session, open_run)
    run_text = describe_open_run(open_run) if open_run else ""
    count_rows = [
        *([("run", run_text)] if run_text else []),
        ("unconfirmed", format_count(summary.unconfirmed_count)),
    ]
    system = [("system", session.instructions)] if session.instructions else []
    return [
        ("id", session.id),
        ("owner", f"{STRATEGIES[session.strategy].description} (--{session.strategy})"),
        ("handle", session.handle or "none: use the session name"),
        ("endpoint", str(session.scope)),
        ("model", session.model),
        *system,
        ("head", f"{session.head[:12]}, {format_count(summary.item_count)}"),
        (
            "confirmed",
            f"{session.confirmed_head[:12]}, {format_count(summary.item_count - summary.unconfirmed_count)}",
        ),
        *(unconfirmed_rows(unconfirmed, run_text) if len(unconfirmed) == summary.unconfirmed_count else count_rows),
        ("turns", f"{summary.turn_count:,}"),
        ("created", format_local_time(session.created_at)),
        ("used", format_local_time(session.used_at)),
        *([("continue", command)] if command else []),
    ]


SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")
SIZE_UNIT_FACTOR = 1000

KIND_DROP_ORDER = {"places": 0, "events": 1, "items": 2, "runs": 4, "files": 4, "conversations": 5, "responses": 6}
"""Drop order of the columns on a narrow terminal; `oldest` is 3 and `newest` 7."""

KIND_HEADINGS = {"places": "nodes"}
"""Headings of kinds whose name in JSON is another one."""


def render_tenant_stats(tenants: Sequence[TenantStats], display: DisplayOptions) -> str:
    """Render one line for each tenant."""
    columns = [
        Column("tenant", [stats.tenant for stats in tenants], style="id"),
        *(
            Column(
                KIND_HEADINGS.get(kind, kind),
                [f"{stats.row_counts[kind]:,}" for stats in tenants],
                align_right=True,
                drop_order=KIND_DROP_ORDER.get(kind),
            )
            for kind in tenants[0].row_counts
        ),
        Column("size", [format_bytes(stats.size_bytes) for stats in tenants], align_right=True),
        Column("oldest", [_format_optional_time(stats.oldest_at) for stats in tenants], drop_order=3),
        Column("newest", [_format_optional_time(stats.newest_at) for stats in tenants], drop_order=7),
    ]
    return render_table(columns, display)


def render_prune_results(results: Sequence[tuple[str, PruneResult]], display: DisplayOptions) -> str:
    """Render one line for each tenant that loses data."""
    columns = [
        Column("tenant", [name for name, _ in results], style="id"),
        *(
            Column(kind, [f"{getattr(result, kind):,}" for _, result in results], align_right=True)
            for kind in PruneResult._fields
        ),
    ]
    return render_table(columns, display)


def format_bytes(size_bytes: int) -> str:
    """Format bytes in the largest unit of which there is at least one: "999 B", "1.5 MB"."""
    size, unit = float(size_bytes), 0
    while round(size, 1) >= SIZE_UNIT_FACTOR and unit < len(SIZE_UNITS) - 1:
        size, unit = size / SIZE_UNIT_FACTOR, unit + 1
    return f"{size:,.1f} {SIZE_UNITS[unit]}" if unit else f"{size_bytes} B"


def _format_optional_time(timestamp: float | None) -> str:
    return "" if timestamp is None else format_local_time(timestamp)
