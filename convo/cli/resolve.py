"""Resolve handles to conversations: from the store, a file or a remote endpoint.

Stored conversations, mirrors of remote ones included, are shown without a request. The endpoint is asked
for a handle that the store does not have, or with --remote; if it cannot be reached then, the mirror is
shown with a notice.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.lookup import has_handle, load_sent_body, load_session_by_words, split_turn_suffix
from convo.chat.view_loader import fetch_remote_view, load_file_view, load_handle_view
from convo.cli.deps import endpoint_session, make_recorded_endpoint, open_configured_store, read_from_store
from convo.cli.output import print_line, print_notice
from convo.cli.progress import show_progress
from convo.config.loader import choose_model, load_settings
from convo.config.settings import ModelChoice, ModelName, Settings
from convo.config.values import Layer, SettingSource
from convo.errors import InvalidUsage, ItemDeleted, KeyRefused, NotFound, Unreachable, WrongOwner
from convo.history.items import Json, last_answer_text, request_title
from convo.history.records import Link, Scope, describe_client
from convo.history.tree import root_key
from convo.inspect.tree import find_branch_links
from convo.inspect.view import ConversationView
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES
from convo.terminal.inspect_view import render_conversation
from convo.terminal.terminal import detect_display_without_color, escape_control_chars, format_count

if TYPE_CHECKING:
    from convo.stores.unstored_requests import UnstoredRequest

REMOTE_ID_PREFIXES = ("resp_", "conv_")
"""Prefixes of the handles that an endpoint may have."""

KIND_BY_PREFIX = {"resp_": "response", "conv_": "conversation", "ses_": "session"}
MAX_NEWEST_HANDLES = 20
"""Handles that are listed for a bare prefix."""

NOT_FOUND_HINT = "pass --provider NAME to ask the endpoint that created it, or set CONVO_STORE to another store"


class LookupOptions(NamedTuple):
    """The options of a lookup.

    config:    a settings file of the user
    provider:  the provider whose endpoint is called
    remote:    call it even if the store has the handle
    with_body: load the body of a recorded request that a handle names
    """

    config: Path | None = None
    provider: str | None = None
    remote: bool = False
    with_body: bool = False


class _EndpointNeeded(Exception):
    """An endpoint has to be called, which needs an event loop."""


def load_views(handles: Sequence[str], options: LookupOptions) -> list[ConversationView]:
    """Resolve every handle as `resolve_handles`, without an event loop where the store and files have them all.

    Raises the errors of `resolve_handles`.
    """
    settings = load_settings(options.config)
    try:
        # An event loop imports asyncio, ssl, logging and sockets: a tenth of `convo inspect`.
        return read_from_store(settings, lambda store: _resolve_all(handles, settings, store, options, can_call=False))
    except _EndpointNeeded:
        import asyncio

        return asyncio.run(resolve_handles(handles, options))


async def resolve_handles(handles: Sequence[str], options: LookupOptions) -> list[ConversationView]:
    """Resolve every handle before returning, so that nothing is printed if one fails.

    Raises NotFound, AmbiguousHandle or Unreadable, and the errors of an endpoint that is called.
    """
    settings = load_settings(options.config)
    async with open_configured_store(settings) as store:
        return await _resolve_all(handles, settings, store, options)


async def _resolve_all(
    handles: Sequence[str], settings: Settings, store: Store, options: LookupOptions, *, can_call: bool = True
) -> list[ConversationView]:
    """Resolve the handles. Without `can_call`, raises _EndpointNeeded in place of a call."""
    resolver = HandleResolver(settings, store, options, can_call=can_call)
    with show_progress("reading", settings):
        return [await resolver.resolve(handle) for handle in handles]


def find_last_turn_links(view: ConversationView, links: Sequence[Link]) -> Sequence[Link]:
    """Return those of the view's branch `links` that belong to the last turn of its path."""
    from convo.chat.conversation import find_turn_end  # its imports take time, and not each command needs a turn

    start = find_turn_end(view.path.items, -1) if view.path.items else 0
    return [link for link in links if view.path_index.depth(link.head) > start]


REQUEST_ID_PREFIXES = ("req_", "try_")
"""Prefixes of the ids of requests that left no response: of a server, and of a chat."""


