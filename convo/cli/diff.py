"""`convo diff`: compare two histories, or two requests as they were sent.

A side is a history, a request, or what the server has; each handle is resolved once.
"""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from convo.chat.conversation import get_items_up_to_turn
from convo.chat.files import format_os_error
from convo.chat.lookup import load_sent_body, split_turn_suffix
from convo.chat.next_request import rebuild_request
from convo.chat.view_loader import load_handle_view
from convo.cli.deps import open_configured_store
from convo.cli.output import print_json, print_line, print_notice
from convo.cli.progress import show_progress
from convo.cli.resolve import HandleResolver, LookupOptions, get_owner_handle, is_path_like
from convo.config.loader import load_settings
from convo.errors import InvalidUsage, ItemDeleted, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import Json
from convo.history.records import EMBEDDED_SCOPE
from convo.inspect.diff import (
    HistoryDiffReport,
    RequestDiffReport,
    SentRequest,
    build_history_diff_report,
    build_request_diff_report,
    choose_compared_bodies,
    diff_histories,
    diff_requests,
)
from convo.inspect.view import ConversationView
from convo.report import FLAT, Count
from convo.stores.base import Store
from convo.strategies.selection import parse_turn_handle
from convo.strategies.strategy import STRATEGIES
from convo.terminal.diff_view import DiffSide, render_history_diff, render_request_diff
from convo.terminal.terminal import detect_display


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The arguments of one `convo diff`; `b` is None if the owner is the other side."""

    a: str
    b: str | None
    compare_requests: bool = False
    compare_with_owner: bool = False
    provider: str | None = None
    config: Path | None = None


async def run_diff(options: DiffOptions, *, as_json: bool) -> bool:
    """Print the differences and return whether there are any.

    Raises NotFound, AmbiguousHandle, Unreadable or ItemDeleted, and the errors of an endpoint that is called.
    """
    settings = load_settings(options.config)
    async with open_configured_store(settings) as store:
        resolver = CachingHandleResolver(
            HandleResolver(settings, store, LookupOptions(options.config, options.provider))
        )
        with show_progress("reading", settings):
            if options.compare_requests:
                requests = (
                    await load_sent_request(options.a, resolver, store),
                    await load_sent_request(options.b or "", resolver, store),
                )
            elif options.compare_with_owner:
                sides = await load_mirror_and_owner(options.a, resolver, store)
            else:
                sides = (
                    await load_diff_side(options.a, resolver, store),
                    await load_diff_side(options.b or "", resolver, store),
                )
        if options.compare_requests:
            return _print_request_diff(*requests, as_json)
        return _print_history_diff(*sides, as_json)


class CachingHandleResolver:
    """A `HandleResolver` that resolves each handle once: both sides are often the same conversation."""

    def __init__(self, resolver: HandleResolver) -> None:
        self._resolver = resolver
        self._views: dict[str, ConversationView] = {}

    async def resolve(self, handle: str) -> ConversationView:
        if handle not in self._views:
            self._views[handle] = await self._resolver.resolve(handle)
        return self._views[handle]

    async def fetch_owner_view(self, mirror: ConversationView) -> ConversationView:
        return await self._resolver.fetch_owner_view(mirror)


async def load_diff_side(handle: str, resolver: CachingHandleResolver, store: Store) -> DiffSide:
    """Load the history of a handle, up to the turn that it names. Raises ItemDeleted for a lost item."""
    view, number = await resolve_handle_with_turn(handle, resolver, store)
    if view.unreadable_head:
        raise ItemDeleted(view.unreadable_head)
    return DiffSide(handle, STRATEGIES[view.strategy].description, get_items_up_to_turn(view, number))


async def resolve_handle_with_turn(
    handle: str, resolver: CachingHandleResolver, store: Store
) -> tuple[ConversationView, int | None]:
    """Resolve a handle and its turn number. The name of a session or file that ends like one has precedence."""
    base_handle, number = await split_turn_suffix(store, handle)
    return await resolver.resolve(base_handle), number


async def load_mirror_and_owner(
    handle: str, resolver: CachingHandleResolver, store: Store
) -> tuple[DiffSide, DiffSide]:
    """Load the confirmed part of the local mirror, and the owner's history.

    Raises InvalidUsage for a handle with a turn number, or without a remote owner.
    """
    mirror, number = await resolve_handle_with_turn(handle, resolver, store)
    if number is not None:
        raise InvalidUsage(
            "--server compares the whole history, not a turn",
            hint=f"convo diff {parse_turn_handle(handle)[0]} --server",
        )
    if not STRATEGIES[mirror.strategy].is_server_side:
        raise InvalidUsage(
            f"{handle} is not stored by a server; its owner is {STRATEGIES[mirror.strategy].description}",
            hint=f"convo inspect {handle}",
        )
    owner_view = (
        await _load_embedded_owner_view(mirror, store)
        if mirror.scope == EMBEDDED_SCOPE
        else await resolver.fetch_owner_view(mirror)
    )
    mirror_side = DiffSide(
        "here", "the confirmed items of the local record", mirror.path.up_to(mirror.confirmed_head).items
    )
    return mirror_side, DiffSide("there", f"{owner_view.handle} at {owner_view.scope}", owner_view.path.items)


async def _load_embedded_owner_view(mirror: ConversationView, store: Store) -> ConversationView:
    """Load the history at our own endpoint, which is in this store. Raises NotFound for a deleted one."""
    handle = mirror.session.handle if mirror.session else mirror.handle
    return await load_handle_view(store, handle or get_owner_handle(mirror))


async def load_sent_request(handle: str, resolver: CachingHandleResolver, store: Store) -> SentRequest:
    """Load the request that a handle names, or a request body from a file."""
    request = None if not is_path_like(handle) and await store.session(handle) else read_request_file(handle)
    if request is not None:
        return SentRequest(handle, str(request.get("model") or ""), request)
    rebuilt = rebuild_request(*await resolve_handle_with_turn(handle, resolver, store))
    link = await store.link(rebuilt.name)
    return replace(rebuilt, sent=await load_sent_body(store, link) if link else None)


def read_request_file(file_name: str) -> dict[str, Json] | None:
    """Read the request in a file; None for a file of another kind or a missing file. Raises Unreadable."""
    path = os.path.expanduser(file_name)
    if not os.path.isfile(path):
        return None
    try:
        document = json.loads(Path(path).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{file_name} cannot be read: {format_os_error(error)}") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{file_name} is not JSON: {describe_json_error(error)}") from error
    return document if isinstance(document, dict) and "input" in document else None


class DiffSideReport(NamedTuple):
    """A history; `items` is the number of its items."""

    handle: str
    items: Count


class HistoriesReport(NamedTuple):
    """Comparison of two histories."""

    a: DiffSideReport
    b: DiffSideReport
    diff: Annotated[HistoryDiffReport, FLAT]


class RequestsReport(NamedTuple):
    """With --wire: comparison of two requests."""

    requests: tuple[str, str]
    diff: Annotated[RequestDiffReport, FLAT]


def _print_history_diff(a: DiffSide, b: DiffSide, as_json: bool) -> bool:
    diff = diff_histories(a.items, b.items)
    if as_json:
        first, second = (DiffSideReport(side.name, len(side.items)) for side in (a, b))
        print_json(HistoriesReport(first, second, build_history_diff_report(diff)))
    else:
        print_line(render_history_diff(a, b, diff, detect_display(sys.stdout, os.environ)))
    return not diff.is_equal


def _print_request_diff(a: SentRequest, b: SentRequest, as_json: bool) -> bool:
    is_as_sent = choose_compared_bodies(a, b) != (a.body, b.body)
    for request in () if is_as_sent else dict.fromkeys((a.name, b.name)):
        if translation := next(each.translation for each in (a, b) if each.name == request):
            print_notice(f"{request} was {translation}")
    diff = diff_requests(a, b)
    if as_json:
        print_json(RequestsReport((a.name, b.name), build_request_diff_report(diff)))
    else:
        print_line(render_request_diff(a, b, diff, detect_display(sys.stdout, os.environ)))
    return diff.byte_offset is not None
