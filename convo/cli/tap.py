"""`convo tap`: relay the requests of another program to its model, and record them.

Opens the store, then the relay on loopback, then starts the command with the variables and arguments that make it
use the relay. The command has the terminal and gets its signals; convo prints nothing while it runs.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from convo.api.gateway import check_modules_installed
from convo.cli.deps import open_configured_store
from convo.cli.output import print_debug_traceback, print_line, print_notice, to_failure
from convo.cli.serve import SIGNAL_EXIT_OFFSET, format_recording_ttl, print_shutdown_delay, stop_event_on_signals
from convo.config.credentials import load_provider_key
from convo.config.loader import SettingFlags, load_settings
from convo.config.sections import Provider
from convo.config.settings import Settings
from convo.config.trust import is_loopback
from convo.errors import InvalidSettings, InvalidUsage
from convo.runtime import SystemClock, collect_garbage_often, random_id

if TYPE_CHECKING:
    from convo.server.relay import Relay, Upstream
    from convo.server.relay_recording import RelayRecording

LOOPBACK = "127.0.0.1"

DEFAULT_PROVIDERS = ("openai", "anthropic")

UPSTREAM_NAME = "upstream"
"""The first segment of the local path of --upstream."""

COMMAND_GRACE_S = 2.0
"""Seconds that open requests get after the command ended."""

PROGRAMS_WITH_LOGIN = frozenset({"claude", "codex", "opencode"})
"""Programs that may be logged in without a key in a variable; a placeholder there would replace their login."""


class TapTarget(NamedTuple):
    """The flags --provider and --upstream; without both, requests go to OpenAI and Anthropic."""

    provider: str | None = None
    upstream: str | None = None


def run_tap(config: Path | None, flags: SettingFlags, target: TapTarget, command: Sequence[str]) -> int:
    """Relay until the command ends, or without one until a signal; return the exit code.

    Raises InvalidUsage for contradicting flags, an unknown program or a missing package, InvalidSettings or StoreFault.
    """
    if target.provider is not None and target.upstream is not None:
        raise InvalidUsage("--provider and --upstream cannot be used together", hint="convo tap --help")
    check_modules_installed("convo tap")
    if command and shutil.which(command[0]) is None:
        raise InvalidUsage(f"no program {command[0]!r}", hint="convo tap -- PROGRAM ARGUMENTS")
    has_other_store = flags.store is not None or config is not None
    return asyncio.run(
        _relay_until_done(load_settings(config, flags), target, command, has_other_store=has_other_store)
    )


async def _relay_until_done(
    settings: Settings, target: TapTarget, command: Sequence[str], *, has_other_store: bool
) -> int:
    """Relay and record. `has_other_store`: other commands need the store's address to find it."""
    from convo.recording.recorder import open_recorder
    from convo.server import server
    from convo.server.relay import Relay, RelayCounts, run_relay
    from convo.server.relay_recording import RelayRecording

    if settings.storage.type == "none":
        raise InvalidUsage("convo tap needs a store to record in", hint="use --store sqlite:PATH or postgresql://...")
    upstreams = open_upstreams(settings, target)
    serve = settings.serve._replace(grace_s=COMMAND_GRACE_S) if command else settings.serve
    clock, notices = SystemClock(), NoticeBuffer(is_deferred=bool(command))
    async with open_configured_store(settings) as store:
        await store.admin.migrate()
        with server.open_listening_socket(LOOPBACK, serve.port) as listening_socket:
            root = server.local_base_url(listening_socket).removesuffix("/v1")
            recorder = open_recorder(store, provider=target.provider, ttl_s=serve.record_ttl_s)
            await recorder.close_abandoned()
            recordings = RelayRecording(
                recorder, clock=clock, new_id=random_id, max_body_bytes=serve.max_body_bytes,
                report=notices.add, report_error=notices.add_error,
            )  # fmt: skip
            relay = Relay(
                upstreams, serve, recordings, clock=clock, new_id=random_id, idle_s=settings.limits.idle_s,
                report=notices.add,
            )  # fmt: skip
            for upstream in upstreams:
                print_notice(f"convo tap relays {root}{upstream.local_path} to {upstream.base_url}")
            kept = format_recording_ttl(serve)
            print_notice(
                f"requests and responses are recorded in {settings.storage}, with their texts, and kept for {kept}"
            )
            store_variable, store_option = (
                (f"CONVO_STORE={quote(str(settings.storage))} ", f" --store {quote(str(settings.storage))}")
                if has_other_store
                else ("", "")
            )
            print_notice(f"the newest conversation: {store_variable}convo inspect @recorded")
            print_notice(f"all of them on a page, while they run: convo serve{store_option}")
            variables = build_client_variables(upstreams, root, target, os.environ, get_program_name(command))
            report_delay = partial(print_shutdown_delay, serve.grace_s)
            collect_garbage_often()
            try:
                if command:
                    stop_event = asyncio.Event()
                    relay_task = asyncio.create_task(
                        run_relay(relay, serve, listening_socket, stop_event, notices.add_error)
                    )
                    arguments = add_client_arguments(command, upstreams[0], root, {**os.environ, **variables})
                    try:
                        return await run_command(arguments, {**os.environ, **variables})
                    finally:
                        stop_event.set()
                        await relay_task
                for name, value in variables.items():
                    print_line(f"export {name}={quote(value)}")
                sys.stdout.flush()
                with stop_event_on_signals() as stop_event:
                    await run_relay(relay, serve, listening_socket, stop_event, notices.add_error, report_delay)
                return 0
            finally:
                await recordings.aclose()
                notices.release()
                print_notice(f"convo tap: {summarize_counts(relay, recordings)}")
                if recorder.last_session:
                    print_notice(f"to inspect the last one: convo inspect {quote(recorder.last_session)}")
                if command and relay.counts == RelayCounts():
                    print_notice(format_unused_relay_hint(variables, root))
                if target.upstream and 0 < relay.counts.relayed == relay.counts.not_found and not upstreams[0].path:
                    print_notice(f"every response was 404 Not Found\n  try: --upstream {upstreams[0].base_url}/v1")


