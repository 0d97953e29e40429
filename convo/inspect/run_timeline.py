"""The time line of an agent run: its tool calls, handoffs and ended guardrails, in the order of time.

Tool calls are in the call log. Guardrails and handoffs are entries in the run's document, which the agent runner
appends with `append_timeline_entry`; those of earlier versions have none.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from convo.history.items import Item, Json, item_type
from convo.history.pairing import output_index_by_call
from convo.history.records import AgentCall, AgentRun, AgentRunStatus
from convo.report import Count, Wire

TIMELINE_KEY, OMITTED_COUNT_KEY = "timeline", "timeline_omitted"
"""The members of a run's document: the entries, and the number of later ones that were left out."""

MAX_TIMELINE_ENTRIES = 200
"""Entries that a run's document has at most."""

MAX_ENTRY_TEXT_CHARS = 500
"""Characters of each text of an entry."""


class TimelineEntry(NamedTuple):
    """A tool call, a handoff, or a guardrail that ended; members that do not apply are null.

    started_at:  seconds since 1970
    duration_s:  of a guardrail
    agent:       the agent whose guardrail it is, or that hands off
    name:        of the guardrail, or of the tool
    side:        of a guardrail
    outcome:     of a guardrail: passed, tripped or failed; of a tool call: done or not ended
    reason:      of a guardrail that tripped or failed
    target:      the agent that a handoff leads to
    """

    kind: Literal["guardrail", "handoff", "tool"]
    started_at: float
    duration_s: float | None = None
    agent: str | None = None
    name: str | None = None
    side: Literal["input", "output"] | None = None
    outcome: Literal["passed", "tripped", "failed", "done", "not ended"] | None = None
    reason: str | None = None
    target: str | None = None
    call_id: str | None = None
    arguments: str | None = None


class RunTimeline(NamedTuple):
    """The time line of one agent run.

    started_at:     seconds since 1970
    changed_at:     seconds since 1970
    agent:          the current agent; null if unknown
    entries:        in the order of time
    omitted_count:  later guardrails and handoffs that were not stored, because the run had too many
    """

    run_id: Annotated[str, Wire("id")]
    status: AgentRunStatus
    started_at: Annotated[float, Wire("created_at")]
    changed_at: float
    agent: str | None
    failure: str | None
    entries: Annotated[tuple[TimelineEntry, ...], Wire("timeline")]
    omitted_count: Annotated[Count, Wire("omitted")] = 0


def append_timeline_entry(document: dict[str, Json], entry: TimelineEntry) -> None:
    """Append a guardrail or a handoff to the entries in `document`; a run with too many counts the others."""
    entries = document.setdefault(TIMELINE_KEY, [])
    if len(entries) >= MAX_TIMELINE_ENTRIES:
        document[OMITTED_COUNT_KEY] = document.get(OMITTED_COUNT_KEY, 0) + 1
        return
    entries.append(
        {
            name: value[:MAX_ENTRY_TEXT_CHARS] if isinstance(value, str) else value
            for name, value in entry._asdict().items()
            if value is not None
        }
    )


def read_timeline_members(document: Mapping[str, Json]) -> dict[str, Json]:
    """Return the members of a run's document that `append_timeline_entry` changes, without damaged entries."""
    entries = document.get(TIMELINE_KEY)
    valid = [entry for entry in (entries if isinstance(entries, list) else ()) if _is_entry(entry)]
    count = document.get(OMITTED_COUNT_KEY)
    return {
        **({TIMELINE_KEY: valid} if valid else {}),
        **({OMITTED_COUNT_KEY: count} if type(count) is int and count > 0 else {}),
    }


def _is_entry(entry: Any) -> bool:
    numbers = ("started_at", "duration_s")
    return (
        isinstance(entry, dict)
        and entry.get("kind") in ("guardrail", "handoff")
        and type(entry.get("started_at")) in (int, float)
        and all(
            name in TimelineEntry._fields and type(value) in ((int, float) if name in numbers else (str,))
            for name, value in entry.items()
        )
    )


def build_run_timeline(run: AgentRun, calls: Sequence[AgentCall], items: Sequence[Item]) -> RunTimeline:
    """Build the time line; `calls` is the run's call log, `items` the history with the items of the calls."""
    document = run.document
    members = read_timeline_members(document)
    entries = [TimelineEntry(**entry) for entry in members.get(TIMELINE_KEY, ())]
    handoff_ids = {entry.call_id for entry in entries if entry.kind == "handoff"}
    logged_items = find_logged_items(calls, items)
    for call in calls:
        _, _, call_id = call.call_id.partition("/")
        if call_id not in handoff_ids:
            entries.append(_build_tool_entry(call, call_id, logged_items.get((run.id, call.call_id), {})))
    failure, agent = document.get("failure"), document.get("agent")
    message = failure.get("message") if isinstance(failure, dict) else None
    return RunTimeline(
        *(run.id, run.status, run.created_at, run.changed_at),
        agent if isinstance(agent, str) else None,
        message if isinstance(message, str) else None,
        tuple(sorted(entries, key=lambda entry: entry.started_at)),
        members.get(OMITTED_COUNT_KEY, 0),
    )


def find_logged_items(calls: Sequence[AgentCall], items: Sequence[Item]) -> dict[tuple[str, str], Item]:
    """Return the items of logged calls, by the id of the run and the key of the call.

    Of several calls with one id, each entry of the log has the first one left that has its output.
    """
    outputs = output_index_by_call(items)
    candidates: dict[Json, list[int]] = {}
    for index, item in enumerate(items):
        if item_type(item).endswith("_call"):
            candidates.setdefault(item.get("call_id"), []).append(index)
    found: dict[tuple[str, str], Item] = {}
    for call in sorted(calls, key=lambda call: call.started_at):
        indexes = candidates.get(call.call_id.partition("/")[2])
        if not indexes:
            continue
        ended = (index for index in indexes if index in outputs and items[outputs[index]].get("output") == call.output)
        index = next(ended, indexes[-1]) if call.has_ended else indexes[-1]
        indexes.remove(index)
        found[call.run_id, call.call_id] = items[index]
    return found


def _build_tool_entry(call: AgentCall, call_id: str, item: Item) -> TimelineEntry:
    name, arguments = item.get("name"), item.get("arguments", item.get("input"))
    return TimelineEntry(
        "tool",
        call.started_at,
        name=name if isinstance(name, str) else None,
        outcome="done" if call.has_ended else "not ended",
        call_id=call_id,
        arguments=arguments if isinstance(arguments, str) else None,
    )
