"""`convo serve`: serve the Responses and Conversations API over HTTP.

Opens and migrates the store, then the socket. The first SIGINT, SIGTERM or SIGHUP ends it gracefully, the second at
once. --new-key prints a key once and stores its hash. stderr has no message text and no keys.
"""

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

from convo.cli.output import print_debug_traceback, print_line, print_notice, to_failure
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import Settings
from convo.config.values import redact_passwords
from convo.errors import InvalidUsage, StoreFault
from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.runtime import SystemClock, random_id
from convo.stores.factory import open_store
from convo.terminal.terminal import escape_control_chars

if TYPE_CHECKING:
    from convo.server.http import HttpExchange
    from convo.stores.base import Store


SIGNAL_EXIT_OFFSET = 128
"""The number that shells add to a signal's number for the exit code of a process that it ended."""

REQUIRED_MODULES = ("starlette", "uvicorn", "httptools", "prometheus_client", "websockets")


def print_new_key(config: Path | None, flags: SettingFlags, name: str) -> None:
    """Print a new key once, on stdout, and store its hash. Raises InvalidSettings or StoreFault."""
    from convo.server.auth import create_api_key, read_key_entries

    settings = load_settings(config, flags)
    path = settings.serve.keys_file or settings.paths.config / "keys"
    print_line(create_api_key(path, name))
    print_notice(f"its hash is saved in {path}; serve with --keys {path}")
    if sum(name == each for each, _ in read_key_entries(path, strict=False)) > 1:
        print_notice(f"earlier keys of {name} remain valid; to revoke one, remove its line")


def run_server(config: Path | None, flags: SettingFlags, *, verbose: bool, strict: bool = False) -> None:
    """Serve until a signal ends the server.

    Raises InvalidUsage if the extra is not installed, InvalidSettings or StoreFault.
    """
    lacking = [name for name in REQUIRED_MODULES if find_spec(name) is None]
    if lacking:
        raise InvalidUsage(f"convo serve needs {', '.join(lacking)}", hint="pip install 'convo-state[serve]'")
    asyncio.run(_serve_until_stopped(load_settings(config, flags), verbose, strict))


async def _serve_until_stopped(settings: Settings, verbose: bool, strict: bool) -> None:
    from convo.chat.endpoint_factory import open_service
    from convo.server import server
    from convo.server.app import Gateway
    from convo.server.auth import KeysFile
    from convo.server.routes import InspectorDeps

    wanted, clock = settings.serve, SystemClock()
    server.check_keys_required(wanted)
    keys = KeysFile(wanted.keys_file) if wanted.keys_file else None
    store = await _open_migrated_store(settings)
    try:
        with server.open_listening_socket(wanted.host, wanted.port) as listening, stop_event_on_signals() as ending:
            service = open_service(settings, store=store, clock=clock, new_id=random_id, strict=strict)
            await service.check_ready()  # also starts the recovery of work that other replicas left
            log = print_access_line if verbose else None
            gateway = Gateway(
                service, wanted, InspectorDeps(store, settings.prices),
                clock=clock, new_id=random_id, authenticator=keys, log=log, report_store_fault=StoreFaultPrinter(),
            )  # fmt: skip
            print_notice(f"convo serves {server.local_base_url(listening)}, store {settings.storage}")
            await server.run_gateway(
                gateway,
                service,
                wanted,
                listening,
                ending,
                print_internal_error,
                partial(print_shutdown_delay, wanted.grace_s),
            )
    finally:
        await store.aclose()


async def _open_migrated_store(settings: Settings) -> "Store":
    """Open the configured store with this convo's schema. Raises StoreFault."""
    kept = settings.storage
    url = kept.url.reveal() if kept.url else "memory" if kept.type == "none" else str(kept)
    store = open_store(url)
    await store.admin.migrate()
    return store


def print_access_line(exchange: "HttpExchange") -> None:
    """Print one line about a finished request, without message text and keys."""
    scope = exchange.scope
    path = scope["raw_path"].decode("ascii", "replace")
    differs = STREAMED_TEXT_DIFFERS if exchange.text_differs else ""
    ended = " ".join(filter(None, (str(exchange.status), exchange.error_code, exchange.limit_name, differs)))
    line = f"{exchange.method} {path} {ended} {exchange.duration_s * 1000:.0f} ms {exchange.id} {exchange.tenant}"
    sys.stderr.write(escape_control_chars(redact_passwords(line.rstrip()) + "\n"))


class StoreFaultPrinter:
    """Prints the fault of the store on stderr, again only after it changed."""

    def __init__(self) -> None:
        self._last_message = ""

    def __call__(self, fault: StoreFault) -> None:
        if fault.message != self._last_message:
            self._last_message = fault.message
            print_notice(f"convo serve: {fault.message}")


def print_internal_error(error: BaseException) -> None:
    """Print an unexpected error by its type and place."""
    print_debug_traceback(error)
    print_notice(f"convo serve: {to_failure(error).message}")


def print_shutdown_delay(grace_s: float) -> None:
    """Print the reason for a slow shutdown."""
    sys.stderr.write(f"waiting up to {grace_s:g} s for responses in progress; press Ctrl-C again to stop now\n")


@contextmanager
def stop_event_on_signals() -> Iterator[asyncio.Event]:
    """Set an event on SIGTERM, SIGINT or SIGHUP; a second signal ends the process at once."""
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    heard = [number for number in _list_stop_signals() if signal.getsignal(number) is not signal.SIG_IGN]

    told: list[int] = []

    def end(number: int, frame: object) -> None:
        told.append(number)
        if len(told) > 1:  # both signals came before the first call of this handler
            os._exit(SIGNAL_EXIT_OFFSET + number)
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(ending.set)

    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield ending
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _list_stop_signals() -> list[int]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
