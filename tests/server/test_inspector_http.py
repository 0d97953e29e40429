"""The inspector page over HTTP: its files are public; its data needs the same access as the API."""

import asyncio
import json
import socket
import sqlite3
from base64 import urlsafe_b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.config.settings import BUILT_IN_MODEL
from convo.errors import StoreUnavailable
from convo.history.items import user_message
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.server.auth import KeysFile, create_api_key
from convo.server.inspector import INSPECTOR_ROUTES
from convo.server.pages import SCRIPT_FILES
from convo.server.routes import load_openapi_document
from convo.server.sse import StoreChanges
from convo.stores.base import AppendItems, Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.clock import HELD_S
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway, run_gateway
from tests.server.websocket_client import FINAL_EVENTS, connect_client
from tests.stores.chat_transactions import link, session

LIST, REQUESTS, CONVERSATION = "/inspect/api/list", "/inspect/api/requests", "/inspect/api/conversations/{}"
CHARTS = "/inspect/api/charts"
FILES = ["/", *(f"/inspector/{name}" for name in (*SCRIPT_FILES, "inspector.css"))]


def read_conversation(gateway: RunningGateway, handle: str, **more: Any) -> Any:
    return gateway.http.get(CONVERSATION.format(handle), **more).json()


@pytest.mark.parametrize("path", FILES)
def test_every_file_of_the_page_has_its_content_type_and_security_headers(
    shared_gateway: RunningGateway, path: str
) -> None:
    got = shared_gateway.http.get(path)
    subtype = {"": "html", "js": "javascript", "css": "css"}[path.rpartition(".")[2].strip("/")]
    assert (got.status_code, got.headers["content-type"]) == (200, f"text/{subtype}; charset=utf-8")
    policy = dict(part.strip().partition(" ")[::2] for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"


def test_a_request_for_an_icon_is_answered_with_no_content(shared_gateway: RunningGateway) -> None:
    got = shared_gateway.http.get("/favicon.ico")
    assert (got.status_code, got.content) == (204, b"")


@pytest.mark.parametrize("name", ["index.html", "nothing.js", "..%2f__init__.py", "%2e%2e/inspector.py"])
def test_no_other_file_is_served(shared_gateway: RunningGateway, name: str) -> None:
    assert shared_gateway.http.get(f"/inspector/{name}").status_code == 404


def test_only_the_approvals_of_the_page_change_data_and_the_openapi_document_has_all_calls(
    shared_gateway: RunningGateway,
) -> None:
    for path in ("/", LIST, REQUESTS, CHARTS, "/inspect/api/changes", CONVERSATION.format("x")):
        assert shared_gateway.http.post(path, json={}).status_code == 405
    paths = [path for path in load_openapi_document()["paths"] if path == "/" or path.startswith("/inspect")]
    calls = [route.path for route in INSPECTOR_ROUTES if route.path.startswith("/inspect/")]
    assert paths == ["/inspect/api/approvals", "/inspect/api/decisions", "/inspect/api/compare", *calls]


@pytest.mark.parametrize("path", [LIST, REQUESTS, CHARTS, "/inspect/api/changes", CONVERSATION.format("resp_x")])
@pytest.mark.parametrize(
    ("headers", "code"),
    [({"host": "evil.example"}, "host_not_allowed"), ({"origin": "https://evil.example"}, "origin_not_allowed")],
)
def test_without_keys_other_web_pages_get_no_data(
    shared_gateway: RunningGateway, path: str, headers: dict[str, str], code: str
) -> None:
    got = shared_gateway.http.get(path, headers=headers)
    assert (got.status_code, got.json()["error"]["code"]) == (403, code)


def test_with_keys_each_key_sees_its_own_data_and_the_page_itself_is_public(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = ({"authorization": f"Bearer {create_api_key(file, name)}"} for name in ("alice", "bob"))
    gateway = serve(keys=KeysFile(file))
    response_id = gateway.create_response({"model": "echo", "input": "mine"}, headers=alice).json()["id"]

    assert gateway.http.get("/").status_code == 200
    private = (LIST, CHARTS, CONVERSATION.format(response_id))
    assert [gateway.http.get(path).status_code for path in private] == [401, 401, 401]
    totals = [gateway.http.get(CHARTS, headers=headers).json()["total"] for headers in (alice, bob)]
    assert [total["requests"] for total in totals] == [1, 0]
    assert gateway.http.get(CHARTS, headers=bob).json()["models"]["top"] == []
    assert [row["id"] for row in gateway.http.get(LIST, headers=alice).json()["data"]] == [response_id]
    nothing: dict[str, Any] = {"data": [], "next": None, "searched": "", "running": [], "paused": []}
    assert gateway.http.get(LIST, headers=bob).json() == nothing
    assert read_conversation(gateway, response_id, headers=alice)["at"] == response_id
    assert gateway.http.get(CONVERSATION.format(response_id), headers=bob).status_code == 404


def test_the_figures_of_one_key_are_read_one_after_another_and_those_of_two_keys_at_once(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    alice, bob = ({"authorization": f"Bearer {create_api_key(file, name)}"} for name in ("alice", "bob"))
    gateway = serve(keys=KeysFile(file))
    running, most = Counter[object](), Counter[object]()
    store_class = type(gateway.store.for_tenant("alice"))

    def observe(method: str) -> None:
        original = getattr(store_class, method)

        async def observed(store: Any, query: object) -> object:
            for name in (store.tenant, "all"):
                running[name] += 1
                most[name] = max(most[name], running[name])
            while most["all"] < 2:  # noqa: ASYNC110 - the calls of both keys arrive in other threads
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.3)
            running.subtract((store.tenant, "all"))
            return await original(store, query)

        monkeypatch.setattr(store_class, method, observed)

    observe("chart_requests")
    observe("list_requests")
    with ThreadPoolExecutor(6) as pool:
        calls = [(CHARTS, alice), (REQUESTS, alice), (CHARTS, alice), (CHARTS, bob), (REQUESTS, bob)]
        got = list(pool.map(lambda call: gateway.http.get(call[0], headers=call[1]).status_code, calls))
    assert got == [200] * len(calls)
    assert most == {"alice": 1, "bob": 1, "all": 2}


def test_chains_of_other_clients_are_listed_by_their_last_response(gateway: RunningGateway) -> None:
    first = gateway.create_response({"model": "echo", "input": "one"}).json()["id"]
    _, right = (
        gateway.create_response({"model": "echo", "input": text, "previous_response_id": first}).json()["id"]
        for text in ("left", "right")
    )
    conversation_id = gateway.http.post("/v1/conversations", json={}).json()["id"]
    gateway.create_response({"model": "echo", "input": "together", "conversation": conversation_id})
    listed = gateway.http.get(LIST).json()["data"]
    assert [(row["id"], row["strategy"], row["first_words"], row["turns"], row["forks"]) for row in listed] == [
        (conversation_id, "conversation", "together", 1, 0),
        (right, "chain", "one", 3, 1),
    ]
    first_page = gateway.http.get(LIST, params={"limit": 1, "sort": "name"}).json()
    next_page = gateway.http.get(LIST, params={"limit": 1, "sort": "name", "after": first_page["next"]}).json()
    assert [row["id"] for row in (*first_page["data"], *next_page["data"])] == [right, conversation_id]
    assert next_page["next"] is None


def test_the_list_of_conversations_is_searched_and_says_in_what(gateway: RunningGateway) -> None:
    found, _ = (gateway.create_response({"model": "echo", "input": text}).json()["id"] for text in ("a tree", "rain"))
    listed = gateway.http.get(LIST, params={"q": "TREE"}).json()
    assert [(row["id"], row["hit"]["at"], row["hit"]["snippet"]) for row in listed["data"]] == [(found, 1, "a tree")]
    assert listed["searched"].startswith("searched the names and messages of all")
    for wrong in ({"sort": "size"}, {"order": "up"}, {"after": "x"}):
        assert gateway.http.get(LIST, params=wrong).status_code == 400


def list_requests(gateway: RunningGateway, **params: Any) -> Any:
    return gateway.http.get(REQUESTS, params=params).json()


def test_requests_are_listed_with_their_figures_newest_first(gateway: RunningGateway) -> None:
    first = gateway.create_response({"model": "echo", "input": "What is rain?"}).json()
    output = {"type": "function_call_output", "call_id": "call_1", "output": "wet"}
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    items = [{"role": "user", "content": "Is it raining?"}, call, output]
    second = gateway.create_response({"model": "echo", "input": items, "previous_response_id": first["id"]}).json()
    listed = list_requests(gateway)
    assert [(row["id"], row["title"]) for row in listed["data"]] == [
        (second["id"], "Is it raining?"),
        (first["id"], "What is rain?"),
    ]
    row = listed["data"][1]
    assert (row["model"], row["status"], row["session"], row["cost_usd"]) == (first["model"], "completed", None, None)
    assert (row["input_tokens"], row["output_tokens"]) == (
        first["usage"]["input_tokens"],
        first["usage"]["output_tokens"],
    )
    assert row["latency_s"] >= 0
    assert {
        name: listed[name] for name in ("next", "running", "paused", "models", "sessions", "is_search_limited")
    } == {
        "next": None,
        "running": [],
        "paused": [],
        "models": [first["model"]],
        "sessions": [],
        "is_search_limited": False,
    }


def test_a_response_is_stored_with_the_title_and_the_tools_of_its_row(tmp_path: Path) -> None:
    """The list then computes nothing, however many requests were made since it was last read."""
    file = tmp_path / "convo.db"
    with run_gateway(tmp_path / "served", f"sqlite:{file}") as gateway:
        gateway.script("one", {"call": {"name": "look", "arguments": {}}}, {"text": "Sunny."})
        first = gateway.create_response({"model": "one", "input": "What is the weather?"}).json()
        call_id = next(item["call_id"] for item in first["output"] if item["type"] == "function_call")
        output = {"type": "function_call_output", "call_id": call_id, "output": "sun"}
        gateway.create_response({"model": "one", "input": [output], "previous_response_id": first["id"]})
        with closing(sqlite3.connect(file)) as db:
            rows = db.execute("SELECT title, tools FROM links ORDER BY n").fetchall()
    assert rows == [("What is the weather?", '["look"]'), ("What is the weather?", None)]


def test_each_model_is_offered_once_as_a_filter_under_its_short_and_its_full_name(gateway: RunningGateway) -> None:
    root = root_key("local")
    path = ItemPath(root).append([user_message("hail")])
    links = tuple(link(f"resp_{n}", path.head, model=name) for n, name in enumerate(("local", BUILT_IN_MODEL, "echo")))
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), links)))
    listed = list_requests(gateway)
    assert listed["models"] == ["echo", BUILT_IN_MODEL]
    assert sorted(row["model"] for row in listed["data"]) == ["echo", "local", BUILT_IN_MODEL]
    for name in ("local", BUILT_IN_MODEL):
        filtered = list_requests(gateway, model=name)
        assert {row["model"] for row in filtered["data"]} == {"local", BUILT_IN_MODEL}
        assert filtered["models"] == sorted(["echo", name])  # the choice of the page, which is in its address
        charts = gateway.http.get(CHARTS, params={"model": name}).json()
        assert [(group["name"], group["requests"]) for group in charts["models"]["top"]] == [(BUILT_IN_MODEL, 2)]
    assert list_requests(gateway, model="nothing")["models"] == ["echo", BUILT_IN_MODEL]


