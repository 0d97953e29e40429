"""A configuration file of Plano as settings, in the forms of its schema since the first archgw."""

import sys
from pathlib import Path
from typing import Any

import pytest

from convo.installation import make_install_command
from tests.command_runner import Convo

SERVED = """
version: v0.4.0
agents:
  - {id: weather_agent, url: "http://localhost:10510"}
listeners:
  - {type: agent, name: travel, port: 8001, router: plano_orchestrator_v1}
  - {type: model, name: model_1, address: 127.0.0.1, port: 12345, timeout: 30s}
model_providers:
  - model: openai/gpt-4o
    access_key: $OPENAI_API_KEY
    default: true
  - model: openai/gpt-4o-proxy
    base_url: https://litellm.example.com
    passthrough_auth: true
  - model: anthropic/claude-sonnet-4-6
    access_key: $PROD_KEY
  - model: anthropic/*
    access_key: ${ANTHROPIC_API_KEY}
  - model: groq/llama-3.3-70b-versatile
    access_key: $GROQ_API_KEY
    routing_preferences:
      - {name: code, description: write code}
  - model: zhipu/glm-4.6
    access_key: $ZHIPU_API_KEY
    base_url: https://api.z.ai
  - model: together_ai/openai/gpt-oss-20b
    access_key: sk-in-the-file
  - model: azure_openai/gpt-5-mini
    access_key: $AZURE_API_KEY
    base_url: https://mine.openai.azure.com
  - model: amazon_bedrock/us.amazon.nova-pro-v1:0
    base_url: https://bedrock-runtime.us-west-2.amazonaws.com
  - name: own
    model: local/llama2-7b
    base_url: http://localhost:8000/models/v2
    provider_interface: openai
model_aliases:
  fast: {target: gpt-4o}
  oss: {target: openai/gpt-oss-20b}
  smart: {target: claude-sonnet-4-6}
state_storage:
  type: postgres
  connection_string: "postgresql://me:$DB_PASSWORD@${DB_HOST}:5432/db"
tracing: {random_sampling: 100}
"""

UNUSED = (
    "agents, listeners.travel, listeners.timeout, model_providers.passthrough_auth,"
    " model_providers.routing_preferences,"
    " model_providers.access_key of together_ai/openai/gpt-oss-20b (name a variable, as in $API_KEY),"
    " model_providers amazon_bedrock/us.amazon.nova-pro-v1:0, tracing"
)


@pytest.fixture
def plano_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DB_PASSWORD", "s%23cret")
    monkeypatch.setenv("DB_HOST", "db.example.com")
    return tmp_path / "plano_config.yaml"


def settings_of(convo: Convo, file: Path, text: str) -> dict[str, Any]:
    """Return the settings that are from this text, by key."""
    file.write_text(text, encoding="utf-8")
    got = convo("--config", str(file), "config", "--json")
    assert got.exit == 0, got.err
    return {setting["key"]: setting["value"] for setting in got.json() if setting["place"] == str(file)}


def test_providers_aliases_default_listener_and_storage_become_settings(convo: Convo, plano_config: Path) -> None:
    """The provider of an entry has its prefix; another server or key of the same prefix gets a number."""
    assert settings_of(convo, plano_config, SERVED) == {
        "model": "openai/gpt-4o",
        "serve.host": "127.0.0.1",
        "serve.port": 12345,
        "state_storage": "postgresql://me:***@db.example.com:5432/db",
        "providers.openai.api": "responses",
        "providers.openai.base_url": "https://api.openai.com/v1",
        "providers.openai.key_env": "OPENAI_API_KEY",
        "providers.openai-2.api": "chat",
        "providers.openai-2.base_url": "https://litellm.example.com/v1",
        "providers.anthropic.api": "anthropic",
        "providers.anthropic.base_url": "https://api.anthropic.com",
        "providers.anthropic.key_env": "ANTHROPIC_API_KEY",
        "providers.anthropic-2.api": "anthropic",
        "providers.anthropic-2.base_url": "https://api.anthropic.com",
        "providers.anthropic-2.key_env": "PROD_KEY",
        "providers.groq.api": "chat",
        "providers.groq.base_url": "https://api.groq.com/openai/v1",
        "providers.groq.key_env": "GROQ_API_KEY",
        "providers.zhipu.api": "chat",
        "providers.zhipu.base_url": "https://api.z.ai/api/paas/v4",
        "providers.zhipu.key_env": "ZHIPU_API_KEY",
        "providers.together_ai.api": "chat",
        "providers.together_ai.base_url": "https://api.together.xyz/v1",
        "providers.azure_openai.api": "azure",
        "providers.azure_openai.base_url": "https://mine.openai.azure.com",
        "providers.azure_openai.key_env": "AZURE_API_KEY",
        "providers.local-2.api": "chat",
        "providers.local-2.base_url": "http://localhost:8000/models/v2",
        "aliases.fast": "openai/gpt-4o",
        "aliases.oss": "together_ai/openai/gpt-oss-20b",
        "aliases.smart": "anthropic-2/claude-sonnet-4-6",
        "aliases.gpt-4o": "openai/gpt-4o",
        "aliases.gpt-4o-proxy": "openai-2/gpt-4o-proxy",
        'aliases."openai/gpt-4o-proxy"': "openai-2/gpt-4o-proxy",
        "aliases.claude-sonnet-4-6": "anthropic-2/claude-sonnet-4-6",
        'aliases."anthropic/claude-sonnet-4-6"': "anthropic-2/claude-sonnet-4-6",
        'aliases."llama-3.3-70b-versatile"': "groq/llama-3.3-70b-versatile",
        'aliases."glm-4.6"': "zhipu/glm-4.6",
        "aliases.gpt-5-mini": "azure_openai/gpt-5-mini",
        "aliases.own": "local-2/llama2-7b",
        "aliases.llama2-7b": "local-2/llama2-7b",
        'aliases."local/llama2-7b"': "local-2/llama2-7b",
    }


