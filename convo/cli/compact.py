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
from convo.chat.lookup import to_absolute_path
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps, acquire_session_lease
from convo.cli.deps import choose_session_model, endpoint_session, make_request_options, open_configured_store
from convo.cli.output import print_line, print_notice
from convo.compaction.planning import CompactionOptions
from convo.config.loader import SettingFlags, SettingsInputs, read_settings_inputs, resolve_settings
from convo.errors import Busy, NotFound
from convo.history.items import Json
from convo.history.records import Strategy
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.stores.lease import LeaseGuard
from convo.strategies.state import select_owner
from convo.terminal.report_views import render_compaction, render_compaction_preview
from convo.terminal.terminal import DisplayOptions, detect_display
from convo.transfer.compact import CompactionResult, PreparedCompaction, apply_compaction, prepare_compaction

LEASE_TIMEOUT_S, LEASE_RETRY_S = 30.0, 0.25
"""Seconds that a finished compaction waits for another writer, and seconds between two attempts."""


@dataclass(frozen=True, slots=True)
class CompactCommandOptions:
    """The arguments of one `convo compact`."""

    handle: str
    wish: CompactionOptions
    model: str | None = None
    preview: bool = False
    yes: bool = False
    as_json: bool = False
    config: Path | None = None


async def run_compact(asked: CompactCommandOptions) -> None:
    """Run one compaction and print it. After an error the history is unchanged."""
    sources = read_settings_inputs(asked.config, SettingFlags(model=asked.model))
    async with (
        open_configured_store(resolve_settings(sources)) as store,
        _open_chat_by_handle(asked, sources, store) as chat,
    ):
        if not asked.preview:
            async with _write_lease(chat, patience_s=0.0):
                pass  # a chat that is open in a terminal would not release it later either
        one = await prepare_compaction(chat, asked.wish, confirmed=asked.yes, preview=asked.preview)
        for words in one.notes:
            print_notice(words)
        if asked.preview:
            print_line(
                json.dumps(_preview_to_json(chat, one))
                if asked.as_json
                else render_compaction_preview(one, detect_display(sys.stdout, os.environ))
            )
            return
        async with _write_lease(chat, patience_s=LEASE_TIMEOUT_S):
            done = await apply_compaction(chat, one, confirmed=asked.yes)
    print_line(
        json.dumps(compact_result_to_json(chat, done))
        if asked.as_json
        else render_compaction(chat.session, done, _stdout_medium())
    )


@asynccontextmanager
async def _open_chat_by_handle(
    asked: CompactCommandOptions, sources: SettingsInputs, store: Store
) -> AsyncIterator[Chat]:
    """Open the conversation that the handle names, for reading."""
    want = select_owner([], asked.handle)
    session = await find_selected_session(store, want)
    if want.strategy is Strategy.REPLAY and not session:
        _check_file_exists(asked.handle)
    settings, choice = choose_session_model(sources, session)
    async with endpoint_session(choice, settings, store) as endpoint:
        asking = make_request_options(choice, instructions=session.instructions if session else None, parameters={})
        yield await open_chat(want, session, asking, ChatDeps(store, endpoint, SystemClock(), random_id))


@asynccontextmanager
async def _write_lease(chat: Chat, *, patience_s: float) -> AsyncIterator[None]:
    """Hold the write lease during the block; wait at most `timeout_s` for another writer. Raises Busy."""
    hold = await _acquire_lease_with_retry(chat, patience_s)
    try:
        yield
    finally:
        await hold.release()


async def _acquire_lease_with_retry(chat: Chat, patience_s: float) -> LeaseGuard:
    store, clock = chat.edges.store, chat.edges.clock
    until = clock.ticks() + patience_s
    while True:
        try:
            return await acquire_session_lease(store, chat.session)
        except Busy as busy:
            if clock.ticks() >= until:
                raise Busy(busy.name, busy.holder, hint="/compact in that chat, or leave it first") from busy
            await clock.sleep(LEASE_RETRY_S)


def _preview_to_json(chat: Chat, one: PreparedCompaction) -> dict[str, Json]:
    return {"session": chat.session.name or None, **_compaction_stats_to_json(one), "window": list(one.window)}


def compact_result_to_json(chat: Chat, done: CompactionResult) -> dict[str, Json]:
    """Return the object of `convo compact --json`; tokens are the endpoint's count, or ours if `estimated`."""
    session = chat.session
    return {
        "session": session.name,
        "strategy": str(session.strategy),
        "handle": session.handle,
        **_compaction_stats_to_json(done.made),
        "after_tokens": done.after.tokens,
        "items": len(chat.held.path),
        "later": done.later,
        "before": done.old,
    }


def _compaction_stats_to_json(one: PreparedCompaction) -> dict[str, Json]:
    return {
        "way": str(one.plan.way),
        "folded": len(one.plan.folded),
        "kept": len(one.plan.kept),
        "before_tokens": one.before.tokens,
        "after_tokens": one.after.tokens,
        "estimated": one.before.estimated or one.after.estimated,
        "usage": dict(one.usage) if one.usage is not None else None,
    }


def _check_file_exists(file: str) -> None:
    """Raise NotFound for a missing file."""
    if not os.path.lexists(to_absolute_path(file)):
        raise NotFound("file", file, hint="convo sessions")


def _stdout_medium() -> DisplayOptions:
    return detect_display(sys.stdout, os.environ)
