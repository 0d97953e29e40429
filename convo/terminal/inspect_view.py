"""Views of a conversation for `convo inspect` and `convo next`.

The link tree, the chart of input tokens, the items in full, and the next request as JSON. On a terminal the tree is
short: a panel, then one line for each request with a bar of its input tokens. With all columns, and on a pipe, it has
every fact about the conversation and every column.
"""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.prefix_guard import find_wrong_forecast
from convo.history.accumulator import STREAMED_TEXT_DIFFERS, STREAMED_TEXT_DIFFERS_MESSAGE
from convo.history.items import (
    Item,
    Json,
    decode_json_escapes,
    is_client_call,
    is_summary,
    item_preview,
    item_type,
    searchable_text,
    summary_text,
)
from convo.history.records import (
    ANSWERED_STATUSES,
    IGNORED_PARAMETER,
    PROVIDER_PARAMETER,
    RECORDING_PARAMETER,
    Link,
    describe_client,
    describe_translation,
    get_link_provider,
    is_compaction_link,
)
from convo.inspect.run_timeline import RunTimeline, TimelineEntry
from convo.inspect.tree import LinkRow, iter_link_rows, split_branch_links
from convo.inspect.view import (
    ChartCell,
    ConversationView,
    InputTokenShare,
    LinkStats,
    UsageTotals,
    compute_link_stats,
    input_token_share,
    link_cost_usd,
    max_input_tokens,
    sum_link_usage,
)
from convo.strategies.strategy import STRATEGIES
from convo.terminal.status_line import (
    describe_open_run,
    format_continue_command,
    format_cost,
    format_share,
    format_token_counts,
)
from convo.terminal.statuses import (
    DONE,
    FAILED,
    STATUS_MARKS,
    WARNING,
    Status,
    format_sign,
    open_run_mark,
    status_column,
)
from convo.terminal.tables import COLUMN_GAP, Column, Table, fit_columns, table_lines
from convo.terminal.terminal import (
    LABEL_MARGIN,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    format_count,
    key_value_lines,
    shorten_ids,
    text_width,
    truncate_text,
    unconfirmed_rows,
    wrap_text,
)
from convo.terminal.usage_views import context_table_lines, format_cost_of_totals, reported_rows

if TYPE_CHECKING:
    from convo.chat.next_request import NextRequest
    from convo.stores.unstored_requests import UnstoredRequest

NO_CHART_TEXT = "no request reported its input tokens"


def render_conversation(
    view: ConversationView, display: DisplayOptions, *, with_chart: bool = True, with_panel: bool = True
) -> str:
    """Render the conversation as a screen, without the last line break.

    with_chart:  whether a terminal also shows the input tokens as bars
    with_panel:  whether a terminal shows the name, the owner, the model and the totals in a panel
    """
    is_short = display.width is not None and not display.has_all_columns
    table = fit_link_table(view, display) if view.links and not is_short else None
    rows = [row for row in conversation_rows(view, table) if not (is_short and _is_detail(row))]
    if with_panel and display.width is not None:
        lines = [*_header_lines(view, rows, display), ""]
    else:
        title = display.apply_style(escape_control_chars(view.handle), "bold")
        lines = [title, *_conversation_row_lines(view, rows, display), ""]
    if table:
        lines += table_lines(table, display)
    else:
        lines += _short_tree_lines(view, display, with_bars=with_chart) if view.links else _item_lines(view, display)
    if view.run_timeline:
        lines += ["", *_run_timeline_lines(view.run_timeline, display)]
    if with_chart and display.has_all_columns and display.width is not None and len(view.links) > 1:
        lines += ["", *_token_chart_lines(view, display)]
    return display.translate_box_chars("\n".join(lines).rstrip("\n"))


DETAILS = ("session", "handle", "endpoint", "last", "each request")
"""Labels of facts that the short view leaves out."""


def _is_detail(row: KeyValue) -> bool:
    return row[0] in DETAILS or row == ("unconfirmed", "none")


def _run_timeline_lines(timeline: RunTimeline, display: DisplayOptions) -> Iterator[str]:
    """Yield one line for each tool call, handoff and guardrail of a run; times are seconds since its start."""
    entries = timeline.entries
    yield display.apply_style(f"run {escape_control_chars(timeline.run_id)}: {timeline.status}", "bold")
    columns = [
        Column("time", [f"+{max(0.0, entry.started_at - timeline.started_at):.1f} s" for entry in entries]),
        Column("event", [f"{entry.side or ''} {entry.kind}".strip() for entry in entries]),
        Column("agent", [entry.agent or "-" for entry in entries], drop_order=0),
        Column("name", [f"to {entry.target}" if entry.target else entry.name or "-" for entry in entries]),
        status_column("outcome", [_timeline_status(entry) for entry in entries], display),
        Column("duration", ["-" if entry.duration_s is None else f"{entry.duration_s:.1f} s" for entry in entries]),
        Column("details", [_timeline_details(entry) for entry in entries], drop_order=1),
    ]
    yield from table_lines(fit_columns(columns, display), display)
    if timeline.omitted_count:
        yield f"{format_count(timeline.omitted_count, 'later event')} not stored"


