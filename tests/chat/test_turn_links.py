"""The link and the notices of a turn, for every end of its response."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

import pytest

from convo.chat.conversation import Chat
from convo.chat.open import open_chat
from convo.chat.session_record import ChatDeps, RunUpdate
from convo.chat.turn import (
    ChatTurn,
    InputOverride,
    RequestOptions,
    ResponseHook,
    load_owner_tail,
    return_no_update,
)
from convo.endpoints.base import Endpoint, ItemPage
from convo.errors import (
    ConvoError,
    EndpointFault,
    LimitReached,
    RequestRefused,
    StateFault,
    StateIgnored,
    StoreFull,
    StreamBroken,
    TryLater,
    Unreachable,
)
from convo.history.items import Item, Json, StreamEvent, assistant_message, item_text, user_message
from convo.history.records import AgentRun, Link, Scope, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.admin import SqliteAdmin
from convo.strategies.requests import NOT_RUN_MESSAGE
from convo.strategies.selection import OwnerSelection
from convo.strategies.strategy import ConversationState, RequestInput
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault as RecordedFault
from tests.chat.recording_endpoint import Killed
from tests.clock import FixedClock, counting_ids
from tests.request_items import message_lines

ROOT = root_key("local")
REMOTE = Scope("https://far.test/v1", "org_1")
USAGE = {"input_tokens": 3, "output_tokens": 1}


def created(response_id: str | None = "resp_1") -> StreamEvent:
    return {"type": "response.created", "response": {"id": response_id}}


def delta(text: str) -> StreamEvent:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": text}


def answer(text: str) -> Item:
    return {**assistant_message(text), "id": "msg_1", "status": "completed"}


def ended(text: str | None = "hello", kind: str = "completed", **fields: Json) -> StreamEvent:
    """The last event of a response; `fields` are added to the response."""
    output = [] if text is None else [answer(text)]
    response = {"id": "resp_1", "status": kind, "output": output, "usage": USAGE, **fields}
    return {"type": f"response.{kind}", "response": response}


@dataclass
class EventEndpoint:
    """A server that sends `streams`, one for each request; each event takes a second.

    event_s:       seconds that each event takes
    newest_items:  of its conversation, newest first
    """

    streams: list[Sequence[StreamEvent | BaseException]]
    event_s: float = 1
    clock: FixedClock = field(default_factory=FixedClock)
    scope: Scope = REMOTE
    bodies: list[Mapping[str, Json]] = field(default_factory=list)
    newest_items: list[Item] = field(default_factory=list)
    closed_count: int = 0

    async def create_conversation(self) -> Mapping[str, Json]:
        self.clock.advance(100)
        return {"id": "conv_1"}

    async def list_conversation_items(self, conversation_id: str, **page: Any) -> ItemPage:
        return ItemPage(self.newest_items, has_more=False)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.bodies.append(body)
        try:
            for event in self.streams.pop(0):
                self.clock.advance(self.event_s)
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            self.closed_count += 1


@dataclass
class RemoteChat:
    """A chat with an EventEndpoint."""

    chat: Chat
    endpoint: EventEndpoint
    store: Store
    notices: list[str]

    async def send(self, text: str = "hi") -> list[StreamEvent]:
        return [event async for event in self.chat.send([user_message(text)])]

    @property
    def link(self) -> Link:
        assert self.chat.turn
        assert self.chat.turn.link
        return self.chat.turn.link

    @property
    def unconfirmed_items(self) -> list[Item]:
        return [node.item for node in self.chat.state.unconfirmed_nodes]


async def open_remote_chat(
    strategy: Strategy,
    *streams: Sequence[StreamEvent | BaseException],
    options: RequestOptions | None = None,
    scope: Scope = REMOTE,
    store: Store | None = None,
    file: FilePath | None = None,
) -> RemoteChat:
    store, endpoint = store or MemoryStore(), EventEndpoint(list(streams), scope=scope)
    deps = ChatDeps(store, cast(Endpoint, endpoint), endpoint.clock, counting_ids())
    options = options or RequestOptions("far/m", "m")
    selection = OwnerSelection(strategy, str(file) if strategy is Strategy.REPLAY else None)
    chat = await open_chat(selection, None, options, deps, name="mine")
    remote_chat = RemoteChat(chat, endpoint, store, [])
    chat.notify = remote_chat.notices.append
    return remote_chat


# -- complete responses ----------------------------------------------------------------------------

SECRET_TOOL = {"type": "mcp", "server_label": "x", "headers": {"a": "b"}}
OPTIONS = RequestOptions(
    "far/m", "m", "Be brief.", {"tools": [SECRET_TOOL], "include": ["a"], "temperature": 0.5}, encrypt_reasoning=True
)


@pytest.mark.parametrize(
    ("strategy", "is_stored", "conversation_id"),
    [
        (Strategy.SESSION, False, None),
        (Strategy.CHAIN, True, None),
        (Strategy.CONVERSATION, True, "conv_1"),
    ],
)
async def test_the_link_of_a_response_has_its_request_and_its_times(
    strategy: Strategy, is_stored: bool, conversation_id: str | None
) -> None:
    last_event = {**ended(), "ignored": ["temperature"]}
    remote = await open_remote_chat(
        strategy,
        [TryLater("busy", status=429, retry_after_s=10.0)],
        [created(), delta("hel"), delta("lo"), last_event],
        options=OPTIONS,
    )
    start = remote.endpoint.clock.now()

    events = await remote.send()

    assert events == [created(), delta("hel"), delta("lo"), last_event]
    path = Path(ROOT).append([user_message("hi"), answer("hello")])
    assert remote.link == Link(
        id="resp_1",
        input_head=path.first(1).head,
        head=path.head,
        sent_count=1,
        model="far/m",
        strategy=strategy,
        status="completed",
        created_at=start + (100 if conversation_id else 0),
        session_id="ses_1",
        scope=REMOTE,
        conversation_id=conversation_id,
        duration_s=15.0,  # with the first attempt, and the 10 s before the second
        first_token_s=13.0,
        parameters={
            "instructions": "Be brief.",
            "tools": [{"type": "mcp", "server_label": "x"}],
            "temperature": 0.5,
            "ignored": ["temperature"],
        },
        usage=USAGE,
        is_stored=is_stored,
    )
    assert await remote.store.link("resp_1") == remote.link
    assert remote.chat.turn
    assert (remote.chat.turn.request_count, remote.chat.turn.response) == (2, last_event["response"])
    assert remote.notices == [
        "busy; retry 1 of 3 in 10 s: nothing was stored, so it is safe to retry",
    ]
    assert remote.chat.state == ConversationState(
        strategy, path, path.head, {Strategy.CHAIN: "resp_1"}.get(strategy, conversation_id)
    )


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
async def test_the_next_link_names_the_one_before_it(strategy: Strategy) -> None:
    second_end = ended("yes")
    second_end = {**second_end, "response": {**second_end["response"], "id": "resp_2"}}
    remote = await open_remote_chat(strategy, [ended()], [created("resp_2"), second_end])
    await remote.send()
    assert (remote.link.first_token_s, remote.link.duration_s) == (None, 1.0)
    await remote.send("more")
    chain = strategy is Strategy.CHAIN
    assert (remote.link.id, remote.link.parent_id, remote.link.previous_response_id, remote.link.sent_count) == (
        "resp_2",
        "resp_1",
        "resp_1" if chain else None,
        1 if chain else 3,
    )
    assert (remote.link.parameters, remote.link.error) == ({}, None)


async def test_an_output_that_the_last_event_lacks_is_the_streamed_one() -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created(), delta("hel"), delta("lo"), ended(None)])
    await remote.send()
    assert message_lines(remote.chat.state.path.items) == ["user: hi", "assistant: hello"]
    assert remote.chat.turn
    assert remote.chat.turn.response
    assert remote.chat.turn.response["output"] == [assistant_message("hello")]


async def test_a_chain_needs_a_response_with_an_id() -> None:
    for strategy, is_valid in ((Strategy.CHAIN, False), (Strategy.SESSION, True)):
        remote = await open_remote_chat(strategy, [created(None), delta("hello"), ended(id=None)])
        if is_valid:
            await remote.send()
            assert (remote.link.id, remote.link.status) == ("try_1", "completed")
            continue
        with pytest.raises(StateIgnored) as caught:
            await remote.send()
        message = "the response has no id, and a chain needs one to continue"
        assert caught.value.message == message
        assert (remote.link.status, remote.link.error) == ("failed", {"code": "state_ignored", "message": message})


TEXT_WARNING = "the text that was streamed differs from the final text, which was kept"


@pytest.mark.parametrize(
    ("last_event", "error"),
    [
        (ended("bye"), {"code": "text_differs", "message": TEXT_WARNING, "streamed_text_differs": True}),
        (
            {**ended(), "streamed_text_differs": 1},
            {"code": "text_differs", "message": TEXT_WARNING, "streamed_text_differs": True},
        ),
        (
            ended("bye", "incomplete", incomplete_details={"reason": "content_filter"}),
            {
                "code": "content_filter",
                "message": "the response is incomplete",
                "streamed_text_differs": True,
            },
        ),
    ],
)
async def test_a_text_that_differs_from_the_streamed_one_is_a_warning(
    last_event: StreamEvent, error: Mapping[str, Json]
) -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created(), delta("hello"), last_event])
    await remote.send()
    assert (remote.link.error, remote.notices) == (error, [f"warning: {TEXT_WARNING}"])
    assert item_text(remote.chat.state.path.items[1]) == item_text(last_event["response"]["output"][0])


async def test_an_incomplete_response_has_its_reason_and_is_confirmed() -> None:
    end = ended("hel", "incomplete", incomplete_details={"reason": "max_output_tokens"})
    remote = await open_remote_chat(Strategy.SESSION, [created(), delta("hel"), end])
    await remote.send()
    error = {"code": "max_output_tokens", "message": "the response is incomplete"}
    assert (remote.link.status, remote.link.error, remote.notices) == ("incomplete", error, [])
    assert not remote.unconfirmed_items


async def test_a_response_id_that_the_endpoint_used_before_is_replaced() -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created(), ended()], [created(), ended("yes")])
    await remote.send()
    await remote.send("more")
    assert (remote.link.id, remote.link.parent_id) == ("try_1", "resp_1")
    assert remote.notices == ["warning: the endpoint reused the response id resp_1; this response is stored as try_1"]
    assert [link.id for link in await remote.store.links("ses_1")] == ["resp_1", "try_1"]


# -- responses without an end ----------------------------------------------------------------------

PARTIAL = {**assistant_message("hel"), "status": "incomplete"}


@pytest.mark.parametrize("strategy", Strategy)
async def test_the_text_of_a_running_response_is_stored_at_most_once_a_second(
    strategy: Strategy, tmp_path: FilePath
) -> None:
    events = [created(), *map(delta, "hello"), ended()]
    remote = await open_remote_chat(strategy, events, file=tmp_path / "talk.json")
    remote.endpoint.event_s = 0.4
    stored = []
    async for _ in remote.chat.send([user_message("hi")]):
        session = await remote.store.session("mine")
        assert session
        stored.append([item_text(item) for item in (await remote.store.path(session.head)).items])
        assert not (tmp_path / "talk.json").exists()
    texts = ["h", "h", "h", "hell", "hell", "hello"]
    assert stored == [["hi"], *(["hi", text] for text in texts)]
    (stats,) = await remote.store.admin.tenant_stats()
    assert stats.row_counts["items"] == 2


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN, Strategy.CONVERSATION])
async def test_a_stream_without_its_end_fails_the_turn_and_its_text_is_kept(strategy: Strategy) -> None:
    remote = await open_remote_chat(strategy, [created(), delta("hel")])
    with pytest.raises(StreamBroken) as caught:
        await remote.send()
    message = "the endpoint's stream ended before the response was complete"
    assert (caught.value.message, caught.value.hint) == (message, "repeat the command")
    assert (remote.link.id, remote.link.status, remote.link.usage) == ("resp_1", "failed", None)
    assert remote.link.error == {"code": "stream_broken", "message": message}
    assert remote.unconfirmed_items == [user_message("hi"), PARTIAL]
    assert remote.chat.session.link_id is None


async def test_a_stream_that_ends_before_a_response_is_an_error() -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created()])
    with pytest.raises(StreamBroken) as caught:
        await remote.send()
    assert caught.value.message == "the endpoint's stream ended before a response began"
    assert (remote.link.id, remote.link.status) == ("try_1", "failed")
    assert remote.unconfirmed_items == [user_message("hi")]


async def test_a_failed_response_has_the_error_of_the_endpoint() -> None:
    error = {"code": "server_error", "message": "Oh."}
    remote = await open_remote_chat(Strategy.SESSION, [created(), delta("hel"), ended("hel", "failed", error=error)])
    with pytest.raises(EndpointFault, match=r"^Oh\.$"):
        await remote.send()
    assert (remote.link.status, remote.link.error, remote.notices) == ("failed", error, [])
    assert remote.unconfirmed_items == [user_message("hi"), PARTIAL]
    assert remote.chat.turn
    assert remote.chat.turn.response == ended("hel", "failed", error=error)["response"]


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
async def test_an_interrupted_response_is_cancelled_and_its_stream_closed(strategy: Strategy) -> None:
    remote = await open_remote_chat(strategy, [created(), delta("hel"), delta("lo"), ended()])
    async with aclosing(remote.chat.send([user_message("hi")])) as events:
        async for event in events:
            if event["type"].endswith(".delta"):
                break
    assert (remote.link.id, remote.link.status, remote.endpoint.closed_count) == ("resp_1", "cancelled", 1)
    assert remote.link.error == {"code": "interrupted", "message": "interrupted before the response was complete"}
    assert (remote.link.duration_s, remote.link.first_token_s) == (2.0, 2.0)
    assert remote.unconfirmed_items == [user_message("hi"), PARTIAL]
    path = remote.chat.state.path
    assert (remote.link.input_head, remote.link.head) == (path.first(1).head, path.head)


LIMIT = LimitReached("response_bytes", 4)
LIMIT_MESSAGE = "the response exceeded limits.response_bytes = 4"


async def test_a_client_keeps_a_response_that_exceeds_a_size_limit() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    remote = await open_remote_chat(
        Strategy.SESSION,
        [created(), delta("hel"), {"type": "response.output_item.added", "output_index": 1, "item": call}, LIMIT],
    )
    events = await remote.send()
    assert events[-1] == {
        "type": "response.incomplete",
        "response": {
            "id": "resp_1",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [PARTIAL],
        },
        "limit": {"name": "limits.response_bytes", "message": LIMIT_MESSAGE},
    }
    assert (remote.link.id, remote.link.status) == ("resp_1", "incomplete")
    assert remote.link.error == {
        "code": "max_output_tokens",
        "message": LIMIT_MESSAGE,
        "limit": "limits.response_bytes",
    }
    assert remote.notices == [f"{LIMIT_MESSAGE}; raise it: convo config set limits.response_bytes VALUE"]
    assert (remote.unconfirmed_items, remote.chat.state.path.items[1]) == ([], PARTIAL)


@pytest.mark.parametrize(
    ("strategy", "stream", "limit"),
    [
        (Strategy.CHAIN, [created(), delta("hel")], LIMIT),
        (Strategy.SESSION, [created(), delta("hel")], LimitReached("response_s", 4)),
        (Strategy.SESSION, [created()], LIMIT),
    ],
)
async def test_other_responses_that_exceed_a_limit_fail(
    strategy: Strategy, stream: list[StreamEvent], limit: LimitReached
) -> None:
    remote = await open_remote_chat(strategy, [*stream, limit])
    with pytest.raises(LimitReached):
        await remote.send()
    assert (remote.link.status, remote.notices) == ("failed", [])
    assert remote.link.error
    assert remote.link.error["message"] == limit.message
    assert len(remote.unconfirmed_items) == len(stream)


@pytest.mark.parametrize("kind", ["incomplete", "failed"])
async def test_a_limit_of_the_endpoint_is_a_notice_unless_the_response_failed(kind: str) -> None:
    limit = {"name": "limits.response_bytes", "message": LIMIT_MESSAGE}
    remote = await open_remote_chat(
        Strategy.SESSION, [created(), delta("hello"), {**ended("hel", kind, error=None), "limit": limit}]
    )
    if kind == "failed":
        with pytest.raises(EndpointFault, match=r"^the model failed$"):
            await remote.send()
        assert remote.notices == []
    else:
        await remote.send()
        assert remote.notices == [f"{LIMIT_MESSAGE}; raise it: convo config set limits.response_bytes VALUE"]
        assert remote.link.error == {
            "code": "max_output_tokens",
            "message": LIMIT_MESSAGE,
            "limit": "limits.response_bytes",
        }


# -- an input other than the history ----------------------------------------------------------------


def make_turn(
    remote: RemoteChat, override: InputOverride | None = None, on_response: ResponseHook = return_no_update
) -> ChatTurn:
    return ChatTurn(
        remote.chat.record,
        remote.chat.options,
        remote.chat.deps,
        check_tail=False,
        notify=remote.notices.append,
        input_override=override,
        on_response=on_response,
    )


SHORT = InputOverride(
    Path(ROOT).append([user_message("summary"), user_message("hi")]),
    RequestInput([user_message("summary"), user_message("hi")], 2, {"store": False}),
)


async def test_an_override_is_sent_and_stored_outside_the_history() -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created(), ended()])
    state = remote.chat.state
    await remote.chat.save(ConversationState(state.strategy, state.path.append([user_message("hi")]), ROOT), [])
    turn = make_turn(remote, SHORT)
    async with aclosing(turn.events()) as events:
        assert len([event async for event in events]) == 2

    assert remote.endpoint.bodies[0]["input"] == [user_message("summary"), user_message("hi")]
    assert message_lines(remote.chat.state.path.items) == ["user: hi", "assistant: hello"]
    link = turn.link
    assert link
    assert (link.input_head, link.sent_count) == (SHORT.path.head, 2)
    assert link.head == SHORT.path.append([answer("hello")]).head
    assert message_lines((await remote.store.path(link.head)).items) == [
        "user: summary",
        "user: hi",
        "assistant: hello",
    ]


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_a_rejected_response_leaves_no_partial_output(is_rejected: bool) -> None:
    for override in (None, SHORT):
        remote = await open_remote_chat(Strategy.SESSION, [created(), delta("hel"), ended()])
        state = remote.chat.state
        await remote.chat.save(ConversationState(state.strategy, state.path.append([user_message("hi")]), ROOT), [])
        turn = make_turn(remote, override)
        turn.is_rejected = is_rejected
        async with aclosing(turn.events()) as events:
            async for event in events:
                if event["type"].endswith(".delta"):
                    break
        partial = [] if is_rejected else [PARTIAL]
        assert remote.unconfirmed_items == [user_message("hi"), *partial]
        link = turn.link
        assert link
        input_path = override.path if override else Path(ROOT).append([user_message("hi")])
        assert (link.status, link.input_head, link.head) == (
            "cancelled",
            input_path.head,
            input_path.append(partial).head,
        )
        assert (await remote.store.path(link.head)).items == (*input_path.items, *partial)


@dataclass
class RecordingHook:
    """A hook for responses; `calls` are the histories and the outputs that it received."""

    update: RunUpdate | None
    calls: list[tuple[list[str], list[str]]] = field(default_factory=list)

    async def __call__(
        self, state: ConversationState, output: tuple[Item, ...], cut_reason: str | None
    ) -> RunUpdate | None:
        self.calls.append((message_lines(state.path.items), message_lines(output)))
        return self.update


@pytest.mark.parametrize(
    ("strategy", "override"),
    [(Strategy.SESSION, None), (Strategy.SESSION, SHORT), (Strategy.CHAIN, None), (Strategy.CONVERSATION, None)],
)
async def test_a_response_that_the_hook_rejects_is_stored_outside_the_history(
    strategy: Strategy, override: InputOverride | None
) -> None:
    remote = await open_remote_chat(strategy, [created(), ended()])
    state = remote.chat.state
    await remote.chat.save(ConversationState(strategy, state.path.append([user_message("hi")]), ROOT), [])
    hook = RecordingHook(None)
    turn = make_turn(remote, override, hook)
    async with aclosing(turn.events()) as events:
        assert len([event async for event in events]) == 2

    assert hook.calls == [(["user: hi", "assistant: hello"], ["assistant: hello"])]
    is_kept = strategy is Strategy.CONVERSATION  # its owner stored the response already
    assert message_lines(remote.chat.state.path.items) == ["user: hi", *(["assistant: hello"] if is_kept else [])]
    assert len(remote.unconfirmed_items) == (0 if is_kept else 1)
    link = turn.link
    assert link
    assert (link.id, link.status, remote.chat.session.link_id) == ("resp_1", "completed", "resp_1" if is_kept else None)
    assert await remote.store.link("resp_1") == link
    input_path = override.path if override else Path(ROOT).append([user_message("hi")])
    assert (await remote.store.path(link.head)).items == (*input_path.items, answer("hello"))


async def test_the_items_of_an_update_follow_the_response() -> None:
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "1"}
    for override in (None, SHORT):
        remote = await open_remote_chat(Strategy.SESSION, [created(), ended()])
        state = remote.chat.state
        await remote.chat.save(ConversationState(state.strategy, state.path.append([user_message("hi")]), ROOT), [])
        run = AgentRun("run_1", remote.chat.session.id, 1, "running", {}, 1.0, 1.0)
        turn = make_turn(remote, override, RecordingHook(RunUpdate(run, (), (output,))))
        async with aclosing(turn.events()) as events:
            assert len([event async for event in events]) == 2
        assert remote.chat.state.path.items == (user_message("hi"), answer("hello"), output)
        assert remote.unconfirmed_items == [output]
        assert remote.chat.record.agent_run == run
        assert [stored.id for stored in await remote.store.agent_runs(session_id="ses_1", limit=9)] == ["run_1"]
        assert turn.link == remote.chat.record.last_link


# -- the owner's items that this process missed ----------------------------------------------------


async def fetch_tail(state: ConversationState, *newest_first: Item, page_size: int = 2) -> list[Item]:
    """The tail of a conversation at a server that has these items and lists them in pages."""

    class PagedEndpoint(EventEndpoint):
        async def list_conversation_items(self, conversation_id: str, **page: Any) -> ItemPage:
            assert (conversation_id, page["order"], page["limit"]) == ("conv_1", "desc", 100)
            ids = [item["id"] for item in newest_first]
            start = ids.index(page["after"]) + 1 if page["after"] else 0
            items = newest_first[start : start + page_size]
            return ItemPage(items, has_more=start + page_size < len(newest_first))

    endpoint = cast(Endpoint, PagedEndpoint([]))
    tail = await load_owner_tail(state, endpoint, MemoryStore())
    assert tail.links == ()
    return list(tail.items)


def numbered(text: str, number: int) -> Item:
    return {**user_message(text), "id": f"msg_{number}"}


ITEMS = [numbered(f"item {number}", number) for number in range(5)]


def conversation_state(confirmed: Sequence[Item]) -> ConversationState:
    path = Path(ROOT).append(confirmed)
    return ConversationState(Strategy.CONVERSATION, path, path.head, "conv_1")


@pytest.mark.parametrize("confirmed_count", range(6))
async def test_the_tail_of_a_remote_conversation_is_read_back_to_the_confirmed_head(confirmed_count: int) -> None:
    state = conversation_state(ITEMS[:confirmed_count])
    assert await fetch_tail(state, *reversed(ITEMS)) == ITEMS[confirmed_count:]


async def test_a_conversation_without_the_confirmed_item_is_an_error_with_two_hints(harness: ChatHarness) -> None:
    with pytest.raises(StateFault) as caught:
        await fetch_tail(conversation_state([numbered("lost", 9)]), *reversed(ITEMS))
    assert caught.value.message == "conv_1 no longer has the last item that it confirmed"
    assert caught.value.hint == ("convo inspect conv_1, or open it again: convo chat --conversation --from conv_1")

    chat = await harness.open(Strategy.CONVERSATION)
    await send(chat, "one")
    handle = chat.session.handle or ""
    last = (await harness.endpoint.list_conversation_items(handle, order="desc")).items[0]
    await harness.endpoint.delete_conversation_item(handle, last["id"])
    with pytest.raises(StateFault) as local:
        await load_owner_tail(chat.state, cast(Endpoint, harness.endpoint), harness.store)
    assert local.value.message == f"{handle} no longer has the last item that it confirmed"


@pytest.mark.parametrize("strategy", [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN, Strategy.CONVERSATION])
async def test_a_state_without_a_readable_server_has_no_tail(strategy: Strategy) -> None:
    path = Path(ROOT).append(ITEMS)
    for handle, scope in ((None, REMOTE), (None, Scope()), ("conv_deleted", Scope())):
        state = ConversationState(strategy, path, ROOT, handle)
        endpoint = cast(Endpoint, EventEndpoint([], scope=scope))
        tail = await load_owner_tail(state, endpoint, MemoryStore())
        assert (tail.items, tail.links) == ((), ())


BEGINNING = (user_message("one"), assistant_message("first"))
NEW = (user_message("two"), user_message("three"))


async def load_local_tail(
    state: ConversationState, input_count: int, output: Sequence[Item], **fields: Any
) -> list[Item] | None:
    """The tail of a chain that the embedded endpoint answered; None if no response counts.

    input_count:  the items of the path that the response answered
    """
    store = MemoryStore()
    input_path = state.path.first(input_count)
    path = input_path.append(output)
    link = Link("resp_2", input_path.head, path.head, 1, "m", Strategy.CHAIN, "completed", 1.0)
    link = replace(link, **{"previous_response_id": "resp_1", **fields})
    await store.commit(Transaction((AppendItems(ROOT, path.items),), (link,)))
    tail = await load_owner_tail(state, cast(Endpoint, EventEndpoint([], scope=Scope())), store)
    assert tail.links == ((link,) if tail.items else ())
    return list(tail.items) or None


@pytest.mark.parametrize(
    ("input_count", "fields", "expected"),
    [
        (4, {}, [*NEW, answer("yes")]),
        (3, {}, [NEW[0], answer("yes")]),
        (2, {}, None),
        (4, {"status": "incomplete"}, [*NEW, answer("yes")]),
        (4, {"status": "failed"}, None),
        (4, {"status": "in_progress"}, None),
        (4, {"session_id": "ses_other"}, None),
        (4, {"previous_response_id": "resp_0"}, None),
        (4, {"previous_response_id": None}, None),
    ],
)
async def test_the_tail_of_a_chain_is_the_response_to_the_unconfirmed_input(
    input_count: int, fields: dict[str, Any], expected: list[Item] | None
) -> None:
    path = Path(ROOT).append([*BEGINNING, *NEW])
    state = ConversationState(Strategy.CHAIN, path, path.first(2).head, "resp_1")
    assert await load_local_tail(state, input_count, [answer("yes")], **fields) == expected


@pytest.mark.parametrize(("input_count", "is_answered"), [(4, True), (3, True), (1, False)])
async def test_a_response_to_a_part_of_an_older_history_does_not_count(input_count: int, is_answered: bool) -> None:
    path = Path(ROOT).append([*BEGINNING, *NEW])
    state = ConversationState(Strategy.CHAIN, path, path.root)
    tail = await load_local_tail(state, input_count, [answer("yes")], previous_response_id=None)
    assert tail == ([*path.items[:input_count], answer("yes")] if is_answered else None)


async def test_the_tail_of_a_conversation_has_the_responses_of_other_clients(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    handle = chat.session.handle or ""
    state = chat.state
    body = {"model": harness.model, "input": "two", "conversation": handle}
    events = [event async for event in harness.endpoint.create(body)]
    tail = await load_owner_tail(state, cast(Endpoint, harness.endpoint), harness.store)
    assert message_lines(tail.items) == ["user: two", "assistant: two"]
    assert [link.id for link in tail.links] == [events[-1]["response"]["id"]]

    await harness.store.commit(Transaction(links=(replace(tail.links[0], session_id=chat.session.id),)))
    again = await load_owner_tail(state, cast(Endpoint, harness.endpoint), harness.store)
    assert (again.items, again.links) == (tail.items, ())


async def test_a_recovered_response_is_announced_and_belongs_to_the_session(harness: ChatHarness) -> None:
    for strategy in (Strategy.CONVERSATION, Strategy.CHAIN):
        chat = await harness.open(strategy, name=f"by-{strategy}")
        await send(chat, "one")
        first = chat.record.last_link
        harness.endpoint.faults = [RecordedFault(Killed(), after=None)]
        with pytest.raises(Killed):
            await send(chat, "two")
        reopened = await harness.open(None, f"by-{strategy}")
        notices: list[str] = []
        reopened.notify = notices.append

        events = [event async for event in reopened.retry()]

        assert notices == ["the server had already stored 2 items of this turn; using them"]
        assert [event["type"] for event in events] == ["response.output_item.done", "response.completed"]
        link = reopened.record.last_link
        assert first
        assert link
        assert reopened.turn
        assert (link.session_id, link.parent_id, reopened.turn.link) == (reopened.session.id, first.id, link)
        assert events[-1]["response"]["id"] == link.id
        assert (reopened.session.handle == link.id) == (strategy is Strategy.CHAIN)
        assert (reopened.turn.request_count, reopened.state.unconfirmed_nodes) == (0, ())


async def test_a_connection_that_broke_is_named_in_the_link() -> None:
    remote = await open_remote_chat(Strategy.SESSION, *[[Unreachable("the connection broke")]] * 4)
    with pytest.raises(ConvoError):
        await remote.send()
    assert remote.notices == [
        f"the connection broke; retry {number} of 3 in {seconds} s: nothing was stored, so it is safe to retry"
        for number, seconds in ((1, 1), (2, 2), (3, 4))
    ]
    assert (remote.link.id, remote.link.status, remote.link.error) == (
        "try_1",
        "failed",
        {"code": "unreachable", "message": "the connection broke"},
    )
    assert remote.chat.turn
    assert remote.chat.turn.request_count == 4


class FullStore(MemoryStore):
    """A store that still commits, on a disk that is nearly full."""

    def __init__(self) -> None:
        super().__init__()

        class Admin(SqliteAdmin):
            async def check_disk_space(self) -> None:
                raise StoreFull("no room")

        self.admin = Admin(self.database)


async def test_a_full_disk_is_an_error_before_a_request_is_sent() -> None:
    remote = await open_remote_chat(Strategy.SESSION, [created(), ended()], store=FullStore())
    with pytest.raises(StoreFull):
        await remote.send()
    assert (remote.endpoint.bodies, remote.chat.turn and remote.chat.turn.request_count) == ([], 0)
    assert remote.unconfirmed_items == [user_message("hi")]


async def test_the_response_to_a_request_of_a_killed_process_has_a_link() -> None:
    remote = await open_remote_chat(Strategy.CONVERSATION, [Killed()])
    with pytest.raises(Killed):
        await remote.send()
    remote.endpoint.newest_items = [answer("hello"), user_message("hi")]
    now = remote.endpoint.clock.now()

    events = [event async for event in remote.chat.retry()]

    path = Path(ROOT).append([user_message("hi"), answer("hello")])
    assert remote.chat.state == ConversationState(Strategy.CONVERSATION, path, path.head, "conv_1")
    assert remote.notices == ["the server had already stored 2 items of this turn; using them"]
    assert remote.link == Link(
        id="try_1",
        input_head=path.first(1).head,
        head=path.head,
        sent_count=1,
        model="far/m",
        strategy=Strategy.CONVERSATION,
        status="completed",
        created_at=now,
        session_id="ses_1",
        scope=REMOTE,
        conversation_id="conv_1",
    )
    response = {"id": None, "status": "completed", "output": [answer("hello")], "usage": None}
    assert events[-1] == {"type": "response.completed", "response": response}
    assert await remote.store.link("try_1") == remote.link
    assert remote.chat.turn
    assert (remote.chat.turn.request_count, len(remote.endpoint.bodies)) == (0, 1)


async def test_a_refusal_of_a_conversation_with_unknown_items_is_corrected_with_them() -> None:
    """The endpoint has the call of a turn that was stopped and undone."""
    call: Item = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    refusal = RequestRefused("No tool output found for function call c")
    remote = await open_remote_chat(Strategy.CONVERSATION, [refusal], [created(), ended()], [refusal])
    remote.endpoint.newest_items = [call, user_message("undone")]
    await remote.send("go on")
    output = {"type": "function_call_output", "call_id": "c", "output": NOT_RUN_MESSAGE}
    assert [body["input"] for body in remote.endpoint.bodies] == [
        [user_message("go on")],
        [output, user_message("go on")],
    ]

    remote.endpoint.newest_items = [answer("hello")]
    with pytest.raises(RequestRefused):
        await remote.send("more")
    assert len(remote.endpoint.bodies) == 3
