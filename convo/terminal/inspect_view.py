"""Views of a conversation for `convo inspect` and `convo next`.

The link tree, the chart of input tokens, the items in full, and the next request as JSON or as a curl command.
A curl command reads the body from a here-document and names the variable of the API key, not the key.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from shlex import quote

from convo.history.accumulator import STREAMED_TEXT_DIFFERS, STREAMED_TEXT_DIFFERS_MESSAGE
from convo.history.items import (
    Item,
    Json,
    decode_json_escapes,
    is_client_call,
    item_preview,
    item_type,
    searchable_text,
)
from convo.history.records import IGNORED_PARAMETER, STRATEGY_INFO, Link, Strategy
from convo.inspect.context_window import NextRequest
from convo.inspect.serialize import link_provider
from convo.inspect.tree import LinkRow, iter_link_rows
from convo.inspect.view import (
    ChartCell,
    ConversationView,
    InputTokenShare,
    LinkStats,
    compute_link_stats,
    input_token_share,
    link_cost_usd,
    max_input_tokens,
    sum_link_usage,
)
from convo.terminal.status_line import describe_open_run, format_continue_command, format_cost, format_token_counts
from convo.terminal.terminal import (
    COLUMN_GAP,
    Column,
    DisplayOptions,
    KeyValue,
    Table,
    escape_control_chars,
    fit_columns,
    format_count,
    key_value_lines,
    table_lines,
    truncate_text,
    unconfirmed_rows,
)
from convo.terminal.usage_views import context_table_lines

NO_CHART_TEXT = "no request said what its model saw"


def render_conversation(known: ConversationView, medium: DisplayOptions, *, bars: bool = True) -> str:
    """Render the conversation as a screen, without the last line break.

    with_chart:  whether a terminal also shows the chart of input tokens
    """
    fits = fit_link_table(known, medium) if known.links else None
    shown = [
        medium.paint(escape_control_chars(known.handle), "bold"),
        *key_value_lines(_conversation_rows(known, fits), medium),
        "",
    ]
    shown += tree_lines(fits, medium) if fits else _item_lines(known, medium)
    if bars and medium.width is not None and len(known.links) > 1:
        shown += ["", *token_chart_lines(known, medium)]
    return medium.drawn("\n".join(shown).rstrip("\n"))


def render_token_chart(known: ConversationView, medium: DisplayOptions) -> str:
    """Render the chart of input tokens alone, also where the output is no terminal."""
    return medium.drawn("\n".join(token_chart_lines(known, medium)) or NO_CHART_TEXT)


def render_path_items(known: ConversationView, medium: DisplayOptions) -> str:
    """Render every item of the path in full."""
    said = known.path.place(known.mark)
    return "\n\n".join(
        render_item(at, node.item, waits=at > said, medium=medium) for at, node in enumerate(known.path.nodes, 1)
    )


def render_item(at: int, item: Item, *, waits: bool, medium: DisplayOptions) -> str:
    """Render one item: its number, type, role and id, then its full text."""
    named = " ".join(filter(None, (format_item_label(item), str(item.get("id") or ""))))
    status = item.get("status")
    ended = [str(status)] if status not in (None, "completed") else []
    marks = ", ".join(ended + (["unacknowledged"] if waits else []))
    head = escape_control_chars(f"{at}  {named}" + (f"  ({marks})" if marks else ""))
    words = searchable_text(item)
    words = escape_control_chars(decode_json_escapes(words) if is_client_call(item) else words) or decode_json_escapes(
        json.dumps(item)
    )
    return "\n".join([medium.paint(head, "dim"), *(f"   {line}".rstrip() for line in words.split("\n"))])


def _conversation_rows(known: ConversationView, fits: Table | None) -> Iterator[KeyValue]:
    yield "owner", f"{STRATEGY_INFO[known.strategy].words} (--{known.strategy})"
    if known.session:
        yield "session", f"{known.session.name} ({known.session.id})"
        if known.session.handle:
            yield "handle", known.session.handle
    yield "endpoint", str(known.scope) if known.scope else "none yet"
    if known.model:
        yield "model", known.model
    providers = dict.fromkeys(filter(None, map(link_provider, known.links)))
    if providers and [*providers] != [(known.model or "").partition("/")[0]]:  # else the model's name begins with it
        yield "provider", escape_control_chars(", ".join(providers))
    yield "head", _format_head(known)
    unacknowledged = [node.item for node in known.unacknowledged]
    if known.session or unacknowledged:
        yield from unconfirmed_rows(unacknowledged, describe_open_run(known.run) if known.run else "")
    yield from _usage_rows(known)
    if fits and fits.said:
        yield "each link", " · ".join(f"{head} {cell}" for head, cell in fits.said)
    if not known.forks:
        yield "forks", "this endpoint cannot tell what else goes on from a response"
    ignored = dict.fromkeys(name for link in known.links for name in link.parameters.get(IGNORED_PARAMETER, ()))
    if ignored:
        yield "ignored", f"not sent to the model: {escape_control_chars(', '.join(ignored))}"
    differing = [link.id for link in known.links if STREAMED_TEXT_DIFFERS in (link.error or {})]
    if differing:
        yield "warning", f"{STREAMED_TEXT_DIFFERS_MESSAGE}: {escape_control_chars(', '.join(differing))}"
    for note in known.notes:
        yield "note", note
    if going_on := _continue_command(known):
        yield "go on", going_on


def _usage_rows(known: ConversationView) -> Iterator[KeyValue]:
    """Yield the usage of the last request and the total of all shown requests: the two are often confused."""
    last = next((link for link in reversed(known.links) if link.id == known.at), None)
    one, all_ = sum_link_usage([last] if last else [], known.prices), sum_link_usage(known.links, known.prices)
    if one:
        yield "last", " · ".join([*format_token_counts(one.used), *format_cost(one.cost_usd)])
    if all_ and all_.requests > 1:
        again = f"{all_.again:,} of the input billed again" if all_.again else ""
        said = [
            format_count(all_.requests, "request"),
            *format_token_counts(all_.used),
            again,
            *format_cost(all_.cost_usd),
        ]
        yield "together", " · ".join(filter(None, said))


def _format_head(known: ConversationView) -> str:
    after = f", @ {known.at}" if known.at else ""
    return f"{format_count(len(known.path))}{after}"


def _continue_command(known: ConversationView) -> str:
    """Return the command that continues from here, or "" where there is none."""
    if known.session:
        return format_continue_command(known.session, known.run)
    if known.strategy is Strategy.REPLAY:
        return f"convo chat --replay --from {quote(known.handle)}"
    if known.strategy is Strategy.CONVERSATION and not known.at:
        return f"convo chat --from {known.handle}"
    at = next((link for link in known.links if link.id == known.at), None)
    kept = at and at.stored and at.status in ("completed", "incomplete") and at.id.startswith("resp_")
    return f"convo chat --from {known.handle}" if kept else ""


def _item_lines(known: ConversationView, medium: DisplayOptions) -> Iterator[str]:
    """Yield one line for each item; used where no links are known."""
    for at, node in enumerate(known.path.nodes, 1):
        line = f"{at:>4}  {format_item_label(node.item)}: {escape_control_chars(item_preview(node.item))}"
        yield line if medium.width is None else truncate_text(line, medium.width)


def format_item_label(item: Item) -> str:
    """Return type and role: "message user", "function_call"."""
    return _cached_item_label(item_type(item), str(item.get("role") or ""))


@lru_cache(maxsize=256)
def _cached_item_label(what: str, role: str) -> str:
    return escape_control_chars(f"{what} {role}" if role else what)


MIN_SHORT_ID_CHARS = 8
"""Characters of an id after its type prefix, unless two ids begin alike."""

WIDE_TERMINAL_COLUMNS = 120
"""Columns from which on every line shows every value."""

UNKNOWN_NUMBER = "-"

MIXED_OWNERS_DROP_ORDER = 10
"""Drop order of the owner column where links have several owners: after the less important columns."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line of the tree: its link row, the link's statistics, the shortened id, and whether it is the head."""

    row: LinkRow
    was: LinkStats
    id: str
    at: bool = False
    first: bool = False

    @property
    def link(self) -> Link:
        return self.row.link


