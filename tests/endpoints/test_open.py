"""The endpoint that is opened for a provider, and the packages that are imported for it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from convo.chat.endpoint_factory import ModelsByName, open_endpoint, open_service
from convo.config.settings import Settings
from convo.endpoints.base import Endpoint
from convo.errors import KeyRefused, RequestRefused
from convo.history.records import EMBEDDED_SCOPE, Scope
from convo.responses_api.endpoint import EmbeddedService
from convo.runtime import SystemClock, random_id
from convo.stores.memory import MemoryStore
from tests.config.settings_inputs import make_settings
from tests.endpoints.endpoint_calls import ask, refusal, texts
from tests.models.chat_server import run_chat_server

CONFIG = """
[providers.groq]
api = "chat"
base_url = "https://groq.example/v1"
key_env = "GROQ_API_KEY"

[providers.gateway]
api = "responses"
base_url = "https://gateway.example/v1"
key_env = "GATEWAY_API_KEY"
organisation = "org_1"

[providers.mine]
api = "responses"
base_url = "https://gateway.example/v1"
key_env = "GATEWAY_API_KEY"
owner = "convo"

[aliases]
quick = "scripted/echo"
"""


def open_provider(provider: str, settings: Settings) -> Endpoint:
    return open_endpoint(
        settings.providers[provider], settings=settings, store=MemoryStore(), clock=SystemClock(), new_id=random_id
    )


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("OPENAI_API_KEY", "GATEWAY_API_KEY", "GROQ_API_KEY", "AZURE_OPENAI_AD_TOKEN"):
        monkeypatch.setenv(name, "sk-test")
    return make_settings(user=CONFIG, environ={"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com"})


@pytest.mark.parametrize(
    ("provider", "scope"),
    [
        ("openai", Scope("https://api.openai.com/v1")),
        ("gateway", Scope("https://gateway.example/v1", "org_1")),
        ("azure", Scope("https://me.openai.azure.com")),
        ("mine", EMBEDDED_SCOPE),
        ("groq", EMBEDDED_SCOPE),
        ("ollama", EMBEDDED_SCOPE),
        ("deepseek", EMBEDDED_SCOPE),
        ("local", EMBEDDED_SCOPE),
        ("scripted", EMBEDDED_SCOPE),
    ],
)
def test_a_provider_that_can_store_state_stores_it(settings: Settings, provider: str, scope: Scope) -> None:
    assert open_provider(provider, settings).scope == scope


def test_a_server_without_a_key_is_not_opened(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(KeyRefused) as caught:
        open_provider("openai", settings)
    assert "OPENAI_API_KEY" in caught.value.hint


async def test_the_embedded_endpoint_routes_every_model_by_its_name(settings: Settings) -> None:
    endpoint = open_provider("groq", settings)
    first = await ask(endpoint, "hello", model="scripted/echo")
    second = await ask(endpoint, "again", model="quick", previous_response_id=first["id"])
    await endpoint.aclose()
    assert texts(first["output"]) == ["hello"]
    assert (texts(second["output"]), second["model"]) == (["again"], "quick")


async def test_a_model_is_opened_once_under_the_name_of_its_provider(settings: Settings) -> None:
    models = ModelsByName(settings, SystemClock(), random_id)
    chat, name = models("groq/family/model:1b")
    assert name == "family/model:1b"
    assert models("groq/other")[0] is chat
    assert models("quick")[0] is not chat
    await models.aclose()


@pytest.mark.parametrize("name", ["nobody/model", "groq", "groq/"])
async def test_a_missing_model_is_refused_with_the_message_of_the_api(settings: Settings, name: str) -> None:
    error = await refusal(open_provider("groq", settings), "hi", model=name)
    assert isinstance(error, RequestRefused)
    assert (error.code, error.status, error.param) == ("model_not_found", 400, "model")
    assert error.message == f"The requested model '{name}' does not exist"


# -- for a server ---------------------------------------------------------------------------------


def make_service(settings: Settings) -> EmbeddedService:
    return open_service(settings, store=MemoryStore(), clock=SystemClock(), new_id=random_id)


@pytest.mark.parametrize("name", ["local/etc/model.gguf", "local//etc/model.gguf", "scripted//etc/passwd"])
async def test_a_client_cannot_read_a_file_through_a_model_name(settings: Settings, name: str) -> None:
    service = make_service(settings)
    error = await refusal(service.endpoint_for("ann"), "hi", model=name)
    await service.aclose()
    assert (error.code, error.status, getattr(error, "param", None)) == ("model_not_found", 400, "model")
    assert "etc" not in error.hint


async def test_an_alias_makes_its_model_available_to_clients(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"replies": [{"text": "scripted"}]}')
    service = make_service(make_settings(user=f'[aliases]\n"gpt-5-scripted" = "scripted/{script}"'))
    response = await ask(service.endpoint_for("ann"), "hi", model="gpt-5-scripted")
    await service.aclose()
    assert (texts(response["output"]), response["model"]) == (["scripted"], "gpt-5-scripted")


async def test_available_models_are_listed_with_their_owner() -> None:
    """A server that does not answer or has no key is omitted."""
    with run_chat_server() as server:
        server.refuse(200, {"data": [{"id": "llama3.2:3b"}, {"id": "org/qwen"}]})
        listed = await make_service(settings_with_servers(server.url)).list_models()
    assert [(model["id"], model["owned_by"]) for model in listed if model["owned_by"] != "local"] == [
        ("quick", "scripted"),
        ("here/llama3.2:3b", "here"),
        ("here/org/qwen", "here"),
    ]
    assert {model["object"] for model in listed} == {"model"}
    assert all(isinstance(model["created"], int) for model in listed)


def settings_with_servers(url: str) -> Settings:
    return make_settings(
        user=f"""
