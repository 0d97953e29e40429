"""The remote endpoint against a server on loopback: requests, events, errors and ids."""

import asyncio
import json
import socket
from contextlib import aclosing
from typing import Any

import pytest

from convo.endpoints.remote import RemoteEndpoint
from convo.errors import (
    ConvoError,
    KeyRefused,
    NotFound,
    RequestRefused,
    StateIgnored,
    StreamBroken,
    TryLater,
    Unreachable,
)
from convo.history.items import StreamEvent
from convo.history.records import Scope
from convo.models.http import OpenAIClientOptions
from convo.secrets import Secret
from tests.endpoints.conftest import remote_at
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, events, refusal, texts, user_item
from tests.loopback_server import (
    KEY,
    WRONG_KEY,
    Fault,
    LoopbackServer,
    commit_then_cut,
    conversation_locked,
    cut_after,
    cut_before_headers,
    error_response,
    ignore_state,
    pause_after,
    rate_limited,
    raw_stream,
)


def sse(*data: Any) -> bytes:
    """Encode events as server-sent events; bytes are unchanged."""
    return b"".join(event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode() for event in data)


CREATED = {"type": "response.created", "response": {"id": "resp_1", "previous_response_id": None}}
COMPLETED = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}


# -- requests and events --------------------------------------------------------------------------


