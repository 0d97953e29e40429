"""Chooses the endpoint of a provider, and imports no other.

A server that speaks Responses keeps chains and conversations itself; for every other one convo's
own endpoint does, over the store.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from convo.clock import Clock, SystemClock
from convo.config import DEFAULT_LIMITS, Limits, Provider, Secret, Settings, key_of, token_of
from convo.config.model_lists import ModelLists, keep_lists
from convo.config.names import BUILT_IN_MODEL, Choice, named
from convo.config.providers import FILE_APIS, EndpointKind
from convo.config.secret import secret_in
from convo.endpoints.contract import Endpoint
from convo.endpoints.late import Late
from convo.endpoints.on_behalf import OnBehalf, key_of_the_server, no_model
from convo.errors import BadSettings, ConvoError, ModelMissing
from convo.history import HERE
from convo.ids import NewId, random_id
from convo.items import Json
from convo.models.catalogue import Catalogue, ask
from convo.models.contract import Model
from convo.models.open import account_of, built_in_file, open_model
from convo.stores.contract import Store

if TYPE_CHECKING:
    from convo.endpoints.embedded import Service
    from convo.endpoints.remote import Remote


def open_endpoint(provider: Provider, *, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    """The endpoint that the models of `provider` have; nothing is connected yet.

    raises:  KeyRefused   a server is asked without a key, or with something that cannot be one
             BadSettings  it has no address
    """
    return ENDPOINTS[provider.endpoint](provider, settings, store, clock, new_id)


def _embedded(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    def make() -> Endpoint:
        from convo.endpoints.embedded import Embedded

        return Embedded(store, ModelsByName(settings, clock, new_id), clock, new_id, seal_key=_seal_key(settings))

    return cast(Endpoint, Late(HERE, make))


def _seal_key(settings: Settings) -> Secret | None:
    return secret_in(os.environ, settings.serve.seal_key_env)


def _remote(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    return open_remote(provider, settings.limits)


def open_catalogue(provider: Provider, models: Path, limits: Limits = DEFAULT_LIMITS) -> Catalogue | None:
    """The server that can be asked which models `provider` has; nothing is connected yet.

    models:   the folder of weights that convo fetched
    returns:  None where no server is asked, and for Azure, which lists models where it takes deployments
    raises:   KeyRefused, BadSettings, ModelMissing  none of its models could be used
    """
    if provider.api == "azure":
        account_of(provider, key=key_of(provider, os.environ), token=token_of(provider, os.environ))
        return None
    if provider.endpoint == "remote":
        return open_remote(provider, limits)
    if provider.api == "local":
        built_in_file(models)
    key = key_of(provider, os.environ)
    model = open_model(provider, key=key, models=models, clock=SystemClock(), new_id=random_id, limits=limits)
    return model if isinstance(model, Catalogue) else None


def open_remote(provider: Provider, limits: Limits = DEFAULT_LIMITS) -> "Remote":
    """The account at a server that keeps state. raises: KeyRefused, BadSettings"""
    from convo.endpoints.remote import Remote

    account = account_of(provider, key=key_of(provider, os.environ), token=token_of(provider, os.environ))
    return Remote(account, limits=limits)


ENDPOINTS: dict[EndpointKind, Callable[[Provider, Settings, Store, Clock, NewId], Endpoint]] = {
    "embedded": _embedded,
    "remote": _remote,
}


class ModelsByName:
    """The models of all providers in the settings, each opened when it is first asked for."""

    def __init__(self, settings: Settings, clock: Clock, new_id: NewId) -> None:
        self._settings, self._clock, self._new_id = settings, clock, new_id
        self._open: dict[str, Model] = {}

    def __call__(self, name: str) -> tuple[Model, str]:
        """The model for `name`, an alias or "provider/model".

        raises:  Refused     there is no such provider
                 KeyRefused  as `open_model`; BadSettings too
        """
        try:
            choice = self._chosen(name)
        except BadSettings as wrong:
            raise no_model(name, wrong) from wrong
        provider = choice.provider
        if provider.name not in self._open:
            self._open[provider.name] = self._opened(provider)
        return self._open[provider.name], choice.name.model

    def _opened(self, provider: Provider) -> Model:
        """raises: KeyRefused, BadSettings"""
        from convo.models.limited import LimitedModel

        model = open_model(
            provider,
            key=key_of(provider, os.environ),
            token=token_of(provider, os.environ),
            models=self._settings.places.models,
            clock=self._clock,
            new_id=self._new_id,
            limits=self._settings.limits,
        )
        return LimitedModel(model, self._settings.limits)

    def _chosen(self, name: str) -> Choice:
        """raises: BadSettings"""
        return named(self._settings, name, "the request")

    def learn(self, lists: ModelLists) -> None:
        """Use these model lists from now on, beside the others that are known."""
        self._settings = self._settings._replace(model_lists={**self._settings.model_lists, **lists})

    async def aclose(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()


ECHO = "scripted/echo"
"""The scripted model that reads no file."""


class ModelsForClients(ModelsByName):
    """As `ModelsByName`, for people who hold no provider's key and may not read files here by naming them."""

    def __call__(self, name: str) -> tuple[Model, str]:
        model, own = super().__call__(name)
        return OnBehalf(model, self._chosen(name).provider.name, asked=name, own=own), own

    def _opened(self, provider: Provider) -> Model:
        with key_of_the_server(provider.name, asked=False):
            return super()._opened(provider)

    def _chosen(self, name: str) -> Choice:
        choice = super()._chosen(name)
        if name in self._settings.aliases or name == self._settings.model or _open_to_all(choice):
            return choice
        raise BadSettings(f"{choice.provider.name} has no model of this name here", hint="GET /v1/models lists them")