def find_unstored_request(handle: str, config: Path | None) -> "UnstoredRequest | None":
    """Return the row of a request that left no response; None for another handle."""
    if not handle.startswith(REQUEST_ID_PREFIXES):
        return None
    return read_from_store(load_settings(config), lambda store: store.unstored_request(handle))


def print_newest_handles(prefix: str, config: Path | None) -> None:
    """Print the ids that begin with a bare prefix, newest first, with their first words.

    Raises NotFound.
    """
    matches = read_from_store(load_settings(config), lambda store: store.find_handles(prefix, limit=MAX_NEWEST_HANDLES))
    _print_newest(prefix, [(match.id, match.label) for match in matches if match.id.startswith(prefix)])


def print_newest_requests(config: Path | None, server: str | None) -> None:
    """Print the newest requests with their status and title, also those in progress and those without a response.

    server:  the URL of a `convo serve` to ask instead of the store: it alone knows its requests in progress

    Raises NotFound, and Unreachable or KeyRefused for a server that does not answer.
    """
    rows = _fetch_newest_requests(server) if server else read_from_store(load_settings(config), _load_newest_requests)
    width = max((len(status) for _, status, _ in rows), default=0)
    _print_newest("resp_", [(request_id, f"{status:<{width}}  {title}") for request_id, status, title in rows])


def _print_newest(prefix: str, rows: Sequence[tuple[str, str]]) -> None:
    if not rows:
        owner = "--conversation " if prefix == "conv_" else ""
        raise NotFound(KIND_BY_PREFIX[prefix], prefix, hint=f'convo chat {owner}"hello"')
    print_line("\n".join(escape_control_chars(f"{handle}  {label}").rstrip() for handle, label in rows))
    if len(rows) >= MAX_NEWEST_HANDLES:
        print_notice(f"only the newest {MAX_NEWEST_HANDLES} are shown; convo sessions lists conversations")


async def _load_newest_requests(store: Store) -> list[tuple[str, str, str]]:
    """Return id, status and title of the requests in progress of other commands, and of the newest ones."""
    from convo.chat.session_record import list_running_requests
    from convo.stores.request_list import ListedRequest, RequestQuery

    running = [
        (session.id, "streaming" if last_answer_text(items[-1:]) else "waiting", request_title(reversed(items)))
        for session, _, _, items in await list_running_requests(store)
    ]
    page = await store.list_requests(RequestQuery(limit=MAX_NEWEST_HANDLES))
    return running + [
        (row.link.id, _format_status(row.link.status, (row.link.error or {}).get("code")), row.title)
        if isinstance(row, ListedRequest)
        else (row.id, _format_status(row.status, row.code), row.model)
        for row in page.rows
    ]


def _format_status(status: str, code: Json) -> str:
    return f"{status}: {code}" if code else status


def _fetch_newest_requests(server: str) -> list[tuple[str, str, str]]:
    """Return the same rows of a server, for the key in `CONVO_KEY`. Raises Unreachable and KeyRefused."""
    import httpx2

    from convo.inspect.request_code import SERVER_KEY_VARIABLE

    url, key = server.rstrip("/").removesuffix("/v1"), os.environ.get(SERVER_KEY_VARIABLE)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        page = json.loads(_download(f"{url}/inspect/api/requests?limit={MAX_NEWEST_HANDLES}", headers))
        rows = [row for row in [*page["running"], *page["data"]] if isinstance(row, dict)]
        return [
            (
                _one_line(row["id"]),
                _one_line(_format_status(str(row.get("phase") or row["status"]), row.get("code"))),
                _one_line(row["title"] or row["model"]),
            )
            for row in rows[:MAX_NEWEST_HANDLES]
        ]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError, RecursionError) as error:
        raise Unreachable(
            f"no convo serve answers at {url}", hint="convo serve prints its URL when it starts"
        ) from error


MAX_LIST_BYTES, LIST_TIMEOUT_S = 20_000_000, 30.0
"""The largest list of requests that is read from a server, and the time for it."""


