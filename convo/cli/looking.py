"""What `convo doctor` looks at: the edge of each check, which ends in a value without secrets.

Nothing is changed and nothing is made. Settings that cannot be used keep nobody from looking at the
rest; where only their store is wrong, everything but the store goes by them.
"""

import asyncio
import os
import platform
import sys
from collections.abc import Coroutine, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import convo
from convo.cli.judging import Extras, Folders, Seal, Served, SettingSources, Terminal, Versions
from convo.cli.judging_store import Kept
from convo.cli.wiring import url_of
from convo.config import (
    Flags,
    Layer,
    Origin,
    Places,
    Settings,
    is_keyed,
    load,
)
from convo.config.places import check_writable
from convo.config.secret import secret_in
from convo.config.trust import is_loopback
from convo.errors import BadSettings, StoreUnavailable

Result = TypeVar("Result")

LIMIT_S = 15.0
"""Seconds for each check."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic",),
    "keyring": ("keyring",),
    "postgres": ("psycopg", "psycopg_pool"),
    "serve": ("aiohttp", "cryptography", "httptools", "prometheus_client", "starlette", "uvicorn", "websockets"),
    "tokens": ("toktok",),
}
"""What pyproject.toml has as an extra, by what it brings."""

TRANSACTION_POOLER = 6543
"""Supabase's port for it."""


class Case(NamedTuple):
    """What the checks begin with.

    found:    the settings; without their store where that alone cannot be used, None where nothing can
    wrong:    why
    environ:  the variables of this process
    """

    found: Settings | None
    environ: Mapping[str, str]
    wrong: BadSettings | None = None

    @property
    def settings(self) -> Settings:
        """raises: BadSettings  they cannot be used"""
        if self.found is None:
            raise BadSettings("not looked at: the settings cannot be used", hint="convo doctor settings")
        return self.found

    @property
    def whole(self) -> Settings:
        """The settings with their store. raises: BadSettings  they cannot be used"""
        if self.wrong and self.found:
            raise self.wrong
        return self.settings


def case(config: Path | None, flags: Flags) -> Case:
    """The settings as far as they can be used. raises nothing of them"""
    environ = dict(os.environ)
    try:
        return Case(load(config, flags), environ)
    except BadSettings as wrong:
        return Case(_without_store(config, flags), environ, wrong)


def _without_store(config: Path | None, flags: Flags) -> Settings | None:
    try:
        return load(config, flags._replace(store="memory"))
    except BadSettings:
        return None


# -- this process ---------------------------------------------------------------------------------


def versions(case: Case) -> Versions:
    return Versions(convo.__version__, platform.python_version(), f"{platform.system()} {platform.machine()}")


def settings(case: Case) -> SettingSources:
    """The places that set something, the strongest first. raises: BadSettings"""
    if case.wrong:
        raise case.wrong
    said = {one.origin for one in case.settings.listed if one.origin.layer is not Layer.DEFAULT}
    places = [_named(origin) for origin in sorted(said, key=lambda origin: (origin.layer, origin.name))]
    return SettingSources(places, case.settings.notice)


def _named(origin: Origin) -> str:
    return f"{origin.place} [profiles.{origin.profile}]" if origin.profile else origin.place


def folders(case: Case) -> Folders:
    """raises: StoreFault  one of them cannot be written; BadSettings  there is no home folder"""
    paths = list(dict.fromkeys(Places.of(case.environ)))
    for path in paths:
        check_writable(path)
    here = [path for path in paths if path.is_dir()]
    return Folders(paths, [path for path in here if os.name == "posix" and path.stat().st_mode & 0o077])


def terminal(case: Case) -> Terminal:
    from convo.ui.medium import medium_of

    return Terminal(medium_of(sys.stdout, case.environ), case.environ.get("TERM", ""), sys.stdout.encoding)


def extras(case: Case) -> Extras:
    lacking = {extra: [name for name in names if find_spec(name) is None] for extra, names in EXTRAS.items()}
    keyed = [one for one in case.found.providers.values() if is_keyed(one, case.environ)] if case.found else []
    return Extras(lacking, frozenset(one.api for one in keyed))


# -- the store ------------------------------------------------------------------------------------


def store(case: Case) -> Kept:
    """raises: StoreFault, BadSettings, Usage"""
    from convo.stores.open import examine

    kept, origin = case.whole.storage, case.whole.origin("state_storage")
    condition = within(examine(url_of(kept)), str(kept))
    return Kept(kept, origin, condition, pooler(kept.url.reveal() if kept.url else ""))


def within(work: Coroutine[Any, Any, Result], place: str) -> Result:
    """What `work` comes to. raises: StoreUnavailable  not in time"""

    async def limited() -> Result:
        async with asyncio.timeout(LIMIT_S):
            return await work

    try:
        return asyncio.run(limited())
    except TimeoutError as late:
        raise StoreUnavailable(
            f"{place} did not answer in {LIMIT_S:g} seconds", hint="see that the host is right, and what is between"
        ) from late


def pooler(url: str) -> str:
    """Supabase's pooler in words, where `url` goes through it."""
    parts = urlsplit(url)
    if not (parts.hostname or "").endswith((".pooler.supabase.com", ".supabase.co")):
        return ""
    return ", through Supabase's transaction pooler" if parts.port == TRANSACTION_POOLER else ", at Supabase"


# -- serving --------------------------------------------------------------------------------------


def serve(case: Case) -> Served:
    """raises: BadSettings  the keys file cannot be read, or a line of it"""
    wanted = case.settings.serve
    lacking = [name for name in EXTRAS["serve"] if find_spec(name) is None]
    keys = None if wanted.keys_file is None else _keys_in(wanted.keys_file)
    return Served(wanted, not is_loopback(wanted.host), lacking, keys)


def _keys_in(path: Path) -> int:
    from convo.gateway.keys import entries

    if path.exists() and not path.is_file():
        raise BadSettings(f"{path} is no file of keys", hint="convo serve --new-key NAME makes one")
    if not path.exists():
        raise BadSettings(f"{path}: there is no such keys file", hint="convo serve --new-key NAME makes one")
    return len(list(entries(path)))


def seal(case: Case) -> Seal:
    variable = case.settings.serve.seal_key_env
    if case.wrong:
        raise BadSettings("not looked at: which store it is cannot be told", hint="convo doctor store")
    return Seal(variable, secret_in(case.environ, variable) is not None, case.settings.storage.type)
