"""Open the endpoint, the models and the model list of a provider.

A server that speaks the Responses API stores state itself; every other provider gets convo's
own endpoint over the store. Each implementation is imported when it is first needed. A model
that a server calls with its own key reports errors in the client's terms.
"""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from convo.config.credentials import load_provider_key, load_provider_token, read_keyring
from convo.config.model_lists import FetchedModelLists, ModelLists, make_model_lists, save_model_lists
from convo.config.sections import CONFIGURABLE_APIS, EndpointKind, McpServer, Provider, split_mcp_reference
from convo.config.settings import (
    BUILT_IN_MODEL,
    DEFAULT_RESPONSE_LIMITS,
    ModelChoice,
    ModelName,
    ResponseLimits,
    Settings,
    resolve_model,
)
from convo.config.values import InvalidValue, check_base_url, expand_variables
from convo.endpoints.base import Endpoint
from convo.errors import (
    ConvoError,
    EndpointFault,
    InvalidSettings,
    InvalidUsage,
    ModelMissing,
    NotFound,
    RequestRefused,
)
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import EMBEDDED_SCOPE, Scope
from convo.models.base import (
    ListedModels,
    Model,
    ModelLister,
    ModelRequest,
    fetch_models,
    hide_issuer_model,
)
from convo.models.errors import translate_server_key_errors
from convo.models.factory import (
    find_built_in_weights,
    make_openai_options,
    open_custom_model,
    open_model,
    open_pass_through,
)
from convo.runtime import Clock, NewId, SystemClock, random_id
from convo.secrets import Secret, is_secret_name, read_secret, redact_server_address
from convo.stores.base import Store
from convo.usage.model_info import (
    appends_instructions,
    describe_appended_instructions,
    describe_capabilities,
    find_model_window,
    find_shutdown,
    load_known_models,
)

if TYPE_CHECKING:
    from convo.agents.agent import CustomModel, ToolServers
    from convo.endpoints.remote import RemoteEndpoint
    from convo.models.pass_through import PassThroughApi, PassThroughClient
    from convo.responses_api.endpoint import EmbeddedService
    from convo.responses_api.mcp_client import McpTarget
    from convo.responses_api.truncation import WindowLookup