def _timeline_details(entry: TimelineEntry) -> str:
    return " ".join((entry.reason or decode_json_escapes(entry.arguments or "")).split())


def _timeline_status(entry: TimelineEntry) -> Status:
    statuses = {"passed": DONE, "done": DONE, "tripped": FAILED, "failed": FAILED, "not ended": WARNING}
    return Status(entry.outcome, statuses[entry.outcome]) if entry.outcome in statuses else Status("-")


def _header_lines(view: ConversationView, rows: Sequence[KeyValue], display: DisplayOptions) -> Iterator[str]:
    """Yield a panel with the name, the owner, the model and the totals, then the other rows, with aligned labels."""
    from convo.terminal.tables import PANEL_COLUMNS, PANEL_TITLE_COLUMNS, panel_lines

    totals = sum_link_usage(split_branch_links(view)[0], view.prices, path_index=view.path_index)
    is_name_cut = text_width(escape_control_chars(view.handle)) > (display.width or 0) - PANEL_TITLE_COLUMNS
    panel_rows = [("name", view.handle)] if is_name_cut else []
    panel_rows += [row for row in rows if row[0] in ("owner", "model", "head")]
    if totals:
        panel_rows.append(("total", _format_panel_totals(totals)))
        if totals.resent_tokens:
            share = format_share(totals.resent_tokens, totals.usage.input_tokens)
            panel_rows.append(("re-sent", f"{totals.resent_tokens:,} input tokens, {share} of the input"))
    in_panel = {label for label, _ in panel_rows}
    if totals and totals.request_count == 1:  # its usage is the total
        in_panel.add("last")
    other_rows = [row for row in rows if row[0] not in in_panel]
    label_width = max(len(label) for label, _ in rows)
    inner_display = display._replace(width=max(1, (display.width or 0) - PANEL_COLUMNS + LABEL_MARGIN))
    is_narrow = (display.width or 0) < MIN_ALIGNED_COLUMNS
    inner_lines = key_value_lines(
        panel_rows, inner_display, min_label_width=0 if is_narrow else label_width, folded_labels=("model",)
    )
    unindented = [line[LABEL_MARGIN:] for line in inner_lines]
    yield from panel_lines(view.handle, unindented, display)
    yield from _conversation_row_lines(view, other_rows, display, min_label_width=label_width)


MIN_ALIGNED_COLUMNS = 60
"""Columns from which on the labels in the panel are aligned with those below it."""


def _conversation_row_lines(
    view: ConversationView, rows: Sequence[KeyValue], display: DisplayOptions, *, min_label_width: int = 0
) -> Iterator[str]:
    """Yield the rows; on a terminal with a sign before a warning and before a run that needs approval."""
    signs = {"warning": format_sign(WARNING, display)}
    if view.open_run:
        signs["run"] = format_sign(open_run_mark(view.open_run), display)
    return key_value_lines(rows, display, signs=signs, min_label_width=min_label_width)


def _format_panel_totals(totals: UsageTotals) -> str:
    """Format the requests, the tokens, the share of the input that was cached, and the cost of all requests."""
    usage = totals.usage
    cached = f", {format_share(usage.cached_tokens, usage.input_tokens)} cached" if usage.input_tokens else ""
    reasoning = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    parts = [
        format_count(totals.request_count, "request"),
        f"{usage.input_tokens:,} input{cached}",
        f"{usage.output_tokens:,} output{reasoning}",
        *format_cost_of_totals(totals),
    ]
    return " · ".join(parts)


def render_token_chart(view: ConversationView, display: DisplayOptions) -> str:
    """Render the chart of input tokens alone, also where the output is no terminal."""
    return display.translate_box_chars("\n".join(_token_chart_lines(view, display)) or NO_CHART_TEXT)


def render_unstored_request(request: "UnstoredRequest", display: DisplayOptions) -> str:
    """Render the figures of a request that left no response, without the last line break."""
    title = display.apply_style(escape_control_chars(request.id), "bold")
    return display.translate_box_chars("\n".join([title, *key_value_lines(_request_rows(request), display)]))


def _request_rows(request: "UnstoredRequest") -> Iterator[KeyValue]:
    from convo.terminal.list_views import format_bytes

    yield "time", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(request.created_at))
    yield "API", request.api
    yield "model", request.model or "unknown"
    yield "status", f"{request.status}: {request.code}" if request.code else request.status
    yield "client", request.client or "unknown"
    if request.latency_s is not None:
        first = "" if request.first_token_s is None else f", first token after {request.first_token_s:.1f} s"
        yield "latency", f"{request.latency_s:.1f} s{first}"
    yield "size", f"{format_bytes(request.request_bytes)} sent, {format_bytes(request.response_bytes)} received"
    if request.input_tokens is not None:
        cached = f"{request.cached_tokens or 0:,} cached"
        yield "usage", f"{request.input_tokens:,} input · {cached} · {request.output_tokens or 0:,} output"
    if request.count > 1:
        yield "requests", f"{request.count:,} of this kind within a second: sizes and tokens are sums"
    yield "note", "this request left no response, so its content is not stored"


