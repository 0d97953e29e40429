"""The models that a server offers to its clients, the lists of models, and endpoints that are made on first use."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from convo.chat.endpoint_factory import (
    LazyEndpoint,
    ModelsByName,
    ModelsForClients,
    build_model_resources,
    fetch_model_lists,
    open_catalogue,
    open_service,
)
from convo.config.model_lists import load_model_lists
from convo.config.paths import AppPaths
from convo.config.settings import Settings
from convo.endpoints.base import Endpoint
from convo.endpoints.remote import RemoteEndpoint
from convo.errors import EndpointFault, KeyRefused, ModelMissing, RequestRefused
from convo.history.records import EMBEDDED_SCOPE
from convo.models.weights import BUILT_IN_WEIGHTS
from convo.runtime import SystemClock, random_id
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock, counting_ids
from tests.config.settings_inputs import make_settings
from tests.models.chat_server import ChatServer, run_chat_server


@pytest.fixture
def paths(tmp_path: Path) -> AppPaths:
    return AppPaths(tmp_path / "data", tmp_path / "state", tmp_path / "config")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with run_chat_server() as running:
        yield running


def read_settings(text: str, paths: AppPaths) -> Settings:
    return make_settings(user=text)._replace(paths=paths)


def write_built_in_weights(paths: AppPaths) -> None:
    """Write a file of the size of the built-in weights, without content."""
    paths.weights.mkdir(parents=True)
    with (paths.weights / BUILT_IN_WEIGHTS.file).open("wb") as file:
        file.truncate(BUILT_IN_WEIGHTS.size_bytes)


# -- models by name --------------------------------------------------------------------------------

SETTINGS = """
model = "scripted/default.json"
[providers.far]
api = "chat"
base_url = "https://far.example/v1"
key_env = "FAR_KEY"
[aliases]
quick = "scripted/quick.json"
"""


@pytest.mark.parametrize(
    ("name", "provider_model"),
    [
        ("quick", "quick.json"),
        ("scripted/default.json", "default.json"),
        ("scripted/echo", "echo"),
        ("local/smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("local", "smollm2-135m-instruct"),
        ("far/any/model:1b", "any/model:1b"),
    ],
)
async def test_a_client_may_name_a_model_that_needs_no_file_or_that_the_settings_name(
    name: str, provider_model: str, paths: AppPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_KEY", "sk-1")
    write_built_in_weights(paths)
    models = ModelsForClients(read_settings(SETTINGS, paths), SystemClock(), random_id)
    assert models(name)[1] == provider_model
    await models.aclose()


@pytest.mark.parametrize(
    ("name", "provider"),
    [("scripted/other.json", "scripted"), ("local/other.gguf", "local"), ("scripted/echo2", "scripted")],
)
def test_a_client_may_not_name_another_file(name: str, provider: str, paths: AppPaths) -> None:
    models = ModelsForClients(read_settings(SETTINGS, paths), SystemClock(), random_id)
    with pytest.raises(RequestRefused) as caught:
        models(name)
    error = caught.value
    assert (error.message, error.code, error.param, error.status) == (
        f"The requested model '{name}' does not exist",
        "model_not_found",
        "model",
        400,
    )
    assert error.hint == f"{provider} has no model with this name on this server"


async def test_a_missing_key_is_an_error_of_the_server_only_for_its_clients(paths: AppPaths) -> None:
    settings = read_settings(SETTINGS, paths)
    with pytest.raises(KeyRefused):
        ModelsByName(settings, SystemClock(), random_id)("far/m")
    with pytest.raises(EndpointFault) as caught:
        ModelsForClients(settings, SystemClock(), random_id)("far/m")
    assert (caught.value.code, caught.value.message, caught.value.hint) == (
        "provider_key_refused",
        "this server has no usable key for far; GET /v1/models lists the available models",
        "the operator of this server must check the key of far",
    )


def test_an_unknown_model_names_the_request(paths: AppPaths) -> None:
    for models in (ModelsByName, ModelsForClients):
        with pytest.raises(RequestRefused) as caught:
            models(read_settings(SETTINGS, paths), SystemClock(), random_id)("nobody/m")
        assert caught.value.hint.startswith("the request: ")


# -- lists of models -------------------------------------------------------------------------------


def settings_with_servers(server: ChatServer, paths: AppPaths) -> Settings:
    text = f"""