def _download(url: str, headers: Mapping[str, str]) -> bytes:
    """Return a response of a `convo serve`. Raises KeyRefused, ValueError past a limit, and httpx2's errors."""
    import httpx2

    from convo.inspect.request_code import SERVER_KEY_VARIABLE

    clock, data = SystemClock(), bytearray()
    deadline = clock.monotonic() + LIST_TIMEOUT_S
    with httpx2.stream("GET", url, headers=headers, trust_env=False) as response:
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise KeyRefused(f"{url.partition('/inspect/')[0]} requires another key", hint=f"set {SERVER_KEY_VARIABLE}")
        response.raise_for_status()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > MAX_LIST_BYTES or clock.monotonic() > deadline:
                raise ValueError("the response is too long")
    return bytes(data)


def _one_line(value: Json) -> str:
    return " ".join(str(value).split())


async def render_handle(store: Store, handle: str) -> str:
    """Render a conversation of this store or a file, for an open chat.

    Raises the errors of `load_handle_view`.
    """
    view = await (load_file_view if is_path_like(handle) else load_handle_view)(store, handle)
    return render_conversation(view, detect_display_without_color(sys.stderr))


class HandleResolver:
    """Resolves handles in one store, and at an endpoint if that was requested."""

    def __init__(self, settings: Settings, store: Store, options: LookupOptions, *, can_call: bool = True) -> None:
        self._settings, self._store, self._options, self._can_call = settings, store, options, can_call

    async def resolve(self, handle: str) -> ConversationView:
        """Return the view of `handle`, from here or from its endpoint, with the user's own prices.

        HANDLE@N is the response that ended turn N of HANDLE. Raises NotFound if no response ended there.
        """
        return replace(await self._resolve(handle), prices=self._settings.prices)

    async def _resolve(self, handle: str) -> ConversationView:
        base_handle, turn = await split_turn_suffix(self._store, handle)
        if turn is None or (not is_path_like(handle) and await has_handle(self._store, handle)):
            return await self._resolve_conversation(handle)
        view = await self._resolve_conversation(base_handle)
        if view.unreadable_head:
            raise ItemDeleted(view.unreadable_head)
        from convo.chat.conversation import find_turn_end

        path = view.path.first(find_turn_end(view.path.items, turn))
        if not view.links and view.session is None and not STRATEGIES[view.strategy].is_server_side:
            return replace(view, handle=handle, path=path, confirmed_head=path.head)
        link = next((link for link in find_branch_links(view) if link.head == path.head), None)
        if link is None:
            raise NotFound(
                "response at the end of turn",
                handle,
                hint=f"convo inspect {quote(base_handle)} lists the responses; convo diff compares any turn",
            )
        return await self._resolve_conversation(link.id)

    async def _resolve_conversation(self, handle: str) -> ConversationView:
        if is_path_like(handle):
            return await load_file_view(self._store, handle)
        try:
            view = await load_handle_view(self._store, handle)
        except NotFound as error:
            return await self._resolve_unstored(handle, error)
        if self._options.with_body and view.handle == view.current_link_id:
            link = await self._store.link(view.handle)
            view = replace(view, sent_body=await load_sent_body(self._store, link) if link else None)
        if view.session is None and (note := await self._describe_unrecorded(view)):
            view = replace(view, notes=(*view.notes, note))
        return await self._refresh_from_owner(view) if self._options.remote else view

    async def _describe_unrecorded(self, view: ConversationView) -> str:
        """Return a note on requests that were not recorded; of its client alone if the response has one."""
        link = next((link for link in view.links if link.id == view.current_link_id), None)
        client = link and describe_client(link.parameters)
        if link is None or (link.session_id and not client):
            return ""
        counts = await self._store.count_unrecorded()
        shown = [(name, count) for name, count in counts if not client or name.split()[0] == client.split()[0]]
        if not shown:
            return ""
        of_clients = " and ".join(f"{format_count(count, 'request')} of {name}" for name, count in shown)
        verb = "was" if sum(count for _, count in shown) == 1 else "were"
        return escape_control_chars(f"{of_clients} {verb} not recorded: convo serve --record")

    async def _resolve_unstored(self, handle: str, error: NotFound) -> ConversationView:
        """Resolve a handle that the store does not have.

        Raises NotFound for a handle that is unknown everywhere, and the errors of the endpoint.
        """
        if path_exists(handle):
            return await load_file_view(self._store, handle)
        if not handle.startswith(REMOTE_ID_PREFIXES):
            session = await load_session_by_words(self._store, handle)
            if session is None:
                raise error
            return await self._resolve_conversation(session.id)
        choice = self._choose_remote()
        if choice is None:
            raise NotFound(error.kind, handle, hint=NOT_FOUND_HINT) from error
        return await self._fetch_view(choice, handle)

    async def _refresh_from_owner(self, mirror: ConversationView) -> ConversationView:
        """Return the remote owner's view of a mirror; the mirror if the owner cannot be reached."""
        try:
            owner_view = await self.fetch_owner_view(mirror)
        except Unreachable as failure:
            print_notice(f"{failure.message}; showing the local mirror")
            return mirror
        from convo.inspect.diff import describe_drift

        drift = describe_drift(mirror.path.up_to(mirror.confirmed_head).items, owner_view.path.items, "the endpoint")
        return replace(owner_view, notes=(*owner_view.notes, drift or "the local mirror is the same"))

    async def fetch_owner_view(self, mirror: ConversationView) -> ConversationView:
        """Return the remote owner's view of a mirror.

        Raises InvalidUsage without a remote owner, WrongOwner, and the errors of the endpoint.
        """
        handle = get_owner_handle(mirror)
        return await self._fetch_view(self._choose_owner(mirror), handle, mirror.scope)

    async def _fetch_view(self, model: ModelChoice, handle: str, scope: Scope | None = None) -> ConversationView:
        if not self._can_call:
            raise _EndpointNeeded
        async with endpoint_session(model, self._settings, self._store) as endpoint:
            if scope not in (None, endpoint.scope):
                raise WrongOwner(
                    f"{handle} belongs to {scope}, not to {endpoint.scope}",
                    hint="pass --provider with the provider that it belongs to",
                )
            return await fetch_remote_view(
                endpoint, handle, root=root_key(self._store.tenant), provider=model.provider.name
            )

    def _choose_remote(self) -> ModelChoice | None:
        """Choose the remote endpoint: the one named, else the configured model's; None if that is not remote."""
        if self._options.provider:
            return _choose_remote_provider(self._settings, self._options.provider)
        choice = choose_model(self._settings)
        return choice if choice.provider.endpoint == "remote" else None

    def _choose_owner(self, mirror: ConversationView) -> ModelChoice:
        """Choose the endpoint of the record, unless another one was named."""
        if self._options.provider:
            return _choose_remote_provider(self._settings, self._options.provider)
        record = make_recorded_endpoint(mirror.session) if mirror.session else None
        return choose_model(self._settings, mirror.model, source=f"the record of {mirror.handle}", record=record)