def render_path_items(view: ConversationView, display: DisplayOptions) -> str:
    """Render every item of the path in full."""
    confirmed_count = view.path.depth(view.confirmed_head)
    return "\n\n".join(
        render_item(number, node.item, is_unconfirmed=number > confirmed_count, display=display)
        for number, node in enumerate(view.path.nodes, 1)
    )


def render_item(number: int, item: Item, *, is_unconfirmed: bool, display: DisplayOptions) -> str:
    """Render one item: its number, type, role and id, then its full text."""
    label = " ".join(filter(None, (format_item_label(item), str(item.get("id") or ""))))
    status = item.get("status")
    status_notes = [str(status)] if status not in (None, "completed") else []
    notes = ", ".join(status_notes + (["unconfirmed"] if is_unconfirmed else []))
    head = escape_control_chars(f"{number}  {label}" + (f"  ({notes})" if notes else ""))
    text = searchable_text(item)
    text = escape_control_chars(decode_json_escapes(text) if is_client_call(item) else text) or decode_json_escapes(
        json.dumps(item)
    )
    return "\n".join([display.apply_style(head, "dim"), *(f"   {line}".rstrip() for line in text.split("\n"))])


def conversation_rows(view: ConversationView, table: Table | None = None) -> Iterator[KeyValue]:
    """Yield the facts about the conversation as a whole; `table` is its tree where that is shown as well."""
    yield "owner", f"{STRATEGIES[view.strategy].description} (--{view.strategy})"
    if view.session:
        yield "session", f"{view.session.name} ({view.session.id})"
        if view.session.handle:
            yield "handle", view.session.handle
    elif names := _session_names(view):
        yield "sent by", f"{'session' if len(names) == 1 else 'sessions'} {', '.join(names)}"
    yield "endpoint", str(view.scope) if view.scope else "none yet"
    if view.model:
        yield "model", view.model
    if view.agent:
        yield "agent", escape_control_chars(view.agent)
    providers = dict.fromkeys(filter(None, map(get_link_provider, view.links)))
    if providers and [*providers] != [(view.model or "").partition("/")[0]]:  # else the model's name begins with it
        yield "provider", escape_control_chars(", ".join(providers))
    yield "head", _format_head(view)
    unconfirmed = [node.item for node in view.unconfirmed_nodes]
    if view.session or unconfirmed:
        yield from unconfirmed_rows(unconfirmed, describe_open_run(view.open_run) if view.open_run else "")
    yield from _usage_rows(view)
    if table and table.common_cells:
        yield "each request", " · ".join(f"{heading} {cell}" for heading, cell in table.common_cells)
    if not view.has_all_forks:
        yield "forks", "this endpoint cannot list the other responses that continue a response"
    current = next((link for link in reversed(view.links) if link.id == view.current_link_id), None)
    yield from reported_rows(current.reported if current else {})
    if difference := find_wrong_forecast(view):
        yield "forecast", difference
    ignored = dict.fromkeys(name for link in view.links for name in link.parameters.get(IGNORED_PARAMETER, ()))
    if ignored:
        yield "ignored", f"not sent to the model: {escape_control_chars(', '.join(ignored))}"
    clients = dict.fromkeys(filter(None, (describe_client(link.parameters) for link in view.links)))
    if clients:
        yield "recorded", f"from {escape_control_chars(', '.join(clients))}"
    for translation in dict.fromkeys(filter(None, (describe_translation(link.parameters) for link in view.links))):
        yield "form", translation
    recordings = (link.parameters.get(RECORDING_PARAMETER) or {} for link in view.links)
    for note in dict.fromkeys(note for recording in recordings for note in recording.get("notes", ())):
        yield "note", escape_control_chars(str(note))
    differing = [link.id for link in view.links if STREAMED_TEXT_DIFFERS in (link.error or {})]
    if differing:
        yield "warning", f"{STREAMED_TEXT_DIFFERS_MESSAGE}: {escape_control_chars(', '.join(differing))}"
    for note in view.notes:
        yield "note", note
    if command := _continue_command(view):
        yield "continue", command