def _open_to_all(choice: Choice) -> bool:
    """Whether a model is there for whoever knows its name: no file is read that only the name points at."""
    return choice.provider.api in FILE_APIS or str(choice.name) in (BUILT_IN_MODEL, ECHO)


# -- for a server ---------------------------------------------------------------------------------

PATIENCE_S = 3.0
"""Seconds that a server has to say which models it has."""


def open_service(settings: Settings, *, store: Store, clock: Clock, new_id: NewId, strict: bool = False) -> "Service":
    """The endpoints of all tenants of `store`, in front of every provider's models; nothing is connected yet.

    Whatever `owner` says, the state is convo's own: a server that keeps state is asked as if it kept none.

    store:   where the settings say "none": one that ends with the process, in which nothing is put
    strict:  it refuses what the real API refuses
    """
    from convo.endpoints.embedded import SPECIFIED, Manner, Service

    manner = Manner(
        for_clients=True,
        stateless=settings.storage.type == "none",
        renamed=SPECIFIED if settings.serve.reasoning_events == "specification" else {},
        strict=strict,
        estimates=True,
    )

    began = int(clock.now())
    models = ModelsForClients(settings, clock, new_id)

    async def listed() -> Sequence[Mapping[str, Json]]:
        found = await asked_lists(settings)
        models.learn({name: {"base_url": url, "models": names} for name, (url, names) in found.items()})
        await asyncio.to_thread(keep_lists, settings.places, found)
        return models_of(settings, found, began)

    kept = settings.storage
    ttl_s = kept.ttl_s if kept.ttl or kept.ttls else None
    return Service(
        store, models, clock, new_id, listed=listed, manner=manner, ttl_s=ttl_s, seal_key=_seal_key(settings)
    )


Lists = Mapping[str, tuple[str | None, Sequence[str]]]
"""The names that providers gave, each with the base URL that was asked."""


async def asked_lists(settings: Settings) -> Lists:
    """Ask every provider for its models, all at once; one that does not answer is passed over."""
    asked = [provider for provider in settings.providers.values() if provider.api in FILE_APIS]
    found = await asyncio.gather(*(_names(settings, provider) for provider in asked))
    return {one.name: (one.base_url, names) for one, names in zip(asked, found, strict=True) if names}


def models_of(settings: Settings, lists: Lists, created: int) -> Sequence[Mapping[str, Json]]:
    """What a client can ask for by name, as resources of the API.

    created:  seconds since 1970; nobody says when a model was made
    """
    theirs = ((f"{provider}/{name}", provider) for provider, (_, names) in lists.items() for name in names)
    owners = dict([*_own_names(settings), *theirs])
    return [{"id": name, "object": "model", "created": created, "owned_by": owner} for name, owner in owners.items()]


def _own_names(settings: Settings) -> Iterable[tuple[str, str]]:
    """The names that need nobody else, each with its provider."""
    for name in (*settings.aliases, settings.model):
        try:
            yield name, named(settings, name, "the settings").provider.name
        except BadSettings:
            continue
    try:
        built_in_file(settings.places.models)
    except ModelMissing:
        return
    yield BUILT_IN_MODEL, "local"


async def _names(settings: Settings, provider: Provider) -> Sequence[str]:
    try:
        catalogue = open_catalogue(provider, settings.places.models)
        return await ask(catalogue, provider.name, within_s=PATIENCE_S) if catalogue else ()
    except ConvoError:
        return ()
