"""JSON data of parts of the inspector page that are loaded when they are opened: Markdown, compaction, agent runs.

Nothing is changed, and no model is called.
"""

import asyncio
from collections.abc import Mapping, Sequence

from convo.chat.view_loader import load_handle_view
from convo.compaction.planning import (
    CompactionMethod,
    CompactionOptions,
    HistorySnapshot,
    build_replacements,
    plan_compaction,
)
from convo.config.settings import LOCAL_TENANT
from convo.errors import InvalidUsage, NotFound
from convo.history.items import Item, Json, item_preview, item_type
from convo.history.records import ANSWERED_STATUSES, EMBEDDED_SCOPE
from convo.history.tree import Key
from convo.inspect.run_timeline import build_run_timeline
from convo.inspect.view import ConversationView
from convo.server import errors, http
from convo.server.inspector_data import store_for_tenant
from convo.server.routes import HandlerContext
from convo.stores.base import AgentCall, AgentRun
from convo.usage.counting import count_item_tokens, count_tokens

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
    view = await load_handle_view(
        store_for_tenant(context),
        context.path_params["handle"],
        read_files=context.tenant == LOCAL_TENANT,
        max_links=1,
    )
    keep_turns = context.query.get("keep_last", 0)
    if keep_turns < 0:
        raise errors.http_parameter_type_error("keep_last", "an integer of at least 0")
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


# -- agent runs ------------------------------------------------------------------------------------


async def encode_agent_runs(context: HandlerContext) -> bytes:
    """Serialize the stored agent runs of a session, newest first. Raises NotFound and AmbiguousHandle."""
    store = store_for_tenant(context)
    view = await load_handle_view(
        store, context.path_params["handle"], read_files=context.tenant == LOCAL_TENANT, max_links=1
    )
    runs = await store.agent_runs(session_id=view.session.id, limit=MAX_RUNS) if view.session else ()
    calls = [(await store.agent_calls(run.id))[:MAX_CALLS] for run in runs]
    by_id: dict[Json, Item] = {
        item.get("call_id"): item for item in view.path.items if item_type(item).endswith("_call")
    }
    outputs: dict[Json, Item] = {
        item.get("call_id"): item for item in view.path.items if item_type(item).endswith("_call_output")
    }
    return http.serialize_strict_json(
        {"data": [_build_run(run, run_calls, by_id, outputs) for run, run_calls in zip(runs, calls, strict=True)]}
    )


def _build_run(
    run: AgentRun, calls: Sequence[AgentCall], calls_by_id: Mapping[Json, Item], outputs: Mapping[Json, Item]
) -> Json:
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
        "calls": [_build_call(call, calls_by_id, outputs) for call in calls],
    }


def _build_call(call: AgentCall, calls_by_id: Mapping[Json, Item], outputs: Mapping[Json, Item]) -> Json:
    """Describe one call of the log; its key is the turn and the call id."""
    turn, _, call_id = call.call_id.partition("/")
    item = calls_by_id.get(call_id, {})
    output = outputs.get(call_id, {}).get("output", call.output)
    return {
        "call_id": call_id,
        "turn": int(turn) if turn.isdecimal() else None,
        "name": _text_or_none(item.get("name")),
        "arguments": _shorten(item.get("arguments", item.get("input"))),
        "started_at": call.started_at,
        "has_ended": call.has_ended,
        "output": _shorten(output) if call.has_ended else None,
    }


def _text_or_none(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _shorten(value: Json) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else http.serialize_strict_json(value).decode()
    return text if len(text) <= MAX_OUTPUT_CHARACTERS else f"{text[:MAX_OUTPUT_CHARACTERS]}…"