def _usage_rows(view: ConversationView) -> Iterator[KeyValue]:
    """Yield the usage of the last request, the total of the branch, and that of the other shown requests.

    The first two are often confused. An attempt that failed is one of the other requests.
    """
    last = next((link for link in reversed(view.links) if link.id == view.current_link_id), None)
    branch_links, other_links = split_branch_links(view)
    last_totals = sum_link_usage([last] if last else [], view.prices)
    totals = sum_link_usage(branch_links, view.prices, path_index=view.path_index)
    if last_totals:
        yield "last", " · ".join([*format_token_counts(last_totals.usage), *format_cost_of_totals(last_totals)])
    if totals and totals.request_count > 1:
        yield "total", _format_totals_with_resent(totals)
    if missed_ids := _find_missed_ids(view):
        yield "cache", f"missed by {format_count(len(missed_ids), 'request')}: convo why {quote(view.handle)}"
    if other_totals := sum_link_usage(other_links, view.prices, other_links=branch_links, path_index=view.path_index):
        yield "others", _format_totals_with_resent(other_totals)


def _format_totals_with_resent(totals: UsageTotals) -> str:
    parts = [
        format_count(totals.request_count, "request"),
        *format_token_counts(totals.usage),
        f"{totals.resent_tokens:,} re-sent" if totals.resent_tokens else "",
        *format_cost_of_totals(totals),
    ]
    return " · ".join(filter(None, parts))


def _format_head(view: ConversationView) -> str:
    after = f", @ {view.current_link_id}" if view.current_link_id else ""
    return f"{format_count(len(view.path))}{after}"


def _continue_command(view: ConversationView) -> str:
    """Return the command that continues from here, or "" where there is none."""
    if view.session:
        command = format_continue_command(view.session, view.open_run)
        # Recorded from a server that is no provider: the model begins with its address, and --from alone fails.
        is_server_name = bool(re.search(r"[.:]", view.session.model.partition("/")[0]))
        return f"{command} -m PROVIDER/MODEL" if command and is_server_name else command
    if view.replay_file:
        return f"convo chat --replay --from {quote(view.handle)}"
    if STRATEGIES[view.strategy].uses_conversation and not view.current_link_id:
        return f"convo chat --from {view.handle}"
    current = next((link for link in view.links if link.id == view.current_link_id), None)
    can_continue = (
        current
        and current.is_stored
        and current.status in ("completed", "incomplete")
        and current.id.startswith("resp_")
    )
    return f"convo chat --from {view.handle}" if can_continue else ""


def format_fork_command(link: Link) -> str:
    """Return the command that starts a branch after the response `link`; "" if none can."""
    if link.status not in ANSWERED_STATUSES or not link.id.startswith("resp_"):
        return ""
    if not link.is_stored:  # the session that sent it has its history
        return f"convo chat --fork {link.id}" if link.session_id else ""
    model = get_fork_model(link)
    return f"convo chat --from {link.id}" + (f" -m {quote(model)}" if model else "")


def get_fork_model(link: Link) -> str | None:
    """Return the model that continues `link`; None for the configured one, where the name lacks its provider."""
    return None if PROVIDER_PARAMETER in link.parameters else link.model


def _item_lines(view: ConversationView, display: DisplayOptions) -> Iterator[str]:
    """Yield one line for each item; used where no links are known."""
    for number, node in enumerate(view.path.nodes, 1):
        yield format_item_line(number, node.item, display.width)


def format_item_line(number: int, item: Item, columns: int | None) -> str:
    """Return number, label and first words of an item; `columns` None: not cut to the width of a display."""
    line = f"{number:>4}  {format_item_label(item)}: {escape_control_chars(item_preview(item))}"
    return line if columns is None else truncate_text(line, columns)


def format_item_label(item: Item) -> str:
    """Return type and role: "message user", "function_call"."""
    return _cached_item_label(item_type(item), str(item.get("role") or ""))


@lru_cache(maxsize=256)
def _cached_item_label(type_name: str, role: str) -> str:
    return escape_control_chars(f"{type_name} {role}" if role else type_name)


SHORT_TREE_DETAIL_COLUMNS = 140
"""Columns from which on the short tree has the status, the time and the duration of every request."""

WIDE_TERMINAL_COLUMNS = 120
"""Columns from which on every line shows every value."""

UNKNOWN_NUMBER = "-"

OPENAI_BASE_URL = "https://api.openai.com/v1"
OPENAI_RESPONSE_PAGE = "https://platform.openai.com/logs/"

MIXED_OWNERS_DROP_ORDER = 10
"""Drop order of the owner column where links have several owners: after the less important columns."""


class TreeRow(NamedTuple):
    """One line of the tree: its link row, the link's statistics, the shortened id, and whether it is the head.

    compaction:  the item that replaces earlier items, if the request compacted the history
    """

    link_row: LinkRow
    stats: LinkStats
    short_id: str
    is_head: bool = False
    is_first: bool = False
    compaction: Item | None = None

    @property
    def link(self) -> Link:
        return self.link_row.link


def fit_link_table(view: ConversationView, display: DisplayOptions) -> Table:
    """Build the tree of `view` as a table that fits the display."""
    return fit_columns([*_tree_columns(build_tree_rows(view), view, display)], display)


