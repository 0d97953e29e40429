"""The gateway in front of providers: token counts, model names, ignored parameters, log probabilities, encryption."""

import json
from collections.abc import Iterator

import openai
import pytest

from convo.history.items import Json
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server, usage_fields
from tests.models.messages_events import message_events, text
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer) -> RunningGateway:
    """A gateway in front of one server with two APIs: chat completions ("chat/...") and Responses ("native/...")."""
    return serve(toml=PROVIDERS.format(url=upstream.url))


PROVIDERS = """
fast = "chat/secret-model"
[providers.chat]
api = "chat"
base_url = "{url}"
extra_fields = ["user", "top_k"]
[providers.lenient]
api = "chat"
base_url = "{url}"
hosted_tools = "omit"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[providers.native]
api = "responses"
base_url = "{url}"
"""


def count(gateway: RunningGateway, **body: object) -> tuple[int, object]:
    answer = gateway.http.post("/v1/responses/input_tokens", json=body)
    return answer.status_code, answer.json().get("input_tokens")


def test_input_tokens_are_counted_for_a_model_whose_server_cannot_count(gateway: RunningGateway) -> None:
    status, tokens = count(gateway, model="chat/any", input="one two three")

    assert (status, tokens) == (200, 7)


@pytest.mark.parametrize("status", [404, 405, 501])
def test_input_tokens_are_counted_when_a_native_server_has_no_such_route(
    gateway: RunningGateway, upstream: ChatServer, status: int
) -> None:
    upstream.refuse(status, {"error": {"message": "Not Found"}})

    assert count(gateway, model="native/any", input="one two three") == (200, 7)
    assert [request.path for request in upstream.requests] == ["/v1/responses/input_tokens"]


@pytest.mark.parametrize("model", ["chat/short", "brief"])
def test_the_context_window_of_the_settings_is_that_of_a_request(
    serve: Serve, upstream: ChatServer, model: str
) -> None:
    window = '[windows]\n"chat/short" = { context = 80 }\n'
    gateway = serve(toml='brief = "chat/short"\n' + PROVIDERS.format(url=upstream.url) + window)
    question, answer = {"role": "user", "content": "word " * 40}, {"role": "assistant", "content": "Well."}
    turns = [question, answer, question, answer, question]

    refused = gateway.create_response({"model": model, "input": turns})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")

    upstream.stream(delta(content="Well."), finish("stop"))
    truncated = gateway.create_response({"model": model, "input": turns, "truncation": "auto"})
    assert truncated.status_code == 200
    assert len(upstream.requests[-1].json["messages"]) == 1


def test_input_tokens_need_no_model(gateway: RunningGateway) -> None:
    instructed = count(gateway, input="one two three", instructions="Answer briefly, in English.")

    assert count(gateway, input="one two three") == (200, 7)
    assert instructed[0] == 200
    assert int(str(instructed[1])) > 7


def test_a_responses_server_without_a_key_gets_no_key(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.refuse(400, {"error": {"message": "Reached.", "code": "reached"}})

    answer = gateway.create_response({"model": "native/any", "input": "hi"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "reached")


def test_padding_of_events_may_be_requested(gateway: RunningGateway) -> None:
    events = gateway.events({"model": "echo", "input": "hi", "stream_options": {"include_obfuscation": True}})

    assert events[-1]["type"] == "response.completed"
    assert not any("obfuscation" in event for event in events)


# -- hosted tools ---------------------------------------------------------------------------------


FUNCTION: Json = {"type": "function", "name": "f", "parameters": {}}
SEARCHES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_2027_01_31")


@pytest.mark.parametrize(
    ("model", "hosted"),
    [*((model, kind) for model in ("chat/m", "claude/claude-opus-5") for kind in SEARCHES), ("lenient/m", "mcp")],
)
def test_a_web_search_is_left_out_without_a_setting_and_named_in_a_header_and_in_the_store(
    gateway: RunningGateway, upstream: ChatServer, model: str, hosted: str
) -> None:
    stream = message_events(text(0, "ok")) if model.startswith("claude") else [delta(content="ok"), finish("stop")]
    upstream.stream(*stream)

    answer = gateway.create_response({"model": model, "input": "hi", "tools": [FUNCTION, {"type": hosted}]})

    assert answer.status_code == 200
    assert answer.headers["x-convo-ignored"] == f"tools.{hosted}"
    assert [tool.get("function", tool)["name"] for tool in upstream.requests[0].json["tools"]] == ["f"]
    page = gateway.http.get(f"/inspect/api/conversations/{answer.json()['id']}")
    assert f"tools.{hosted}" in page.text


@pytest.mark.parametrize("model", ["chat/m", "claude/claude-opus-5"])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "web_search"}, {"type": "tool_search"}]}, "tools"),
        ({"tools": [FUNCTION, {"type": "web_search"}, {"type": "file_search"}]}, "tools"),
        ({"tools": [FUNCTION, {"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        (
            {
                "tools": [FUNCTION, {"type": "web_search"}],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
            },
            "tool_choice",
        ),
    ],
)
def test_other_uses_of_hosted_tools_are_refused_and_the_setting_is_named(
    gateway: RunningGateway, upstream: ChatServer, model: str, fields: dict[str, Json], param: str
) -> None:
    answer = gateway.create_response({"model": model, "input": "hi", **fields})

    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, "unsupported_value")
    assert 'hosted_tools = "omit"' in error["message"]
    assert upstream.requests == []


