"""Views of token usage: context window by part, session usage and cost.

Estimated token counts begin with "~".
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from convo.config.sections import Price
from convo.history.items import Json
from convo.history.records import NOTICES, SERVICE_TIER, UPSTREAM_ID, Link
from convo.inspect.context_window import COUNTED_BY_ENDPOINT, COUNTED_BY_ESTIMATE, ContextUsage
from convo.inspect.view import PathIndex, UsageTotals, sum_link_usage
from convo.terminal.status_line import format_share, format_token_counts, format_total_cost
from convo.terminal.tables import Column, render_bar, render_table
from convo.terminal.terminal import DisplayOptions, KeyValue, escape_control_chars, format_count, shorten_ids, wrap_line
from convo.usage.cost import Usage, format_usd

if TYPE_CHECKING:
    from convo.prompt_cache.bill import BillRow

NO_REQUESTS_TEXT = "no requests yet"


def format_session_usage(
    links: Sequence[Link], prices: Mapping[str, Price], path_index: PathIndex | None = None
) -> str:
    """Format the lines of /usage; `links` are the session's, oldest first, and `path_index` has their items."""
    return "\n".join(_usage_lines(links, prices, path_index)) or f"  {NO_REQUESTS_TEXT}"


def _usage_lines(links: Sequence[Link], prices: Mapping[str, Price], path_index: PathIndex | None) -> Iterator[str]:
    last, total = sum_link_usage(links[-1:], prices), sum_link_usage(links, prices, path_index=path_index)
    if links:
        # A stopped answer has no tokens; without this line /usage said "no requests yet".
        yield f"  last     {_format_totals(last) if last else f'{links[-1].status}, tokens not reported'}"
    if total:
        resent = [f"{total.resent_tokens:,} re-sent"] if total.resent_tokens else []
        parts = [format_count(total.request_count, "request"), _format_totals(total), *resent]
        yield f"  session  {' · '.join([*parts, *_format_unreported(links, total)])}"
    elif links:
        yield f"  session  {format_count(len(links), 'request')}, tokens not reported"


def _format_unreported(links: Sequence[Link], total: UsageTotals) -> list[str]:
    """Format the number of requests that are not in the total, such as answers that were stopped."""
    count = len(links) - total.request_count
    return [f"{count:,} more without reported tokens"] if count else []


def _format_totals(totals: UsageTotals) -> str:
    return " · ".join([*format_token_counts(totals.usage), *format_cost_of_totals(totals)])


def format_cost_of_totals(totals: UsageTotals) -> list[str]:
    """Format the cost of the requests of `totals`, as `status_line.format_total_cost`."""
    return format_total_cost(totals.known_cost_usd, totals.unpriced_count, totals.request_count)


def cost_lines(
    links: Sequence[Link], turn_links: Sequence[Link], prices: Mapping[str, Price], turn: str = "last turn"
) -> Iterator[str]:
    """Yield the cost of all requests and of those of one turn, and the models without a price.

    turn:  what the turn is called
    """
    total, turn_total = sum_link_usage(links, prices), sum_link_usage(turn_links, prices)
    if total is None:
        yield (
            f"cost unknown: {format_count(len(links), 'request')} without reported tokens"
            if links
            else NO_REQUESTS_TEXT
        )
        return
    turn_costs = format_cost_of_totals(turn_total) if turn_total else ()
    turn_count = f" for {len(turn_links)} requests" if len(turn_links) > 1 else ""
    turn_cost = "".join(f"; {turn} {cost}{turn_count}" for cost in turn_costs)
    count = "" if total.unpriced_count else f" for {format_count(total.request_count, 'request')}"
    if cost := format_cost_of_totals(total):
        yield "; ".join([f"{cost[0]}{count}{turn_cost}", *_format_unreported(links, total)])
    if note := find_price_note(links):
        yield note
    if not total.unpriced_count:
        return
    unpriced = dict.fromkeys(
        link.model for link in links if (link_total := sum_link_usage([link], prices)) and link_total.unpriced_count
    )
    yield f"no price for {escape_control_chars(', '.join(unpriced))}; add it under [prices] in config.toml"


def find_price_note(links: Sequence[Link]) -> str | None:
    """Return the part of the prices of requests that no source states; None if all are known."""
    from convo.usage.cache_rules import UNPUBLISHED_PRICE, has_unpublished_price  # most views do not need it

    usages = ((link, Usage.from_json(link.usage)) for link in links)
    is_unpublished = any(has_unpublished_price(link.model, link.parameters, usage) for link, usage in usages)
    return UNPUBLISHED_PRICE if is_unpublished else None


