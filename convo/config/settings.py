"""The merged settings, and which provider and model a name means.

`Settings` has a typed field for each setting; `entries` lists the same values with their keys and
sources. `resolve_model` turns an alias, a bare name or provider/model into a `ModelChoice`.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from convo.config.model_lists import ModelLists, get_listed_models
from convo.config.paths import AppPaths
from convo.config.sections import ContextLimits, FileSettings, McpServer, Price, Provider, ServeLimits
from convo.config.storage import Storage
from convo.config.trust import ProjectNotice
from convo.config.values import (
    BUILT_IN_SOURCE,
    Layer,
    Setting,
    SettingKey,
    SettingSource,
    find_closest_word,
    format_setting_key,
)
from convo.errors import InvalidSettings, UnknownModel

LOCAL_TENANT = "local"
"""The tenant of the user of this machine, where no keys are used."""


class ServeSettings(NamedTuple):
    """The address, the keys and the limits of `convo serve`.

    port:              0 for any free port
    keys_file:         absolute path; None: loopback only, and the tenant is "local"
    seal_key_env:      the variable of the key that encrypts compaction items
    max_body_bytes:    bytes of one request's body
    max_header_bytes:  bytes of all headers of one request
    max_depth:         nested objects and arrays in a body
    max_items:         items in one request
    max_requests:      concurrent requests
    read_s:            seconds for a request to arrive, head and body each
    write_s:           seconds during which a client may read nothing of its response
    keepalive_s:       seconds without an event before a stream sends a keep-alive
    grace_s:           seconds that open requests get at shutdown
    reasoning_events:  the names of reasoning events: "openai" or "specification"
    record:            whether requests with store=false, chat completions and Anthropic Messages are recorded
    record_keys:       the keys whose requests are recorded, by name; empty: those of all keys
    record_ttl_s:      seconds after the last request of a recorded session before it is deleted
    limits:            limits on concurrent requests and requests per minute
    mcp_urls:          whether clients may name MCP servers by URL, at public addresses
    files:             limits on uploaded files, and whether URLs of files are fetched
    blocked_networks:  networks to which no URL of a client may lead, besides those that are not public
    cors_origins:      origins of web pages that may call the API; "*" for any, which requires keys
    """

    host: str
    port: int
    keys_file: Path | None
    seal_key_env: str
    max_body_bytes: int = 32 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    max_depth: int = 100
    max_items: int = 10_000
    max_requests: int = 1_000
    read_s: float = 30.0
    write_s: float = 60.0
    keepalive_s: float = 15.0
    grace_s: float = 30.0
    reasoning_events: str = "openai"
    mcp_urls: bool = False
    record: bool = False
    record_keys: tuple[str, ...] = ()
    record_ttl_s: int = 7 * 86_400
    limits: ServeLimits = ServeLimits()
    files: FileSettings = FileSettings()
    blocked_networks: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()


class ResponseLimits(NamedTuple):
    """Limits on the responses of servers. The defaults allow a response that takes hours.

    answer_bytes:   bytes of one stream as received, comments and keep-alives included
    answer_events:  events of one stream
    answer_s:       seconds from the request to the end of the stream
    idle_s:         seconds without an event that adds to the response; comments and keep-alives do not count. A model
                    may reason for an hour without output, so the default is twice that
    event_bytes:    bytes of one event; the last event repeats the whole response
    output_bytes:   bytes of the items of one response: text, reasoning, arguments, images in base64
    body_bytes:     bytes of a response that is not a stream: a stored response, a page of items, a list of models
    """

    answer_bytes: int = 256 * 1024 * 1024
    answer_events: int = 1_000_000
    answer_s: float = 6 * 3600.0
    idle_s: float = 2 * 3600.0
    event_bytes: int = 8 * 1024 * 1024
    output_bytes: int = 4 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024


DEFAULT_RESPONSE_LIMITS = ResponseLimits()

DEFAULT_COMPACT_AT = 0.8
"""Fraction of the context window; the rest has room for a long response."""


DEFAULT_EDITING, EDITING_VI, EDITING_PLAIN = "emacs", "vi", "plain"
DEFAULT_ANSWERS = "markdown"


class Settings(NamedTuple):
    """The merged settings.

    model:                 as written: provider/model, an alias or a bare name; see `resolve_model`
    providers:             by name, including the built-in ones
    aliases:               model names by alias
    tenant:                the tenant of the commands; `convo serve` takes it from the key instead
    prices:                by "provider/model", from the settings only
    entries:               every value with its source, sorted by key
    compact_at:            the history's share of the context window at which a chat is compacted; above 1: tokens; 0:
                           never
    redact:                additional regular expressions for `--redact`
    windows:               context limits by "provider/model", from the settings, or reported by a server; see
                           `convo.config.model_lists`
    editing:               key bindings of the prompt: "emacs" or "vi"; "plain" draws nothing, for screen readers
    configured_providers:  the providers with a key, or that need none
    model_lists:           the cached lists of the providers' models; see `convo.config.model_lists`
    cache_diagnostics:     whether chats ask why the provider's cache missed, and show the reason
    answers:               layout of responses in a terminal: "markdown", or "plain" for the unchanged text
    limits:                limits on the responses of servers
    project_notice:        the part of the project's file that is ignored; None if all of it is used
    mcp:                   MCP servers that requests to `convo serve` may use, by name
    """

    model: str
    providers: Mapping[str, Provider]
    aliases: Mapping[str, str]
    storage: Storage
    tenant: str
    serve: ServeSettings
    prices: Mapping[str, Price]
    paths: AppPaths
    entries: tuple[Setting, ...]
    compact_at: float = DEFAULT_COMPACT_AT
    redact: tuple[str, ...] = ()
    windows: Mapping[str, ContextLimits] = MappingProxyType({})
    editing: str = DEFAULT_EDITING
    answers: str = DEFAULT_ANSWERS
    configured_providers: frozenset[str] = frozenset()
    model_lists: ModelLists = MappingProxyType({})
    limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS
    project_notice: ProjectNotice | None = None
    mcp: Mapping[str, McpServer] = MappingProxyType({})
    cache_diagnostics: bool = True

    def get_source(self, *key: str) -> SettingSource:
        """Return the source of the value at `key`, as in get_source("providers", "openai", "base_url")."""
        return next((setting.source for setting in self.entries if setting.key == key), BUILT_IN_SOURCE)


def get_default_settings(providers: Mapping[str, Mapping[str, str]]) -> dict[SettingKey, object]:
    """Return the values of the lowest layer."""
    serve = ServeSettings("127.0.0.1", 8788, None, "CONVO_SEAL_KEY")
    rates, limits = serve.limits, DEFAULT_RESPONSE_LIMITS
    defaults: dict[SettingKey, object] = {
        ("tenant",): LOCAL_TENANT,
        ("compact_at",): DEFAULT_COMPACT_AT,
        ("editing",): DEFAULT_EDITING,
        ("answers",): DEFAULT_ANSWERS,
        ("cache_diagnostics",): True,
        ("serve", "host"): serve.host,
        ("serve", "port"): serve.port,
        ("serve", "seal_key_env"): serve.seal_key_env,
        ("serve", "max_body_bytes"): serve.max_body_bytes,
        ("serve", "max_header_bytes"): serve.max_header_bytes,
        ("serve", "max_depth"): serve.max_depth,
        ("serve", "max_items"): serve.max_items,
        ("serve", "max_requests"): serve.max_requests,
        ("serve", "read_s"): serve.read_s,
        ("serve", "write_s"): serve.write_s,
        ("serve", "keepalive_s"): serve.keepalive_s,
        ("serve", "grace_s"): serve.grace_s,
        ("serve", "reasoning_events"): serve.reasoning_events,
        ("serve", "mcp_urls"): serve.mcp_urls,
        ("serve", "record"): serve.record,
        ("serve", "record_keys"): serve.record_keys,
        ("serve", "record_ttl_s"): serve.record_ttl_s,
        ("serve", "limits", "concurrent"): rates.concurrent,
        ("serve", "limits", "per_minute"): rates.per_minute,
        ("serve", "limits", "process_per_minute"): rates.process_per_minute,
        ("serve", "limits", "process_body_bytes"): rates.process_body_bytes,
        **{("serve", "files", name): value for name, value in serve.files._asdict().items()},
        ("limits", "answer_bytes"): limits.answer_bytes,
        ("limits", "answer_events"): limits.answer_events,
        ("limits", "answer_s"): limits.answer_s,
        ("limits", "idle_s"): limits.idle_s,
        ("limits", "event_bytes"): limits.event_bytes,
        ("limits", "output_bytes"): limits.output_bytes,
        ("limits", "body_bytes"): limits.body_bytes,
    }
    return defaults | {
        ("providers", name, field): value for name, fields in providers.items() for field, value in fields.items()
    }


BUILT_IN_MODEL = "local/smollm2-135m-instruct"
_BUILT_IN_SHORT_NAME = "local"

DEFAULT_MODELS = {
    "openai": "openai/gpt-6.1-terra",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "deepseek": "deepseek/deepseek-flash",
}
"""Default models: the first provider with a key decides."""

CHEAP_MODEL = "openai/gpt-6-luna"
"""A tenth of the price of OpenAI's default model; `convo models` names it."""