def test_a_malformed_tool_is_refused_with_its_location(gateway: RunningGateway, upstream: ChatServer) -> None:
    tools = [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]

    answer = gateway.create_response({"model": "chat/m", "input": "hi", "tools": tools})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].tools[0].name")
    assert upstream.requests == []


# -- model names ----------------------------------------------------------------------------------

NO_MODEL = {"type": "invalid_request_error", "param": "model", "code": "model_not_found"}


@pytest.mark.parametrize("model", ["nope", "gpt-5", "claude-sonnet-5", "nobody/m", "nobody/", "stale"])
def test_an_unknown_model_is_400_and_not_retried(serve: Serve, model: str) -> None:
    gateway = serve(toml='stale = "nobody/secret-model"\n')

    answer = gateway.create_response({"model": model, "input": "hi"})

    message = f"The requested model '{model}' does not exist."
    assert (answer.status_code, answer.json()["error"]) == (400, {"message": message, **NO_MODEL})


@pytest.mark.parametrize("model", ["chat/m", "native/m", "fast"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}),
        (404, {"error": {"message": "model 'secret-model' not found, try pulling it first"}}),
        (400, {"error": {"message": "Model m not found"}}),
        (404, {"detail": "Not Found"}),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_unknown_model_of_a_provider_is_400_under_the_requested_name(
    gateway: RunningGateway, upstream: ChatServer, model: str, status: int, body: dict[str, object], stream: bool
) -> None:
    upstream.refuse(status, body)

    answer = gateway.create_response({"model": model, "input": "hi", "stream": stream})

    message = f"The requested model '{model}' does not exist."
    assert (answer.status_code, answer.json()["error"]) == (400, {"message": message, **NO_MODEL})


def test_another_404_of_a_provider_is_passed_on(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.refuse(404, {"error": {"message": "File file-1 not found", "param": "input"}})

    answer = gateway.create_response({"model": "native/m", "input": "hi"})

    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "File file-1 not found.")


@pytest.mark.parametrize("parameters", [{"text": {"format": {"type": "grammar"}}}, {"tools": [{"type": "web_search"}]}])
def test_a_refusal_names_the_alias_and_not_the_model_behind_it(
    gateway: RunningGateway, parameters: dict[str, object]
) -> None:
    message = gateway.create_response({"model": "fast", "input": "hi", **parameters}).json()["error"]["message"]

    assert "secret-model" not in message
    assert message.startswith("fast does not support ")


def test_a_bare_name_goes_to_the_provider_whose_model_list_was_fetched(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    before = gateway.create_response({"model": "llama-4", "input": "hi"})
    for _ in range(2):
        upstream.refuse(200, {"data": [{"id": "llama-4"}]})
    gateway.http.get("/v1/models")
    upstream.refuse(400, {"error": {"message": "Reached.", "code": "reached"}})
    after = gateway.create_response({"model": "llama-4", "input": "hi"})

    assert before.json()["error"]["code"] == "model_not_found"
    assert after.json()["error"]["code"] == "reached"


# -- ignored parameters ---------------------------------------------------------------------------


def chunk(content: str, finish: str | None = None, **more: Json) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish, **more}]}


HINTS = {"service_tier": "priority", "prompt_cache_key": "k", "user": "u", "top_k": 40, "seed": 1}


@pytest.mark.parametrize("stream", [True, False])
def test_unsupported_hints_are_omitted_and_reported(
    gateway: RunningGateway, upstream: ChatServer, stream: bool
) -> None:
    upstream.stream(chunk("hello", "stop"))

    answer = gateway.create_response(
        {"model": "chat/m", "input": "hi", "stream": stream, "reasoning": {"effort": "low", "summary": "auto"}, **HINTS}
    )

    sent = upstream.requests[-1].json
    assert answer.status_code == 200
    assert {name: sent.get(name) for name in HINTS} == {**dict.fromkeys(HINTS), "user": "u", "top_k": 40}
    reported = set(answer.headers["x-convo-ignored"].split(", "))
    assert reported == {"service_tier", "prompt_cache_key", "seed"}


