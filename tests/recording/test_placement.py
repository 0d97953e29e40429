"""Requests that contain their whole history are put into the right trees, with the request before them as parent."""

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.history.records import RECORDED_SESSION_PREFIX, Link
from convo.history.tree import root_key
from convo.recording.placement import ConversationIndex, PlacedRequest
from convo.recording.recorder import StoreRecorder, open_recorder
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.call_count import CallCount
from tests.clock import FixedClock
from tests.recording.exchanges import (
    CAPTURED_CLIENTS,
    captured_exchanges,
    interleaved_conversations,
    make_request,
    make_response,
)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    memory = open_store("memory")
    await memory.admin.migrate()
    yield memory
    await memory.aclose()


@pytest.fixture
async def recorder(store: Store) -> AsyncIterator[StoreRecorder]:
    opened = open_recorder(store, clock=FixedClock())
    yield opened
    await opened.aclose()


async def load_links(store: Store) -> dict[str, Link]:
    return {link.id: link for session in await store.sessions() for link in await store.links(session.id)}


@pytest.mark.parametrize("client", CAPTURED_CLIENTS)
async def test_the_requests_of_a_released_client_continue_each_other(
    store: Store, recorder: StoreRecorder, client: str
) -> None:
    for request, response in captured_exchanges(client):
        await recorder.begin(request)
        await recorder.finish(request, response)
    for session in await store.sessions():
        links = [link for link in await store.links(session.id) if link.parameters.get("tools")]
        assert [link.parent_id for link in links] == [None, *(link.id for link in links[:-1])]
        assert session.head == links[-1].head
        assert session.name.startswith(client)
        assert {link.parameters["convo.recording"]["client"] for link in links} == {client}
        assert all(link.status == "completed" and "notes" not in link.parameters["convo.recording"] for link in links)
    assert len(await store.sessions()) == (2 if client == "claude-code" else 1)  # its second run has another id


@pytest.mark.parametrize(
    "requests_per_client", [20, pytest.param(50, marks=pytest.mark.full)], ids=["80 requests", "200 requests"]
)
async def test_interleaved_requests_of_four_clients_are_in_the_right_trees(
    store: Store, recorder: StoreRecorder, requests_per_client: int
) -> None:
    expected_parents: dict[str, str | None] = {}
    last_ids: dict[int, str] = {}
    for conversation, request, response in interleaved_conversations(requests_per_client, turns=10, seed=7):
        await recorder.begin(request)
        await recorder.finish(request, response)
        prefix = {"responses": "resp_", "chat_completions": "chatcmpl-", "messages": "msg_"}[conversation.protocol]
        expected_parents[prefix + request.id] = last_ids.get(conversation.number)
        last_ids[conversation.number] = prefix + request.id
    links = await load_links(store)
    assert {link.id: link.parent_id for link in links.values()} == expected_parents
    assert len(expected_parents) == 4 * requests_per_client


async def test_a_new_recorder_finds_the_conversations_of_the_one_before(store: Store) -> None:
    expected_parents: dict[str, str | None] = defaultdict()
    last_ids: dict[int, str] = {}
    for conversation, request, response in interleaved_conversations(10, turns=5, seed=3):
        recorder = open_recorder(store, clock=FixedClock())
        await recorder.begin(request)
        await recorder.finish(request, response)
        await recorder.aclose()
        expected_parents[request.id] = last_ids.get(conversation.number)
        last_ids[conversation.number] = request.id
    for link in (await load_links(store)).values():
        name = link.id.partition("_" if link.id[0] in "rm" else "-")[2]
        parent = link.parent_id and link.parent_id.partition("_" if link.id[0] in "rm" else "-")[2]
        assert parent == expected_parents[name]


