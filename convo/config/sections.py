"""Typed sections of the settings: providers, prices, context limits, rate limits.

NamedTuples without input or output. A provider whose API stores conversations (`STATEFUL_APIS`) gets a remote endpoint,
every other provider convo's own (`Provider.endpoint`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from convo.config.values import InvalidValue

ProviderApi = Literal["responses", "azure", "chat", "anthropic", "local", "scripted"]
StateOwner: TypeAlias = Literal["provider", "convo"]
HostedTools: TypeAlias = Literal["auto", "refuse", "omit"]
CustomTools: TypeAlias = Literal["auto", "native", "function"]
PrefixMismatchBehavior: TypeAlias = Literal["drop_block", "error", "provider_default"]
EndpointKind: TypeAlias = Literal["remote", "embedded"]

STATE_OWNERS: tuple[StateOwner, ...] = get_args(StateOwner)
HOSTED_TOOLS: tuple[HostedTools, ...] = get_args(HostedTools)
CUSTOM_TOOLS: tuple[CustomTools, ...] = get_args(CustomTools)
PREFIX_MISMATCH_BEHAVIORS: tuple[PrefixMismatchBehavior, ...] = get_args(PrefixMismatchBehavior)
CONFIGURABLE_APIS: tuple[ProviderApi, ...] = ("chat", "responses", "anthropic", "azure")
"""The values of `api` in a file; the other APIs are built in."""

STATEFUL_APIS: frozenset[ProviderApi] = frozenset({"responses", "azure"})
PROVIDER_EXTRA_FIELDS = (
    *("service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("safety_identifier", "user", "top_k", "seed", "stop", "chat_template_kwargs"),
)
"""Parameters that only some servers of an API support; `extra_fields` of a provider lists those to send."""

APIS_WITHOUT_URL: frozenset[ProviderApi] = frozenset({"local", "scripted"})


class Provider(NamedTuple):
    """One provider.

    base_url:      without a final slash; Azure: the endpoint of the resource; None for local models
    key_env:       the variable of the key; None if no key is needed
    token_env:     Azure: the variable of an Entra ID token, which takes precedence over the key
    owner:         the owner of the conversations' state: the provider if its API stores it, or convo
    organisation, project:  the account of the request, if the key has access to several
    api_version, deployment:  Azure only
    key_file:      the absolute path of a file with the key, used if the variable is not set
    keyring:       whether the keyring has the key, used if neither is set
    extra_fields:  optional parameters that the server supports: top_k, service_tier, ...
    hosted_tools:  whether tools that only OpenAI's servers run (web_search, file_search, ...) are refused or left out;
                   "auto": a web search is left out, the others are refused
    custom_tools:  chat completions: whether custom tools are sent as such, with their grammar, or as functions; "auto":
                   as such to the models of OpenAI and Azure that have them
    resend_fields: chat completions: whether the reasoning and signatures of the server's answers go back to it
    prefix_mismatch_behavior:  Anthropic only: whether thinking whose prefix has changed is dropped, is refused, or is
                               treated by the account's default
    """

    name: str
    api: ProviderApi
    base_url: str | None = None
    key_env: str | None = None
    token_env: str | None = None
    owner: StateOwner = "provider"
    organisation: str | None = None
    project: str | None = None
    api_version: str | None = None
    deployment: str | None = None
    key_file: Path | None = None
    keyring: bool = False
    extra_fields: tuple[str, ...] = ()
    hosted_tools: HostedTools = "auto"
    custom_tools: CustomTools = "auto"
    resend_fields: bool = True
    prefix_mismatch_behavior: PrefixMismatchBehavior = "drop_block"

    @property
    def is_openai(self) -> bool:
        """Whether its models are OpenAI's, by the Responses API: at OpenAI, behind a proxy of it, or on Azure."""
        return self.api == "azure" or (self.api == "responses" and is_openai_server(self.name, self.base_url or ""))

    @property
    def is_anthropic(self) -> bool:
        """Whether its models are Anthropic's, at Anthropic or behind a proxy of it."""
        is_own = self.name == "anthropic" or urlsplit(self.base_url or "").hostname == "api.anthropic.com"
        return self.api == "anthropic" and is_own

    @property
    def endpoint(self) -> EndpointKind:
        return "remote" if self.api in STATEFUL_APIS and self.owner == "provider" else "embedded"


