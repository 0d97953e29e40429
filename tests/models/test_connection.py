"""The HTTP client, credentials and certificates of a connection."""

import openai
import pytest

from convo.config.values import Secret
from convo.errors import InvalidSettings, KeyRefused
from convo.models.http import OpenAIClientOptions, make_http_client, make_openai_client

LOCAL = "http://127.0.0.1:1/v1"


async def test_a_connection_uses_aiohttp_if_it_is_installed() -> None:
    client = make_http_client()

    assert isinstance(client, openai.DefaultAioHttpClient)
    assert not client.follow_redirects
    await client.aclose()


async def test_without_aiohttp_a_connection_uses_the_default_client_of_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(**_: object) -> None:
        raise RuntimeError("install the aiohttp extra")

    monkeypatch.setattr(openai, "DefaultAioHttpClient", missing)
    client = make_http_client()

    assert isinstance(client, openai.DefaultAsyncHttpxClient)
    assert not client.follow_redirects
    await client.aclose()


def test_without_a_key_no_connection_is_opened() -> None:
    with pytest.raises(KeyRefused, match="mine needs a key"):
        make_openai_client(OpenAIClientOptions("mine", LOCAL))


async def test_a_client_sends_the_credentials_of_its_own_account_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org_other")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj_other")
    client = make_openai_client(OpenAIClientOptions("openai", LOCAL, key=Secret("sk-mine"), organisation="org_mine"))

    assert (client.organization, client.project, client.max_retries) == ("org_mine", None, 0)
    await client.close()


def test_certificates_that_cannot_be_read_are_an_error_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    message = "^the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: No such file or directory$"
    with pytest.raises(InvalidSettings, match=message) as error:
        make_http_client()
    assert error.value.hint == "correct the variable, or unset it"
