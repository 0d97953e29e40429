"""The view of a prompt cache miss: the vendor's reason and ours apart, the cost and the fix."""

from collections.abc import Iterator, Mapping

from convo.prompt_cache.why import MissReport, Outcome, describe_cause
from convo.terminal.status_line import format_cost
from convo.terminal.terminal import DisplayOptions, KeyValue, format_count, render_key_values
from convo.usage.cost import format_usd

OUTCOMES: Mapping[Outcome, str] = {
    "miss": "missed",
    "partial": "partly missed",
    "hit": "hit",
    "first": "not used: no earlier request begins like this one",
    "unreported": "unknown: the endpoint reports no cached tokens",
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
    if others := report.other_missed_ids:
        more = f" and {len(others) - MAX_OTHERS_SHOWN:,} more" if len(others) > MAX_OTHERS_SHOWN else ""
        yield "also missed", ", ".join(others[-MAX_OTHERS_SHOWN:]) + more