model = "quick"
[providers.gone]
api = "chat"
base_url = "http://127.0.0.1:1/v1"
[providers.here]
api = "chat"
base_url = "{url}"
[providers.ollama]
base_url = "http://127.0.0.1:1/v1"
[aliases]
quick = "scripted/echo"
""",
    )


async def test_an_upstream_key_error_is_reported_as_an_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider rejects the key, or the server has no key for the provider."""
    with run_chat_server() as server:
        server.refuse(401, {"error": {"message": "Incorrect API key provided: sk-upstream."}})
        service = make_service(
            make_settings(user=f'[providers.here]\napi = "chat"\nbase_url = "{server.url}"\nkey_env = "HERE_API_KEY"')
        )
        missing_key = await refusal(service.endpoint_for("ann"), "hi", model="here/m")
        monkeypatch.setenv("HERE_API_KEY", "sk-upstream")
        rejected_key = await refusal(service.endpoint_for("ann"), "hi", model="here/m")
        await service.aclose()
    for error in (missing_key, rejected_key):
        assert (error.code, error.status) == ("provider_key_refused", 502)
        assert "sk-upstream" not in error.hint
    assert missing_key.message == "this server has no usable key for here; GET /v1/models lists the available models"
    assert rejected_key.message == "here rejected the key of this server"


async def test_a_server_configured_to_store_nothing_stores_nothing() -> None:
    service = make_service(make_settings(user='[state_storage]\ntype = "none"\n[aliases]\nquick = "scripted/echo"'))
    response = await ask(service.endpoint_for("ann"), "hi", model="quick")
    error = await refusal(service.endpoint_for("ann"), "hi", model="quick", previous_response_id=response["id"])
    await service.aclose()
    assert (response["store"], error.code) == (False, "unsupported_parameter")


async def test_in_a_server_the_embedded_endpoint_always_stores_the_state(settings: Settings) -> None:
    service = make_service(settings)
    assert service.endpoint_for("ann").scope == EMBEDDED_SCOPE
    await service.aclose()


UNNEEDED_IMPORTS: list[tuple[str, set[str]]] = [
    (
        "import convo.chat.endpoint_factory",
        {"convo.endpoints.remote", "convo.responses_api.endpoint", "openai", "httpx2", "pydantic"},
    ),
    ("import convo.responses_api.endpoint", {"convo.endpoints.remote", "openai", "httpx2", "pydantic"}),
    ("import convo.endpoints.remote", {"convo.responses_api.endpoint", "openai", "httpx2", "pydantic"}),
]


@pytest.mark.parametrize(("program", "absent"), UNNEEDED_IMPORTS, ids=[program for program, _ in UNNEEDED_IMPORTS])
def test_unneeded_packages_are_not_imported(program: str, absent: set[str], tmp_path: Path) -> None:
    result: Any = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(result.stdout.split()) & absent == set()


@pytest.mark.parametrize("key", ["shared by two replicas", None])
async def test_gateways_with_the_same_key_decrypt_each_others_compactions(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """The gateways share no database. Without the setting, each of them has its own key."""
    if key:
        monkeypatch.setenv(settings.serve.seal_key_env, key)
    endpoint = open_provider("local", settings)
    service = open_service(settings, store=MemoryStore(), clock=SystemClock(), new_id=random_id)
    try:
        response = await ask(endpoint, [{"type": "compaction_trigger"}], model="scripted/echo")
        items = [*response["output"], {"role": "user", "content": "Go on."}]
        if key:
            assert texts((await ask(service.endpoint_for("local"), items, model="scripted/echo"))["output"]) == [
                "Go on."
            ]
        else:
            assert (
                await refusal(service.endpoint_for("local"), items, model="scripted/echo")
            ).code == "invalid_encrypted_content"
    finally:
        await service.aclose()
        await endpoint.aclose()


async def test_a_closed_model_is_not_used_again(settings: Settings) -> None:
    models = ModelsByName(settings, SystemClock(), random_id)
    closed_model, _ = models("groq/model")
    await models.aclose()
    assert models("groq/model")[0] is not closed_model
    await models.aclose()
