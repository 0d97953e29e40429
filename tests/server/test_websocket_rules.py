"""The WebSocket rules of the specification, one test each.

The rules are those of Open Responses 2026-04-24 and of the API guide, which adds `generate` and stream ids.
"""

from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from convo.server.websocket import WebSocketLimits
from tests.clock import HELD_S
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.websocket_client import ManualClock, connect_client, response_text

NOT_FOUND = "previous_response_not_found"


def event_types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_a_turn_is_a_message_with_the_body_of_post_and_a_type(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as client:
        result = client.turn({"type": "response.create", "model": "echo", "input": "hi", "metadata": {"a": "b"}})
        assert client.socket.response
        assert client.socket.response.headers["x-request-id"].startswith("req_")

    assert (response_text(result), result["metadata"]) == ("hi", {"a": "b"})
    assert shared_gateway.http.get(f"/v1/responses/{result['id']}").json() == result


def test_the_events_equal_those_of_a_stream_over_http(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as client:
        client.send(input="one two three four five six seven")
        over_socket = client.receive_response_events()

    over_http = shared_gateway.events({"model": "echo", "input": "one two three four five six seven"})
    assert event_types(over_socket) == event_types(over_http)
    assert [event["sequence_number"] for event in over_socket] == list(range(len(over_http)))
    assert [sorted(event) for event in over_socket] == [sorted(event) for event in over_http]


def test_the_last_event_ends_the_turn_and_not_the_connection(shared_gateway: RunningGateway) -> None:
    """There is no [DONE]: the next event belongs to the next turn."""
    with connect_client(shared_gateway) as client:
        assert response_text(client.turn(input="one")) == "one"
        client.send(input="two")
        assert client.receive()["type"] == "response.created"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream", False),
        ("stream_options", {"include_obfuscation": False}),
        ("background", True),
    ],
)
def test_a_field_of_http_only_is_refused_by_name(shared_gateway: RunningGateway, field: str, value: Any) -> None:
    with connect_client(shared_gateway) as client:
        result = client.turn(input="hi", **{field: value})
        assert (result["status"], result["error"]["code"], result["error"]["param"]) == (
            400,
            "unsupported_parameter",
            field,
        )
        assert response_text(client.turn(input="again")) == "again"


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": None, "background": False}, {"stream_options": None}])
def test_a_field_of_http_with_its_default_value_is_accepted(
    shared_gateway: RunningGateway, fields: dict[str, Any]
) -> None:
    """The Agents SDK sends `stream: true` with every turn."""
    with connect_client(shared_gateway) as client:
        assert response_text(client.turn(input="hi", **fields)) == "hi"


def test_concurrent_turns_are_answered_one_after_the_other(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "a b c d e f g h i j"}, chunk=1, delay_s=0.001)
    with connect_client(gateway) as client:
        client.send(model="slow", input="first")
        client.send(input="second")
        client.send({"type": "response.create", "input": "no model"})
        first, second, third = (
            client.receive_response_events(),
            client.receive_response_events(),
            client.receive_response_events(),
        )

    assert len({event["response"]["id"] for event in first if "response" in event}) == 1
    assert (response_text(first[-1]["response"]), response_text(second[-1]["response"])) == (
        "a b c d e f g h i j",
        "second",
    )
    assert third[0]["error"]["param"] == "model"


def test_an_unstored_chain_continues_on_its_connection(gateway: RunningGateway) -> None:
    gateway.script("one", {"text": "Yes?"}, {"text": "You said something before."})
    with connect_client(gateway) as client:
        first = client.turn(model="one", input="hello", store=False)
        second = client.turn(model="one", input="again", store=False, previous_response_id=first["id"])

    assert response_text(second) == "You said something before."
    assert second["previous_response_id"] == first["id"]
    assert gateway.http.get(f"/v1/responses/{first['id']}").status_code == 404