MIN_PART_COLUMNS = 16
"""Columns to which the names of the parts of a bill may be cut."""


def bill_lines(rows: "Sequence[BillRow]", display: DisplayOptions) -> Iterator[str]:
    """Yield a table with the cost of each row, or with its tokens if no price is known."""
    if not rows:
        return
    has_cost = any(row.cost_usd for row in rows)
    charges = [[charge.cost_usd if has_cost else charge.tokens for charge in row[3:7]] for row in rows]
    sums = [sum(row) for row in charges]
    total = sum(sums) or 1
    counts = Counter((row.name, row.kind) for row in rows)
    ids = shorten_ids([row.response_id for row in rows if row.response_id])
    names = [
        f"{row.name} {ids[row.response_id]}" if row.response_id and counts[row.name, row.kind] > 1 else row.name
        for row in rows
    ]
    keys, numbers = [(name, row.kind) for name, row in zip(names, rows, strict=True)], Counter[tuple[str, str]]()
    for index, key in enumerate(keys):  # such as two reasoning items of one response
        numbers[key] += 1
        names[index] += f" ({numbers[key]})" if keys.count(key) > 1 else ""
    columns = [
        Column("part", names, min_width=MIN_PART_COLUMNS),
        Column("kind", [row.kind.removeprefix("others") for row in rows], drop_order=2),
        *(
            Column(name, [_format_charge(row[index]) for row in charges], align_right=True, drop_order=3 + index)
            for index, name in enumerate(("first", "cached", "uncached", "output"))
        ),
        Column("total", [*map(_format_charge, sums)], align_right=True),
        Column("share", [f"{sum_ / total:.1%}" for sum_ in sums], align_right=True, drop_order=1),
        Column("hit rate", [_format_rate(row.hit_rate) for row in rows], align_right=True, drop_order=8),
        Column("missed", [_format_charge(row.missed_usd) for row in rows], align_right=True, drop_order=7),
    ]
    optional = ("kind", "hit rate", "missed")
    shown = [column for column in columns if column.heading not in optional or set(column.cells) - {"", "-"}]
    yield from render_table(shown, display).split("\n")


def _format_rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _format_charge(value: float) -> str:
    """Format USD, or a number of tokens."""
    return "-" if not value else f"{value:,}" if isinstance(value, int) else format_usd(value)


def reported_rows(reported: Mapping[str, Json]) -> Iterator[KeyValue]:
    """Yield a row for each field that a response's provider reported; its text is not trusted."""
    if "prompt_cache_diagnostics" in reported:
        yield "prompt cache", _describe_cache_diagnostics(reported["prompt_cache_diagnostics"])
    for notice in reported.get(NOTICES) or ():
        yield "note", escape_control_chars(str(notice))
    if "input_transformations" in reported:
        yield "removed", _describe_transformations(reported["input_transformations"])
    if "tool_usage" in reported:
        yield "tool usage", _to_json_text(reported["tool_usage"])
    if SERVICE_TIER in reported:
        yield "service tier", escape_control_chars(str(reported[SERVICE_TIER]))
    if UPSTREAM_ID in reported:
        yield "provider id", escape_control_chars(str(reported[UPSTREAM_ID]))


def _describe_cache_diagnostics(diagnostics: Json) -> str:
    if not isinstance(diagnostics, Mapping) or not isinstance(diagnostics.get("type"), str):
        return _to_json_text(diagnostics)
    text = diagnostics["type"].replace("_", " ")
    if isinstance(reason := diagnostics.get("provider_reason") or diagnostics.get("reason"), str):
        text += f": {reason.replace('_', ' ')}"
    if isinstance(tokens := diagnostics.get("cache_missed_tokens"), int):
        text += f", about {format_count(tokens, 'token')} not reused"
    return escape_control_chars(text)


def _describe_transformations(transformations: Json) -> str:
    """Count the removed inputs by their reasons."""
    if not isinstance(transformations, list) or not all(isinstance(each, Mapping) for each in transformations):
        return _to_json_text(transformations)
    kinds = Counter(f"{each.get('type')} ({str(each.get('reason')).replace('_', ' ')})" for each in transformations)
    removed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return escape_control_chars(f"{removed}: the model did not receive them" if removed else "nothing")


