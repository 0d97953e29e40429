"""Chooses the endpoint of a provider, and imports no other.

A server that speaks Responses keeps chains and conversations itself; for every other one convo's
own endpoint does, over the store.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from convo.clock import Clock, SystemClock
from convo.config import Provider, Settings, key_of, token_of
from convo.config.names import named
from convo.config.providers import EndpointKind
from convo.endpoints.contract import Endpoint
from convo.errors import BadSettings, Refused
from convo.ids import NewId, random_id
from convo.models.catalogue import Catalogue
from convo.models.contract import Model
from convo.models.open import account_of, built_in_file, open_model
from convo.stores.contract import Store

if TYPE_CHECKING:
    from convo.endpoints.remote import Remote


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
    return open_remote(provider)


def open_catalogue(provider: Provider, models: Path) -> Catalogue | None:
    """The server that can be asked which models `provider` has; nothing is connected yet.

    models:   the folder of weights that convo fetched
    returns:  None where no server is asked, and for Azure, which lists models where it takes deployments
    raises:   KeyRefused, BadSettings, ModelMissing  none of its models could be used
    """
    if provider.api == "azure":
        account_of(provider, key=key_of(provider, os.environ), token=token_of(provider, os.environ))
        return None
    if provider.endpoint == "remote":
        return open_remote(provider)
    if provider.api == "local":
        built_in_file(models)
    key = key_of(provider, os.environ)
    model = open_model(provider, key=key, models=models, clock=SystemClock(), new_id=random_id)
    return model if isinstance(model, Catalogue) else None


def open_remote(provider: Provider) -> "Remote":
    """The account at a server that keeps state. raises: KeyRefused, BadSettings"""
    from convo.endpoints.remote import Remote

    return Remote(account_of(provider, key=key_of(provider, os.environ), token=token_of(provider, os.environ)))


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
            choice = named(self._settings, name, "the request")
        except BadSettings as wrong:
            raise no_model(name, wrong) from wrong
        provider = choice.provider
        if provider.name not in self._open:
            self._open[provider.name] = open_model(
                provider,
                key=key_of(provider, os.environ),
                token=token_of(provider, os.environ),
                models=self._settings.places.models,
                clock=self._clock,
                new_id=self._new_id,
            )
        return self._open[provider.name], choice.name.model

    async def aclose(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()


def no_model(name: str, why: BadSettings) -> Refused:
    """What the real API says of a model that is not there."""
    return Refused(
        f"The requested model '{name}' does not exist", code="model_not_found", param="model", hint=why.message
    )