class NoticeBuffer:
    """Prints each notice once on stderr; while a command has the terminal, notices are deferred."""

    def __init__(self, *, is_deferred: bool) -> None:
        self._is_deferred = is_deferred
        self._lines: dict[str, bool] = {}

    def add(self, line: str) -> None:
        if line not in self._lines:
            self._lines[line] = not self._is_deferred
            if not self._is_deferred:
                print_notice(f"convo tap: {line}")

    def add_error(self, error: BaseException) -> None:
        """Add an unexpected error by its type and place."""
        print_debug_traceback(error)
        self.add(to_failure(error).message)

    def release(self) -> None:
        """Print the deferred notices."""
        self._is_deferred = False
        for line, is_printed in self._lines.items():
            if not is_printed:
                print_notice(f"convo tap: {line}")
        self._lines = dict.fromkeys(self._lines, True)


def summarize_counts(relay: "Relay", recordings: "RelayRecording") -> str:
    """Return the counts of a relay that ended, as one line."""
    counts = relay.counts
    parts = [
        f"{counts.relayed:,} {'request' if counts.relayed == 1 else 'requests'} relayed",
        f"{recordings.queue.recorded:,} recorded",
    ]
    parts += [f"{counts.unrecorded:,} to other paths"] if counts.unrecorded else []
    parts += [f"{counts.failed:,} without a complete response"] if counts.failed else []
    parts += [f"{recordings.queue.dropped:,} dropped by the recorder"] if recordings.queue.dropped else []
    return ", ".join(parts)


def format_unused_relay_hint(variables: Mapping[str, str], root: str) -> str:
    """Return why no request arrived, and the base URLs for the program's own settings."""
    base_urls = {name: value for name, value in variables.items() if value.startswith(root)}
    return (
        f"no request arrived: the program sent none, has no key, or does not read {', '.join(base_urls)}\n"
        f"  try: set {' or '.join(dict.fromkeys(base_urls.values()))} as the base URL in its own settings, with a "
        "fixed --port (convo tap --help)"
    )


