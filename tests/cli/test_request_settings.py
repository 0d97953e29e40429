"""Settings for the fields of requests: for all models in [request], for one model in [models."provider/model"]."""

import json
from pathlib import Path
from shlex import quote
from typing import Any, get_args

import pytest
from openai.types.shared import ReasoningEffort

from tests.cli.agent_files import agent_flags
from tests.cli.doctor_checks import run_check
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer

MODEL = "openai/gpt-4o"

SETTINGS = f"""
[request]
temperature = 0.1
verbosity = "low"
max_output_tokens = 10
reasoning_effort = "low"
param.service_tier = "flex"

[models."{MODEL}"]
temperature = 0.2
top_p = 0.2
max_output_tokens = 20
param."reasoning.summary" = "auto"

[profiles.work.request]
max_output_tokens = 30
reasoning_effort = "medium"

[profiles.work.models."{MODEL}"]
reasoning_effort = "high"

[aliases]
mine = "{MODEL}"
"""


@pytest.fixture
def settings_file(home: Path) -> Path:
    """The user's settings file, with settings at every level."""
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(SETTINGS)
    return path


def sent_fields(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in body if name not in ("input", "model", "store", "stream", "include")}


@pytest.mark.usefixtures("settings_file")
@pytest.mark.parametrize("strategy", ["session", "replay", "chain", "conversation"])
def test_a_setting_for_the_model_precedes_a_general_setting(
    strategy: str, server: LoopbackServer, convo: Convo
) -> None:
    got = convo("chat", f"--{strategy}", "-m", MODEL, "hi")
    assert got.exit == 0, got
    fields = sent_fields(server.bodies[-1])
    fields.pop("conversation", None)
    assert fields == {
        "temperature": 0.2,
        "top_p": 0.2,
        "max_output_tokens": 20,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "service_tier": "flex",
    }


@pytest.mark.usefixtures("settings_file")
def test_a_profile_precedes_the_settings_of_the_model_and_a_flag_precedes_both(
    server: LoopbackServer, convo: Convo
) -> None:
    flags = ("--temperature", "0.4", "--param", "reasoning.summary=concise", "--param", "service_tier=null")
    got = convo("--profile", "work", "chat", "-m", "mine", *flags, "hi")
    assert got.exit == 0, got
    assert sent_fields(server.bodies[0]) == {
        "temperature": 0.4,
        "top_p": 0.2,
        "max_output_tokens": 30,
        "reasoning": {"effort": "high", "summary": "concise"},
        "text": {"verbosity": "low"},
        "service_tier": None,
    }


@pytest.mark.usefixtures("settings_file")
def test_another_model_has_only_the_general_settings(server: LoopbackServer, convo: Convo) -> None:
    convo("chat", "-m", "openai/gpt-4.1", "hi")
    assert sent_fields(server.bodies[0]) == {
        "temperature": 0.1,
        "max_output_tokens": 10,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "service_tier": "flex",
    }


@pytest.mark.usefixtures("settings_file")
def test_an_agents_own_model_has_its_settings_and_the_agents_settings_precede_them(
    server: LoopbackServer, convo: Convo
) -> None:
    text = f'from convo.agents import Agent\nbot = Agent("bot", model="{MODEL}", settings={{"top_p": 0.9}})\n'
    got = convo("chat", *agent_flags("bot", text), "hi")
    assert got.exit == 0, got
    assert (server.bodies[0]["top_p"], server.bodies[0]["temperature"]) == (0.9, 0.2)


@pytest.mark.usefixtures("settings_file", "server")
def test_the_next_request_has_the_settings_of_its_model(convo: Convo) -> None:
    convo("chat", "-n", "talk", "-m", MODEL, "hi")
    assert convo("next", "talk", "and?", "--json").json()["body"]["temperature"] == 0.2
    assert convo("next", "talk", "and?", "-m", "openai/gpt-4.1", "--json").json()["body"]["temperature"] == 0.1


