"""JSON data of parts of the inspector page that are loaded when they are opened.

Markdown, the preview of a compaction, agent runs, and the comparison of two branches. Nothing is changed, and no model
is called.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from convo.chat.lookup import read_or_report
from convo.chat.next_request import rebuild_link_request
from convo.chat.view_loader import load_handle_view
from convo.compaction.planning import (
    CompactionMethod,
    CompactionOptions,
    HistorySnapshot,
    build_replacements,
    plan_compaction,
)
from convo.config.sections import Price
from convo.config.settings import LOCAL_TENANT
from convo.errors import InvalidUsage, ItemDeleted, NotFound
from convo.history.items import Item, Json, item_preview, item_type
from convo.history.records import ANSWERED_STATUSES, EMBEDDED_SCOPE, AgentCall, AgentRun
from convo.history.tree import Key
from convo.inspect.diff import (
    HistoryDiff,
    RequestDiff,
    build_history_diff_report,
    build_request_diff_report,
    diff_histories,
    diff_requests,
)
from convo.inspect.run_timeline import build_run_timeline, find_logged_items
from convo.inspect.tree import find_branch_links
from convo.inspect.view import ConversationView, sum_link_usage
from convo.report import to_json
from convo.server import errors, http
from convo.server.handlers import HandlerContext
from convo.server.inspector_data import MAX_LINKS, store_for_tenant
from convo.transfer.convert import load_links_on_path
from convo.usage.cost import TOKENS_PER_PRICE
from convo.usage.counting import count_item_tokens, count_tokens
from convo.usage.model_info import find_price

MAX_MARKDOWN_TEXTS = 20
"""Texts of one call that are rendered."""


async def encode_markdown(context: HandlerContext) -> bytes:
    """Render the `texts` of the body. Raises RequestRefused for an invalid body."""
    context.check_fields("texts")
    texts = context.get_array("texts")
    if len(texts) > MAX_MARKDOWN_TEXTS or not all(isinstance(text, str) for text in texts):
        raise errors.http_parameter_type_error("texts", f"an array of at most {MAX_MARKDOWN_TEXTS} strings")
    async with context.inspector.query_locks.for_tenant(context.tenant):
        rendered = await asyncio.to_thread(_render_texts, [str(text) for text in texts])
    return http.serialize_strict_json({"data": rendered})


def _render_texts(texts: Sequence[str]) -> list[Json]:
    from convo.server.markdown_nodes import render_markdown  # the import takes time, so it is not in the event loop

    return [{"nodes": nodes, "note": note} for nodes, note in map(render_markdown, texts)]


# -- compaction ------------------------------------------------------------------------------------


async def encode_compaction_preview(context: HandlerContext) -> bytes:
    """Serialize the preview of a compaction: the items that it would replace, and their tokens.

    Raises NotFound, AmbiguousHandle, InvalidUsage if there is nothing to compact, and StateFault if a call has no
    output.
    """
    store = store_for_tenant(context)
    view = await load_handle_view(
        store,
        context.path_params["handle"],
        read_files=context.tenant == LOCAL_TENANT,
        max_links=1,
    )
    keep_turns = context.query.get("keep_last", 0)
    if keep_turns < 0:
        raise errors.http_parameter_type_error("keep_last", "an integer of at least 0")
    links = await read_or_report(store, load_links_on_path(store, view.path)) or ()
    view = replace(view, links=(*links, *view.links))
    return await asyncio.to_thread(
        lambda: http.serialize_strict_json(preview_compaction(view, CompactionOptions(keep_turns=keep_turns)))
    )


def preview_compaction(view: ConversationView, options: CompactionOptions) -> dict[str, Json]:
    """Plan a compaction and count its tokens without the summary, which only a model can write.

    Raises InvalidUsage and StateFault.
    """
    if view.unreadable_head:
        raise NotFound("complete history of", view.handle, hint="an item of it was deleted")
    path = view.path.up_to(view.confirmed_head)
    stored: Mapping[Key, str] = {
        link.head: link.id for link in view.links if link.is_stored and link.status in ANSWERED_STATUSES
    }
    try:
        plan = plan_compaction(HistorySnapshot(view.strategy, path, view.scope == EMBEDDED_SCOPE, stored), options)
    except InvalidUsage as error:
        raise InvalidUsage(error.message, hint="choose a smaller number of kept turns") from error
    tokens = count_item_tokens(path.items)
    replacement: Sequence[Item] = plan.kept_items
    if plan.method is CompactionMethod.SUMMARY:
        replacement = build_replacements(plan, tokens, "")[0]
    remaining, count = count_tokens(replacement), len(plan.compacted_items)
    return {
        "method": str(plan.method),
        "items_before": len(path),
        "items_replaced": count,
        "items_kept": len(plan.kept_items),
        "tokens_before": sum(tokens),
        "tokens_replaced": sum(tokens[:count]),
        "tokens_after_without_summary": remaining.tokens,
        "is_estimate": count_tokens(path.items).is_estimate or remaining.is_estimate,
        "replaced": [
            {"type": item_type(item), "tokens": size, "preview": item_preview(item)}
            for item, size in zip(path.items[:count], tokens, strict=False)
        ][-MAX_REPLACED_ITEMS:],
    }


MAX_REPLACED_ITEMS = 200
"""Replaced items that a preview lists, the newest ones."""

MAX_RUNS, MAX_CALLS = 20, 500
"""Agent runs of a session, and calls of a run, that the page shows."""

MAX_OUTPUT_CHARACTERS = 2_000
"""Characters of the arguments and the output of a call that the page shows."""


# -- comparison of two branches --------------------------------------------------------------------

MAX_COMPARED_PAIRS = 200
"""Rows after the first difference that a comparison has, with their items."""


async def encode_comparison(context: HandlerContext) -> bytes:
    """Serialize the comparison of the histories that end at two heads.

    Raises NotFound, AmbiguousHandle, and ItemDeleted if an item of one of them was deleted.
    """
    store, prices = store_for_tenant(context), context.inspector.prices
    views = list[ConversationView]()
    async with context.inspector.query_locks.for_tenant(context.tenant):
        for name in ("a", "b"):
            view = await load_handle_view(
                store,
                context.query[name],
                read_files=context.tenant == LOCAL_TENANT,
                max_links=MAX_LINKS,
                is_branch_only=True,
            )
            if view.unreadable_head:
                raise ItemDeleted(view.unreadable_head)
            views.append(view)
        a, b = views
        return await asyncio.to_thread(lambda: http.serialize_strict_json(compare_branches(a, b, prices)))


def compare_branches(a: ConversationView, b: ConversationView, prices: Mapping[str, Price]) -> dict[str, Json]:
    """Compare the histories of two views, their last requests, and the requests that only one of them has."""
    diff = diff_histories(a.path.items, b.path.items)
    shown = diff.pairs[:MAX_COMPARED_PAIRS]
    return {
        "a": _build_branch(a, b, prices),
        "b": _build_branch(b, a, prices),
        **to_json(build_history_diff_report(diff)._replace(pairs=shown)),
        "omitted": len(diff.pairs) - len(shown),
        "items": {
            "a": {str(pair.a): diff.a[pair.a] for pair in shown if pair.a is not None},
            "b": {str(pair.b): diff.b[pair.b] for pair in shown if pair.b is not None},
        },
        "tokens": _count_different_tokens(diff),
        "request": _compare_last_requests(a, b, prices),
    }


def _build_branch(view: ConversationView, other: ConversationView, prices: Mapping[str, Price]) -> Json:
    """Describe one side, with the figures of its requests that the other side does not have."""
    links, other_ids = find_branch_links(view), {link.id for link in find_branch_links(other)}
    own = [link for link in links if link.id not in other_ids]
    if not other.has_all_links:  # the requests before a common one are common, too, although they were not read
        shared_count = max((index for index, link in enumerate(links, 1) if link.id in other_ids), default=0)
        own = list(links[shared_count:])
    total = sum_link_usage(own, prices)
    return {
        "handle": view.handle,
        "name": view.session.name if view.session else view.handle,
        "head": links[-1].id if links else None,
        "model": links[-1].model if links else view.model,
        "items": len(view.path),
        "requests": len(links),
        "is_partial": not view.has_all_links,
        "own_requests": len(own),
        "own_usage": total
        and {
            "input_tokens": total.usage.input_tokens,
            "cached_tokens": total.usage.cached_tokens,
            "output_tokens": total.usage.output_tokens,
        },
        "own_cost_usd": total.cost_usd if total else None,
        "own_known_cost_usd": total.known_cost_usd if total else None,
        "own_unpriced": total.unpriced_count if total else 0,
    }


def _count_different_tokens(diff: HistoryDiff) -> Json:
    """Count the tokens of the common start, and of the rest of each history."""
    parts = {"same": diff.a[: diff.common_count], "a": diff.a[diff.common_count :], "b": diff.b[diff.common_count :]}
    counts = {name: count_tokens(items) for name, items in parts.items()}
    return {
        **{name: count.tokens for name, count in counts.items()},
        "estimated": any(count.is_estimate for count in counts.values()),
    }


def _compare_last_requests(a: ConversationView, b: ConversationView, prices: Mapping[str, Price]) -> Json:
    """Compare the last request of each branch, the second one as the later; null if one of them has none."""
    links = [find_branch_links(view)[-1:] for view in (a, b)]
    if not all(links):
        return None
    try:
        first, second = (rebuild_link_request(link, view) for (link,), view in zip(links, (a, b), strict=True))
    except NotFound:  # an item of its input was deleted, or is in another tree
        return None
    diff = diff_requests(first, second)
    return {
        "requests": [first.name, second.name],
        **to_json(build_request_diff_report(diff)),
        "missed_cost_usd": _cost_of_missed_cache(diff, find_price(second.model, prices, links[1][0].service_tier)),
    }


def _cost_of_missed_cache(diff: RequestDiff, price: Price | None) -> float | None:
    """Return the cost of the common prefix that could have been cached and was not; None if it is unknown."""
    if price is None or diff.reported_usage is None:
        return None
    missed = max(
        0, min(diff.expected_cached_tokens, diff.reported_usage.input_tokens) - diff.reported_usage.cached_tokens
    )
    return missed * (price.input - price.cached) / TOKENS_PER_PRICE


# -- agent runs ------------------------------------------------------------------------------------


async def encode_agent_runs(context: HandlerContext) -> bytes:
    """Serialize the stored agent runs of a session, newest first. Raises NotFound and AmbiguousHandle."""
    store = store_for_tenant(context)
    view = await load_handle_view(
        store, context.path_params["handle"], read_files=context.tenant == LOCAL_TENANT, max_links=1
    )
    runs = await store.agent_runs(session_id=view.session.id, limit=MAX_RUNS) if view.session else ()
    calls = [(await store.agent_calls(run.id))[:MAX_CALLS] for run in runs]
    logged_items = find_logged_items([call for run_calls in calls for call in run_calls], view.path.items)
    return http.serialize_strict_json(
        {"data": [_build_run(run, run_calls, logged_items) for run, run_calls in zip(runs, calls, strict=True)]}
    )


def _build_run(run: AgentRun, calls: Sequence[AgentCall], logged_items: Mapping[tuple[str, str], Item]) -> Json:
    """Describe a run; members that another version of convo stored in another form are left out."""
    document = run.document
    guardrails, used, failure = document.get("guards"), document.get("used"), document.get("failure")
    timeline = build_run_timeline(run, (), ())
    return {
        "id": run.id,
        "status": run.status,
        "created_at": run.created_at,
        "changed_at": run.changed_at,
        "turn": document.get("turn") if isinstance(document.get("turn"), int) else None,
        "agent": _text_or_none(document.get("agent")),
        "agents": [
            {"name": name, "tools": list(filter(_text_or_none, tools))}
            for name, tools in (used.items() if isinstance(used, dict) else ())
            if isinstance(tools, list)
        ],
        "open_guardrails": [
            _text_or_none(guardrail.get("name"))
            for guardrail in (guardrails if isinstance(guardrails, list) else ())
            if isinstance(guardrail, dict)
        ],
        "failure": _text_or_none(failure.get("message")) if isinstance(failure, dict) else None,
        "timeline": [entry._asdict() for entry in timeline.entries if entry.kind != "tool"],
        "timeline_omitted": timeline.omitted_count,
        "calls": [_build_call(call, logged_items.get((run.id, call.call_id), {})) for call in calls],
    }


def _build_call(call: AgentCall, item: Item) -> Json:
    """Describe one call of the log; its key is the turn and the call id."""
    turn, _, call_id = call.call_id.partition("/")
    return {
        "call_id": call_id,
        "turn": int(turn) if turn.isdecimal() else None,
        "name": _text_or_none(item.get("name")),
        "arguments": _shorten(item.get("arguments", item.get("input"))),
        "started_at": call.started_at,
        "has_ended": call.has_ended,
        "output": _shorten(call.output) if call.has_ended else None,
    }


def _text_or_none(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _shorten(value: Json) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else http.serialize_strict_json(value).decode()
    return text if len(text) <= MAX_OUTPUT_CHARACTERS else f"{text[:MAX_OUTPUT_CHARACTERS]}…"