model = "quick"
[providers.here]
api = "chat"
base_url = "{server.url}"
[providers.empty]
api = "chat"
base_url = "http://127.0.0.1:1/v1"
[providers.ollama]
base_url = "http://127.0.0.1:1/v1"
[aliases]
broken = "nobody/m"
quick = "scripted/echo"
"""
    return read_settings(text, paths)


def without_capabilities(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "capabilities"}


@pytest.mark.parametrize("has_weights", [False, True])
async def test_the_models_of_a_server_are_those_of_its_settings_and_its_providers(
    has_weights: bool, server: ChatServer, paths: AppPaths
) -> None:
    if has_weights:
        write_built_in_weights(paths)
    settings = settings_with_servers(server, paths)
    server.refuse(200, {"data": [{"id": "llama3.2:3b"}, {"id": "org/qwen", "shutdown_date": "2027-02-03"}]})
    service = open_service(settings, store=MemoryStore(), clock=FixedClock(7.9), new_id=counting_ids())

    listed = await service.list_models()

    names = [("quick", "scripted"), ("here/llama3.2:3b", "here"), ("here/org/qwen", "here")]
    if has_weights:
        names.insert(1, ("local/smollm2-135m-instruct", "local"))
    rows = [
        {
            "id": name,
            "object": "model",
            "created": 7,
            "owned_by": owner,
            "shutdown_date": "2027-02-03" if "qwen" in name else None,
        }
        for name, owner in names
    ]
    # the package with the weights may be installed
    assert [without_capabilities(row) for row in listed if has_weights or row["owned_by"] != "local"] == rows
    assert load_model_lists(paths) == {
        "here": {
            "base_url": server.url,
            "models": ["llama3.2:3b", "org/qwen"],
            "shutdown_dates": {"org/qwen": "2027-02-03"},
        }
    }
    await service.aclose()


async def test_a_model_of_a_list_is_found_without_its_provider(server: ChatServer, paths: AppPaths) -> None:
    settings = settings_with_servers(server, paths)
    models = ModelsByName(settings, SystemClock(), random_id)
    with pytest.raises(RequestRefused):
        models("llama3.2:3b")
    models.add_model_lists({"here": {"base_url": server.url, "models": ["llama3.2:3b"]}})
    models.add_model_lists({"empty": {"base_url": None, "models": ["other"]}})
    assert models("llama3.2:3b")[1] == "llama3.2:3b"
    await models.aclose()


async def test_a_provider_without_models_is_left_out_of_the_lists(server: ChatServer, paths: AppPaths) -> None:
    settings = settings_with_servers(server, paths)
    server.refuse(200, {"data": []})
    assert await fetch_model_lists(settings) == {}
    server.refuse(200, {"data": [{"id": "a"}]})
    assert await fetch_model_lists(settings) == {"here": (server.url, {"a": None})}


def test_a_model_of_the_settings_is_listed_once(paths: AppPaths) -> None:
    settings = read_settings('model = "far/a"\n[providers.far]\napi = "chat"\nbase_url = "https://far.example"', paths)
    rows = build_model_resources(settings, {"far": (None, dict.fromkeys("ab"))}, 5)
    assert [without_capabilities(row) for row in rows if row["owned_by"] != "local"] == [
        {"id": "far/a", "object": "model", "created": 5, "owned_by": "far", "shutdown_date": None},
        {"id": "far/b", "object": "model", "created": 5, "owned_by": "far", "shutdown_date": None},
    ]


def test_a_model_resource_tells_the_known_capabilities_of_its_model(paths: AppPaths) -> None:
    settings = read_settings(
        """
