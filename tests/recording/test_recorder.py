"""Recorded requests are ordinary links: shown at once, without secrets, readable by every command; and they expire."""

import asyncio
import inspect
import itertools
import json
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.chat.conversation_list import ConversationQuery, list_conversations
from convo.chat.lookup import load_last_used_session, load_running_text, load_sent_body
from convo.chat.watch import watch_conversation
from convo.cli.completion import list_completions
from convo.errors import NotFound
from convo.history.items import item_text
from convo.history.records import Session, Strategy
from convo.history.tree import root_key
from convo.inspect.view import link_cost_usd
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol
from convo.recording.recorder import DEFAULT_TTL_S, StoreRecorder, open_recorder
from convo.stores.base import Store, Transaction
from convo.stores.factory import open_store
from convo.stores.request_list import RequestQuery
from convo.terminal.inspect_view import render_conversation
from convo.terminal.terminal import DisplayOptions
from tests.call_count import CallCount
from tests.clock import FixedClock
from tests.command_runner import Convo
from tests.recording.exchanges import captured_exchanges, make_request, make_response
from tests.stores.chat_transactions import prose

SECRET = "sk-planted-0123456789abcdef0123456789"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "convo.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    sqlite = open_store(f"sqlite:{file}")
    await sqlite.admin.migrate()
    yield sqlite
    await sqlite.aclose()


async def test_a_request_is_listed_while_it_runs_and_replaced_by_the_final_one(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    (request, response), *_ = captured_exchanges("codex")
    before = await store.data_version()
    await recorder.begin(request)
    assert await store.data_version() != before  # the page polls this value
    (running,) = (await store.list_requests(RequestQuery())).requests
    assert (running.link.status, running.title, running.link.created_at) == (
        "in_progress",
        "say hi",
        request.received_at,
    )
    assert running.session_name is not None
    assert running.session_name.startswith("codex-")
    await recorder.finish(request, response)
    (final,) = (await store.list_requests(RequestQuery())).requests
    assert final.link.id == "resp_" + "0" * 32
    assert (final.link.status, final.link.duration_s, final.link.first_token_s) == ("completed", 1.5, 0.25)
    assert final.link.model == "models.example/gpt-5"
    assert str(final.link.scope) == "https://models.example/v1"
    assert not final.link.is_stored
    assert final.link.usage is not None
    assert final.link.usage["total_tokens"] == 15
    await recorder.aclose()


async def test_no_reader_finds_a_request_twice_while_it_is_replaced_by_the_final_one(store: Store, file: Path) -> None:
    """Another process reads after each write of the recorder."""
    reader = open_store(f"sqlite:{file}")
    seen = list[list[str]]()

    class Writer:
        """The recorder's store, with a look by the reader after every call."""

        def __getattr__(self, name: str) -> Any:
            method = getattr(store, name)
            if not inspect.iscoroutinefunction(method):
                return method

            async def call(*args: Any, **kwargs: Any) -> Any:
                result = await method(*args, **kwargs)
                seen.append([listed.link.status for listed in (await reader.list_requests(RequestQuery())).requests])
                return result

            return call

    recorder = open_recorder(cast("Store", Writer()), clock=FixedClock())
    (request, response), *_ = captured_exchanges("codex")
    await recorder.begin(request)
    await recorder.finish(request, response)
    assert [status for status, _ in itertools.groupby(seen)] == [[], ["in_progress"], ["completed"]]
    await recorder.aclose()
    await reader.aclose()


@pytest.mark.parametrize(
    ("protocol", "url", "model"),
    [
        ("responses", "https://api.openai.com/v1/responses?k=1", "openai/m"),
        ("messages", "https://api.anthropic.com/v1/messages?beta=true", "anthropic/m"),
        ("chat_completions", "https://api.deepseek.com/chat/completions", "deepseek/m"),
    ],
)
async def test_models_of_known_hosts_have_their_providers_name(
    store: Store, protocol: str, url: str, model: str
) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    await recorder.begin(make_request({"model": "m"}, protocol=protocol, url=url))  # type: ignore[arg-type]
    (listed,) = (await store.list_requests(RequestQuery())).requests
    assert listed.link.model == model
    await recorder.aclose()


@pytest.mark.parametrize(
    ("protocol", "url", "response", "cost_usd"),
    [
        (
            "messages",
            "https://api.anthropic.com/v1/messages",
            {
                "type": "message", "model": "claude-sonnet-5", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "Hi."}],
                "usage": {
                    "input_tokens": 2_000, "cache_read_input_tokens": 30_000, "cache_creation_input_tokens": 6_000,
                    "cache_creation": {"ephemeral_5m_input_tokens": 2_000, "ephemeral_1h_input_tokens": 4_000},
                    "output_tokens": 500,
                },
            },
            0.004 + 0.006 + 0.005 + 0.016 + 0.005,
        ),
        (
            "chat_completions",
            "https://api.openai.com/v1/chat/completions",
            {
                "model": "gpt-5.6-terra",
                "choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": 300_000, "completion_tokens": 1_000,
                    "prompt_tokens_details": {"cached_tokens": 100_000, "cache_write_tokens": 150_000},
                },
            },
            2 * (0.1 + 0.02 + 0.375) + 1.5 * 0.012,
        ),
    ],
)  # fmt: skip
async def test_recorded_requests_are_priced_with_their_cache_reads_and_writes(
    store: Store, protocol: str, url: str, response: dict[str, object], cost_usd: float
) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    request = make_request({"model": response["model"], "messages": []}, protocol=protocol, url=url)  # type: ignore[arg-type]
    await recorder.begin(request)
    await recorder.finish(request, make_response(response))
    (listed,) = (await store.list_requests(RequestQuery())).requests
    assert link_cost_usd(listed.link, {}) == pytest.approx(cost_usd)
    await recorder.aclose()


