"""The merged settings, and which provider and model a name means.

`Settings` and the sections below it declare the settings: a field has the type and the default, and as its annotation
the `SettingRow` with the check and the text for users. `entries` lists the values with their keys and sources.
`resolve_model` turns an alias, a bare name or provider/model into a `ModelChoice`.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from convo.config.model_lists import ModelLists, get_listed_models
from convo.config.paths import AppPaths
from convo.config.sections import (
    CONTEXT_LIMITS_TABLE,
    MCP_TABLE,
    PRICE_TABLE,
    ContextLimits,
    FileSettings,
    McpServer,
    Price,
    Provider,
    ServeLimits,
    check_mcp_name,
    check_model_name,
    check_provider_name,
)
from convo.config.storage import Storage
from convo.config.trust import ProjectNotice
from convo.config.values import (
    BUILT_IN_SOURCE,
    REQUIRED,
    SECTION_SCHEMAS,
    ChoiceCheck,
    IntegerCheck,
    InvalidValue,
    Layer,
    Setting,
    SettingRow,
    SettingSource,
    check_boolean,
    check_fraction_or_tokens,
    check_networks,
    check_origins,
    check_patterns,
    check_port,
    check_seconds,
    check_tenant,
    check_tenants,
    check_text,
    check_variable_name,
    find_closest_word,
    format_setting_key,
    keyed_table,
    setting,
    settings_section,
)
from convo.errors import InvalidSettings, UnknownModel

LOCAL_TENANT = "local"
"""The tenant of the user of this machine, where no keys are used."""


@settings_section
class ServeSettings(NamedTuple):
    """The address, the keys and the limits of `convo serve`.

    keys_file:  an absolute path; None: loopback only, and the tenant is "local"
    record:     covers chat completions and Anthropic Messages, which have no `store`
    """

    host: str = setting(
        "127.0.0.1",
        check_text,
        "The address to listen on. Addresses of other machines need `keys_file`.",
        "0.0.0.0",  # noqa: S104  # an example
        flag="--host",
    )
    port: int = setting(8788, check_port, "The port to listen on; 0 for any free port.", "8080", flag="--port")
    keys_file: Path | None = setting(
        None,
        check_text,
        "The file with names and hashes of the keys, relative to the settings file; `convo serve --new-key` adds one.",
        "keys",
        "none: only this machine can connect, without a key",
        flag="--keys",
    )
    seal_key_env: str = setting(
        "CONVO_SEAL_KEY",
        check_variable_name,
        "The environment variable with the key that encrypts compaction items.",
        "MY_SEAL_KEY",
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        check_origins,
        "The origins of web pages whose scripts may call the API below `/v1/`, exactly as browsers send them; the"
        " inspector page stays closed to them. `*` allows every page and requires `keys_file`.",
        '["https://app.example"]',
        "none",
    )
    blocked_networks: tuple[str, ...] = setting(
        (),
        check_networks,
        "Networks to which no URL of a client may lead, of an `mcp` tool or a file, besides those that are not public.",
        '["203.0.113.0/24"]',
        "none",
    )
    max_body_bytes: int = setting(32 * 1024 * 1024, IntegerCheck(1024), "Bytes of the body of one request.", "1048576")
    max_header_bytes: int = setting(64 * 1024, IntegerCheck(1024), "Bytes of all headers of one request.", "16384")
    max_depth: int = setting(100, IntegerCheck(10, maximum=500), "Nested objects and arrays in a body.", "50")
    max_items: int = setting(10_000, IntegerCheck(1), "Items in the input of one request.", "2000")
    max_requests: int = setting(1_000, IntegerCheck(1), "Requests that run at once.", "200")
    read_s: float = setting(
        30.0, check_seconds, "Seconds in which the headers of a request must arrive, and then its body.", "10"
    )
    write_s: float = setting(
        60.0, check_seconds, "Seconds during which a client may read nothing of its response.", "30"
    )
    keepalive_s: float = setting(
        15.0,
        check_seconds,
        "Seconds without an event before a stream sends a keep-alive comment. A stream that is passed through to a"
        " provider, as `/v1/chat/completions` is, gets none.",
        "5",
    )
    grace_s: float = setting(30.0, check_seconds, "Seconds that open requests get when the server stops.", "60")
    mcp_urls: bool = setting(
        False,
        check_boolean,
        "Connect to the `server_url` of `mcp` tools in requests, at public addresses only. `false`: only to the"
        " servers under `[mcp.NAME]`.",
        "true",
    )
    reasoning_events: str = setting(
        "openai",
        ChoiceCheck("openai", "specification"),
        "The names of the events of reasoning text in a stream: those of OpenAI, or of the Open Responses"
        " specification.",
        "specification",
    )
    record: bool = setting(
        False,
        check_boolean,
        "Whether requests with `store: false` are recorded for `convo inspect` and the page. Clients see it in the"
        " header `x-convo-recorded`.",
        "true",
        flag="--record",
    )
    record_keys: tuple[str, ...] = setting(
        (), check_tenants, "The keys whose requests are recorded, by name; empty: those of all keys.", '["alice"]'
    )
    unstored_ttl_s: int = setting(
        7 * 86400,
        IntegerCheck(60),
        "Seconds for which the list of requests has those that left no response in the store.",
        "86400",
    )
    max_unstored_rows: int = setting(
        10_000,
        IntegerCheck(1),
        "Rows of such requests that are kept of each key, the newest.",
        "1000",
    )
    record_ttl_s: int = setting(
        7 * 86_400,
        IntegerCheck(60),
        "Seconds after the last request of a recorded session before it is deleted.",
        "86400",
    )
    limits: ServeLimits = ServeLimits()
    files: FileSettings = FileSettings()


@settings_section
class ResponseLimits(NamedTuple):
    """Limits on the responses of servers. The defaults allow a response that takes hours."""

    answer_bytes: int = setting(
        256 * 1024 * 1024,
        IntegerCheck(1024),
        "Bytes of one stream as received, with comments and keep-alives.",
        "67108864",
    )
    answer_events: int = setting(1_000_000, IntegerCheck(10), "Events of one stream.", "200000")
    answer_s: float = setting(6 * 3600.0, check_seconds, "Seconds from the request to the end of the stream.", "1800")
    # a model may reason for an hour without output
    idle_s: float = setting(
        2 * 3600.0,
        check_seconds,
        "Seconds without an event that adds to the response; keep-alives do not count.",
        "600",
    )
    event_bytes: int = setting(
        8 * 1024 * 1024, IntegerCheck(1024), "Bytes of one event; the last event repeats the whole response.", "4194304"
    )
    output_bytes: int = setting(
        4 * 1024 * 1024,
        IntegerCheck(1024),
        "Bytes of the items of one response: text, reasoning, arguments, images. For responses that are passed"
        " through only the other limits count.",
        "1048576",
    )
    body_bytes: int = setting(
        32 * 1024 * 1024,
        IntegerCheck(1024),
        "Bytes of a response that is not a stream: a stored response, a list.",
        "16777216",
    )


DEFAULT_RESPONSE_LIMITS = ResponseLimits()

EDITING_VI, EDITING_PLAIN = "vi", "plain"


def check_alias_name(name: str) -> None:
    """Check a name that requests may use: it may be the full name of a model, to redirect requests for it."""
    if not name or name != name.strip() or "" in name.split("/"):
        raise InvalidValue("is not an alias: use one word, or a name like provider/model")


@settings_section
class Settings(NamedTuple):
    """The merged settings. A field with a row, or with a table of rows, is a setting of the same name.

    model:                 as written: provider/model, an alias or a bare name; see `resolve_model`
    entries:               every value with its source, sorted by key
    providers:             by name, including the built-in ones
    prices:                by "provider/model", from the settings only
    windows:               context limits by "provider/model", from the settings, or reported by a server; see
                           `convo.config.model_lists`
    configured_providers:  the providers with a key, or that need none
    model_lists:           the cached lists of the providers' models; see `convo.config.model_lists`
    project_notice:        the part of the project's file that is ignored; None if all of it is used
    """

    storage: Storage
    paths: AppPaths
    entries: tuple[Setting, ...]
    model: str = setting(
        REQUIRED,
        check_text,
        "The model of every command without `-m`: provider/model, an alias, or the name of a model alone.",
        "openai/gpt-6.1-sol",
        "the model of the first provider with a key, else the built-in model",
        variable="CONVO_MODEL",
        flag="-m",
    )
    tenant: str = setting(
        LOCAL_TENANT,
        check_tenant,
        "The tenant whose data the commands use: the name of a key of `convo serve`.",
        "alice",
        variable="CONVO_TENANT",
    )
    compact_at: float = setting(
        0.8,
        check_fraction_or_tokens,
        "Compact a chat at this fraction of the model's context window, or above this number of tokens. 0: never.",
        "0.6",
    )
    editing: str = setting(
        "emacs",
        ChoiceCheck("emacs", EDITING_VI, EDITING_PLAIN),
        "The keys of the prompt. `plain`, for screen readers, draws nothing twice and formats no Markdown.",
        "vi",
        variable="CONVO_EDITING",
    )
    answers: str = setting(
        "markdown",
        ChoiceCheck("markdown", "plain"),
        "The layout of responses in a terminal; `plain` is the unchanged text.",
        "plain",
        variable="CONVO_ANSWERS",
    )
    cache_diagnostics: bool = setting(
        True,
        check_boolean,
        "Ask OpenAI (GPT-5.6 and later), Azure and Anthropic in chats why their cache missed, which is free, and"
        " show the reason and the number of removed reasoning items after the answer.",
        "false",
    )
    strict_prefix: bool = setting(
        False,
        check_boolean,
        "Refuse a request that changes the prefix of the one before it and so loses cached tokens or reasoning items."
        " If false, a warning shows the loss.",
        "true",
        flag="--strict-prefix",
    )
    keep_prefix: bool = setting(
        False,
        check_boolean,
        "Append a change of the instructions, the tools, the effort or the schema to the history, if the model supports"
        " it, so that the prefix stays the same; a new effort or schema then applies until another one is given.",
        "true",
        flag="--keep-prefix",
    )
    redact: tuple[str, ...] = setting(
        (), check_patterns, "What `--redact` of `export` and `convert` redacts in addition.", '["PROJ-[0-9]+"]', "none"
    )
    providers: Mapping[str, Provider] = keyed_table(check_provider_name, SECTION_SCHEMAS[Provider])
    aliases: Mapping[str, str] = keyed_table(
        check_alias_name,
        SettingRow(
            None,
            check_text,
            "The model that this name stands for, in commands and in requests to `convo serve`. The name may be a full"
            ' one, such as `"openai/gpt-6.1-sol"`.',
            "local",
        ),
    )
    serve: ServeSettings = ServeSettings()
    mcp: Mapping[str, McpServer] = keyed_table(check_mcp_name, MCP_TABLE)
    limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS
    prices: Mapping[str, Price] = keyed_table(check_model_name, PRICE_TABLE)
    windows: Mapping[str, ContextLimits] = keyed_table(check_model_name, CONTEXT_LIMITS_TABLE)
    configured_providers: frozenset[str] = frozenset()
    model_lists: ModelLists = MappingProxyType({})
    project_notice: ProjectNotice | None = None

    def get_source(self, *key: str) -> SettingSource:
        """Return the source of the value at `key`, as in get_source("providers", "openai", "base_url")."""
        return next((entry.source for entry in self.entries if entry.key == key), BUILT_IN_SOURCE)


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

OPENAI_PREFIXES = ("gpt-6", "gpt-5", "gpt-4", "o1", "o3", "o4", "chatgpt-", "ft:")

_PROVIDER_BY_PREFIX = {
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    **dict.fromkeys(OPENAI_PREFIXES, "openai"),
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
    if "." in name.provider.strip("."):  # an address: the model was recorded from a server without a provider
        hint = "choose another model with -m provider/model"
    if name.model.endswith(".gguf"):
        hint = f"use local/{name} for a file of weights"
    return InvalidSettings(
        f"{source.location}: no provider {name.provider!r} for {str(name)!r}{note} (known: {', '.join(providers)})",
        hint=hint,
    )