async def test_events_are_passed_on_unchanged(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    strange = {
        "type": "response.tea.poured",
        "sequence_number": 1,
        "cups": 9007199254740993,
        "temperature": 1.0,
        "lid": None,
        "leaf": {"name": "green\ud800", "parts": [None, {"x": []}]},
    }
    keepalive = {"type": "keepalive"}
    loopback.arm(raw_stream(sse(CREATED, b": a comment\n\n", keepalive, strange, COMPLETED, b"data: [DONE]\n\n")))

    got = await events(remote, "a")

    assert got == [CREATED, keepalive, strange, COMPLETED]
    assert json.dumps(got[2]) == json.dumps(strange)


@pytest.mark.parametrize(
    ("state", "answered_id"),
    [
        ({"store": False}, "c1_3"),
        ({"store": True}, "c1"),
        ({"store": False, "previous_response_id": "resp_0"}, "c1_3"),
        ({"previous_response_id": "resp_0"}, "c1"),
        ({"store": False, "conversation": "conv_1"}, "c1"),
    ],
)
async def test_calls_get_unique_ids_unless_the_server_keeps_the_answer(
    loopback: LoopbackServer, remote: RemoteEndpoint, state: dict[str, Any], answered_id: str
) -> None:
    """A later request names a call by the id that the server has."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    pending = {"type": "function_call_output", "call_id": "of the server " * 9, "output": "ok"}
    created = {**CREATED, "response": {"id": "resp_1", **state}}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    completed = {**COMPLETED, "response": {"id": "resp_1", "status": "completed", "output": [call]}}
    loopback.arm(raw_stream(sse(created, done, completed)))

    got = await events(remote, [pending, call, result, call, result], **state)

    assert [item["call_id"] for item in loopback.bodies[-1]["input"][1:]] == ["c1", "c1", "c1_2", "c1_2"]
    assert loopback.bodies[-1]["input"][0] == pending
    assert [got[2]["item"], *got[-1]["response"]["output"]] == [{**call, "call_id": answered_id}] * 2


TOO_BUSY = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}


async def test_an_error_event_can_be_retried_only_before_the_response_has_begun(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    loopback.arm(raw_stream(sse(TOO_BUSY)), raw_stream(sse(CREATED, TOO_BUSY)))

    first = await refusal(remote, "a")
    assert (type(first), first.message, first.code) == (TryLater, "Slow down", "rate_limit_exceeded")
    second = await refusal(remote, "a")
    assert (type(second), second.message, second.code) == (StreamBroken, "Slow down", "rate_limit_exceeded")


async def test_the_body_is_sent_unchanged_with_unknown_fields(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    body = {
        "model": "anything/at-all",
        "input": [{"type": "tea_ceremony", "cups": 9007199254740993, "lid": None}],
        "temperature": None,
        "steep_s": 180,
    }
    loopback.arm(raw_stream(sse(CREATED, COMPLETED)))

    async with aclosing(remote.create(body)) as answer:
        assert [event["type"] async for event in answer] == ["response.created", "response.completed"]

    assert loopback.bodies == [{**body, "stream": True}]
    assert "stream" not in body


async def test_key_organization_and_project_belong_to_the_account(
    loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: from-the-environment\nAuthorization: Bearer other")
    plain = RemoteEndpoint(OpenAIClientOptions(provider="other", base_url=loopback.url, key=Secret(KEY)))
    full = RemoteEndpoint(
        OpenAIClientOptions(
            base_url=loopback.url, key=Secret(KEY), organisation="org_1", project="proj_1", use_env_headers=False
        )
    )

    await ask(plain, "a")
    await ask(full, "a")
    await plain.aclose()
    await full.aclose()

    plain_headers, full_headers = (request.headers for request in loopback.requests)
    assert "from-the-environment" not in str(plain_headers)
    assert (plain_headers["authorization"], full_headers["authorization"]) == (f"Bearer {KEY}", f"Bearer {KEY}")
    assert (full_headers["openai-organization"], full_headers["openai-project"]) == ("org_1", "proj_1")


async def test_environment_headers_apply_to_the_openai_account_only(
    loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: yes")
    remote = RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=Secret(KEY), use_env_headers=True))
    await ask(remote, "a")
    await remote.aclose()
    assert loopback.requests[0].headers["x-mine"] == "yes"


def test_the_scope_is_the_base_url_and_the_account() -> None:
    account = OpenAIClientOptions(base_url="https://api.openai.com/v1/", organisation="org_1", project="proj_1")
    assert RemoteEndpoint(account).scope == Scope("https://api.openai.com/v1", "org_1", "proj_1")


@pytest.mark.parametrize(
    ("account", "path", "header"),
    [
        ({"api_version": "2025-04-01-preview", "key": Secret(KEY)}, "/openai/responses", ("api-key", KEY)),
        (
            {"api_version": "2025-04-01-preview", "token": Secret("t")},
            "/openai/responses",
            ("authorization", "Bearer t"),
        ),
        ({"key": Secret(KEY)}, "/openai/v1/responses", ("authorization", f"Bearer {KEY}")),
    ],
)
async def test_an_azure_resource_is_called_at_its_own_url(
    loopback: LoopbackServer, account: dict[str, Any], path: str, header: tuple[str, str]
) -> None:
    loopback.arm(Fault(stream=sse(CREATED, COMPLETED), path=path))
    remote = RemoteEndpoint(OpenAIClientOptions("azure", loopback.url.removesuffix("/v1"), is_azure=True, **account))
    assert len(await events(remote, "a")) == 2
    await remote.aclose()
    sent, preview = loopback.requests[0], remote.build_http_request({"model": MODEL, "input": "a"})
    assert sent.headers[header[0]] == header[1]
    assert sent.query == ("api-version=2025-04-01-preview" if "api_version" in account else "")
    assert preview.url.removeprefix(loopback.url.removesuffix("/v1")) == path + ("?" + sent.query if sent.query else "")
    assert {name.lower(): value.format(key=header[1].split()[-1]) for name, value in preview.headers.items()} == {
        header[0]: header[1]
    }


async def test_the_previewed_request_equals_the_sent_request(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    body = {"model": MODEL, "input": [user_item("größer")], "temperature": 0.5, "store": False}
    preview = remote.build_http_request(body)
    await ask(remote, **body)
    assert preview.url == f"{loopback.url}/responses"
    assert json.dumps(loopback.bodies[-1]) == json.dumps(preview.body)
    assert KEY not in str(preview)


async def test_the_previewed_request_names_the_organization_and_the_project(loopback: LoopbackServer) -> None:
    remote = RemoteEndpoint(
        OpenAIClientOptions("openai", loopback.url, Secret(KEY), organisation="org", project="proj")
    )
    await ask(remote, "a")
    await remote.aclose()
    preview, sent = remote.build_http_request({"model": MODEL}).headers, loopback.requests[-1].headers
    assert {name: value.format(key=KEY) for name, value in preview.items()} == {
        name: sent[name.lower()] for name in preview
    }
    assert set(preview) == {"Authorization", "OpenAI-Organization", "OpenAI-Project"}


# -- errors ---------------------------------------------------------------------------------------


async def test_an_endpoint_that_ignores_the_history_is_an_error_before_the_first_event(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    first = await ask(remote, "a")
    conversation = (await remote.create_conversation())["id"]
    for state in ({"previous_response_id": first["id"]}, {"conversation": conversation}):
        loopback.arm(ignore_state())
        error = await error_before_first_event(remote, state)
        assert isinstance(error, StateIgnored)
        assert next(iter(state.values())) in error.message


async def error_before_first_event(remote: RemoteEndpoint, body: dict[str, Any]) -> ConvoError:
    got: list[StreamEvent] = []

    async def read() -> None:
        async with aclosing(remote.create({"model": MODEL, "input": "b", **body})) as answer:
            async for event in answer:
                got.append(event)  # noqa: PERF401 - the events before the error are checked

    with pytest.raises(ConvoError) as caught:
        await read()
    assert got == []
    return caught.value


async def test_the_errors_of_a_locked_conversation_and_a_rate_limit_have_the_message_of_the_server(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    loopback.arm(conversation_locked(), rate_limited(retry_after_s=1.5))

    busy, slow = await refusal(remote, "a"), await refusal(remote, "a")

    assert isinstance(busy, TryLater)
    assert isinstance(slow, TryLater)
    assert error_fields(busy) == ("conversation_locked", 400, "conversation")
    assert (error_fields(slow), slow.retry_after_s) == (("rate_limit_exceeded", 429, None), 1.5)
    assert len(loopback.requests) == 2


async def test_a_server_error_is_not_retried_by_the_package(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    loopback.arm(error_response(500, {"message": "Oops.", "type": "server_error"}, {"x-should-retry": "true"}))
    assert isinstance(await refusal(remote, "a"), TryLater)
    assert len(loopback.requests) == 1


async def test_a_rejected_key_is_reported_without_the_key(loopback: LoopbackServer) -> None:
    remote = remote_at(loopback, WRONG_KEY)
    message = f"Incorrect API key provided: {WRONG_KEY}."
    loopback.arm(error_response(401, {"message": message, "type": "invalid_request_error", "code": "invalid_api_key"}))
    with_key, without_key = await refusal(remote, "a"), await refusal(remote, "a")
    await remote.aclose()
    assert isinstance(with_key, KeyRefused)
    assert isinstance(without_key, KeyRefused)
    assert WRONG_KEY not in f"{with_key} {without_key}"


async def test_without_a_key_no_request_is_sent(loopback: LoopbackServer) -> None:
    error = await refusal(RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url)), "a")
    assert (type(error), loopback.requests) == (KeyRefused, [])


async def test_after_a_connection_error_before_the_answer_the_outcome_is_unknown(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    conversation = (await remote.create_conversation())["id"]
    loopback.arm(cut_before_headers(), commit_then_cut())

    uncommitted = await refusal(remote, "a", conversation=conversation)
    before = texts(await remote.list_conversation_items(conversation))
    committed = await refusal(remote, "b", conversation=conversation)

    assert (type(uncommitted), type(committed)) == (Unreachable, Unreachable)
    assert before == []
    assert texts(await remote.list_conversation_items(conversation, order="asc")) == ["b", "b"]


async def test_an_unreachable_server_is_named_with_its_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    remote = RemoteEndpoint(OpenAIClientOptions(base_url=f"http://127.0.0.1:{port}/v1", key=Secret(KEY)))
    error = await refusal(remote, "a")
    await remote.aclose()
    assert isinstance(error, Unreachable)
    assert f"127.0.0.1:{port}" in error.message


@pytest.mark.parametrize("after", [1, 2, 3, 5])
async def test_an_interrupted_answer_is_a_broken_stream(
    loopback: LoopbackServer, remote: RemoteEndpoint, after: int
) -> None:
    loopback.replies({"text": "one two three four five six"}, chunk=4)
    loopback.arm(cut_after(after))
    got: list[StreamEvent] = []

    async def read() -> None:
        async with aclosing(remote.create({"model": MODEL, "input": "a"})) as answer:
            async for event in answer:
                got.append(event)  # noqa: PERF401 - the events before the error are checked

    with pytest.raises(StreamBroken):
        await read()
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert len(got) <= after


async def test_a_stream_that_ends_early_names_its_server(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    loopback.arm(raw_stream(sse(CREATED)))

    assert (await refusal(remote, "a")).message == "openai ended the stream before the response was complete"


async def test_a_request_is_checked_without_a_response(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    await remote.check_request({"model": MODEL})
    wrong = remote_at(loopback, WRONG_KEY)
    with pytest.raises(KeyRefused):
        await wrong.check_request({"model": MODEL})
    await wrong.aclose()

    assert [request.path for request in loopback.requests] == ["/v1/models", "/v1/models"]


ODD_STREAMS = [
    sse(CREATED),
    sse(CREATED, b"data: [DONE]\n\n"),
    sse(b"data: [DONE]\n\n"),
    b"",
    sse(CREATED, b"data: {half\n\n"),
    sse(CREATED, ["no", "event"]),
    sse(CREATED, {"type": "error", "code": "server_error", "message": "Oops.", "param": None}),
    sse(CREATED, {"type": "error", "error": {"type": "server_error", "message": "Oops.", "code": None}}),
    b"<html>not what you think</html>",
    b"\xff\xfe",
]


ODD_NUMBERS = [
    f'{{"type": "response.odd", "n": {number}}}'.encode() for number in ("NaN", "-Infinity", "1e999", "-1e999")
]


@pytest.mark.parametrize("pad", [b"", b" " * 2**18], ids=["small", "large"])
@pytest.mark.parametrize("event", ODD_NUMBERS)
async def test_a_number_without_a_canonical_form_breaks_the_stream(
    loopback: LoopbackServer, remote: RemoteEndpoint, event: bytes, pad: bytes
) -> None:
    loopback.arm(raw_stream(sse(CREATED, b"data: " + pad + event + b"\n\n", COMPLETED)))
    assert isinstance(await refusal(remote, "a"), StreamBroken)


@pytest.mark.parametrize("stream", ODD_STREAMS, ids=range(len(ODD_STREAMS)))
async def test_a_stream_without_its_last_event_is_broken(
    loopback: LoopbackServer, remote: RemoteEndpoint, stream: bytes
) -> None:
    loopback.arm(raw_stream(stream))
    with pytest.raises(StreamBroken):
        await events(remote, "a")


async def test_data_after_the_last_event_is_not_read(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    loopback.arm(raw_stream(sse(CREATED, COMPLETED, {"type": "error", "message": "too late"})))
    assert (await events(remote, "a"))[-1] == COMPLETED


async def test_closing_the_stream_closes_the_connection(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    loopback.arm(pause_after(after=3))
    async with aclosing(remote.create({"model": MODEL, "input": "a"})) as answer:
        first = await anext(answer)
    assert await asyncio.to_thread(loopback.client_left.wait, 30)
    assert (await remote.retrieve(first["response"]["id"]))["status"] == "cancelled"


async def test_without_token_counting_the_count_is_none(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    path = "/v1/responses/input_tokens"
    for status in (404, 405):
        loopback.arm(Fault(error_response=(status, {"detail": "no such thing"}, {}), path=path))
        assert await remote.count_input_tokens({"model": MODEL, "input": "a"}) is None
    assert await remote.count_input_tokens({"model": MODEL, "input": "one two", "temperature": 0.5}) == 2
    assert loopback.requests[-1].json == {"model": MODEL, "input": "one two"}
    loopback.arm(Fault(error_response=(400, {"error": {"message": "No.", "param": "input"}}, {}), path=path))
    with pytest.raises(RequestRefused):
        await remote.count_input_tokens({"model": MODEL, "input": "a"})


async def test_a_url_without_conversations_is_distinguished_from_an_unknown_conversation(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    path = "/v1/conversations/conv_1"
    loopback.arm(
        Fault(error_response=(404, {"detail": "Not Found"}, {}), path=path, method="GET"),
        Fault(error_response=(404, "<html>nginx</html>", {}), path=path, method="GET"),
        Fault(error_response=(404, {"error": {"message": "No such conversation."}}, {}), path=path, method="GET"),
    )
    for _ in range(2):
        with pytest.raises(RequestRefused) as caught:
            await remote.retrieve_conversation("conv_1")
        assert caught.value.status == 404
    with pytest.raises(NotFound):
        await remote.retrieve_conversation("conv_1")


async def test_items_are_returned_unchanged(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    strange = {"type": "tea_ceremony", "id": "tea_1", "cups": 9007199254740993, "lid": None}
    conversation = (await remote.create_conversation([user_item("a"), strange]))["id"]
    assert loopback.requests[0].json == {"items": [user_item("a"), strange]}
    assert await remote.retrieve_conversation_item(conversation, "tea_1") == strange


# -- ids ------------------------------------------------------------------------------------------


BAD_ID = "a/../b\n" + "x" * 100
SHOWN_ID = "a/../b?" + "x" * 57


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("retrieve", (BAD_ID,), "response"),
        ("cancel", (BAD_ID,), "response"),
        ("delete", (BAD_ID,), "response"),
        ("list_input_items", (BAD_ID,), "response"),
        ("retrieve_conversation", (BAD_ID,), "conversation"),
        ("update_conversation", (BAD_ID, {}), "conversation"),
        ("delete_conversation", (BAD_ID,), "conversation"),
        ("add_conversation_items", (BAD_ID, []), "conversation"),
        ("list_conversation_items", (BAD_ID,), "conversation"),
        ("retrieve_conversation_item", (BAD_ID, "i"), "conversation"),
        ("retrieve_conversation_item", ("c", BAD_ID), "item"),
        ("delete_conversation_item", (BAD_ID, "i"), "conversation"),
        ("delete_conversation_item", ("c", BAD_ID), "item"),
    ],
)
async def test_a_malformed_id_never_becomes_part_of_a_url(
    loopback: LoopbackServer, remote: RemoteEndpoint, method: str, arguments: tuple[Any, ...], kind: str
) -> None:
    with pytest.raises(NotFound) as caught:
        await getattr(remote, method)(*arguments)

    assert (caught.value.kind, loopback.requests) == (kind, [])


async def test_a_malformed_id_is_not_followed(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    with pytest.raises(NotFound) as caught:
        await anext(remote.follow(BAD_ID))

    assert (caught.value.kind, loopback.requests) == ("response", [])


@pytest.mark.parametrize(("length", "handle"), [(512, "/" * 512), (513, "/" * 64 + "...")])
async def test_the_error_repeats_a_short_id_and_the_beginning_of_a_long_one(
    remote: RemoteEndpoint, length: int, handle: str
) -> None:
    with pytest.raises(NotFound) as caught:
        await remote.retrieve("/" * length)

    assert caught.value.handle == handle


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
async def test_a_request_that_continues_from_a_malformed_id_is_refused(
    loopback: LoopbackServer, remote: RemoteEndpoint, name: str
) -> None:
    error = await refusal(remote, "a", **{name: BAD_ID})
    with pytest.raises(RequestRefused):
        remote.build_http_request({"model": MODEL, name: BAD_ID})

    assert error_fields(error) == ("invalid_value", 400, name)
    assert error.message == f"{name} {SHOWN_ID!r} is not an id"
    assert loopback.requests == []


@pytest.mark.parametrize(
    "resource",
    [
        {"id": BAD_ID},
        {"id": "resp_1", "conversation": {"id": BAD_ID}},
        {"id": "resp_1", "conversation": BAD_ID},
        {"id": "resp_1", "output": ["odd", {"id": "msg_1"}, {"type": "message", "id": BAD_ID}]},
    ],
)
async def test_a_malformed_id_of_the_server_is_an_error(
    loopback: LoopbackServer, remote: RemoteEndpoint, resource: dict[str, Any]
) -> None:
    loopback.arm(
        Fault(error_response=(200, resource, {}), path="/v1/responses/resp_1", method="GET"),
        raw_stream(sse({"type": "response.created", "response": resource}, COMPLETED)),
    )

    with pytest.raises(StreamBroken) as caught:
        await remote.retrieve("resp_1")
    streamed = await refusal(remote, "a")

    assert caught.value.message == streamed.message == f"openai sent the malformed id {SHOWN_ID!r}"


async def test_ids_that_a_server_leaves_out_are_no_error(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    response = {"id": "", "conversation": None, "output": [{"type": "reasoning"}, {"type": "odd", "id": None}]}
    loopback.arm(Fault(error_response=(200, response, {}), path="/v1/responses/resp_1", method="GET"))

    assert await remote.retrieve("resp_1") == response


@pytest.mark.parametrize("body", [[], 7, None])
async def test_a_response_that_is_not_an_object_is_an_error(
    loopback: LoopbackServer, remote: RemoteEndpoint, body: Any
) -> None:
    loopback.arm(
        Fault(error_response=(200, body, {}), path="/v1/responses/resp_1", method="GET"),
        Fault(error_response=(200, body, {}), path="/v1/responses/compact"),
    )

    with pytest.raises(StreamBroken, match=r"^openai sent a response that is not a JSON object$"):
        await remote.retrieve("resp_1")
    with pytest.raises(StreamBroken, match=r"^openai sent a response that is not a JSON object$"):
        await remote.compact({"model": MODEL})


async def test_tokens_are_counted_with_the_fields_that_they_depend_on(
    loopback: LoopbackServer, remote: RemoteEndpoint
) -> None:
    path = "/v1/responses/input_tokens"
    request: dict[str, Any] = {
        "model": MODEL,
        "input": "a",
        "instructions": "b",
        "previous_response_id": "resp_1",
        "conversation": None,
        "tools": [],
        "tool_choice": "auto",
        "text": {},
        "reasoning": {},
        "parallel_tool_calls": True,
        "truncation": "auto",
        "personality": "friendly",
    }
    loopback.arm(
        Fault(error_response=(200, {"input_tokens": 7}, {}), path=path),
        Fault(error_response=(200, {"input_tokens": "7"}, {}), path=path),
        Fault(error_response=(200, [7], {}), path=path),
    )

    assert await remote.count_input_tokens({**request, "store": False, "metadata": {}}) == 7
    assert loopback.requests[-1].json == request
    assert await remote.count_input_tokens({"model": MODEL}) is None
    assert await remote.count_input_tokens({"model": MODEL}) is None


@pytest.mark.parametrize(
    ("message", "kind", "handle"),
    [
        ("No item 'MSG_1' in this conversation", "item", "msg_1"),
        ("Conversation with id 'conv_1' not found.", "conversation", "conv_1"),
        ("Conversation not found", "conversation", "conv_1"),
        ("The item was not found", "item", "msg_1"),
    ],
)
async def test_a_404_is_about_the_id_or_the_kind_that_it_names(
    loopback: LoopbackServer, remote: RemoteEndpoint, message: str, kind: str, handle: str
) -> None:
    path = "/v1/conversations/conv_1/items/msg_1"
    for status in (404, 400):
        loopback.arm(
            *(
                Fault(error_response=(status, {"error": {"message": message}}, {}), path=path, method=method)
                for method in ("GET", "DELETE")
            )
        )
        for request_item in (remote.retrieve_conversation_item, remote.delete_conversation_item):
            with pytest.raises(NotFound if status == 404 else RequestRefused) as caught:
                await request_item("conv_1", "msg_1")
            if isinstance(caught.value, NotFound):
                assert (caught.value.kind, caught.value.handle) == (kind, handle)


async def test_a_page_is_requested_with_its_bounds(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    conversation = str((await remote.create_conversation([user_item("a"), user_item("b")], {"k": "v"}))["id"])
    first, last = (item["id"] for item in (await remote.list_conversation_items(conversation, order="asc")).items)
    loopback.requests[1:] = []
    await remote.list_conversation_items(conversation)
    await remote.list_conversation_items(conversation, after=first, before=last, limit=7, order="asc")
    response = await ask(remote, "a", conversation=conversation)
    await remote.list_input_items(response["id"])
    await remote.list_input_items(response["id"], after=first, before=last, limit=7, order="asc")
    default, bounded, inputs, bounded_inputs = (
        dict(pair.split("=") for pair in request.query.split("&"))
        for request in loopback.requests
        if request.method == "GET"
    )

    assert loopback.requests[0].json["metadata"] == {"k": "v"}
    assert default == inputs == {"limit": "20", "order": "desc"}
    assert bounded == bounded_inputs == {"limit": "7", "order": "asc", "after": first, "before": last}


async def test_the_key_of_the_account_is_masked_in_every_error(loopback: LoopbackServer) -> None:
    """A key without the usual form is masked too."""
    remote = RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=Secret("hunter2"), token=None))
    entra = RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=None, token=Secret("hunter2")))
    for endpoint in (remote, entra):
        loopback.arm(
            error_response(400, {"message": "no hunter2 here"}),
            Fault(
                error_response=(400, {"error": {"message": "no hunter2 here"}}, {}),
                path="/v1/responses/r",
                method="GET",
            ),
        )
        assert (await refusal(endpoint, "a")).message == "no *** here"
        with pytest.raises(RequestRefused, match=r"^no \*{3} here$"):
            await endpoint.retrieve("r")
        await endpoint.aclose()


async def test_an_unknown_model_is_named(loopback: LoopbackServer, remote: RemoteEndpoint) -> None:
    loopback.arm(error_response(404, {"message": "no", "code": "model_not_found"}))

    assert (await refusal(remote, "a")).message == f"openai has no model {MODEL!r}"
