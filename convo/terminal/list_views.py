"""Tables of sessions, search results and stored data."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from convo.chat.conversation_list import ConversationStatus, HitReport, ListedConversation
from convo.history.items import Item
from convo.history.records import Session
from convo.stores.base import PruneResult, TenantStats
from convo.strategies.strategy import STRATEGIES
from convo.terminal.statuses import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    PAUSED,
    WARNING,
    Status,
    StatusMark,
    format_sign,
    open_run_mark,
    status_column,
)
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


MIN_NAME_COLUMNS, MIN_MESSAGE_COLUMNS = 16, 20
"""Columns to which the name of a session and its first message are cut where they do not fit."""

MIN_WIDE_MESSAGE_COLUMNS = 48
"""The same for the first message on a wide terminal if all sessions have the same model."""

WIDE_TERMINAL_COLUMNS = 120

ROW_MARKS: Mapping[ConversationStatus, StatusMark] = {
    "done": DONE,
    "incomplete": WARNING,
    "cancelled": CANCELLED,
    "running": IN_PROGRESS,
    "interrupted": WARNING,
    "paused": PAUSED,
    "failed": FAILED,
}


def render_session_list(rows: Sequence[ListedConversation], display: DisplayOptions, now: float) -> str:
    """Render one line for each conversation; on a terminal with the time since its last use, elsewhere with the time.

    A terminal also shows the status, of all rows if one of them is not ok.
    """
    is_terminal = display.width is not None
    sessions = [row.session for row in rows]
    has_statuses = is_terminal and any(row.status != "done" for row in rows)
    columns = [
        Column("session", list(map(_describe_name, rows)), style="id", min_width=MIN_NAME_COLUMNS),
        *([status_column("status", list(map(_row_status, rows)), display)] if has_statuses else []),
        Column("owner", [str(session.strategy) for session in sessions], drop_order=3),
        Column("model", [session.model for session in sessions], drop_order=0),
        Column("items", list(map(_format_item_count, rows)), align_right=True, drop_order=2),
        Column("turns", [f"{row.turn_count:,}" for row in rows], align_right=True, drop_order=1),
        Column("used", [format_used(session, now, display) for session in sessions]),
        Column(
            "first message",
            [row.first_words for row in rows],
            drop_order=5,
            min_width=_min_message_columns(sessions, display),
        ),
    ]
    return render_table(columns, display)


def _describe_name(row: ListedConversation) -> str:
    return row.session.name + (f" and {format_count(row.fork_count, 'fork')}" if row.fork_count else "")


def _format_item_count(row: ListedConversation) -> str:
    return "" if row.item_count is None else f"{row.item_count:,}"


def _row_status(row: ListedConversation) -> Status:
    has_status = row.turn_count or row.status != "done"
    return Status(row.status, ROW_MARKS[row.status]) if has_status else Status("")


def _min_message_columns(sessions: Sequence[Session], display: DisplayOptions) -> int:
    """Return the columns of the first message, before which less important columns are dropped."""
    has_one_model = len(sessions) > 1 and len({session.model for session in sessions}) == 1
    is_wide = (display.width or 0) >= WIDE_TERMINAL_COLUMNS
    return MIN_WIDE_MESSAGE_COLUMNS if is_wide and has_one_model else MIN_MESSAGE_COLUMNS


def render_session(
    summary: ListedConversation, unconfirmed: Sequence[Item], display: DisplayOptions, open_run: "OpenRun | None" = None
) -> str:
    """Render all fields of a session's record.

    unconfirmed:  items that the owner has not confirmed
    open_run:     the agent run that is open in the session
    """
    name = display.apply_style(escape_control_chars(summary.session.name), "bold")
    signs = {"run": format_sign(open_run_mark(open_run), display)} if open_run else {}
    rows = _session_rows(summary, unconfirmed, open_run)
    return display.translate_box_chars("\n".join([name, *key_value_lines(rows, display, signs=signs)]))


def render_search_results(rows: Sequence[ListedConversation], words: str, display: DisplayOptions, now: float) -> str:
    """Render one line for each conversation that a search found; a narrow column still shows the word."""
    found: dict[str, list[ListedConversation]] = {}
    for row in rows:  # a fork has the items of the session that it came from
        found.setdefault(row.hit.key if row.hit else row.session.id, []).append(row)
    names = [
        _describe_name(first) + (f" and {format_count(len(others), 'other')}" if others else "")
        for first, *others in found.values()
    ]
    hits = [first.hit for first, *_ in found.values()]
    texts = [first.hit.snippet if first.hit else first.first_words for first, *_ in found.values()]
    columns = [
        Column("session", names, min_width=MIN_NAME_COLUMNS, style="id"),
        Column("item", [_format_place(hit) if hit else "name" for hit in hits]),
        Column("role", [hit.author if hit else "" for hit in hits], drop_order=0),
        Column("used", [format_used(first.session, now, display) for first, *_ in found.values()], drop_order=1),
        Column("text", texts),
    ]
    if display.width is not None:
        from convo.inspect.view import search_snippet

        # Cut again for the columns that are left: at 80 columns no row showed the word that was found.
        table = fit_box(columns, display)
        if table.columns[-1].heading == "text":
            columns[-1] = columns[-1]._replace(cells=[search_snippet(text, words, table.widths[-1]) for text in texts])
    return render_table(columns, display)


def _format_place(hit: HitReport) -> str:
    return f"{hit.item_number}/{hit.item_count}" if hit.item_count else f"{hit.item_number}, on a branch"


def format_used(session: Session, now: float, display: DisplayOptions) -> str:
    """Format the time of the last use: on a terminal the time since then."""
    return format_local_time(session.used_at) if display.width is None else format_age(session.used_at, now)


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
    summary: ListedConversation, unconfirmed: Sequence[Item], open_run: "OpenRun | None"
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
        ("head", f"{session.head[:12]}, {format_count(summary.item_count or 0)}"),
        (
            "confirmed",
            f"{session.confirmed_head[:12]}, {format_count((summary.item_count or 0) - summary.unconfirmed_count)}",
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
