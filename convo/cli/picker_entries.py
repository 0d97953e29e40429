"""Entries of the pickers: the stored conversations, and the models.

Local data is listed at once. Only the server of the chat's model is called, for its list of models.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from convo.chat.conversation_list import ConversationPage, ConversationQuery, ListedConversation, list_conversations
from convo.chat.endpoint_factory import open_catalogue
from convo.chat.lookup import load_link
from convo.cli.repl import last_turn_lines
from convo.config.model_lists import get_listed_models, make_model_lists, save_model_lists
from convo.config.sections import CONFIGURABLE_APIS, Provider
from convo.config.settings import BUILT_IN_MODEL, Settings, resolve_alias, resolve_model_name
from convo.config.values import Layer, SettingSource
from convo.errors import EndpointFault, InvalidSettings, NotFound, UnknownModel
from convo.history.items import Item
from convo.history.records import SCRATCH_PREFIX, Strategy
from convo.models.base import fetch_models
from convo.stores.base import Store, load_conversation
from convo.strategies.selection import owner_of_handle
from convo.strategies.strategy import STRATEGIES
from convo.terminal.list_views import format_age
from convo.terminal.picker import PickerEntries, PickerState
from convo.terminal.settings_views import (
    SHORT_ABOUT,
    UNKNOWN_VALUE,
    format_price_figure,
    format_window,
    list_known_models,
)
from convo.terminal.tables import Column
from convo.terminal.terminal import DisplayOptions, truncate_text
from convo.usage.model_info import find_model_window, find_price

MAX_CONVERSATIONS = 200
"""Conversations that are listed, last used first."""

LISTING_TIMEOUT_S = 10.0
"""Seconds that a server has to list its models; the list is open meanwhile."""

MAX_NAME_COLUMNS, MAX_MODEL_COLUMNS = 32, 40
SHOWN_HANDLE_CHARS = 17
"""Characters of the id of a response or a conversation that are shown."""

PREVIEW_TURNS = 1
MAX_MESSAGE_LINES = 4
"""Lines of each message in a preview."""


async def load_conversation_entries(
    store: Store,
    now: float,
    display: DisplayOptions,
    *,
    owners: Collection[Strategy] = (),
    is_own: bool = False,
    open_session_id: str = "",
) -> PickerEntries:
    """List the stored conversations, last used first; a search is in the text of all. The value is the handle.

    owners:           list only those of these owners; all if empty
    is_own:           list only the own chats: a search alone finds recordings, imports and those of other clients
    open_session_id:  the session that is not listed, because it is open

    Raises StoreFault.
    """
    query = ConversationQuery(limit=MAX_CONVERSATIONS, is_own=is_own)

    def choose_rows(page: ConversationPage) -> list[ListedConversation]:
        return [
            row
            for row in page.rows
            if row.session.id != open_session_id
            and (not owners or row.session.strategy in owners)
            and not row.session.name.startswith(SCRATCH_PREFIX)
        ]

    async def load_preview(handle: str, columns: int) -> Sequence[str]:
        items = await _load_items(store, handle)
        lines = last_turn_lines(
            items, display._replace(width=columns, has_color=False), PREVIEW_TURNS, MAX_MESSAGE_LINES
        )
        return list(lines) or ["  no messages"]

    async def find(words: str) -> PickerEntries:
        """Return the listed conversations with these words in their names or first messages, then all others."""
        state = PickerState.start(listed.search_texts).search(words)
        known = [listed_rows[index] for index in state.matches]
        known_ids = {row.session.id for row in known}
        page = await list_conversations(store, query._replace(words=words, is_own=False))
        return build_entries([*known, *(row for row in choose_rows(page) if row.session.id not in known_ids)])

    def build_entries(rows: Sequence[ListedConversation], note: str = "") -> PickerEntries:
        return PickerEntries(
            noun="conversation",
            action="continues it",
            values=[row.session.id for row in rows],
            search_texts=[f"{row.session.name} {row.session.strategy} {row.first_words}" for row in rows],
            columns=[
                Column("used", [format_age(row.session.used_at, now) for row in rows]),
                Column(
                    "conversation", [truncate_text(_shorten_id(row.session.name), MAX_NAME_COLUMNS) for row in rows]
                ),
                Column("owner", [str(row.session.strategy) for row in rows], drop_order=0),
                Column("turns", [f"{row.turn_count:,}" for row in rows], align_right=True, drop_order=1),
                Column("status", ["" if row.status == "done" else row.status for row in rows], drop_order=2),
                Column("first message", [row.first_words for row in rows]),
            ],
            load_preview=load_preview,
            note=note,
            find=find,
        )

    newest = await list_conversations(store, query)
    listed_rows = choose_rows(newest)
    has_others = newest.next_cursor or is_own
    listed = build_entries(listed_rows, "newest first; a search finds the others" if has_others else "")
    return listed


def _shorten_id(name: str) -> str:
    is_id = any(owner.handle_prefix and name.startswith(owner.handle_prefix) for owner in STRATEGIES.values())
    return name[:SHOWN_HANDLE_CHARS] if is_id else name


async def _load_items(store: Store, handle: str) -> Sequence[Item]:
    """Return the history of an entry. Raises NotFound if it was deleted, ItemDeleted and StoreFault."""
    if session := await store.session(handle):
        return (await store.path(session.head)).items
    match owner_of_handle(handle):
        case Strategy.CHAIN:
            head = (await load_link(store, handle)).head
        case Strategy.CONVERSATION:
            head = (await load_conversation(store, handle)).head
        case _:
            raise NotFound("session", handle)
    return (await store.path(head)).items


async def load_model_entries(store: Store, settings: Settings, current: str) -> PickerEntries:
    """List the models: the current one, aliases, those of stored sessions, of the servers' lists, and known ones.

    A name without a known provider is not listed. Raises StoreFault.
    """
    candidates = dict.fromkeys([current, *await list_selectable_models(store, settings)])
    described = [row for name in candidates if (row := _describe_model(name, settings, current))]
    rows = list({row.name: row for row in described}.values())  # a bare name may be a full one that is listed already
    return PickerEntries(
        noun="model",
        action="uses it",
        values=[row.name for row in rows],
        search_texts=[f"{row.name} {row.note}" for row in rows],
        columns=[
            Column("model", [truncate_text(row.name, MAX_MODEL_COLUMNS) for row in rows]),
            Column("window", [row.window for row in rows], align_right=True),
            Column("input $/1M", [row.input_price for row in rows], align_right=True, drop_order=0),
            Column("output $/1M", [row.output_price for row in rows], align_right=True, drop_order=1),
            Column("", [row.note for row in rows]),
        ],
        takes_query=True,
    )


async def list_selectable_models(store: Store, settings: Settings) -> list[str]:
    """List the names that may be given as a model, the likeliest first. Raises StoreFault."""
    used = [session.model for session in await store.sessions(limit=MAX_CONVERSATIONS)]
    listed = [
        f"{name}/{model}"
        for name, provider in settings.providers.items()
        for model in get_listed_models(provider, settings.model_lists)
    ]
    names = [settings.model, *settings.aliases, *used, *listed, BUILT_IN_MODEL, *list_known_models(settings)]
    return list(dict.fromkeys(names))


def add_server_models(
    entries: PickerEntries, store: Store, settings: Settings, provider: Provider, current: str
) -> PickerEntries:
    """Return the entries of `load_model_entries`, which are completed by the list of the provider's server.

    Raises the errors of `open_catalogue`.
    """
    server = open_catalogue(provider, settings.paths.weights, settings.limits)
    if server is None or provider.base_url is None:
        return entries

    async def load_more() -> PickerEntries:
        try:
            models = await fetch_models(server, provider.name, timeout_s=LISTING_TIMEOUT_S)
        except EndpointFault as error:
            return entries._replace(note=error.message)
        lists = {provider.name: (provider.base_url, dict(sorted(models.items())))}
        save_model_lists(settings.paths, lists)
        model_lists = {**settings.model_lists, **make_model_lists(lists)}
        return await load_model_entries(store, settings._replace(model_lists=model_lists), current)

    return entries._replace(note=f"asking {provider.name}", load_more=load_more)


class _Model(NamedTuple):
    name: str
    window: str
    input_price: str
    output_price: str
    note: str


def _describe_model(name: str, settings: Settings, current: str) -> _Model | None:
    """Describe a model with its window in tokens and its prices; None if no provider is known for it."""
    source = SettingSource(Layer.FLAG, "/model")
    try:
        full_name = resolve_model_name(
            resolve_alias(name, settings.aliases, source),
            settings.providers,
            settings.configured_providers,
            settings.model_lists,
            source,
        )
    except (InvalidSettings, UnknownModel):
        return None
    provider = settings.providers.get(full_name.provider)
    if provider is None:
        return None
    model = str(full_name)
    window, price = find_model_window(model, settings.windows), find_price(model, settings.prices)
    is_unusable = provider.api in CONFIGURABLE_APIS and provider.name not in settings.configured_providers
    notes = [
        *(["current"] if name == current else []),
        *([f"alias of {model}"] if name in settings.aliases else []),
        *([_missing_setting(provider)] if is_unusable else []),
    ]
    return _Model(
        name if name in settings.aliases else model,
        format_window(window, SHORT_ABOUT) if window else UNKNOWN_VALUE,
        format_price_figure(price, "input", SHORT_ABOUT),
        format_price_figure(price, "output", SHORT_ABOUT),
        ", ".join(notes),
    )


def _missing_setting(provider: Provider) -> str:
    return "no base URL" if provider.base_url is None else "no key"
