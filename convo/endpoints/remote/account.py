"""Who asks, and where: everything that a connection is made of.

What the package would read from the environment by itself was read before, by the settings, and
is handed in; it is put aside here, so that OpenAI's own variables never reach another company's
server. Retries are ours, because they know who owns the history, and the package's are off.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convo.config.secret import Secret
from convo.errors import KeyRefused
from convo.history import Scope

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Account:
    """One server and what is shown to it.

    provider:     its name, for sentences
    base_url:     with its version; Azure: the resource's endpoint
    key, token:   Azure takes either; a token goes before
    ambient:      what the environment says for OpenAI's own account counts: OPENAI_CUSTOM_HEADERS
    azure:        speak to it as to an Azure resource, with `api_version` where it is an older one
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

    @property
    def scope(self) -> Scope:
        return Scope(self.base_url.rstrip("/"), self.organisation, self.project)


def connect(account: Account, http: "AsyncClient | None" = None) -> "AsyncOpenAI":
    """The package's client for `account`; nothing is sent yet.

    http:    a transport to use instead of the package's own
    raises:  KeyRefused  there is no key
    """
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    secret = account.token or account.key
    if secret is None:
        raise KeyRefused(f"{account.provider} needs a key")
    http = http or DefaultAsyncHttpxClient(follow_redirects=False)  # a conversation goes where it was sent
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


def _headers(account: Account, secret: Secret) -> Mapping[str, Any]:
    """Headers of every request, without those that the environment adds for another account."""
    from openai import Omit

    if account.ambient:
        return {}
    ambient = (line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"))
    return {**dict.fromkeys(filter(None, ambient), Omit()), "Authorization": f"Bearer {secret.reveal()}"}
