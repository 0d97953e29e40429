"""`convo compact`: replace a history with a shorter one.

The write lease is taken only to apply the result. The conversation may continue meanwhile; its new items are kept
after the compacted ones.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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
from convo.history.items import Json
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.strategies.selection import is_session_handle, select_owner
from convo.terminal.report_views import render_compaction, render_compaction_preview
from convo.terminal.terminal import detect_display
from convo.terminal.waiting import WaitingLine
from convo.transfer.compact import CompactionResult, PreparedCompaction, apply_compaction, prepare_compaction

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
    config: Path | None = None


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
        if options.preview:
            print_line(
                json.dumps(_preview_to_json(chat, prepared))
                if options.as_json
                else render_compaction_preview(prepared, detect_display(sys.stdout, os.environ))
            )
            return
        async with _write_lease(chat, timeout_s=LEASE_TIMEOUT_S):
            result = await apply_compaction(chat, prepared, confirmed=options.yes)
    print_line(
        json.dumps(compact_result_to_json(chat, result))
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


def _preview_to_json(chat: Chat, prepared: PreparedCompaction) -> dict[str, Json]:
    return {
        "session": chat.session.name or None,
        **_compaction_stats_to_json(prepared),
        "window": list(prepared.replacement),
    }


def compact_result_to_json(chat: Chat, result: CompactionResult) -> dict[str, Json]:
    """Return the object of `convo compact --json`; tokens are the endpoint's count, or ours if `estimated`."""
    session = chat.session
    return {
        "session": session.name,
        "strategy": str(session.strategy),
        "handle": session.handle,
        **_compaction_stats_to_json(result.prepared),
        "after_tokens": result.count_after.tokens,
        "items": len(chat.state.path),
        "later": result.later_count,
        "before": result.old_handle,
    }


def _compaction_stats_to_json(prepared: PreparedCompaction) -> dict[str, Json]:
    return {
        "way": str(prepared.plan.method),
        "folded": len(prepared.plan.compacted_items),
        "kept": len(prepared.plan.kept_items),
        "before_tokens": prepared.count_before.tokens,
        "after_tokens": prepared.count_after.tokens,
        "estimated": prepared.count_before.is_estimate or prepared.count_after.is_estimate,
        "usage": dict(prepared.usage) if prepared.usage is not None else None,
    }


def _check_file_exists(file: str) -> None:
    """Raise NotFound for a missing file."""
    if not os.path.lexists(to_absolute_path(file)):
        raise NotFound("file", file, hint="check the path")