def test_the_list_names_the_requests_that_continue_one_whatever_the_filters_are(gateway: RunningGateway) -> None:
    first = gateway.create_response({"model": "echo", "input": "begin"}).json()["id"]
    query = {"status": "failed", "request": first}
    assert gateway.http.get("/inspect/api/requests", params=query).json()["continued"] == []
    child = {"model": "echo", "input": "more", "previous_response_id": first}
    second, third = (gateway.create_response(child).json()["id"] for _ in range(2))
    data = gateway.http.get("/inspect/api/requests", params=query).json()
    assert (data["continued"], data["data"]) == ([second, third], [])
    assert "continued" not in gateway.http.get("/inspect/api/requests").json()


def test_the_charts_aggregate_the_requests_of_the_filters(gateway: RunningGateway) -> None:
    assert gateway.http.get(CHARTS).json() == {
        "bucket_s": None,
        "buckets": [],
        "total": {
            **dict.fromkeys(("requests", "errors", "input_tokens", "cached_tokens", "output_tokens", "unpriced"), 0),
            "cache_hit_rate": None,
            "cost_usd": None,
        },
        "models": {"top": [], "other": None},
        "sessions": {"top": [], "other": None},
        "damaged": 0,
        "is_search_limited": False,
    }
    first, second = (gateway.create_response({"model": "echo", "input": text}).json() for text in ("hail", "snow"))
    charts = gateway.http.get(CHARTS).json()
    rows = list_requests(gateway)["data"]
    figures = {
        "requests": 2,
        "errors": 0,
        "input_tokens": first["usage"]["input_tokens"] + second["usage"]["input_tokens"],
        "output_tokens": first["usage"]["output_tokens"] + second["usage"]["output_tokens"],
        "cached_tokens": 0,
        "cache_hit_rate": 0,
    }
    assert charts["total"] == {**figures, "cost_usd": None, "unpriced": 2}
    for name in ("requests", "input_tokens", "output_tokens"):
        assert sum(bucket[name] for bucket in charts["buckets"]) == figures[name]
    assert max(bucket["latency_p95_s"] or 0 for bucket in charts["buckets"]) == max(row["latency_s"] for row in rows)
    group = {"requests": 2, "cost_usd": None, "unpriced": 2}
    assert charts["models"] == {"top": [{"name": first["model"], **group}], "other": None}
    assert charts["sessions"] == {"top": [{"name": None, **group}], "other": None}
    assert gateway.http.get(CHARTS, params={"q": "hail", "model": "echo"}).json()["total"]["requests"] == 1
    assert gateway.http.get(CHARTS, params={"status": "failed"}).json()["buckets"] == []
    for params in ({"status": "done"}, {"sort": "cost"}, {"limit": "1"}, {"after": "x"}):
        got = gateway.http.get(CHARTS, params=params)
        assert (got.status_code, got.json()["error"]["param"]) == (400, *params)


