"""A server without keys: the hosts and origins from which it accepts requests."""

from pathlib import Path

import pytest

from convo.errors import InvalidSettings
from convo.server.auth import KeysFile, create_api_key
from convo.server.server import check_keys_required, open_listening_socket
from tests.config.settings_inputs import make_settings
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

UNKNOWN_RESPONSE_PATH = "/v1/responses/resp_1"
"""A path that returns 404 to an accepted caller."""


@pytest.mark.parametrize(
    "host", [
        "evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:1", "a.localhost", "a.localhost:80",
        "localhost.", "127.0.0.1.", "127.1", "0.0.0.0", "[::1%25lo]", "[127.0.0.1]", "[localhost]",
    ],
)  # fmt: skip
def test_a_foreign_host_name_that_resolves_here_is_refused(shared_gateway: RunningGateway, host: str) -> None:
    """This prevents DNS rebinding: a browser sends the host name from which the page was loaded."""
    got = shared_gateway.http.get(UNKNOWN_RESPONSE_PATH, headers={"host": host})
    assert (got.status_code, got.json()["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:1", "[::1]:8788"])
def test_a_host_name_of_this_machine_is_served(shared_gateway: RunningGateway, host: str) -> None:
    assert shared_gateway.http.get(UNKNOWN_RESPONSE_PATH, headers={"host": host}).status_code == 404


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "chrome-extension://abc"])
def test_a_web_page_of_another_origin_is_refused(shared_gateway: RunningGateway, origin: str) -> None:
    got = shared_gateway.http.post("/v1/conversations", headers={"origin": origin})
    assert (got.status_code, got.json()["error"]["code"]) == (403, "origin_not_allowed")


def test_a_page_of_the_same_origin_is_served_and_no_other_origin_is_allowed(shared_gateway: RunningGateway) -> None:
    got = shared_gateway.http.get(UNKNOWN_RESPONSE_PATH, headers={"origin": shared_gateway.root})
    options_response = shared_gateway.http.options("/v1/responses", headers={"origin": shared_gateway.root})
    assert (got.status_code, options_response.status_code) == (404, 405)
    assert not [
        name for answer in (got, options_response) for name in answer.headers if name.startswith("access-control")
    ]


def test_with_keys_any_host_name_is_accepted(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("keys") / "keys"
    key = create_api_key(file, "alice")
    headers = {"host": "api.example.com", "origin": "https://example.com", "authorization": f"Bearer {key}"}
    assert serve(keys=KeysFile(file)).http.get(UNKNOWN_RESPONSE_PATH, headers=headers).status_code == 404


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "", "a.localhost", "localhost.", "127.1", "::1%lo"])
def test_other_machines_are_served_only_with_keys(host: str) -> None:
    settings = make_settings().serve._replace(host=host)
    with pytest.raises(
        InvalidSettings, match="can be reached from other machines, and no API keys are set up"
    ) as caught:
        check_keys_required(settings)
    assert "convo serve --new-key NAME" in caught.value.hint
    check_keys_required(settings._replace(keys_file=Path("keys")))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_a_server_on_loopback_needs_no_keys(host: str) -> None:
    check_keys_required(make_settings().serve._replace(host=host))


def test_a_port_in_use_is_named() -> None:
    with open_listening_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidSettings, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            open_listening_socket("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300])
def test_an_invalid_host_is_named(host: str) -> None:
    with pytest.raises(InvalidSettings, match="cannot listen on") as caught:
        open_listening_socket(host, 0)
    assert caught.value.hint == "choose another --port; 0 selects a free one"
    assert str(caught.value).startswith(f"cannot listen on {host}, port 0: ")


@pytest.mark.parametrize("host", ["é" * 300, "\udc80", "a\0b"])
def test_a_host_that_cannot_be_encoded_is_not_a_host_name(host: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_listening_socket(host, 0)
    assert str(caught.value) == f"cannot listen on {host}, port 0: it is not a host name"