# -- upstreams ------------------------------------------------------------------------------------


def open_upstreams(settings: Settings, target: TapTarget) -> list["Upstream"]:
    """Return the upstreams of the flags. Raises InvalidSettings."""
    from convo.server.relay import Upstream

    if target.upstream is not None:
        return [Upstream(UPSTREAM_NAME, target.upstream)]
    if target.provider is not None and target.provider not in settings.providers:
        raise InvalidSettings(
            f"no provider {target.provider!r} (known: {', '.join(settings.providers)})",
            hint="choose one of them, or use --upstream URL",
        )
    names = DEFAULT_PROVIDERS if target.provider is None else (target.provider,)
    return [_open_provider_upstream(settings.providers[name]) for name in names if name in settings.providers]


def _open_provider_upstream(provider: Provider) -> "Upstream":
    from convo.server.relay import KeyHeader, Upstream

    if provider.base_url is None:
        raise InvalidSettings(
            f"the provider {provider.name!r} has no base URL", hint="set its base_url, or use --upstream URL"
        )
    headers: dict[str, KeyHeader] = {"anthropic": "x-api-key", "azure": "api-key"}
    key = load_provider_key(provider, os.environ)
    return Upstream(provider.name, provider.base_url, key=key, key_header=headers.get(provider.api, "authorization"))


# -- the command ----------------------------------------------------------------------------------


def get_program_name(command: Sequence[str]) -> str:
    """Return the program's name without folder and extension; "" without a command."""
    return Path(command[0]).stem.lower() if command else ""


def build_client_variables(
    upstreams: Sequence["Upstream"], root: str, target: TapTarget, environ: Mapping[str, str], program: str
) -> dict[str, str]:
    """Return the variables that make clients use the relay at `root`.

    A client gets a placeholder for its key where the relay has the right one, or the upstream is on this machine:
    always for --provider, because a key in a variable belongs to another server, else if the variable is not set.
    """
    from convo.server.relay import PLACEHOLDER_KEY

    variables: dict[str, str] = {}
    base_urls: dict[str, str] = {}
    for upstream in upstreams:
        local_url = root + upstream.local_path
        uses_any_api = upstream.name == UPSTREAM_NAME
        keys_by_api: list[tuple[str, ...]] = []
        if upstream.key_header == "authorization":
            variables |= {"OPENAI_BASE_URL": local_url, "OPENAI_API_BASE": local_url}
            base_urls |= {"openai": local_url, upstream.name: local_url}
            keys_by_api.append(("OPENAI_API_KEY",))
        if upstream.key_header == "x-api-key" or uses_any_api:
            # Anthropic's packages add /v1 themselves, the provider of opencode does not.
            versionless = local_url.removesuffix("/v1")
            variables["ANTHROPIC_BASE_URL"] = versionless
            variables |= {name: versionless for name in ("ANTHROPIC_API_BASE", "ANTHROPIC_API_URL") if name in environ}
            base_urls |= {"anthropic": f"{versionless}/v1"}
            has_token = "ANTHROPIC_AUTH_TOKEN" in environ or program == "claude"
            key_names: tuple[str, ...] = ("ANTHROPIC_AUTH_TOKEN",) if has_token else ("ANTHROPIC_API_KEY",)
            if has_token and "ANTHROPIC_API_KEY" in environ:
                key_names = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY")
            keys_by_api.append(key_names)
        if upstream.key_header == "api-key":
            variables |= {"AZURE_OPENAI_ENDPOINT": local_url, "AZURE_API_BASE": local_url}
            keys_by_api.append(("AZURE_OPENAI_API_KEY",))
        is_local = uses_any_api and is_loopback(urlsplit(upstream.base_url).hostname or "")
        gets_key = (is_local or upstream.key is not None) and program not in PROGRAMS_WITH_LOGIN
        for names in keys_by_api:
            if target.provider is not None:
                variables |= dict.fromkeys(names, PLACEHOLDER_KEY)
            elif gets_key and not environ.keys() & set(names):
                variables[names[0]] = PLACEHOLDER_KEY
    if base_urls and (not program or program == "opencode"):
        variables["OPENCODE_CONFIG_CONTENT"] = _build_opencode_config(
            base_urls, environ.get("OPENCODE_CONFIG_CONTENT", "")
        )
    # A program would send the requests to loopback to its proxy; some read only one of the two spellings.
    if any(name.lower() in ("http_proxy", "all_proxy") for name in environ):
        for name in ("NO_PROXY", "no_proxy"):
            variables[name] = ",".join(filter(None, (environ.get(name, ""), LOOPBACK)))
    return variables