def test_a_setting_for_one_model_is_set_listed_and_removed(convo: Convo, home: Path) -> None:
    table = f'models."{MODEL}"'
    for name, value, listed in [
        ("temperature", "1", 1),
        ("verbosity", "low", "low"),
        ("param.service_tier", "flex", "flex"),
        ("param.parallel_tool_calls", "false", False),
        ('param."metadata.team"', '"5"', "5"),
        ("param.include", '["reasoning.encrypted_content"]', "['reasoning.encrypted_content']"),
    ]:
        got = convo("config", "set", f"{table}.{name}", value)
        assert got.exit == 0, got
        [row] = convo("config", "list", f"{table}.{name}", "--json").json()
        assert (row["value"], row["layer"]) == (listed, "user")
    listed_table = convo("config", "list", table)
    assert f"{table}.verbosity" in listed_table.out
    assert f"from config.toml, {home / 'config'}" in listed_table.out
    assert convo("config", "unset", f"{table}.verbosity").exit == 0
    assert convo("config", "list", f"{table}.verbosity").exit == 5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (f'models."{MODEL}".temprature', "1", "did you mean 'temperature'?"),
        (f'models."{MODEL}".effort', "low", "did you mean 'reasoning_effort'?"),
        (f'models."{MODEL}".effort', "low", f"try: convo config set 'models.\"{MODEL}\".reasoning_effort' VALUE"),
        (f'models."{MODEL}"', "3", f"try: convo config set 'models.\"{MODEL}\".temperature' VALUE"),
        (f'models."{MODEL}".temperature', "2.1", "must be from 0 to 2"),
        ("request.top_p", "low", "must be a number, not a string"),
        ("request.max_output_tokens", "0", "must be at least 1"),
        ("models.mine.temperature", "1", "is not a full model name, provider/model"),
        ("models.openai/gpt-4.1.temperature", "1", """'models."openai/gpt-4.1".temperature'"""),
        ("request.param.model", "x", "cannot be set: convo sets this field itself"),
        ("request.param.temperature", "1", "has its own setting, temperature"),
        ('request.param."text.verbosity"', "low", "has its own setting, verbosity"),
        ("request.param.reasoning", "1", """is an object: set its members, as in param."reasoning.summary"""),
        ("request.param.metadata", '{team = "docs"}', "must be one value, not a table"),
        ("request.param.tools", "[1]", """is not a list like [{"type": "web_search"}]"""),
        ("request.param.seed", "nan", "must be a value that JSON can express"),
        ("request.param.seed", "2020-01-01", "must be a value that JSON can express, not a date or time"),
        ("request.param.a-b", "1", "is not the name of a field of a request"),
    ],
)
def test_an_invalid_setting_for_requests_is_refused_by_name(
    key: str, value: str, message: str, convo: Convo, home: Path
) -> None:
    got = convo("config", "set", key, value)
    assert (got.exit, got.out) == (2, "")
    assert message in got.err
    assert "\n  try: " in got.err
    assert not (home / "config" / "config.toml").exists()


def test_a_field_and_its_member_cannot_both_be_set(convo: Convo, home: Path) -> None:
    convo("config", "set", "request.param.a", "1")
    got = convo("config", "set", 'request.param."a.b"', "1")
    assert got.exit == 2
    assert """'request.param."a.b"' and 'request.param.a' are both set""" in got.err
    assert '"a.b"' not in (home / "config" / "config.toml").read_text()


def test_an_untrusted_project_file_sets_no_field_of_a_request(server: LoopbackServer, convo: Convo) -> None:
    Path(".convo.toml").write_text(f'[request]\ntemperature = 1\n[models."{MODEL}"]\ntop_p = 1\n')
    got = convo("chat", "-m", MODEL, "hi")
    assert "request.temperature" in got.err
    assert sent_fields(server.bodies[0]) == {}


@pytest.mark.usefixtures("settings_file")
def test_a_schema_replaces_the_format_and_keeps_the_verbosity(
    server: LoopbackServer, convo: Convo, settings_file: Path
) -> None:
    settings_file.write_text('[request]\nverbosity = "low"\nparam."text.format" = 1\n')
    Path("form.json").write_text(json.dumps({"type": "object"}))
    convo("chat", "--schema", "form.json", "hi")
    assert server.bodies[0]["text"]["verbosity"] == "low"
    assert server.bodies[0]["text"]["format"]["name"] == "form"


@pytest.mark.parametrize("flags", [(), ("--json",), ("--tool", "desk.py:look_up")])
def test_a_field_that_the_model_refuses_is_reported_with_its_setting(
    flags: tuple[str, ...], convo: Convo, settings_file: Path
) -> None:
    settings_file.write_text("[request.param]\ntempo = 1\n")
    Path("desk.py").write_text("def look_up(order: str) -> str:\n    return order\n")
    got = convo("chat", "-m", "scripted/echo", *flags, "hi")
    source = f"tempo is set by request.param.tempo from config.toml, {settings_file.parent}"
    assert got.exit == 1
    assert f"Unknown parameter: 'tempo'; {source}" in (got.json()["error"]["message"] if "--json" in flags else got.err)
    assert "is set by" not in convo("chat", "-m", "scripted/echo", "--param", "tempo=2", *flags, "hi").err


BUILT_IN_MODEL = "local/smollm2-135m-instruct"


def test_a_setting_that_the_built_in_model_refuses_is_named(convo: Convo, settings_file: Path) -> None:
    settings_file.write_text(f'[models."{BUILT_IN_MODEL}"]\nreasoning_effort = "low"\n')
    got = convo("chat", "-m", "local", "hi")
    setting = f'models."{BUILT_IN_MODEL}".reasoning_effort'
    assert f"does not support a reasoning effort; reasoning.effort is set by {setting} from" in got.err
    assert got.err.endswith("try: choose another model with -m, or remove that setting (convo config unset)\n")


