"""Status of a conversation in one line or a few: status bar, receipt, /status, open run.

Numbers are tokens and USD. The status bar shortens its parts, then drops them, until it fits; the owner stays.
A receipt ends with the handle that continues the conversation.
"""

import json
import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from convo.config.request_settings import OBJECT_PARAMETERS
from convo.config.sections import Price
from convo.history.items import Json
from convo.history.records import Link, Session
from convo.strategies.strategy import STRATEGIES, ConversationState
from convo.terminal.terminal import format_count, text_width, truncate_text
from convo.usage.cost import Usage, format_usd

if TYPE_CHECKING:
    from convo.inspect.view import OpenRun

PART_SEPARATOR = " · "

MIN_SHOWN_SHARE = 0.0005
"""The smallest share of a window that is shown as a number."""


class StatusLineState(NamedTuple):
    """Values of the status line.

    owner:             "session oslo", "chain oslo", "conversation conv_..."
    used_tokens:       input and output of the last request; None before the first one
    context_window:    tokens; None if unknown
    cost_usd:          the known cost of the session; None without a known price or without requests
    attachment_count:  parts that are sent with the next message
    is_cost_partial:   whether the price of some requests is unknown, so that `cost_usd` is a lower bound
    """

    owner: str
    model: str
    used_tokens: int | None = None
    context_window: int | None = None
    cost_usd: float | None = None
    attachment_count: int = 0
    is_cost_partial: bool = False


class StatusLine:
    """Renders the current state; `state` is replaced between two prompts."""

    state: StatusLineState | None = None

    def render(self, columns: int) -> str:
        """Render for a terminal of `columns`; the last column stays free, since some terminals wrap there."""
        return _format_status_line(self.state, columns - 1) if self.state else ""


def _format_status_line(state: StatusLineState, columns: int) -> str:
    """Format the state in at most `columns`."""
    for parts in _iter_variants(state, columns):
        line = PART_SEPARATOR.join(part for part in parts if part)
        if text_width(line) <= columns:
            return line
    return truncate_text(line, columns)


def _iter_variants(state: StatusLineState, columns: int) -> Iterator[tuple[str, ...]]:
    """Yield variants of the line, most detailed first."""
    owner, model = state.owner, state.model
    short_model, attachments = model.rpartition("/")[2], f"+{state.attachment_count}" if state.attachment_count else ""
    used_share = _format_used_share(state)
    # One request of a model without a price (the built-in one, after /model) must not hide the cost of all others.
    cost = "".join(("at least " if state.is_cost_partial else "") + text for text in format_cost(state.cost_usd))
    short_owner = owner if len(owner) <= SHORT_OWNER_COLUMNS else truncate_text(owner, SHORT_OWNER_COLUMNS)
    yield owner, model, _format_used_window(state), cost, attachments
    yield owner, short_model, used_share, cost, attachments
    for rest in (
        (short_model, used_share, cost, attachments),
        (used_share, cost, attachments),
        (used_share, attachments),
    ):
        yield short_owner, *rest
        yield (
            truncate_text(
                owner, max(MIN_OWNER_COLUMNS, columns - sum(text_width(PART_SEPARATOR + part) for part in rest if part))
            ),
            *rest,
        )


SHORT_OWNER_COLUMNS = 20
"""Columns of a shortened owner."""

MIN_OWNER_COLUMNS = 14
"""Columns that the owner keeps before another part is dropped."""


def _format_used_share(state: StatusLineState) -> str:
    if state.used_tokens is None:
        return ""
    return (
        format_share(state.used_tokens, state.context_window)
        if state.context_window
        else f"{state.used_tokens:,} tokens"
    )


def _format_used_window(state: StatusLineState) -> str:
    used_share = _format_used_share(state)
    return f"{used_share} of {state.context_window:,}" if used_share and state.context_window else used_share


def format_share(tokens: int, total: int) -> str:
    """Format a share in percent; a share above zero is never shown as zero."""
    share = tokens / total
    return "<0.1%" if 0 < share < MIN_SHOWN_SHARE else f"{share:.1%}"


MIN_ID_DIGITS = 12
"""Digits of a shortened id: enough to be a handle of its own, also of ids that begin with a time."""


class LoadingTime(NamedTuple):
    """The time for which an answer waited until its model was loaded.

    is_in_duration:  the duration of the request includes it
    """

    seconds: float
    is_in_duration: bool


