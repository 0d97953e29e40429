"""Chooses the endpoint of a provider, and imports no other.

A server that speaks Responses keeps chains and conversations itself; for every other one convo's
own endpoint does, over the store.
"""

import os
from collections.abc import Callable

from convo.clock import Clock
from convo.config import Provider, Settings, key_of, token_of
from convo.config.names import named
from convo.config.providers import EndpointKind
from convo.endpoints.contract import Endpoint
from convo.errors import BadSettings, KeyRefused
from convo.ids import NewId
from convo.models.contract import Model
from convo.models.open import open_model, usable
from convo.stores.contract import Store


def open_endpoint(provider: Provider, *, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    """The endpoint that the models of `provider` have; nothing is connected yet.

    raises:  KeyRefused   a server is asked without a key, or with something that cannot be one
             BadSettings  it has no address
    """
    return ENDPOINTS[provider.endpoint](provider, settings, store, clock, new_id)


def _embedded(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    from convo.endpoints.embedded import Embedded

    return Embedded(store, ModelsByName(settings, clock, new_id), clock, new_id)


def _remote(provider: Provider, settings: Settings, store: Store, clock: Clock, new_id: NewId) -> Endpoint:
    from convo.endpoints.remote import Account, Remote

    if provider.base_url is None:
        raise BadSettings(f"the provider {provider.name!r} has no base URL")
    token = token_of(provider, os.environ)
    key = None if token else usable(provider, key_of(provider, os.environ))
    if key is None and token is None:
        raise KeyRefused(f"{provider.name} needs a key", hint=f"give [providers.{provider.name}] a key_env")
    return Remote(
        Account(
            provider=provider.name,
            base_url=provider.base_url,
            key=key,
            token=token,
            organisation=provider.organisation,
            project=provider.project,
            ambient=provider.name == "openai",
            azure=provider.api == "azure",
            api_version=provider.api_version,
        )
    )


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
        """The model for `name`, an alias or "provider/model". raises: BadSettings, KeyRefused"""
        choice = named(self._settings, name, "the request's model")
        provider = choice.provider
        if provider.name not in self._open:
            self._open[provider.name] = open_model(
                provider,
                key=key_of(provider, os.environ),
                models=self._settings.places.models,
                clock=self._clock,
                new_id=self._new_id,
            )
        return self._open[provider.name], choice.name.model

    async def aclose(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()