async def test_secrets_in_headers_queries_and_tools_are_never_in_the_store(store: Store, file: Path) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    names = ["authorization", "x-api-key", "api-key", "cookie", "set-cookie", "session-id", "x-session-id"]
    headers = dict.fromkeys(
        [*names, "user-agent", "originator", "x-stainless-lang", "x-client-request-id", "openai-organization"], SECRET
    )
    server_url = f"https://u:{SECRET}@mcp.example/{SECRET}"
    servers = [{"type": "url", "url": server_url, "name": "s", "authorization_token": SECRET}]
    credentials = {"api_key": SECRET, "extra_headers": {"Authorization": f"Bearer {SECRET}"}}
    tool = {
        "type": "mcp", "server_label": "s", "server_url": f"https://u:{SECRET}@mcp.example/{SECRET}?k={SECRET}",
        "authorization": SECRET, "headers": {"x": SECRET},
    }  # fmt: skip
    url = f"https://user:{SECRET}@models.example/v1/{{}}?key={SECRET}#{SECRET}"
    bodies: dict[str, dict[str, Any]] = {
        "responses": {
            "model": "m",
            "input": [{"role": "user", "content": "Hi."}, {"type": "additional_tools", "tools": [tool]}],
            "tools": [tool],
            "tool_choice": {"type": "mcp", "headers": {"x": SECRET}},
        },
        "chat_completions": {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi."}],
            "tools": [tool],
            "web_search_options": {"api_key": SECRET},
        },
        "messages": {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "mcp_servers": servers},
    }
    for number, (protocol, body) in enumerate(bodies.items()):
        path = {"responses": "responses", "chat_completions": "chat/completions", "messages": "messages"}[protocol]
        request = make_request(
            {**body, **credentials}, protocol=protocol, id=f"x{number}", headers=headers, url=url.format(path),  # type: ignore[arg-type]
        )  # fmt: skip
        await recorder.begin(request)
        await recorder.finish(request, make_response({"error": {"message": f"Wrong key {SECRET}"}}, status=401))
    await recorder.aclose()
    assert len((await store.list_requests(RequestQuery())).requests) == 3
    await store.aclose()
    stored = b"".join(path.read_bytes() for path in file.parent.iterdir() if path.name.startswith(file.name))
    assert b"mcp.example" in stored
    assert SECRET.encode() not in stored


def size_bytes(file: Path) -> int:
    return file.stat().st_size