def build_tree_rows(view: ConversationView) -> list[TreeRow]:
    """Build the rows of the tree, in drawing order."""
    ids = shorten_ids([link.id for link in view.links])
    link_rows = iter_link_rows(view.links, view.current_link_id)
    return [build_tree_row(row, ids[row.link.id], view, is_first=index == 0) for index, row in enumerate(link_rows)]


def build_tree_row(row: LinkRow, short_id: str, view: ConversationView, *, is_first: bool) -> TreeRow:
    """Build one row of the tree; `is_first`: it is the first one."""
    stats = compute_link_stats(row.link, view.path_index)
    if text := " ".join(view.running_texts.get(row.link.id, "").split()):
        tail = text if len(text) <= RUNNING_TEXT_CHARS else f"…{text[1 - RUNNING_TEXT_CHARS :]}"
        stats = stats._replace(output_preview=tail)
    return TreeRow(
        row, stats, short_id, row.link.id == view.current_link_id, is_first, _find_compaction(row.link, view)
    )


def _find_compaction(link: Link, view: ConversationView) -> Item | None:
    """Return the item that replaces earlier items if the request is a completed compaction, else None."""
    return view.path_index.item(link.head) if is_compaction_link(link) and link.status == "completed" else None


CHART_HEADING = "context"

MIN_TREE_PREVIEW_COLUMNS = 18
"""Columns of the preview, before which other columns are left out on a terminal of usual width."""

MIN_SHORT_BAR_CELLS, MAX_SHORT_BAR_CELLS = len(CHART_HEADING), 12
"""Cells of the longest bar beside the tree."""

RUNNING_TEXT_CHARS = 60
"""Characters at the end of the text of a response in progress that are shown."""

MIN_INPUT_TERMINAL_COLUMNS = 36
"""Columns of a terminal from which on the short tree always has the input tokens."""


def _short_tree_lines(view: ConversationView, display: DisplayOptions, *, with_bars: bool) -> Iterator[str]:
    """Yield the tree with the amounts that are most often looked at, then the meaning of its bars."""
    rows = build_tree_rows(view)
    shares = [input_token_share(row.stats) for row in rows]
    has_bars = with_bars and len(rows) > 1 and bool(max_input_tokens(shares))
    prefixes = [_tree_prefix(row).removesuffix(_row_mark(row)) for row in rows]
    styles = [(len(prefix), "dim") for prefix in prefixes]
    columns = [
        Column(
            "response",
            tree_labels(rows),
            style="id",
            links=[_response_url(row.link) for row in rows],
            start_styles=styles,
        ),
        *_short_columns(rows, view, display),
    ]
    bar_cells = (
        MIN_SHORT_BAR_CELLS if display.width is None or display.width < MIN_ALIGNED_COLUMNS else MAX_SHORT_BAR_CELLS
    )
    bars = _render_bars(shares, bar_cells) if has_bars else []
    if has_bars:
        columns.insert(-1, Column(CHART_HEADING, bars, style="id", drop_order=14, min_width=bar_cells))
    table = fit_columns(columns, display)
    yield from table_lines(table, display)
    if any(column.heading == CHART_HEADING for column in table.columns):
        yield from _legend_lines("".join(bars), display)


def _short_columns(rows: Sequence[TreeRow], view: ConversationView, display: DisplayOptions) -> Iterator[Column]:
    """Yield the columns of the short tree after the ids; facts that all requests share are left out."""
    is_wide = (display.width or 0) >= SHORT_TREE_DETAIL_COLUMNS
    if len({row.link.session_id for row in rows}) > 1:
        yield Column("session", [session_name(row.link, view) for row in rows], drop_order=8)
    for heading, cells in (
        ("owner", [str(row.link.strategy) for row in rows]),
        ("model", [row.link.model for row in rows]),
    ):
        if len(set(cells)) > 1:
            yield Column(heading, cells, drop_order=MIXED_OWNERS_DROP_ORDER if heading == "owner" else 3)
    yield _sent_column(rows, drop_order=6)
    usages = [row.stats.usage for row in rows]
    input_tokens = [usage.input_tokens if usage else None for usage in usages]
    keeps_input = (display.width or 0) >= MIN_INPUT_TERMINAL_COLUMNS and any(input_tokens)
    yield _number_column("input", input_tokens, drop_order=None if keeps_input else 13)
    yield _number_column("output", [usage.output_tokens if usage else None for usage in usages], drop_order=11)
    yield from _cost_columns(rows, view)
    yield from _miss_columns(rows, view, display)
    if is_wide:
        yield Column("time", [_format_time(row.link, "%H:%M") for row in rows], drop_order=2)
        yield _status_cells(rows, display)
        yield Column("seconds", [_duration_cell(row.link) for row in rows], align_right=True, drop_order=1)
    preview = _preview_column(rows, display, with_status=not is_wide)
    is_narrow = (display.width or 0) < MIN_ALIGNED_COLUMNS
    yield preview if is_narrow else preview._replace(min_width=MIN_TREE_PREVIEW_COLUMNS)