[aliases]
"openai/gpt-5" = "claude/claude-sonnet-5-20260101"
mini = "openai/gpt-5-mini"
[providers.claude]
api = "anthropic"
base_url = "https://claude.example"
[providers.mine]
api = "responses"
base_url = "https://mine.example/v1"
[prices."mine/m"]
input = 1.0
output = 2.0
[windows."mine/m"]
context = 1000
""",
        paths,
    )
    openai = {"gpt-5": None, "gpt-4o": "2027-03-04", "gpt-6.1-sol": None}
    rows = build_model_resources(settings, {"openai": (None, openai), "mine": (None, {"m": None})}, 5)
    by_id = {row["id"]: row for row in rows}
    dates = [by_id[name]["shutdown_date"] for name in ("mini", "openai/gpt-4o", "openai/gpt-6.1-sol")]
    assert dates == ["2026-12-11", "2027-03-04", None]
    assert by_id["openai/gpt-5"]["owned_by"] == "claude"  # the alias, not the model of that name
    claude = by_id["openai/gpt-5"]["capabilities"]
    assert (claude["context_window"], claude["max_output_tokens"], claude["reasoning"]) == (1_000_000, 128_000, True)
    assert claude["endpoints"] == ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]
    mini = by_id["mini"]["capabilities"]
    assert (mini["input_modalities"], mini["tools"], mini["reasoning"]) == (["text", "image", "file"], True, True)
    assert (mini["price"]["input"], mini["price"]["cached_input"], mini["price"]["output"]) == (0.25, 0.025, 2.0)
    assert mini["endpoints"] == ["/v1/responses", "/v1/chat/completions", "/v1/embeddings"]
    assert by_id["openai/gpt-4o"]["capabilities"]["reasoning"] is False
    sol = by_id["openai/gpt-6.1-sol"]["capabilities"]
    assert (sol["context_window"], sol["reasoning"], sol["price"]["cache_write"]) == (1_050_000, True, 2.5)
    price = {"input": 1.0, "cached_input": 1.0, "cache_write": 1.0, "output": 2.0, "max_input_tokens": None}
    assert by_id["mine/m"]["capabilities"] == {
        "context_window": 1000,
        **dict.fromkeys(("max_output_tokens", "input_modalities", "tools", "reasoning")),
        "price": {**price, "source": "your settings"},
        "endpoints": ["/v1/responses"],
        "state": "convo",
        "steering": True,
    }


# -- the server that lists the models of a provider ------------------------------------------------


async def test_a_provider_is_asked_for_its_models_where_it_has_a_server(
    paths: AppPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "FAR_KEY"):
        monkeypatch.delenv(name, raising=False)
    environ = {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com"}
    settings = make_settings(user=SETTINGS, environ=environ)
    providers = settings.providers
    for name in ("openai", "azure", "far"):
        with pytest.raises(KeyRefused):
            open_catalogue(providers[name], paths.weights)
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "FAR_KEY"):
        monkeypatch.setenv(name, "sk-1")

    assert open_catalogue(providers["azure"], paths.weights) is None
    assert open_catalogue(providers["scripted"], paths.weights) is None
    openai: Any = open_catalogue(providers["openai"], paths.weights)
    assert isinstance(openai, RemoteEndpoint)
    far: Any = open_catalogue(providers["far"], paths.weights)
    assert far is not None
    assert not isinstance(far, RemoteEndpoint)
    for lister in (openai, far):
        await lister.aclose()


def test_the_built_in_model_is_listed_where_its_weights_are(paths: AppPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    local = make_settings().providers["local"]
    monkeypatch.setattr("convo.models.weights.find_spec", lambda name: find_spec(name) if name == "xllamacpp" else None)
    with pytest.raises(ModelMissing, match="weights"):
        open_catalogue(local, paths.weights)
    write_built_in_weights(paths)
    open_catalogue(local, paths.weights)


# -- endpoints that are made when they are used ----------------------------------------------------


class ClosableEndpoint:
    """An endpoint that records whether it was closed."""

    name = "mine"

    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


async def test_an_endpoint_is_made_once_on_first_use() -> None:
    made: list[ClosableEndpoint] = []

    def make() -> Endpoint:
        made.append(ClosableEndpoint())
        return cast(Endpoint, made[-1])

    unused, used = LazyEndpoint(EMBEDDED_SCOPE, make), LazyEndpoint(EMBEDDED_SCOPE, make)
    assert (unused.scope, made) == (EMBEDDED_SCOPE, [])
    await unused.aclose()
    assert made == []
    assert [used.name, used.name, len(made), made[0].is_closed] == ["mine", "mine", 1, False]
    await used.aclose()
    assert made[0].is_closed
