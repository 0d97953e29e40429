"""Which model is meant.

    provider/model    everything behind the first slash is the provider's own name for it
    name              an alias; else a name in a list that a configured provider gave; else by its prefix
    local             the built-in model; local/PATH is a file of weights

Chat and gateway follow this one rule, `resolve_name`. A name is read when a model is needed and not
before: a file with a wrong name does not prevent listing sessions.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from convo.config.model_lists import ModelLists, list_of
from convo.config.origin import Layer, Origin
from convo.config.providers import Provider
from convo.config.settings import Settings
from convo.errors import BadSettings, UnknownModel

BUILT_IN_MODEL = "local/smollm2-135m-instruct"
LOCAL = "local"

DEFAULT_MODELS = {
    "openai": "openai/gpt-5-mini",
    "anthropic": "anthropic/claude-sonnet-5",
    "deepseek": "deepseek/deepseek-v4-flash",
}
"""The default model: that of the first of these providers that has a key."""

PREFIXES = {
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    **dict.fromkeys(("gpt-5", "gpt-4", "o1", "o3", "o4", "chatgpt-", "ft:"), "openai"),
}
"""How the names of a provider's models begin."""


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
    raises:  BadSettings   an unknown provider, aliases in a circle, no model behind the slash
             UnknownModel  no provider is known to have it
    """
    origin = settings.origin("model") if written is None else Origin(Layer.FLAG, where)
    full = unalias(settings.model if written is None else written.strip(), settings.aliases, origin)
    name = resolve_name(full, settings.providers, settings.configured, settings.model_lists, origin)
    provider = settings.providers.get(name.provider)
    if provider is None:
        raise _unknown(name, settings.providers, origin)
    return Choice(name, provider, origin)


def resolve_name(
    full: str, providers: Mapping[str, Provider], configured: Collection[str], lists: ModelLists, origin: Origin
) -> ModelName:
    """The provider and model that `full` means, which is no alias.

    configured:  the providers that have a key, or take none
    lists:       the model lists that were kept
    raises:      BadSettings   it names a provider alone, or no model behind the slash
                 UnknownModel  no configured provider is known to have it, or it is not text
    """
    if not _is_text(full):
        raise UnknownModel(f"{origin.place}: no model {full!r}: it is not text")
    if full == LOCAL:
        full = BUILT_IN_MODEL
    if "/" in full:
        return split(full, origin)
    if full in providers:
        raise BadSettings(f"{origin.place}: {full!r} is a provider, not a model", hint=f"name one: {full}/MODEL")
    if not full:
        raise BadSettings(f"{origin.place}: {full!r} names no model", hint="write provider/model")
    first = [name for name in DEFAULT_MODELS if name in providers]
    for name in (*first, *(name for name in providers if name not in first)):
        if name in configured and full in list_of(providers[name], lists):
            return ModelName(name, full)
    meant = next((provider for prefix, provider in PREFIXES.items() if full.startswith(prefix)), "")
    if meant in configured:
        return ModelName(meant, full)
    if meant in providers:
        key = providers[meant].key_env
        hint = f"set {key}, or choose a model with -m" if key else None
        raise UnknownModel(f"{origin.place}: no model {full!r}: {meant} needs a key", hint=hint)
    raise UnknownModel(f"{origin.place}: no model {full!r}: no provider is known for it")


def _is_text(name: str) -> bool:
    """Whether `name` has no half of a character, which no request can carry."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def unalias(name: str, aliases: Mapping[str, str], origin: Origin) -> str:
    """What `name` stands for in the end; an alias may stand for another one."""
    passed = [name]
    while passed[-1] in aliases:
        following = aliases[passed[-1]]
        passed.append(following)
        if following in passed[:-1]:
            raise BadSettings(f"{origin.place}: the aliases go in a circle: {' -> '.join(passed)}")
    return passed[-1]


def split(full: str, origin: Origin) -> ModelName:
    """`full` in its two parts, at its first slash. raises: BadSettings  nothing stands behind it"""
    provider, _, model = full.partition("/")
    if not model.strip():
        raise BadSettings(f"{origin.place}: {full!r} names no model", hint="write provider/model")
    return ModelName(provider, model)


def _unknown(name: ModelName, providers: Mapping[str, Provider], origin: Origin) -> BadSettings:
    from difflib import get_close_matches  # for a slip of the finger

    near = next(iter(get_close_matches(name.provider, providers, n=1, cutoff=0.7)), None)
    meant = f"; did you mean {near!r}?" if near else ""
    hint = f"choose one of them, or describe it under [providers.{name.provider}] in the file that convo models names"
    if name.model.endswith(".gguf"):
        hint = f"a file of weights is written local/{name}"
    return BadSettings(
        f"{origin.place}: no provider {name.provider!r} for {str(name)!r}{meant} (known: {', '.join(providers)})",
        hint=hint,
    )
