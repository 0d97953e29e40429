"""The surface of `convo serve` of a revision, collected with requests over HTTP, SSE and WebSocket."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
from websockets.sync.client import connect

from tests.surface.commands import RevisionShell
from tests.surface.document import Collection, loads
from tests.surface.stored import collect_sqlite

SCRIPTS: Mapping[str, list[dict[str, Any]]] = {
    "plain": [{"text": "Hello", "usage": {"cached": 2}}, {"text": "Again"}],
    "thinking": [{"reasoning": "Think", "text": "Four", "usage": {"reasoning": 3}}],
    "calling": [{"call": {"name": "look", "call_id": "call_a", "arguments": {"at": "sky"}}}, {"text": "Blue"}],
    "refusing": [{"refusal": "No"}],
    "breaking": [{"text": "Half", "error": {"code": "overloaded", "message": "Busy", "status": 503}}],
    "failing": [{"error": {"code": "overloaded", "message": "Busy", "status": 503}}],
    "refused": [{"error": {"code": "invalid_value", "message": "Wrong", "status": 400}}],
    "sealed": [
        {
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABsealed"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sealed"}]},
            ]
        }
    ],
}
"""The answers of the models of a server; single words, which masks do not change."""

SETTINGS = """
[aliases]
{aliases}
"""

BEHIND = """
[providers.up]
api = "responses"
base_url = "{url}/v1"
key_env = "UP_KEY"
owner = "convo"
[aliases]
"alias" = "up/sealed"
[providers.other]
api = "chat"
base_url = "{chat}/v1"
"""

LIMITED = """
[limits]
output_bytes = 1024
[serve.limits]
per_minute = 3
"""
"""Settings that a revision may lack."""

CHUNKS = (
    {"choices": [{"index": 0, "delta": {"content": "Plain"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
)
"""The response of a chat completions server."""

SEAL_KEY = "c2VhbC1zZWFsLXNlYWwtc2VhbC1zZWFsLXNlYWwtc2VhbC0="

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}

FIXED = {"content-type", "cache-control", "x-convo-ignored", "x-convo-limit", "www-authenticate", "allow"}
"""Headers whose values are compared."""

QUOTE = '"'

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def write_settings(folder: Path, name: str, text: str) -> Path:
    """Write a settings file for `--config`."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def scripted_settings(folder: Path) -> str:
    """The settings of a server whose models use `SCRIPTS`."""
    lines = ['"echo" = "scripted/echo"']
    for name, replies in SCRIPTS.items():
        (folder / f"{name}.json").write_text(json.dumps({"replies": replies}), encoding="utf-8")
        lines.append(f'"{name}" = "scripted/{folder / name}.json"')
    return SETTINGS.format(aliases="\n".join(lines))


@contextmanager
def served_revision(shell: RevisionShell, *argv: str) -> Iterator[str]:
    """Run `convo serve ARGV` while the block runs; yield its address."""
    more = {"CONVO_SEAL_KEY": SEAL_KEY, "UP_KEY": "key"}
    with shell.start("serve", "--port", "0", *argv, stderr=subprocess.PIPE, **more) as process:
        try:
            yield read_address(process)
        finally:
            process.terminate()


def read_address(process: "subprocess.Popen[str]") -> str:
    """Read the address of a server from its stderr. Raises EOFError if the server ends before it is printed."""
    assert process.stderr
    for line in process.stderr:
        address = re.search(r"http://[^,\s]+(?=/v1)", line)
        if "convo serves" in line and address:
            return address[0]
    raise EOFError("the server has ended")


