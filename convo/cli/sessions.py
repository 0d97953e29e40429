"""`convo sessions`: list, show, search, rename and remove stored conversations.

The list is the command that users wait for most often: imports that it does not need are inside the functions.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

from typer import Exit

from convo.chat.lookup import (
    SessionSummary,
    build_session_report,
    get_other_clients_hint,
    load_session_summary,
    load_unconfirmed_items,
    read_or_report,
)
from convo.cli.deps import open_configured_store, read_from_store
from convo.cli.output import print_json, print_line, print_notice
from convo.config.loader import load_settings
from convo.errors import InvalidUsage
from convo.history.items import Item
from convo.history.records import Session
from convo.history.tree import Key
from convo.report import Count, Wire
from convo.runtime import SystemClock
from convo.stores.base import SearchHit, Store
from convo.terminal import list_views
from convo.terminal.terminal import detect_display, escape_control_chars

if TYPE_CHECKING:
    from convo.chat.session_admin import RemovedSession
    from convo.history.records import LinkStatus
    from convo.inspect.view import OpenRun


ConfigPath: TypeAlias = Path | None
"""A settings file of the user."""

NO_LIMIT = 1_000_000


class SearchHitReport(NamedTuple):
    """An item that a search found.

    item_number:  position of the item
    item_count:   number of items of the session; null if the item is on another branch
    author:       role of the message, or type of the item
    """

    session: str
    session_id: str
    key: Key
    item_number: Annotated[Count, Wire("at")]
    item_count: Annotated[int | None, Wire("of")]
    author: Annotated[str, Wire("by")]
    snippet: str


def print_sessions(config: ConfigPath, limit: int, *, as_json: bool) -> None:
    """Print at most `limit` sessions, last used first; 0 for all."""
    limit = limit if limit < NO_LIMIT else 0
    display = detect_display(sys.stdout, os.environ)
    open_runs: dict[str, OpenRun] = {}
    last_statuses: dict[str, LinkStatus] = {}

    async def read(store: Store) -> tuple[list[SessionSummary], bool, str]:
        sessions = await store.sessions(limit=limit + 1 if limit else None)
        loaded = [await load_session_summary(store, session) for session in sessions[: limit or None]]
        if display.width is not None and not as_json:
            shown = [summary.session for summary in loaded]
            open_runs.update(await _load_open_runs(store, shown))
            last_statuses.update(await _load_last_statuses(store, shown))
        return loaded, len(sessions) > len(loaded), "" if sessions else await get_other_clients_hint(store)

    settings = load_settings(config)
    summaries, has_more, hint = read_from_store(settings, read)
    if as_json:
        print_json(map(build_session_report, summaries))
    elif summaries:
        print_line(list_views.render_session_list(summaries, display, SystemClock().now(), open_runs, last_statuses))
    else:
        is_default = settings.storage.path == settings.paths.database
        place = "" if is_default else f" in {settings.storage}"
        print_notice(f"no sessions yet{place}; " + (hint or 'start one: convo chat "hello"'))
    if has_more:
        print_notice("not all sessions are shown; -n 0 lists all")


async def _load_open_runs(store: Store, sessions: Sequence[Session]) -> "dict[str, OpenRun]":
    """Return the open agent runs of the sessions by session id. Two queries suffice if there are none, as usual.

    A damaged run is reported and left out.
    """
    if not any([await store.agent_runs(status=status, limit=1) for status in ("paused", "running")]):
        return {}
    from convo.chat.view_loader import load_open_run

    runs = {session.id: await load_open_run(store, session) for session in sessions}
    return {session_id: run for session_id, run in runs.items() if run}


async def _load_last_statuses(store: Store, sessions: Sequence[Session]) -> "dict[str, LinkStatus]":
    """Return the status of the last request of each session that has one, by session id."""
    return {session.id: link.status for session in sessions for link in await store.links(session.id, limit=1)}


def print_session(config: ConfigPath, handle: str, *, as_json: bool) -> None:
    """Print the record of one session. Raises NotFound or AmbiguousHandle."""
    from convo.chat.lookup import load_session
    from convo.chat.view_loader import load_open_run

    async def read(store: Store) -> tuple[SessionSummary, Sequence[Item], "OpenRun | None"]:
        session = await load_session(store, handle)
        return (
            await load_session_summary(store, session),
            await load_unconfirmed_items(store, session),
            await load_open_run(store, session),
        )

    summary, unconfirmed, run = read_from_store(load_settings(config), read)
    if as_json:
        print_json(build_session_report(summary))
    else:
        print_line(list_views.render_session(summary, unconfirmed, detect_display(sys.stdout, os.environ), run))


def print_search_hits(config: ConfigPath, query: str, limit: int, *, as_json: bool) -> None:
    """Print the places of the items that contain all words of `query`."""

    async def search(store: Store) -> list[tuple[SearchHit, list_views.SearchResult]]:
        hits = await store.search_items(query, limit=limit or NO_LIMIT)
        located = [(hit, await read_or_report(store, _locate_hit(store, hit, query))) for hit in hits]
        return [(hit, result) for hit, result in located if result is not None]

    results = read_from_store(load_settings(config), search)
    if as_json:
        print_json([_build_hit_report(hit, result) for hit, result in results])
    elif results:
        found: dict[Key, list[list_views.SearchResult]] = {}
        for hit, result in results:  # a fork has the items of the session that it came from
            found.setdefault(hit.key, []).append(result)
        unique = [first._replace(other_session_count=len(others)) for first, *others in found.values()]
        print_line(list_views.render_search_results(unique, query, detect_display(sys.stdout, os.environ)))
    else:
        print_notice(f"no matches for {query!r}")


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


async def _locate_hit(store: Store, hit: SearchHit, query: str) -> list_views.SearchResult:
    """Return the place of a search hit on its session's path. Raises DamagedRow."""
    from convo.history.items import item_author, searchable_text
    from convo.inspect.view import search_snippet

    path = await store.path(hit.session.head)
    is_on_path = path.contains(hit.key)
    return list_views.SearchResult(
        session=hit.session,
        item_number=path.depth(hit.key) if is_on_path else len(await store.path(hit.key)),
        item_count=len(path) if is_on_path else None,
        author=item_author(hit.item),
        snippet=search_snippet(searchable_text(hit.item), query),
    )


def _build_hit_report(hit: SearchHit, result: list_views.SearchResult) -> SearchHitReport:
    place = result.item_number, result.item_count, result.author, result.snippet
    return SearchHitReport(hit.session.name, hit.session.id, hit.key, *place)