def _build_opencode_config(base_urls: Mapping[str, str], own_config: str) -> str:
    """Return opencode's settings, `own_config` included, with the base URLs of its providers."""
    config: object = {}
    with suppress(ValueError):
        config = json.loads(own_config) if own_config else {}
    config = config if isinstance(config, dict) else {}
    providers = config.setdefault("provider", {})
    for name, url in base_urls.items():
        providers.setdefault(name, {}).setdefault("options", {})["baseURL"] = url
    return json.dumps(config)


def add_client_arguments(
    command: Sequence[str], upstream: "Upstream", root: str, environ: Mapping[str, str]
) -> list[str]:
    """Return the command with the arguments for a program that reads no variable.

    Codex uses a WebSocket, and its built-in behaviour for OpenAI, only with a provider that is named so.
    """
    if get_program_name(command) != "codex":
        return list(command)
    is_openai = upstream.name == "openai"
    has_key = bool(environ.get("OPENAI_API_KEY"))
    fields = [
        f'name="{"OpenAI" if is_openai else "convo tap"}"',
        f'base_url="{root}{upstream.local_path}"',
        'wire_api="responses"',
        'env_key="OPENAI_API_KEY"' if has_key else "requires_openai_auth=true",
        f"supports_websockets={'true' if is_openai else 'false'}",
    ]
    settings = ("model_providers.convo={" + ",".join(fields) + "}", 'model_provider="convo"')
    return [command[0], *(word for setting in settings for word in ("-c", setting)), *command[1:]]


async def run_command(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command with the terminal of this process; return its exit code, 128 + N if signal N ended it.

    Raises InvalidUsage if it cannot be started.
    """
    with _forwarded_signals() as signals:
        try:
            process = await asyncio.create_subprocess_exec(*command, env=environ)
        except OSError as error:
            raise InvalidUsage(
                f"{command[0]!r} cannot be started: {error.strerror}", hint="convo tap -- PROGRAM ARGUMENTS"
            ) from error
        signals.start(process.pid)
        code = await process.wait()
        signals.process_id = None
    return code if code >= 0 else SIGNAL_EXIT_OFFSET - code


class _SignalForwarder:
    """Forwards signals to a process; those that arrive before it has started are sent to it then.

    process_id:  None before the process has started and after it has ended
    """

    def __init__(self) -> None:
        self.process_id: int | None = None
        # Of 30 signals that arrived while the command started, 11 were lost.
        self._early_signals: list[int] = []

    def start(self, process_id: int) -> None:
        """Forward to this process from now on, first the signals that arrived before."""
        self.process_id = process_id
        for number in self._early_signals:
            self._send(process_id, number)

    def forward(self, number: int, frame: object) -> None:
        """Handle a signal. Ctrl-C in a terminal already reaches the process, which is in the same process group."""
        if number in (signal.SIGINT, signal.SIGQUIT) and _is_in_foreground():
            return
        if self.process_id is None:
            self._early_signals.append(number)
        else:
            self._send(self.process_id, number)

    @staticmethod
    def _send(process_id: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(process_id, number)


@contextmanager
def _forwarded_signals() -> Iterator[_SignalForwarder]:
    """Forward signals to the process of the yielded object; this process survives them."""
    forwarder = _SignalForwarder()
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, forwarder.forward) for number in handled}
    try:
        yield forwarder
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether this process belongs to the foreground process group of its terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
