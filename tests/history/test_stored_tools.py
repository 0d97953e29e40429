"""Credentials of tools are not stored."""

import pytest

from convo.history.records import strip_tool_secrets

TOOL = {
    "type": "function",
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"authorization": {"type": "string"}}},
}


@pytest.mark.parametrize(
    "way", ["me:hunter2@example.org:8443/mcp", "example.org:8443/s/hunter2/mcp?key=hunter2#hunter2"]
)
def test_of_an_mcp_server_only_its_label_and_url_are_stored(way: str) -> None:
    """For many servers the path or the query is the credential; the real API shows neither."""
    stripped = strip_tool_secrets(
        {"tools": [{"type": "mcp", "server_url": f"https://{way}"}], "tool_choice": {"headers": {"a": "b"}}}
    )
    assert stripped == {"tools": [{"type": "mcp", "server_url": "https://example.org:8443"}], "tool_choice": {}}


def test_no_credentials_of_a_tool_are_stored_at_any_depth() -> None:
    tool = {
        "type": "shell",
        "environment": {
            "type": "container_auto",
            "network_policy": {"type": "allowlist", "allowed_domains": ["a"], "domain_secrets": [{"value": "hunter2"}]},
        },
    }
    parameters = {"tools": [tool, {"type": "mcp", "server_url": "https://[broken@", "headers": {}}, TOOL], "top_p": 1}

    stripped = strip_tool_secrets(parameters)

    assert "hunter2" not in str(stripped)
    assert stripped["tools"][0]["environment"]["network_policy"] == {"type": "allowlist", "allowed_domains": ["a"]}
    assert stripped["tools"][1] == {"type": "mcp", "server_url": None}
    assert stripped["tools"][2] == TOOL
    assert "hunter2" in str(parameters)


@pytest.mark.parametrize("odd", [None, 5, "tools", [None, 5, "x", ["authorization"]]])
def test_a_value_that_is_no_tool_is_stored_unchanged(odd: object) -> None:
    assert strip_tool_secrets({"tools": odd}) == {"tools": odd}