_PROVIDER_BY_PREFIX = {
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    **dict.fromkeys(("gpt-6", "gpt-5", "gpt-4", "o1", "o3", "o4", "chatgpt-", "ft:"), "openai"),
}
"""Providers by the prefix of their models' names."""


class ModelName(NamedTuple):
    """A provider and its model; `str` is "provider/model". The model's name may contain slashes and colons."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


class ModelChoice(NamedTuple):
    """A model, its provider, and the source of the choice."""

    name: ModelName
    provider: Provider
    source: SettingSource


def resolve_model(settings: Settings, requested_name: str | None, source_name: str) -> ModelChoice:
    """Resolve the requested name, or the model of the settings.

    source_name:  the origin of `requested_name` in errors

    Raises InvalidSettings for an unknown provider, circular aliases or an empty model name, UnknownModel if no provider
    is known for the name.
    """
    origin = settings.get_source("model") if requested_name is None else SettingSource(Layer.FLAG, source_name)
    full_name = resolve_alias(
        settings.model if requested_name is None else requested_name.strip(), settings.aliases, origin
    )
    name = resolve_model_name(
        full_name, settings.providers, settings.configured_providers, settings.model_lists, origin
    )
    provider = settings.providers.get(name.provider)
    if provider is None:
        raise _unknown_provider_error(name, settings.providers, origin)
    return ModelChoice(name, provider, origin)


def resolve_model_name(
    full_name: str,
    providers: Mapping[str, Provider],
    configured: Collection[str],
    model_lists: ModelLists,
    source: SettingSource,
) -> ModelName:
    """Find the provider and model of a name that is not an alias.

    configured:   the providers with a key, or that need none
    model_lists:  the cached model lists

    Raises InvalidSettings for a provider without a model or an empty name, UnknownModel if no configured provider is
    known for it, or the name is not valid text.
    """
    if not _is_text(full_name):
        raise UnknownModel(f"{source.location}: no model {full_name!r}: the name is not valid text")
    full_name = expand_built_in_name(full_name)
    if "/" in full_name:
        return split_model_name(full_name, source)
    if full_name in providers:
        raise InvalidSettings(
            f"{source.location}: {full_name!r} is a provider, not a model",
            hint=f"use {DEFAULT_MODELS.get(full_name, f'{full_name}/MODEL')}",
        )
    if not full_name:
        raise InvalidSettings(f"{source.location}: {full_name!r} has no model name", hint="use provider/model")
    first = [name for name in DEFAULT_MODELS if name in providers]
    for name in (*first, *(name for name in providers if name not in first)):
        if name in configured and full_name in get_listed_models(providers[name], model_lists):
            return ModelName(name, full_name)
    guessed = next((provider for prefix, provider in _PROVIDER_BY_PREFIX.items() if full_name.startswith(prefix)), "")
    if guessed in configured:
        return ModelName(guessed, full_name)
    if guessed in providers:
        key = providers[guessed].key_env
        hint = f"convo config key set {guessed}, set {key}, or choose a model with -m" if key else None
        raise UnknownModel(f"{source.location}: no model {full_name!r}: {guessed} needs a key", hint=hint)
    raise UnknownModel(f"{source.location}: no model {full_name!r}: no provider is known for it")


def expand_built_in_name(name: str) -> str:
    """Return the full name of the built-in model for `local`, and any other name unchanged."""
    return BUILT_IN_MODEL if name == _BUILT_IN_SHORT_NAME else name


def _is_text(name: str) -> bool:
    """Whether `name` has no lone surrogates, which no request can encode."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_model_name(settings: Settings, name: str) -> str:
    """Return "provider/model" for the model name of a stored request.

    An alias of the settings is returned unchanged, because its model may have changed since the request, and so is an
    unknown name.
    """
    if name in settings.aliases or expand_built_in_name(name) in settings.aliases:
        return name
    try:
        return str(
            resolve_model_name(
                name, settings.providers, settings.configured_providers, settings.model_lists, BUILT_IN_SOURCE
            )
        )
    except (InvalidSettings, UnknownModel):
        return name


