"""Stored records: their handles, endpoints and parameters."""

from dataclasses import replace
from typing import Any

import pytest

from convo.history.records import (
    EMBEDDED_SCOPE,
    Link,
    Scope,
    Session,
    Strategy,
    client_parameters,
    effective_parameters,
    strip_tool_secrets,
)
from convo.history.tree import root_key

ROOT = root_key("local")
SESSION = Session("ses_1", "mine", Strategy.SESSION, "local/demo", ROOT, ROOT, created_at=1.0, used_at=2.0)


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope(), "embedded"),
        (Scope("https://a"), "https://a"),
        (Scope("https://a", "org"), "https://a (org)"),
        (Scope("https://a", None, "proj"), "https://a (proj)"),
        (Scope("https://a", "org", "proj"), "https://a (org, proj)"),
    ],
)
def test_a_scope_is_shown_with_its_account(scope: Scope, text: str) -> None:
    assert str(scope) == text


@pytest.mark.parametrize(
    ("strategy", "file", "conversation"),
    [
        (Strategy.REPLAY, "h", None),
        (Strategy.CONVERSATION, None, "h"),
        (Strategy.CHAIN, None, None),
        (Strategy.SESSION, None, None),
    ],
)
def test_the_strategy_says_what_a_handle_is(strategy: Strategy, file: str | None, conversation: str | None) -> None:
    session = replace(SESSION, strategy=strategy, handle="h")
    assert (session.replay_file, session.conversation_id) == (file, conversation)


def test_a_record_belongs_to_the_store_unless_it_names_an_endpoint() -> None:
    link = Link("resp_1", ROOT, ROOT, 0, "m", Strategy.CHAIN, "completed", 0.0)
    assert (SESSION.scope, link.scope, link.is_stored, link.parameters) == (EMBEDDED_SCOPE, EMBEDDED_SCOPE, True, {})


def test_the_order_of_use_does_not_make_another_session() -> None:
    assert replace(SESSION, use_order=1) == replace(SESSION, use_order=2)


PARAMETERS = {"top_p": 1, "reasoning": {"effort": "low", "summary": "auto"}, "convo.provider": "openai"}


@pytest.mark.parametrize(
    ("ignored", "effective"),
    [
        (None, {"top_p": 1, "reasoning": {"effort": "low", "summary": "auto"}}),
        ([], {"top_p": 1, "reasoning": {"effort": "low", "summary": "auto"}}),
        (["top_p"], {"reasoning": {"effort": "low", "summary": "auto"}}),
        (["reasoning"], {"top_p": 1}),
        (["reasoning.effort"], {"top_p": 1, "reasoning": {"summary": "auto"}}),
        (["reasoning", "reasoning.effort"], {"top_p": 1}),
    ],
)
def test_ignored_parameters_are_no_part_of_a_response(ignored: list[str] | None, effective: dict[str, Any]) -> None:
    parameters = PARAMETERS if ignored is None else {**PARAMETERS, "ignored": ignored}
    assert effective_parameters(parameters) == effective
    assert client_parameters(parameters) == {"top_p": 1, "reasoning": {"effort": "low", "summary": "auto"}}


@pytest.mark.parametrize("name", ["authorization", "headers", "api_key", "access_token", "password", "domain_secrets"])
def test_each_credential_of_a_hosted_tool_is_stripped(name: str) -> None:
    tool = {"type": "mcp", "server_label": "x", name: "hunter2"}
    stripped = strip_tool_secrets({"tools": [tool], "tool_choice": {"type": "mcp", name: "hunter2"}})
    assert stripped == {"tools": [{"type": "mcp", "server_label": "x"}], "tool_choice": {"type": "mcp"}}


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_the_schema_of_a_client_tool_stays(kind: str) -> None:
    tool = {"type": kind, "parameters": {"properties": {"password": {}, "server_url": "https://a/b"}}}
    assert strip_tool_secrets({"tools": [tool]}) == {"tools": [tool]}


@pytest.mark.parametrize(("url", "displayed"), [(7, None), ("", None), ("https://a.b:1/c?d#e", "https://a.b:1")])
def test_a_server_url_is_shown_without_its_path(url: object, displayed: str | None) -> None:
    assert strip_tool_secrets({"tools": [{"type": "mcp", "server_url": url}]})["tools"][0]["server_url"] == displayed


def test_credentials_in_lists_are_stripped() -> None:
    tool = {"type": "shell", "skills": [{"name": "a", "api_key": "hunter2"}, ["b", {"password": "hunter2"}]]}
    assert strip_tool_secrets({"tools": [tool]}) == {"tools": [{"type": "shell", "skills": [{"name": "a"}, ["b", {}]]}]}