def test_pages_of_requests_follow_the_cursor_in_any_order(gateway: RunningGateway) -> None:
    ids = [gateway.create_response({"model": "echo", "input": "word " * n}).json()["id"] for n in (3, 1, 2)]
    seen, cursor = list[str](), None
    while cursor is not None or not seen:
        page = list_requests(gateway, sort="input", order="asc", limit=1, **({"after": cursor} if cursor else {}))
        seen += [row["id"] for row in page["data"]]
        cursor = page["next"]
    assert seen == [ids[1], ids[2], ids[0]]
    assert [row["id"] for row in list_requests(gateway, q="word", model="echo")["data"]] == ids[::-1]
    assert list_requests(gateway, status="failed")["data"] == list_requests(gateway, session="none")["data"] == []


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"sort": "colour"}, "sort"),
        ({"order": "up"}, "order"),
        ({"status": "done"}, "status"),
        ({"limit": "x"}, "limit"),
        ({"after": "x"}, "after"),
        ({"after": "é"}, "after"),
        ({"after": urlsafe_b64encode(b'["a", "b"]').decode()}, "after"),
        ({"after": urlsafe_b64encode(b"[1, 2]").decode()}, "after"),
        ({"after": urlsafe_b64encode(b"[" * 10_000).decode()}, "after"),
        *(
            ({"sort": sort, "after": urlsafe_b64encode(f'[{value}, "resp_1"]'.encode()).decode()}, "after")
            for sort, value in (
                *(("created_at", value) for value in ("NaN", "Infinity", "1e400", "1" + "0" * 400, str(2**63))),
                *(("input", str(-(10**30))), ("latency", "-Infinity"), ("cost", "true")),
                *(("model", '"\\ud800"'), ("status", '"\\udfff"'), ("model", '"\\u0000"')),
            )
        ),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_parameter_of_the_list_is_refused_by_name(
    shared_gateway: RunningGateway, params: dict[str, str], param: str
) -> None:
    got = shared_gateway.http.get(REQUESTS, params=params)
    assert (got.status_code, got.json()["error"]["param"]) == (400, param)


