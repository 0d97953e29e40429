"""What `convo doctor` looks at where models are concerned: keys, weights, servers.

Nobody is asked but an Ollama that is in use, which runs on this machine mostly, and on request the
providers' servers: whether anything answers there. No key is sent to them.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from convo.cli.judging import Key, Local, Ollama, Reached
from convo.cli.looking import Case
from convo.config import Choice, Found, Places, Provider, Settings, choose, find_key, is_keyed, key_of, token_of
from convo.config.providers import OWNS_STATE
from convo.errors import BadSettings, ConvoError, EndpointFault, ModelMissing

ENGINE = "xllamacpp"
AN_ALIAS = "an alias"

PATIENCE_S = 5.0
"""Seconds that a server of models has to answer."""


def keys(case: Case) -> list[Key]:
    return [key for provider in case.settings.providers.values() for key in _keys_of(provider, case.environ)]


def _keys_of(provider: Provider, environ: Mapping[str, str]) -> Iterator[Key]:
    found = find_key(provider, environ)
    if found or provider.key_env:
        place = found.place if found else str(provider.key_env)
        yield Key(provider.name, place, found is not None, _unusable(provider, found), _exposed(provider, found))
    if provider.token_env:
        yield Key(provider.name, provider.token_env, token_of(provider, environ) is not None)


def _unusable(provider: Provider, found: Found | None) -> str:
    from convo.models.open import usable

    try:
        usable(provider, found.key if found else None)
    except ConvoError as wrong:
        return wrong.message if found else ""
    return ""


def _exposed(provider: Provider, found: Found | None) -> bool:
    """Whether somebody else on this machine may read the file of the key that is used."""
    path = provider.key_file
    in_use = found is not None and path is not None and found.place == str(path)
    return bool(in_use and path and os.name == "posix" and path.stat().st_mode & 0o077)


def model(case: Case) -> Choice:
    """The model that answers. raises: ConvoError  why it cannot be used"""
    from convo.clock import SystemClock
    from convo.ids import random_id
    from convo.models.open import account_of, open_model, weights_file

    choice = choose(case.settings)
    provider, models = choice.provider, case.settings.places.models
    key, token = key_of(provider, case.environ), token_of(provider, case.environ)
    if provider.api == "local":
        weights_file(choice.name.model, models)
        if find_spec(ENGINE) is None:
            raise ModelMissing(f"the engine of local models, {ENGINE}, is not installed", hint=f"pip install {ENGINE}")
    if provider.api in OWNS_STATE:
        account_of(provider, key=key, token=token)
    else:
        open_model(provider, key=key, models=models, clock=SystemClock(), new_id=random_id)
    return choice


def local(case: Case) -> Local:
    """raises: BadSettings  there is no home folder"""
    from convo.models.open import built_in_file

    try:
        weights = built_in_file(Places.of(case.environ).models)
    except ModelMissing:
        weights = None
    return Local(find_spec(ENGINE) is not None, weights)


def ollama(case: Case) -> Ollama | None:
    """What Ollama says, where a model of it is in use."""
    from convo.endpoints.open import open_catalogue
    from convo.models.catalogue import ask

    settings = case.settings
    wanted = [choice for choice in _in_use(settings) if choice.provider.name == "ollama"]
    if not wanted:
        return None
    provider, models = wanted[0].provider, settings.places.models
    seen = Ollama(provider.base_url or "", sorted({choice.name.model for choice in wanted}))
    seen = seen._replace(chosen=any(choice.origin.name != AN_ALIAS for choice in wanted))
    catalogue = open_catalogue(provider, models, settings.limits)
    assert catalogue is not None
    try:
        return seen._replace(models=asyncio.run(ask(catalogue, "ollama", within_s=PATIENCE_S)))
    except EndpointFault as wrong:
        return seen._replace(failed=wrong.message)


def _in_use(settings: Settings) -> Iterator[Choice]:
    """The default model and what the aliases stand for, as far as they can be read."""
    for name in (None, *settings.aliases):
        try:
            yield choose(settings, name, where=AN_ALIAS)
        except BadSettings:
            continue


def network(case: Case) -> list[Reached]:
    """Each server of models that could be asked, all at once."""
    settings = case.settings
    used = {choice.provider.name for choice in _in_use(settings)}
    wanted = [
        provider
        for provider in settings.providers.values()
        if provider.base_url
        and (provider.name in used or is_keyed(provider, case.environ) or token_of(provider, case.environ))
    ]
    return asyncio.run(_reached(wanted))


async def _reached(wanted: list[Provider]) -> list[Reached]:
    return await asyncio.gather(*(_reach(provider) for provider in wanted))


async def _reach(provider: Provider) -> Reached:
    """Whether anything answers at the base URL; whatever it answers is an answer."""
    import httpx2

    from convo.models.foreign import Asked, edge

    url = provider.base_url or ""
    try:
        with edge(Asked(provider.name, url)):
            async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
                await http.head(url)
    except EndpointFault as wrong:
        return Reached(provider.name, wrong.message)
    return Reached(provider.name)