def fit_link_table(known: ConversationView, medium: DisplayOptions) -> Table:
    """Build the tree of `view` as a table that fits the display."""
    return fit_columns([*_tree_columns(build_tree_rows(known), known, medium)], medium)


def build_tree_rows(known: ConversationView) -> list[TreeRow]:
    """Build the rows of the tree, in drawing order."""
    ids = shorten_ids([link.id for link in known.links])
    drawn = iter_link_rows(known.links, known.at)
    return [
        TreeRow(
            row, compute_link_stats(row.link, known.places), ids[row.link.id], row.link.id == known.at, first=at == 0
        )
        for at, row in enumerate(drawn)
    ]


def tree_labels(drawn: Sequence[TreeRow]) -> list[str]:
    """Return the tree lines, the mark and the id of each row."""
    return [_tree_prefix(one) + one.id for one in drawn]


def format_optional_number(number: int | None) -> str:
    """Format a number, or return "-" for None."""
    return UNKNOWN_NUMBER if number is None else f"{number:,}"


def tree_lines(fits: Table, medium: DisplayOptions) -> Iterator[str]:
    """Yield the lines of the tree, its headings first."""
    yield from table_lines(fits, medium)


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Shorten all ids to the smallest common length at which they still differ."""
    longest = max(map(len, ids), default=0)
    for size in range(MIN_SHORT_ID_CHARS, longest):
        short = {id_: _shorten_id(id_, size) for id_ in ids}
        if len(set(short.values())) == len(set(ids)):
            return short
    return {id_: id_ for id_ in ids}


def _shorten_id(id_: str, size: int) -> str:
    kind, underscore, rest = id_.partition("_")
    return f"{kind}{underscore}{rest[:size]}"


def _tree_columns(drawn: Sequence[TreeRow], known: ConversationView, medium: DisplayOptions) -> Iterator[Column]:
    roomy = medium.width is None or medium.width >= WIDE_TERMINAL_COLUMNS
    yield Column("response", tree_labels(drawn), style="id")
    if len({one.link.session for one in drawn}) > 1:
        yield Column("session", [_session_cell(one.link, known) for one in drawn], goes=6)
    owners = [str(one.link.strategy) for one in drawn]
    yield Column("owner", owners, goes=0 if len(set(owners)) == 1 else MIXED_OWNERS_DROP_ORDER)
    yield from _amount_columns(drawn)
    costs = [link_cost_usd(one.link, known.prices) for one in drawn]
    if any(cost is not None for cost in costs):
        yield Column("cost", ["".join(format_cost(cost)) or UNKNOWN_NUMBER for cost in costs], right=True, goes=9)
    yield Column("model", [one.link.model for one in drawn], goes=3)
    yield Column("day", [_format_time(one.link, "%Y-%m-%d") for one in drawn], goes=1)
    yield Column("time", [_format_time(one.link, "%H:%M") for one in drawn], goes=8)
    if roomy:
        yield Column("status", [_format_link_status(one.link) for one in drawn])
    yield Column("secs", [_duration_cell(one.link) for one in drawn], right=True, goes=5)
    yield Column("first words", [_preview_cell(one, status=not roomy) for one in drawn])


def _amount_columns(drawn: Sequence[TreeRow]) -> Iterator[Column]:
    yield Column(
        "sent", [("full " if one.was.full else "delta ") + format_optional_number(one.was.sent) for one in drawn]
    )
    yield _number_column("~tokens", [one.was.sent_tokens for one in drawn], goes=7)
    yield _number_column("saw", [one.was.saw for one in drawn], goes=12)
    used = [one.was.used for one in drawn]
    yield _number_column("in", [spent.input if spent else None for spent in used], goes=13)
    yield _number_column("cached", [spent.cached if spent else None for spent in used], goes=4)
    yield _number_column("out", [spent.output if spent else None for spent in used], goes=11)
    yield _number_column("reasoned", [spent.reasoning if spent else None for spent in used], goes=2)


def _number_column(head: str, numbers: Sequence[int | None], goes: int | None = None) -> Column:
    return Column(head, [format_optional_number(number) for number in numbers], right=True, goes=goes)


def _tree_prefix(one: TreeRow) -> str:
    depth = one.row.depth
    mark = "@ " if one.at else "● " if one.link.status == "completed" else "○ "
    if not one.row.begins:
        return "│ " * depth + mark
    return "│ " * (depth - 1) + ("┌─" if one.first else "├─") + mark


def _session_cell(link: Link, known: ConversationView) -> str:
    return known.names.get(link.session, "(removed)") if link.session else "(other client)"


def _format_time(link: Link, form: str) -> str:
    return time.strftime(form, time.localtime(link.created_at))


def _duration_cell(link: Link) -> str:
    return UNKNOWN_NUMBER if link.seconds is None else f"{link.seconds:.1f}"


def _format_link_status(link: Link) -> str:
    """Return the status, with the limit that ended the response where one did."""
    limit = (link.error or {}).get("limit")
    return f"{link.status} ({limit})" if limit else link.status


def _preview_cell(one: TreeRow, *, status: bool) -> str:
    ended = f"{_format_link_status(one.link)}: " if status and one.link.status != "completed" else ""
    return ended + " → ".join(words for words in (one.was.said, one.was.answered) if words)


CELL_CHARS = {
    ChartCell(sent=True, cached=False): ("█", "sent"),
    ChartCell(sent=True, cached=True): ("▓", "sent, cached"),
    ChartCell(sent=False, cached=False): ("▒", "put before it by its owner"),
    ChartCell(sent=False, cached=True): ("░", "put before it, cached"),
}
"""The character of each kind of token, and its entry in the legend."""

MAX_BAR_CELLS = 60
"""Cells of the longest bar, however wide the display is."""

MIN_BAR_CELLS = 12

CHART_HEADING = "what the model saw"


def token_chart_lines(known: ConversationView, medium: DisplayOptions) -> Iterator[str]:
    """Yield a line for each request, then the legend; nothing where no endpoint reported input tokens."""
    drawn = build_tree_rows(known)
    shares = [input_token_share(one.was) for one in drawn]
    if not max_input_tokens(shares):
        return
    figures = _chart_columns(drawn, shares)
    fits = fit_columns([*figures, Column(CHART_HEADING, [" " * MIN_BAR_CELLS] * len(drawn))], medium)
    bars = _render_bars(shares, _bar_width(fits, medium))
    yield from table_lines(fits._replace(columns=(*fits.columns[:-1], Column(CHART_HEADING, bars))), medium)
    yield from key_value_lines([("", _chart_legend("".join(bars)))], medium)


def _chart_columns(drawn: Sequence[TreeRow], shares: Sequence[InputTokenShare]) -> list[Column]:
    owners = [str(one.link.strategy) for one in drawn]
    return [
        Column("response", tree_labels(drawn), style="id"),
        Column("owner", owners, goes=0 if len(set(owners)) == 1 else 3),
        Column("seen", [format_optional_number(one.seen) for one in shares], right=True),
        Column("cached", [format_optional_number(one.seen and one.cached) for one in shares], right=True, goes=2),
        Column("~sent", [format_optional_number(one.sent) for one in shares], right=True, goes=1),
    ]


def _bar_width(fits: Table, medium: DisplayOptions) -> int:
    if medium.width is None:
        return MAX_BAR_CELLS
    taken = sum(column.room + COLUMN_GAP for column in fits.columns[:-1])
    return max(MIN_BAR_CELLS, min(MAX_BAR_CELLS, medium.width - taken))


def _render_bars(shares: Sequence[InputTokenShare], room: int) -> list[str]:
    longest = max_input_tokens(shares)
    return ["".join(CELL_CHARS[cell][0] for cell in one.cells(room, longest)) for one in shares]


def _chart_legend(drawn: str) -> str:
    return " · ".join(f"{sign} {words}" for sign, words in CELL_CHARS.values() if sign in drawn)


HEREDOC_END = "END_OF_REQUEST"
"""JSON contains no such line."""

MAX_INDENTED_ITEMS = 100
"""Items that are pretty-printed; in a longer input each item takes one line."""


def render_next_request(coming: NextRequest, medium: DisplayOptions, *, most: int | None = None) -> str:
    """Render the request with its target and its context usage.

    max_prepended:  how many items to show, from the end, of those that the server prepends; None for all
    """
    body = _format_request_body(coming.body)
    shown = [
        *_prepended_lines(coming, medium, most),
        format_request_target(coming),
        escape_control_chars(body),
        "",
        *context_table_lines(coming.filling, medium),
    ]
    return medium.drawn("\n".join(shown))


def format_request_target(coming: NextRequest) -> str:
    """Return the line that names the target of the request."""
    return f"POST {coming.url}" if coming.url else "to convo's own endpoint, in this process"


def build_curl_command(coming: NextRequest, base_url: str | None = None) -> str:
    """Build a curl command for a POSIX shell. It streams the response, as a chat does.

    base_url:  target instead of the request's own, for a request that would not leave this process
    """
    url = f"{base_url.rstrip('/')}/responses" if base_url else coming.url or ""
    headers = {"Content-Type": "application/json", **coming.headers}
    shown = [f"-H {_format_header(name, value, coming.key_env)}" for name, value in headers.items()]
    # escaped as JSON, so that no byte of it is special to a terminal or a shell
    body = json.dumps({**coming.body, "stream": True}, indent=2).replace("\x7f", "\\u007f")
    options = " \\\n  ".join([f"curl -sS -N {quote(url)}", *shown, f"--data-binary @- <<'{HEREDOC_END}'"])
    return f"{options}\n{body}\n{HEREDOC_END}"


def _format_request_body(body: Mapping[str, Json]) -> str:
    """Format a request as indented JSON; a long input has one item a line."""
    said = body.get("input")
    if not isinstance(said, list) or len(said) <= MAX_INDENTED_ITEMS:
        return json.dumps(body, indent=2, ensure_ascii=False)
    items = ",\n    ".join(map(json.JSONEncoder(ensure_ascii=False).encode, said))
    rest = {name: "" if name == "input" else json.dumps(value, ensure_ascii=False) for name, value in body.items()}
    rest["input"] = f"[\n    {items}\n  ]"
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in rest.items()) + "\n}"


def _format_header(name: str, value: str, variable: str | None) -> str:
    """Quote one header for the shell; the key is read from its variable by the shell."""
    if "{key}" not in value:
        return quote(f"{name}: {value}")
    before, _, after = value.partition("{key}")
    return f'"{name}: {before}${{{variable}}}{after}"'


def _prepended_lines(coming: NextRequest, medium: DisplayOptions, most: int | None) -> Iterator[str]:
    if not coming.before:
        yield "nothing stands before it"
        return
    many = len(coming.before)
    yield f"the owner puts {format_count(many)} of {coming.owner} before it"
    left_out = 0 if most is None else max(0, many - most)
    if left_out:
        yield f"      {format_count(left_out)} before these"
    for at, node in enumerate(coming.before[left_out:], left_out + 1):
        line = f"{at:>4}  {format_item_label(node.item)}: {escape_control_chars(item_preview(node.item))}"
        yield line if medium.width is None else truncate_text(line, medium.width)
    yield ""
