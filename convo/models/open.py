"""Chooses the adapter of a provider, and imports no other."""

from pathlib import Path
from typing import TYPE_CHECKING

from convo.clock import Clock
from convo.config.providers import Provider
from convo.config.secret import Secret
from convo.errors import BadSettings, KeyRefused
from convo.ids import NewId
from convo.models.contract import Model

if TYPE_CHECKING:
    from convo.models.local.model import LocalModel
    from convo.models.local.weights import Told, Weights


def open_model(provider: Provider, *, key: Secret | None, models: Path, clock: Clock, new_id: NewId) -> Model:
    """The models of `provider`; nothing is connected or started yet.

    key:     what `key_env` holds, or None
    models:  the folder of weights that convo fetched
    raises:  KeyRefused   the provider takes a key and there is none, or it cannot be one
             BadSettings  its models cannot be reached without their own state
    """
    match provider.api:
        case "local":
            return open_local(models, new_id)
        case "scripted":
            from convo.models.scripted import ScriptedModel

            return ScriptedModel(clock, new_id)
        case "chat":
            from convo.models.chat import ChatModel

            if provider.base_url is None:
                raise BadSettings(f"the provider {provider.name!r} has no base URL")
            return ChatModel(provider.name, provider.base_url, new_id, key=usable(provider, key))
    raise BadSettings(
        f"convo cannot keep the state of {provider.name!r}: its api {provider.api!r} has no adapter",
        hint='choose a provider whose api is chat, or leave out owner = "convo"',
    )


def open_local(models: Path, new_id: NewId) -> "LocalModel":
    """The models of this machine, to be warmed while the person types."""
    from convo.models.local.model import LocalModel

    return LocalModel(models, new_id)


def built_in() -> "Weights":
    """The weights of the built-in model, wherever they are."""
    from convo.models.local.weights import BUILT_IN

    return BUILT_IN


def built_in_file(models: Path) -> Path:
    """Where they are. raises: ModelMissing"""
    from convo.models.local import weights

    return weights.built_in(models)


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
