"""Node clients: each aborts a stream, streams a complete answer and continues, in a chain and in a conversation."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.clients.conftest import gateway
from tests.needs import NODE_MODULES
from tests.server.paced_upstream import PacedUpstream, run_paced_upstream

SCRIPTS = Path(__file__).parent / "node"
QUICK = "w0 w1 w2 "

SETTINGS = """
[providers.up]
api = "chat"
base_url = "{url}"
[aliases]
slow = "up/words-1000-10"
quick = "up/words-3-1"
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[PacedUpstream]:
    with run_paced_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def url(upstream: PacedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a gateway that stores state in SQLite, in front of the paced upstream."""
    folder = tmp_path_factory.mktemp("node")
    settings = folder / "convo.toml"
    settings.write_text(SETTINGS.format(url=upstream.url), encoding="utf-8")
    with gateway(folder, "--config", str(settings), "serve", "--port", "0", "--store", "sqlite:convo.db") as running:
        yield f"{running}/v1"


def node(script: str, folder: Path, url: str, state: str) -> dict[str, Any]:
    """Run a script in a folder with the installed packages; returns the JSON in the last line that it prints."""
    (folder / "node_modules").symlink_to(NODE_MODULES)
    (folder / script).write_bytes((SCRIPTS / script).read_bytes())
    environ = {"PATH": os.environ["PATH"], "BASE_URL": url, "STATE": state, "HOME": str(folder)}
    result = subprocess.run(
        ["node", script], cwd=folder, env=environ, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return report


def check_abort_and_continuation(script: str, state: str, folder: Path, url: str, upstream: PacedUpstream) -> None:
    upstream.calls.clear()
    result = node(script, folder, url, state)
    first, *rest = upstream.calls

    assert result["first"]["aborted"]
    assert first.closed.wait(30)
    assert not first.finished
    assert first.words < 500
    assert result["kept"]["status"] == "cancelled"
    assert result["kept"]["text"].startswith(result["first"]["text"])
    assert (result["second"]["text"], result["second"]["status"], result["third"]) == (QUICK, "completed", QUICK)
    messages = [
        (message["role"], message["content"]) for message in rest[-1].body["messages"] if message["role"] != "system"
    ]
    partial = result["kept"]["text"]
    expected = [("user", "first"), ("assistant", partial), ("user", "second"), ("assistant", QUICK), ("user", "third")]
    assert messages == expected
    if result["conversation"]:
        listed = httpx2.get(f"{url}/conversations/{result['conversation']}/items?order=asc").json()["data"]
        assert [item["content"][0]["text"] for item in listed] == [*(text for _, text in expected), QUICK]


CASES = [("openai.mjs", "conversation"), ("vercel.mjs", "chain"), ("agents.mjs", "conversation")]


@pytest.mark.needs("node clients")
@pytest.mark.parametrize(("script", "state"), CASES)
def test_a_node_client_aborts_a_stream_and_continues(
    script: str, state: str, tmp_path: Path, url: str, upstream: PacedUpstream
) -> None:
    check_abort_and_continuation(script, state, tmp_path, url, upstream)


@pytest.mark.full
@pytest.mark.needs("node clients")
@pytest.mark.parametrize("state", ["chain", "conversation"])
@pytest.mark.parametrize("script", ["openai.mjs", "vercel.mjs", "agents.mjs"])
def test_every_node_client_aborts_a_stream_and_continues_with_both_server_side_owners(
    script: str, state: str, tmp_path: Path, url: str, upstream: PacedUpstream
) -> None:
    check_abort_and_continuation(script, state, tmp_path, url, upstream)


@pytest.mark.needs("node clients")
def test_the_node_package_uploads_a_file_and_names_it_in_a_request(
    tmp_path: Path, url: str, upstream: PacedUpstream
) -> None:
    upstream.calls.clear()
    result = node("files.mjs", tmp_path, url, "")

    file = result["file"]
    assert (file["filename"], file["bytes"], file["expires_at"]) == ("ré.pdf", 8, file["created_at"] + 3600)
    assert (result["listed"], result["content"], result["status"]) == ([file["id"]], "%PDF-1.4", "completed")
    assert (result["deleted"], result["gone"]) == (True, 404)
    (part,) = upstream.calls[0].body["messages"][-1]["content"]
    assert part == {
        "type": "file", "file": {"filename": "ré.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQ="},
    }  # fmt: skip