def is_openai_server(provider: str, base_url: str) -> bool:
    """Whether a provider is OpenAI, or a proxy of it: the provider of that name with another URL."""
    return provider == "openai" or urlsplit(base_url).hostname == "api.openai.com"


def is_keyless(provider: Provider) -> bool:
    """Whether the settings name neither a key nor a token of the provider."""
    return not (provider.key_env or provider.token_env or provider.key_file or provider.keyring)


KNOWN_PROVIDERS: dict[str, dict[str, str]] = {
    "openai": {"api": "responses", "base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"},
    "azure": {"api": "azure", "key_env": "AZURE_OPENAI_API_KEY", "token_env": "AZURE_OPENAI_AD_TOKEN"},
    "anthropic": {"api": "anthropic", "base_url": "https://api.anthropic.com", "key_env": "ANTHROPIC_API_KEY"},
    "deepseek": {"api": "chat", "base_url": "https://api.deepseek.com", "key_env": "DEEPSEEK_API_KEY"},
    "ollama": {"api": "chat", "base_url": "http://127.0.0.1:11434/v1"},
    "local": {"api": "local"},
    "scripted": {"api": "scripted"},
}
"""Default fields by provider, as in a settings file; a file can override each of them."""


_OLLAMA_PORT = 11_434
_CLIENT_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # listen address -> client address


def parse_ollama_host(host: str) -> str:
    """Convert `OLLAMA_HOST` to a base URL: [scheme://]host[:port][/path], each part optional."""
    scheme, separated, rest = host.strip().rpartition("://")
    try:
        parts = urlsplit(f"//{_bracket_ipv6(rest)}")
        port = parts.port or (None if separated else _OLLAMA_PORT)
    except ValueError:
        raise InvalidValue("must be a host, host:port or URL") from None
    name = _CLIENT_HOSTS.get(parts.hostname or "", parts.hostname)
    address = f"[{name}]" if name and ":" in name else name
    return f"{scheme or 'http'}://{address}{f':{port}' if port else ''}{parts.path.rstrip('/')}/v1"


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


LATEST_TAG = ":latest"

Entry = TypeVar("Entry")


def list_model_names(model: str) -> tuple[str, ...]:
    """Return all names of a model, its own first: a name without a tag means the tag `latest`, as in Ollama."""
    untagged = model.removesuffix(LATEST_TAG)
    if ":" in untagged.rpartition("/")[2]:
        return (model,)
    return (model, untagged if untagged != model else model + LATEST_TAG)


def find_model_entry(entries: Mapping[str, Entry], model: str) -> Entry | None:
    """Return the entry of a model, under any of its names, in a table by provider/model."""
    return next((entries[name] for name in list_model_names(model) if name in entries), None)


class ContextLimits(NamedTuple):
    """Limits of a model in tokens: input and output together, and the output if it is known.

    source:  where they are from, if not from the settings
    """

    context_tokens: int
    output_tokens: int | None = None
    source: str = ""

    def __str__(self) -> str:
        return f"{self.context_tokens:,} tokens" + (
            f", output up to {self.output_tokens:,}" if self.output_tokens else ""
        )


STANDARD_TIERS = (None, "auto", "default", "standard")
"""The service tiers at the standard price; None: the response reports none. Anthropic's name is "standard"."""


