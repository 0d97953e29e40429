"""Precedence of the settings layers, and the source of each value."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from convo.config.loader import RecordedEndpoint, SettingFlags
from convo.config.sections import Price, Provider
from convo.config.settings import BUILT_IN_MODEL, ServeSettings
from convo.config.values import LAYER_NAMES, Layer
from convo.errors import InvalidSettings
from convo.terminal.settings_views import build_setting_reports
from tests.config.settings_inputs import PATHS, USER, WORK, make_settings, settings_inputs

MODEL: dict[Layer, dict[str, Any]] = {
    Layer.FLAG: {"flags": SettingFlags(model="by-flag")},
    Layer.ENVIRONMENT: {"environ": {"CONVO_MODEL": "by-environment"}},
    Layer.RECORD: {"record": RecordedEndpoint("tuesday", "by-record")},
    Layer.PROJECT: {"project": 'model = "by-project"'},
    Layer.USER: {"user": 'model = "by-user"'},
    Layer.DEFAULT: {},
}
"""The inputs through which each layer sets the model."""

NAMES = {
    Layer.FLAG: "by-flag",
    Layer.ENVIRONMENT: "by-environment",
    Layer.RECORD: "by-record",
    Layer.PROJECT: "by-project",
    Layer.USER: "by-user",
    Layer.DEFAULT: BUILT_IN_MODEL,
}

ORIGINS = {
    Layer.FLAG: "from -m",
    Layer.ENVIRONMENT: "from CONVO_MODEL",
    Layer.RECORD: "from session 'tuesday'",
    Layer.PROJECT: "from .convo.toml, /home/me/work",
    Layer.USER: "from config.toml, /home/me/.config/convo",
    Layer.DEFAULT: "built in; no key found",
}

URL: dict[Layer, dict[str, Any]] = {
    Layer.ENVIRONMENT: {"environ": {"OPENAI_BASE_URL": "https://environment/v1/"}},
    Layer.PROJECT: {"project": '[providers.openai]\nbase_url = "https://project/v1/"'},
    Layer.USER: {"user": '[providers.openai]\nbase_url = "https://user/v1/"'},
    Layer.DEFAULT: {},
}

STORE: dict[Layer, dict[str, Any]] = {
    Layer.FLAG: {"flags": SettingFlags(store="sqlite:flag.db")},
    Layer.ENVIRONMENT: {"environ": {"CONVO_STORE": "sqlite:environment.db"}},
    Layer.PROJECT: {"project": '[state_storage]\ntype = "sqlite"\nconnection_string = "project.db"'},
    Layer.USER: {"user": '[state_storage]\ntype = "sqlite"\nconnection_string = "user.db"'},
    Layer.DEFAULT: {},
}

FILES = {
    Layer.FLAG: WORK / "flag.db",
    Layer.ENVIRONMENT: WORK / "environment.db",
    Layer.PROJECT: WORK / "project.db",
    Layer.USER: USER / "user.db",
    Layer.DEFAULT: PATHS.database,
}


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(MODEL, 2)))
def test_the_stronger_of_two_layers_names_the_model(stronger: Layer, weaker: Layer) -> None:
    got = make_settings(**MODEL[weaker], **MODEL[stronger])

    assert got.model == NAMES[stronger]
    assert got.get_source("model").layer is stronger
    assert str(got.get_source("model")) == ORIGINS[stronger]


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(URL, 2)))
def test_the_stronger_of_two_layers_names_the_base_url(stronger: Layer, weaker: Layer) -> None:
    got = make_settings(**URL[weaker], **URL[stronger])

    base_url = f"https://{stronger.name.lower()}/v1"
    assert got.providers["openai"].base_url == base_url
    assert got.get_source("providers", "openai", "base_url").layer is stronger


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(STORE, 2)))
def test_the_stronger_of_two_layers_names_the_store(stronger: Layer, weaker: Layer) -> None:
    got = make_settings(**STORE[weaker], **STORE[stronger])

    assert got.storage.path == FILES[stronger]
    assert got.get_source("state_storage").layer is stronger


def test_of_all_six_layers_the_option_wins() -> None:
    everything = {name: value for setting in MODEL.values() for name, value in setting.items()}
    assert make_settings(**everything).model == "by-flag"


def test_layers_are_merged_value_by_value() -> None:
    """The project file changes the base URL of a provider in the user file and keeps its other fields."""
    got = make_settings(
        project='[providers.groq]\nbase_url = "http://127.0.0.1:9000/v1"',
        user='[providers.groq]\napi = "chat"\nbase_url = "https://api.groq.com/openai/v1"\nkey_env = "GROQ_API_KEY"',
    )

    assert got.providers["groq"] == Provider(
        "groq", "chat", base_url="http://127.0.0.1:9000/v1", key_env="GROQ_API_KEY"
    )
    assert got.get_source("providers", "groq", "base_url").location == "/home/me/work/.convo.toml"
    assert got.get_source("providers", "groq", "key_env").location == "/home/me/.config/convo/config.toml"


def test_the_storage_of_a_layer_is_not_merged() -> None:
    """The path of one layer is never combined with the type of another."""
    got = make_settings(
        project='[state_storage]\ntype = "sqlite"',
        user='[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me@db/convo"',
    )
    assert got.storage.path == PATHS.database


def test_a_price_of_a_layer_is_not_merged() -> None:
    got = make_settings(
        project='[prices]\n"groq/x" = {input = 1, output = 2}',
        user='[prices]\n"groq/x" = {input = 5, cached = 0.5, output = 9}',
    )
    assert got.prices["groq/x"] == Price(1.0, 2.0, cached=1.0, written=1.0)


def test_an_empty_variable_is_ignored() -> None:
    got = make_settings(environ={"CONVO_MODEL": "", "OPENAI_BASE_URL": "  ", "CONVO_STORE": ""}, user='model = "mine"')

    assert got.model == "mine"
    assert got.providers["openai"].base_url == "https://api.openai.com/v1"
    assert got.storage.path == PATHS.database


@pytest.mark.parametrize(
    ("environ", "model", "reason"),
    [
        ({"OPENAI_API_KEY": "sk-1"}, "openai/gpt-6.1-terra", "OPENAI_API_KEY is set"),
        ({"OPENAI_API_KEY": " "}, BUILT_IN_MODEL, "built in; no key found"),
        ({}, BUILT_IN_MODEL, "built in; no key found"),
    ],
)
def test_by_default_the_available_key_decides_the_model(environ: dict[str, str], model: str, reason: str) -> None:
    got = make_settings(environ=environ)
    assert (got.model, str(got.get_source("model"))) == (model, reason)


def test_the_key_variable_of_openai_in_the_settings_decides() -> None:
    moved = '[providers.openai]\nkey_env = "WORK_KEY"'

    assert make_settings(environ={"WORK_KEY": "sk-1"}, user=moved).model == "openai/gpt-6.1-terra"
    assert make_settings(environ={"OPENAI_API_KEY": "sk-1"}, user=moved).model == BUILT_IN_MODEL


def test_a_setting_is_printed_with_its_source() -> None:
    got = make_settings(
        project='model = "fast"\n[aliases]\n"gpt 5.1" = "groq/x"\n[prices]\n"groq/x" = {input = 1, output = 2}\n'
        '[windows]\n"groq/x" = {context = 128000, output = 16000}\n"groq/y" = {context = 8000}'
    )

    lines = [str(setting) for setting in got.entries if setting.source.layer is Layer.PROJECT]
    assert lines == [
        'aliases."gpt 5.1" = groq/x  (from .convo.toml, /home/me/work)',
        "model = fast  (from .convo.toml, /home/me/work)",
        'prices."groq/x" = input 1, cached 1, output 2 USD per million tokens  (from .convo.toml, /home/me/work)',
        'windows."groq/x" = 128,000 tokens, output up to 16,000  (from .convo.toml, /home/me/work)',
        'windows."groq/y" = 8,000 tokens  (from .convo.toml, /home/me/work)',
    ]


def test_every_effective_setting_is_listed_once_in_order() -> None:
    keys = [setting.key for setting in make_settings(SettingFlags(port=9000)).entries]

    assert keys == sorted(set(keys))
    assert {("model",), ("state_storage",), ("serve", "port"), ("providers", "openai", "key_env")} <= set(keys)


def test_the_address_of_serve_comes_from_options_and_files() -> None:
    got = make_settings(
        SettingFlags(port=0), user='[serve]\nhost = "0.0.0.0"\nport = 80\nkeys_file = "keys"\nseal_key_env = "SEAL"'
    )
    assert got.serve == ServeSettings("0.0.0.0", 0, USER / "keys", "SEAL")


def test_serve_is_loopback_without_keys_by_default() -> None:
    assert make_settings().serve == ServeSettings("127.0.0.1", 8788, None, "CONVO_SEAL_KEY")


def test_the_limits_of_serve_are_set_individually() -> None:
    got = make_settings(user="[serve]\nmax_body_bytes = 2048\nmax_depth = 20\nread_s = 5\ngrace_s = 0.5").serve
    assert (got.max_body_bytes, got.max_depth, got.read_s, got.grace_s) == (2048, 20, 5.0, 0.5)
    assert (got.max_items, got.keepalive_s) == (ServeSettings._field_defaults["max_items"], 15.0)


def test_an_option_names_the_keys_of_serve() -> None:
    assert (
        make_settings(SettingFlags(keys="keys"), user='[serve]\nkeys_file = "other"').serve.keys_file == WORK / "keys"
    )


@pytest.mark.parametrize(
    ("path_text", "path"),
    [("~/keys", Path("/home/me/keys")), ("/etc/keys", Path("/etc/keys")), ("../keys", WORK / "../keys")],
)
def test_a_path_in_a_file_is_relative_to_the_folder_of_the_file(path_text: str, path: Path) -> None:
    assert make_settings(project=f'[serve]\nkeys_file = "{path_text}"').serve.keys_file == path


def test_resolved_settings_cannot_be_changed() -> None:
    got = make_settings()
    with pytest.raises(AttributeError):
        got.model = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        got.providers["mine"] = got.providers["openai"]  # type: ignore[index]


def test_printing_the_sources_does_not_show_the_environment() -> None:
    text = repr(settings_inputs(environ={"OPENAI_API_KEY": "sk-secret"}, project="", user=""))
    assert text == (
        "SettingsInputs(folder='/home/me/work', "
        "files=['/home/me/work/.convo.toml', '/home/me/.config/convo/config.toml'])"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"flags": SettingFlags(model=" ")}, "-m must not be empty"),
        ({"flags": SettingFlags(port=70_000)}, "--port must be a port from 0 (any free one) to 65535"),
        (
            {"flags": SettingFlags(store="mysql://me:pw@db")},
            "--store must be none, memory, sqlite:PATH or postgresql://...",
        ),
        (
            {"environ": {"CONVO_STORE": "redis://me:pw@db"}},
            "CONVO_STORE must be none, memory, sqlite:PATH or postgresql://...",
        ),
        (
            {"environ": {"OPENAI_BASE_URL": "localhost:8000"}},
            "OPENAI_BASE_URL must be a URL: http:// or https://, a host, and an optional path",
        ),
        ({"environ": {"OLLAMA_HOST": "host:port"}}, "OLLAMA_HOST must be a host, host:port or URL"),
    ],
)
def test_an_invalid_option_or_variable_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(**arguments)
    assert (error.value.message, error.value.exit) == (message, 2)


def test_a_new_provider_must_declare_its_api() -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(project='[providers.groq]\nbase_url = "https://api.groq.com/openai/v1"')
    assert error.value.message == (
        "/home/me/work/.convo.toml: 'groq' is not a known provider, so 'providers.groq.api' must be set"
    )


def test_hosted_tools_of_a_server_that_has_them_cannot_be_set() -> None:
    assert (
        make_settings(user='[providers.x]\napi = "chat"\nhosted_tools = "omit"').providers["x"].hosted_tools == "omit"
    )
    with pytest.raises(
        InvalidSettings, match=r"'providers\.openai\.hosted_tools' has no effect with the API 'responses'"
    ):
        make_settings(user='[providers.openai]\nhosted_tools = "omit"')


def test_custom_tools_can_be_set_for_chat_completions_only() -> None:
    providers = make_settings(user='[providers.x]\napi = "chat"\ncustom_tools = "native"').providers
    assert (providers["x"].custom_tools, providers["deepseek"].custom_tools) == ("native", "auto")
    for name, api in (("openai", "responses"), ("anthropic", "anthropic")):
        with pytest.raises(
            InvalidSettings, match=f"'providers.{name}.custom_tools' has no effect with the API '{api}'"
        ):
            make_settings(user=f'[providers.{name}]\ncustom_tools = "native"')


def test_the_behavior_for_changed_prefixes_can_only_be_set_for_the_messages_api() -> None:
    claude = make_settings(user='[providers.anthropic]\nprefix_mismatch_behavior = "error"').providers["anthropic"]
    assert claude.prefix_mismatch_behavior == "error"
    with pytest.raises(
        InvalidSettings, match=r"'providers\.x\.prefix_mismatch_behavior' has no effect with the API 'chat'"
    ):
        make_settings(user='[providers.x]\napi = "chat"\nprefix_mismatch_behavior = "error"')


def test_the_tenant_comes_from_a_variable_or_a_file_and_defaults_to_local() -> None:
    assert make_settings().tenant == "local"
    assert make_settings(user='tenant = "bob"').tenant == "bob"
    assert make_settings(user='tenant = "bob"', environ={"CONVO_TENANT": "alice"}).tenant == "alice"


def test_a_tenant_must_be_a_valid_key_name() -> None:
    with pytest.raises(InvalidSettings, match="CONVO_TENANT must be a key name"):
        make_settings(environ={"CONVO_TENANT": "a b"})


def test_layer_names_are_stable() -> None:
    """Scripts use these names."""
    rows = build_setting_reports(make_settings(flags=SettingFlags(model="x/y"), user="compact_at = 0.5").entries)
    layers = {row.key: row.layer for row in rows}
    assert {key: layers[key] for key in ("model", "compact_at", "serve.port")} == {
        "model": "flag",
        "compact_at": "user",
        "serve.port": "default",
    }
    assert list(LAYER_NAMES.values()) == ["flag", "environment", "record", "profile", "project", "user", "default"]
    assert set(LAYER_NAMES) == set(Layer)
