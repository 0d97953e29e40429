"""Model servers on this machine, found at the standard ports of Ollama, llama.cpp, LM Studio and vLLM.

Ollama is asked at the address that `OLLAMA_HOST` names, as its own client does; that may be another machine.

Another program may listen at such a port: its response is bounded in size and time, and ignored if it is not a list of
models. No model is loaded by a search. The prompt of a chat waits for it, so the modules of models are imported once a
port is open.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from convo.config.model_lists import is_context_window
from convo.config.settings import ResponseLimits, Settings
from convo.errors import ConvoError, EndpointFault
from convo.history.items import Json

SEARCH_TIMEOUT_S = 2.0
"""Seconds for all requests to one server."""

MAX_SHOWN_MODELS = 50
"""Models of Ollama that are asked for their context window, each with a request of its own."""

_LIMITS = ResponseLimits(body_bytes=1024 * 1024)

RequestJson: TypeAlias = Callable[..., Awaitable[Json]]
ContextWindows: TypeAlias = Mapping[str, int | None]


class ServerKind(NamedTuple):
    """A kind of model server.

    name:      of the product
    provider:  the name for it in the settings
    port:      its standard port
    base_url:  the URL in its variable, with /v1; None: the standard port of this machine
    """

    name: str
    provider: str
    port: int
    base_url: str | None = None


SERVER_KINDS = (
    ServerKind("Ollama", "ollama", 11434),
    ServerKind("llama.cpp", "llamacpp", 8080),
    ServerKind("LM Studio", "lmstudio", 1234),
    ServerKind("vLLM", "vllm", 8000),
)


def apply_ollama_host(kinds: Sequence[ServerKind], settings: Settings) -> tuple[ServerKind, ...]:
    """Return `kinds` with the address of Ollama if `OLLAMA_HOST` names one."""
    ollama = settings.providers.get("ollama")
    is_named = settings.get_source("providers", "ollama", "base_url").name == "OLLAMA_HOST"
    base_url = ollama.base_url if ollama and is_named else None
    return tuple(kind._replace(base_url=base_url) if kind.provider == "ollama" else kind for kind in kinds)


class LocalServer(NamedTuple):
    """A server that answered.

    base_url:  as a provider's setting, with /v1
    windows:   maximum context window of each model in tokens; None if the server does not tell it
    """

    kind: ServerKind
    base_url: str
    windows: ContextWindows


async def find_local_servers(
    kinds: Sequence[ServerKind], *, timeout_s: float | None = None, with_windows: bool = True
) -> list[LocalServer]:
    """Ask the servers of these kinds at once; those that do not answer with a list of models are left out.

    timeout_s:     seconds to connect, and again for all requests to one server; None: `SEARCH_TIMEOUT_S`
    with_windows:  also ask for the context windows; they are None otherwise
    """
    duration_s = SEARCH_TIMEOUT_S if timeout_s is None else timeout_s
    async with asyncio.TaskGroup() as group:
        probes = [group.create_task(_is_port_open(*_find_address(kind), duration_s)) for kind in kinds]
    listening = [kind for kind, probe in zip(kinds, probes, strict=True) if probe.result()]
    if not listening:
        return []
    await asyncio.to_thread(__import__, "httpx2")
    found = await asyncio.gather(*(_ask_server(kind, duration_s, with_windows=with_windows) for kind in listening))
    return [server for server in found if server]


def _find_address(kind: ServerKind) -> tuple[str, int]:
    """Return the host and the port of a server."""
    if kind.base_url is None:
        return "127.0.0.1", kind.port
    url = urlsplit(kind.base_url)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


async def _is_port_open(host: str, port: int, timeout_s: float) -> bool:
    """Return whether a program listens at the port; a closed port of this machine is usually refused at once."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, UnicodeError, TimeoutError):  # UnicodeError: a part of the host's name is too long
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _ask_server(kind: ServerKind, timeout_s: float, *, with_windows: bool) -> LocalServer | None:
    from httpx2 import AsyncClient, HTTPError

    from convo.models.base import parse_models
    from convo.models.http import limit_response_bodies

    root = f"http://127.0.0.1:{kind.port}" if kind.base_url is None else kind.base_url.removesuffix("/v1")
    client = AsyncClient(base_url=root, trust_env=False, verify=root.startswith("https:"), timeout=timeout_s)
    windows: dict[str, int | None] = {}

    async def request_json(path: str, body: Json = None) -> Json:
        """Return the value that the server sends. Raises HTTPError, LimitReached or EndpointFault."""
        response = await (client.get(path) if body is None else client.post(path, json=body))
        response.raise_for_status()
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise EndpointFault(f"{kind.name} sent a response that is not JSON") from error

    async with limit_response_bodies(client, _LIMITS):
        with suppress(ConvoError, HTTPError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                listed = await request_json("/v1/models")
                windows.update(dict.fromkeys(parse_models(listed, kind.name)))
                if with_windows:
                    windows.update(await _fetch_windows(kind, listed, request_json))
                return LocalServer(kind, f"{root}/v1", windows)
    return LocalServer(kind, f"{root}/v1", windows) if windows else None


async def _fetch_windows(kind: ServerKind, listed: Json, request_json: RequestJson) -> dict[str, int | None]:
    """Return the context windows that the server reports. Raises the errors of `request_json`."""
    models = [model for model in _members(listed, "data") if isinstance(model.get("id"), str)]
    match kind.provider:
        case "ollama":
            shown = models[:MAX_SHOWN_MODELS]
            details = await asyncio.gather(*(request_json("/api/show", {"model": model["id"]}) for model in shown))
            return {
                model["id"]: _find_window(detail.get("model_info"), ".context_length")
                for model, detail in zip(shown, details, strict=True)
                if isinstance(detail, Mapping)
            }
        case "llamacpp":
            properties = await request_json("/props")
            settings = properties.get("default_generation_settings") if isinstance(properties, Mapping) else None
            return {model["id"]: _find_window(settings, "n_ctx") for model in models}
        case "lmstudio":
            native = _members(await request_json("/api/v0/models"), "data")
            windows = {str(model.get("id")): _find_window(model, "max_context_length") for model in native}
            return {model["id"]: windows.get(model["id"]) for model in models}
    return {model["id"]: _find_window(model, "max_model_len") for model in models}


def _members(value: Json, name: str) -> list[Mapping[str, Json]]:
    """Return the objects in the list `name` of `value`; an empty list for a response of another shape."""
    members = value.get(name) if isinstance(value, Mapping) else None
    return [member for member in members if isinstance(member, Mapping)] if isinstance(members, list) else []


def _find_window(value: Json, suffix: str) -> int | None:
    """Return the first number of `value` that can be a context window and whose name ends with `suffix`."""
    if isinstance(value, Mapping):
        for name, number in value.items():
            if str(name).endswith(suffix) and is_context_window(number):
                return number
    return None
