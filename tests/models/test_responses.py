"""Responses with `store: false`, over a real connection."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.errors import KeyRefused, RequestRefused, StreamBroken, TryLater, Unsupported
from convo.history.items import Item, StreamEvent, assistant_message, item_text, user_message
from convo.models.base import make_issuer_tag
from convo.models.http import OpenAIClientOptions
from convo.models.readers.responses import ResponsesReader
from convo.models.responses import ResponsesModel, build_compact_body, build_count_body, translate_event
from convo.models.stream import make_usage
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.loopback_server import LoopbackServer
from tests.models.chat_server import ChatServer
from tests.models.model_calls import collect_events, deltas, final_response, make_request, output_text, read_events

KEY = "sk-abcdefghijklmnop"
HI = make_request(user_message("hi"), model="gpt-5")


def client_options(server: ChatServer, **more: Any) -> OpenAIClientOptions:
    return OpenAIClientOptions(base_url=server.url, key=Secret(KEY), **more)


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[ResponsesModel]:
    model = ResponsesModel(client_options(server), counting_ids(), is_served=True)
    yield model
    await model.aclose()


# -- server events --------------------------------------------------------------------------------


def created() -> StreamEvent:
    return {"type": "response.created", "response": {"id": "resp_theirs", "status": "in_progress", "output": []}}


def item_events(item: Item, index: int = 0) -> list[StreamEvent]:
    return [{"type": f"response.output_item.{when}", "output_index": index, "item": item} for when in ("added", "done")]


def end(*output: Item, status: str = "completed", **more: Any) -> StreamEvent:
    response = {
        "id": "resp_theirs",
        "status": status,
        "model": "gpt-5-2026",
        "output": output,
        "usage": make_usage(9, 2),
    }
    return {"type": f"response.{status}", "response": {**response, "store": False, **more}}


def numbered(*events: StreamEvent) -> list[StreamEvent]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def message_item(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "4"}


# -- the response ---------------------------------------------------------------------------------


async def test_events_keep_their_order_without_numbers_padding_and_lifecycle_events(
    server: ChatServer, model: ResponsesModel
) -> None:
    added, done = item_events(message_item("Hello"))
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "delta": "Hello", "logprobs": [], **position}
    server.stream(
        *numbered(created(), {"type": "response.in_progress", "response": {}}, {"type": "keepalive"}),
        *numbered(added, {**delta, "obfuscation": "xY3"}, done, end(message_item("Hello"))),
    )

    events = await read_events(model, HI)

    assert events[:3] == [added, delta, done]
    assert [event["type"] for event in events[3:]] == ["response.completed"]
    assert events[3]["response"] == {
        "status": "completed",
        "model": "gpt-5-2026",
        "output": [message_item("Hello")],
        "usage": make_usage(9, 2),
    }


async def test_store_is_false_and_every_other_parameter_is_sent(server: ChatServer, model: ResponsesModel) -> None:
    server.stream(end())
    tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "a", "server_url": "https://a.example/mcp"}]

    await read_events(
        model,
        make_request(
            user_message("hi"),
            model="gpt-4.1",
            instructions="be brief",
            tools=tools,
            prompt={"id": "pmpt_1"},
            prompt_cache_key="k",
            store=True,
            metadata={"a": "b"},
            previous_response_id="resp_1",
            background=True,
        ),
    )

    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].json == {
        "model": "gpt-4.1",
        "input": [user_message("hi")],
        "instructions": "be brief",
        "tools": tools,
        "prompt": {"id": "pmpt_1"},
        "prompt_cache_key": "k",
        "store": False,
        "stream": True,
    }


@pytest.mark.parametrize(
    ("name", "include", "sent"),
    [
        ("gpt-5", None, ["reasoning.encrypted_content"]),
        ("o3", ["web_search_call.results"], ["web_search_call.results", "reasoning.encrypted_content"]),
        ("gpt-5", ["reasoning.encrypted_content"], ["reasoning.encrypted_content"]),
        ("gpt-4.1", None, None),
    ],
)
async def test_encrypted_reasoning_is_always_requested_from_a_model_that_supports_it(
    server: ChatServer, model: ResponsesModel, name: str, include: list[str] | None, sent: list[str] | None
) -> None:
    server.stream(end())

    await read_events(model, make_request(user_message("hi"), model=name, include=include))

    assert server.requests[0].json.get("include") == sent


async def test_a_call_and_its_reasoning_are_sent_in_the_next_turn_without_their_ids(
    server: ChatServer, model: ResponsesModel
) -> None:
    server.stream(created(), *item_events(THOUGHT), *item_events(CALL, 1), end(THOUGHT, CALL))
    server.stream(end(message_item("4")))
    first = await final_response(model, HI)

    await read_events(model, make_request(user_message("hi"), *first["output"], OUTPUT, model="gpt-5"))

    bare = [{name: value for name, value in item.items() if name != "id"} for item in (THOUGHT, CALL)]
    assert server.requests[1].json["input"] == [user_message("hi"), *bare, OUTPUT]


async def test_the_encrypted_content_of_every_event_is_tagged_with_its_issuer(
    server: ChatServer, model: ResponsesModel
) -> None:
    server.stream(*item_events(THOUGHT), end({**THOUGHT, "encrypted_content": "final"}))

    added, done, last = await read_events(model, HI)

    assert added["item"]["encrypted_content"].startswith("convo1:openai/gpt-5:")
    assert added["item"] == done["item"]
    assert last["response"]["output"][0]["encrypted_content"].endswith(":final")


async def test_another_model_of_the_same_account_does_not_get_the_reasoning(
    server: ChatServer, model: ResponsesModel
) -> None:
    server.stream(*item_events(THOUGHT), *item_events(CALL, 1), end(THOUGHT, CALL))
    server.stream(end(message_item("4")))
    first = await final_response(model, HI)

    await read_events(model, make_request(user_message("hi"), *first["output"], OUTPUT, model="gpt-4.1"))

    assert [item.get("type") for item in server.requests[1].json["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


async def test_items_of_hosted_tools_keep_their_required_ids(server: ChatServer, model: ResponsesModel) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    server.stream(end())

    await read_events(model, make_request(user_message("?"), search, model="gpt-5"))

    assert server.requests[0].json["input"] == [user_message("?"), search]


async def test_missing_item_ids_and_missing_final_output_are_filled_in(
    server: ChatServer, model: ResponsesModel
) -> None:
    bare = {"type": "message", "role": "assistant", "content": []}
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"}
    added, done = item_events(bare)
    server.stream(added, delta, done, end())

    events = await read_events(model, HI)

    item_id = events[0]["item"]["id"]
    assert item_id.startswith("msg_")
    assert events[1]["item_id"] == item_id
    assert events[-1]["response"]["output"] == [{**bare, "id": item_id}]


@pytest.mark.parametrize(
    ("status", "more", "field"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "incomplete_details"),
        ("failed", {"error": {"code": "server_error", "message": "Sorry."}}, "error"),
    ],
)
async def test_a_failed_or_incomplete_answer_has_its_reason(
    server: ChatServer, model: ResponsesModel, status: str, more: dict[str, Any], field: str
) -> None:
    server.stream(created(), end(message_item("Hel"), status=status, **more))

    response = await final_response(model, HI)

    assert (response["status"], response[field]) == (status, more[field])


# -- errors ---------------------------------------------------------------------------------------


async def test_a_stream_without_its_last_event_is_broken(server: ChatServer, model: ResponsesModel) -> None:
    server.stream(created(), *item_events(message_item("Hel")), end=b"")
    events: list[StreamEvent] = []

    with pytest.raises(StreamBroken, match=r"^openai ended the stream before the response was complete$"):
        await collect_events(events, model, HI)

    assert len(events) == 2


async def test_an_error_event_before_the_answer_is_retryable(server: ChatServer, model: ResponsesModel) -> None:
    server.stream(created(), {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None})

    with pytest.raises(TryLater, match="Slow down"):
        await read_events(model, HI)


async def test_an_error_event_within_the_answer_breaks_the_stream(server: ChatServer, model: ResponsesModel) -> None:
    server.stream(
        *item_events(message_item("Hel")), {"type": "error", "error": {"code": "server_error", "message": "Oh."}}
    )

    with pytest.raises(StreamBroken, match="Oh"):
        await read_events(model, HI)


async def test_a_compaction_of_another_model_is_refused_before_a_request_is_sent(
    server: ChatServer, model: ResponsesModel
) -> None:
    server.refuse(200, {"output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "c"}]})
    window = await model.compact(HI)
    assert window is not None

    with pytest.raises(Unsupported, match=r"^openai/gpt-4\.1 does not support a compaction encrypted by another model"):
        await read_events(model, make_request(*window, model="gpt-4.1"))

    assert len(server.requests) == 1


# -- token counts and model lists -----------------------------------------------------------------


async def test_a_compacted_history_is_the_input_of_the_next_turn(server: ChatServer, model: ResponsesModel) -> None:
    encrypted = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c"}
    server.refuse(200, {"object": "response.compaction", "output": [user_message("hi"), encrypted]})
    server.stream(end(message_item("Hello")))

    window = await model.compact(
        make_request(user_message("hi"), model="gpt-5", instructions="be brief", temperature=1)
    )
    assert window is not None
    await read_events(model, make_request(*window, user_message("go on"), model="gpt-5"))

    assert server.requests[0].path == "/v1/responses/compact"
    assert server.requests[0].json == {"model": "gpt-5", "input": [user_message("hi")], "instructions": "be brief"}
    bare = {"type": "compaction", "encrypted_content": "c"}
    assert server.requests[1].json["input"] == [user_message("hi"), bare, user_message("go on")]


async def test_input_tokens_are_counted_by_the_server(server: ChatServer, model: ResponsesModel) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    server.refuse(200, {"object": "response.input_tokens", "input_tokens": 41})

    count = await model.count(make_request(user_message("hi"), model="gpt-5", tools=tools, temperature=0.5))

    assert count == 41
    assert server.requests[0].path == "/v1/responses/input_tokens"
    assert server.requests[0].json == {"model": "gpt-5", "input": [user_message("hi")], "tools": tools}


async def test_a_server_that_cannot_count_or_compact_is_reported(server: ChatServer, model: ResponsesModel) -> None:
    server.refuse(404, {"detail": "Not Found"})
    server.refuse(405, "")

    assert await model.count(HI) is None
    assert await model.compact(HI) is None


async def test_a_missing_model_is_not_reported_as_a_missing_url(server: ChatServer, model: ResponsesModel) -> None:
    error = {"message": "The model 'gpt-5' does not exist", "code": "model_not_found"}
    server.refuse(404, {"error": error})

    with pytest.raises(RequestRefused, match="no model 'gpt-5'"):
        await model.compact(HI)


# -- Azure ----------------------------------------------------------------------------------------


async def test_an_azure_request_names_the_deployment_and_has_a_key(server: ChatServer) -> None:
    server.stream(end(message_item("Hello")))
    base = server.url.removesuffix("/v1")
    model = ResponsesModel(
        OpenAIClientOptions("azure", base, key=Secret(KEY), is_azure=True, deployment="mine"), counting_ids()
    )

    assert output_text(await final_response(model, HI)) == "Hello"
    await model.aclose()

    assert server.requests[0].path == "/openai/v1/responses"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].json["model"] == "mine"
    assert server.requests[0].json["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("key", "token", "header", "value"),
    [(Secret(KEY), None, "api-key", KEY), (None, Secret("entra"), "authorization", "Bearer entra")],
    ids=["key", "token"],
)
async def test_an_older_azure_api_version_uses_the_azure_client(
    server: ChatServer, key: Secret | None, token: Secret | None, header: str, value: str
) -> None:
    server.stream(end(message_item("Hello")))
    base = server.url.removesuffix("/v1")
    where = OpenAIClientOptions("azure", base, key=key, token=token, is_azure=True, api_version="2025-04-01-preview")
    model = ResponsesModel(where, counting_ids())

    await read_events(model, HI)
    await model.aclose()

    assert server.requests[0].path == "/openai/responses"
    assert server.requests[0].headers[header] == value


# -- a complete Responses server ------------------------------------------------------------------


async def test_a_history_with_a_call_round_trips_at_a_server_that_validates_it(loopback: LoopbackServer) -> None:
    loopback.replies(
        {"call": {"name": "add", "arguments": {"a": 2}, "call_id": "call_a"}},
        {"text": "It is four."},
    )
    model = ResponsesModel(OpenAIClientOptions("loop", loopback.url, key=Secret(KEY)), counting_ids())
    first = await final_response(model, make_request(user_message("2+2?"), model="gpt-4.1"))

    output = {"type": "function_call_output", "call_id": "call_a", "output": "4"}
    events = await read_events(model, make_request(user_message("2+2?"), *first["output"], output, model="gpt-4.1"))
    await model.aclose()

    assert "".join(deltas(events)) == "It is four."
    assert [body["store"] for body in loopback.bodies] == [False, False]


@pytest.mark.parametrize("body", [{}, {"output": {}}, {"output": ["text"]}, []])
async def test_an_answer_that_is_not_a_compacted_history_is_refused(
    body: Any, server: ChatServer, model: ResponsesModel
) -> None:
    server.refuse(200, body)
    with pytest.raises(StreamBroken, match=r"^openai sent a response that is not a compacted input$"):
        await model.compact(HI)


@pytest.mark.parametrize(("body", "count"), [({"input_tokens": 7}, 7), ({"input_tokens": "7"}, None), ([], None)])
async def test_a_count_is_a_number_or_unknown(
    body: Any, count: int | None, server: ChatServer, model: ResponsesModel
) -> None:
    server.refuse(200, body)
    assert await model.count(HI) == count


# -- single events --------------------------------------------------------------------------------


TAG = make_issuer_tag("openai", "gpt-5")


def terminal_response(event: StreamEvent, *before: StreamEvent) -> Any:
    """Return the response of the terminal event that becomes of `event`."""
    last = read_events_of(*before, event)[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    return last["response"]


def read_events_of(*values: StreamEvent) -> list[StreamEvent]:
    reader = ResponsesReader(counting_ids())
    translated = [translate_event(event, TAG, "gpt-5") for value in values for event in reader.read(value)]
    return [event for event in translated if event is not None]


def test_a_text_that_ends_after_its_item_does_not_take_the_next_text_of_the_same_index() -> None:
    message = {**assistant_message("one"), "id": "msg"}
    place = {"output_index": 0, "item_id": "msg"}
    events = read_events_of(
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_text.done", **place, "text": "one"},
        {"type": "response.output_text.delta", **place, "delta": "two"},
        {"type": "response.completed", "response": {"output": []}},
    )

    assert [item_text(item) for item in events[-1]["response"]["output"]] == ["one", "two"]


DEFAULT_ERROR = {"code": "server_error", "message": "The provider stopped the response."}


@pytest.mark.parametrize(
    ("event", "response"),
    [
        ({"type": "response.completed"}, {"status": "completed"}),
        ({"type": "response.completed", "response": {"error": {"code": "x"}}}, {"status": "completed"}),
        ({"type": "response.completed", "response": {"model": 7}}, {"status": "completed"}),
        ({"type": "response.completed", "response": {"model": "m"}}, {"status": "completed", "model": "m"}),
        ({"type": "response.incomplete"}, {"status": "incomplete", "incomplete_details": None}),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": 7}}},
            {"status": "incomplete", "incomplete_details": None},
        ),
        ({"type": "response.failed"}, {"status": "failed", "error": DEFAULT_ERROR}),
        (
            {"type": "response.failed", "response": {"error": {"code": "c", "message": None, "x": 1}}},
            {"status": "failed", "error": {**DEFAULT_ERROR, "code": "c"}},
        ),
        ({"type": "response.cancelled"}, {"status": "failed", "error": DEFAULT_ERROR}),
    ],
)
def test_missing_and_odd_fields_of_the_last_event_have_defaults(event: StreamEvent, response: dict[str, Any]) -> None:
    assert terminal_response(event) == {"model": "gpt-5", "output": [], "usage": None, **response}


@pytest.mark.parametrize(
    ("usage", "clean"),
    [
        ({}, None),
        ({"input_tokens": 1, "output_tokens": -2, "total_tokens": "3", "cost": 0.5}, {"input_tokens": 1, "cost": 0.5}),
        ({"input_tokens": 1.0}, {"input_tokens": 1}),
        ([{"input_tokens": 1}], None),
        (
            {"input_tokens_details": {"cached_tokens": 1, "x": 1.5}, "output_tokens_details": None},
            {"input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {}},
        ),
    ],
)
def test_usage_that_is_not_a_number_of_tokens_is_left_out(usage: Any, clean: Any) -> None:
    assert terminal_response({"type": "response.completed", "response": {"usage": usage}})["usage"] == clean


def test_items_without_an_id_get_one_by_their_type_which_stays_the_same() -> None:
    items: list[Item] = [
        *({"type": kind} for kind in ("message", "function_call", "reasoning", "custom_tool_call", "mcp_call")),
        {"type": "reasoning", "id": "rs_9", "encrypted_content": "x"},
    ]
    done = [item_events(item, index)[1] for index, item in enumerate(items)]

    output = terminal_response({"type": "response.completed"}, *reversed(done))["output"]

    assert [item["id"] for item in output] == ["msg_1", "fc_1", "rs_1", "ctc_1", "item_1", "rs_9"]
    assert output[5]["encrypted_content"] == f"{TAG}x"
    completed = end(*items)
    assert terminal_response(completed, *done)["output"] == output


def test_an_event_of_an_item_gets_its_id_and_loses_its_number() -> None:
    events: list[StreamEvent] = [
        {"type": "response.output_item.added", "sequence_number": 1, "item": {"type": "message"}},
        {"type": "response.output_item.added", "item": None},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "a", "obfuscation": "x"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "a", "item_id": "theirs"},
        {"type": "response.output_text.delta", "output_index": 5, "delta": "b", "sequence_number": 2},
        {"type": "response.queued"},
        {"type": "ping"},
        {"type": "response.completed", "response": None},
    ]
    delta, added = {"type": "response.output_text.delta", "delta": "a"}, {"type": "response.output_item.added"}
    started = {"type": "message", "role": "assistant", "content": [], "status": "in_progress", "id": "msg_2"}

    *read, last = read_events_of(*events)

    assert read[:5] == [
        {**added, "output_index": 0, "item": {"type": "message", "id": "msg_1"}},
        {**delta, "output_index": 0, "item_id": "msg_1"},
        {**delta, "output_index": 0, "item_id": "msg_1"},
        {**added, "output_index": 5, "item": started},
        {**delta, "output_index": 5, "item_id": "msg_2", "delta": "b"},
    ]
    assert [event["item"] for event in read[5:]] == last["response"]["output"]
    assert [item["content"][0]["text"] for item in last["response"]["output"]] == ["aa", "b"]


def test_items_with_one_index_and_ids_that_change_are_told_apart() -> None:
    message: Item = {"type": "message", "role": "assistant", "content": []}
    call: Item = {"type": "function_call", "name": "f"}
    events: list[StreamEvent] = [
        event
        for number, item in enumerate([message, call])
        for event in (
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "id": f"a{number}"}},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "id": f"b{number}"}},
        )
    ]

    read = read_events_of(*events, end({**message, "id": "c0"}, {**call, "id": "c1"}))

    assert [(event["output_index"], event["item"]["id"]) for event in read[:-1]] == [(0, "a0")] * 2 + [(1, "a1")] * 2
    assert [item["id"] for item in read[-1]["response"]["output"]] == ["a0", "a1"]


def test_a_completed_response_with_the_status_incomplete_is_incomplete() -> None:
    details = {"incomplete_details": {"reason": "max_output_tokens"}}
    event = {"type": "response.completed", "response": {"status": "incomplete", "output": [], **details}}

    assert terminal_response(event) == {
        "model": "gpt-5",
        "output": [],
        "usage": None,
        "status": "incomplete",
        **details,
    }


def test_a_count_and_a_compaction_have_the_parameters_that_they_depend_on() -> None:
    counted: dict[str, Any] = {
        "tools": [],
        "tool_choice": "auto",
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
        "truncation": "auto",
    }
    compacted: dict[str, Any] = {
        "image": {"context_compression": "auto"},
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "auto"},
        "prompt_cache_retention": "24h",
        "service_tier": "flex",
    }
    request = make_request(**counted, **compacted, temperature=0.5, store=True)

    assert build_count_body(request, TAG, "m") == {"model": "m", **counted}
    assert build_compact_body(request, TAG, "m") == {"model": "m", **compacted}
    assert build_count_body(make_request(instructions="", tools=None), TAG, "m") == {"model": "m", "instructions": ""}


async def test_models_are_listed_by_name(server: ChatServer, model: ResponsesModel) -> None:
    server.refuse(200, {"data": [{"id": "gpt-5"}, {"id": "gpt-4.1"}]})

    assert [*await model.list_models()] == ["gpt-5", "gpt-4.1"]
    assert (server.requests[0].path, server.requests[0].headers["authorization"]) == ("/v1/models", f"Bearer {KEY}")


async def test_a_request_is_checked_without_a_response(server: ChatServer, model: ResponsesModel) -> None:
    window = {"type": "compaction", "encrypted_content": f"{make_issuer_tag('other', 'm')}x"}
    with pytest.raises(Unsupported, match=r"^openai/gpt-5 does not support a compaction encrypted by another model$"):
        await model.check_request(make_request(window, model="gpt-5"))
    server.refuse(200, {"data": []})
    server.refuse(401, {"error": {"message": "No."}})

    await model.check_request(HI)
    with pytest.raises(KeyRefused):
        await model.check_request(HI)

    assert [request.path for request in server.requests] == ["/v1/models", "/v1/models"]


@pytest.mark.parametrize(
    ("arguments", "status"), [('{"city":"Oslo"}', "completed"), ('{"city":', "incomplete")], ids=["whole", "cut"]
)
def test_a_stream_that_ends_without_its_last_event_keeps_what_arrived(arguments: str, status: str) -> None:
    place = {"output_index": 1, "item_id": "fc_1"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}
    events: list[Any] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_text.done", "output_index": 0, "text": "So."},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.delta", **place, "delta": arguments[:4]},
        {"type": "response.function_call_arguments.delta", **place, "delta": arguments[4:]},
        "[DONE]",
    ]

    response = read_events_of(*events)[-1]["response"]

    message, kept = response["output"]
    assert (response["status"], kept["status"], kept["arguments"]) == (status, status, arguments)
    assert (message["content"][0]["text"], response["convo_notices"]) == (
        "So.",
        ["the provider ended the response with no reason"],
    )
