"""Who asks, and where: everything that a connection through the openai package is made of.

What the package would read from the environment by itself was read before, by the settings, and
is handed in; it is put aside here, so that OpenAI's own variables never reach another company's
server. Retries are ours, because they know who owns the history, and the package's are off.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convo.config.secret import Secret
from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import KeyRefused
from convo.history import Scope
from convo.items import Json
from convo.models.bodies import limit_bodies
from convo.models.foreign import Asked
from convo.models.line import Line

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"

NO_KEY = Secret("none")
"""What is sent where no key is needed: the package insists on one."""


@dataclass(frozen=True, slots=True)
class Account:
    """One server and what is shown to it.

    provider:     its name, for sentences
    base_url:     with its version; Azure: the resource's endpoint
    key, token:   Azure takes either; a token goes before
    ambient:      what the environment says for OpenAI's own account counts: OPENAI_CUSTOM_HEADERS
    azure:        speak to it as to an Azure resource, with `api_version` where it is an older one
    deployment:   Azure: what is sent as the model's name, whatever model was asked for
    keyless:      the server takes no key
    """

    provider: str = "openai"
    base_url: str = OPENAI_URL
    key: Secret | None = None
    token: Secret | None = None
    organisation: str | None = None
    project: str | None = None
    ambient: bool = False
    azure: bool = False
    api_version: str | None = None
    deployment: str | None = None
    keyless: bool = False

    @property
    def scope(self) -> Scope:
        return Scope(self.base_url.rstrip("/"), self.organisation, self.project)

    def asked(self, body: Mapping[str, Json]) -> Asked:
        """The words that a sentence about `body`, sent there, needs."""
        return Asked(self.provider, self.base_url, model=body.get("model"), key=self.token or self.key)


def connect(account: Account, http: "AsyncClient | None" = None, limits: Limits = DEFAULT_LIMITS) -> "AsyncOpenAI":
    """The package's client for `account`; nothing is sent yet.

    http:    a transport to use instead of the package's own
    limits:  of what the server answers
    raises:  KeyRefused  there is no key
    """
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    secret = account.token or account.key or (NO_KEY if account.keyless else None)
    if secret is None:
        raise KeyRefused(f"{account.provider} needs a key")
    http = http or DefaultAsyncHttpxClient(follow_redirects=False)  # a conversation goes where it was sent
    http = limit_bodies(http, limits)
    client: AsyncOpenAI
    if account.azure and account.api_version:
        client = AsyncAzureOpenAI(
            azure_endpoint=account.base_url,
            api_version=account.api_version,
            api_key=None if account.token else secret.reveal(),
            azure_ad_token=account.token.reveal() if account.token else None,
            max_retries=0,
            http_client=http,
        )
    else:
        client = AsyncOpenAI(
            api_key=secret.reveal(),
            base_url=f"{account.base_url}/openai/v1" if account.azure else account.base_url,
            max_retries=0,
            http_client=http,
            default_headers=_headers(account, secret),
        )
    client.organization, client.project, client.admin_api_key = account.organisation, account.project, None
    return client


def addressed(account: Account, path: str) -> tuple[str, Mapping[str, str]]:
    """Where `path` of `account` is, and the headers that a request there needs; `{key}` stands for the key."""
    old_azure = account.azure and account.api_version
    version = f"?api-version={account.api_version}" if old_azure else ""
    under = "/openai" if old_azure else "/openai/v1" if account.azure else ""
    shown = ("api-key", "{key}") if old_azure and not account.token else ("Authorization", "Bearer {key}")
    acts_for = {"OpenAI-Organization": account.organisation, "OpenAI-Project": account.project}
    said = {name: value for name, value in acts_for.items() if value}
    keys = {} if account.keyless else dict([shown])
    return f"{account.base_url.rstrip('/')}{under}{path}{version}", keys | said


def fastest() -> "AsyncClient":
    """The fastest transport that is installed: through aiohttp, where it is, half as much again as without.

    It goes where it was sent and follows nobody elsewhere.
    """
    from openai import DefaultAioHttpClient, DefaultAsyncHttpxClient

    try:
        return DefaultAioHttpClient(follow_redirects=False)
    except RuntimeError:  # the package's own word for a missing aiohttp
        return DefaultAsyncHttpxClient(follow_redirects=False)


def line(account: Account, client: "AsyncOpenAI", http: "AsyncClient", limits: Limits) -> Line:
    """The way of streams to `account`: an older Azure takes its key in a header that the package adds by itself."""
    secret = account.token or account.key
    _, shown = addressed(account, "")
    key = secret.reveal() if secret else ""
    old_azure = account.azure and account.api_version
    return Line(client, http, limits, {name: said.format(key=key) for name, said in shown.items()} if old_azure else {})


def _headers(account: Account, secret: Secret) -> Mapping[str, Any]:
    """Headers of every request, without those that the environment adds for another account."""
    from openai import Omit

    if account.ambient:
        return {}
    ambient = (line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"))
    return {**dict.fromkeys(filter(None, ambient), Omit()), "Authorization": f"Bearer {secret.reveal()}"}
