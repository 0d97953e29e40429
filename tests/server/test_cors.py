"""Web pages of other origins: which of them may call the API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convo.errors import InvalidSettings
from convo.server.auth import KeysFile, create_api_key
from convo.server.server import check_keys_required
from tests.config.settings_inputs import make_settings
from tests.server.gateway import RunningGateway, run_gateway

APP, OTHER = "https://app.example", "https://other.example"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-lang"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway without keys that one origin may call."""
    with run_gateway(
        tmp_path_factory.mktemp("cors") / "served", cors_origins=(APP, "http://localhost:5173")
    ) as gateway:
        yield gateway


@pytest.mark.parametrize("origin", [APP, "http://localhost:5173"])
def test_an_allowed_page_may_call_the_api_and_read_every_header(local: RunningGateway, origin: str) -> None:
    preflight = local.http.options("/v1/responses", headers={"origin": origin, **ASKED})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == origin
    assert preflight.headers["access-control-allow-headers"] == ASKED["access-control-request-headers"]
    assert {"GET", "POST", "DELETE"} == set(preflight.headers["access-control-allow-methods"].split(", "))
    for body, status in (({"model": "echo", "input": "hi"}, 200), ({"model": "nothing-known", "input": "hi"}, 400)):
        response = local.create_response(body, headers={"origin": origin})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, origin)
        assert (response.headers["access-control-expose-headers"], response.headers["vary"]) == ("*", "Origin")
        assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", [OTHER, "https://app.example.evil.example", "http://app.example", "null"])
def test_any_other_page_is_refused(local: RunningGateway, origin: str) -> None:
    preflight = local.http.options("/v1/responses", headers={"origin": origin, **ASKED})
    got = local.http.get("/v1/models", headers={"origin": origin})
    assert (preflight.status_code, got.status_code, got.json()["error"]["code"]) == (400, 403, "origin_not_allowed")
    assert "access-control-allow-origin" not in {*preflight.headers, *got.headers}


@pytest.mark.parametrize("path", ["/", "/inspect/api/list", "/metrics"])
def test_the_page_of_the_inspector_stays_closed_to_an_allowed_page(local: RunningGateway, path: str) -> None:
    got = local.http.get(path, headers={"origin": APP})
    preflight = local.http.options(path, headers={"origin": APP, **ASKED})
    assert preflight.status_code in (403, 405)
    assert "access-control-allow-origin" not in {*preflight.headers, *got.headers}
    assert path == "/" or got.status_code == 403


def test_every_page_may_call_a_server_with_keys_if_the_setting_says_so(tmp_path: Path) -> None:
    key = create_api_key(tmp_path / "keys", "alice")
    with run_gateway(tmp_path / "served", keys=KeysFile(tmp_path / "keys"), cors_origins=("*",)) as gateway:
        bare = gateway.http.get("/v1/models", headers={"origin": OTHER, "cookie": "a=b"})
        allowed = gateway.http.get("/v1/models", headers={"origin": OTHER, "authorization": f"Bearer {key}"})
    assert [got.status_code for got in (bare, allowed)] == [401, 200]
    assert allowed.headers["access-control-allow-origin"] == "*"
    assert not [got for got in (bare, allowed) if "access-control-allow-credentials" in got.headers]


def test_every_page_needs_keys() -> None:
    serve = make_settings(user='[serve]\ncors_origins = ["*"]').serve
    with pytest.raises(InvalidSettings, match="allows every web page, and no API keys are set up"):
        check_keys_required(serve)
    check_keys_required(serve._replace(keys_file=Path("keys")))
    check_keys_required(serve._replace(cors_origins=(APP,)))