async def record_growing_history(file: Path, protocol: Protocol, count: int) -> tuple[int, int]:
    """Record `count` requests with the whole history in each, of 2 KB a turn; return the bytes stored and sent last."""
    store, chance = open_store(f"sqlite:{file}"), random.Random(count)
    await store.admin.migrate()
    recorder = open_recorder(store, clock=FixedClock())
    tools = [{"name": f"tool_{number}", "description": prose(chance, 500), "input_schema": {}} for number in range(20)]
    history: list[dict[str, str]] = []
    for number in range(count):
        history.append({"role": "user", "content": prose(chance, 1000)})
        name = "input" if protocol == "responses" else "messages"
        body = {"model": "m", name: history, "tools": tools, "stream": True, "event_id": f"event_{number}"}
        request = make_request(body, protocol=protocol, id=f"exch_{number}")
        await recorder.begin(request)
        answer = prose(chance, 1000)
        await recorder.finish(request, answer_in(protocol, answer, f"id_{number}"))
        history.append({"role": "assistant", "content": answer})
    await recorder.aclose()
    last_link = await store.link(f"id_{count - 1}")
    assert last_link
    latest = await load_sent_body(store, last_link)
    assert latest
    assert latest.body == json.loads(request.body)
    await store.aclose()
    stored_bytes = size_bytes(file)

    store = open_store(f"sqlite:{file}")
    for session in await store.sessions():
        await store.remove_session(session.id)
    assert await store.admin.tenant_stats() == []
    await store.aclose()
    return stored_bytes - size_bytes(file), len(request.body)


def answer_in(protocol: Protocol, text: str, response_id: str) -> ExchangeResponse:
    fields = {"id": response_id, "model": "m"}
    match protocol:
        case "responses":
            part = {"type": "output_text", "text": text, "annotations": []}
            item = {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [part]}
            return make_response({**fields, "status": "completed", "output": [item]})
        case "chat_completions":
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            return make_response({**fields, "choices": [choice]})
        case "messages":
            content = [{"type": "text", "text": text}]
            return make_response({**fields, "stop_reason": "end_turn", "content": content})