@pytest.mark.usefixtures("settings_file")
def test_the_next_request_of_an_agent_with_its_own_model_has_the_settings_of_that_model(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
from convo.agents import Agent
billing = Agent("billing", model="{MODEL}")
triage = Agent("triage", handoffs=(billing,))
"""
    flags = agent_flags("triage", text)
    server.replies({"call": {"name": "transfer_to_billing", "call_id": "h0"}}, {"error": {"status": 400}})
    assert convo("chat", *flags, "-n", "talk", "hi").exit == 1
    monkeypatch.setenv("CONVO_MODEL", "openai/gpt-4.1")  # otherwise that model is the one of the session
    body = convo("next", "talk", *flags, "--json").json()["body"]
    assert (body["model"], body["temperature"], body["top_p"]) == ("gpt-4o", 0.2, 0.2)


@pytest.mark.usefixtures("settings_file")
def test_a_race_has_the_settings_of_its_model(server: LoopbackServer, convo: Convo) -> None:
    assert convo("race", "-m", MODEL, "hi").exit == 0
    assert [body["temperature"] for body in server.bodies if "temperature" in body] == [0.2] * 4


def test_a_setting_for_a_model_of_an_unknown_provider_is_reported(convo: Convo) -> None:
    got = convo("config", "set", 'models."opnai/gpt-5".temperature', "1")
    message = """models."opnai/gpt-5".temperature has no effect: there is no provider 'opnai'; did you mean 'openai'?"""
    assert got.exit == 0
    assert message in got.err
    assert run_check(convo, "settings")["found"] == message
    assert "no effect" not in convo("config", "set", 'models."openai/gpt-5".temperature', "1").err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("request.reasoning_effort", "hihg"),
        ("profiles.work.request.reasoning_effort", "hihg"),
        (f'models."{MODEL}".reasoning_effort', "hihg"),
    ],
)
def test_an_effort_that_the_api_does_not_know_is_refused(key: str, value: str, convo: Convo, home: Path) -> None:
    got = convo("config", "set", key, value)
    assert (got.exit, got.out) == (2, "")
    efforts = ", ".join(get_args(get_args(ReasoningEffort)[0]))
    assert got.err.endswith(f"must be one of {efforts}\n  try: convo config set {quote(key)} high\n")
    assert not (home / "config" / "config.toml").exists()
    assert convo("config", "set", key, "xhigh").exit == 0


def test_an_effort_of_another_provider_or_an_older_file_is_accepted(
    server: LoopbackServer, convo: Convo, settings_file: Path
) -> None:
    settings_file.write_text('[request]\nreasoning_effort = "ultra"\n')
    assert convo("config", "set", 'models."ollama/m".reasoning_effort', "ultra").exit == 0
    got = convo("chat", "-m", MODEL, "hi")
    assert server.bodies[0]["reasoning"] == {"effort": "ultra"}
    assert "Invalid value: 'ultra'. Supported values are" in got.err
    assert got.err.endswith(", or remove that setting (convo config unset)\n")


@pytest.mark.needs("weights")
def test_the_effort_for_all_models_does_not_stop_the_built_in_model(convo: Convo, settings_file: Path) -> None:
    settings_file.write_text('[request]\nreasoning_effort = "low"\n')
    got = convo("chat", "-m", "local", "--max-output-tokens", "2", "-n", "talk", "hi")
    setting = f"request.reasoning_effort from config.toml, {settings_file.parent}"
    note = f"{setting} is ignored: {BUILT_IN_MODEL} does not support a reasoning effort\n"
    assert (got.exit, got.err.count(note)) == (1, 1), got  # exit code of an incomplete answer
    assert "incomplete (max_output_tokens)" in got.err
    following = convo("next", "talk", "and?", "--json")
    assert ("reasoning" in following.json()["body"], following.err.count(note)) == (False, 1)
    refused = convo("chat", "-m", "local", "--reasoning-effort", "high", "hi")
    assert (refused.exit, refused.err.count(note)) == (1, 1)
    assert f"{BUILT_IN_MODEL} does not support a reasoning effort\n  try: choose another model with -m" in refused.err
    assert "is ignored" not in convo("chat", "-m", "scripted/echo", "hi").err


def test_the_effort_for_all_models_is_not_sent_to_an_older_claude(
    server: LoopbackServer, convo: Convo, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    settings_file.write_text('[request]\nreasoning_effort = "low"\n')
    convo("chat", "-m", MODEL, "-n", "talk", "hi")
    older = convo("next", "talk", "and?", "-m", "anthropic/claude-3-5-haiku-20241022", "--json")
    assert "anthropic/claude-3-5-haiku-20241022 does not support a reasoning effort" in older.err
    assert "reasoning" not in older.json()["body"]
    newer = convo("next", "talk", "and?", "-m", "anthropic/claude-opus-4-8", "--json")
    assert (newer.json()["body"]["reasoning"], newer.err) == ({"effort": "low"}, "")
