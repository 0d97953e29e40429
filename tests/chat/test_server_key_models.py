"""A model that a server calls with its own key hides the key's and the model's errors from the client."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from convo.chat.endpoint_factory import ServerKeyModel
from convo.errors import ConvoError, EndpointFault, KeyRefused, RequestRefused, TryLater, Unsupported
from convo.history.items import Item, StreamEvent, user_message
from convo.models.base import Model, ModelRequest, make_issuer_tag, tag_encrypted_content
from tests.models.model_calls import read_events

REQUEST = ModelRequest("secret-model", [user_message("hi")])
TAG = make_issuer_tag("far", "secret-model", "https://far.example")
REASONING_ITEM = tag_encrypted_content({"type": "reasoning", "encrypted_content": "gAAAA"}, TAG)


class StubModel(Model):
    """A model that yields these events and then raises, if there is an error."""

    def __init__(self, *events: StreamEvent, error: ConvoError | None = None) -> None:
        self._events, self._error = events, error
        self.is_closed = False

    def _raise(self) -> None:
        if self._error:
            raise self._error

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        for event in self._events:
            yield event
        self._raise()

    async def warm(self, model: str) -> None:
        self._raise()

    async def check_request(self, request: ModelRequest) -> None:
        self._raise()

    async def count(self, request: ModelRequest) -> int | None:
        self._raise()
        return 7

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        self._raise()
        return [REASONING_ITEM]

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return ("seed",)

    async def aclose(self) -> None:
        self.is_closed = True


def server_key_model(model: Model, requested_name: str = "alias") -> ServerKeyModel:
    return ServerKeyModel(model, "far", requested_name=requested_name, provider_model="secret-model")


async def call_errors(error: ConvoError, requested_name: str = "alias") -> list[ConvoError]:
    """The error of each method of a model that fails with `error`."""
    errors = []
    for call in ("respond", "warm", "count", "compact"):
        model = server_key_model(StubModel(error=type(error)(*error.args, **error_fields(error))), requested_name)
        with pytest.raises(ConvoError) as caught:
            await (
                read_events(model, REQUEST)
                if call == "respond"
                else getattr(model, call)("m" if call == "warm" else REQUEST)
            )
        errors.append(caught.value)
    return errors


def error_fields(error: ConvoError) -> dict[str, Any]:
    return {"code": error.code, "status": error.status} if isinstance(error, EndpointFault) else {}


async def test_a_refused_key_is_an_error_of_the_server() -> None:
    for fault in await call_errors(KeyRefused("wrong key sk-1")):
        assert (type(fault), fault.code, fault.status) == (EndpointFault, "provider_key_refused", 502)
        assert fault.message == "far rejected the key of this server"
        assert fault.hint == "the operator of this server must check the key of far"


@pytest.mark.parametrize(
    "error",
    [
        RequestRefused("no model secret-model", code="model_not_found", status=400),
        RequestRefused("not found", status=404),
    ],
)
async def test_a_missing_model_is_named_as_the_client_named_it(error: RequestRefused) -> None:
    for fault in await call_errors(error):
        assert isinstance(fault, RequestRefused)
        assert fault.message == "The requested model 'alias' does not exist"
        assert (fault.code, fault.param, fault.status, fault.hint) == ("model_not_found", "model", 400, error.message)


@pytest.mark.parametrize(
    "error", [RequestRefused("not found", code="other", status=404), TryLater("not found", status=404)]
)
async def test_another_404_stays_as_it_is(error: EndpointFault) -> None:
    for fault in await call_errors(error):
        assert (type(fault), fault.code, fault.message) == (type(error), error.code, "not found")


async def test_a_message_names_the_model_as_the_client_did() -> None:
    error = TryLater("far/secret-model is busy; secret-model has a queue")

    for fault in await call_errors(error):
        assert fault.message == "alias is busy; alias has a queue"
    for fault in await call_errors(error, "far/secret-model"):
        assert fault.message == "far/secret-model is busy; secret-model has a queue"


async def test_a_check_reports_the_key_of_the_server_too() -> None:
    with pytest.raises(EndpointFault, match=r"^far rejected the key of this server$"):
        await server_key_model(StubModel(error=KeyRefused("no"))).check_request(REQUEST)


EVENTS: list[StreamEvent] = [
    {"type": "response.output_item.done", "item": REASONING_ITEM},
    {"type": "response.output_text.delta", "delta": "secret-model"},
    {
        "type": "response.failed",
        "response": {"output": [REASONING_ITEM], "error": {"code": "c", "message": "secret-model failed"}},
    },
    {"type": "response.failed", "response": {"output": None, "error": {"code": "c", "message": None}}},
    {"type": "response.created", "response": {}},
]


async def test_events_hide_the_model_behind_an_alias() -> None:
    item, delta, failed, odd, created = await read_events(server_key_model(StubModel(*EVENTS)), REQUEST)

    reasoning_item = item["item"]
    assert reasoning_item["encrypted_content"] == f"{TAG.opaque}gAAAA"
    assert failed["response"] == {"output": [reasoning_item], "error": {"code": "c", "message": "alias failed"}}
    assert odd["response"] == {"output": [], "error": {"code": "c", "message": None}}
    assert [delta, created] == [EVENTS[1], EVENTS[4]]


async def test_events_of_a_model_that_the_client_named_stay_as_they_are() -> None:
    assert await read_events(server_key_model(StubModel(*EVENTS), "far/secret-model"), REQUEST) == EVENTS


async def test_everything_else_is_passed_on() -> None:
    model = StubModel()
    server_model = server_key_model(model)

    assert server_model.provider == "far"
    assert await server_model.count(REQUEST) == 7
    assert await server_model.compact(REQUEST) == [{**REASONING_ITEM, "encrypted_content": f"{TAG.opaque}gAAAA"}]
    assert await server_key_model(model, "far/secret-model").compact(REQUEST) == [REASONING_ITEM]
    assert server_model.ignored_fields(REQUEST) == ("seed",)
    with pytest.raises(Unsupported):
        await server_key_model(StubModel(error=Unsupported("far/secret-model", "images"))).count(REQUEST)
    await server_model.aclose()
    assert model.is_closed
