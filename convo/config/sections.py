"""Typed sections of the settings: providers, prices, context limits, rate limits.

Plain NamedTuples without input or output. A provider whose API keeps conversations (`STATEFUL_APIS`)
gets a remote endpoint, every other one convo's own (`Provider.endpoint`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from convo.config.values import InvalidValue

ProviderApi = Literal["responses", "azure", "chat", "anthropic", "local", "scripted"]
StateOwner: TypeAlias = Literal["provider", "convo"]
EndpointKind: TypeAlias = Literal["remote", "embedded"]

STATE_OWNERS: tuple[StateOwner, ...] = get_args(StateOwner)
CONFIGURABLE_APIS: tuple[ProviderApi, ...] = ("chat", "responses", "anthropic", "azure")
"""What a file may give as `api`; the others come with convo."""

STATEFUL_APIS: frozenset[ProviderApi] = frozenset({"responses", "azure"})
PROVIDER_EXTRA_FIELDS = (
    *("service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("safety_identifier", "user", "top_k", "seed", "stop", "chat_template_kwargs"),
)
"""Parameters that only some servers of an API know: `extra_fields` of a provider says which it is sent."""

APIS_WITHOUT_URL: frozenset[ProviderApi] = frozenset({"local", "scripted"})


class Provider(NamedTuple):
    """One provider.

    base_url:      without a slash at its end; Azure: the resource's endpoint; None for what runs here
    key_env:       the variable that holds the key; None when it takes no key
    token_env:     Azure: the variable that holds an Entra ID token, which goes before the key
    owner:         who keeps the state of its conversations: the provider where it can, or convo
    organisation, project:  what the key acts for, where one key may act for several
    api_version, deployment:  Azure's own
    key_file:      the file that holds the key where no variable does, absolute
    keyring:       whether the keyring holds it where neither does
    extra_fields:  parameters beside the API's own that the server knows: top_k, service_tier, ...
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

    @property
    def endpoint(self) -> EndpointKind:
        return "remote" if self.api in STATEFUL_APIS and self.owner == "provider" else "embedded"


def is_keyless(provider: Provider) -> bool:
    """Whether nothing in the settings says that the provider has a key or a token."""
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
"""Fields by provider, as a file would write them; a file may override each of them."""


_OLLAMA_PORT = 11_434
_CLIENT_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # what a server listens on, as a client reaches it


def parse_ollama_host(host: str) -> str:
    """The base URL that `OLLAMA_HOST` means: [scheme://]host[:port][/path], each part of its own."""
    scheme, separated, rest = host.strip().rpartition("://")
    try:
        parts = urlsplit(f"//{_bracket_ipv6(rest)}")
        port = parts.port or (None if separated else _OLLAMA_PORT)
    except ValueError:
        raise InvalidValue("must be a host, host:port or URL") from None
    name = _CLIENT_HOSTS.get(parts.hostname or "", parts.hostname)
    where = f"[{name}]" if name and ":" in name else name
    return f"{scheme or 'http'}://{where}{f':{port}' if port else ''}{parts.path.rstrip('/')}/v1"


def _bracket_ipv6(host: str) -> str:
    """A bare IPv6 address in brackets, as a URL needs it."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


_TOKENS_PER_PRICE = 1_000_000
"""Prices are for so many tokens."""


class ContextLimits(NamedTuple):
    """Tokens that a model takes: input and output together, and the longest answer, where it is known."""

    context: int
    output: int | None = None

    def __str__(self) -> str:
        return f"{self.context:,} tokens" + (f", answers of {self.output:,}" if self.output else "")


class Price(NamedTuple):
    """USD per million tokens. `cached` is as `input` where nothing else is said.

    written:  input that the provider put into its cache; None where nobody knows
    upto:     the most input tokens of a call for which this holds
    above:    factors on the prices of input and output for the whole of a longer call; None where they are unknown
    source:   where it was read; "" for what a person said
    """

    input: float
    output: float
    cached: float
    written: float | None = None
    upto: int | None = None
    source: str = ""
    above: tuple[float, float] | None = None

    def cost_usd(
        self, *, input_tokens: int, cached_tokens: int, output_tokens: int, written_tokens: int = 0
    ) -> float | None:
        """What one call cost; `input_tokens` includes those cached and written, as usage objects count.

        returns:  None where the price of a part is not known
        """
        into, out = 1.0, 1.0
        if self.upto is not None and input_tokens > self.upto:
            if self.above is None:
                return None
            into, out = self.above
        if written_tokens and self.written is None:
            return None
        fresh = input_tokens - cached_tokens - written_tokens
        read = fresh * self.input + cached_tokens * self.cached + written_tokens * (self.written or 0.0)
        return (into * read + out * output_tokens * self.output) / _TOKENS_PER_PRICE

    def __str__(self) -> str:
        return f"input {self.input:g}, cached {self.cached:g}, output {self.output:g} USD per million tokens"


class KeyLimits(NamedTuple):
    """The requests that one key may make of one process; 0: no limit; None: as for every key.

    concurrent:  at once
    per_minute:  in any sixty seconds
    """

    concurrent: int | None = None
    per_minute: int | None = None

    def __str__(self) -> str:
        every = (("concurrent", self.concurrent), ("per_minute", self.per_minute))
        said = [f"{name} {limit}" for name, limit in every if limit is not None]
        return ", ".join(said) or "as for every key"


class ServeLimits(NamedTuple):
    """`[serve.limits]`: the requests of each key, and of all keys together, in one process; 0: no limit.

    concurrent:          requests of one key at once; `max_requests` is the limit of all keys together
    per_minute:          requests of one key in any sixty seconds
    process_per_minute:  requests of all keys together in any sixty seconds
    keys:                other limits for the key of this name
    """

    concurrent: int = 500
    per_minute: int = 0
    process_per_minute: int = 0
    keys: Mapping[str, KeyLimits] = MappingProxyType({})

    def of(self, name: str) -> tuple[int, int]:
        """The concurrent requests and the requests a minute of the key `name`."""
        concurrent, per_minute = self.keys.get(name, KeyLimits())
        return (
            self.concurrent if concurrent is None else concurrent,
            self.per_minute if per_minute is None else per_minute,
        )
