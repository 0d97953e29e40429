"""Code that repeats a recorded request: for the API that it was sent to, with its own body, headers and query."""

import json

import pytest

from convo.history.request_body import SentBody
from convo.inspect.request_code import CODE_LANGUAGES, CodeTarget, render_request_code, to_sent_target

MESSAGES = SentBody(
    "messages",
    "/v1/messages?beta=true",
    {"anthropic-version": "2023-06-01", "anthropic-beta": "context-1m"},
    {"model": "claude", "max_tokens": 5, "messages": [{"role": "user", "content": "It's $HOME"}], "x_new": 1},
)
CHAT = SentBody(
    "chat_completions",
    "/chat/completions",
    {},
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi."}], "top_k": 4},
)
RESPONSES = SentBody(
    "responses", "/responses", {}, {"model": "m", "input": "Hi.", "stream": True, "client_metadata": {}}
)


def render(language: str, sent: SentBody, base_url: str, key_env: str | None = "SOME_KEY") -> str:
    return render_request_code(language, to_sent_target(CodeTarget(base_url, key_env), sent), sent.body)


@pytest.mark.parametrize("base_url", ["https://api.anthropic.com", "http://127.0.0.1:8788/v1"])
def test_curl_sends_the_body_to_the_path_of_its_api_with_its_headers(base_url: str) -> None:
    command = render("curl", MESSAGES, base_url)
    assert f"{base_url.removesuffix('/v1')}/v1/messages?beta=true" in command
    assert '-H "x-api-key: ${SOME_KEY}"' in command
    assert "-H 'anthropic-beta: context-1m'" in command
    assert "Authorization" not in command
    script = command.replace("curl ", "cat; : ", 1).partition("\n")[2]
    body = script.partition("END_OF_REQUEST'\n")[2].rpartition("\nEND_OF_REQUEST")[0]
    assert json.loads(body) == MESSAGES.body


def test_curl_adds_nothing_to_a_body_and_names_the_key_of_other_apis() -> None:
    command = render("curl", CHAT, "https://models.example/v1")
    assert "https://models.example/v1/chat/completions" in command
    assert '-H "Authorization: Bearer ${SOME_KEY}"' in command
    assert command.count('"stream": true') == 1
    assert '"stream"' not in render("curl", MESSAGES, "https://api.anthropic.com")


@pytest.mark.parametrize(
    ("sent", "call", "extra"),
    [
        (MESSAGES, "client.messages.create(", '"x_new": 1'),
        (CHAT, "client.chat.completions.create(", '"top_k": 4'),
        (RESPONSES, "client.responses.create(", '"client_metadata": {}'),
    ],
)
def test_programs_use_the_package_of_the_api_and_pass_unknown_fields(sent: SentBody, call: str, extra: str) -> None:
    python = render("python", sent, "https://models.example/v1")
    compile(python, "request.py", "exec")
    assert call in python
    assert extra in python.partition("extra_body=")[2]
    javascript = render("javascript", sent, "https://models.example/v1")
    assert call in javascript
    for code, streamed in ((python, "for event in events:"), (javascript, "for await (const event of events)")):
        assert (streamed in code) == ("stream" in sent.body)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_headers_and_the_query_select_the_version_of_the_api(language: str) -> None:
    code = render(language, MESSAGES, "https://api.anthropic.com")
    assert '"anthropic-beta": "context-1m"' in code
    assert '"beta": "true"' in code
    assert 'baseURL: "https://api.anthropic.com"' in code or 'base_url="https://api.anthropic.com"' in code


def test_every_language_is_rendered_without_a_key() -> None:
    for language in CODE_LANGUAGES:
        assert "SOME_KEY" not in render(language, CHAT, "http://127.0.0.1:8788/v1", None)