class SurfaceClient:
    """Sends requests to a server and adds the responses to a collection.

    http:  the underlying HTTP client
    """

    def __init__(self, collection: Collection, url: str, key: str = "") -> None:
        self._collection = collection
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx2.Client(base_url=url, timeout=60, trust_env=False, headers=headers)

    def call(self, name: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request, add the response to the surface as `name`, and return its JSON."""
        answer = self.http.request(method, path, json=body, **more)
        self._add_head(name, answer)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return self._add_events(name, answer.text)
        document = loads(answer.text)
        self._collection.add_document("http", name, document)
        return document

    def _add_head(self, name: str, answer: httpx2.Response) -> None:
        self._collection.add_value("http", f"{name} status", answer.status_code)
        self._collection.add_words("headers", name, headers_of(answer))

    def _add_events(self, name: str, text: str) -> Any:
        """Add the events of a stream; returns the response in the last event."""
        blocks = [
            dict(line.partition(": ")[::2] for line in block.splitlines()) for block in text.split("\n\n") if block
        ]
        self._collection.add_words("events", "fields of an event", {key for block in blocks for key in block})
        self._collection.add_value("events", f"{name} last", blocks[-1].get("data"))
        events = [loads(block["data"]) for block in blocks if block.get("data", "").startswith("{")]
        add_events(self._collection, name, events)
        return events[-1].get("response")


def headers_of(answer: httpx2.Response) -> list[str]:
    """The names of the headers of a response, with the values of those in `FIXED`."""
    return [f"{name}: {value}" if name in FIXED else name for name, value in answer.headers.items()]


def add_events(collection: Collection, name: str, events: list[dict[str, Any]]) -> None:
    """Add the order of the events, and the paths of each type."""
    kinds = [kind for kind, _ in groupby(str(event.get("type")) for event in events)]
    collection.add_value("events", f"{name} order", " > ".join(kinds))
    for event in events:
        collection.add_document("events", str(event.get("type")), event)


def collect_server(collection: Collection, shell: RevisionShell) -> None:
    """Collect two servers: one with scripted models, and one with keys that sends requests to the first."""
    file = write_settings(shell.folder, "front.toml", scripted_settings(shell.folder))
    front = shell._replace(before=("--config", str(file)))
    with served_revision(front) as url:
        client = SurfaceClient(collection, url)
        call_all_routes(client)
        call_with_errors(client)
        run_websocket_conversation(collection, url)
        call_read_routes(collection, client)
        collect_keyed_server(collection, shell, url)
    collect_limited_server(collection, shell)
    collect_sqlite(collection, "server", shell.home)


def call_all_routes(client: SurfaceClient) -> None:
    """Send valid requests: responses, chains, conversations, background runs, compaction, token counts, models."""
    for model in SCRIPTS:
        for stream in (False, True):
            tools = {"tools": [TOOL]} if model == "calling" else {}
            name = f"{model} {'streamed' if stream else 'plain'}"
            client.call(name, "POST", "/v1/responses", {"model": model, "input": "one", "stream": stream, **tools})
    ignored = {
        "model": "plain",
        "input": "one",
        "service_tier": "flex",
        "safety_identifier": "me",
        "metadata": {"a": "b"},
    }
    first = client.call("ignored fields", "POST", "/v1/responses", ignored)
    chain = {"model": "plain", "input": "two", "previous_response_id": first["id"]}
    client.call("chained", "POST", "/v1/responses", chain)
    client.call("unstored", "POST", "/v1/responses", {"model": "plain", "input": "two", "store": False})
    path = f"/v1/responses/{first['id']}"
    client.call("retrieve", "GET", path)
    client.call("input items", "GET", f"{path}/input_items")
    running = client.call("background", "POST", "/v1/responses", {"model": "plain", "input": "one", "background": True})
    for _ in range(200):
        if client.http.get(f"/v1/responses/{running['id']}").json()["status"] == "completed":
            break
        time.sleep(0.02)
    client.call("background events", "GET", f"/v1/responses/{running['id']}?stream=true")
    client.call("cancel", "POST", f"/v1/responses/{running['id']}/cancel")
    conversation = client.call("conversation", "POST", "/v1/conversations", {"metadata": {"a": "b"}})
    url_path = f"/v1/conversations/{conversation['id']}"
    client.call(
        "in conversation",
        "POST",
        "/v1/responses",
        {"model": "plain", "input": "one", "conversation": conversation["id"]},
    )
    client.call("update conversation", "POST", url_path, {"metadata": {"c": "d"}})
    client.call("retrieve conversation", "GET", url_path)
    added = client.call("add items", "POST", f"{url_path}/items", {"items": [{"role": "user", "content": "more"}]})
    client.call("list items", "GET", f"{url_path}/items")
    item = added["data"][0]["id"]
    client.call("retrieve item", "GET", f"{url_path}/items/{item}")
    client.call("delete item", "DELETE", f"{url_path}/items/{item}")
    second_conversation = client.call(
        "second conversation", "POST", "/v1/conversations", {"items": [{"role": "user", "content": "hi"}]}
    )
    client.call("delete conversation", "DELETE", f"/v1/conversations/{second_conversation['id']}")
    client.call("delete response", "DELETE", path)
    client.call("compact", "POST", "/v1/responses/compact", {"model": "plain", "input": "one"})
    client.call("count tokens", "POST", "/v1/responses/input_tokens", {"model": "plain", "input": "one"})
    client.call("models", "GET", "/v1/models")
    client.call("model", "GET", "/v1/models/plain")
    client.call("ready", "GET", "/readyz")
    client.call("health", "GET", "/healthz")


def call_with_errors(client: SurfaceClient) -> None:
    """Send requests that the server refuses."""
    json_type = {"content-type": "application/json"}
    client.call("no body", "POST", "/v1/responses", {})
    client.call("unknown model", "POST", "/v1/responses", {"model": "nobody", "input": "one"})
    client.call("unknown field", "POST", "/v1/responses", {"model": "plain", "input": "one", "zzz": 1})
    client.call("wrong type", "POST", "/v1/responses", {"model": "plain", "input": 1})
    client.call("wrong value", "POST", "/v1/responses", {"model": "plain", "input": "one", "temperature": 9})
    owners = {"previous_response_id": "resp_1", "conversation": "conv_1"}
    client.call("both owners", "POST", "/v1/responses", {"model": "plain", "input": "one", **owners})
    client.call(
        "unknown parent", "POST", "/v1/responses", {"model": "plain", "input": "a", "previous_response_id": "resp_1"}
    )
    client.call("no JSON", "POST", "/v1/responses", content=b"{", headers=json_type)
    client.call("no JSON type", "POST", "/v1/responses", content=b"{}", headers={"content-type": "text/plain"})
    output = [{"type": "function_call_output", "call_id": "c", "output": "x"}]
    client.call("output without call", "POST", "/v1/responses", {"model": "plain", "input": output})
    call = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
    client.call(
        "call without output",
        "POST",
        "/v1/responses",
        {"model": "plain", "input": [*call, {"role": "user", "content": "x"}]},
    )
    client.call("unknown response", "GET", "/v1/responses/resp_1")
    client.call("unknown conversation", "GET", "/v1/conversations/conv_1")
    client.call("unknown path", "GET", "/v1/nowhere")
    client.call("wrong method", "PUT", "/v1/responses", {})
    client.call("foreign host", "GET", "/v1/models", headers={"host": "example.com"})


MESSAGES: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("turn", {"type": "response.create", "model": "plain", "input": "one"}),
    ("refused", {"type": "response.create", "model": "nobody", "input": "one"}),
    ("steered", {"type": "response.steer"}),
    ("unknown", {"type": "zzz"}),
)


def run_websocket_conversation(
    collection: Collection, url: str, key: str = "", messages: Sequence[tuple[str, Mapping[str, Any]]] = MESSAGES
) -> None:
    """Send messages over a WebSocket and add the events of each."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with connect(f"ws{url.removeprefix('http')}/v1/responses", proxy=None, additional_headers=headers) as connection:
        for name, message in messages:
            connection.send(json.dumps(message))
            events = [json.loads(connection.recv(timeout=30))]
            while not str(events[-1]["type"]).endswith((*ENDS, ".failed")):
                events.append(json.loads(connection.recv(timeout=30)))
            add_events(collection, f"websocket {name}", events)


def call_read_routes(collection: Collection, client: SurfaceClient) -> None:
    """Collect the metrics, the OpenAPI document and the headers of the inspector page."""
    document = client.http.get("/openapi.json").json()
    del document["info"]["version"]
    collection.add_schema("openapi", "document", document)
    client.http.get("/metrics")
    for line in client.http.get("/metrics").text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            collection.add_value("metrics", name, kind)
        elif not line.startswith(("#", "process_")):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            collection.add_words("metrics", f"sample {name}", _labels(labels))
    page = client.http.get("/", headers={"accept": "text/html"})
    collection.add_value("http", "page status", page.status_code)
    collection.add_words("headers", "page", headers_of(page))


def _labels(labels: str) -> Iterator[str]:
    """Yield the labels with their values; of `le` and `status` only the names."""
    for pair in filter(None, labels.rstrip("}").split('",')):
        name, _, value = pair.partition("=")
        yield name if name in ("le", "status") else f"{name}={value.replace(QUOTE, '')}"


def collect_limited_server(collection: Collection, shell: RevisionShell) -> None:
    """Collect a server whose limits are exceeded, if the revision has these settings."""
    file = write_settings(shell.folder, "limited.toml", scripted_settings(shell.folder) + LIMITED)
    own = shell._replace(home=shell.folder / "limited", before=("--config", str(file)))
    try:
        with served_revision(own, "--store", "memory") as url:
            client = SurfaceClient(collection, url)
            for name in ("long", "long streamed"):
                body = {"model": "echo", "input": "word " * 1000, "stream": name == "long streamed"}
                client.call(f"limited {name}", "POST", "/v1/responses", body)
            client.call("limited third", "GET", "/v1/models")
            client.call("limited fourth", "GET", "/v1/models")
    except EOFError:
        collection.add_value("http", "limited", "no such settings")


@contextmanager
def chat_completions() -> Iterator[str]:
    """Run a chat completions server that sends the same response to every request; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for chunk in (*map(json.dumps, CHUNKS), "[DONE]"):
                self.wfile.write(f"data: {chunk}\n\n".encode())

        def log_message(self, *text: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def collect_keyed_server(collection: Collection, shell: RevisionShell, url: str) -> None:
    """Collect a server with keys that forwards requests: sealed reasoning of a provider, refusals without a key."""
    keys = shell.folder / "keys"
    result = shell.run("serve", "--new-key", "alice", "--keys", str(keys))
    collection.add_value("formats", "a new key", collection.masks.pattern("", result.stdout.strip()))
    collection.add_value("formats", "a line of the file of keys", collection.masks.masked(keys.read_text().strip()))
    with chat_completions() as chat:
        file = write_settings(shell.folder, "behind.toml", BEHIND.format(url=url, chat=chat))
        own = shell._replace(home=shell.folder / "behind", before=("--config", str(file)))
        call_keyed_routes(collection, own, keys, result.stdout.strip())


def call_keyed_routes(collection: Collection, shell: RevisionShell, keys: Path, key: str) -> None:
    """Send requests to the forwarding server: sealed reasoning, fields that it does not forward, refused keys."""
    with served_revision(shell, "--keys", str(keys), "--store", "memory") as address:
        client = SurfaceClient(collection, address, key)
        include = {"include": ["reasoning.encrypted_content"]}
        for model in ("up/sealed", "alias"):
            client.call(f"behind {model}", "POST", "/v1/responses", {"model": model, "input": "one", **include})
        ignored = {"input": "one", "service_tier": "flex", "user": "me", "safety_identifier": "me", "max_tool_calls": 2}
        client.call("behind chat", "POST", "/v1/responses", {"model": "other/m", **ignored})
        client.call("behind chat streamed", "POST", "/v1/responses", {"model": "other/m", "stream": True, **ignored})
        run_websocket_conversation(
            collection, address, key, [("behind", {"type": "response.create", "model": "other/m", **ignored})]
        )
        client.call("behind compact", "POST", "/v1/responses/compact", {"model": "up/plain", "input": "one"})
        SurfaceClient(collection, address).call(
            "without key", "POST", "/v1/responses", {"model": "up/plain", "input": "one"}
        )
        SurfaceClient(collection, address, "wrong").call("wrong key", "GET", "/v1/models")