def test_an_unstored_response_continues_on_no_other_connection(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as one, connect_client(shared_gateway) as other:
        first = one.turn(input="hello", store=False)
        result = other.turn(input="again", previous_response_id=first["id"])
        assert response_text(one.turn(input="still here", previous_response_id=first["id"])) == "still here"

    assert result == {
        "type": "error",
        "status": 400,
        "sequence_number": 0,
        "code": NOT_FOUND,
        "message": f"Previous response with id '{first['id']}' not found.",
        "param": "previous_response_id",
        "error": {
            "type": "invalid_request_error",
            "code": NOT_FOUND,
            "message": f"Previous response with id '{first['id']}' not found.",
            "param": "previous_response_id",
        },
    }


def test_a_stored_response_continues_on_any_connection_from_any_id(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as client:
        first = client.turn(input="one")
        client.turn(input="two", previous_response_id=first["id"])
    with connect_client(shared_gateway) as later:
        assert later.turn(input="three", previous_response_id=first["id"])["status"] == "completed"


def test_a_stored_response_survives_a_failed_continuation(shared_gateway: RunningGateway) -> None:
    orphan = {"type": "function_call_output", "call_id": "call_nobody", "output": "42"}
    with connect_client(shared_gateway) as client:
        first = client.turn(input="one")
        client.turn(input=[orphan], previous_response_id=first["id"])
        assert client.turn(input="two", previous_response_id=first["id"])["status"] == "completed"


def test_generate_false_requests_no_model_and_can_be_continued(gateway: RunningGateway) -> None:
    gateway.script("one", {"text": "never"}, {"text": "The second user message."})
    with connect_client(gateway) as client:
        warm = client.turn(model="one", input="prepare", store=False, generate=False)
        second = client.turn(model="one", input="go", store=False, previous_response_id=warm["id"])

    assert (warm["status"], warm["output"]) == ("completed", [])
    assert response_text(second) == "The second user message."


def test_a_compacted_window_starts_a_new_chain_on_the_same_connection(shared_gateway: RunningGateway) -> None:
    """/responses/compact returns an input and no response id."""
    body = {"model": "echo", "input": [{"role": "user", "content": word} for word in ("old", "older")]}
    window = shared_gateway.http.post("/v1/responses/compact", json=body).json()["output"]
    with connect_client(shared_gateway) as client:
        client.turn(input="old", store=False)
        response = client.turn(input=[*window, {"role": "user", "content": "new"}], previous_response_id=None)
        continuation = client.turn(input="newer", previous_response_id=response["id"])

    assert (response_text(response), response["previous_response_id"]) == ("new", None)
    assert response_text(continuation) == "newer"


def test_a_connection_ends_after_sixty_minutes_with_an_error(serve: Serve) -> None:
    clock = ManualClock()
    gateway = serve(clock=clock)
    with connect_client(gateway) as client:
        client.turn(input="hi")
        gateway.run(clock.advance_and_wake(3599))
        assert response_text(client.turn(input="still")) == "still"
        gateway.run(clock.advance_and_wake(1))
        end = client.receive()
        with pytest.raises(ConnectionClosed) as closed:
            client.receive()

    assert (end["type"], end["status"], end["error"]["type"]) == ("error", 400, "invalid_request_error")
    assert end["error"]["code"] == "websocket_connection_limit_reached"
    assert end["error"]["message"] == (
        "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."
    )
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "the connection is too old")


def test_a_turn_that_runs_when_the_connection_expires_completes(serve: Serve) -> None:
    clock = ManualClock()
    gateway = serve(clock=clock, websocket_limits=WebSocketLimits(max_age_s=10))
    gateway.script("slow", {"text": "a b c d e f"}, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi")
        client.send(input="too late")
        client.receive()
        gateway.run(clock.advance_and_wake(10))
        gateway.release_deltas()
        assert response_text(client.receive_response()) == "a b c d e f"
        assert client.receive()["error"]["code"] == "websocket_connection_limit_reached"


def test_a_response_that_cannot_be_steered_returns_the_input(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "a b c d e f"}, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", context_management=[{"type": "compaction", "compact_threshold": 9000}])
        response_id = client.receive()["response"]["id"]
        client.send({"type": "response.steer", "previous_response_id": response_id, "input": "Shorter."})
        failed = next(event for event in iter(client.receive, None) if event["type"] == "response.steer.failed")
        gateway.release_deltas()
        assert response_text(client.receive_response()) == "a b c d e f"

    assert failed["error"]["code"] == "steering_not_supported"
    assert failed["steer"] == {"previous_response_id": response_id, "input": "Shorter."}


def test_a_message_of_an_unknown_type_is_named(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as client:
        result = client.turn({"type": "response.processed", "response_id": "resp_1"})
        assert response_text(client.turn(input="next")) == "next"

    assert (result["status"], result["error"]["code"], result["error"]["param"]) == (400, "invalid_value", "type")
    assert "'response.processed'" in result["error"]["message"]


def test_each_stream_id_has_its_own_chain_and_is_on_every_event(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway) as client:
        client.send(input="a", store=False, stream_id="left")
        left = client.receive_response_events()
        right = client.turn(input="b", store=False, stream_id="right")
        continuation = client.turn(
            input="c", store=False, stream_id="left", previous_response_id=left[-1]["response"]["id"]
        )
        crossed = client.turn(input="d", store=False, stream_id="left", previous_response_id=right["id"])

    assert {event["stream_id"] for event in left} == {"left"}
    assert response_text(continuation) == "c"
    assert (crossed["error"]["code"], crossed["stream_id"]) == (NOT_FOUND, "left")


@pytest.mark.parametrize("stream_id", ["", "with space", "x" * 257, 7])
def test_a_stream_id_is_validated(shared_gateway: RunningGateway, stream_id: Any) -> None:
    with connect_client(shared_gateway) as client:
        assert client.turn(input="hi", stream_id=stream_id)["error"]["code"] == "invalid_stream_id"


def test_the_number_of_stream_ids_of_a_connection_is_limited(serve: Serve) -> None:
    with connect_client(serve(websocket_limits=WebSocketLimits(max_streams=2))) as client:
        results = [client.turn(input="hi", stream_id=stream_id) for stream_id in ("a", "b", "c", "a")]

    assert [result.get("error", None) and result["error"]["code"] for result in results] == [
        None, None, "websocket_stream_limit_reached", None,
    ]  # fmt: skip
    assert (results[2]["error"]["param"], results[2]["stream_id"]) == ("stream_id", "c")
