"""The fields that only a provider can know stay in a response: cache diagnostics, removed input, usage of tools."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from convo.history.records import MAX_REPORTED_BYTES, pick_reported_fields
from tests import databases
from tests.command_runner import ROOT, Convo
from tests.models.chat_server import run_chat_server
from tests.server.gateway import run_gateway

REPORTED: dict[str, Any] = {
    "prompt_cache_diagnostics": {
        "type": "cache_miss",
        "reason": "tools_changed",
        "cache_missed_tokens": 1200,
        "comparison_reusable_tokens": None,
    },
    "input_transformations": [
        {"id": f"rs_{number}", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"}
        for number in range(2)
    ],
    "tool_usage": {"web_search": {"num_requests": 3}, "x\u001b[31m": 1},
    "service_tier": "flex",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_a_provider_reports_is_in_the_response_the_store_and_the_views(
    kind: str, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:{tmp_path / 'convo.db'}" if kind == "sqlite" else databases.new_database()
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}
    with run_chat_server() as upstream:
        toml = f'[providers.native]\napi = "responses"\nbase_url = "{upstream.url}"\n'
        with run_gateway(tmp_path / "served", store, toml=toml) as gateway:
            for status, more in (
                ("completed", REPORTED),
                ("incomplete", {**REPORTED, "incomplete_details": {"reason": "max_output_tokens"}}),
                ("completed", {"tool_usage": None, "service_tier": "default"}),
            ):
                answer = {"output": [message], "usage": None, **more}
                upstream.stream({"type": f"response.{status}", "response": answer})
                response = gateway.create_response({"model": "native/m", "input": "hi"}).json()
                expected = {name: value for name, value in more.items() if name in REPORTED and value is not None}
                again = gateway.http.get(f"/v1/responses/{response['id']}").json()
                assert response == again
                assert {name: again[name] for name in REPORTED if name in again} == expected
                page = gateway.http.get(f"/inspect/api/conversations/{response['id']}").text
                assert ('"tools_changed"' in page) is (more["service_tier"] == "flex")
                if more["service_tier"] == "flex":
                    first = response["id"]

    monkeypatch.setenv("CONVO_STORE", store)
    document = convo("inspect", first, "--json").json()
    assert document["links"][-1]["reported"] == REPORTED
    schema = json.loads((ROOT / "convo" / "schemas" / "inspect.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    shown = convo("inspect", first).out
    assert "cache miss: tools changed, about 1,200 tokens not reused" in shown
    assert "2 reasoning (prefix mismatch): the model did not receive them" in shown
    assert '"num_requests": 3' in shown
    assert "service tier  flex" in shown
    assert "\x1b" not in shown


def test_a_large_report_is_replaced_by_its_size() -> None:
    value = "x" * MAX_REPORTED_BYTES
    assert pick_reported_fields({"tool_usage": value, "id": 1}) == {"tool_usage": {"omitted_bytes": len(value) + 2}}