def tree_labels(rows: Sequence[TreeRow]) -> list[str]:
    """Return the tree lines, the mark and the id of each row."""
    return [_tree_prefix(row) + row.short_id for row in rows]


def format_optional_number(number: int | None) -> str:
    """Format a number, or return "-" for None."""
    return UNKNOWN_NUMBER if number is None else f"{number:,}"


def _tree_columns(rows: Sequence[TreeRow], view: ConversationView, display: DisplayOptions) -> Iterator[Column]:
    is_wide = display.table_width is None or display.table_width >= WIDE_TERMINAL_COLUMNS
    yield Column("response", tree_labels(rows), style="id", links=[_response_url(row.link) for row in rows])
    if len({row.link.session_id for row in rows}) > 1:
        yield Column("session", [session_name(row.link, view) for row in rows], drop_order=6)
    owners = [str(row.link.strategy) for row in rows]
    yield Column("owner", owners, drop_order=0 if len(set(owners)) == 1 else MIXED_OWNERS_DROP_ORDER)
    yield from _amount_columns(rows)
    yield from _cost_columns(rows, view)
    yield from _miss_columns(rows, view, display)
    yield Column("model", [row.link.model for row in rows], drop_order=3)
    yield Column("date", [_format_time(row.link, "%Y-%m-%d") for row in rows], drop_order=1)
    yield Column("time", [_format_time(row.link, "%H:%M") for row in rows], drop_order=8)
    if is_wide:
        yield _status_cells(rows, display)
    yield Column("seconds", [_duration_cell(row.link) for row in rows], align_right=True, drop_order=5)
    yield _preview_column(rows, display, with_status=not is_wide)


def _cost_columns(rows: Sequence[TreeRow], view: ConversationView) -> Iterator[Column]:
    """Yield the column of costs, if one is known."""
    costs = [link_cost_usd(row.link, view.prices) for row in rows]
    if any(cost is not None for cost in costs):
        yield Column(
            "cost", ["".join(format_cost(cost)) or UNKNOWN_NUMBER for cost in costs], align_right=True, drop_order=9
        )


def _miss_columns(rows: Sequence[TreeRow], view: ConversationView, display: DisplayOptions) -> Iterator[Column]:
    """Yield the column of the requests that missed the prompt cache, if one did."""
    missed_ids = _find_missed_ids(view)
    if missed_ids:
        statuses = [Status("miss", WARNING) if row.link.id in missed_ids else Status("") for row in rows]
        yield status_column("cache", statuses, display, drop_order=10)


MIN_CACHED_TOKENS = 512
"""The shortest prompt that a vendor caches, in input tokens: the least of `convo.usage.cache_rules`."""


def _find_missed_ids(view: ConversationView) -> Collection[str]:
    input_tokens = ((link.usage or {}).get("input_tokens") for link in view.links)
    if not any(type(tokens) is int and tokens >= MIN_CACHED_TOKENS for tokens in input_tokens):
        return ()
    from convo.prompt_cache.why import find_missed_tokens  # the import takes 2 ms, and short chats do not need it

    return find_missed_tokens(view)


def _status_cells(rows: Sequence[TreeRow], display: DisplayOptions) -> Column:
    statuses = [Status(_format_link_status(row.link), STATUS_MARKS.get(row.link.status)) for row in rows]
    return status_column("status", statuses, display)


def _preview_column(rows: Sequence[TreeRow], display: DisplayOptions, *, with_status: bool) -> Column:
    """Return the input and the answer of each request; on a terminal, a compaction by name.

    with_status:  before them, a status other than "completed"
    """
    previews = [preview_cell(row, with_status=False, names_compaction=display.width is not None) for row in rows]
    if not with_status:
        return Column("preview", previews)
    is_plain = [row.link.status == "completed" for row in rows]
    return status_column(
        "preview",
        [
            Status("") if plain else Status(_format_link_status(row.link), STATUS_MARKS.get(row.link.status))
            for row, plain in zip(rows, is_plain, strict=True)
        ],
        display,
        suffixes=[("" if plain else ": ") + preview for preview, plain in zip(previews, is_plain, strict=True)],
    )


def _sent_column(rows: Sequence[TreeRow], drop_order: int | None = None) -> Column:
    """Return the number of items that each request sent, and whether these are the full history."""
    return Column(
        "sent",
        [
            ("full " if row.stats.is_full_history else "delta ") + format_optional_number(row.stats.sent_count)
            for row in rows
        ],
        drop_order=drop_order,
    )