def format_receipt(
    link: Link,
    session: Session,
    price: Price | None = None,
    call_links: Sequence[Link] = (),
    *,
    call_prices: Sequence[Price | None] = (),
    columns: int | None = None,
    loading: LoadingTime | None = None,
    agent: str = "",
) -> str:
    """Format the receipt of a turn that has ended. An id that is the handle of the owner is shown once.

    call_links:   the requests that `link` is the total of
    call_prices:  the price of the model of each of them; without them `price` is used for all
    columns:      of one line that must not be exceeded: ids and paths are shortened; the id, the owner, the
                  cached and reasoning tokens, the duration and the cost are dropped until the rest fits; None:
                  everything is shown
    loading:      of a model that was loaded for this turn
    agent:        the agent that answered, if the chat has several
    """
    usage = Usage.from_json(link.usage)
    reason = f" ({link.error.get('limit') or link.error['code']})" if link.status == "incomplete" and link.error else ""
    status = [] if link.status == "completed" else [link.status + reason]
    links = call_links or [link]
    cost, brief_cost = _format_links_cost(links, call_prices or [price] * len(links)) if usage else ([], [])
    figures = [*(format_token_counts(usage) if usage else []), *cost, *_format_duration(link, loading)]
    count = format_count(len(call_links), "call") if len(call_links) > 1 else ""
    parts = [*filter(None, (agent, count)), *status, *figures]
    shown_id, owner = "" if link.id == session.handle else _shown_id(link), format_owner_handle(session)
    if columns is None:
        return PART_SEPARATOR.join(part for part in (*parts, shown_id, owner) if part)
    shown_id = _shorten_id(shown_id)
    owner = f"{session.strategy} {os.path.basename(_shorten_id(session.handle or session.name))}"
    totals = [f"{usage.input_tokens:,} input", f"{usage.output_tokens:,} output"] if usage else []
    brief_figures = [*totals, *brief_cost, *_format_duration(link)]
    brief_parts = [*parts[: len(parts) - len(figures)], *brief_figures]
    fewer_parts = [brief_parts[:length] for length in range(len(brief_parts), 0, -1)]
    for variant in ((*parts, shown_id, owner), (*parts, owner), parts, *fewer_parts):
        line = PART_SEPARATOR.join(part for part in variant if part)
        if text_width(line) <= columns:
            return line
    return truncate_text(line, columns)


def _shorten_id(text: str) -> str:
    """Return the start of the id of a response or a conversation, which is a handle as well; other text unchanged."""
    kind, _, digits = text.partition("_")
    return f"{kind}_{digits[:MIN_ID_DIGITS]}" if kind in ("resp", "conv") else text


def combine_links(links: Sequence[Link]) -> Link:
    """Combine the links of one run: the last link, with the tokens and the seconds of all."""
    usages = [reported for reported in (Usage.from_json(link.usage) for link in links) if reported]
    seconds = [link.duration_s for link in links if link.duration_s is not None]
    total = {
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "input_tokens_details": {
            "cached_tokens": sum(usage.cached_tokens for usage in usages),
            "cache_write_tokens": sum(usage.cache_write_tokens for usage in usages),
        },
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "output_tokens_details": {"reasoning_tokens": sum(usage.reasoning_tokens for usage in usages)},
        "total_tokens": sum(usage.input_tokens + usage.output_tokens for usage in usages),
    }
    return replace(links[-1], usage=total if usages else None, duration_s=sum(seconds) if seconds else None)


def format_owner_handle(session: Session) -> str:
    """Return the owner and the handle that continues the session: "chain resp_...", "session what-is-a-monad"."""
    if not session.handle:
        return f"{session.strategy} {session.name}"
    return f"{session.strategy} {session.handle}"


def format_status_owner(session: Session) -> str:
    """Return the owner for the status line; a chain has its name there, since its handle is in each receipt."""
    if not session.name:
        return str(session.strategy)
    is_chain = STRATEGIES[session.strategy].uses_response
    return f"{session.strategy} {session.name}" if is_chain else format_owner_handle(session)


def _format_links_cost(links: Sequence[Link], prices: Sequence[Price | None]) -> tuple[list[str], list[str]]:
    """Format the total cost in a long and a short form. It is the sum of single costs: a price may depend on length."""
    costs = [
        usage.cost_usd(price)
        for link, price in zip(links, prices, strict=True)
        if (usage := Usage.from_json(link.usage))
    ]
    known_costs = [cost for cost in costs if cost is not None]
    known_cost, unpriced_count = sum(known_costs) if known_costs else None, len(costs) - len(known_costs)
    bound = "at least " if unpriced_count else ""
    return (
        format_total_cost(known_cost, unpriced_count, len(costs), "call"),
        [bound + cost for cost in format_cost(known_cost)],
    )