TEXTS = st.text(min_size=1, max_size=8).filter(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Turns, each a list of items: input, then output."""
    turns = []
    for number in range(draw(st.integers(1, 6))):
        text = draw(TEXTS)
        turn: list[dict[str, Any]] = [{"role": "user", "content": f"{number} {text}"}]
        if draw(st.booleans()):
            turn.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"e{number}"})
        answer = {"type": "output_text", "text": f"answer {number} {draw(TEXTS)}", "annotations": []}
        turn.append(
            {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [answer]}
        )
        turns.append(turn)
    return turns


@given(conversations(), st.data())
def test_any_split_of_a_conversation_into_requests_is_one_path(
    turns: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    index = ConversationIndex(root_key("local"), is_keyed=False)
    history: list[Any] = []
    parent, path = None, None
    for number, turn in enumerate(turns):
        history.append(turn[0])
        if data.draw(st.booleans(), label="the client writes the user message in parts"):
            history[-1] = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": turn[0]["content"]}],
            }
        placement = index.place(history, "setup")
        assert placement.parent_id == parent
        assert path is None or placement.path.keys[: len(path)] == path.keys
        path = placement.path.append(turn[1:])
        parent = f"request {number}"
        index.add(
            PlacedRequest(parent, placement.parent_id, placement.line, "setup", path, tuple(turn[1:]), has_tools=False)
        )
        for item in turn[1:]:
            form = data.draw(st.sampled_from(("as sent", "without id", "text")), label="form of the answer")
            if form == "as sent":
                history.append(item)
            elif form == "without id" or item["type"] == "reasoning":
                history.append({name: value for name, value in item.items() if name not in ("id", "status")})
            else:
                history.append({"role": "assistant", "content": item["content"][0]["text"]})


async def record(recorder: StoreRecorder, number: int, body: dict[str, Any], output: list[Any]) -> str:
    """Record an exchange of a client that sends the id of its conversation; return the id of its response."""
    request = make_request({"model": "m", "store": False, **body}, id=f"x{number}", headers={"session-id": "s"})
    response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": output}
    await recorder.begin(request)
    await recorder.finish(request, make_response(response))
    return f"resp_{number}"


def answer(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


AGENT = {"instructions": "You are an agent.", "tools": [{"type": "function", "name": "spawn"}]}
SPAWN = {"type": "function_call", "call_id": "call_1", "name": "spawn", "arguments": "{}"}


async def test_a_subagent_is_a_branch_of_the_request_that_called_it(store: Store, recorder: StoreRecorder) -> None:
    start = [{"role": "user", "content": "Ask a helper."}]
    title = await record(recorder, 1, {"input": [{"role": "user", "content": "Name this."}]}, [answer("A name")])
    caller = await record(recorder, 2, {**AGENT, "input": start}, [SPAWN])
    helper = {"instructions": "You help.", "tools": [{"type": "function", "name": "read"}]}
    question = [{"role": "user", "content": "Help."}]
    first = await record(recorder, 3, {**helper, "input": question}, [answer("Reading.")])
    second = await record(
        recorder, 4, {**helper, "input": [*question, answer("Reading."), {"role": "user", "content": "go on"}]}, []
    )
    result = {"type": "function_call_output", "call_id": "call_1", "output": "It helped."}
    last = await record(recorder, 5, {**AGENT, "input": [*start, SPAWN, result]}, [answer("Done.")])
    links = await load_links(store)
    assert {link.id: link.parent_id for link in links.values()} == {
        title: None, caller: None, first: caller, second: first, last: caller,
    }  # fmt: skip
    (session,) = await store.sessions()
    assert session.link_id == last
    assert session.head == links[last].head


SUMMARY = "The user asked for a tree of directories, and the files were listed."


@pytest.mark.parametrize(
    "window",
    [
        [{"role": "user", "content": f"Earlier: {SUMMARY} Continue."}],
        [{"type": "compaction", "encrypted_content": "sealed"}, {"role": "user", "content": "Continue."}],
        [{"role": "user", "content": "Only the latest message is left."}],
    ],
    ids=["summary", "compaction item", "items dropped"],
)
async def test_a_compaction_continues_the_request_before_it(
    store: Store, recorder: StoreRecorder, window: list[Any]
) -> None:
    start = [{"role": "user", "content": "List the files."}]
    first = await record(recorder, 1, {**AGENT, "input": start}, [answer("a, b")])
    history = [*start, answer("a, b"), {"role": "user", "content": "Summarize."}]
    output = [answer(SUMMARY), {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}]
    compaction = await record(recorder, 2, {**AGENT, "input": history}, output)
    after = await record(recorder, 3, {**AGENT, "input": window}, [answer("Yes.")])
    links = await load_links(store)
    assert {link.id: link.parent_id for link in links.values()} == {first: None, compaction: first, after: compaction}
    assert (await store.path(links[after].input_head)).items == tuple(window)


async def test_an_edited_message_is_a_fork_and_a_repeated_request_a_sibling(
    store: Store, recorder: StoreRecorder
) -> None:
    start = [{"role": "user", "content": "One."}]
    first = await record(recorder, 1, {"input": start}, [answer("1")])
    history = [*start, answer("1")]
    second = await record(recorder, 2, {"input": [*history, {"role": "user", "content": "Two."}]}, [answer("2")])
    edited = await record(recorder, 3, {"input": [*history, {"role": "user", "content": "Three."}]}, [answer("3")])
    repeated = await record(recorder, 4, {"input": [*history, {"role": "user", "content": "Two."}]}, [answer("two")])
    links = await load_links(store)
    assert [links[name].parent_id for name in (second, edited, repeated)] == [first] * 3
    assert links[second].input_head == links[repeated].input_head


async def test_previous_response_id_names_the_parent(store: Store, recorder: StoreRecorder) -> None:
    first = await record(recorder, 1, {"input": "One."}, [answer("1")])
    second = await record(recorder, 2, {"input": "Two.", "previous_response_id": first}, [answer("2")])
    unknown = await record(recorder, 3, {"input": "Three.", "previous_response_id": "resp_elsewhere"}, [])
    links = await load_links(store)
    assert links[second].parent_id == links[second].previous_response_id == first
    assert links[second].sent_count == 1
    assert [item["role"] for item in (await store.path(links[second].head)).items] == ["user", "assistant"] * 2
    assert links[unknown].parent_id == "resp_elsewhere"
    assert "was not recorded" in links[unknown].parameters["convo.recording"]["notes"][0]


@pytest.mark.parametrize("key", ["prompt_cache_key", "session header"])
async def test_equal_first_messages_are_told_apart_by_the_clients_key(
    store: Store, recorder: StoreRecorder, key: str
) -> None:
    for number in (1, 2):
        fields = {"prompt_cache_key": f"k{number}"} if key == "prompt_cache_key" else {}
        headers = {} if fields else {"x-session-id": f"k{number}"}
        request = make_request(
            {"model": "m", "input": "Hi.", "store": False, **fields}, id=f"x{number}", headers=headers
        )
        await recorder.begin(request)
    sessions = await store.sessions()
    assert len(sessions) == 2
    assert all(session.id.startswith(RECORDED_SESSION_PREFIX) for session in sessions)


def make_placed(index: ConversationIndex, number: int, input_text: str, outputs: int = 1) -> PlacedRequest:
    """Place a request with one message, and return it with its answer."""
    placement = index.place([{"type": "message", "role": "user", "content": input_text}], "setup")
    output = tuple(
        {"type": "message", "role": "assistant", "content": f"{number}.{one} {'y' * 40}"} for one in range(outputs)
    )
    path = placement.path.append(output)
    return PlacedRequest(f"resp_{number}", None, placement.line, "setup", path, output, has_tools=False)


def test_an_index_drops_its_oldest_requests_above_its_limit_and_keeps_the_latest() -> None:
    index = ConversationIndex(root_key("local"), is_keyed=True)
    for number in range(10):
        index.add(make_placed(index, number, f"{number} {'x' * 1000}"))
    assert 10_000 < index.size_bytes < 12_000
    index.drop_oldest(3500)

    assert index.size_bytes < 3500
    assert list(index.requests) == ["resp_7", "resp_8", "resp_9"]
    first, latest = (
        [{"type": "message", "role": "user", "content": f"{number} {'x' * 1000}"}, *request.output]
        for number, request in ((0, make_placed(index, 0, "0")), (9, index.requests["resp_9"]))
    )
    assert index.place(latest, "setup").parent_id == "resp_9"
    assert index.place(first, "setup").shared_count == 0
    index.drop_oldest(0)
    assert list(index.requests) == ["resp_9"]


def test_an_answer_of_many_messages_is_compared_in_bounded_time() -> None:
    """Only its last messages are searched in the texts of a new branch: thousands took minutes."""
    index = ConversationIndex(root_key("local"), is_keyed=True)
    index.add(make_placed(index, 1, "first", outputs=5000))
    summary = index.requests["resp_1"].output[-1]["content"]
    with CallCount() as calls:
        placement = index.place([{"type": "message", "role": "user", "content": f"Summary: {summary}"}], "setup")

    assert placement.parent_id == "resp_1"
    assert calls.total < 500
