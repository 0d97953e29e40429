"""`convo cost`: what each part of a conversation cost, over all requests."""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from convo.cli.deps import read_from_store
from convo.cli.output import print_json, print_line
from convo.cli.resolve import LookupOptions, find_last_turn_links, load_views
from convo.config.loader import load_settings
from convo.inspect.run_timeline import RunTimeline, build_run_timeline
from convo.inspect.tree import find_branch_links
from convo.inspect.view import ConversationView, UsageTotals, sum_link_usage
from convo.prompt_cache import Grouping
from convo.prompt_cache.bill import BillRow, build_bill
from convo.stores.base import Store
from convo.terminal.terminal import detect_display
from convo.terminal.usage_views import bill_lines, cost_lines, find_price_note


class CostReport(NamedTuple):
    """The bill of a conversation.

    total:  of the requests with a reported usage, forks and failed ones included; null without such a request
    note:   the part of the prices that no source states; null if all are known
    """

    handle: str
    by: Grouping
    total: UsageTotals | None
    rows: Sequence[BillRow]
    note: str | None


MAX_RUNS = 100_000
"""The most agent runs of a session that are read."""


def print_cost(handle: str, lookup: LookupOptions, by: Grouping, max_rows: int | None, *, as_json: bool) -> None:
    """Print the bill of a conversation. Raises the errors of `load_views`."""
    (view,) = load_views([handle], lookup)
    timelines: Sequence[RunTimeline] = ()
    if by == "agent":
        timelines = read_from_store(load_settings(lookup.config), lambda store: _load_timelines(store, view))
    rows = build_bill(view, by=by, max_rows=max_rows, timelines=timelines)
    if as_json:
        total = sum_link_usage(view.links, view.prices, path_index=view.path_index)
        print_json(CostReport(handle, by, total, rows, find_price_note(view.links)))
    else:
        display = detect_display(sys.stdout, os.environ)
        turn_links = find_last_turn_links(view, find_branch_links(view))
        turn = "last turn" if view.session else "this turn"
        lines = cost_lines(view.links, turn_links, view.prices, turn=turn)
        print_line("\n".join([*lines, *bill_lines(rows, display)]))


async def _load_timelines(store: Store, view: ConversationView) -> Sequence[RunTimeline]:
    """Load the agent runs that made the requests of a conversation."""
    sessions = dict.fromkeys(link.session_id for link in view.links if link.session_id)
    runs = [run for session in sessions for run in await store.agent_runs(session_id=session, limit=MAX_RUNS)]
    return [build_run_timeline(run, (), ()) for run in runs]
