"""`convo compact`: replace a history with a shorter one.

The write lease is taken only to apply the result. The conversation may continue meanwhile; its new items are kept
after the compacted ones.
"""

import json
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from convo.chat.conversation import Chat
from convo.chat.lookup import load_named_session, to_absolute_path
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps, acquire_session_lease
from convo.cli.deps import choose_session_model, endpoint_session, make_request_options, open_configured_store
from convo.cli.output import print_line, print_notice
from convo.compaction.planning import CompactionOptions
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import EDITING_PLAIN, Settings
from convo.errors import Busy, NotFound
from convo.history.items import Item, Json
from convo.history.records import Strategy
from convo.prompt_cache.forecast import PrefixForecast
from convo.report import FLAT, OPTIONAL, Count, Wire, to_json
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.selection import is_session_handle, select_owner
from convo.terminal.report_views import render_compaction, render_compaction_preview
from convo.terminal.terminal import detect_display
from convo.terminal.waiting import WaitingLine
from convo.transfer.compact import (
    CompactionResult,
    DroppedItems,
    PreparedCompaction,
    SummaryExcerpt,
    apply_compaction,
    prepare_compaction,
)
from convo.usage.counting import TokenCount

LEASE_TIMEOUT_S, LEASE_RETRY_S = 30.0, 0.25
"""Seconds that a finished compaction waits for another writer, and seconds between two attempts."""


@dataclass(frozen=True, slots=True)
class CompactCommandOptions:
    """The arguments of one `convo compact`."""

    handle: str
    compaction: CompactionOptions
    model: str | None = None
    preview: bool = False
    yes: bool = False
    as_json: bool = False
    config: pathlib.Path | None = None


async def run_compact(options: CompactCommandOptions) -> None:
    """Run one compaction and print it. After an error the history is unchanged."""
    settings = load_settings(options.config, SettingFlags(model=options.model))
    async with (
        open_configured_store(settings) as store,
        _open_chat_by_handle(options, settings, store) as chat,
    ):
        if not options.preview:
            async with _write_lease(chat, timeout_s=0.0):
                pass  # a chat that is open in a terminal would not release it later either
        is_shown = not options.as_json and settings.editing != EDITING_PLAIN
        waiting_line = WaitingLine(sys.stdout, sys.stderr, is_enabled=is_shown)
        async with waiting_line.show("compacting"):
            prepared = await prepare_compaction(
                chat, options.compaction, confirmed=options.yes, preview=options.preview
            )
        for note in prepared.notes:
            print_notice(note)
        if prepared.prefix and prepared.prefix.has_loss:
            print_notice(str(prepared.prefix))
        if options.preview:
            print_line(
                json.dumps(to_json(_build_preview_report(chat, prepared)))
                if options.as_json
                else render_compaction_preview(prepared, detect_display(sys.stdout, os.environ))
            )
            return
        async with _write_lease(chat, timeout_s=LEASE_TIMEOUT_S):
            result = await apply_compaction(chat, prepared, confirmed=options.yes)
    print_line(
        json.dumps(to_json(_build_compact_report(chat, result)))
        if options.as_json
        else render_compaction(chat.session, result, detect_display(sys.stdout, os.environ))
    )


@asynccontextmanager
async def _open_chat_by_handle(options: CompactCommandOptions, settings: Settings, store: Store) -> AsyncIterator[Chat]:
    """Open the conversation that the handle names, for reading."""
    selection = select_owner([], options.handle)
    if selection.handle and is_session_handle(selection.handle):
        await load_named_session(store, selection.handle)
    session = await find_selected_session(store, selection)
    if selection.replay_file and not session:
        _check_file_exists(selection.replay_file)
    settings, choice = choose_session_model(settings, session)
    async with endpoint_session(choice, settings, store) as endpoint:
        request_options = make_request_options(
            choice, settings, instructions=session.instructions if session else None, parameters={}
        )
        yield await open_chat(selection, session, request_options, ChatDeps(store, endpoint, SystemClock(), random_id))


@asynccontextmanager
async def _write_lease(chat: Chat, *, timeout_s: float) -> AsyncIterator[None]:
    """Hold the write lease during the block; wait at most `timeout_s` for another writer. Raises Busy."""
    store, clock = chat.deps.store, chat.deps.clock
    deadline = clock.monotonic() + timeout_s
    while True:
        try:
            lease = await acquire_session_lease(store, chat.session)
            break
        except Busy as busy:
            if clock.monotonic() >= deadline:
                raise Busy(busy.name, busy.process, hint="type /compact in that chat, or close it first") from busy
            await clock.sleep(LEASE_RETRY_S)
    try:
        yield
    finally:
        await lease.release()


class CompactionFigures(NamedTuple):
    """The figures of a compaction; tokens are the endpoint's count, or ours if `estimated`.

    method:           the compaction method
    compacted_count:  number of compacted items
    kept:             number of items that are kept unchanged
    dropped:          the compacted items that the new history lacks
    summary:          what replaces them; null if the endpoint compacts in place
    prefix:           what the next request loses because of it; null if nothing is known
    usage:            usage of the compaction request; null if no model was called
    """

    method: Annotated[str, Wire("way")]
    compacted_count: Annotated[Count, Wire("folded")]
    kept: Count
    before_tokens: Count
    after_tokens: Count
    estimated: bool
    usage: Mapping[str, Json] | None
    dropped: Annotated[DroppedItems, OPTIONAL]
    summary: Annotated[SummaryExcerpt | None, OPTIONAL]
    prefix: Annotated[PrefixForecast | None, OPTIONAL]


class CompactionReport(NamedTuple):
    """The applied compaction.

    strategy:    the owner of the state
    later:       number of items that were added during the compaction
    old_handle:  handle of the old history
    """

    session: str
    strategy: Strategy
    handle: str | None
    figures: Annotated[CompactionFigures, FLAT]
    items: Count
    later: Count
    old_handle: Annotated[str | None, Wire("before")]


class CompactionPreviewReport(NamedTuple):
    """With --preview."""

    session: str | None
    figures: Annotated[CompactionFigures, FLAT]
    window: Sequence[Item]


def _build_preview_report(chat: Chat, prepared: PreparedCompaction) -> CompactionPreviewReport:
    figures = _build_figures(prepared, prepared.count_after)
    return CompactionPreviewReport(chat.session.name or None, figures, prepared.replacement)


def _build_compact_report(chat: Chat, result: CompactionResult) -> CompactionReport:
    session, figures = chat.session, _build_figures(result.prepared, result.count_after)
    counts = len(chat.state.path), result.later_count
    return CompactionReport(session.name, session.strategy, session.handle, figures, *counts, result.old_handle)


def _build_figures(prepared: PreparedCompaction, count_after: TokenCount) -> CompactionFigures:
    return CompactionFigures(
        str(prepared.plan.method),
        len(prepared.plan.compacted_items),
        len(prepared.plan.kept_items),
        prepared.count_before.tokens,
        count_after.tokens,
        prepared.count_before.is_estimate or prepared.count_after.is_estimate,
        prepared.usage,
        prepared.count_dropped(),
        prepared.describe_summary(),
        prepared.prefix,
    )


def _check_file_exists(file: str) -> None:
    """Raise NotFound for a missing file."""
    if not os.path.lexists(to_absolute_path(file)):
        raise NotFound("file", file, hint="check the path")