def _to_json_text(value: Json) -> str:
    return escape_control_chars(json.dumps(value, ensure_ascii=False))


METER_COLUMNS = 40
"""Columns of a full context window, space permitting."""

METER_LABEL_COLUMNS = 15
"""Columns beside the longest name, the bar and the longest number, including the last one of the terminal."""


def context_table_lines(
    usage: ContextUsage, model: str, display: DisplayOptions, compact_command: str = ""
) -> Iterator[str]:
    """Yield a line for each part, then the total.

    model:            provider/model
    compact_command:  the command that compacts the conversation, for an input that is too large; "" without one
    """
    parts = usage.parts
    columns = [
        Column("part", [part.name for part in parts]),
        Column("items", [f"{part.item_count:,}" for part in parts], align_right=True),
        Column("tokens", [_format_tokens(part.tokens.tokens, part.tokens.is_estimate) for part in parts]),
    ]
    yield from render_table(columns, display).split("\n")
    yield from _total_lines(usage, model, display, indent="", compact_command=compact_command)


def format_context_total(usage: ContextUsage) -> str:
    """Format the total, its source, and its share of the context window."""
    window, total = usage.window, usage.total
    summary = f"{_format_tokens(total.tokens, total.is_estimate)} tokens, {_format_counter(usage)}"
    if window is None:
        return f"{summary}; context window unknown"
    return f"{summary}; {format_share(total.tokens, window.context)} of the context window of {window.context:,}"


def _total_lines(
    usage: ContextUsage, model: str, display: DisplayOptions, indent: str, compact_command: str
) -> Iterator[str]:
    """Yield the total, whether it is too large, and the command that sets the context window if it is unknown."""
    model = escape_control_chars(model)
    yield from wrap_line(indent + format_context_total(usage), display.width or sys.maxsize)
    if usage.window is not None and not usage.fits:
        advice = f"{compact_command}, shorten it" if compact_command else "shorten it"
        text = f"does not fit: {model} accepts {usage.window.max_input:,} input tokens; {advice}, or use another model"
        yield from wrap_line(f"{indent}{text}", display.width or sys.maxsize)
    if usage.window is None:
        key = quote(f'windows."{model}".context')
        yield from wrap_line(f"{indent}set it: convo config set {key} TOKENS", display.width or sys.maxsize)


def context_meter_lines(usage: ContextUsage, model: str, display: DisplayOptions) -> Iterator[str]:
    """Yield a bar for each part and one for the free tokens; shares of the total if the context window is unknown.

    model:  provider/model
    """
    rows = [(part.name, part.tokens.tokens) for part in usage.parts]
    total = usage.window.context if usage.window else max(sum(tokens for _, tokens in rows), 1)
    free = [] if usage.free_tokens is None else [("free", usage.free_tokens)]
    name_width = max(len(name) for name, _ in [*rows, ("free", 0)])
    number_width = max(len(f"{tokens:,}") for _, tokens in [*rows, *free, ("", 0)])
    bar_columns = (
        METER_COLUMNS
        if display.width is None
        else max(0, min(METER_COLUMNS, display.width - name_width - number_width - METER_LABEL_COLUMNS))
    )
    for name, tokens in rows:
        bar = _meter_bar(tokens, total, bar_columns, display)
        yield f"  {name:<{name_width}}  {bar}  {tokens:>{number_width},}  {format_share(tokens, total)}"
    for name, tokens in free:
        yield f"  {name:<{name_width}}  {' ' * bar_columns}  {tokens:>{number_width},}  {format_share(tokens, total)}"
    yield from _total_lines(usage, model, display, indent="  ", compact_command="/compact")


def _format_counter(usage: ContextUsage) -> str:
    if usage.counted_by == COUNTED_BY_ENDPOINT:
        return "counted by the endpoint"
    return "estimated" if usage.counted_by == COUNTED_BY_ESTIMATE else f"counted with {usage.counted_by}"


def _format_tokens(tokens: int, is_estimate: bool) -> str:
    return f"~{tokens:,}" if is_estimate else f"{tokens:,}"


def _meter_bar(tokens: int, total: int, columns: int, display: DisplayOptions) -> str:
    if display.width is not None and columns:
        return render_bar(min(tokens, total), total, columns, display, is_padded=True)
    full = min(columns, -(-tokens * columns // total)) if tokens else 0
    return ("█" if display.has_box_chars else "#") * full + ("░" if display.has_box_chars else ".") * (columns - full)
