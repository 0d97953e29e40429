"""Chat completions, embeddings and Anthropic's Messages pass through to the provider of the model."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError
from anthropic import RateLimitError as AnthropicRateLimitError
from openai import APIError, NotFoundError, OpenAI, RateLimitError

from convo.models.pass_through import replace_model
from convo.server.auth import KeysFile
from tests.models.chat_server import ChatServer, delta, run_chat_server, usage_fields
from tests.server.api_keys import key_hash
from tests.server.gateway import RunningGateway, run_gateway

KEY = "convo_test-key"

CHAT_BODY = (
    b'{"id":"chatcmpl-1", "object":"chat.completion","created":1,"model":"own-name","extra":[1.50],"choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,'
    b'"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":5}}}\n'
)
MESSAGE_BODY = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Hi."}],'
    b'"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2,'
    b'"cache_read_input_tokens":4,"cache_creation_input_tokens":1}}'
)


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture(scope="module")
def served(upstream: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with keys, in front of one server that speaks every API."""
    folder = tmp_path_factory.mktemp("passing")
    keys = folder / "keys"
    keys.write_text(f"shop {key_hash(KEY)}\n", encoding="utf-8")
    environment = pytest.MonkeyPatch()
    environment.setenv("UP_KEY", "sk-upstream-secret")
    root = upstream.url.removesuffix("/v1")
    toml = f"""
fast = "up/own-name"
"openai/gpt-5" = "claude/claude-sonnet-5"
[providers.up]
api = "chat"
base_url = "{upstream.url}"
key_env = "UP_KEY"
[providers.openai]
base_url = "{upstream.url}"
key_env = "UP_KEY"
[providers.native]
api = "responses"
base_url = "{upstream.url}"
key_env = "UP_KEY"
[providers.claude]
api = "anthropic"
base_url = "{root}"
key_env = "UP_KEY"
[providers.azure]
base_url = "{root}"
key_env = "UP_KEY"
api_version = "2025-01-01"
deployment = "our deployment"
[limits]
answer_events = 10
"""
    with run_gateway(folder / "served", keys=KeysFile(keys), toml=toml) as gateway:
        yield gateway
    environment.undo()


@pytest.fixture(autouse=True)
def forget(upstream: ChatServer) -> None:
    upstream.requests.clear()
    upstream.answers.clear()


@pytest.fixture(scope="module")
def openai(served: RunningGateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic(served: RunningGateway) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.root, api_key=KEY, auth_token=None, max_retries=0) as client:
        yield client


def post(served: RunningGateway, path: str, content: bytes | str, **headers: str) -> Any:
    auth = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    return served.http.post(path, content=content, headers={**auth, **headers})


def test_a_chat_completion_keeps_every_byte_but_the_name_of_the_model(
    served: RunningGateway, upstream: ChatServer
) -> None:
    hop_headers = {"connection": "keep-alive, X-RateLimit-Hop", "x-ratelimit-hop": "1"}
    account_headers = {"set-cookie": "a=b", "openai-organization": "o", **hop_headers}
    upstream.respond(CHAT_BODY, {"x-ratelimit-remaining-requests": "7", **account_headers})
    messages = '{ "messages":[{"role":"user","content":"\\u00e9 \\"model\\": 1"}],\t'
    sent = messages + '"model" : "fast" ,"seed":1.0,"x":{"model":"fast"}}'
    response = post(served, "/v1/chat/completions", sent, **{"openai-beta": "b=1", "x-trace": "secret"})
    assert (response.status_code, response.content) == (200, CHAT_BODY)
    assert response.headers["x-ratelimit-remaining-requests"] == "7"
    assert not set(account_headers) & set(response.headers)
    [request] = upstream.requests
    assert request.path == "/v1/chat/completions"
    assert request.body.decode() == sent.replace('"model" : "fast"', '"model" : "own-name"')
    assert (request.headers["authorization"], request.headers["openai-beta"]) == ("Bearer sk-upstream-secret", "b=1")
    assert "x-trace" not in request.headers


