"""API keys: authentication, and the state that each key can read."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from convo.errors import InvalidSettings, KeyRefused, StoreFault
from convo.server.auth import KeysFile, SingleTenant, create_api_key
from tests.server.api_keys import bearer
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def gateway_with_keys(serve: Serve, file: Path) -> tuple[RunningGateway, str, str]:
    """A server with two tenants, and one key of each."""
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    return serve(keys=KeysFile(file)), alice, bob


UNKNOWN_RESPONSE_PATH = "/v1/responses/resp_1"
"""A path that returns 404 to an authenticated caller."""

OPEN_PATHS = {"/healthz", "/readyz"}

PATHS = [
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/conversations/conv_1"),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, None),
        ({"authorization": "Bearer wrong"}, "invalid_api_key"),
        ({"authorization": "Basic YTpi"}, "invalid_api_key"),
        ({"authorization": "Bearer"}, "invalid_api_key"),
    ],
)
def test_without_a_key_every_route_is_refused(
    gateway_with_keys: tuple[RunningGateway, str, str], method: str, path: str, headers: dict[str, str], code: str
) -> None:
    got = gateway_with_keys[0].http.request(method, path, headers=headers)
    assert (got.status_code, got.json()["error"]["code"]) == (401, code)
    assert got.json()["error"]["type"] == "invalid_request_error"
    assert got.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("values", [("Bearer {alice}", "Bearer {bob}"), ("", "Bearer {bob}"), ("Bearer {bob}", "")])
@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_two_authorization_headers_are_refused(
    gateway_with_keys: tuple[RunningGateway, str, str], values: tuple[str, str], path: str
) -> None:
    """The caller is ambiguous: a proxy may read one header, and this server the other."""
    gateway, alice, bob = gateway_with_keys
    one, two = (value.format(alice=alice, bob=bob) for value in values)
    got = gateway.http.get(path, headers=[("Authorization", one), ("authorization", two)])
    assert (got.status_code, got.json()["error"]["code"]) == (400, "duplicate_authorization_header")


def test_two_authorization_headers_are_refused_without_keys_too(serve: Serve) -> None:
    gateway = serve()
    got = gateway.http.get("/v1/models", headers=[("authorization", "Bearer a"), ("AUTHORIZATION", "Bearer a")])
    assert got.status_code == 400
    assert gateway.http.get("/healthz").status_code == 200


def test_two_authorization_headers_open_no_websocket(gateway_with_keys: tuple[RunningGateway, str, str]) -> None:
    gateway, alice, bob = gateway_with_keys
    address = f"ws{gateway.root.removeprefix('http')}/v1/responses"
    headers = [("Authorization", f"Bearer {key}") for key in (alice, bob)]
    with pytest.raises(InvalidStatus) as caught, connect(address, additional_headers=headers, proxy=None):
        pass
    assert caught.value.response.status_code == 400


def test_the_health_route_needs_no_key(gateway_with_keys: tuple[RunningGateway, str, str]) -> None:
    assert {gateway_with_keys[0].http.get(path).status_code for path in OPEN_PATHS} == {200}


def test_state_belongs_to_the_name_of_the_key_on_every_route(
    gateway_with_keys: tuple[RunningGateway, str, str],
) -> None:
    """Another key gets the same errors as for an id that never existed."""
    gateway, alice, bob = gateway_with_keys
    response = gateway.create_response({"model": "echo", "input": "secret"}, headers=bearer(alice)).json()
    conversation = gateway.http.post("/v1/conversations", json={}, headers=bearer(alice)).json()
    response_path, conversation_path = f"/v1/responses/{response['id']}", f"/v1/conversations/{conversation['id']}"
    routes: list[tuple[str, str, Any]] = [
        ("GET", response_path, None),
        ("GET", f"{response_path}?stream=true", None),
        ("DELETE", response_path, None),
        ("POST", f"{response_path}/cancel", None),
        ("GET", f"{response_path}/input_items", None),
        ("GET", conversation_path, None),
        ("POST", conversation_path, {"metadata": {}}),
        ("DELETE", conversation_path, None),
        ("GET", f"{conversation_path}/items", None),
        ("POST", f"{conversation_path}/items", {"items": [{"role": "user", "content": "x"}]}),
        ("GET", f"{conversation_path}/items/msg_1", None),
        ("DELETE", f"{conversation_path}/items/msg_1", None),
        ("POST", "/v1/responses", {"model": "echo", "input": "x", "conversation": conversation["id"]}),
    ]
    statuses = [gateway.http.request(*route[:2], json=route[2], headers=bearer(bob)).status_code for route in routes]
    chained = gateway.create_response(
        {"model": "echo", "input": "x", "previous_response_id": response["id"]}, headers=bearer(bob)
    )

    assert statuses == [404] * len(routes)
    assert (chained.status_code, chained.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert gateway.http.get(response_path, headers=bearer(alice)).json() == response


def test_the_file_is_read_again_when_it_changes(gateway_with_keys: tuple[RunningGateway, str, str], file: Path) -> None:
    gateway, alice, bob = gateway_with_keys
    carol = create_api_key(file, "carol")
    new_key_status = gateway.http.get(UNKNOWN_RESPONSE_PATH, headers=bearer(carol)).status_code
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "alice" not in line))
    removed_key_status = gateway.http.get(UNKNOWN_RESPONSE_PATH, headers=bearer(alice)).status_code

    assert (new_key_status, removed_key_status) == (404, 401)
    assert gateway.http.get(UNKNOWN_RESPONSE_PATH, headers=bearer(bob)).status_code == 404


def test_a_damaged_line_grants_no_access_and_the_others_stay_valid(file: Path) -> None:
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    keys = KeysFile(file)
    file.write_text(file.read_text().replace("alice ", "alice"))
    with pytest.raises(KeyRefused):
        keys.authenticate(f"Bearer {alice}")
    assert keys.authenticate(f"Bearer {bob}") == "bob"


def test_a_deleted_file_grants_no_access(file: Path) -> None:
    key = create_api_key(file, "alice")
    keys = KeysFile(file)
    file.unlink()
    with pytest.raises(KeyRefused):
        keys.authenticate(f"Bearer {key}")


def test_a_key_under_two_names_is_refused_at_the_start_and_grants_no_access_later(file: Path) -> None:
    key = create_api_key(file, "alice")
    keys = KeysFile(file)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"bob {sha256(key.encode()).hexdigest()}\n")

    with pytest.raises(KeyRefused):
        keys.authenticate(f"Bearer {key}")
    with pytest.raises(InvalidSettings, match="several names: alice, bob"):
        KeysFile(file)


def test_a_name_may_have_several_keys(file: Path) -> None:
    """A second key makes it possible to replace the first."""
    old, new = create_api_key(file, "alice"), create_api_key(file, "alice")
    keys = KeysFile(file)
    assert [keys.authenticate(f"bearer {key}") for key in (old, new)] == ["alice", "alice"]


def test_the_file_contains_names_and_hashes_and_is_private(file: Path) -> None:
    key = create_api_key(file, "alice")
    assert file.read_text() == f"alice {sha256(key.encode()).hexdigest()}\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_comments_empty_lines_and_a_missing_newline_are_valid(file: Path) -> None:
    file.write_text(f"# who\n\nold {'0' * 64}  # leaves in May")
    key = create_api_key(file, "alice")
    assert KeysFile(file).authenticate(f"Bearer {key}") == "alice"


@pytest.mark.parametrize("line", ["alice", f"alice {'0' * 63}", f"a b {'0' * 64}", "alice sk-secret", f"-a {'0' * 64}"])
def test_an_invalid_file_is_refused_at_the_start(file: Path, line: str) -> None:
    file.write_text(f"ok {'0' * 64}\n{line}\n")
    with pytest.raises(InvalidSettings, match="line 2: is not a name and the SHA-256 of a key") as caught:
        KeysFile(file)
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_refused_at_the_start(file: Path) -> None:
    with pytest.raises(InvalidSettings, match="no such keys file"):
        KeysFile(file)


@pytest.mark.parametrize("name", ["", "a b", "a#b", "-a", "x" * 65, "a/b"])
def test_an_invalid_name_creates_no_key(file: Path, name: str) -> None:
    with pytest.raises(InvalidSettings):
        create_api_key(file, name)
    assert not file.exists()


def test_a_file_that_cannot_be_written_creates_no_key(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with pytest.raises(StoreFault, match="cannot be written"):
        create_api_key(tmp_path / "keys", "alice")


def test_without_keys_any_key_or_none_is_the_tenant_local() -> None:
    assert {SingleTenant().authenticate(header) for header in (None, "Bearer x", "nonsense")} == {"local"}


def test_the_file_stamp_detects_a_replaced_file(file: Path) -> None:
    """Editors and deployments replace a file; here the new one has the same modification time and size."""
    alice = create_api_key(file, "alice")
    keys, original_stat = KeysFile(file), file.stat()
    other = file.with_name("other")
    mallory = create_api_key(other, "mallo")
    os.utime(other, ns=(original_stat.st_atime_ns, original_stat.st_mtime_ns))
    other.replace(file)

    assert keys.authenticate(f"Bearer {mallory}") == "mallo"
    with pytest.raises(KeyRefused):
        keys.authenticate(f"Bearer {alice}")