def open_endpoint(provider: Provider, *, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    """Return the endpoint for the models of `provider`; no connection is made yet.

    Raises KeyRefused when the key of a server is missing or unusable, InvalidSettings when the server has no URL.
    """
    return ENDPOINT_FACTORIES[provider.endpoint](provider, settings, store, clock, new_id)


def _make_embedded(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    def make() -> Endpoint:
        from convo.responses_api.endpoint import EmbeddedEndpoint

        return EmbeddedEndpoint(
            store,
            ModelsByName(settings, clock, new_id),
            clock,
            new_id,
            seal_key=_read_seal_key(settings),
            find_window=_make_window_lookup(settings),
        )

    # Its thirty modules are needed for a request, not for a prompt.
    return cast(Endpoint, LazyEndpoint(EMBEDDED_SCOPE, make))


def open_custom_endpoint(model: "CustomModel", settings: Settings, store: Store) -> Endpoint:
    """Return the endpoint of a model that the definition of an agent brings."""
    from convo.models.provider_model import ProviderModel
    from convo.responses_api.endpoint import EmbeddedEndpoint

    adapter = ProviderModel(open_custom_model(model.name, model.stream, random_id), settings.limits)
    return EmbeddedEndpoint(store, OneModel(adapter), SystemClock(), random_id, seal_key=_read_seal_key(settings))


def _make_window_lookup(settings: Settings) -> "WindowLookup":
    """Local models have none: their engine refuses a request with tools first, and then one that is too long."""
    return lambda name: None if name.startswith("local/") else find_model_window(name, settings.windows)


def _read_seal_key(settings: Settings) -> Secret | None:
    return read_secret(os.environ, settings.serve.seal_key_env)


def _make_mcp_target(name: str, server: McpServer) -> "McpTarget":
    """Return an MCP server of the settings with its key.

    Raises InvalidSettings if the keyring cannot be read, and for a variable in `env` or `headers` that is not set.
    """
    from convo.responses_api.mcp_client import McpTarget

    key = read_secret(os.environ, server.key_env)
    if key is None and server.keyring and server.key_env:
        key = read_keyring(server.key_env)
    env = [text if "=" in text else f"{text}=${text}" for text in server.env]
    try:
        variables = [expand_variables(text, os.environ).partition("=") for text in env]
        headers = [expand_variables(text, os.environ).partition(":") for text in server.headers]
    except InvalidValue as error:
        raise InvalidSettings(f"[mcp.{name}] {error}", hint=error.hint) from error
    return McpTarget(
        url=server.url,
        command=server.command,
        key=key,
        key_env=server.key_env,
        headers={header.strip(): value.strip() for header, _, value in headers},
        environ={variable: value for variable, _, value in variables},
        allowed_tools=server.allowed_tools,
        blocked_tools=server.blocked_tools,
        approved_tools=None if server.approval == "never" else server.approved_tools,
        timeout_s=server.timeout_s,
    )


def open_mcp_servers(references: Sequence[str], settings: Settings) -> "ToolServers":
    """Return the servers that --mcp names; no connection is made yet.

    Raises InvalidUsage, NotFound, and the errors of the settings.
    """
    from convo.responses_api.mcp_servers import McpToolServers

    targets: dict[str, McpTarget] = {}
    for reference in references:
        name, target = _parse_mcp_reference(reference, settings)
        if name in targets:
            raise InvalidUsage(f"two MCP servers are named {name!r}", hint=f"name one: --mcp OTHER={quote(reference)}")
        targets[name] = target
    return McpToolServers(targets)


def _parse_mcp_reference(reference: str, settings: Settings) -> "tuple[str, McpTarget]":
    """Return the name and the server of NAME, COMMAND or URL; the last two may begin with `NAME=`."""
    from convo.responses_api.mcp_client import McpTarget

    if reference in settings.mcp:
        return reference, _make_mcp_target(reference, settings.mcp[reference])
    name, address = split_mcp_reference(reference)
    options_with_value = re.findall(r"(?<!\S)-+(\S+)\s+[^-\s]", address)
    if redact_server_address(address) != address or any(map(is_secret_name, options_with_value)):
        hint = "add the server under [mcp.NAME], with key_env, env or headers: a conversation stores only the name"
        raise InvalidUsage("--mcp has a key in it, and would store it with the conversation", hint=hint)
    try:
        if address.startswith(("http://", "https://")):
            target = McpTarget(url=check_base_url(address))
            program = str(urlsplit(address).hostname)
        else:
            target = McpTarget(command=tuple(shlex.split(address)))
            program = Path(target.command[0]).name if target.command else ""
    except ValueError as error:  # of both
        raise InvalidUsage(f"--mcp {reference!r} {error}", hint="--mcp NAME, --mcp 'COMMAND', or --mcp URL") from error
    if target.url is None and (not program or shutil.which(target.command[0]) is None):
        known = f"; [mcp.NAME] has {', '.join(settings.mcp)}" if settings.mcp else ""
        raise NotFound(
            "MCP server or program", reference, hint=f"add it under [mcp.NAME] in config.toml, or name a program{known}"
        )
    name = name or re.sub("^[^A-Za-z]+|[^A-Za-z0-9_-]", "_", program).lstrip("_") or "mcp"
    return name, target


def _make_remote(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    return open_remote(provider, settings.limits)


def open_catalogue(
    provider: Provider, models: Path, limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS
) -> ModelLister | None:
    """Return the server that lists the models of `provider`; no connection is made yet.

    models:  the folder with the weights that convo downloaded
    Returns None where there is no server to ask, and for Azure: it lists models, but requests name deployments.
    Raises KeyRefused, InvalidSettings, and ModelMissing when none of its models can be used.
    """
    if provider.api == "azure":
        make_openai_options(
            provider, key=load_provider_key(provider, os.environ), token=load_provider_token(provider, os.environ)
        )
        return None
    if provider.endpoint == "remote":
        return open_remote(provider, limits)
    if provider.api == "local":
        find_built_in_weights(models)
    key = load_provider_key(provider, os.environ)
    model = open_model(provider, key=key, weights_folder=models, clock=SystemClock(), new_id=random_id, limits=limits)
    return model if isinstance(model, ModelLister) else None


def open_remote(provider: Provider, limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS) -> "RemoteEndpoint":
    """Return the client of a server that stores state. Raises KeyRefused, InvalidSettings."""
    from convo.endpoints.remote import RemoteEndpoint

    client_options = make_openai_options(
        provider, key=load_provider_key(provider, os.environ), token=load_provider_token(provider, os.environ)
    )
    return RemoteEndpoint(client_options, limits=limits)


ENDPOINT_FACTORIES: dict[EndpointKind, Callable[[Provider, Settings, Store, Clock, NewId], Endpoint]] = {
    "embedded": _make_embedded,
    "remote": _make_remote,
}


class ModelsByName:
    """The models of all providers in the settings; each is opened on first use."""

    is_served = False

    def __init__(self, settings: Settings, clock: Clock, new_id: NewId) -> None:
        self._settings, self._clock, self._new_id = settings, clock, new_id
        self._models: dict[str, Model] = {}

    def __call__(self, name: str) -> tuple[Model, str]:
        """Return the model for `name`, an alias or "provider/model", and the provider's own name for it.

        Raises RequestRefused for an unknown model, and the KeyRefused and InvalidSettings of `open_model`.
        """
        model, choice = self._open_model(name)
        return model, choice.name.model

    def _open_model(self, name: str) -> tuple[Model, ModelChoice]:
        try:
            choice = self._resolve_name(name)
        except InvalidSettings as error:
            raise model_not_found_error(name, error) from error
        provider = choice.provider
        if provider.name not in self._models:
            self._models[provider.name] = self._open_provider_model(provider)
        return self._models[provider.name], choice

    def _open_provider_model(self, provider: Provider) -> Model:
        from convo.models.provider_model import ProviderModel

        model = open_model(
            provider,
            key=load_provider_key(provider, os.environ),
            token=load_provider_token(provider, os.environ),
            weights_folder=self._settings.paths.weights,
            clock=self._clock,
            new_id=self._new_id,
            limits=self._settings.limits,
            is_served=self.is_served,
        )
        return ProviderModel(model, self._settings.limits, is_chat=provider.api == "chat")

    def _resolve_name(self, name: str) -> ModelChoice:
        return resolve_model(self._settings, name, "the request")

    def add_model_lists(self, model_lists: ModelLists) -> None:
        """Add these model lists to the known ones."""
        self._settings = self._settings._replace(model_lists={**self._settings.model_lists, **model_lists})

    async def aclose(self) -> None:
        for model in self._models.values():
            await model.aclose()
        self._models.clear()


class OneModel:
    """The `ModelOpener` of a model without a provider; each name means it."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name

    async def aclose(self) -> None:
        await self._model.aclose()


ECHO_MODEL = "scripted/echo"
"""The scripted model that reads no file."""


class ModelsForClients(ModelsByName):
    """`ModelsByName` for clients that have no provider key and must not read local files by naming them."""

    is_served = True

    def __init__(
        self, settings: Settings, clock: Clock, new_id: NewId, warn: Callable[[str], None] = lambda message: None
    ) -> None:
        """Open no model yet. `warn` is called once with each warning for the operator of the server."""
        super().__init__(settings, clock, new_id)
        self._pass_through_clients: dict[str, PassThroughClient] = {}
        self._warn = cache(warn)

    def open_pass_through(self, api: "PassThroughApi", name: str) -> "tuple[PassThroughClient, str]":
        """Return the client for requests to `api` with the model `name`, and the provider's own name for it.

        Raises RequestRefused for an unknown model, Unsupported if its provider does not have this API, and the errors
        of `open_model`.
        """
        from convo.models.pass_through import check_api_supported

        try:
            choice = self._resolve_name(name)
        except InvalidSettings as error:
            raise model_not_found_error(name, error) from error
        provider = choice.provider
        check_api_supported(provider, api, name)
        if provider.name not in self._pass_through_clients:
            with translate_server_key_errors(provider.name, key_sent=False):
                self._pass_through_clients[provider.name] = open_pass_through(
                    provider,
                    key=load_provider_key(provider, os.environ),
                    token=load_provider_token(provider, os.environ),
                    limits=self._settings.limits,
                )
        return self._pass_through_clients[provider.name], choice.name.model

    async def warm(self) -> None:
        """Prepare the first requests to the providers that are used, but load no local model. Raises no error."""
        load_known_models()
        any_models = (f"{provider}/any" for provider in self._settings.configured_providers)
        for name in dict.fromkeys((*self._settings.aliases, self._settings.model, *any_models)):
            with suppress(ConvoError):
                model, choice = self._open_model(name)
                if choice.provider.api != "local":
                    await model.warm(choice.name.model)

    async def aclose(self) -> None:
        await super().aclose()
        for client in self._pass_through_clients.values():
            await client.aclose()
        self._pass_through_clients.clear()

    def __call__(self, name: str) -> tuple[Model, str]:
        model, choice = self._open_model(name)
        provider_model = choice.name.model
        warning = describe_appended_instructions(str(choice.name))
        is_appended = choice.provider.is_openai and appends_instructions(provider_model)
        return ServerKeyModel(
            model,
            choice.provider.name,
            requested_name=name,
            provider_model=provider_model,
            warn_of_instructions=partial(self._warn, f"{warning}; a client uses them") if is_appended else None,
        ), provider_model

    def _open_provider_model(self, provider: Provider) -> Model:
        with translate_server_key_errors(provider.name, key_sent=False):
            return super()._open_provider_model(provider)

    def _resolve_name(self, name: str) -> ModelChoice:
        choice = super()._resolve_name(name)
        if name in self._settings.aliases or name == self._settings.model or _is_public_model(choice):
            return choice
        raise InvalidSettings(f"{choice.provider.name} has no model with this name on this server")


def _is_public_model(choice: ModelChoice) -> bool:
    """Return whether any client may use the model by name: the name alone must not make this process read a file."""
    return choice.provider.api in CONFIGURABLE_APIS or str(choice.name) in (BUILT_IN_MODEL, ECHO_MODEL)


# -- for a server ---------------------------------------------------------------------------------

MODEL_LIST_TIMEOUT_S = 3.0
"""Seconds that a server has to list its models."""


def open_service(
    settings: Settings,
    *,
    store: Store,
    clock: Clock,
    new_id: NewId,
    strict: bool = False,
    models: ModelsForClients | None = None,
) -> "EmbeddedService":
    """Return the endpoints of all tenants of `store`, over the models of every provider; no connection is made yet.

    convo stores the state for every value of `owner`: a server that stores state is used as a stateless one.

    store:   with storage type "none", a store that ends with the process and receives nothing
    strict:  refuse the histories that OpenAI refuses
    models:  the models of `settings`, which the service closes; by default new ones
    """
    from convo.responses_api.deps import SPECIFICATION_EVENT_NAMES, EndpointOptions
    from convo.responses_api.endpoint import EmbeddedService
    from convo.responses_api.mcp_client import McpOptions

    options = EndpointOptions(
        is_server=True,
        stateless=settings.storage.type == "none",
        event_names=SPECIFICATION_EVENT_NAMES if settings.serve.reasoning_events == "specification" else {},
        strict=strict,
        estimate_tokens=True,
        files=settings.serve.files,
        mcp=McpOptions(
            {name: _make_mcp_target(name, server) for name, server in settings.mcp.items()},
            settings.serve.mcp_urls,
            settings.serve.blocked_networks,
        ),
        blocked_networks=settings.serve.blocked_networks,
    )

    started_at = int(clock.now())
    models = models or ModelsForClients(settings, clock, new_id)

    async def fetch_models() -> Sequence[Mapping[str, Json]]:
        model_lists = await fetch_model_lists(settings)
        models.add_model_lists(make_model_lists(model_lists))
        await asyncio.to_thread(save_model_lists, settings.paths, model_lists)
        return build_model_resources(settings, model_lists, started_at)

    storage = settings.storage
    ttl_s = storage.get_ttl_s if storage.default_ttl_s or storage.tenant_ttls_s else None
    return EmbeddedService(
        store,
        models,
        clock,
        new_id,
        fetch_models=fetch_models,
        options=options,
        ttl_s=ttl_s,
        seal_key=_read_seal_key(settings),
        find_window=_make_window_lookup(settings),
    )


async def fetch_model_lists(settings: Settings) -> FetchedModelLists:
    """Ask every provider for its models, concurrently; one that does not respond is skipped."""
    providers = [provider for provider in settings.providers.values() if provider.api in CONFIGURABLE_APIS]
    lists = await asyncio.gather(*(_fetch_models(settings, provider) for provider in providers))
    return {
        provider.name: (provider.base_url, models) for provider, models in zip(providers, lists, strict=True) if models
    }


def build_model_resources(
    settings: Settings, model_lists: FetchedModelLists, created_at: int
) -> Sequence[Mapping[str, Json]]:
    """Return the models that a client can request by name, as resources of the API with their capabilities.

    created_at:  seconds since 1970; the creation time of a model is unknown
    """
    listed = {
        ModelName(provider, name): date for provider, (_, dates) in model_lists.items() for name, date in dates.items()
    }
    models = dict(_iter_configured_models(settings))
    for model in listed:
        models.setdefault(str(model), model)  # an alias may have the name of a listed model
    return [
        {
            "id": requested_name,
            "object": "model",
            "created": created_at,
            "owned_by": model.provider,
            "shutdown_date": shutdown.date if (shutdown := find_shutdown(str(model), listed.get(model))) else None,
            "capabilities": _describe_capabilities(settings, model),
        }
        for requested_name, model in models.items()
    ]


def _describe_capabilities(settings: Settings, model: ModelName) -> Mapping[str, Json]:
    """Describe a model as this server offers it: `endpoints` are paths, `state` is the owner of its conversations."""
    from convo.models.pass_through import PassThroughApi, has_api

    provider = settings.providers[model.provider]
    return {
        **describe_capabilities(str(model), settings.prices, settings.windows),
        "endpoints": ["/v1/responses", *(api.route for api in PassThroughApi if has_api(provider, api))],
        "state": "none" if settings.storage.type == "none" else "convo",
        "steering": True,  # convo ends the response and creates the one that continues it, for every API
    }


def _iter_configured_models(settings: Settings) -> Iterable[tuple[str, ModelName]]:
    """Yield the names from the settings and the built-in model, each with its model; no request is sent."""
    for name in (*settings.aliases, settings.model):
        try:
            yield name, resolve_model(settings, name, "the settings").name
        except InvalidSettings:
            continue
    try:
        find_built_in_weights(settings.paths.weights)
    except ModelMissing:
        return
    yield BUILT_IN_MODEL, resolve_model(settings, BUILT_IN_MODEL, "the settings").name


async def _fetch_models(settings: Settings, provider: Provider) -> ListedModels:
    try:
        lister = open_catalogue(provider, settings.paths.weights)
        return await fetch_models(lister, provider.name, timeout_s=MODEL_LIST_TIMEOUT_S) if lister else {}
    except ConvoError:
        return {}


class LazyEndpoint:
    """An endpoint whose `scope` is known before it is made; access to any other attribute makes it."""

    def __init__(self, scope: Scope, make_endpoint: Callable[[], Endpoint]) -> None:
        self.scope, self._make_endpoint = scope, make_endpoint
        self._endpoint: Endpoint | None = None

    def __getattr__(self, name: str) -> Any:
        self._endpoint = self._endpoint or self._make_endpoint()
        return getattr(self._endpoint, name)

    async def aclose(self) -> None:
        """Close the endpoint, if it was made."""
        if self._endpoint is not None:
            await self._endpoint.aclose()


class ServerKeyModel(Model):
    """`model` as the clients of a server see it.

    provider:        the provider's name for error messages
    requested_name:  the model's name in the request: an alias, a bare name or provider/model
    provider_model:  the provider's own name for the model
    warn_of_instructions:  called for a request with instructions; None if they need no warning
    """

    def __init__(
        self,
        model: Model,
        provider: str,
        *,
        requested_name: str,
        provider_model: str,
        warn_of_instructions: Callable[[], None] | None = None,
    ) -> None:
        self._model, self._requested_name, self._provider_model = model, requested_name, provider_model
        self._warn_of_instructions = warn_of_instructions
        self.provider: str = provider
        self.hosted_tools = model.hosted_tools

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if request.instructions and self._warn_of_instructions:
            self._warn_of_instructions()
        with self._translate_errors():
            async with aclosing(self._model.respond(request)) as events:
                async for event in events:
                    yield event if self._provider_model in self._requested_name else self._hide_model_in_event(event)

    async def warm(self, model: str) -> None:
        with self._translate_errors():
            await self._model.warm(model)

    async def check_request(self, request: ModelRequest) -> None:
        with translate_server_key_errors(self.provider):
            await self._model.check_request(request)

    async def count(self, request: ModelRequest) -> int | None:
        with self._translate_errors():
            return await self._model.count(request)

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        with self._translate_errors():
            items = await self._model.compact(request)
        if items is None or self._provider_model in self._requested_name:
            return items
        return [hide_issuer_model(item) for item in items]

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return self._model.ignored_fields(request)

    async def aclose(self) -> None:
        await self._model.aclose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            with translate_server_key_errors(self.provider):
                yield
        except ConvoError as fault:
            if isinstance(fault, EndpointFault) and _is_model_missing(fault):
                raise model_not_found_error(self._requested_name, fault) from fault
            fault.args = (self._hide_model_name(fault.message), *fault.args[1:])
            raise

    def _hide_model_name(self, message: str) -> str:
        """Replace the model's name in `message` by the one that the client used."""
        if self._provider_model in self._requested_name:
            return message
        return message.replace(f"{self.provider}/{self._provider_model}", self._requested_name).replace(
            self._provider_model, self._requested_name
        )

    def _hide_model_in_event(self, event: StreamEvent) -> StreamEvent:
        """Hide the model's name in error messages and in the tags of encrypted items when the client used an alias."""
        if "item" in event:
            return {**event, "item": hide_issuer_model(event["item"])}
        response = event.get("response")
        if not response:
            return event
        hidden = {**response, "output": [hide_issuer_model(item) for item in response.get("output") or ()]}
        error: Json = response.get("error")
        if error and isinstance(error.get("message"), str):
            hidden["error"] = {**error, "message": self._hide_model_name(error["message"])}
        return {**event, "response": hidden}


def model_not_found_error(name: str, cause: InvalidSettings | EndpointFault) -> RequestRefused:
    """Return the error of the real API for an unknown model; `cause` is for the operator of the server."""
    return RequestRefused(
        f"The requested model '{name}' does not exist", code="model_not_found", param="model", hint=cause.message
    )


def _is_model_missing(fault: EndpointFault) -> bool:
    """Return whether a provider lacks the model: it reports that, or returns 404 without a code or parameter."""
    is_plain_404 = (
        fault.status == 404
        and isinstance(fault, RequestRefused)
        and fault.code == RequestRefused.code
        and fault.param is None
    )
    return fault.code == "model_not_found" or is_plain_404
