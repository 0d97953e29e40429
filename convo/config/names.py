"""Which model is meant.

    provider/model          everything behind the first slash is the provider's own name for it
    name                    an alias, else openai's model of that name
    local                   the built-in model; local/PATH is a file of weights

A name is read when a model is needed and not before: a file that names one wrongly does not keep
anybody from listing sessions.
"""

from collections.abc import Mapping
from typing import NamedTuple

from convo.config.checks import nearest
from convo.config.origin import Layer, Origin
from convo.config.providers import Provider
from convo.config.settings import Settings
from convo.errors import BadSettings

OPENAI_MODEL = "openai/gpt-5-mini"
BUILT_IN_MODEL = "local/smollm2-135m-instruct"
LOCAL = "local"


class ModelName(NamedTuple):
    """`str` is "provider/model"; `model` may hold slashes and colons of its own."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


class Choice(NamedTuple):
    """A model, who answers for it, and who chose it."""

    name: ModelName
    provider: Provider
    origin: Origin


def named(settings: Settings, written: str | None, where: str) -> Choice:
    """The model that `written` names, or the one that the settings name.

    where:   where `written` was said
    raises:  BadSettings  an unknown provider, aliases in a circle, no model behind the slash
    """
    origin = settings.origin("model") if written is None else Origin(Layer.FLAG, where)
    full = unalias(settings.model if written is None else written.strip(), settings.aliases, origin)
    name = split(full, settings.providers, origin)
    provider = settings.providers.get(name.provider)
    if provider is None:
        raise _unknown(name, settings.providers, origin)
    return Choice(name, provider, origin)


def unalias(name: str, aliases: Mapping[str, str], origin: Origin) -> str:
    """What `name` stands for in the end; an alias may stand for another one."""
    passed = [name]
    while passed[-1] in aliases:
        following = aliases[passed[-1]]
        passed.append(following)
        if following in passed[:-1]:
            raise BadSettings(f"{origin.place}: the aliases go in a circle: {' -> '.join(passed)}")
    return passed[-1]


def split(full: str, providers: Mapping[str, Provider], origin: Origin) -> ModelName:
    """`full` in its two parts; a bare name is openai's, and `local` alone the built-in model."""
    if full == LOCAL:
        full = BUILT_IN_MODEL
    provider, slash, model = full.partition("/")
    if not slash and provider in providers:
        raise BadSettings(f"{origin.place}: {full!r} is a provider, not a model", hint=f"name one: {full}/MODEL")
    if not slash:
        provider, model = "openai", full
    if not model.strip():
        raise BadSettings(f"{origin.place}: {full!r} names no model", hint="write provider/model")
    return ModelName(provider, model)


def _unknown(name: ModelName, providers: Mapping[str, Provider], origin: Origin) -> BadSettings:
    near = nearest(name.provider, providers)
    meant = f"; did you mean {near!r}?" if near else ""
    hint = f"choose one of them, or describe it under [providers.{name.provider}] in the file that convo models names"
    if name.model.endswith(".gguf"):
        hint = f"a file of weights is written local/{name}"
    return BadSettings(
        f"{origin.place}: no provider {name.provider!r} for {str(name)!r}{meant} (known: {', '.join(providers)})",
        hint=hint,
    )
