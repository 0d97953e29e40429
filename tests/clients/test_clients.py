"""Every client on every kind of upstream: the task is done, or the request is refused by name.

`-m clients` runs all cells and prints the table; the default run has one cell of each client that is quick.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.clients import CLIENTS, GATEWAY_SETTINGS, MADE, UPSTREAMS, Client, make_folder
from tests.clients.conftest import CELL, gateway
from tests.clients.scripted_task import FINAL_TEXT, TaskModel, run_task_model
from tests.command_runner import ROOT
from tests.docs.clients import PAGE, page

CELLS = [
    pytest.param(
        client, upstream, id=f"{client.name}-{upstream}",
        marks=[
            pytest.mark.needs(client.needs, *(["weights"] if upstream == "built-in" else [])),
            pytest.mark.clients(by_default=upstream == client.by_default),
        ],
    )
    for client in CLIENTS
    for upstream in UPSTREAMS
]  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, TaskModel]]:
    """The address of a gateway with one provider of each kind, and the model behind all of them."""
    folder = tmp_path_factory.mktemp("clients")
    settings = folder / "convo.toml"
    with run_task_model() as model:
        settings.write_text(GATEWAY_SETTINGS.format(url=model.url.removesuffix("/v1")), encoding="utf-8")
        with gateway(folder, "--config", str(settings), "serve", "--port", "0", "--store", "sqlite:convo.db") as url:
            yield url, model


@pytest.mark.parametrize(("client", "upstream"), CELLS)
def test_a_client_does_the_task_or_is_refused_by_name(
    client: Client, upstream: str, running: tuple[str, TaskModel], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = "refused" if upstream in client.refused else "works"
    request.node.user_properties.append((CELL, (client.name, upstream, expected)))
    address, model = running
    work = make_folder(tmp_path)
    has_tools = upstream != "built-in"
    model.play(client.steps(work) if has_tools else ())

    result = client.run(work, address, client.models()[upstream], has_tools)

    output = result.stdout + result.stderr
    if upstream in client.refused:
        assert result.returncode != 0
        assert client.refused[upstream] in output
        assert model.requests == model.others == []
        return
    assert result.returncode == 0, output
    assert model.problems == []
    if has_tools:
        assert FINAL_TEXT in result.stdout
        assert (work / "made.txt").read_text(encoding="utf-8").strip() == MADE
        assert len(model.requests) == len(model.steps) + 1
    else:
        assert '"text"' in result.stdout
        assert "ello" in result.stdout


def test_the_page_of_clients_is_up_to_date() -> None:
    """To update the page: python -m tests.docs.clients > .github/CLIENTS.md"""
    assert PAGE.read_text(encoding="utf-8") == page()
    assert ".github/CLIENTS.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_cookbook_has_the_settings_that_are_tested() -> None:
    text = (ROOT / ".github/cookbook/use-codex-claude-code-or-opencode-with-any-model.md").read_text(encoding="utf-8")
    models = {"Codex": "gpt-5.5-local", "opencode": "gpt-5.5-local", "Claude Code": "claude-opus-5"}
    for client in CLIENTS[: len(models)]:
        settings = client.setup[1].replace("ADDRESS", "http://127.0.0.1:8788").replace("KEY", "any")
        expected = "\n".join(line for line in settings.splitlines() if not line.startswith("#"))
        assert expected.replace("MODEL", models[client.name]) in text


def test_the_versions_of_the_page_are_those_that_are_installed() -> None:
    scripts = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests/clients/python").glob("*.py"))
    installed = {"==": scripts, "@": (ROOT / ".ci/run").read_text(encoding="utf-8")}
    for client in CLIENTS:
        assert client.package in installed["==" if "==" in client.package else "@"]