def test_a_request_is_listed_while_it_runs_and_the_feed_reports_its_start_and_its_end(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "one two three four"}, chunk=4, delay_s=HELD_S)
    request = {"model": "slow", "input": "Count to four.", "stream": True}
    with gateway.http.stream("GET", "/inspect/api/changes") as feed:
        events = (json.loads(line[6:]) for line in feed.iter_lines() if line.startswith("data: {"))
        assert next(events) == {"type": "inspector.changed", "sequence_number": 0}
        with gateway.http.stream("POST", "/v1/responses", json=request) as got:
            lines = got.iter_lines()
            next(lines)
            assert next(events)["sequence_number"] == 1
            (row,) = list_requests(gateway)["running"]
            assert (row["title"], row["status"], row["latency_s"]) == ("Count to four.", "in_progress", None)
            assert list_requests(gateway, status="in_progress", q="four", model=row["model"])["running"]
            for other in ({"status": "failed"}, {"q": "five"}, {"model": "echo"}, {"session": "x"}):
                assert list_requests(gateway, **other)["running"] == []
            gateway.release_deltas()
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert next(events)["sequence_number"] == 2
        listed = list_requests(gateway)
        assert ([done["id"] for done in listed["data"]], listed["running"]) == ([row["id"]], [])


def test_the_feed_of_a_key_has_events_at_regular_times(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = ({"authorization": f"Bearer {create_api_key(file, name)}"} for name in ("alice", "bob"))
    gateway = serve(keys=KeysFile(file))
    with gateway.http.stream("GET", "/inspect/api/changes", headers=bob) as feed:
        numbers = (json.loads(line[6:])["sequence_number"] for line in feed.iter_lines() if line.startswith("data: {"))
        assert [next(numbers) for _ in range(3)] == [0, 1, 2]  # at regular times, without any change
    assert gateway.http.get("/inspect/api/changes").status_code == 401
    assert gateway.http.get(REQUESTS, headers=alice).json()["data"] == []


def count_transactions(gateway: RunningGateway) -> float:
    metrics = gateway.http.get("/metrics").text
    return float(next(line for line in metrics.splitlines() if line.startswith("convo_store_seconds_count"))[26:])


def test_all_followers_of_the_feed_share_one_reader_of_the_store(gateway: RunningGateway) -> None:
    """Otherwise each of them reads it four times a second."""
    followers = 100
    before = count_transactions(gateway)
    with ExitStack() as stack:
        for _ in range(followers):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            client.sendall(b"GET /inspect/api/changes HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            received = b""
            while b"inspector.changed" not in received:
                received += client.recv(4096)
        assert count_transactions(gateway) - before < followers


async def test_a_store_that_fails_ends_the_feeds_and_is_read_again_for_the_next_one() -> None:
    class FailingVersion(MemoryStore):
        is_failing = False

        async def data_version(self) -> str:
            if self.is_failing:
                raise StoreUnavailable("the disk is gone")
            return "1"

    store, changes = FailingVersion(), StoreChanges()
    async with changes.follow(store), changes.follow(store):
        await changes.next_changes()
        assert changes.version == "1"
        store.is_failing = True
        await asyncio.wait(await changes.next_changes(), return_when=asyncio.FIRST_COMPLETED)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await changes.next_changes()
        store.is_failing = False
        async with changes.follow(store):
            await changes.next_changes()
            assert changes.version == "1"
    assert len(asyncio.all_tasks()) == 1
    await store.aclose()


def test_the_feed_ends_when_the_server_shuts_down(gateway: RunningGateway) -> None:
    with gateway.http.stream("GET", "/inspect/api/changes") as feed:
        lines = feed.iter_lines()
        next(lines)
        gateway.shut_down()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    gateway.thread.join(60)
    assert not gateway.thread.is_alive()


def test_a_conversation_contains_the_output_of_inspect_and_more(gateway: RunningGateway) -> None:
    request = {"model": "echo", "instructions": "Be brief.", "tools": [{"type": "function", "name": "f"}]}
    first = gateway.create_response({**request, "input": "one"}).json()["id"]
    second = gateway.create_response({**request, "input": "two", "previous_response_id": first}).json()["id"]
    document = read_conversation(gateway, second)
    inspect_fields = ("handle", "strategy", "endpoint", "head", "items", "links", "total", "other_requests")
    assert [name for name in inspect_fields if name not in document] == []
    assert (document["rows"], document["unacknowledged"], document["total"]["requests"]) == ([first, second], [], 2)
    own = read_conversation(gateway, first)
    assert (own["total"]["requests"], own["total"]["unpriced"], own["other_requests"]["requests"]) == (1, 1, 1)
    assert [link["request"] for link in document["links"]] == [0, 0]
    assert document["requests"] == [{"model": "echo", "instructions": "Be brief.", "tools": request["tools"]}]


def test_a_client_with_the_current_version_gets_only_that_it_is_current(gateway: RunningGateway) -> None:
    first = gateway.create_response({"model": "echo", "input": "one"}).json()["id"]
    version = read_conversation(gateway, first)["version"]
    assert read_conversation(gateway, first, params={"seen": version}) == {"version": version, "running": []}
    second = gateway.create_response({"model": "echo", "input": "two", "previous_response_id": first}).json()["id"]
    after = read_conversation(gateway, first, params={"seen": version})
    assert after["version"] != version
    assert after["rows"] == [first, second]


def trace_statements(gateway: RunningGateway) -> list[str]:
    """Return a list to which every statement of the gateway's store is appended from now on."""
    executed: list[str] = []
    store = cast(SqliteStore, gateway.store)
    gateway.run(store.database.read(lambda db: db.set_trace_callback(executed.append)))
    return executed


def test_a_poll_of_a_wide_tree_reads_its_requests_only_after_a_change_and_loses_none(tmp_path: Path) -> None:
    file, root = tmp_path / "convo.db", root_key("local")
    with run_gateway(tmp_path / "served", f"sqlite:{file}") as gateway:
        path = ItemPath(root).append([user_message("hi")])
        forks = [link(f"resp_{number}", path.head, parent_id="resp_root") for number in range(300)]
        links = (link("resp_root", path.head), *forks)
        gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), links)))
        version = read_conversation(gateway, "resp_root")["version"]

        def poll() -> Any:
            return read_conversation(gateway, "resp_root", params={"seen": version})

        executed = trace_statements(gateway)
        assert poll() == poll() == {"version": version, "running": []}
        assert [sql for sql in executed if sql not in ("BEGIN", "COMMIT")] == ["PRAGMA data_version"] * 2

        def write_and_poll(change: Transaction) -> Any:
            """Commit on another connection to the database, as another process does."""

            async def commit() -> None:
                other = SqliteStore(SqliteDatabase(file))
                await other.commit(change)
                await other.aclose()

            gateway.run(commit())
            return poll()

        started = link("resp_more", path.head, parent_id="resp_299", status="in_progress")
        data = write_and_poll(Transaction(links=(started,)))
        assert [response["response_id"] for response in data["running"]] == ["resp_more"]
        for change in (
            Transaction(links=(replace(started, status="completed"),)),
            Transaction(
                links=(replace(forks[0], session_id="ses_1"),),
                session=session(id="ses_1", name="kept", head=path.head, confirmed_head=path.head, link_id="resp_0"),
            ),
            Transaction(links=(link("resp_deep", path.head, parent_id="resp_more"),)),
        ):
            before, version = version, data["version"]
            assert before != version
            data = write_and_poll(change)
        assert (len(data["links"]), data["running"]) == (303, [])
        version = data["version"]

        gateway.script("slow", {"text": "one two three four"}, chunk=4, delay_s=HELD_S)
        gateway.release_deltas(1)
        request = {"model": "slow", "input": "go on", "previous_response_id": "resp_deep", "stream": True}
        with gateway.http.stream("POST", "/v1/responses", json=request) as got:
            lines = got.iter_lines()
            while not next(lines).startswith("event: response.output_text.delta"):
                pass
            poll()
            executed = trace_statements(gateway)
            assert [response["text"] for response in poll()["running"]] == ["one "]
            assert [sql for sql in executed if "links" in sql] == []
            gateway.release_deltas()
            assert list(lines)
        assert len(poll()["links"]) == 304


