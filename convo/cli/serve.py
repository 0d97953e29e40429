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
from pathlib import Path
from typing import TYPE_CHECKING

from convo.api.gateway import check_modules_installed, load_keys, make_gateway, open_stores
from convo.cli.output import print_debug_traceback, print_line, print_notice, to_failure
from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import ServeSettings, Settings
from convo.errors import DamagedRow, StoreFault, StoreFull
from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.runtime import collect_garbage_often
from convo.secrets import redact_secrets
from convo.terminal.terminal import escape_control_chars

if TYPE_CHECKING:
    from convo.server.http import HttpExchange


SIGNAL_EXIT_OFFSET = 128
"""The number that shells add to a signal's number for the exit code of a process that it ended."""


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
    check_modules_installed("convo serve")
    asyncio.run(_serve_until_stopped(load_settings(config, flags), verbose, strict))


async def _serve_until_stopped(settings: Settings, verbose: bool, strict: bool) -> None:
    from convo.server import server

    serve_settings = settings.serve
    keys = load_keys(settings)
    store, inspector_store = await open_stores(settings, DamagedRowPrinter())
    try:
        with (
            server.open_listening_socket(serve_settings.host, serve_settings.port) as listening_socket,
            stop_event_on_signals() as stop_event,
        ):
            gateway, service, models = make_gateway(
                settings, store, inspector_store, keys, notify=lambda line: print_notice(f"convo serve: {line}"),
                strict=strict, log=_print_access_line if verbose else None, report_store_fault=StoreFaultPrinter(),
            )  # fmt: skip
            try:
                await service.check_ready()  # also starts the recovery of work that other replicas left
            except StoreFull as fault:  # what is stored can be read, and deleted
                print_notice(f"convo serve: {fault.message}")
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
