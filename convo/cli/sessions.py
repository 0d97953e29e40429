"""`convo sessions`: list, show, search, rename and remove stored conversations.

The list is the command that users wait for most often: imports that it does not need are inside the functions.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from typer import Exit

from convo.chat.conversation_list import (
    CONVERSATION_SORTS,
    CONVERSATION_STATUSES,
    ConversationQuery,
    ConversationSort,
    ConversationStatus,
    ListedConversation,
    build_session_report,
    list_conversations,
    load_session_row,
)
from convo.chat.lookup import (
    load_unconfirmed_items,
)
from convo.cli.deps import open_configured_store, read_from_store
from convo.cli.output import print_json, print_line, print_notice
from convo.config.loader import load_settings
from convo.config.values import InvalidValue, parse_duration
from convo.errors import InvalidUsage
from convo.history.items import Item
from convo.history.records import Session
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.terminal import list_views
from convo.terminal.terminal import detect_display, escape_control_chars

if TYPE_CHECKING:
    from convo.chat.session_admin import RemovedSession
    from convo.inspect.view import OpenRun


ConfigPath: TypeAlias = Path | None
"""A settings file of the user."""


NO_LIMIT = 1_000_000


def build_query(
    words: str,
    *,
    limit: int,
    since: str | None,
    until: str | None,
    model: str | None,
    status: str | None,
    client: str | None,
    sort: str | None,
) -> ConversationQuery:
    """Return the query of the options. Raises InvalidUsage."""
    for option, value, values in (("--status", status, CONVERSATION_STATUSES), ("--sort", sort, CONVERSATION_SORTS)):
        if value is not None and value not in values:
            raise InvalidUsage(f"{option} {value!r} is unknown", hint=f"{option} {'|'.join(values)}")
    return ConversationQuery(
        words,
        since=since and _parse_time("--since", since),  # type: ignore[arg-type]
        until=until and _parse_time("--until", until),  # type: ignore[arg-type]
        model=model,
        status=cast("ConversationStatus | None", status),
        client=client,
        sort=cast("ConversationSort | None", sort),
        is_descending=sort not in ("name", "model", "status"),
        limit=limit if 0 < limit < NO_LIMIT else None,
    )


def _parse_time(option: str, text: str) -> float:
    """Parse a local date, a time, or a duration before now, to seconds since 1970. Raises InvalidUsage."""
    from datetime import datetime

    try:
        return SystemClock().now() - parse_duration(text)
    except InvalidValue:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        hint = f"{option} 2026-11-28, {option} 2026-11-28T09:30, or {option} 7d"
        raise InvalidUsage(f"{option} {text!r} is not a time", hint=hint) from None


def print_sessions(config: ConfigPath, query: ConversationQuery, *, as_json: bool) -> None:
    """Print the conversations that pass; with words, the place of the best item of each."""
    display = detect_display(sys.stdout, os.environ)
    settings = load_settings(config)
    if as_json:
        query = query._replace(prices=settings.prices)
    page = read_from_store(settings, lambda store: list_conversations(store, query))
    if as_json:
        print_json(map(build_session_report, page.rows))
    elif page.rows and query.words:
        print_line(list_views.render_search_results(page.rows, query.words, display, SystemClock().now()))
    elif page.rows:
        print_line(list_views.render_session_list(page.rows, display, SystemClock().now()))
    elif query.is_filtered:
        print_notice("no such conversation")
    else:
        is_default = settings.storage.path == settings.paths.database
        place = "" if is_default else f" in {settings.storage}"
        print_notice(f'no conversations yet{place}; start one: convo chat "hello"')
    if page.searched:
        print_notice(page.searched)
    if page.next_cursor:
        print_notice("not all conversations are shown; -n 0 lists all")


def print_session(config: ConfigPath, handle: str, *, as_json: bool) -> None:
    """Print the record of one session. Raises NotFound or AmbiguousHandle."""
    from convo.chat.lookup import load_session
    from convo.chat.view_loader import load_open_run

    async def read(store: Store) -> tuple[ListedConversation, Sequence[Item], "OpenRun | None"]:
        session = await load_session(store, handle)
        return (
            await load_session_row(store, session),
            await load_unconfirmed_items(store, session),
            await load_open_run(store, session),
        )

    summary, unconfirmed, run = read_from_store(load_settings(config), read)
    if as_json:
        print_json(build_session_report(summary))
    else:
        print_line(list_views.render_session(summary, unconfirmed, detect_display(sys.stdout, os.environ), run))


async def rename_session(config: ConfigPath, handle: str, name: str) -> None:
    """Rename a session. Raises NotFound, and the errors of `set_session_name`."""
    from convo.chat import session_admin
    from convo.chat.lookup import load_named_session

    async with open_configured_store(load_settings(config)) as store:
        session = await load_named_session(store, handle)
        await session_admin.set_session_name(store, session, name)
    print_notice(f"renamed {session.name} to {name}")


async def remove_sessions(config: ConfigPath, handles: Sequence[str], *, yes: bool) -> None:
    """Remove sessions; all are looked up before the first is removed.

    yes:  do not ask

    Raises NotFound or Busy, Exit if the user declines, and StoreFault for a file that remains after
    its session was removed.
    """
    from convo.chat import session_admin
    from convo.chat.lookup import load_named_session
    from convo.cli.paused_files import delete_run_files, list_named_files

    settings = load_settings(config)
    async with open_configured_store(settings) as store:
        sessions = [await load_named_session(store, handle) for handle in handles]
        unique = list({session.id: session for session in sessions}.values())
        if not yes and not _confirm_removal(unique):
            print_notice("nothing was removed")
            raise Exit(1)
        removed = await session_admin.delete_sessions(store, unique)
    folder = settings.paths.paused_runs
    for removal in removed:
        print_notice(_format_removal(removal, list_named_files(folder, removal.run_ids)))
    delete_run_files(folder, [run for removal in removed for run in removal.run_ids])


def _confirm_removal(sessions: Sequence[Session]) -> bool:
    """Ask the user at the terminal. Raises InvalidUsage without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidUsage("not a terminal, so the removal cannot be confirmed", hint="pass --yes to confirm")
    names = ", ".join(session.name for session in sessions)
    sys.stderr.write(escape_control_chars(f"remove {names}? [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _format_removal(session: "RemovedSession", kept_files: Sequence[str]) -> str:
    """Format what was removed and what remains; `kept_files`: state files that the user named."""
    from convo.terminal.terminal import format_count

    counts = f"{format_count(session.link_count, 'response')} and {format_count(session.item_count)}"
    remaining = [*(f"the file {path} is kept" for path in kept_files), *filter(None, [session.remaining_copies])]
    return "; ".join([f"removed {session.session.name}: {counts}", *remaining])
