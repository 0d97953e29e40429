"""`convo inspect` of a request with fields that were not sent to the model."""

from pathlib import Path

from tests.command_runner import Convo
from tests.models.chat_server import run_chat_server
from tests.server.gateway import run_gateway

CHAT = '[providers.chat]\napi = "chat"\nbase_url = "{url}"\n'


def test_inspect_names_the_request_fields_that_were_not_sent_to_the_model(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    (home / "data").mkdir(parents=True)
    with run_chat_server() as upstream:
        upstream.stream({"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]})
        with run_gateway(
            tmp_path / "served", f"sqlite:{home}/data/convo.db", toml=CHAT.format(url=upstream.url)
        ) as gateway:
            response = gateway.create_response(
                {"model": "chat/m", "input": "hi", "service_tier": "flex", "seed": 1}
            ).json()

    got, link = convo("inspect", response["id"]), convo("inspect", response["id"], "--json").json()["links"][0]

    assert set(link["ignored"]) == {"service_tier", "seed"}
    assert "not sent to the model: " in got.out
    assert "service_tier" in got.out


def test_settings_of_agents_that_were_not_sent_are_named_once(convo: Convo, home: Path, tmp_path: Path) -> None:
    settings = (
        "agents.ModelSettings(temperature=0.5, metadata={'a': 'b'}, extra_args={'seed': 1, 'service_tier': 'flex'})"
    )
    (tmp_path / "desk.py").write_text(
        f"import agents\n@agents.function_tool\ndef look() -> str:\n    return 'x'\n"
        f"desk = agents.Agent(name='desk', tools=[look], model_settings={settings})\n"
    )
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with run_chat_server() as upstream:
        upstream.stream({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        upstream.stream({"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]})
        (tmp_path / "convo.toml").write_text(CHAT.format(url=upstream.url))
        got = convo("--config", "convo.toml", "chat", "--agent", f"{tmp_path}/desk.py:desk", "-m", "chat/m", "hi")
    assert (got.exit, got.out) == (0, "hello\n"), got.err
    assert got.err.count("not sent to the model: seed, service_tier") == 1, got.err