@pytest.mark.parametrize("protocol", ["responses", "chat_completions", "messages"])
@pytest.mark.parametrize("count", [24, pytest.param(100, marks=pytest.mark.full)])
async def test_the_bodies_of_a_growing_history_are_stored_once(tmp_path: Path, protocol: Protocol, count: int) -> None:
    """The rows grow with the history, not with the number of requests that repeat it; with the session they go."""
    half_stored, _ = await record_growing_history(tmp_path / "half.db", protocol, count // 2)
    stored, last_body = await record_growing_history(tmp_path / "all.db", protocol, count)
    assert stored < 2.4 * half_stored
    assert stored < 12 * last_body


async def test_recordings_expire_and_other_sessions_do_not(store: Store) -> None:
    clock = FixedClock()
    root = root_key(store.tenant)
    chat = Session("ses_1", "chat", Strategy.SESSION, "m", root, root, clock.now(), clock.now())
    await store.commit(Transaction(session=chat))
    recorder = open_recorder(store, clock=clock)
    (request, response), *_ = captured_exchanges("codex")
    await recorder.begin(request)
    await recorder.finish(request, response)
    clock.advance(DEFAULT_TTL_S - 1)
    assert await recorder.prune() == 0
    clock.advance(2)
    await recorder.begin(make_request({"model": "m", "input": "New."}, id="new"))
    assert {session.name.partition("-")[0] for session in await store.sessions()} == {"chat", "client"}
    assert await store.link("resp_" + "0" * 32) is None
    await recorder.aclose()


async def test_a_session_deleted_during_a_response_is_not_written_again(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    (request, response), following, *_ = captured_exchanges("codex")
    await recorder.begin(request)
    (session,) = await store.sessions()
    await store.remove_session(session.id)
    await recorder.finish(request, response)
    assert await store.sessions() == []
    await recorder.begin(following[0])
    await recorder.finish(*following)
    (again,) = await store.sessions()
    assert len((await store.path(again.head)).items) == 7
    await recorder.aclose()


class RacingStore:
    """Delegates to `store`; `action` runs once, just before the next call of the method `name`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = ""
        self.action: Coroutine[Any, Any, Any] | None = None

    def before(self, name: str, action: Coroutine[Any, Any, Any]) -> None:
        self.name, self.action = name, action

    def __getattr__(self, name: str) -> Any:
        if name != self.name:
            return getattr(self.store, name)

        async def call(*args: Any) -> Any:
            self.name = ""
            assert self.action is not None
            await self.action
            return await getattr(self.store, name)(*args)

        return call


def make_client_request(client: str, *words: str) -> ExchangeRequest:
    """Return a request of `client`, whose history is a prefix of `words`."""
    items = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(words)]
    return make_request(
        {"model": "m", "messages": items}, protocol="chat_completions", id=f"{client} {len(words)}",
        headers={"user-agent": f"{client}/1.0"},
    )  # fmt: skip


async def list_client_sessions(store: Store) -> dict[str, Session]:
    return {session.name.partition("-")[0]: session for session in await store.sessions()}


@pytest.mark.parametrize("moment", ["before the response", "while it is written"])
async def test_a_deleted_request_does_not_return_if_another_client_sent_the_same(store: Store, moment: str) -> None:
    racing = RacingStore(store)
    recorder = open_recorder(cast("Store", racing), clock=FixedClock())
    requests = [make_client_request(client, "Hi.") for client in ("alpha", "beta")]
    for request in requests:
        await recorder.begin(request)
    removal = store.remove_session((await list_client_sessions(store))["alpha"].id)
    if moment == "before the response":
        await removal
    else:
        racing.before("commit", removal)
    for number, request in enumerate(requests):
        await recorder.finish(request, answer_in("chat_completions", "Hello.", f"chatcmpl-{number}"))
    assert {*await list_client_sessions(store)} == {"beta"}
    assert [entry.link.id for entry in (await store.list_requests(RequestQuery())).requests] == ["chatcmpl-1"]
    await recorder.aclose()


async def test_a_session_deleted_while_its_next_request_is_written_has_only_that_request(store: Store) -> None:
    racing = RacingStore(store)
    recorder = open_recorder(cast("Store", racing), clock=FixedClock())
    for number, client in enumerate(("alpha", "beta")):
        request = make_client_request(client, "Hi.")
        await recorder.begin(request)
        await recorder.finish(request, answer_in("chat_completions", "Hello.", f"chatcmpl-{number}"))
    racing.before("commit", store.remove_session((await list_client_sessions(store))["alpha"].id))
    await recorder.begin(make_client_request("alpha", "Hi.", "Hello.", "More."))
    session = (await list_client_sessions(store))["alpha"]
    assert session.link_id is None
    assert [link.parent_id for link in await store.links(session.id)] == [None]
    await recorder.aclose()


async def begin_as_killed(recorder: StoreRecorder) -> ExchangeRequest:
    """Begin a request with a text, and release the lease of its recorder as if it had expired."""
    request = make_request({"model": "m", "input": "Hi."})
    await recorder.begin(request)
    await recorder.add_text(request, "Once upon a time")
    assert recorder._lease is not None
    await recorder._lease.release()
    return request


@pytest.mark.parametrize("change", ["closed", "finished", "deleted"])
async def test_a_request_of_a_killed_recorder_is_closed_once(store: Store, change: str) -> None:
    """Two recorders find it; or the one that seemed to be killed was only suspended."""
    racing = RacingStore(store)
    first = open_recorder(store, clock=FixedClock())
    request = await begin_as_killed(first)
    (session,) = await store.sessions()
    changes = {
        "closed": open_recorder(store, clock=FixedClock()).close_abandoned(),
        "finished": first.finish(request, make_response({"id": "resp_1", "status": "completed", "output": []})),
        "deleted": store.remove_session(session.id),
    }
    racing.before("commit", changes.pop(change))
    for unused in changes.values():
        unused.close()
    await open_recorder(cast("Store", racing), clock=FixedClock()).close_abandoned()
    statuses = [entry.link.status for entry in (await store.list_requests(RequestQuery())).requests]
    assert statuses == {"closed": ["incomplete"], "finished": ["completed"], "deleted": []}[change]


async def test_a_response_without_an_id_to_a_request_that_was_closed_meanwhile_is_not_an_error(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    request = await begin_as_killed(recorder)
    await open_recorder(store, clock=FixedClock()).close_abandoned()
    await recorder.finish(request, make_response(b"", error="the client disconnected"))
    (listed,) = (await store.list_requests(RequestQuery())).requests
    assert listed.link.status == "incomplete"


async def test_a_session_that_is_continued_while_others_expire_is_kept(store: Store) -> None:
    racing, clock = RacingStore(store), FixedClock()
    recorder = open_recorder(cast("Store", racing), clock=clock)
    for client in ("alpha", "beta"):
        await recorder.begin(make_client_request(client, client))
    clock.advance(DEFAULT_TTL_S + 1)
    _, continued = await store.sessions()  # in the order in which they expire
    used = Transaction(session=replace(continued, used_at=clock.now()), expected_session_head=continued.head)
    racing.before("remove_session", store.commit(used))
    assert await recorder.prune() == 1
    assert [session.id for session in await store.sessions()] == [continued.id]
    await recorder.aclose()


async def test_requests_without_a_response_are_failed_at_the_end_and_after_a_kill(store: Store) -> None:
    closed, killed = (open_recorder(store, clock=FixedClock()) for _ in range(2))
    await closed.begin(make_request({"model": "m", "input": "One."}, id="one"))
    await killed.begin(make_request({"model": "m", "input": "Two."}, id="two"))
    await closed.aclose()
    assert killed._lease is not None
    await killed._lease.release()  # as if it had expired
    recorder = open_recorder(store, clock=FixedClock())
    await recorder.begin(make_request({"model": "m", "input": "Three."}, id="three"))
    listed = (await store.list_requests(RequestQuery())).requests
    assert {entry.title: entry.link.status for entry in listed} == {
        "One.": "failed", "Two.": "failed", "Three.": "in_progress",
    }  # fmt: skip
    assert {(entry.link.error or {}).get("code") for entry in listed} == {"recording_ended", None}
    await recorder.aclose()


async def test_text_is_stored_while_a_response_runs_and_gone_with_its_end(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    request = make_request(
        {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}, protocol="chat_completions"
    )
    await recorder.begin(request)
    (running,) = (await store.list_requests(RequestQuery())).requests
    assert await load_running_text(running.link, store) == ""
    await recorder.add_text(request, "Once upon ")
    await recorder.add_text(request, "a time \ud83d")
    assert await load_running_text(running.link, store) == "Once upon a time ?"
    await check_watch(store, recorder, request)
    await recorder.finish(request, answer_in("chat_completions", "Once upon a time.", "chatcmpl-1"))
    await recorder.add_text(request, "late")
    (final,) = (await store.list_requests(RequestQuery())).requests
    assert (final.link.id, final.link.status) == ("chatcmpl-1", "completed")
    assert await store.events(running.link.id) == []
    assert list(await store.admin.abandoned_runs()) == []
    await recorder.aclose()


async def check_watch(store: Store, recorder: StoreRecorder, request: ExchangeRequest) -> None:
    """`inspect --watch` shows the text of a response in progress, and each addition to it."""
    display = DisplayOptions(width=200)
    async with aclosing(watch_conversation(store, "@recorded", FixedClock())) as views:
        view = await anext(views)
        assert "Once upon a time ?" in render_conversation(view, display)
        await recorder.add_text(request, " in the " + "very " * 20 + "west")
        assert "very very west" in render_conversation(await anext(views), display)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_interrupted_response_keeps_its_text_as_incomplete(store: Store, is_killed: bool) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    request = make_request({"model": "m", "input": "Hi."})
    await recorder.begin(request)
    await recorder.add_text(request, "Once upon a time")
    if is_killed:
        assert recorder._lease is not None
        await recorder._lease.release()  # as if it had expired
        await open_recorder(store, clock=FixedClock()).close_abandoned()
    else:
        await recorder.aclose()
    (listed,) = (await store.list_requests(RequestQuery())).requests
    assert (listed.link.status, (listed.link.error or {}).get("code")) == ("incomplete", "recording_ended")
    assert item_text((await store.path(listed.link.head)).items[-1]) == "Once upon a time"
    assert list(await store.admin.abandoned_runs()) == []


async def test_two_responses_with_one_id_are_both_kept(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    for number in (1, 2):
        request = make_request({"model": "m", "input": f"Hi {number}."}, id=f"x{number}")
        await recorder.begin(request)
        await recorder.finish(request, make_response({"id": "resp_same", "output": []}))
    listed = [entry.link for entry in (await store.list_requests(RequestQuery())).requests]
    assert [link.status for link in listed] == ["completed"] * 2
    assert {link.id == "resp_same" for link in listed} == {True, False}
    await recorder.aclose()


async def test_a_damaged_exchange_is_listed_with_its_note(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    request = make_request(b'{"model": "m", "inp', is_truncated=True)
    await recorder.begin(request)
    await recorder.finish(request, make_response(b"data: {", is_truncated=True))
    (listed,) = (await store.list_requests(RequestQuery())).requests
    assert listed.link.status == "failed"
    assert listed.link.parameters["convo.recording"]["notes"] == [
        "the body of the request was cut off at the size limit",
        "the body of the response was cut off at the size limit",
    ]
    await recorder.aclose()


async def test_concurrent_exchanges_do_not_mix(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())

    async def record(number: int) -> None:
        request = make_request({"model": "m", "input": f"Question {number}."}, id=f"x{number}")
        await recorder.begin(request)
        await asyncio.sleep(0)
        content = [{"type": "output_text", "text": f"Answer {number}."}]
        output = [{"type": "message", "role": "assistant", "content": content}]
        await recorder.finish(request, make_response({"id": f"resp_{number}", "output": output}))

    await asyncio.gather(*map(record, range(20)))
    for number in range(20):
        link = await store.link(f"resp_{number}")
        assert link is not None
        texts = [item["content"][0]["text"] for item in (await store.path(link.head)).items]
        assert texts == [f"Question {number}.", f"Answer {number}."]
    await recorder.aclose()


async def test_a_recorded_session_is_not_the_last_used_one(store: Store) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    await recorder.begin(make_request({"model": "m", "input": "Hi."}))
    with pytest.raises(NotFound):
        await load_last_used_session(store)
    await recorder.aclose()


async def test_a_recorded_session_that_is_used_again_is_the_newest(store: Store) -> None:
    clock = FixedClock()
    recorder = open_recorder(store, clock=clock)
    for number, text in enumerate(("One.", "Two.", "One.")):
        clock.advance(60)
        request = make_request({"model": "m", "input": text}, id=str(number))
        await recorder.begin(request)
        await recorder.finish(request, make_response({"id": f"resp_{number}", "output": []}))
    newest = (await store.sessions())[0]
    assert item_text((await store.path(newest.head)).items[0]) == "One."
    await recorder.aclose()


async def write_captured(file: Path) -> None:
    store = open_store(f"sqlite:{file}")
    await store.admin.migrate()
    recorder = open_recorder(store, clock=FixedClock())
    for client in ("codex", "claude-code", "opencode"):
        for request, response in captured_exchanges(client):
            await recorder.begin(request)
            await recorder.finish(request, response)
    await recorder.aclose()
    await store.aclose()


def test_commands_read_recorded_requests_as_convos_own(convo: Convo, home: Path) -> None:
    file = home / "recorded.db"
    asyncio.run(write_captured(file))
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "config.toml").write_text(f'[state_storage]\ntype = "sqlite"\nconnection_string = "{file}"\n')
    names = [row["name"] for row in convo("sessions", "--json").json()]
    codex = next(name for name in names if name.startswith("codex-"))
    last = "resp_" + "2".zfill(32)
    newest = convo("inspect", "@recorded", "--json").json()
    assert newest["links"][-1]["recording"]["client"] == "opencode"
    missing = convo("inspect", "@last")
    assert (missing.exit, "convo inspect @recorded" in missing.err) == (5, True), missing.err
    completions = dict(list_completions(["inspect"], "@"))
    assert (list(completions), completions["@recorded"]) == (["@recorded"], names[0])
    document = convo("inspect", codex, "--json").json()
    assert [link["response_id"] for link in document["links"]] == [
        "resp_" + str(number).zfill(32) for number in range(3)
    ]
    assert document["links"][0]["recording"] == {"client": "codex", "version": "0.169.0", "protocol": "responses"}
    assert "codex 0.169.0" in convo("inspect", codex).out
    assert convo("inspect", last).exit == 0
    assert convo("lint", codex).exit == 0
    difference = convo("diff", "--wire", "resp_" + "1".zfill(32), last)
    assert difference.exit == 0
    assert "in input[6]" in difference.out
    claude = next(name for name in names if name.startswith("claude-code-"))
    translation = "sent to Anthropic Messages; shown in the form of the Responses API"
    assert f"  form         {translation}\n" in convo("inspect", claude).out
    rebuilt = convo("diff", "--wire", f"{claude}@1", last)  # of two protocols, so no body has the form of the other
    assert f"was {translation}\n" in rebuilt.err
    for name in names:
        exported = convo("export", name, "--format", "replay")
        assert exported.exit == 0
        assert "say hi" in exported.out
        assert convo("inspect", name).exit == 0
    assert json.loads(exported.out)


@pytest.mark.parametrize("client", ["codex", "claude-code"])
async def test_the_title_of_a_recording_is_what_the_person_typed_first(store: Store, client: str) -> None:
    recorder = open_recorder(store, clock=FixedClock())
    for request, response in captured_exchanges(client):
        await recorder.finish(request, response)
    page = await list_conversations(store, ConversationQuery())
    assert {row.first_words for row in page.rows} == {"say hi"}
    assert {listed.title for listed in (await store.list_requests(RequestQuery())).requests} <= {"say hi", "and again"}


@pytest.mark.parametrize(
    ("client", "first_id", "second_id", "changed"),
    [
        ("codex", "resp_" + "0".zfill(32), "resp_" + "1".zfill(32), "input[4]"),
        ("claude-code", "msg_00000000000000000001", "msg_00000000000000000002", "messages[3].content[0].cache_control"),
        ("opencode", "chatcmpl-1", "chatcmpl-2", "messages[2]"),
    ],
)
def test_every_command_reads_the_recording_of_each_protocol(
    convo: Convo, home: Path, client: str, first_id: str, second_id: str, changed: str
) -> None:
    """`--raw` and `diff --wire` have the bodies as the client sent them; costs, rules and exports the rebuilt form."""
    asyncio.run(write_captured(home / "recorded.db"))
    names = ("models.example/gpt-5", "models.example/claude-opus-5-5", "models.example/m")
    prices = "".join(f'[prices."{name}"]\ninput = 1000000\noutput = 2000000\n' for name in names)
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "config.toml").write_text(
        f'{prices}[state_storage]\ntype = "sqlite"\nconnection_string = "{home / "recorded.db"}"\n'
    )
    sent = [json.loads(request.body) for request, _ in captured_exchanges(client)]
    bodies = [convo("inspect", handle, "--raw").json() for handle in (first_id, second_id)]
    assert all(body in sent for body in bodies)
    assert all(list(body) == list(sent[sent.index(body)]) for body in bodies)

    difference = convo("diff", "--wire", first_id, second_id)
    assert (difference.exit, difference.err) == (0, "")
    assert f"in {changed}\n" in difference.out
    assert convo("diff", "--wire", first_id, first_id, "--exit-code").exit == 0
    assert convo("diff", "--wire", first_id, second_id, "--json", "--exit-code").exit == 1

    link = next(
        each for each in convo("inspect", second_id, "--json").json()["links"] if each["response_id"] == second_id
    )
    assert link["usage"]["input_tokens"] > 0
    assert "$" in convo("inspect", second_id).out
    assert convo("lint", second_id).exit == 0
    exported = convo("export", second_id, "--format", "replay")
    assert exported.exit == 0
    assert "say hi" in exported.out
    following = convo("next", second_id, "And now?", "--provider", "nope", "--json")
    assert following.exit in (0, 1, 2)
    assert "Traceback" not in following.err


async def test_the_memory_for_old_requests_is_limited_and_the_latest_ones_continue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convo.recording.recorder.MAX_INDEXED_BYTES", 100_000)
    recorder = open_recorder(store, clock=FixedClock())
    for number in range(8):
        text = f"{number} {'x' * 40_000}"
        body = {"model": "m", "store": False, "input": text}
        headers = {"session-id": "one" if number % 2 else f"other-{number}"}
        request = make_request(body, id=f"exch_{number}", headers=headers)
        await recorder.begin(request)
        await recorder.finish(request, make_response({"id": f"resp_{number}", "status": "completed", "output": []}))

    assert recorder.indexed_bytes <= 100_000
    assert len(await store.sessions()) == 5
    await recorder.aclose()


async def test_a_large_request_is_placed_outside_of_the_event_loop(store: Store) -> None:
    items = [{"role": "user", "content": f"{number} {'x' * 100}"} for number in range(2000)]
    request = make_request({"model": "m", "store": False, "input": items})
    recorder = open_recorder(store, clock=FixedClock())
    await recorder.begin(make_request({"model": "m", "input": "opens the recorder"}, id="exch_first"))
    with CallCount() as calls:
        await recorder.begin(request)

    assert calls.total < 10 * len(items)  # the thread of the event loop only; comparing the items there takes 30 each
    await recorder.aclose()
