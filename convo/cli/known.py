"""From a handle to what is known of it: the store, a file, or a remote endpoint.

What the store knows is shown without asking anybody, and so is the mirror of what a remote
endpoint owns. An endpoint is asked when the store has never heard of the handle, or when the
person says so; where it cannot be reached, a mirror stands in and a line on stderr says so.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convo.cli.saying import note, say
from convo.cli.wiring import endpoint_for, from_store, record_of, store_of
from convo.config import Choice, Layer, ModelName, Origin, Settings, choose, load
from convo.engine.looking import look, look_at_file
from convo.engine.walking import walk
from convo.errors import NotFound, Unreachable, Usage, WrongOwner
from convo.history import Scope, Strategy, root
from convo.inspection import Known, drift
from convo.stores.contract import Store
from convo.ui.answer import safe
from convo.ui.inspecting import screen
from convo.ui.medium import drawn_on

IDS = ("resp_", "conv_")
"""How the handles begin that an endpoint may know."""

KINDS = {"resp_": "response", "conv_": "conversation", "ses_": "session"}
NEWEST = 20
"""Handles that are listed for a bare prefix."""

ELSEWHERE = "--provider NAME asks the endpoint that made it; CONVO_STORE names another store to look in"


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look.

    config:    a settings file of the user's own
    provider:  the name of the provider whose endpoint is asked
    remote:    ask it even when the store knows the handle
    """

    config: Path | None = None
    provider: str | None = None
    remote: bool = False


async def known_of(handles: Sequence[str], where: Where) -> list[Known]:
    """What is known of each handle; nothing is printed before all of them are.

    raises:  NotFound, AmbiguousHandle, Unreadable, and what an endpoint that is asked answers
    """
    settings = load(where.config)
    async with store_of(settings) as store:
        search = Search(settings, store, where)
        return [await search.one(handle) for handle in handles]


def print_newest(prefix: str, config: Path | None) -> None:
    """Print the ids that begin with a bare prefix, newest first, with their first words. raises: NotFound"""
    found = from_store(load(config), lambda store: store.find(prefix, limit=NEWEST))
    ids = [one for one in found if one.id.startswith(prefix)]
    if not ids:
        owner = "--conversation " if prefix == "conv_" else ""
        raise NotFound(KINDS[prefix], prefix, hint=f'convo chat {owner}"hello"')
    say("\n".join(safe(f"{one.id}  {one.words}").rstrip() for one in ids))
    if len(found) == NEWEST:
        note(f"only the newest {NEWEST} are shown; convo sessions lists conversations")


async def shown(store: Store, handle: str) -> str:
    """The screen of what this store knows, for somebody who is chatting. raises: as `look`"""
    known = await (look_at_file if is_path(handle) else look)(store, handle)
    return screen(known, drawn_on(sys.stderr))


class Search:
    """Looks for handles in one store, and beyond it where that was asked for."""

    def __init__(self, settings: Settings, store: Store, where: Where) -> None:
        self._settings, self._store, self._where = settings, store, where

    async def one(self, handle: str) -> Known:
        """What `handle` names, as far as it is known here or at its endpoint, with the person's own prices."""
        return replace(await self._one(handle), prices=self._settings.prices)

    async def _one(self, handle: str) -> Known:
        if is_path(handle):
            return await look_at_file(self._store, handle)
        try:
            known = await look(self._store, handle)
        except NotFound as unknown:
            return await self._elsewhere(handle, unknown)
        return await self._from_owner(known) if self._where.remote else known

    async def _elsewhere(self, handle: str, unknown: NotFound) -> Known:
        """What the store has never heard of. raises: NotFound  nobody has; what the endpoint answers"""
        if is_there(handle):
            return await look_at_file(self._store, handle)
        if not handle.startswith(IDS):
            raise unknown
        choice = self._choice()
        if choice is None:
            raise NotFound(unknown.kind, handle, hint=ELSEWHERE) from unknown
        return await self._ask(choice, handle)

    async def _from_owner(self, mirror: Known) -> Known:
        """What the remote owner says of what the store mirrors; the mirror where it cannot be reached."""
        try:
            asked = await self.owners(mirror)
        except Unreachable as failure:
            note(f"{failure.message}; this is the local mirror")
            return mirror
        differs = drift(mirror.path.upto(mirror.mark).items, asked.path.items, "the endpoint")
        return replace(asked, notes=(*asked.notes, differs or "the local mirror says the same"))

    async def owners(self, mirror: Known) -> Known:
        """What the remote owner says of what the store mirrors.

        raises:  Usage  it has no remote owner;  WrongOwner;  what the endpoint answers
        """
        handle = owner_handle(mirror)
        return await self._ask(self._choice_for(mirror), handle, mirror.scope)

    async def _ask(self, choice: Choice, handle: str, scope: Scope | None = None) -> Known:
        async with endpoint_for(choice, self._settings, self._store) as endpoint:
            if scope not in (None, endpoint.scope):
                raise WrongOwner(
                    f"{handle} belongs to {scope}, not to {endpoint.scope}",
                    hint="--provider with the one it belongs to",
                )
            return await walk(endpoint, handle, root=root(self._store.tenant), provider=choice.provider.name)

    def _choice(self) -> Choice | None:
        """The remote endpoint to ask: the one named, else the configured model's; None when it is not remote."""
        if self._where.provider:
            return named(self._settings, self._where.provider)
        choice = choose(self._settings)
        return choice if choice.provider.endpoint == "remote" else None

    def _choice_for(self, mirror: Known) -> Choice:
        """The endpoint that the record names, unless another one was named."""
        if self._where.provider:
            return named(self._settings, self._where.provider)
        record = record_of(mirror.session) if mirror.session else None
        return choose(self._settings, mirror.model, where=f"the record of {mirror.handle}", record=record)


def is_path(handle: str) -> bool:
    """Whether a handle can only be a file's path: no name and no id has a slash."""
    return "/" in handle or os.sep in handle


def is_there(place: str) -> bool:
    return os.path.lexists(os.path.expanduser(place))


def owner_handle(known: Known) -> str:
    """What its remote owner knows it by. raises: Usage  it has no remote owner"""
    strategy, session = known.strategy, known.session
    handle = (session.handle if session else known.handle) if strategy not in LOCAL else None
    if not handle or not known.scope or known.scope.url == "embedded":
        raise Usage(f"{known.handle} has no remote owner to ask", hint=f"convo inspect {known.handle}")
    return handle


LOCAL = (Strategy.SESSION, Strategy.REPLAY)


def named(settings: Settings, provider: str) -> Choice:
    """The endpoint of a provider, whichever model.

    raises:  Usage        there is no such provider, or its state is kept by convo itself
             BadSettings  it has no base URL
    """
    found = settings.providers.get(provider)
    if found is None:
        raise Usage(f"no provider {provider!r}", hint=f"one of {', '.join(settings.providers)}")
    if found.endpoint != "remote":
        raise Usage(f"{provider} keeps no state; what it answered is in the local store", hint="convo sessions")
    choose(settings, f"{provider}/any", where="--provider")
    return Choice(ModelName(provider, ""), found, Origin(Layer.FLAG, "--provider"))
