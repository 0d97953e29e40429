"""The gateway passes llm-comply, a public test suite for the Open Responses specification."""

import json
import subprocess
import sys
from typing import Any

from tests.clients.conftest import ALIAS
from tests.clients.upstream import Upstream

TESTS = 13


def comply(base_url: str) -> Any:
    """The JSON report of llm-comply about the server."""
    arguments = ["--base-url", base_url, "--api-key", "any", "--model", ALIAS, "--json"]
    command = [sys.executable, "-m", "llm_comply.cli", *arguments]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def test_every_rule_of_llm_comply_passes_and_none_is_skipped(base_url: str) -> None:
    report = comply(base_url)
    results = report["results"]
    assert {rule["id"]: rule for rule in results if rule["status"] != "passed"} == {}
    assert len(results) == TESTS


def test_images_tools_and_reasoning_settings_are_sent_to_the_model(base_url: str, upstream: Upstream) -> None:
    comply(base_url)
    parts = [part for request in upstream.requests for part in parts_of(request)]
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert len(images) == 1
    assert images[0].startswith("data:image/jpeg;base64,/9j/")
    tools = [request["tools"][0]["function"]["name"] for request in upstream.requests if request.get("tools")]
    assert tools == ["get_weather"]
    assert [request["tool_choice"] for request in upstream.requests if request.get("tools")] == ["required"]
    assert [request["reasoning_effort"] for request in upstream.requests if "reasoning_effort" in request] == ["low"]
    developer = [
        message for request in upstream.requests for message in request["messages"] if message["role"] != "user"
    ]
    assert "Always respond in exactly one word." in [message["content"] for message in developer]


def parts_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    contents = [message.get("content") for message in request["messages"]]
    return [part for content in contents if isinstance(content, list) for part in content]
