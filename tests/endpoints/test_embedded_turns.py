"""What only our own endpoint can show: the moment of durability, the writer's right, what is left behind."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from convo.clock import FixedClock
from convo.endpoints.embedded import Embedded
from convo.errors import Conflict, ConvoError, Refused, StoreFull, StreamBroken, TryLater, Unsupported
from convo.history import HERE, Link, Path, Strategy, root
from convo.ids import counting_ids
from convo.items import Event
from convo.items import user as said_by_user
from convo.models.contract import Ask
from convo.stores.contract import Change, Growth, Store
from convo.stores.memory import MemoryStore
from tests.endpoints.sides import MODEL, TOOL, ask, events, refusal, texts, told, user
from tests.endpoints.slow import Slow, over, ready
from tests.loopback import Scripts


@asynccontextmanager
async def begun(endpoint: Embedded, body: dict[str, object]) -> AsyncIterator[AsyncGenerator[Event, None]]:
    """An answer whose first piece has come."""
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", **body})) as answer:
        async for event in answer:
            if event["type"] == "response.output_text.delta":
                break
        yield answer


# -- durability -----------------------------------------------------------------------------------


async def test_the_answer_is_durable_before_the_last_event_is_told(store: Store, scripts: Scripts) -> None:
    endpoint = Embedded(store, scripts, FixedClock(), counting_ids())
    conversation = str((await endpoint.create_conversation())["id"])
    seen: list[tuple[str, bool, int]] = []
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", "conversation": conversation})) as answer:
        async for event in answer:
            there = await store.conversation(conversation)
            assert there
            seen.append((event["type"], await store.link("resp_1") is not None, len(there.ids)))

    assert {(kept, items) for _, kept, items in seen[:-1]} == {(False, 0)}
    assert seen[-1] == ("response.completed", True, 2)


async def test_the_conversation_is_free_when_the_last_event_is_told(embedded: Embedded) -> None:
    conversation = (await embedded.create_conversation())["id"]
    async with aclosing(embedded.create({"model": MODEL, "input": "a", "conversation": conversation})) as answer:
        async for event in answer:
            if event["type"] == "response.completed":
                assert (await ask(embedded, "b", conversation=conversation))["status"] == "completed"


async def test_a_link_says_what_was_seen_sent_and_added(store: Store, embedded: Embedded) -> None:
    first = await ask(embedded, [user("a"), user("b")], instructions="Be brief.", temperature=0.5)
    second = await ask(embedded, "c", previous_response_id=first["id"])

    links = [await store.link(one["id"]) for one in (first, second)]

    one, two = (link for link in links if link)
    path = await store.path(two.head)
    assert texts(path.items) == ["a", "b", "b", "c", "c"]
    assert (path.place(one.saw), path.place(one.head), path.place(two.saw)) == (2, 3, 4)
    assert (one.sent, two.sent) == (2, 1)
    assert (one.parent, two.parent, two.previous_response_id) == (None, one.id, one.id)
    assert (one.strategy, one.session, one.scope, one.stored) == (Strategy.CHAIN, None, HERE, True)
    assert one.parameters == {"instructions": "Be brief.", "temperature": 0.5}
    assert two.parameters == {}
    assert one.usage == first["usage"]


async def test_items_stand_in_the_store_as_they_travelled(store: Store, embedded: Embedded) -> None:
    easy = {"role": "user", "content": "a"}
    response = await ask(embedded, [easy])
    link = await store.link(response["id"])
    assert link
    assert (await store.path(link.head)).items == (easy, *response["output"])


async def test_a_turn_in_a_conversation_says_so(store: Store, embedded: Embedded) -> None:
    conversation = (await embedded.create_conversation([user("a")]))["id"]
    response = await ask(embedded, "b", conversation=conversation)
    link = await store.link(response["id"])
    assert link
    assert (link.strategy, link.conversation_id, link.sent) == (Strategy.CONVERSATION, conversation, 1)
    there = await store.conversation(conversation)
    assert there
    assert there.head == link.head


async def test_with_store_false_nothing_at_all_is_stored() -> None:
    store = Watched()
    response = await ask(over(store, ready()), "a", store=False)
    assert response["status"] == "completed"
    assert store.commits == []


async def test_a_refused_request_stores_nothing_and_asks_nobody(scripts: Scripts) -> None:
    store = Watched()
    endpoint = Embedded(store, scripts, FixedClock(), counting_ids())
    for body in (
        {"tempreature": 1},
        {"previous_response_id": "resp_x"},
        {"conversation": "conv_x"},
        {"background": True, "store": False},
    ):
        await refusal(endpoint, "a", **body)
    assert (store.commits, scripts.asks) == ([], [])


async def test_secrets_of_tools_reach_the_model_and_nothing_else(store: Store, scripts: Scripts) -> None:
    endpoint = Embedded(store, scripts, FixedClock(), counting_ids())
    tool = {
        "type": "mcp",
        "server_label": "s",
        "server_url": "https://me:hunter2@example.org/mcp",
        "authorization": "hunter2",
        "headers": {"X-Key": "hunter2"},
    }
    named = {**TOOL, "parameters": {"type": "object", "properties": {"authorization": {"type": "string"}}}}

    response = await ask(endpoint, "a", tools=[tool, named])

    link = await store.link(response["id"])
    assert link
    assert scripts.asks[0].parameters["tools"] == [tool, named]
    assert link.parameters["tools"] == [
        {"type": "mcp", "server_label": "s", "server_url": "https://example.org"},
        named,
    ]
    assert "hunter2" not in str(response)


# -- stopping -------------------------------------------------------------------------------------


async def test_closing_the_answer_stops_the_model_and_keeps_it_as_cancelled(store: Store) -> None:
    model = Slow()
    endpoint = over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])

    async with begun(endpoint, {"conversation": conversation}):
        pass

    assert model.closed.is_set()
    kept = await endpoint.retrieve("resp_1")
    assert (kept["status"], kept["error"]) == ("cancelled", None)
    assert [item["status"] for item in kept["output"]] == ["incomplete"]
    assert texts(kept["output"]) == ["one "]
    assert (await endpoint.conversation_items(conversation)).items == []
    wrong = await refusal(endpoint, "b", previous_response_id="resp_1")
    assert wrong.message == "Previous response with id 'resp_1' is cancelled and cannot be continued"


async def test_a_cancelled_task_does_the_same(store: Store) -> None:
    model = Slow()
    endpoint = over(store, model)
    waiting = asyncio.Event()

    async def read() -> None:
        async with begun(endpoint, {}) as answer:
            waiting.set()
            await anext(answer)

    task = asyncio.create_task(read())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert model.closed.is_set()
    assert (await endpoint.retrieve("resp_1"))["status"] == "cancelled"


async def test_whoever_is_cancelled_twice_keeps_the_answer_all_the_same() -> None:
    """The second time comes while the store still writes what the first one left."""
    store, model = Unhurried(), Slow()
    endpoint = over(store, model)
    waiting = asyncio.Event()

    async def read() -> None:
        async with begun(endpoint, {}) as answer:
            waiting.set()
            await anext(answer)

    task = asyncio.create_task(read())
    await waiting.wait()
    task.cancel()
    await store.writing.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await endpoint.retrieve("resp_1"))["status"] == "cancelled"


async def test_an_answer_stopped_before_it_began_leaves_nothing() -> None:
    model, store = Slow(silent=True), Watched()
    task = asyncio.create_task(events(over(store, model), "a"))
    await model.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.commits == []


async def test_closing_with_store_false_leaves_nothing() -> None:
    store = Watched()
    async with begun(over(store, Slow()), {"store": False}):
        pass
    assert store.commits == []


# -- failing --------------------------------------------------------------------------------------


async def test_what_a_model_refuses_comes_out_as_it_is(store: Store) -> None:
    class Refusing(Slow):
        async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
            raise Unsupported("m", "images", param="input")
            yield {}

    wrong = await refusal(over(store, Refusing()), "a")
    assert isinstance(wrong, Unsupported)
    assert told(wrong) == ("unsupported", 400, "input")


async def test_an_answer_that_breaks_off_is_kept_with_what_was_finished(store: Store) -> None:
    model = Slow(fails=StreamBroken("the connection broke"))
    model.go_on.set()
    endpoint = over(store, model)

    got = await events(endpoint, "a")

    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {"code": "server_error", "message": "the connection broke"}
    link = await store.link("resp_1")
    assert link
    assert (link.status, link.head) == ("failed", link.saw)
    assert link.error == {"code": "stream_broken", "message": "the connection broke"}


async def test_a_full_disk_at_the_end_is_told_instead_of_a_last_event() -> None:
    store = Watched(fails=StoreFull("no room is left"))
    got: list[str] = []

    async def read() -> None:
        async with aclosing(over(store, ready()).create({"model": MODEL, "input": "a"})) as answer:
            async for event in answer:
                got.append(event["type"])  # noqa: PERF401 - what came before the error counts

    with pytest.raises(StoreFull):
        await read()
    assert got[-1] == "response.output_item.done"


# -- one writer -----------------------------------------------------------------------------------


async def test_a_second_writer_is_told_in_the_real_words_and_may_come_back(store: Store) -> None:
    model = Slow()
    endpoint = over(store, model)
    conversation = str((await endpoint.create_conversation([user("x")]))["id"])
    item_id = (await endpoint.conversation_items(conversation)).items[0]["id"]

    async with begun(endpoint, {"conversation": conversation}) as answer:
        wrong = await refusal(endpoint, "b", conversation=conversation)
        for refused in (
            endpoint.add_items(conversation, [user("c")]),
            endpoint.delete_item(conversation, item_id),
            endpoint.delete_conversation(conversation),
            endpoint.update_conversation(conversation, {}),
        ):
            with pytest.raises(TryLater):
                await refused
        assert texts(await endpoint.conversation_items(conversation)) == ["x"]
        model.go_on.set()
        assert [event["type"] async for event in answer][-1] == "response.completed"

    assert isinstance(wrong, TryLater)
    assert told(wrong) == ("conversation_locked", 400, "conversation")
    assert wrong.message == (
        "Another process is currently operating on this conversation. Please retry in a few seconds"
    )
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_a_stopped_answer_frees_its_conversation(store: Store) -> None:
    model = Slow()
    endpoint = over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    async with begun(endpoint, {"conversation": conversation}):
        pass
    model.go_on.set()
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_a_failed_answer_frees_its_conversation(embedded: Embedded, scripts: Scripts) -> None:
    conversation = (await embedded.create_conversation())["id"]
    scripts.replies({"error": {"message": "no", "status": 500}})
    await refusal(embedded, "a", conversation=conversation)
    scripts.replies({"text": "yes"})
    assert (await ask(embedded, "b", conversation=conversation))["status"] == "completed"


async def test_a_writer_on_another_machine_is_waited_for_no_longer_than_its_lease() -> None:
    clock = FixedClock()
    store = MemoryStore(now=clock.now)
    endpoint = over(store, ready())
    conversation = str((await endpoint.create_conversation())["id"])
    await store.lease(f"writing {conversation}", "elsewhere:1:1:hold_1", 6)

    assert isinstance(await refusal(endpoint, "a", conversation=conversation), TryLater)
    clock.move(6.1)
    assert (await ask(endpoint, "a", conversation=conversation))["status"] == "completed"


async def test_a_killed_writer_of_this_machine_is_not_waited_for(store: Store) -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    endpoint = over(store, ready())
    conversation = str((await endpoint.create_conversation())["id"])
    await store.lease(f"writing {conversation}", f"{socket.gethostname()}:{gone.pid}:1:hold_1", 3600)

    assert (await ask(endpoint, "a", conversation=conversation))["status"] == "completed"


async def test_a_writer_that_lost_its_lease_fails_and_adds_nothing(store: Store) -> None:
    model = Slow()
    endpoint = over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    async with begun(endpoint, {"conversation": conversation}) as answer:
        there = await store.conversation(conversation)
        assert there
        path = Path(root(store.tenant)).grow([said_by_user("meanwhile")])
        moved = replace(there, head=path.head, ids=("msg_x",))
        await store.commit(
            replace(grown(path), conversation=moved, conversation_expect=there.head),
        )
        model.go_on.set()
        last = [event async for event in answer][-1]

    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert texts(await endpoint.conversation_items(conversation)) == ["meanwhile"]
    link = await store.link("resp_1")
    assert link
    assert link.error
    assert (link.status, link.error["code"]) == ("failed", Conflict.code)


async def test_a_previous_response_deleted_in_mid_answer_loses_nothing(store: Store) -> None:
    model = ready()
    endpoint = over(store, model)
    first = await ask(endpoint, "a")
    model.go_on.clear()
    async with begun(endpoint, {"previous_response_id": first["id"], "input": "b"}) as answer:
        await endpoint.delete(first["id"])
        model.go_on.set()
        last = [event async for event in answer][-1]
    assert last["type"] == "response.completed"
    assert texts(await endpoint.input_items(last["response"]["id"], order="asc")) == ["a", "one two", "b"]


# -- what is not ours -----------------------------------------------------------------------------


async def test_links_of_other_endpoints_and_attempts_are_no_responses(store: Store, embedded: Embedded) -> None:
    path = Path(root(store.tenant)).grow([said_by_user("a")])
    ours = Link("resp_a", path.head, path.head, 1, MODEL, Strategy.CHAIN, "completed", 1.0)
    links = (
        replace(ours, id="resp_elsewhere", scope=HERE._replace(url="https://api.openai.com/v1")),
        replace(ours, id="try_a"),
        replace(ours, id="resp_unstored", stored=False),
    )
    await store.commit(replace(grown(path), links=(ours, *links)))

    assert (await embedded.retrieve("resp_a"))["status"] == "completed"
    for link in links:
        wrong = await refusal(embedded, "b", previous_response_id=link.id)
        assert isinstance(wrong, Refused)
        assert wrong.code == "previous_response_not_found"


def grown(path: Path) -> Change:
    return Change(grow=(Growth(path.root, path.items),))


class Watched(MemoryStore):
    """The real memory store; remembers what was asked of it, and may fail to commit."""

    def __init__(self, *, fails: ConvoError | None = None) -> None:
        super().__init__()
        self.commits: list[Change] = []
        self._fails = fails

    async def commit(self, change: Change) -> None:
        if self._fails:
            raise self._fails
        self.commits.append(change)
        await super().commit(change)


class Unhurried(MemoryStore):
    """The real memory store; a change takes until it is told to end."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.writing = asyncio.Event(), asyncio.Event()

    async def commit(self, change: Change) -> None:
        self.writing.set()
        await self.go_on.wait()
        await super().commit(change)