MAX_CACHED_NAMES, MAX_CACHED_NAME_CHARS = 1000, 200


def make_model_name_expander(settings: Settings) -> Callable[[str], str]:
    """Return `expand_model_name` for these settings, with a cache.

    Long names are not cached: no model has one, but a client can send a name of any length.
    """
    expand = partial(expand_model_name, settings)
    expand_cached = lru_cache(MAX_CACHED_NAMES)(expand)
    return lambda name: expand_cached(name) if len(name) <= MAX_CACHED_NAME_CHARS else expand(name)


def resolve_alias(name: str, aliases: Mapping[str, str], source: SettingSource) -> str:
    """Resolve an alias, which may name another alias. Raises InvalidSettings for circular aliases."""
    chain = [name]
    while chain[-1] in aliases:
        target = aliases[chain[-1]]
        chain.append(target)
        if target in chain[:-1]:
            raise InvalidSettings(f"{source.location}: the aliases are circular: {' -> '.join(chain)}")
    return chain[-1]


def split_model_name(full_name: str, source: SettingSource) -> ModelName:
    """Split a name at its first slash. Raises InvalidSettings if the model's name is empty."""
    provider, _, model = full_name.partition("/")
    if not model.strip():
        raise InvalidSettings(f"{source.location}: {full_name!r} has no model name", hint="use provider/model")
    return ModelName(provider, model)


def _unknown_provider_error(
    name: ModelName, providers: Mapping[str, Provider], source: SettingSource
) -> InvalidSettings:
    suggestion = find_closest_word(name.provider, providers, cutoff=0.7)
    note = f"; did you mean {suggestion!r}?" if suggestion else ""
    hint = f"choose one of them, or add [{format_setting_key(('providers', name.provider))}] to config.toml"
    if name.provider.startswith("=") and source.location == "-m":
        hint = f"-m {str(name)[1:]}, without ="
    if "." in name.provider.strip("."):  # an address: the model was recorded from a server without a provider
        hint = "choose another model with -m provider/model"
    if name.model.endswith(".gguf"):
        hint = f"use local/{name} for a file of weights"
    return InvalidSettings(
        f"{source.location}: no provider {name.provider!r} for {str(name)!r}{note} (known: {', '.join(providers)})",
        hint=hint,
    )
