"""Calls for every method of the openai package that this API supports, with the expected results.

Each call is written once for both clients: `resolve` awaits the results of the asynchronous client.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.endpoints.endpoint_calls import TOOL

Call = Callable[[Any], Awaitable[None]]


async def resolve(value: Any) -> Any:
    """Return the result of a call to either client."""
    return await value if inspect.isawaitable(value) else value


async def collect(value: Any) -> list[Any]:
    """Return all elements of an iterator of either kind, from all its pages."""
    result = await resolve(value)
    return [item async for item in result] if hasattr(result, "__aiter__") else list(result)


async def create_response(client: Any, text: str, **more: Any) -> Any:
    return await resolve(client.responses.create(model="echo", input=text, **more))


async def create(client: Any) -> None:
    first = await create_response(client, "one", metadata={"a": "b"}, temperature=0.5)
    second = await create_response(client, "two", previous_response_id=first.id)
    assert (first.output_text, first.metadata, first.temperature) == ("one", {"a": "b"}, 0.5)
    assert (second.output_text, second.previous_response_id) == ("two", first.id)


async def create_streamed(client: Any) -> None:
    events = await collect(await create_response(client, "hello", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == "hello"


async def stream(client: Any) -> None:
    manager = client.responses.stream(model="echo", input="hello there", tools=[TOOL])
    if hasattr(manager, "__aenter__"):
        async with manager as streamed:
            types = [event.type async for event in streamed]
            final = await streamed.get_final_response()
    else:
        with manager as streamed:
            types = [event.type for event in streamed]
            final = streamed.get_final_response()
    assert (types[0], types[-1], final.output_text) == ("response.created", "response.completed", "hello there")


async def parse(client: Any) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        city: str

    parsed = await resolve(client.responses.parse(model="echo", input=json.dumps({"city": "Oslo"}), text_format=Answer))
    assert parsed.output_parsed == Answer(city="Oslo")


async def retrieve(client: Any) -> None:
    response = await create_response(client, "kept")
    assert await resolve(client.responses.retrieve(response.id)) == response
    assert await resolve(client.responses.retrieve(response.id, include=["reasoning.encrypted_content"])) == response


async def retrieve_streamed(client: Any) -> None:
    response = await create_response(client, "one two three", background=True)
    whole = await collect(await resolve(client.responses.retrieve(response.id, stream=True)))
    rest = await collect(await resolve(client.responses.retrieve(response.id, stream=True, starting_after=2)))
    assert whole[-1].response.output_text == "one two three"
    assert rest == whole[3:]


async def delete(client: Any) -> None:
    parent = await create_response(client, "gone")
    child = await create_response(client, "kept", previous_response_id=parent.id)
    await resolve(client.responses.delete(parent.id))
    listed = await collect(client.responses.input_items.list(child.id))
    assert len(listed) == 3


async def cancel(client: Any) -> None:
    response = await resolve(client.responses.create(model="slow", input="hi", background=True))
    assert response.status in ("queued", "in_progress")
    assert (await resolve(client.responses.cancel(response.id))).status == "cancelled"


async def input_items(client: Any) -> None:
    response = await create_response(client, [{"role": "user", "content": str(index)} for index in range(25)])  # type: ignore[arg-type]
    newest = await collect(client.responses.input_items.list(response.id, limit=10))
    page = await resolve(client.responses.input_items.list(response.id, limit=2, order="asc", after=newest[-1].id))
    assert [item.content[0].text for item in newest] == [str(index) for index in reversed(range(25))]
    assert ([item.content[0].text for item in page.data], page.has_more) == (["1", "2"], True)
    assert page.first_id == page.data[0].id


async def compact(client: Any) -> None:
    compacted = await resolve(client.responses.compact(model="echo", input="a long story"))
    kinds = [item.type for item in compacted.output]
    assert (compacted.object, kinds.count("compaction")) == ("response.compaction", 1)
    response = await resolve(
        client.responses.create(
            model="echo",
            input=[*(item.to_dict(warnings=False) for item in compacted.output), {"role": "user", "content": "go on"}],
        )
    )
    assert response.output_text == "go on"


async def count(client: Any) -> None:
    result = await resolve(client.responses.input_tokens.count(model="echo", input="one two three"))
    assert (result.object, result.input_tokens) == ("response.input_tokens", 3)


async def raw(client: Any) -> None:
    got = await resolve(client.responses.with_raw_response.create(model="echo", input="hi"))
    assert got.headers["x-request-id"].startswith("req_")
    assert got.headers["openai-processing-ms"].isdigit()
    assert (await resolve(got.parse())).output_text == "hi"
    assert (await create_response(client, "hi"))._request_id.startswith("req_")


async def conversation(client: Any) -> None:
    """Create a conversation with items, add a turn, update, retrieve and delete it."""
    items = [{"type": "message", "role": "user", "content": "remember"}]
    created = await resolve(client.conversations.create(items=items, metadata={"a": "b"}))
    answer = await create_response(client, "hello", conversation=created.id)
    updated = await resolve(client.conversations.update(created.id, metadata={"c": "d"}))
    retrieved = await resolve(client.conversations.retrieve(created.id))
    deleted = await resolve(client.conversations.delete(created.id))

    assert (created.object, created.metadata, answer.conversation.id) == ("conversation", {"a": "b"}, created.id)
    assert updated == retrieved
    assert retrieved.metadata == {"c": "d"}
    assert (deleted.id, deleted.object, deleted.deleted) == (created.id, "conversation.deleted", True)


async def conversation_items(client: Any) -> None:
    created = await resolve(client.conversations.create())
    items = [{"type": "message", "role": "user", "content": word} for word in ("one", "two", "three")]
    added = await resolve(
        client.conversations.items.create(created.id, items=items, include=["message.output_text.logprobs"])
    )
    ids = [item.id for item in added.data]
    listed = await collect(client.conversations.items.list(created.id, order="asc", limit=2))
    second = await resolve(client.conversations.items.retrieve(ids[1], conversation_id=created.id))
    remaining = await resolve(client.conversations.items.delete(ids[1], conversation_id=created.id))
    rest = await collect(client.conversations.items.list(created.id, order="asc"))

    assert [item.id for item in listed] == ids
    assert (added.first_id, added.last_id, added.has_more) == (ids[0], ids[2], False)
    assert (second.id, second.content[0].text) == (ids[1], "two")
    assert (remaining.id, remaining.object) == (created.id, "conversation")
    assert [item.id for item in rest] == [ids[0], ids[2]]


async def models(client: Any) -> None:
    listed = await collect(client.models.list())
    retrieved = await resolve(client.models.retrieve("echo"))
    assert "echo" in [model.id for model in listed]
    assert (retrieved.id, retrieved.object) == ("echo", "model")


CALLS: Mapping[str, tuple[Call, ...]] = {
    "responses.create": (create, create_streamed, raw),
    "responses.stream": (stream,),
    "responses.parse": (parse,),
    "responses.retrieve": (retrieve, retrieve_streamed),
    "responses.delete": (delete,),
    "responses.cancel": (cancel,),
    "responses.compact": (compact,),
    "responses.input_items.list": (input_items,),
    "responses.input_tokens.count": (count,),
    "conversations.create": (conversation,),
    "conversations.retrieve": (conversation,),
    "conversations.update": (conversation,),
    "conversations.delete": (conversation,),
    "conversations.items.create": (conversation_items,),
    "conversations.items.retrieve": (conversation_items,),
    "conversations.items.list": (conversation_items,),
    "conversations.items.delete": (conversation_items,),
    "models.list": (models,),
    "models.retrieve": (models,),
}
"""The calls that test each method."""

NOT_CALLED = {
    "responses.connect": "a WebSocket; test_websocket.py calls it",
    "models.delete": "fine-tuned models, which this server does not have",
}
"""Methods without a call here, each with the reason."""

ALL_CALLS = tuple(dict.fromkeys(call for calls in CALLS.values() for call in calls))