def _amount_columns(rows: Sequence[TreeRow]) -> Iterator[Column]:
    yield _sent_column(rows)
    yield _number_column("~tokens", [row.stats.sent_tokens for row in rows], drop_order=7)
    yield _number_column("context", [row.stats.input_count for row in rows], drop_order=12)
    usages = [row.stats.usage for row in rows]
    yield _number_column("input", [usage.input_tokens if usage else None for usage in usages], drop_order=13)
    yield _number_column("cached", [usage.cached_tokens if usage else None for usage in usages], drop_order=4)
    yield _number_column("output", [usage.output_tokens if usage else None for usage in usages], drop_order=11)
    yield _number_column("reasoning", [usage.reasoning_tokens if usage else None for usage in usages], drop_order=2)


def _response_url(link: Link) -> str | None:
    """Return the page of a response that OpenAI stores; None for other endpoints, which have none."""
    is_at_openai = link.scope.url == OPENAI_BASE_URL and link.is_stored and link.id.startswith("resp_")
    return OPENAI_RESPONSE_PAGE + link.id if is_at_openai else None


def _number_column(heading: str, numbers: Sequence[int | None], drop_order: int | None = None) -> Column:
    return Column(
        heading, [format_optional_number(number) for number in numbers], align_right=True, drop_order=drop_order
    )


def _tree_prefix(row: TreeRow) -> str:
    depth = row.link_row.depth
    if not row.link_row.starts_branch:
        return "│ " * depth + _row_mark(row)
    return "│ " * (depth - 1) + ("┌─" if row.is_first else "├─") + _row_mark(row)


def _row_mark(row: TreeRow) -> str:
    return "@ " if row.is_head else "● " if row.link.status == "completed" else "○ "


def _session_names(view: ConversationView) -> Sequence[str]:
    """Return the escaped names of the sessions on the branch that leads to the handle, oldest first."""
    ids = dict.fromkeys(link.session_id for link in split_branch_links(view)[0] if link.session_id)
    return [escape_control_chars(view.session_names[id_]) for id_ in ids if id_ in view.session_names]


def session_name(link: Link, view: ConversationView) -> str:
    """Return the name of the session that sent the request."""
    return view.session_names.get(link.session_id, "(removed)") if link.session_id else "(other client)"


def _format_time(link: Link, time_format: str) -> str:
    return time.strftime(time_format, time.localtime(link.created_at))


def _duration_cell(link: Link) -> str:
    return UNKNOWN_NUMBER if link.duration_s is None else f"{link.duration_s:.1f}"


def _format_link_status(link: Link) -> str:
    """Return the status, with the limit that ended the response where one did."""
    limit = (link.error or {}).get("limit")
    return f"{link.status} ({limit})" if limit else link.status


def preview_cell(row: TreeRow, *, with_status: bool, names_compaction: bool = True) -> str:
    """Return the input and the answer of a request, or the name of a compaction, in one line, not escaped."""
    if row.compaction and names_compaction:
        return _compaction_cell(row.compaction)
    status = f"{_format_link_status(row.link)}: " if with_status and row.link.status != "completed" else ""
    return status + " → ".join(text for text in (row.stats.input_preview, row.stats.output_preview) if text)


def _compaction_cell(item: Item) -> str:
    """Return the name of a compaction, and the start of its summary if it can be read."""
    summary = summary_text(item) if is_summary(item) else ""
    return " ".join(["compaction:" if summary else "compaction", *summary[:RUNNING_TEXT_CHARS].split()])


CELL_CHARS = {
    ChartCell(is_sent=True, is_cached=False): ("█", "sent"),
    ChartCell(is_sent=True, is_cached=True): ("▓", "sent, cached"),
    ChartCell(is_sent=False, is_cached=False): ("▒", "prepended by the server"),
    ChartCell(is_sent=False, is_cached=True): ("░", "prepended, cached"),
}
"""The character of each kind of token, and its entry in the legend."""

MAX_BAR_CELLS = 60
"""Cells of the longest bar, however wide the display is."""

MIN_BAR_CELLS = 12


def _token_chart_lines(view: ConversationView, display: DisplayOptions) -> Iterator[str]:
    """Yield a line for each request, then the legend; nothing where no endpoint reported input tokens."""
    rows = build_tree_rows(view)
    shares = [input_token_share(row.stats) for row in rows]
    if not max_input_tokens(shares):
        return
    columns = _chart_columns(rows, shares)
    table = fit_columns([*columns, Column(CHART_HEADING, [" " * MIN_BAR_CELLS] * len(rows))], display)
    bar_width = _bar_width(table, display)
    bars = _render_bars(shares, bar_width)
    chart = Table((*table.columns[:-1], Column(CHART_HEADING, bars, style="id")), (*table.widths[:-1], bar_width))
    yield from table_lines(chart, display)
    yield from _legend_lines("".join(bars), display)


