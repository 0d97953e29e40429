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

from convo.cli.deps import get_store_url
from convo.cli.output import print_debug_traceback, print_line, print_notice, to_failure
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import ServeSettings, Settings, make_model_name_expander
from convo.errors import DamagedRow, InvalidUsage, StoreFault, StoreFull
from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.runtime import SystemClock, collect_garbage_often, random_id
from convo.secrets import redact_secrets
from convo.stores.factory import open_store
from convo.terminal.terminal import escape_control_chars

if TYPE_CHECKING:
    from convo.server.http import HttpExchange
    from convo.stores.base import Store


SIGNAL_EXIT_OFFSET = 128
"""The number that shells add to a signal's number for the exit code of a process that it ended."""

REQUIRED_MODULES = ("starlette", "uvicorn", "httptools", "prometheus_client", "python_multipart", "websockets")


def print_new_key(config: Path | None, flags: SettingFlags, name: str) -> None:
    """Print a new key once, on stdout, and store its hash. Raises InvalidSettings or StoreFault."""
    from convo.server.auth import create_api_key, read_key_entries

    settings = load_settings(config, flags)
    path = settings.serve.keys_file or settings.paths.config / "keys"
    print_line(create_api_key(path, name))
    print_notice(f"its hash is saved in {path}; serve with --keys {path}")
    if sum(name == key_name for key_name, _ in read_key_entries(path, strict=False)) > 1:
        print_notice(f"earlier keys of {name} remain valid; to revoke one, remove its line")


def run_server(config: Path | None, flags: SettingFlags, *, verbose: bool, strict: bool = False) -> None:
    """Serve until a signal ends the server.

    Raises InvalidUsage if the extra is not installed, InvalidSettings or StoreFault.
    """
    missing = [name for name in REQUIRED_MODULES if find_spec(name) is None]
    if missing:
        raise InvalidUsage(f"convo serve needs {', '.join(missing)}", hint="pip install 'convo-state[serve]'")
    asyncio.run(_serve_until_stopped(load_settings(config, flags), verbose, strict))


async def _serve_until_stopped(settings: Settings, verbose: bool, strict: bool) -> None:
    from convo.chat.endpoint_factory import ModelsForClients, open_service
    from convo.server import server
    from convo.server.app import Gateway
    from convo.server.auth import KeysFile
    from convo.server.handlers import InspectorDeps

    serve_settings, clock = settings.serve, SystemClock()
    server.check_keys_required(serve_settings)
    if serve_settings.record and settings.storage.type == "none":
        raise InvalidUsage("--record cannot be used with --store none", hint="use --store memory or sqlite:PATH")
    keys = KeysFile(serve_settings.keys_file) if serve_settings.keys_file else None
    store = await _open_migrated_store(settings)
    inspector_store = _open_inspector_store(settings, store)
    try:
        with (
            server.open_listening_socket(serve_settings.host, serve_settings.port) as listening_socket,
            stop_event_on_signals() as stop_event,
        ):
            models = ModelsForClients(
                settings, clock, random_id, warn=lambda message: print_notice(f"convo serve: warning: {message}")
            )
            service = open_service(settings, store=store, clock=clock, new_id=random_id, strict=strict, models=models)
            try:
                await service.check_ready()  # also starts the recovery of work that other replicas left
            except StoreFull as fault:  # what is stored can be read, and deleted
                print_notice(f"convo serve: {fault.message}")
            log = _print_access_line if verbose else None
            gateway = Gateway(
                service, serve_settings,
                InspectorDeps(
                    inspector_store, settings.prices, providers=settings.providers,
                    expand_model_name=make_model_name_expander(settings),
                ),
                clock=clock, new_id=random_id, authenticator=keys, log=log, report_store_fault=StoreFaultPrinter(),
                upstreams=models,
                report_dropped=lambda reason: print_notice(f"convo serve: {reason}"),
                store=store,
            )  # fmt: skip
            if serve_settings.record:
                gateway.recording.start()  # also deletes expired recordings
                print_notice(describe_recording(serve_settings))
            # The first request imported the packages of its provider: 1.8 s, where the second took 20 ms.
            await models.warm()
            print_notice(f"convo serves {server.local_base_url(listening_socket)}, store {settings.storage}")
            # The threshold of short commands let a server keep up to 20 MB of unused objects.
            collect_garbage_often()
            await server.run_gateway(
                gateway,
                service,
                serve_settings,
                listening_socket,
                stop_event,
                print_internal_error,
                partial(print_shutdown_delay, serve_settings.grace_s),
            )
    finally:
        if inspector_store is not store:
            await inspector_store.aclose()
        await store.aclose()


