"""The calls of the inspector page are in the OpenAPI document, with the members of approvals and decisions."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from convo.history.items import assistant_message, user_message
from convo.history.records import AgentCall, AgentRun, Strategy
from convo.history.tree import Path, root_key
from convo.runs.serialize import run_to_json
from convo.server import pages
from convo.server.auth import KeysFile, create_api_key
from convo.server.routes import load_openapi_document
from convo.stores.base import AppendItems, Transaction
from tests.cli.stored_chats import ChatWriter
from tests.runs.test_stored_approvals import paused
from tests.server.api_keys import bearer
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway, run_gateway_with_chats
from tests.stores.chat_transactions import NOW, link, session

DOCUMENT: dict[str, Any] = json.loads(json.dumps(load_openapi_document()))
SCHEMAS = DOCUMENT["components"]["schemas"]

CALL = re.compile(r"""["'`]/?((?:inspect/api|v1)/[^"'`?]*)""")
"""A path in the page's JavaScript, up to its query."""

PATH_VALUE, QUERY_VALUE = re.compile(r"\$\{encodeURIComponent\([^}]*\)\}"), re.compile(r"\$\{query\}$")


def test_the_page_calls_only_paths_of_the_document_and_all_calls_of_the_page_in_it() -> None:
    scripts = {name: file.body.decode() for name, file in pages.load_page_files().items() if name.endswith(".js")}
    called = {
        PATH_VALUE.sub("{}", QUERY_VALUE.sub("", path)) for text in scripts.values() for path in CALL.findall(text)
    }
    documented = {re.sub(r"{\w+}", "{}", path).removeprefix("/") for path in DOCUMENT["paths"]}
    assert called == {path for path in documented if path.startswith("inspect/")} | {"v1/responses"}
    assert [name for name, text in scripts.items() if re.search(r"(?<![.\w#])fetch\(", text)] == ["source.js"]


# -- real responses --------------------------------------------------------------------------------


def response_schema(path: str, method: str = "get") -> Any:
    return DOCUMENT["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]


def fits(schema: Any, value: Any) -> bool:
    return bool(OAS31Validator({**schema, "components": {"schemas": SCHEMAS}}).is_valid(value))


def unnamed_members(schema: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield the members of `value` that its schema does not name, at any depth; an object without names is free."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        schema = next(each for each in schema["anyOf"] if fits(each, value))
        yield from unnamed_members(schema, value, path)
    elif isinstance(value, list):
        for member in value:
            yield from unnamed_members(schema.get("items", {}), member, f"{path}[]")
    elif isinstance(value, Mapping) and "properties" in schema:
        for name, member in value.items():
            if name in schema["properties"]:
                yield from unnamed_members(schema["properties"][name], member, f"{path}.{name}")
            else:
                yield f"{path}.{name}"


def check_response(got: Any, path: str, method: str = "get") -> Any:
    """Check a response against the schema of its operation; returns its JSON."""
    assert got.status_code == 200, got.text
    value, schema = got.json(), response_schema(path, method)
    OAS31Validator({**schema, "components": {"schemas": SCHEMAS}}).validate(value)
    assert set(unnamed_members(schema, value)) == set()
    return value


async def write_conversation(writer: ChatWriter) -> None:
    await writer.chat(Strategy.CHAIN, "rain", "What is rain?", "And snow?")


def store_samples(gateway: RunningGateway) -> None:
    """Store a paused run with its calls, requests of a priced model, and a request that failed."""
    root = root_key("local")
    path = Path(root).append([user_message("Pay A1 back"), assistant_message("I look it up.")])
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 25}, "output_tokens": 10}
    links = (
        link("resp_paid", path.first(1).head, path.head, model="openai/gpt-5-mini", usage=usage, session_id="ses_9"),
        link("resp_failed", path.head, path.head, status="failed", error={"code": "x", "message": "No."}),
    )
    record = session(id="ses_9", name="refunds", head=path.head, confirmed_head=path.head, link_id="resp_paid")
    run = AgentRun("run_9", "ses_9", 1, "paused", run_to_json(paused()), NOW, NOW)
    calls = (AgentCall("run_9", "1/c1", NOW, has_ended=True, output="500"), AgentCall("run_9", "1/c2", NOW))
    transaction = Transaction((AppendItems(root, path.items),), links, record, agent_run=run, agent_calls=calls)
    gateway.run(gateway.store.commit(transaction))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway_with_chats(tmp_path_factory.mktemp("documented"), write_conversation) as running:
        store_samples(running)
        yield running


def test_a_pending_call_has_the_documented_members(gateway: RunningGateway) -> None:
    path = "/inspect/api/approvals"
    assert check_response(gateway.http.get(path, params={"run": "run_9", "call": "g1"}), path)["hint"]


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "code"),
    [
        ("get", "/inspect/api/conversations/{handle}", "resp_", 400, "ambiguous_handle"),
        ("get", "/inspect/api/conversations/{handle}/compaction", "rain?keep_last=99", 400, "usage"),
        ("get", "/inspect/api/conversations/{handle}/export", "none", 404, None),
        ("get", "/inspect/api/requests/{id}/code", "none", 404, None),
        ("post", "/inspect/api/approvals", "", 403, "api_key_required"),
    ],
)
def test_an_error_of_an_action_is_in_its_description(
    gateway: RunningGateway, method: str, path: str, query: str, status: int, code: str | None
) -> None:
    value, _, parameters = query.partition("?")
    got = gateway.http.request(
        method.upper(), f"{re.sub(r'{.*}', value, path)}?{parameters}", json={} if method == "post" else None
    )
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)
    described = DOCUMENT["paths"][path][method]["description"]
    assert (f"`{code}`" if code else str(status)) in described


@pytest.mark.parametrize("language", ["curl", "python", "javascript"])
def test_code_is_plain_text(gateway: RunningGateway, language: str) -> None:
    got = gateway.http.get("/inspect/api/requests/resp_paid/code", params={"language": language})
    assert (got.status_code, got.headers["content-type"].partition(";")[0]) == (200, "text/plain")


def test_a_file_has_a_documented_media_type(gateway: RunningGateway) -> None:
    path = "/inspect/api/conversations/{handle}/export"
    operation = DOCUMENT["paths"][path]["get"]
    (parameter,) = (each for each in operation["parameters"] if each["name"] == "format")
    files = [
        gateway.http.get(path.format(handle="rain"), params={"format": name}) for name in parameter["schema"]["enum"]
    ]
    media_types = [got.headers["content-type"].partition(";")[0] for got in files]
    assert media_types == list(operation["responses"]["200"]["content"])
    check_response(files[0], path)


def test_a_decision_has_the_documented_members(serve: Serve, tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    headers = bearer(create_api_key(keys, "alice"))
    gateway, root, path = serve("memory", keys=KeysFile(keys)), root_key("alice"), "/inspect/api/approvals"
    record = session(id="ses_1", name="refunds", head=root, confirmed_head=root)
    run = AgentRun("run_1", "ses_1", 1, "paused", run_to_json(paused()), NOW, NOW)
    gateway.run(gateway.store.for_tenant("alice").commit(Transaction(session=record, agent_run=run)))
    shown = check_response(gateway.http.get(path, params={"run": "run_1", "call": "g1"}, headers=headers), path)
    names = ("run_id", "call_id", "arguments_digest", "csrf_token")
    body = {**{name: shown[name] for name in names}, "decision": "reject", "reason": "not on a Friday"}
    check_response(gateway.http.post(path, json=body, headers=headers), path, "post")
    path = "/inspect/api/decisions"
    assert check_response(gateway.http.get(path, headers=headers), path)["decisions"]
