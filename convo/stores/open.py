"""Chooses a store by its URL, and imports no other."""

import os
from pathlib import Path

from convo.errors import Usage
from convo.stores.contract import Store

KNOWN = "memory, sqlite:PATH"


def open_store(url: str, *, tenant: str = "local", inline: bool = False) -> Store:
    """The store that `url` names, as `tenant` sees it. Nothing is made before something is written.

    url:     "memory", or "sqlite:" and a path; "~" is the home folder
    inline:  let its coroutines end without ever waiting, so that no event loop is needed
    raises:  Usage  no store has this URL
    """
    scheme, _, place = url.partition(":")
    if url == "memory":
        from convo.stores.memory import MemoryStore

        return MemoryStore(tenant)
    if scheme == "sqlite" and place:
        from convo.stores.sqlite import SqliteStore
        from convo.stores.sqlite.database import Database

        return SqliteStore(Database(Path(os.path.expanduser(place)), inline=inline), tenant)
    raise Usage(f"{scheme!r} is not a kind of store", hint=f"one of: {KNOWN}")
