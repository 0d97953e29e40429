"""`open_store` and `ConvoSession`: the conversations of a store, for programs.

A `ConvoSession` is a session of the Agents SDK. Each call is one transaction on the head that it read: if another
process has moved the head, it is read again, so no item is lost.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from convo.chat.conversation import find_adjacent_links
from convo.chat.lookup import load_link, resolve_handle
from convo.chat.open import check_no_open_run
from convo.chat.session_record import describe_session_writer, load_last_link, validate_session_name
from convo.config.loader import SettingFlags, choose_model, load_settings
from convo.config.storage import get_store_url
from convo.errors import Busy, Conflict, NotFound, WrongOwner
from convo.history.items import Item
from convo.history.records import Session, Strategy
from convo.history.tree import Key, Path, root_key
from convo.runtime import SystemClock, random_id, shielded
from convo.stores.base import AppendItems, Transaction, load_conversation, load_session_path
from convo.stores.factory import open_store as open_raw_store

if TYPE_CHECKING:
    from agents import SessionSettings
    from agents.items import TResponseInputItem


class StoredSession(NamedTuple):
    """A session of a store.

    strategy:             the owner of its state: "session", "replay", "chain" or "conversation"
    model:                "provider/model" of the last turn
    created_at, used_at:  seconds since 1970
    """

    name: str
    id: str
    strategy: str
    model: str
    created_at: float
    used_at: float


class ConversationStore:
    """An open store; `async with` closes it."""

    def __init__(self, url: str | None = None) -> None:
        """Open the store of `open_store`."""
        self._settings = load_settings(flags=SettingFlags(store=url))
        self._store = open_raw_store(get_store_url(self._settings.storage), tenant=self._settings.tenant)

    async def __aenter__(self) -> "ConversationStore":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._store.aclose()

    async def sessions(self) -> Sequence[StoredSession]:
        """Return all sessions, last used first. Raises StoreFault."""
        return [
            StoredSession(one.name, one.id, str(one.strategy), one.model, one.created_at, one.used_at)
            for one in await self._store.sessions()
        ]

    def session(self, name: str) -> "ConvoSession":
        """Return a session that is read and written through this store; it may not exist yet."""
        return ConvoSession(name, store=self)

    async def items(self, handle: str) -> list[Item]:
        """Return the items of a session, a response (`resp_...`) or a conversation (`conv_...`), oldest first.

        handle:  as commands take it: a name, an id, a unique prefix of one, or @last

        Raises NotFound, AmbiguousHandle, ItemDeleted and StoreFault.
        """
        match = await resolve_handle(self._store, handle)
        if match.kind == "response":
            head = (await load_link(self._store, match.id)).head
        elif match.kind == "conversation":
            head = (await load_conversation(self._store, match.id)).head
        elif session := await self._store.session(match.id):
            return list((await load_session_path(self._store, session))[1].items)
        else:
            raise NotFound("session", handle)
        return list((await self._store.path(head)).items)


def open_store(url: str | None = None) -> ConversationStore:
    """Open a store of conversations; nothing is created before the first write.

    url:  memory, sqlite:PATH or postgresql://...; None: the store of the settings, which the commands use, too

    Raises InvalidSettings, and InvalidUsage if the driver is not installed.
    """
    return ConversationStore(url)


class ConvoSession:
    """A session of the Agents SDK in a store of convo: `Runner.run(agent, "Hi", session=ConvoSession("oslo"))`.

    session_settings:  `SessionSettings(limit=N)` limits `get_items` to the newest items
    """

    session_settings: "SessionSettings | None" = None

    def __init__(
        self,
        session_id: str,
        *,
        store: ConversationStore | None = None,
        model: str | None = None,
        session_settings: "SessionSettings | None" = None,
    ) -> None:
        """Nothing is read or stored yet.

        session_id:  the name of a session, or the id of a stored one
        store:       None: the store of the settings, which `aclose` closes
        model:       of a new session, "provider/model", for `convo chat -c`; None: the model of the settings

        Raises InvalidUsage for a name that could be another kind of handle, such as a file, and InvalidSettings.
        """
        self.session_id = session_id if session_id.startswith("ses_") else validate_session_name(session_id)
        self.session_settings = session_settings
        self._owns_store, self._owner = store is None, store or open_store()
        self._store = self._owner._store
        self._model = str(choose_model(self._owner._settings, model, source="model").name)

    async def aclose(self) -> None:
        """Close the store, unless it was passed to this session."""
        if self._owns_store:
            await self._owner.aclose()

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """Return the newest `limit` items, oldest first; None: all of them. Raises ItemDeleted, StoreFault."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        session = await self._store.session(self.session_id)
        items = (await load_session_path(self._store, session))[1].items if session else ()
        newest = items if limit is None else items[max(0, len(items) - limit) :]
        return cast("list[TResponseInputItem]", list(newest))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append items in one transaction; with the first of them the session is created.

        Raises Busy while a chat has the session open, StateFault while an agent run of convo is paused in it,
        WrongOwner if a server or a file owns its state, NotCanonical for an item that is not JSON, and StoreFault.
        """
        if items:
            await shielded(self._add_items(cast("Sequence[Item]", items)))

    async def _add_items(self, items: Sequence[Item]) -> None:
        while True:
            session = await self._load_writable()
            now = SystemClock().now()
            start = session.head if session else root_key(self._store.tenant)
            head = Path(start).append(items).head
            changed = (
                replace(session, head=head, confirmed_head=head, used_at=now, use_order=None)
                if session
                else self._make_session(head, now)
            )
            if await self._commit(changed, session, AppendItems(start, items)):
                return

    async def pop_item(self) -> "TResponseInputItem | None":
        """Remove the last item and return it; None if there is none. A request that had it keeps it.

        Raises the errors of `add_items`, and ItemDeleted.
        """
        return cast("TResponseInputItem | None", await shielded(self._pop_item()))

    async def _pop_item(self) -> Item | None:
        while session := await self._load_writable():
            session, path = await load_session_path(self._store, session)
            if not path:
                break
            shorter = path.first(len(path) - 1)
            _, link = await find_adjacent_links(shorter, await load_last_link(self._store, session), self._store)
            changed = replace(
                session,
                head=shorter.head,
                confirmed_head=shorter.head,
                link_id=link.id if link else None,
                used_at=SystemClock().now(),
                use_order=None,
            )
            if await self._commit(changed, session):
                return path.items[-1]
        return None

    async def clear_session(self) -> None:
        """Delete the session with all its items and requests, as `convo sessions rm` does.

        Raises the errors of `add_items`.
        """
        if session := await self._load_writable():
            with suppress(NotFound):  # another process has just deleted it
                await shielded(self._store.remove_session(session.id))

    def _make_session(self, head: Key, now: float) -> Session:
        return Session(random_id("ses"), self.session_id, Strategy.SESSION, self._model, head, head, now, now)

    async def _load_writable(self) -> Session | None:
        """Return the session, None before its first item. Raises the errors of `add_items`."""
        session = await self._store.session(self.session_id)
        if session is None:
            if self.session_id.startswith("ses_"):
                raise NotFound("session", self.session_id)
            return None
        if session.strategy is not Strategy.SESSION:
            raise WrongOwner(
                f"the state of {session.name!r} is owned by another party (--{session.strategy})",
                hint=f"convo convert {session.name} --to session",
            )
        if writer := await describe_session_writer(self._store, session):
            raise Busy(session.name, writer, hint="close that chat first")
        await check_no_open_run(self._store, session)
        return session

    async def _commit(self, session: Session, before: Session | None, *appends: AppendItems) -> bool:
        """Return whether the session was stored: not if another process has changed it since it was read."""
        transaction = Transaction(appends, session=session, expected_session_head=before.head if before else None)
        try:
            await self._store.commit(transaction)
        except Conflict:
            return False
        return True
