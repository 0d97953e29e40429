"""Chooses the adapter of a provider, and imports no other.

A package of a provider takes up to half a second to import, and most commands ask one model or
none. So each is imported in its own branch, and whatever it lacks is told before anything is asked
of it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from convo.clock import Clock
from convo.config.providers import Provider, takes_no_key
from convo.config.secret import Secret
from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import BadSettings, KeyRefused
from convo.ids import NewId
from convo.models.contract import Model

if TYPE_CHECKING:
    from convo.models.account import Account
    from convo.models.local.model import LocalModel
    from convo.models.local.weights import Told, Weights


def open_model(
    provider: Provider,
    *,
    key: Secret | None,
    models: Path,
    clock: Clock,
    new_id: NewId,
    token: Secret | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Model:
    """The models of `provider`, each as if its server kept nothing; nothing is connected or started yet.

    key:     what `key_env` holds, or None
    token:   what `token_env` holds, or None
    models:  the folder of weights that convo fetched
    limits:  of what a server answers
    raises:  KeyRefused    the provider takes a key and there is none, or it cannot be one
             BadSettings   it has no address
             ModelMissing  what it is asked through is not installed
    """
    extra = provider.extra_fields
    match provider.api:
        case "local":
            return open_local(models, new_id, limits)
        case "scripted":
            from convo.models.scripted import ScriptedModel

            return ScriptedModel(clock, new_id)
        case "chat":
            from convo.models.chat import ChatModel

            key = usable(provider, key)
            return ChatModel(provider.name, address(provider), new_id, key=key, limits=limits, extra_fields=extra)
        case "anthropic":
            from convo.models.anthropic import AnthropicModel, installed

            key = usable(provider, key)
            installed()
            return AnthropicModel(provider.name, address(provider), new_id, key=key, limits=limits, extra_fields=extra)
        case "responses" | "azure":
            from convo.models.responses import ResponsesModel

            account = account_of(provider, key=key, token=token)
            return ResponsesModel(account, new_id, limits=limits, extra_fields=extra)


def account_of(provider: Provider, *, key: Secret | None, token: Secret | None = None) -> "Account":
    """What a server that speaks Responses is asked with.

    raises:  KeyRefused   it has neither a key nor a token
             BadSettings  it has no address
    """
    from convo.models.account import Account

    base_url = address(provider)
    key = None if token else usable(provider, key)
    keyless = key is None and token is None and takes_no_key(provider)
    if key is None and token is None and not keyless:
        raise KeyRefused(f"{provider.name} needs a key", hint=f"give [providers.{provider.name}] a key_env")
    return Account(
        provider=provider.name,
        base_url=base_url,
        key=key,
        token=token,
        organisation=provider.organisation,
        project=provider.project,
        ambient=provider.name == "openai",
        azure=provider.api == "azure",
        api_version=provider.api_version,
        deployment=provider.deployment,
        keyless=keyless,
    )


def address(provider: Provider) -> str:
    """raises: BadSettings  nobody said where it is"""
    if provider.base_url is None:
        raise BadSettings(f"the provider {provider.name!r} has no base URL")
    return provider.base_url


def open_local(models: Path, new_id: NewId, limits: Limits = DEFAULT_LIMITS) -> "LocalModel":
    """The models of this machine, to be warmed while the person types."""
    from convo.models.local.model import LocalModel

    return LocalModel(models, new_id, limits=limits)


def built_in() -> "Weights":
    """The weights of the built-in model, wherever they are."""
    from convo.models.local.weights import BUILT_IN

    return BUILT_IN


def built_in_file(models: Path) -> Path:
    """Where they are. raises: ModelMissing"""
    from convo.models.local import weights

    return weights.built_in(models)


def weights_file(model: str, models: Path) -> Path:
    """The file behind `local/` and `model`. raises: ModelMissing, Unreadable"""
    from convo.models.local import weights

    return weights.locate(model, models)[1]


def pull_built_in(models: Path, told: "Told") -> Path:
    """Have them here. raises: ModelMissing, StoreFault"""
    from convo.models.local import weights

    return weights.pull(models, told=told)


def usable(provider: Provider, key: Secret | None) -> Secret | None:
    """`key` if the provider can be asked with it.

    raises:  KeyRefused
    """
    if provider.key_env is None:
        return key
    if key is None:
        raise KeyRefused(f"{provider.name} needs a key", hint=f"set {provider.key_env}, or choose a model with -m")
    text = key.reveal()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise KeyRefused(f"{provider.key_env} holds characters that no key has", hint=f"set {provider.key_env} again")
    return key
