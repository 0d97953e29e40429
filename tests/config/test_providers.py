"""Providers, their endpoints and their keys."""

import pytest

from convo.config.credentials import load_provider_key, load_provider_token
from convo.config.sections import EndpointKind, Provider, ProviderApi, StateOwner, parse_ollama_host
from convo.config.values import InvalidValue
from convo.secrets import Secret
from tests.config.settings_inputs import make_settings


def test_the_known_providers_are_these() -> None:
    assert dict(make_settings().providers) == {
        "anthropic": Provider("anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        "azure": Provider("azure", "azure", None, "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
        "deepseek": Provider("deepseek", "chat", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        "local": Provider("local", "local"),
        "ollama": Provider("ollama", "chat", "http://127.0.0.1:11434/v1"),
        "openai": Provider("openai", "responses", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        "scripted": Provider("scripted", "scripted"),
    }


@pytest.mark.parametrize(
    ("api", "owner", "endpoint"),
    [
        ("responses", "provider", "remote"),
        ("responses", "convo", "embedded"),
        ("azure", "provider", "remote"),
        ("azure", "convo", "embedded"),
        ("chat", "provider", "embedded"),
        ("chat", "convo", "embedded"),
        ("anthropic", "provider", "embedded"),
        ("local", "provider", "embedded"),
        ("scripted", "provider", "embedded"),
    ],
)
def test_the_api_and_the_strategy_decide_the_endpoint(
    api: ProviderApi, owner: StateOwner, endpoint: EndpointKind
) -> None:
    assert Provider("x", api, owner=owner).endpoint == endpoint


def test_variables_apply_to_their_providers_as_in_their_own_clients() -> None:
    got = make_settings(
        environ={
            "OPENAI_BASE_URL": "https://openai/v1/",
            "OPENAI_ORG_ID": "org_1",
            "OPENAI_PROJECT_ID": "proj_1",
            "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
            "OPENAI_API_VERSION": "2026-01-01",
            "ANTHROPIC_BASE_URL": "https://anthropic",
            "OLLAMA_HOST": "box:1234",
        }
    ).providers

    assert got["openai"][2:3] + got["openai"][6:8] == ("https://openai/v1", "org_1", "proj_1")
    assert (got["azure"].base_url, got["azure"].api_version) == ("https://mine.openai.azure.com", "2026-01-01")
    assert got["anthropic"].base_url == "https://anthropic"
    assert got["ollama"].base_url == "http://box:1234/v1"


def test_a_file_overrides_single_fields_of_a_known_provider() -> None:
    openai = make_settings(user='[providers.openai]\nowner = "convo"\nkey_env = "WORK_KEY"').providers["openai"]

    assert openai == Provider("openai", "responses", "https://api.openai.com/v1", "WORK_KEY", owner="convo")
    assert openai.endpoint == "embedded"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:80", "http://box:80/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234/v1"),
        ("http://box", "http://box/v1"),
        ("https://box", "https://box/v1"),
        ("https://box:8443/ollama/", "https://box:8443/ollama/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::1]:1234", "http://[::1]:1234/v1"),
        ("[::]:1234", "http://[::1]:1234/v1"),
        (" box ", "http://box:11434/v1"),
    ],
)
def test_the_ollama_host_becomes_a_base_url(host: str, url: str) -> None:
    assert parse_ollama_host(host) == url


@pytest.mark.parametrize("host", ["box:port", "http://box:99999", "[::1"])
def test_an_invalid_ollama_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidValue, match=r"^must be a host, host:port or URL$"):
        parse_ollama_host(host)


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"OPENAI_API_KEY": "sk-1"}, Secret("sk-1")),
        ({"OPENAI_API_KEY": " sk-1\n"}, Secret("sk-1")),
        ({"OPENAI_API_KEY": ""}, None),
        ({"OPENAI_API_KEY": " \n"}, None),
        ({"GROQ_API_KEY": "gsk"}, None),
        ({}, None),
    ],
)
def test_a_key_comes_from_the_variable_of_its_provider(environ: dict[str, str], key: Secret | None) -> None:
    assert load_provider_key(make_settings().providers["openai"], environ) == key


def test_a_provider_without_a_variable_has_no_key() -> None:
    assert load_provider_key(make_settings().providers["ollama"], {"OPENAI_API_KEY": "sk-1", "": "sk-2"}) is None


def test_azure_has_a_token_besides_its_key() -> None:
    azure = make_settings().providers["azure"]
    environ = {"AZURE_OPENAI_AD_TOKEN": "token", "AZURE_OPENAI_API_KEY": "key"}

    assert (load_provider_token(azure, environ), load_provider_key(azure, environ)) == (Secret("token"), Secret("key"))
    assert load_provider_token(make_settings().providers["openai"], environ) is None
