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
    asked = ["--base-url", base_url, "--api-key", "any", "--model", ALIAS, "--json"]
    command = [sys.executable, "-m", "llm_comply.cli", *asked]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_every_rule_of_llm_comply_passes_and_none_is_skipped(base_url: str) -> None:
    report = comply(base_url)
    results = report["results"]
    assert {found["id"]: found for found in results if found["status"] != "passed"} == {}
    assert len(results) == TESTS


def test_images_tools_and_reasoning_settings_are_sent_to_the_model(base_url: str, upstream: Upstream) -> None:
    comply(base_url)
    parts = [part for asked in upstream.requests for part in parts_of(asked)]
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert len(images) == 1
    assert images[0].startswith("data:image/jpeg;base64,/9j/")
    tools = [asked["tools"][0]["function"]["name"] for asked in upstream.requests if asked.get("tools")]
    assert tools == ["get_weather"]
    assert [asked["tool_choice"] for asked in upstream.requests if asked.get("tools")] == ["required"]
    assert [asked["reasoning_effort"] for asked in upstream.requests if "reasoning_effort" in asked] == ["low"]
    developer = [message for asked in upstream.requests for message in asked["messages"] if message["role"] != "user"]
    assert "Always respond in exactly one word." in [message["content"] for message in developer]


def parts_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
    contents = [message.get("content") for message in asked["messages"]]
    return [part for content in contents if isinstance(content, list) for part in content]