def test_the_keys_that_are_not_used_are_named_once(convo: Convo, plano_config: Path) -> None:
    plano_config.write_text(SERVED, encoding="utf-8")

    assert convo("--config", str(plano_config), "config").err == f"convo: {plano_config}: not used: {UNUSED}\n"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("version: v0.1", "serve.port", 12000),
        ("listeners: [{type: model, name: m}]", "serve.port", 12000),
        ("listeners: {egress_traffic: {port: 51000}, ingress_traffic: {port: 10000}}", "serve.port", 51000),
        ("state_storage: {type: memory}", "state_storage", "memory"),
        ("llm_providers: [{model: gemini/g, access_key: $A}]", "providers.gemini.key_env", "A"),
        (
            "llm_providers: [{name: x, provider: openai, model: m, endpoint: 'vllm:8000', protocol: https}]",
            "providers.openai-2.base_url",
            "https://vllm:8000/v1",
        ),
        ("llm_providers: [{model: claude/c}]", "providers.claude.api", "anthropic"),
        ("model_providers: [{model: mine/a/b, base_url: 'http://x'}]", "providers.mine.base_url", "http://x/v1"),
        (
            "model_providers: [{model: openrouter/x/y, access_key: $A}, {model: x/y, base_url: 'http://x'}]\n"
            "model_aliases: {4: {target: x/y}}",
            "aliases.4",
            "x/y",
        ),
        ("model_providers: [{model: openai/*, access_key: $A}]\nmodel_aliases: {f: {target: o3}}", "aliases.f", "o3"),
    ],
)
def test_short_files_and_files_of_earlier_versions(
    convo: Convo, plano_config: Path, text: str, key: str, value: object
) -> None:
    assert settings_of(convo, plano_config, text)[key] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", ", line 1: is not YAML: expected the node content, but found '<stream end>'"),
        ("a: !!python/object/apply:os.system [ls]", ", line 1: is not YAML: could not determine a constructor for"),
        ("just words", ": is not a configuration of Plano: it must be a mapping"),
        ("[" * 2_000, ": is not YAML"),
        ("#" * 300_000, ": is larger than 256 KB, the limit of a YAML file"),
        ("model_providers: {model: a/b}", ": 'model_providers' must be a list"),
        ("model_providers: [a/b]", ": 'model_providers[0]' must be a mapping"),
        ("model_providers: [{access_key: $A}]", ": 'model_providers[0].model' must be provider/model"),
        ("model_providers: [{model: [a]}]", ": 'model_providers[0].model' must be a string"),
        ("model_providers: [{model: ollama/a, base_url: ftp://x}]", ": 'providers.ollama.base_url' must be a URL"),
        (
            "model_providers: [{model: a/b, base_url: 'http://me:pw@x'}]",
            "must be a URL without user, password or query",
        ),
        (
            "model_providers: [{model: groq/a, default: true}, {model: groq/b, default: true}]",
            ": 'model_providers' has more than one default",
        ),
        ("model_providers: []\nmodel_aliases: {a: b}", ": 'model_aliases.a' must be a mapping"),
        ("listeners: [{type: model, port: '80'}]", ": 'serve.port' must be a whole number, not a string"),
        ("state_storage: {type: redis}", ": 'state_storage.type' must be one of none, memory, sqlite, postgres"),
        (
            "state_storage: {type: postgres, connection_string: 'postgresql://$NOT_SET@h/d'}",
            ": 'state_storage.connection_string' refers to the variable NOT_SET, which is not set",
        ),
    ],
)
def test_an_invalid_file_is_refused_by_the_place_of_its_fault(
    convo: Convo, plano_config: Path, text: str, message: str
) -> None:
    plano_config.write_text(text, encoding="utf-8")
    got = convo("--config", str(plano_config), "serve")

    assert (got.exit, got.err.startswith(f"convo: {plano_config}")) == (2, True)
    assert message in got.err.replace("\n  ", " ")
    assert "pw" not in got.err


def test_a_missing_package_is_named_with_its_extra(
    convo: Convo, plano_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plano_config.write_text(SERVED, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "yaml", None)
    got = convo("--config", str(plano_config), "config")

    assert got.exit == 2
    assert "YAML needs the extra [yaml], which is not installed" in got.err.replace("\n  ", " ")
    assert make_install_command("yaml") in got.err


def test_a_listener_that_other_machines_reach_needs_keys(convo: Convo, plano_config: Path) -> None:
    plano_config.write_text("listeners: [{type: model, name: m, address: 0.0.0.0}]", encoding="utf-8")
    got = convo("serve", "--config", str(plano_config))

    assert got.exit == 2
    assert got.err.startswith("convo: 0.0.0.0 can be reached from other machines, and no API keys are set up\n")


def test_a_command_that_changes_settings_refuses_the_file(convo: Convo, plano_config: Path) -> None:
    plano_config.write_text(SERVED, encoding="utf-8")
    got = convo("--config", str(plano_config), "config", "set", "model", "groq/x")

    assert (got.exit, plano_config.read_text(encoding="utf-8")) == (2, SERVED)
    assert f"{plano_config}, line 2: is not TOML" in got.err
