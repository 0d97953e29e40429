"""Who answers for a model: the providers that are known, and what a file may say of others.

A provider is data: the language it speaks (`api`), where it is and what holds its key.
One rule decides which endpoint its models have. A server that speaks Responses owns chains and
conversations itself, so it is `remote`; for every other one, and where `owner = "convo"` says so,
convo's own endpoint stands in front: `embedded`.
"""

from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from convo.config.checks import Unfit

Api = Literal["responses", "azure", "chat", "anthropic", "local", "scripted"]
OwnerOf: TypeAlias = Literal["provider", "convo"]
EndpointKind: TypeAlias = Literal["remote", "embedded"]

OWNERS_OF: tuple[OwnerOf, ...] = get_args(OwnerOf)
FILE_APIS: tuple[Api, ...] = ("chat", "responses", "anthropic", "azure")
"""What a file may give as `api`; the others come with convo."""

OWNS_STATE: frozenset[Api] = frozenset({"responses", "azure"})
EXTRA_FIELDS = (
    *("service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("safety_identifier", "user", "top_k", "seed", "stop", "chat_template_kwargs"),
)
"""Parameters that only some servers of an API know: `extra_fields` of a provider says which it is sent."""

NEEDS_NO_URL: frozenset[Api] = frozenset({"local", "scripted"})


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
    api: Api
    base_url: str | None = None
    key_env: str | None = None
    token_env: str | None = None
    owner: OwnerOf = "provider"
    organisation: str | None = None
    project: str | None = None
    api_version: str | None = None
    deployment: str | None = None
    key_file: Path | None = None
    keyring: bool = False
    extra_fields: tuple[str, ...] = ()

    @property
    def endpoint(self) -> EndpointKind:
        return "remote" if self.api in OWNS_STATE and self.owner == "provider" else "embedded"


def takes_no_key(provider: Provider) -> bool:
    """Whether nothing in the settings says that the provider has a key or a token."""
    return not (provider.key_env or provider.token_env or provider.key_file or provider.keyring)


KNOWN: dict[str, dict[str, str]] = {
    "openai": {"api": "responses", "base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"},
    "azure": {"api": "azure", "key_env": "AZURE_OPENAI_API_KEY", "token_env": "AZURE_OPENAI_AD_TOKEN"},
    "anthropic": {"api": "anthropic", "base_url": "https://api.anthropic.com", "key_env": "ANTHROPIC_API_KEY"},
    "deepseek": {"api": "chat", "base_url": "https://api.deepseek.com", "key_env": "DEEPSEEK_API_KEY"},
    "ollama": {"api": "chat", "base_url": "http://127.0.0.1:11434/v1"},
    "local": {"api": "local"},
    "scripted": {"api": "scripted"},
}
"""Fields by provider, as a file would write them; a file may override each of them."""


OLLAMA_PORT = 11_434
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # what a server listens on, as a client reaches it


def ollama_url(host: str) -> str:
    """The base URL that `OLLAMA_HOST` means: [scheme://]host[:port][/path], each part of its own."""
    scheme, separated, rest = host.strip().rpartition("://")
    try:
        parts = urlsplit(f"//{_bracketed(rest)}")
        port = parts.port or (None if separated else OLLAMA_PORT)
    except ValueError:
        raise Unfit("must be a host, host:port or URL") from None
    name = EVERYWHERE.get(parts.hostname or "", parts.hostname)
    where = f"[{name}]" if name and ":" in name else name
    return f"{scheme or 'http'}://{where}{f':{port}' if port else ''}{parts.path.rstrip('/')}/v1"


def _bracketed(host: str) -> str:
    """A bare IPv6 address in brackets, as a URL needs it."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
