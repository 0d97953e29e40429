"""Views of token usage: context window by part, session usage and cost.

Estimated token counts begin with "~".
"""

import sys
from collections.abc import Iterator, Mapping, Sequence

from convo.config.sections import Price
from convo.history.records import Link
from convo.inspect.context_window import COUNTED_BY_ENDPOINT, COUNTED_BY_ESTIMATE, ContextUsage
from convo.inspect.view import UsageTotals, sum_link_usage
from convo.terminal.status_line import format_cost, format_share, format_token_counts
from convo.terminal.terminal import Column, DisplayOptions, fit_columns, format_count, table_lines, wrap_line

NO_REQUESTS_TEXT = "nothing was asked yet"


def format_session_usage(links: Sequence[Link], own: Mapping[str, Price]) -> str:
    """Format the lines of /usage; `links` are the session's, oldest first."""
    return "\n".join(_usage_lines(links, own)) or f"  {NO_REQUESTS_TEXT}"


def _usage_lines(links: Sequence[Link], own: Mapping[str, Price]) -> Iterator[str]:
    last, all_ = sum_link_usage(links[-1:], own), sum_link_usage(links, own)
    if last:
        yield f"  last     {_format_totals(last)}"
    if all_:
        again = [f"{all_.again:,} of the input billed again"] if all_.again else []
        yield f"  session  {' · '.join([format_count(all_.requests, 'request'), _format_totals(all_), *again])}"


def _format_totals(one: UsageTotals) -> str:
    return " · ".join([*format_token_counts(one.used), *format_cost(one.cost_usd)])


def format_session_cost(links: Sequence[Link], own: Mapping[str, Price]) -> str:
    """Format the line of /cost."""
    all_, last = sum_link_usage(links, own), sum_link_usage(links[-1:], own)
    if all_ is None:
        return f"  {NO_REQUESTS_TEXT}"
    if all_.cost_usd is None:
        unpriced = dict.fromkeys(
            link.model for link in links if (one := sum_link_usage([link], own)) and one.cost_usd is None
        )
        return f"  no price is known of {', '.join(unpriced)}; [prices] in config.toml takes them"
    of_last = f"; the last one {''.join(format_cost(last.cost_usd))}" if last and last.cost_usd is not None else ""
    return f"  {''.join(format_cost(all_.cost_usd))} for {format_count(all_.requests, 'request')}{of_last}"


METER_COLUMNS = 40
"""Columns of a full context window, space permitting."""

METER_LABEL_COLUMNS = 15
"""Columns beside the longest name, the bar and the longest number, including the last one of the terminal."""


def context_table_lines(filling: ContextUsage, medium: DisplayOptions) -> Iterator[str]:
    """Yield a line for each part, then the total."""
    parts = filling.parts
    columns = [
        Column("part", [part.name for part in parts]),
        Column("items", [f"{part.items:,}" for part in parts], right=True),
        Column("tokens", [_format_tokens(part.tokens.tokens, part.tokens.estimated) for part in parts]),
    ]
    yield from table_lines(fit_columns(columns, medium), medium)
    yield from wrap_line(format_context_total(filling), medium.width or sys.maxsize)


def format_context_total(filling: ContextUsage) -> str:
    """Format the total, its source, and its share of the context window."""
    window, total = filling.window, filling.total
    said = f"{_format_tokens(total.tokens, total.estimated)} tokens, {_format_counter(filling)}"
    if window is None:
        return f"{said}; nobody wrote down how large this model's window is"
    return f"{said}; {format_share(total.tokens, window.context)} of a window of {window.context:,}"


def context_meter_lines(filling: ContextUsage, medium: DisplayOptions) -> Iterator[str]:
    """Yield a bar for each part and one for the free tokens; shares of the total if the context window is unknown."""
    rows = [(part.name, part.tokens.tokens) for part in filling.parts]
    whole = filling.window.context if filling.window else max(sum(tokens for _, tokens in rows), 1)
    free = [] if filling.left is None else [("free", filling.left)]
    wide = max(len(name) for name, _ in [*rows, ("free", 0)])
    figures = max(len(f"{tokens:,}") for _, tokens in [*rows, *free, ("", 0)])
    long = (
        METER_COLUMNS
        if medium.width is None
        else max(0, min(METER_COLUMNS, medium.width - wide - figures - METER_LABEL_COLUMNS))
    )
    for name, tokens in rows:
        bar = _meter_bar(tokens, whole, long, medium)
        yield f"  {name:<{wide}}  {bar}  {tokens:>{figures},}  {format_share(tokens, whole)}"
    for name, tokens in free:
        yield f"  {name:<{wide}}  {' ' * long}  {tokens:>{figures},}  {format_share(tokens, whole)}"
    yield from wrap_line(f"  {format_context_total(filling)}", medium.width or sys.maxsize)


def _format_counter(filling: ContextUsage) -> str:
    if filling.by == COUNTED_BY_ENDPOINT:
        return "counted by the endpoint"
    return "an estimate" if filling.by == COUNTED_BY_ESTIMATE else f"counted here with {filling.by}"


def _format_tokens(tokens: int, estimated: bool) -> str:
    return f"~{tokens:,}" if estimated else f"{tokens:,}"


def _meter_bar(tokens: int, whole: int, long: int, medium: DisplayOptions) -> str:
    full = min(long, -(-tokens * long // whole)) if tokens else 0
    return ("█" if medium.boxes else "#") * full + ("░" if medium.boxes else ".") * (long - full)
