"""What `convo serve` does once its flags are read: a store, a service over it, a socket before it."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convo.cli.failures import explain, show_traceback
from convo.cli.saying import note, say
from convo.clock import SystemClock
from convo.config import Flags, Settings, load
from convo.config.secret import without_passwords
from convo.errors import StoreFault, Usage
from convo.ids import random_id
from convo.items.partial import STREAMED
from convo.stores.open import open_store
from convo.ui.answer import safe

if TYPE_CHECKING:
    from convo.gateway.exchange import Exchange
    from convo.stores.contract import Store

SHELLS_ADD = 128
"""What shells add to a signal's number for the exit code of whoever it ended."""

NEEDS = ("starlette", "uvicorn", "httptools", "prometheus_client", "websockets")


def add_key(config: Path | None, flags: Flags, name: str) -> None:
    """Print a fresh key once, on stdout. raises: BadSettings, StoreFault"""
    from convo.gateway.keys import entries, new_key

    settings = load(config, flags)
    path = settings.serve.keys_file or settings.places.config / "keys"
    say(new_key(path, name))
    note(f"its hash stands in {path}; serve with --keys {path}")
    if sum(name == each for each, _ in entries(path, strict=False)) > 1:
        note(f"the keys that {name} had go on working; to take one back, remove its line")


def serve(config: Path | None, flags: Flags, *, verbose: bool, strict: bool = False) -> None:
    """Serve until a signal ends it. raises: Usage  the extra is not installed; BadSettings, StoreFault"""
    lacking = [name for name in NEEDS if find_spec(name) is None]
    if lacking:
        raise Usage(f"convo serve needs {', '.join(lacking)}", hint="pip install 'convo-state[serve]'")
    asyncio.run(_serve(load(config, flags), verbose, strict))


async def _serve(settings: Settings, verbose: bool, strict: bool) -> None:
    from convo.endpoints.open import open_service
    from convo.gateway import serving
    from convo.gateway.application import Gateway
    from convo.gateway.asked import Inspected
    from convo.gateway.keys import KeysFile

    wanted, clock = settings.serve, SystemClock()
    serving.check_exposed(wanted)
    keys = KeysFile(wanted.keys_file) if wanted.keys_file else None
    store = await _opened(settings)
    try:
        with serving.listen(wanted.host, wanted.port) as listening, signals() as ending:
            service = open_service(settings, store=store, clock=clock, new_id=random_id, strict=strict)
            await service.check()  # from now on it also looks after what other replicas left
            log = logged if verbose else None
            gateway = Gateway(
                service, wanted, Inspected(store, settings.prices),
                clock=clock, new_id=random_id, keys=keys, log=log, trouble=Trouble(),
            )  # fmt: skip
            note(f"convo serves {serving.address(listening)}, store {settings.storage}")
            await serving.run(gateway, service, wanted, listening, ending, reported, partial(delayed, wanted.grace_s))
    finally:
        await store.aclose()


async def _opened(settings: Settings) -> "Store":
    """The store that the settings name, at this convo's schema. raises: StoreFault"""
    kept = settings.storage
    url = kept.url.reveal() if kept.url else "memory" if kept.type == "none" else str(kept)
    store = open_store(url)
    await store.upkeep.migrate()
    return store


def logged(exchange: "Exchange") -> None:
    """One line about a request that has been answered: no words, no keys."""
    scope = exchange.scope
    path = scope["raw_path"].decode("ascii", "replace")
    differs = STREAMED if exchange.differs else ""
    ended = " ".join(filter(None, (str(exchange.status), exchange.code, exchange.limit, differs)))
    line = f"{exchange.method} {path} {ended} {exchange.took_s * 1000:.0f} ms {exchange.id} {exchange.tenant}"
    sys.stderr.write(safe(without_passwords(line.rstrip()) + "\n"))


class Trouble:
    """Says on stderr why the store cannot be used, once as long as it is the same."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, fault: StoreFault) -> None:
        if fault.message != self._said:
            self._said = fault.message
            note(f"convo serve: {fault.message}")


def reported(error: BaseException) -> None:
    """Say that something went wrong that nobody foresaw, by its kind and place."""
    show_traceback(error)
    note(f"convo serve: {explain(error).message}")


def delayed(grace_s: float) -> None:
    """Say why the end takes a while."""
    sys.stderr.write(f"answers still run and have {grace_s:g} s to end; Ctrl-C again does not wait for them\n")


@contextmanager
def signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set; the second of them ends the process at once."""
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    heard = [number for number in _endings() if signal.getsignal(number) is not signal.SIG_IGN]

    told: list[int] = []

    def end(number: int, frame: object) -> None:
        told.append(number)
        if len(told) > 1:  # both came before this was called once
            os._exit(SHELLS_ADD + number)
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(ending.set)

    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield ending
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _endings() -> list[int]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
