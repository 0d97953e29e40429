"""Cache diagnostics of a Claude model: the response to compare with is named by convo's id, and the result is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from convo.server.auth import KeysFile
from tests import databases
from tests.command_runner import ROOT, Convo
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.messages_events import sse, stop, text
from tests.server.api_keys import key_hash
from tests.server.gateway import RunningGateway, run_gateway

KEYS = {"ann": "convo_ann", "bob": "convo_bob"}
TOML = """
smart = "claude/claude-opus-5-5"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[providers.other]
api = "anthropic"
base_url = "{url}"
[providers.chat]
api = "chat"
base_url = "{url}"
"""
NO_ID = "resp_" + "0" * 32
OPTION = "prompt_cache_options.comparison_response_id"


def answer(upstream: ChatServer, message_id: str, **fields: Any) -> None:
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    start = {"type": "message_start", "message": {**message, "usage": {"input_tokens": 9}, **fields}}
    upstream.stream(sse(start), *text(0, "Hi."), *stop(), end=b"")


def ask(gateway: RunningGateway, user: str = "ann", **body: Any) -> Any:
    headers = {"authorization": f"Bearer {KEYS[user]}"}
    response = gateway.http.post("/v1/responses", json={"model": "smart", "input": "hi", **body}, headers=headers)
    assert response.status_code == 200, response.text
    return response


def compared(response_id: str | None) -> dict[str, Any]:
    return {"prompt_cache_options": {"comparison_response_id": response_id}}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_comparison_names_claudes_own_message_also_after_a_restart(
    kind: str, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:{tmp_path / 'convo.db'}" if kind == "sqlite" else databases.new_database()
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name} {key_hash(key)}\n" for name, key in KEYS.items()), encoding="utf-8")
    with run_chat_server() as upstream:
        options: dict[str, Any] = {"keys": KeysFile(keys), "toml": TOML.format(url=upstream.url.removesuffix("/v1"))}
        with run_gateway(tmp_path / "first", store, **options) as gateway:
            answer(upstream, "msg_first")
            first = ask(gateway, **compared(None))
            answer(upstream, "msg_unasked", diagnostics={"cache_miss_reason": None})
            unasked = ask(gateway, previous_response_id=first.json()["id"])
        assert upstream.requests[0].json["diagnostics"] == {"previous_message_id": None}
        assert "diagnostics" not in upstream.requests[1].json
        assert not {"prompt_cache_diagnostics", "upstream_response_id"} & {*first.json(), *unasked.json()}

        miss = {"type": "system_changed", "cache_missed_input_tokens": 1200}
        dropped = [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}]
        fields = {"diagnostics": {"cache_miss_reason": miss}, "input_transformations": dropped}
        with run_gateway(tmp_path / "second", store, **options) as gateway:
            answer(upstream, "msg_second", **fields)
            second = ask(gateway, instructions="Be brief.", **compared(first.json()["id"]))
            again = gateway.http.get(
                f"/v1/responses/{second.json()['id']}", headers={"authorization": f"Bearer {KEYS['ann']}"}
            )
            page = gateway.http.get(
                f"/inspect/api/conversations/{second.json()['id']}", headers={"authorization": f"Bearer {KEYS['ann']}"}
            )
    assert upstream.requests[2].json["diagnostics"] == {"previous_message_id": "msg_first"}
    assert "x-convo-ignored" not in second.headers
    assert second.json() == again.json()
    diagnostics = {
        "type": "cache_miss",
        "reason": "input_changed",
        "cache_missed_tokens": 1200,
        "comparison_reusable_tokens": None,
        "provider_reason": "system_changed",
    }
    assert second.json()["prompt_cache_diagnostics"] == diagnostics
    assert second.json()["input_transformations"][0]["reason"] == "prefix_mismatch"
    assert '"system_changed"' in page.text

    monkeypatch.setenv("CONVO_STORE", store)
    monkeypatch.setenv("CONVO_TENANT", "ann")
    document = convo("inspect", second.json()["id"], "--json").json()
    Draft202012Validator(json.loads((ROOT / "convo/schemas/inspect.json").read_text("utf-8"))).validate(document)
    assert document["links"][-1]["reported"]["upstream_response_id"] == "msg_second"
    shown = convo("inspect", second.json()["id"]).out
    assert "cache miss: system changed, about 1,200 tokens not reused" in shown
    assert "1 reasoning (prefix mismatch): the model did not receive them" in shown
    assert "msg_second" in shown


@pytest.mark.parametrize(
    ("diagnostics", "expected"),
    [
        (None, {"type": "cache_hit"}),
        ({"cache_miss_reason": None}, {"type": "unavailable"}),
        ({"cache_miss_reason": {"type": "unavailable"}}, {"type": "unavailable"}),
        ({"cache_miss_reason": {"type": "new_reason"}}, {"type": "unavailable"}),
        ({"cache_miss_reason": {"type": "previous_message_not_found"}}, {"type": "comparison_response_not_found"}),
        (
            {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 7}},
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 7},
        ),
    ],
)
def test_each_result_has_its_form_of_the_responses_api(tmp_path: Path, diagnostics: Any, expected: Any) -> None:
    with run_chat_server() as upstream:
        toml = TOML.format(url=upstream.url.removesuffix("/v1"))
        with run_gateway(tmp_path, toml=toml) as gateway:
            answer(upstream, "msg_1")
            first = gateway.create_response({"model": "smart", "input": "hi"}).json()
            answer(upstream, "msg_2", diagnostics=diagnostics)
            second = gateway.create_response({"model": "smart", "input": "hi", **compared(first["id"])}).json()
    assert expected.items() <= second["prompt_cache_diagnostics"].items()


def test_a_response_of_another_provider_or_tenant_is_not_compared_and_the_option_is_named(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name} {key_hash(key)}\n" for name, key in KEYS.items()), encoding="utf-8")
    with run_chat_server() as upstream:
        toml = TOML.format(url=upstream.url.removesuffix("/v1"))
        with run_gateway(tmp_path / "served", keys=KeysFile(keys), toml=toml) as gateway:
            answer(upstream, "msg_bob")
            other_tenant = ask(gateway, "bob").json()["id"]
            answer(upstream, "msg_other")
            other_provider = ask(gateway, model="other/claude-opus-5-5").json()["id"]
            answer(upstream, "msg_unstored")
            unstored = ask(gateway, store=False).json()["id"]
            for response_id in (NO_ID, "not an id", other_tenant, other_provider, unstored):
                answer(upstream, "msg_now")
                response = ask(gateway, **compared(response_id))
                assert response.headers["x-convo-ignored"] == OPTION
                assert "prompt_cache_diagnostics" not in response.json()
                assert upstream.requests[-1].json["diagnostics"] == {"previous_message_id": None}


def test_a_native_server_gets_its_own_id_and_no_id_that_it_does_not_know(tmp_path: Path) -> None:
    with run_chat_server() as upstream:
        toml = f'[providers.native]\napi = "responses"\nbase_url = "{upstream.url}"\n'
        with run_gateway(tmp_path, toml=toml) as gateway:
            asked: list[str | None] = [None]
            for number in range(3):
                done: dict[str, Any] = {"id": f"resp_upstream_{number}", "output": [], "usage": None}
                upstream.stream({"type": "response.completed", "response": done})
                body = {"model": "native/m", "input": "hi", **compared(asked[-1])}
                response = gateway.create_response(body)
                assert "upstream" not in response.text
                assert response.headers.get("x-convo-ignored") == (OPTION if number == 2 else None)
                asked.append(response.json()["id"] if number == 0 else NO_ID)
    options = [request.json["prompt_cache_options"] for request in upstream.requests]
    assert options == [{"comparison_response_id": None}, {"comparison_response_id": "resp_upstream_0"}, {}]
