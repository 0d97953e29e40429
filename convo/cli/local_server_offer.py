"""The offer of a model server on this machine, made once to a user of `convo chat` who has no API key.

The answer is stored: yes sets the default model as `convo config set` does, no creates a file in the state folder.
Ctrl-C, the end of the input and any other text store nothing, so the next chat makes the offer again.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from convo.chat.files import write_atomic
from convo.cli.output import print_notice
from convo.config.model_lists import save_reported_windows
from convo.config.paths import make_private_folder
from convo.config.settings import BUILT_IN_MODEL, Settings
from convo.config.values import Layer
from convo.errors import Interrupted, StoreFault
from convo.terminal.prompt import read_plain_line
from convo.terminal.terminal import escape_control_chars

if TYPE_CHECKING:
    from convo.models.server_search import LocalServer

OFFER_TIMEOUT_S = 0.15
"""Seconds to connect, and again for the list of models: the chat's prompt waits for both."""

WINDOWS_TIMEOUT_S = 0.5
"""The same for the context windows of the server that the user chose."""

MAX_MODEL_CHARS = 100
"""Characters of a model's name that is offered."""

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


async def offer_local_server(settings: Settings, config: Path | None) -> bool:
    """Ask whether to use a model server on this machine by default; return whether the settings were changed.

    Does nothing unless the built-in model would answer because no key is configured, all three standard streams are
    terminals, the offer was not declined before, and a server with a model answers in time.

    config:  the settings file of the user, as --config names it

    Raises InvalidSettings, Unreadable or StoreFault if the settings cannot be changed.
    """
    if not _may_offer(settings):
        return False
    from convo.models.server_search import SERVER_KINDS, apply_ollama_host, find_local_servers

    kinds = [kind for kind in apply_ollama_host(SERVER_KINDS, settings) if _is_on_this_machine(kind.base_url)]
    servers = await find_local_servers(kinds, timeout_s=OFFER_TIMEOUT_S, with_windows=False)
    offer = next(
        ((server, model) for server in servers if (model := _choose_model(server)) and _is_usable(server, settings)),
        None,
    )
    if offer is None:
        return False
    server, model = offer
    name = f"{server.kind.provider}/{model}"
    try:
        answer = await read_plain_line(
            escape_control_chars(
                f"No API key found, but {server.kind.name} answers on this machine. Use {name} by default? [y/N] "
            )
        )
    except (EOFError, Interrupted):
        return False
    match answer.strip().lower():
        case "y" | "yes":
            _set_default_model(server, name, settings, config)
            for reporting in await find_local_servers([server.kind], timeout_s=WINDOWS_TIMEOUT_S):
                save_reported_windows(settings.paths, reporting.base_url, reporting.windows)
            print_notice("other models: convo models --local; to undo this: convo config unset model")
            return True
        case "" | "n" | "no":
            _record_refusal(settings)
    return False


def _is_on_this_machine(base_url: str | None) -> bool:
    """Return whether the URL is that of this machine; None is its standard port. No other machine is asked."""
    return base_url is None or urlsplit(base_url).hostname in LOOPBACK_HOSTS


def _may_offer(settings: Settings) -> bool:
    is_default = settings.model == BUILT_IN_MODEL and settings.get_source("model").layer is Layer.DEFAULT
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    return is_default and is_terminal and not os.path.lexists(settings.paths.declined_server_offer)


def _choose_model(server: "LocalServer") -> str | None:
    """Return the first model whose name can be shown and stored and does not contain "embed"; None without one."""
    for name in server.windows:
        is_plain = name.isprintable() and name == name.strip() and 0 < len(name) <= MAX_MODEL_CHARS
        # Such as nomic-embed-text: an embedding model answers no message.
        if is_plain and "embed" not in name.lower():
            return name
    return None


def _is_usable(server: "LocalServer", settings: Settings) -> bool:
    """Return whether the server's name in the settings is unused, or already refers to this server."""
    provider = settings.providers.get(server.kind.provider)
    if provider is None:
        return True
    url = urlsplit(provider.base_url or "")
    return url.hostname in LOOPBACK_HOSTS and url.port == urlsplit(server.base_url).port


def _set_default_model(server: "LocalServer", name: str, settings: Settings, config: Path | None) -> None:
    from convo.cli.config import SettingsTarget, write_settings

    values = {"model": name}
    if server.kind.provider not in settings.providers:
        key = f"providers.{server.kind.provider}"
        values = {f"{key}.api": "chat", f"{key}.base_url": server.base_url, **values}
    write_settings(SettingsTarget(config), values)


def _record_refusal(settings: Settings) -> None:
    """Store that the offer was declined; the chat continues if that is not possible."""
    file = settings.paths.declined_server_offer
    try:
        make_private_folder(file.parent)
        write_atomic(file, "")
    except StoreFault as error:
        print_notice(f"{error.message}; this will be asked again")
    else:
        print_notice("convo will not ask again; convo models --local lists the servers and how to use them")
