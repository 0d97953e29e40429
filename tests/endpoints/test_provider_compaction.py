"""A provider with its own compaction: its encrypted items are sent only to the model that created them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from convo.models.base import Model
from convo.models.http import OpenAIClientOptions
from convo.models.responses import ResponsesModel
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.secrets import Secret
from convo.stores.base import Store
from tests.endpoints.endpoint_calls import ask, refusal, user_item
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.test_responses import end, message_item

LONG = " ".join(["word"] * 60)
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAA-theirs"}
SENT_COMPACTION = {"type": "compaction", "encrypted_content": "gAAAAA-theirs"}
HISTORY = [user_item(LONG), {"type": "message", "role": "assistant", "content": LONG}]
CONTEXT_MANAGEMENT = [{"type": "compaction", "compact_threshold": 50}]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


class Provider:
    """Opens the models of one account at `server`."""

    def __init__(self, server: ChatServer) -> None:
        self._model = ResponsesModel(OpenAIClientOptions(base_url=server.url, key=Secret("sk-test-key")), random_id)

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name

    async def aclose(self) -> None:
        await self._model.aclose()


@pytest.fixture
async def endpoint(store: Store, server: ChatServer) -> AsyncIterator[EmbeddedEndpoint]:
    embedded = EmbeddedEndpoint(store, Provider(server), SystemClock(), random_id)
    yield embedded
    await embedded.aclose()


def sent_requests(server: ChatServer) -> list[tuple[str, list[object]]]:
    """Return the path and the input of each request."""
    return [(request.path, request.json["input"]) for request in server.requests]


async def test_above_a_threshold_the_provider_compacts_and_continues_from_its_compaction(
    server: ChatServer, endpoint: EmbeddedEndpoint
) -> None:
    server.refuse(200, {"object": "response.compaction", "output": [COMPACTION]})
    server.stream(end(message_item("Well.")))
    server.stream(end(message_item("Good.")))

    first = await ask(endpoint, [*HISTORY, user_item("Two.")], model="gpt-5", context_management=CONTEXT_MANAGEMENT)
    await ask(endpoint, [user_item("Three.")], model="gpt-5", previous_response_id=first["id"])

    assert [item["type"] for item in first["output"]] == ["compaction", "message"]
    paths, inputs = zip(*sent_requests(server), strict=True)
    assert paths == ("/v1/responses/compact", "/v1/responses", "/v1/responses")
    assert inputs[0] == HISTORY
    assert inputs[1] == [SENT_COMPACTION, user_item("Two.")]
    assert inputs[2][:2] == [SENT_COMPACTION, user_item("Two.")]
    assert inputs[2][-1] == user_item("Three.")
    assert all("context_management" not in request.json for request in server.requests)


async def test_the_compacted_history_of_the_provider_is_the_next_input(
    server: ChatServer, endpoint: EmbeddedEndpoint
) -> None:
    server.refuse(200, {"object": "response.compaction", "output": [user_item("One.", id="msg_1"), COMPACTION]})
    server.stream(end(message_item("Well.")))

    window = await endpoint.compact({"model": "gpt-5", "input": HISTORY})
    await ask(endpoint, [*window["output"], user_item("Two.")], model="gpt-5")

    assert [item["type"] for item in window["output"]] == ["message", "compaction"]
    (_, last) = sent_requests(server)[-1]
    assert last[1:] == [SENT_COMPACTION, user_item("Two.")]


async def test_another_model_of_the_provider_does_not_get_the_compaction(
    server: ChatServer, endpoint: EmbeddedEndpoint
) -> None:
    server.refuse(200, {"object": "response.compaction", "output": [COMPACTION]})
    window = await endpoint.compact({"model": "gpt-5", "input": HISTORY})

    error = await refusal(endpoint, [*window["output"], user_item("Two.")], model="gpt-4.1")

    assert (error.code, error.status) == ("invalid_encrypted_content", 400)
    assert "gpt-5" in error.hint
    assert len(server.requests) == 1


async def test_a_provider_without_compaction_is_asked_for_a_summary(
    server: ChatServer, endpoint: EmbeddedEndpoint
) -> None:
    server.refuse(404, {"error": {"message": "no such route"}})
    server.stream(end(message_item("They said words.")))

    window = await endpoint.compact({"model": "gpt-5", "input": HISTORY})

    assert [item["type"] for item in window["output"]].count("compaction") == 1
    assert window["usage"]["total_tokens"] == 11
    assert [path for path, _ in sent_requests(server)] == ["/v1/responses/compact", "/v1/responses"]