SUMMARY = "response.reasoning_summary_text"


@pytest.mark.parametrize("field", ["summary", "generate_summary"])
def test_the_reasoning_of_a_chat_model_is_the_requested_summary(
    gateway: RunningGateway, upstream: ChatServer, field: str
) -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"reasoning_content": piece}}]} for piece in ("15 * 37 ", "is 555.")]
    upstream.stream(*chunks, chunk("555", "stop"))

    answer = gateway.create_response(
        {"model": "chat/m", "input": "15 * 37?", "reasoning": {field: "auto"}, "stream": True}
    )

    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    response = events[-1]["response"]
    assert "x-convo-ignored" not in answer.headers
    assert [event["delta"] for event in events if event["type"] == f"{SUMMARY}.delta"] == ["15 * 37 ", "is 555."]
    assert [event["text"] for event in events if event["type"] == f"{SUMMARY}.done"] == ["15 * 37 is 555."]
    assert response["output"][0]["summary"] == [{"type": "summary_text", "text": "15 * 37 is 555."}]
    assert response["output"][0]["content"] == []
    assert response["reasoning"][field] == "auto"


def test_reasoning_stays_in_the_content_without_a_requested_summary(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    upstream.stream({"choices": [{"index": 0, "delta": {"reasoning_content": "15 * 37"}}]}, chunk("555", "stop"))

    reasoning = gateway.create_response({"model": "chat/m", "input": "15 * 37?"}).json()["output"][0]

    assert (reasoning["content"], reasoning["summary"]) == ([{"type": "reasoning_text", "text": "15 * 37"}], [])


def test_an_unsupported_summary_setting_is_not_echoed(serve: Serve, upstream: ChatServer) -> None:
    gateway = serve(toml=f'[providers.old]\napi = "anthropic"\nbase_url = "{upstream.url}"\n')
    upstream.stream(*message_events(text(0, "555")), end=b"")

    answer = gateway.create_response(
        {"model": "old/claude-3-haiku", "input": "15 * 37?", "reasoning": {"summary": "auto"}}
    )

    assert answer.headers["x-convo-ignored"] == "reasoning.summary"
    assert answer.json()["reasoning"]["summary"] is None


def test_ignored_parameters_are_not_echoed(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(chunk("hello", "stop"))

    body = {"model": "chat/m", "input": "hi", "reasoning": {"effort": "low", "mode": "pro"}, **HINTS}
    created = gateway.create_response(body).json()
    retrieved = gateway.http.get(f"/v1/responses/{created['id']}").json()

    for response in (created, retrieved):
        assert response["prompt_cache_key"] is None
        assert response["reasoning"] == {"effort": "low", "summary": None}
        assert "mode" not in response["reasoning"]
        assert response["user"] == "u"
        assert "ignored" not in response


def test_an_answer_without_ignored_parameters_has_no_such_header(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(chunk("hello", "stop"))

    assert "x-convo-ignored" not in gateway.create_response({"model": "chat/m", "input": "hi", "user": "u"}).headers


def test_requested_padding_is_reported_as_ignored(gateway: RunningGateway) -> None:
    request = {"model": "echo", "input": "hi", "stream": True, "stream_options": {"include_obfuscation": True}}

    assert gateway.create_response(request).headers["x-convo-ignored"] == "stream_options.include_obfuscation"


def test_a_background_response_names_ignored_parameters(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(chunk("hello", "stop"))

    answer = gateway.create_response({"model": "chat/m", "input": "hi", "background": True, "service_tier": "flex"})

    assert answer.headers["x-convo-ignored"] == "service_tier"


def test_reasoning_that_cannot_be_sent_is_reported(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(chunk("hello", "stop"))
    reasoning_item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    answer = {"role": "assistant", "content": "ok"}

    got = gateway.create_response(
        {"model": "native/m", "input": [reasoning_item, answer, {"role": "user", "content": "hi"}]}
    )

    assert got.status_code in (200, 502)
    assert [item.get("type", "message") for item in upstream.requests[-1].json["input"]] == ["message", "message"]


# -- log probabilities ----------------------------------------------------------------------------

TOP_LOGPROBS = [{"token": "yo", "bytes": [], "logprob": -1}]
LOGPROB = {"token": "hi", "bytes": [104, 105], "logprob": -0.5, "top_logprobs": TOP_LOGPROBS}


def test_log_probabilities_are_requested_and_passed_on(gateway: RunningGateway, upstream: ChatServer) -> None:
    for _ in range(2):
        upstream.stream(chunk("hi", logprobs={"content": [LOGPROB]}), chunk("!", "stop", logprobs=None))
    request = {"model": "chat/m", "input": "x", "include": ["message.output_text.logprobs"], "top_logprobs": 1}

    whole = gateway.create_response(request).json()
    events = gateway.events(request)

    assert (upstream.requests[0].json["logprobs"], upstream.requests[0].json["top_logprobs"]) == (True, 1)
    assert whole["output"][0]["content"][0]["logprobs"] == [LOGPROB]
    deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == [[LOGPROB], []]
    done = next(event for event in events if event["type"] == "response.output_text.done")
    assert done["logprobs"] == [LOGPROB]


# -- encrypted content ----------------------------------------------------------------------------


def script_encrypted_reasoning(upstream: ChatServer) -> None:
    """Script an answer with encrypted reasoning, as a Responses server sends it."""
    reasoning_item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}
    upstream.stream(
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning_item},
        {"type": "response.completed", "response": {"output": [reasoning_item, message], "usage": None}},
    )


def test_encrypted_content_does_not_name_the_model_behind_an_alias(serve: Serve, upstream: ChatServer) -> None:
    aliases = 'hidden = "native/secret-model"\n'
    gateway = serve(toml=aliases + PROVIDERS.format(url=upstream.url))
    script_encrypted_reasoning(upstream)
    first = gateway.create_response({"model": "hidden", "input": "hi", "include": ["reasoning.encrypted_content"]})
    reasoning_item = first.json()["output"][0]
    for _ in range(2):
        script_encrypted_reasoning(upstream)
    gateway.create_response({"model": "hidden", "input": [reasoning_item, {"role": "assistant", "content": "ok"}]})
    gateway.create_response(
        {"model": "native/other", "input": [reasoning_item, {"role": "assistant", "content": "ok"}]}
    )

    assert "secret-model" not in first.text
    assert "native" not in first.text
    assert reasoning_item["encrypted_content"].startswith("convo2:")
    assert upstream.requests[1].json["input"][0]["encrypted_content"] == "gAAAA"
    assert "encrypted_content" not in json.dumps(upstream.requests[2].json["input"])


def test_encrypted_content_of_an_older_release_is_still_decrypted(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    """Older releases stored the issuer tag itself instead of its hash."""
    from convo.models.base import make_issuer_tag

    tag = make_issuer_tag("native", "m", upstream.url, None, None)
    assert tag.startswith("convo1:native/m:")
    script_encrypted_reasoning(upstream)
    reasoning_item = {"type": "reasoning", "summary": [], "encrypted_content": f"{tag}gAAAA"}
    gateway.create_response({"model": "native/m", "input": [reasoning_item, {"role": "assistant", "content": "ok"}]})

    assert upstream.requests[0].json["input"][0]["encrypted_content"] == "gAAAA"


def test_a_custom_tool_with_a_grammar_reaches_a_chat_server_that_has_them(serve: Serve, upstream: ChatServer) -> None:
    gateway = serve(
        toml=PROVIDERS.format(url=upstream.url).replace("extra_fields", 'custom_tools = "native"\nextra_fields')
    )
    call = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "sum", "input": "1 +"}}
    more = {"index": 0, "custom": {"input": " 2"}}
    upstream.stream(delta(tool_calls=[call]), delta(tool_calls=[more]), finish("tool_calls"), usage_fields())
    upstream.stream(delta(content="3."), finish("stop"), usage_fields())
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9+ ]+"}
    tools = [{"type": "custom", "name": "sum", "format": grammar}]
    with openai.OpenAI(base_url=gateway.url, api_key="any", max_retries=0, _strict_response_validation=True) as client:
        raw = client.responses.with_raw_response.create(model="chat/any", input="1 + 2?", tools=tools)  # type: ignore[arg-type]
        first = raw.parse()
        output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "3"}
        second = client.responses.create(model="chat/any", input=[output], previous_response_id=first.id, tools=tools)  # type: ignore[arg-type, list-item]

    assert "x-convo-ignored" not in raw.headers
    called = first.output[0]
    assert called.type == "custom_tool_call"
    assert (called.name, called.input, called.call_id) == ("sum", "1 + 2", "call_1")
    assert second.output_text == "3."
    sent = [request.json for request in upstream.requests]
    assert sent[0]["tools"][0]["custom"]["format"] == {
        "type": "grammar",
        "grammar": {"syntax": "regex", "definition": "[0-9+ ]+"},
    }
    assert sent[1]["messages"][1]["tool_calls"] == [
        {"id": "call_1", "type": "custom", "custom": {"name": "sum", "input": "1 + 2"}}
    ]
    assert sent[1]["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "content": "3"}