def test_openai_python_streams_a_chat_completion(served: RunningGateway, upstream: ChatServer, openai: OpenAI) -> None:
    upstream.stream(b": ping\r\n\r\n", delta(content="Good "), delta(content="day."), usage_fields())
    chunks = list(openai.chat.completions.create(model="up/m:1", messages=[], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Good day."
    assert upstream.requests[0].json["model"] == "m:1"
    metrics = served.http.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    assert 'convo_tokens_total{kind="input",model="up/m:1"} 12.0' in metrics
    assert 'convo_requests_total{method="POST",route="/v1/chat/completions",status="200"}' in metrics


def test_the_thinking_of_a_passed_message_is_counted_as_reasoning(served: RunningGateway, upstream: ChatServer) -> None:
    usage = {"input_tokens": 3, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}
    upstream.respond(json.dumps({"type": "message", "content": [], "usage": usage}).encode())
    assert post(served, "/v1/messages", '{"model":"claude/thinker","messages":[]}').status_code == 200
    metrics = served.http.get("/metrics", headers={"x-api-key": KEY}).text
    assert 'convo_tokens_total{kind="reasoning",model="claude/thinker"} 5.0' in metrics


def test_a_stream_keeps_its_bytes(served: RunningGateway, upstream: ChatServer) -> None:
    pieces = (b'data:{"choices" : []}\n', b"\n: comment\r\n\r\nevent: x\ndata: \xc3", b"\xa9\n\n")
    upstream.stream(*pieces, end=b"data: [DONE]")
    response = post(served, "/v1/chat/completions", '{"model":"fast","stream":true}')
    assert response.content == b"".join(pieces) + b"data: [DONE]"


def test_embeddings_pass_through_in_either_encoding(openai: OpenAI, upstream: ChatServer) -> None:
    vector = base64.b64encode(bytes(8)).decode()
    for embedding in (vector, [0.0, 0.5]):
        data = [{"object": "embedding", "index": 0, "embedding": embedding}]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        upstream.respond(json.dumps({"object": "list", "model": "e", "data": data, "usage": usage}).encode())
        assert len(openai.embeddings.create(model="openai/e", input="hi").data[0].embedding) == 2
    assert [request.path for request in upstream.requests] == ["/v1/embeddings"] * 2


def test_a_model_with_a_slash_is_retrieved_and_an_alias_may_be_a_full_name(
    openai: OpenAI, anthropic: Anthropic, upstream: ChatServer
) -> None:
    for _ in range(6):
        upstream.respond(b'{"data":[{"id":"org/m:1"}]}')
    model = openai.models.retrieve("up/org/m:1")
    assert (model.id, model.owned_by, model.object) == ("up/org/m:1", "up", "model")
    assert (model.model_extra or {})["capabilities"]["endpoints"][1:] == ["/v1/chat/completions", "/v1/embeddings"]
    assert openai.models.retrieve("openai/gpt-5").owned_by == "claude"
    upstream.answers.clear()
    upstream.respond(MESSAGE_BODY)
    anthropic.messages.create(model="openai/gpt-5", max_tokens=9, messages=[])
    assert upstream.requests[-1].json["model"] == "claude-sonnet-5"


def test_an_older_azure_gets_its_deployment_in_the_path(openai: OpenAI, upstream: ChatServer) -> None:
    upstream.respond(CHAT_BODY)
    openai.chat.completions.create(model="azure/any", messages=[])
    [request] = upstream.requests
    assert (request.path, request.query, request.headers["api-key"], request.json["model"]) == (
        "/openai/deployments/our deployment/chat/completions",
        "api-version=2025-01-01",
        "sk-upstream-secret",
        "our deployment",
    )


def test_anthropic_python_sends_its_key_header_and_reads_a_message(
    served: RunningGateway, upstream: ChatServer, anthropic: Anthropic
) -> None:
    upstream.respond(MESSAGE_BODY, {"request-id": "req_theirs"})
    message = anthropic.beta.messages.create(
        model="claude/claude-x",
        max_tokens=9,
        messages=[],
        betas=["b-1"],
        extra_query={"beta": "true"},
        extra_headers={"anthropic-version": "2023-06-01"},
    )
    assert (message.content[0].text, message._request_id) == ("Hi.", "req_theirs")  # type: ignore[union-attr]
    [request] = upstream.requests
    assert (request.path, request.query) == ("/v1/messages", "beta=true")
    names = ("x-api-key", "anthropic-beta", "anthropic-version")
    assert [request.headers[name] for name in names] == ["sk-upstream-secret", "b-1", "2023-06-01"]
    metrics = served.http.get("/metrics", headers={"x-api-key": KEY}).text
    assert 'convo_tokens_total{kind="input",model="claude/claude-x"} 8.0' in metrics


def test_anthropic_python_streams_and_counts(upstream: ChatServer, anthropic: Anthropic) -> None:
    events = (
        {"type": "message_start", "message": {**json.loads(MESSAGE_BODY), "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    )
    upstream.stream(*(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events), end=b"")
    with anthropic.messages.stream(model="claude/claude-x", max_tokens=9, messages=[]) as stream:
        assert stream.get_final_message().usage.output_tokens == 7
    upstream.respond(b'{"input_tokens": 21}')
    assert anthropic.messages.count_tokens(model="claude/claude-x", messages=[]).input_tokens == 21
    assert [request.path for request in upstream.requests] == ["/v1/messages", "/v1/messages/count_tokens"]


@pytest.mark.parametrize(
    ("path", "model", "provider"),
    [
        ("/v1/chat/completions", "claude/claude-x", "claude"),
        ("/v1/chat/completions", "native/m", "native"),
        ("/v1/chat/completions", "local", "local"),
        ("/v1/embeddings", "echo", "scripted"),
        ("/v1/embeddings", "claude/claude-x", "claude"),
        ("/v1/messages", "openai/m", "openai"),
        ("/v1/messages", "fast", "up"),
        ("/v1/messages/count_tokens", "local", "local"),
    ],
)
def test_a_provider_without_the_api_is_refused_by_name(
    served: RunningGateway, upstream: ChatServer, path: str, model: str, provider: str
) -> None:
    response = post(served, path, json.dumps({"model": model}))
    error = response.json()["error"]
    assert (response.status_code, upstream.requests) == (400, [])
    assert error["message"].startswith(f"{model} does not support ")
    assert f"the provider {provider} has another API" in error["message"]
    assert error.get("param") == (None if "messages" in path else "model")


def test_errors_of_the_provider_arrive_as_they_are(upstream: ChatServer, openai: OpenAI, anthropic: Anthropic) -> None:
    upstream.refuse(429, {"error": {"message": "Slow down sk-upstream-secret.", "code": "x"}}, {"retry-after": "3"})
    with pytest.raises(RateLimitError) as refused:
        openai.chat.completions.create(model="fast", messages=[], stream=True)
    assert refused.value.body == {"message": "Slow down ***.", "code": "x"}
    assert refused.value.response.headers["retry-after"] == "3"
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}}
    upstream.refuse(429, body)
    with pytest.raises(AnthropicRateLimitError) as limited:
        anthropic.messages.create(model="claude/x", max_tokens=1, messages=[])
    assert limited.value.body == body


def test_a_refusal_of_the_servers_key_is_an_error_of_the_server(served: RunningGateway, upstream: ChatServer) -> None:
    upstream.refuse(401, {"error": {"message": "Incorrect API key provided: sk-upstream-secret"}})
    response = post(served, "/v1/chat/completions", '{"model":"fast"}')
    assert (response.status_code, response.json()["error"]["code"]) == (502, "provider_key_refused")
    assert "sk-upstream" not in response.text


def test_errors_have_the_form_of_each_api(served: RunningGateway, anthropic: Anthropic, openai: OpenAI) -> None:
    refused = served.http.post("/v1/messages", json={"model": "claude/x"}, headers={"x-api-key": "wrong"})
    assert refused.json()["type"] == "error"
    assert refused.json()["error"] == {"type": "authentication_error", "message": "Incorrect API key provided."}
    assert refused.json()["request_id"] == refused.headers["x-request-id"]
    with pytest.raises(APIStatusError) as unknown:
        anthropic.messages.create(model="nothing-known", max_tokens=1, messages=[])
    assert (unknown.value.status_code, unknown.value.type) == (400, "invalid_request_error")
    with pytest.raises(NotFoundError):
        openai.get("/messages/batches", cast_to=object)
    for body, message in (("{}", "Missing required parameter: 'model'."), ('{"model":[]}', "Invalid type for 'model'")):
        assert message in post(served, "/v1/chat/completions", body).json()["error"]["message"]
    assert post(served, "/v1/chat/completions?x=1", "{}").status_code == 400


def test_a_stream_that_breaks_ends_with_an_error(
    served: RunningGateway, upstream: ChatServer, openai: OpenAI, anthropic: Anthropic
) -> None:
    upstream.stream(*[delta(content="x")] * 20)
    with pytest.raises(APIError, match=r"limits\.answer_events"):
        list(openai.chat.completions.create(model="fast", messages=[], stream=True))
    start = {"type": "message_start", "message": json.loads(MESSAGE_BODY)}
    upstream.stream(f"event: message_start\ndata: {json.dumps(start)}\n\n".encode(), cut=True)
    with pytest.raises(APIStatusError) as broken:
        list(anthropic.messages.create(model="claude/x", max_tokens=1, messages=[], stream=True))
    assert "broke before the response ended" in broken.value.message
    assert [exchange.error_code for exchange in served.exchanges[-2:]] == ["limit_reached", "stream_broken"]


def test_a_client_that_disconnects_cancels_the_request(
    served: RunningGateway, upstream: ChatServer, openai: OpenAI
) -> None:
    upstream.client_left.clear()
    upstream.stall(delta(content="Once"))
    with openai.chat.completions.create(model="fast", messages=[], stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.content == "Once"
    assert upstream.client_left.wait(30)


@pytest.mark.anyio
async def test_only_the_value_of_the_outer_model_is_replaced() -> None:
    for sent, expected in (
        ('{"model":"a"}', '{"model":"new"}'),
        (
            ' {\n"a":{"model":"a"} , "mod\\u0065l"\t:\r"a","b":[]}',
            ' {\n"a":{"model":"a"} , "mod\\u0065l"\t:\r"new","b":[]}',
        ),
        ('{"é":"\\ud800","model":"new"}', '{"é":"\\ud800","model":"new"}'),
    ):
        assert (await replace_model(sent.encode(), "new")).decode() == expected