def is_path_like(handle: str) -> bool:
    """Return whether a handle can only be a file's path: no name and no id has a slash."""
    return "/" in handle or os.sep in handle


def path_exists(path: str) -> bool:
    return os.path.lexists(os.path.expanduser(path))


async def is_unknown_file(store: Store, handle: str) -> bool:
    """Return whether the store does not have this handle and a file does."""
    return not await has_handle(store, handle) and path_exists(handle)


def get_owner_handle(view: ConversationView) -> str:
    """Return the remote owner's handle. Raises InvalidUsage without a remote owner."""
    session = view.session
    handle = (session.handle if session else view.handle) if STRATEGIES[view.strategy].is_server_side else None
    if not handle or not view.scope or view.scope.url == "embedded":
        raise InvalidUsage(f"{view.handle} has no remote owner: its state is in this store", hint="omit --remote")
    return handle


def _choose_remote_provider(settings: Settings, provider: str) -> ModelChoice:
    """Return the endpoint of a provider, for any model.

    Raises InvalidUsage for an unknown provider or one whose state convo stores, InvalidSettings without a base URL.
    """
    configured = settings.providers.get(provider)
    if configured is None:
        raise InvalidUsage(f"no provider {provider!r}", hint=f"one of {', '.join(settings.providers)}")
    if configured.endpoint != "remote":
        raise InvalidUsage(f"{provider} stores no state; its responses are in the local store", hint=NotFound.hint)
    choose_model(settings, f"{provider}/any", source="--provider")
    return ModelChoice(ModelName(provider, ""), configured, SettingSource(Layer.FLAG, "--provider"))