class Price(NamedTuple):
    """USD per million tokens. `cached` equals `input` unless it is set.

    written:             input that the provider writes to its cache; None if unknown
    written_1h:          input that Claude writes to its cache for an hour instead of 5 minutes; None if unknown
    max_input_tokens:    input tokens up to which the prices apply
    long_input_factors:  factors on the input and output price of a whole longer call; None if unknown
    source:              the URL of the price; "" for one from the settings
    tier_factors:        factors on the price of a whole call, by the service tier that its response reports
    is_secondary:        whether the source is not the vendor's own
    """

    input: float
    output: float
    cached: float
    written: float | None = None
    max_input_tokens: int | None = None
    source: str = ""
    long_input_factors: tuple[float, float] | None = None
    written_1h: float | None = None
    tier_factors: Mapping[str, float] = MappingProxyType({})
    is_secondary: bool = False

    def __str__(self) -> str:
        about = "about " if self.is_secondary else ""
        return f"{about}input {self.input:g}, cached {self.cached:g}, output {self.output:g} USD per million tokens"

    def at_tier(self, tier: str | None) -> "Price | None":
        """Return the price of a call at a service tier; None if it is unknown.

        A price from the settings is what the user pays, at any tier.
        """
        if not self.source or tier in STANDARD_TIERS:
            return self
        factor = self.tier_factors.get(tier or "")
        if factor is None:
            return None
        scaled = {name: getattr(self, name) for name in ("input", "output", "cached", "written", "written_1h")}
        return self._replace(**{name: price and price * factor for name, price in scaled.items()})


class KeyLimits(NamedTuple):
    """Limits on one key's requests in one process; 0: no limit; None: the limit of all keys.

    concurrent:  requests at once
    per_minute:  requests in any 60 seconds
    """

    concurrent: int | None = None
    per_minute: int | None = None

    def __str__(self) -> str:
        limits = (("concurrent", self.concurrent), ("per_minute", self.per_minute))
        parts = [f"{name} {limit}" for name, limit in limits if limit is not None]
        return ", ".join(parts) or "the limits of all keys"


class FileSettings(NamedTuple):
    """`[serve.files]`: the files that clients upload, and those that they name by URL.

    max_file_bytes:   bytes of one file
    max_files:        files of one key
    max_total_bytes:  bytes of one key's files together
    fetch_urls:       whether http and https URLs of images and files are fetched; else they are passed on
    fetch_s:          seconds to fetch one file
    """

    max_file_bytes: int = 32 * 1024 * 1024
    max_files: int = 1_000
    max_total_bytes: int = 1024 * 1024 * 1024
    fetch_urls: bool = False
    fetch_s: float = 20.0


class McpServer(NamedTuple):
    """`[mcp.NAME]`: an MCP server whose tools requests to `convo serve` may use.

    url:            of its streamable HTTP endpoint; None for a process
    command:        the program and its arguments, if there is no URL
    key_env:        the variable of its key: sent to the URL as a bearer token, or passed on to the process
    keyring:        whether the keyring has the key, used if the variable is not set
    allowed_tools:  the tools that may be called; None for all
    timeout_s:      seconds to connect, and for each call
    """

    url: str | None = None
    command: tuple[str, ...] = ()
    key_env: str | None = None
    keyring: bool = False
    allowed_tools: tuple[str, ...] | None = None
    timeout_s: float = 60.0


class ServeLimits(NamedTuple):
    """`[serve.limits]`: limits on the requests of each key and of one process; 0: no limit.

    concurrent:          requests of one key at once; `max_requests` limits those of all keys together
    per_minute:          requests of one key in any 60 seconds
    process_per_minute:  requests of all keys together in any 60 seconds
    process_body_bytes:  bytes of the bodies of all running requests together; one alone may be larger
    keys:                limits of single keys, by the key's name
    """

    concurrent: int = 500
    per_minute: int = 0
    process_per_minute: int = 0
    process_body_bytes: int = 128 * 1024 * 1024
    keys: Mapping[str, KeyLimits] = MappingProxyType({})

    def for_key(self, name: str) -> tuple[int, int]:
        """Return the limits of the key `name`: concurrent requests and requests per minute."""
        concurrent, per_minute = self.keys.get(name, KeyLimits())
        return (
            self.concurrent if concurrent is None else concurrent,
            self.per_minute if per_minute is None else per_minute,
        )