def format_token_counts(usage: Usage) -> list[str]:
    """Format input and output tokens, with the cached and the reasoning tokens in them."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    reasoning = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    return [f"{usage.input_tokens:,} input{cached}", f"{usage.output_tokens:,} output{reasoning}"]


def format_cost(cost_usd: float | None) -> list[str]:
    """Format a known cost as `format_usd`. An empty list for None."""
    return [] if cost_usd is None else [format_usd(cost_usd)]


def format_total_cost(
    known_cost_usd: float | None, unpriced_count: int, request_count: int, noun: str = "request"
) -> list[str]:
    """Format the cost of several requests, as a lower bound if some of them have no known price.

    known_cost_usd:  the sum of the known costs; an empty list is returned for None
    """
    cost = format_cost(known_cost_usd)
    if not cost or not unpriced_count:
        return cost
    have = "has" if unpriced_count == 1 else "have"
    return [f"at least {cost[0]} ({unpriced_count:,} of {format_count(request_count, noun)} {have} no price)"]


def _format_duration(link: Link, loading: LoadingTime | None = None) -> list[str]:
    duration = [] if link.duration_s is None else [f"{link.duration_s:.1f} s"]
    if loading is None:
        return duration
    if loading.is_in_duration:
        return [f"{text} ({loading.seconds:.1f} s loading)" for text in duration]
    return [*duration, f"loaded in {loading.seconds:.1f} s"]


def _shown_id(link: Link) -> str:
    # A request that failed before the server gave it an id; no handle leads to it.
    return "" if link.id.startswith("try_") else link.id


MAX_FIELD_CHARS = 200
"""Characters of a field's value in /status."""


def format_lost_input(reported: Mapping[str, Json]) -> str:
    """Format the lost input that a provider reported: why its cache missed, and the reasoning that it removed.

    reported:  the fields of a response, as in `Link`; its text is not trusted

    Returns "" if nothing is lost.
    """
    parts, diagnostics = [], reported.get("prompt_cache_diagnostics")
    if isinstance(diagnostics, Mapping) and diagnostics.get("type") == "cache_miss":
        reason = diagnostics.get("provider_reason") or diagnostics.get("reason") or "unknown reason"
        tokens = diagnostics.get("cache_missed_tokens")
        size = f", {format_count(tokens, 'token')}" if isinstance(tokens, int) and tokens else ""
        parts.append(f"cache missed: {str(reason).replace('_', ' ')}{size}")
    transformations = reported.get("input_transformations")
    entries = transformations if isinstance(transformations, list) else ()
    removed = sum(isinstance(entry, Mapping) and entry.get("action") == "removed" for entry in entries)
    parts += [f"{format_count(removed, 'reasoning item')} removed"] if removed else []
    return " · ".join(parts)


def format_request_fields(parameters: Mapping[str, Json], field_sources: Mapping[str, str]) -> Sequence[str]:
    """Format each field of a request with its source, as in "temperature 0.2  (request.temperature from config.toml)".

    field_sources:  as in `RequestOptions`
    """
    lines = []
    for field, value in _iter_fields(parameters, field_sources):
        text = value if isinstance(value, str) else json.dumps(value)
        text = text if len(text) <= MAX_FIELD_CHARS else f"{text[:MAX_FIELD_CHARS]}…"
        lines.append(f"{field} {text}  ({field_sources.get(field, 'set for this chat')})")
    return lines


def _iter_fields(
    parameters: Mapping[str, Json], field_sources: Mapping[str, str], prefix: str = ""
) -> Iterator[tuple[str, Json]]:
    """Yield the fields, and of `reasoning`, `text` and objects that a setting sets a member of, each member."""
    for name, value in parameters.items():
        field = f"{prefix}{name}"
        has_members = field in OBJECT_PARAMETERS or any(one.startswith(f"{field}.") for one in field_sources)
        if isinstance(value, dict) and has_members:
            yield from _iter_fields(value, field_sources, f"{field}.")
        else:
            yield field, value


def format_status(session: Session, state: ConversationState, model: str, request_fields: Sequence[str] = ()) -> str:
    """Format the lines of /status; `request_fields` as of `format_request_fields`."""
    owner = STRATEGIES[session.strategy]
    unconfirmed = len(state.unconfirmed_nodes)
    rows = {
        "owner": f"{owner.description} (--{session.strategy})",
        "session": session.name or "(named after the first message)",
        "handle": session.handle
        or ("(the session name)" if not owner.is_server_side else "(created by the first response)"),
        "endpoint": str(session.scope),
        "model": model,
        "items": f"{len(state.path)}" + (f", {unconfirmed} unconfirmed" if unconfirmed else ""),
        "turn sends": "the unconfirmed items" if owner.is_server_side else "the full history",
    }
    lines = [*rows.items(), *(("" if index else "parameters", field) for index, field in enumerate(request_fields))]
    return "\n".join(f"  {name:<11} {value}" for name, value in lines)


def describe_open_run(run: "OpenRun") -> str:
    """Describe the status of an open run."""
    if run.is_paused:
        return (
            f"an agent run needs approval: {', '.join(run.pending_call_ids)}"
            if run.pending_call_ids
            else PAUSED_RUN_TEXT
        )
    return f"an agent run is in progress in {run.process}" if run.process else ORPHANED_RUN_TEXT


PAUSED_RUN_TEXT = "an agent run is paused"
ORPHANED_RUN_TEXT = "an agent run was interrupted during its calls"


def format_continue_command(session: Session, run: "OpenRun | None") -> str:
    """Return the command that continues a session; "" while another process continues its run."""
    name = quote(session.name or session.id)
    if run is None:
        return f"convo chat --from {name}"
    return f"convo resume {name}{run.agents_option}" if run.is_paused or run.is_orphaned else ""