def _chart_columns(rows: Sequence[TreeRow], shares: Sequence[InputTokenShare]) -> list[Column]:
    owners = [str(row.link.strategy) for row in rows]
    return [
        Column("response", tree_labels(rows), style="id", links=[_response_url(row.link) for row in rows]),
        Column("owner", owners, drop_order=0 if len(set(owners)) == 1 else 3),
        Column("input", [format_optional_number(share.input_tokens) for share in shares], align_right=True),
        Column(
            "cached",
            [format_optional_number(share.input_tokens and share.cached_tokens) for share in shares],
            align_right=True,
            drop_order=2,
        ),
        Column(
            "~sent", [format_optional_number(share.sent_tokens) for share in shares], align_right=True, drop_order=1
        ),
    ]


def _bar_width(table: Table, display: DisplayOptions) -> int:
    if display.table_width is None:
        return MAX_BAR_CELLS
    used_columns = sum(width + COLUMN_GAP for width in table.widths[:-1])
    return max(MIN_BAR_CELLS, min(MAX_BAR_CELLS, display.table_width - used_columns))


def _render_bars(shares: Sequence[InputTokenShare], columns: int) -> list[str]:
    max_tokens = max_input_tokens(shares)
    return [render_token_bar(share, columns, max_tokens) for share in shares]


def render_token_bar(share: InputTokenShare, columns: int, max_tokens: int) -> str:
    """Render the input tokens of one request; the bar of `max_tokens` is `columns` wide."""
    return "".join(CELL_CHARS[cell][0] for cell in share.to_cells(columns, max_tokens))


def _legend_lines(bars: str, display: DisplayOptions) -> Iterator[str]:
    """Yield the legend: on a terminal at the left edge below an empty line, dim, with the signs in the bars' color."""
    if display.width is None:
        yield from key_value_lines([("", chart_legend(bars))], display)
        return
    yield ""
    separator = " · "
    lines: list[list[tuple[str, str]]] = [[]]
    used_columns = 0
    for char, label in CELL_CHARS.values():
        if char in bars:
            columns = text_width(f"{separator}{char} {label}")
            if lines[-1] and used_columns + columns > display.width:
                lines.append([])
                used_columns = 0
            lines[-1].append((char, truncate_text(label, max(1, display.width - 2))))
            used_columns += columns if len(lines[-1]) > 1 else columns - text_width(separator)
    for entries in lines:
        yield display.apply_style(separator, "dim").join(
            f"{display.apply_style(char, 'id')} {display.apply_style(label, 'dim')}" for char, label in entries
        )


def chart_legend(bars: str) -> str:
    """Return the meaning of the characters that occur in `bars`."""
    return " · ".join(f"{char} {label}" for char, label in CELL_CHARS.values() if char in bars)


MAX_INDENTED_ITEMS = 100
"""Items that are pretty-printed; in a longer input each item takes one line."""


def render_next_request(
    request: "NextRequest",
    display: DisplayOptions,
    *,
    max_prepended: int | None = None,
    compact_command: str | None = None,
) -> str:
    """Render the request with its target and its context usage.

    max_prepended:    how many items to show, from the end, of those that the server prepends; None for all
    compact_command:  the command that compacts the conversation; None for `convo compact HANDLE`
    """
    body = _format_request_body(request.body)
    lines = [
        *_prepended_lines(request, display, max_prepended),
        format_request_target(request),
        escape_control_chars(body),
        "",
        *context_table_lines(
            request.context_usage, request.model, display, compact_command or f"convo compact {quote(request.handle)}"
        ),
        *([wrap_text(escape_control_chars(str(request.prefix)), display.width)] if request.prefix else ()),
    ]
    return display.translate_box_chars("\n".join(lines))


def format_request_target(request: "NextRequest") -> str:
    """Return the line that names the target of the request."""
    return f"POST {request.url}" if request.url else "to convo's own endpoint, in this process"


def _format_request_body(body: Mapping[str, Json]) -> str:
    """Format a request as indented JSON; a long input has one item a line."""
    input_items = body.get("input")
    if not isinstance(input_items, list) or len(input_items) <= MAX_INDENTED_ITEMS:
        return json.dumps(body, indent=2, ensure_ascii=False)
    items = ",\n    ".join(map(json.JSONEncoder(ensure_ascii=False).encode, input_items))
    fields = {name: "" if name == "input" else json.dumps(value, ensure_ascii=False) for name, value in body.items()}
    fields["input"] = f"[\n    {items}\n  ]"
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in fields.items()) + "\n}"


def _prepended_lines(request: "NextRequest", display: DisplayOptions, max_prepended: int | None) -> Iterator[str]:
    if not request.prepended_nodes:
        yield "no server-side context"
        return
    count = len(request.prepended_nodes)
    yield f"{format_count(count)} of {request.owner_handle} prepended by the server"
    left_out = 0 if max_prepended is None else max(0, count - max_prepended)
    if left_out:
        yield f"      {format_count(left_out, 'earlier item')} not shown"
    for number, node in enumerate(request.prepended_nodes[left_out:], left_out + 1):
        yield format_item_line(number, node.item, display.width)
    yield ""
