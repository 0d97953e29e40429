"""The views of a prompt cache miss, and of the forecast of the next request."""

from collections.abc import Iterator, Mapping

from convo.prompt_cache.next_usage import NextForecast, NextUsage
from convo.prompt_cache.why import MISSES, MissReport, Outcome, describe_cause
from convo.terminal.status_line import format_cost
from convo.terminal.tables import Column, render_table
from convo.terminal.terminal import DisplayOptions, KeyValue, format_count, render_key_values
from convo.usage.cost import format_usd

OUTCOMES: Mapping[Outcome, str] = {
    "miss": "missed",
    "partial": "partly missed",
    "hit": "hit",
    "first": "not used: no earlier request begins like this one",
    "unreported": "unknown: the endpoint has reported no cached tokens in this conversation yet",
}

MAX_OTHERS_SHOWN = 5
"""Ids of other requests that missed; the newest are shown."""


def render_miss(report: MissReport, display: DisplayOptions) -> str:
    """Render why the cache missed in one request, without the last line break."""
    # Names and paths come from requests, and must not begin lines of their own.
    return render_key_values([(name, " ".join(text.splitlines())) for name, text in _miss_rows(report)], display)


def _miss_rows(report: MissReport) -> Iterator[KeyValue]:
    compared = f", compared with {report.compared_id}" if report.compared_id else ""
    yield "request", f"{report.response_id}, {report.model}{compared}"
    figures = ""
    if report.reusable_tokens is not None:
        figures = f": {report.cached_tokens or 0:,} of {report.reusable_tokens:,} reusable tokens were read from it"
    yield "cache", OUTCOMES[report.outcome] + figures
    if reported := report.reported:
        tokens = [] if reported.missed_tokens is None else [format_count(reported.missed_tokens, "token")]
        yield f"{reported.vendor} says", ", ".join([reported.reason or reported.type, *tokens])
    if report.cause:
        yield "we see", describe_cause(report)
    if report.missed_tokens and report.cause:
        cost = format_cost(report.cost_usd)
        yield (
            "cost",
            " for ".join([*(cost or ["unknown"]), f"{format_count(report.missed_tokens, 'token')} not reused"]),
        )
    if report.outcome == "hit" and report.request_cost_usd is not None:
        new_tokens = format_count((report.input_tokens or 0) - (report.cached_tokens or 0), "new input token")
        output_tokens = format_count(report.output_tokens or 0, "output token")
        yield "cost", f"{format_usd(report.request_cost_usd)}: {new_tokens}, {output_tokens}"
    if report.note:
        yield "note", report.note
    if report.fix:
        yield "fix", report.fix
    if report.outcome in MISSES and report.path is not None:
        yield "later", "convo chat --strict-prefix refuses such a change, --keep-prefix appends it where it can"
    if others := report.other_missed_ids:
        more = f" and {len(others) - MAX_OTHERS_SHOWN:,} more" if len(others) > MAX_OTHERS_SHOWN else ""
        yield "also missed", ", ".join(others[-MAX_OTHERS_SHOWN:]) + more


def render_next_forecast(forecast: NextForecast, display: DisplayOptions) -> str:
    """Render the forecast of the next request, one fact a line; with a change, one column without and one with it."""
    usages = [usage for usage in (forecast.unchanged, forecast.request) if usage]
    headings = ["as it is", "with the change"][: len(usages)]
    rows = [row for row in zip(*map(_list_usage_facts, usages), strict=True) if any(text for _, text in row)]
    columns = [
        Column("", [row[0][0] for row in rows]),
        *(Column(heading, [row[index][1] or "none" for row in rows]) for index, heading in enumerate(headings)),
    ]
    lines = [render_table(columns, display)]
    if forecast.unchanged:
        lines += ["", f"break-even  {_describe_break_even(forecast)}"]
    return "\n".join(lines)


def _list_usage_facts(usage: NextUsage) -> Iterator[KeyValue]:
    yield "model", usage.model
    yield "input", f"about {format_count(usage.input_tokens, 'token')}"
    yield "window", "unknown" if usage.window_percent is None else f"{usage.window_percent} %"
    yield "read from the cache", f"{usage.cached_tokens:,}" if usage.cached_tokens else ""
    yield "perhaps cached still", f"{usage.maybe_cached_tokens:,}" if usage.maybe_cached_tokens else ""
    yield "written to the cache", f"{usage.cache_write_tokens:,}" if usage.cache_write_tokens else ""
    counts = [f"{usage.lost_reasoning:,}"] if usage.lost_reasoning else []
    counts += [f"perhaps {usage.maybe_lost_reasoning:,}"] if usage.maybe_lost_reasoning else []
    yield "lost reasoning items", ", ".join(counts)
    for name, cost in (
        ("cost of the input", usage.input_usd),
        ("cost of the output, as before", usage.output_usd),
        ("cost of each later request", usage.later_usd),
    ):
        yield name, "unknown" if cost is None else format_usd(cost) if cost else ""


def _describe_break_even(forecast: NextForecast) -> str:
    if forecast.unchanged and None in (forecast.unchanged.later_usd, forecast.request.later_usd):
        return "unknown: no price"
    if forecast.break_even_requests is None:
        return "never: later requests do not become cheaper"
    if not forecast.break_even_requests:
        return "with the next request"
    return f"after {format_count(forecast.break_even_requests, 'later request')}"