@pytest.mark.parametrize("kind", ["foreground", "background", "not stored"])
def test_an_answer_can_be_followed_while_it_arrives_and_is_dropped_at_its_end(
    gateway: RunningGateway, kind: str
) -> None:
    gateway.script("slow", {"text": "one two three four"}, chunk=4, delay_s=HELD_S)
    first = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
    request = {"model": "slow", "input": "go on", "previous_response_id": first, "stream": True}
    options = {"foreground": {}, "background": {"background": True}, "not stored": {"store": False}}[kind]
    texts: list[str] = []
    gateway.release_deltas(1)
    with gateway.http.stream("POST", "/v1/responses", json={**request, **options}) as got:
        for line in got.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["type"] == "response.output_text.delta":
                texts += [response["text"] for response in read_conversation(gateway, first)["running"]]
                gateway.release_deltas(1)
    assert read_conversation(gateway, first)["running"] == []
    if kind == "not stored":
        assert set(texts) == {""}
    else:
        assert texts
        assert [text for text in texts if not "one two three four".startswith(text)] == []
        assert any(texts)


@pytest.mark.parametrize("is_fork", [True, False])
def test_a_fork_of_a_response_in_a_conversation_is_no_part_of_it_while_it_runs_and_after(
    gateway: RunningGateway, is_fork: bool
) -> None:
    gateway.script("slow", {"text": "one two three four"}, chunk=4, delay_s=HELD_S)
    conversation = gateway.http.post("/v1/conversations", json={}).json()["id"]
    first = gateway.create_response({"model": "echo", "input": "hi", "conversation": conversation}).json()["id"]
    state = {"previous_response_id": first} if is_fork else {"conversation": conversation}
    ids = [link["response_id"] for link in read_conversation(gateway, conversation)["links"]]
    body = {"model": "slow", "input": "go on", "stream": True, **state}
    with gateway.http.stream("POST", "/v1/responses", json=body) as got:
        lines = got.iter_lines()
        created = next(json.loads(line[6:])["response"]["id"] for line in lines if line.startswith("data: "))
        running = [response["response_id"] for response in read_conversation(gateway, conversation)["running"]]
        gateway.release_deltas()
        assert list(lines)
    assert running == ([] if is_fork else [created])
    assert [link["response_id"] for link in read_conversation(gateway, conversation)["links"]] == ids + running
    assert created in [link["response_id"] for link in read_conversation(gateway, created)["links"]]


def test_a_turn_over_a_websocket_can_be_followed_too(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "one two three four"}, chunk=4, delay_s=HELD_S)
    gateway.release_deltas(1)
    texts: list[list[str]] = []
    with connect_client(gateway) as client:
        first = client.turn(input="hi")["id"]
        client.send(model="slow", input="go on", previous_response_id=first)
        while (event := client.receive())["type"] not in FINAL_EVENTS:
            if event["type"] == "response.output_text.delta":
                texts.append([response["text"] for response in read_conversation(gateway, first)["running"]])
                gateway.release_deltas(1)
    assert texts[0][0].startswith("one")
    assert read_conversation(gateway, first)["running"] == []