def describe_recording(serve: ServeSettings) -> str:
    """Return the notice that requests are recorded."""
    keys = f" of {', '.join(serve.record_keys)}" if serve.record_keys else ""
    kept = format_recording_ttl(serve)
    requests = f"requests{keys} with store=false, to /v1/chat/completions and to /v1/messages"
    return f"{requests} are recorded and kept for {kept}; --no-record stops it"


def format_recording_ttl(serve: ServeSettings) -> str:
    return f"{serve.record_ttl_s / 86_400:g} days" if serve.record_ttl_s >= 86_400 else f"{serve.record_ttl_s:g} s"


async def _open_migrated_store(settings: Settings) -> "Store":
    """Open the configured store with this convo's schema. Raises StoreFault."""
    store = open_store(get_store_url(settings.storage))
    store.admin.set_damaged_row_observer(DamagedRowPrinter())
    await store.admin.migrate()
    return store


def _open_inspector_store(settings: Settings, store: "Store") -> "Store":
    """Return the store of the inspector page: a second connection to a SQLite file, whose jobs run one after another.

    A long read of the page then holds up no request. PostgreSQL has a pool, and a store in memory one connection.
    """
    if settings.storage.type != "sqlite":
        return store
    inspector_store = open_store(get_store_url(settings.storage))
    inspector_store.admin.set_damaged_row_observer(DamagedRowPrinter())
    return inspector_store


def _print_access_line(exchange: "HttpExchange") -> None:
    """Print one line about a finished request, with the tools that its model was not sent; no message text, no keys."""
    scope = exchange.scope
    path = scope["raw_path"].decode("ascii", "replace")
    difference = STREAMED_TEXT_DIFFERS if exchange.text_differs else ""
    tools = ",".join(name for name in exchange.ignored_fields if name.startswith("tools."))
    notes = exchange.error_code, exchange.limit_name, difference, f"ignored={tools}" if tools else ""
    outcome = " ".join(filter(None, (str(exchange.status), *notes)))
    line = f"{exchange.method} {path} {outcome} {exchange.duration_s * 1000:.0f} ms {exchange.id} {exchange.tenant}"
    sys.stderr.write(escape_control_chars(redact_secrets(line.rstrip()) + "\n"))


class StoreFaultPrinter:
    """Prints the fault of the store on stderr, again only after it changed."""

    def __init__(self) -> None:
        self._last_message = ""

    def __call__(self, fault: StoreFault) -> None:
        if fault.message != self._last_message:
            self._last_message = fault.message
            print_notice(f"convo serve: {fault.message}")


class DamagedRowPrinter:
    """Prints the damaged rows that lists left out on stderr, each of them once."""

    def __init__(self) -> None:
        self._printed: set[tuple[str, str]] = set()

    def __call__(self, error: DamagedRow) -> None:
        if (error.table, error.key) in self._printed or len(self._printed) > MAX_PRINTED_ROWS:
            return
        self._printed.add((error.table, error.key))
        if len(self._printed) > MAX_PRINTED_ROWS:
            print_notice("convo serve: more damaged rows were left out; convo store check lists them")
        else:
            print_notice(f"convo serve: {error.message}; it was left out; {error.hint}")


MAX_PRINTED_ROWS = 100
"""Damaged rows that a server names before it only says that there are more."""


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
    loop, stop_event = asyncio.get_running_loop(), asyncio.Event()
    # nohup ignores SIGHUP, and a shell SIGINT for a job in the background: both stay ignored.
    handled = [number for number in _list_stop_signals() if signal.getsignal(number) is not signal.SIG_IGN]

    received: list[int] = []

    def handle_signal(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:  # both signals came before the first call of this handler
            os._exit(SIGNAL_EXIT_OFFSET + number)
        for other in handled:
            signal.signal(other, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop_event.set)

    previous = {number: signal.signal(number, handle_signal) for number in handled}
    try:
        yield stop_event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _list_stop_signals() -> list[int]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
