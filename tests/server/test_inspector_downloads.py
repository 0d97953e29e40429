"""The downloads of the inspector page over HTTP: a request as code that sends it again, a conversation as a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from convo.inspect.request_code import CODE_LANGUAGES, CodeTarget, render_request_code
from convo.server.auth import KeysFile, create_api_key
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo
from tests.loopback_server import KEY, LoopbackServer
from tests.request_programs import run_program
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

CODE, EXPORT = "/inspect/api/requests/{}/code", "/inspect/api/conversations/{}/export"

LANGUAGES = [
    pytest.param("curl", marks=pytest.mark.needs("curl")),
    "python",
    pytest.param("javascript", marks=pytest.mark.needs("node clients")),
]

SPECIAL_TEXT = 'it\'s "$HOME" `id` ${x} \\ \x1b[31m \x7f größer 😀 \u202e \u2028 </script> !! %s\nEND_OF_REQUEST\nand?'


def without_stream(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "stream"}


def test_the_languages_are_tested() -> None:
    assert [getattr(language, "values", (language,))[0] for language in LANGUAGES] == list(CODE_LANGUAGES)


# -- code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("strategy", ["chain", "conversation", "session"])
def test_the_code_sends_the_body_of_a_chat_again(
    strategy: str,
    language: str,
    loopback: LoopbackServer,
    convo: Convo,
    serve: Serve,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    assert convo("chat", f"--{strategy}", "-n", "mine", SPECIAL_TEXT).exit == 0
    assert convo("chat", "--from", "mine", "And then?", "--param", "top_p=0.5").exit == 0
    (_, sent) = loopback.bodies
    gateway = serve(f"sqlite:{home / DATABASE}", toml=f'[providers.openai]\nbase_url = "{loopback.url}"\n')
    link_id = gateway.http.get("/inspect/api/requests").json()["data"][0]["id"]
    got = gateway.http.get(CODE.format(link_id), params={"language": language})
    assert (got.status_code, got.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert got.text.isascii()
    assert KEY not in got.text
    done = run_program(language, got.text, tmp_path / "program", OPENAI_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert "And then?" in done.stdout
    assert without_stream(loopback.bodies[2]) == without_stream(sent)
    assert loopback.requests[-1].headers["authorization"] == f"Bearer {KEY}"


HOSTILE_BODY: dict[str, Any] = {
    "model": SPECIAL_TEXT,
    "input": [{"role": "user", "content": SPECIAL_TEXT, "__proto__": {"a": 1}, "10": 1, "2": [], "": {}}],
    "metadata": {SPECIAL_TEXT: "'''\"\"\"", "__proto__": None},
    "temperature": 0.1,
    "store": True,
    "max_output_tokens": 2**53,
    "__proto__": {"x": [None, False, -1.5e-7]},
    "extra_headers": {"authorization": "stolen"},
    "not a name": [[[]]],
    "timeout": 0,
}
"""Fields that the languages or the packages could take for something else."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_field_of_a_body_is_code_or_an_option(language: str, loopback: LoopbackServer, tmp_path: Path) -> None:
    target = CodeTarget(loopback.url, "OPENAI_API_KEY", "my-organisation", "my-project")
    code = render_request_code(language, target, HOSTILE_BODY)
    assert code.isascii()
    assert "\x1b" not in code
    run_program(language, code, tmp_path / "program", OPENAI_API_KEY=KEY)
    assert without_stream(loopback.bodies[0]) == HOSTILE_BODY
    headers = loopback.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["openai-organization"], headers["openai-project"]) == ("my-organisation", "my-project")


def test_javascript_code_says_that_it_rounds_large_integers() -> None:
    target = CodeTarget("http://127.0.0.1/v1")
    note = "JavaScript rounds integers"
    assert note in render_request_code("javascript", target, {"input": [{"seed": 2**53 + 1}]})
    assert note not in render_request_code("javascript", target, {"input": [{"seed": 2**53, "x": 1e300}]})


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_request_to_the_server_itself_is_sent_to_it_again(
    language: str, gateway: RunningGateway, tmp_path: Path
) -> None:
    first = gateway.create_response({"model": "echo", "input": "one"}).json()["id"]
    request = {"model": "echo", "input": SPECIAL_TEXT, "instructions": "Be brief.", "previous_response_id": first}
    second = gateway.create_response(request).json()["id"]
    code = gateway.http.get(CODE.format(second), params={"language": language}).text
    done = run_program(language, code, tmp_path / "program")
    assert (done.returncode, done.stderr) == (0, "")
    rows = gateway.http.get("/inspect/api/requests").json()["data"]
    assert len(rows) == 3
    links = gateway.http.get(f"/inspect/api/conversations/{first}").json()["links"]
    repeated, original = (
        next(link for link in links if link["response_id"] == name) for name in (rows[0]["id"], second)
    )
    assert repeated["previous_response_id"] == first
    assert (repeated["saw"], repeated["request"]) == (original["saw"], original["request"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_with_keys_the_code_reads_the_key_of_the_server_from_its_variable(
    language: str, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    gateway = serve(keys=KeysFile(file))
    headers, others = ({"authorization": f"Bearer {key}"} for key in (alice, bob))
    mine = gateway.create_response({"model": "echo", "input": "mine"}, headers=headers).json()["id"]
    path, params = CODE.format(mine), {"language": language}
    assert gateway.http.get(path, params=params).status_code == 401
    assert gateway.http.get(path, params=params, headers=others).status_code == 404
    code = gateway.http.get(path, params=params, headers=headers).text
    assert alice not in code
    done = run_program(language, code, tmp_path / "program", CONVO_KEY=alice)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(gateway.http.get("/inspect/api/requests", headers=headers).json()["data"]) == 2


def test_code_is_written_for_the_address_that_the_page_has(gateway: RunningGateway) -> None:
    link_id = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
    path = CODE.format(link_id)
    assert f"{gateway.url}/responses" in gateway.http.get(path).text
    public = gateway.http.get(path, params={"base_url": "https://models.example/a/v1"}).text
    assert public.startswith("curl -sS -N https://models.example/a/v1/responses")
    for name, value in (("base_url", "javascript:alert(1)"), ("base_url", "http://a b"), ("language", "ruby")):
        got = gateway.http.get(path, params={name: value})
        assert (got.status_code, got.json()["error"]["param"]) == (400, name)
    assert gateway.http.get(CODE.format("resp_none")).status_code == 404


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "content_type"),
    [
        ("json", ("--format", "replay"), "application/json"),
        ("jsonl", ("--format", "jsonl"), "application/jsonl"),
        ("markdown", ("--format", "markdown"), "text/markdown; charset=utf-8"),
        ("html", ("--format", "html"), "text/html; charset=utf-8"),
    ],
)
@pytest.mark.parametrize("strategy", ["chain", "conversation", "session"])
def test_a_conversation_is_exported_as_by_the_command(
    strategy: str, name: str, arguments: tuple[str, str], content_type: str, convo: Convo, serve: Serve, home: Path
) -> None:
    assert convo("chat", f"--{strategy}", "-n", "größe", "-m", "scripted/echo", SPECIAL_TEXT).exit == 0
    gateway = serve(f"sqlite:{home / DATABASE}")
    got = gateway.http.get(EXPORT.format("größe"), params={"format": name})
    assert (got.status_code, got.headers["content-type"]) == (200, content_type)
    suffix = {"markdown": "md"}.get(name, name)
    assert got.headers["content-disposition"] == f'attachment; filename="gr-e.{suffix}"'
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.text == convo("export", "größe", *arguments).out


def test_an_item_that_another_client_added_is_exported(convo: Convo, serve: Serve, home: Path) -> None:
    assert convo("chat", "--conversation", "-n", "mine", "-m", "scripted/echo", "one").exit == 0
    gateway = serve(f"sqlite:{home / DATABASE}")
    (entry,) = gateway.http.get("/inspect/api/list").json()["data"]
    conversation_id = gateway.http.get(f"/inspect/api/conversations/{entry['id']}").json()["links"][0][
        "conversation_id"
    ]
    added = {"items": [{"role": "user", "content": "added"}]}
    assert gateway.http.post(f"/v1/conversations/{conversation_id}/items", json=added).status_code == 200
    got = gateway.http.get(EXPORT.format("mine"))
    assert got.text == convo("export", "mine").out
    assert "added" in got.text


def test_each_key_exports_its_own_conversations_and_reads_no_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = ({"authorization": f"Bearer {create_api_key(file, name)}"} for name in ("alice", "bob"))
    gateway = serve(keys=KeysFile(file))
    mine = gateway.create_response({"model": "echo", "input": "mine"}, headers=alice).json()["id"]
    path = EXPORT.format(mine)
    assert gateway.http.get(path).status_code == 401
    assert gateway.http.get(path, headers=bob).status_code == 404
    items = gateway.http.get(path, headers=alice).json()
    assert json.dumps(items).count("mine") == 2
    assert gateway.http.get(path, params={"format": "pdf"}, headers=alice).json()["error"]["param"] == "format"


@pytest.mark.parametrize("path", [CODE.format("resp_x"), EXPORT.format("resp_x")])
def test_without_keys_other_web_pages_get_no_download(shared_gateway: RunningGateway, path: str) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        assert shared_gateway.http.get(path, headers=headers).status_code == 403


def test_an_exported_text_has_the_items_before_a_compaction(convo: Convo, serve: Serve, home: Path) -> None:
    replies = [
        {"text": f"Answer {word}: {'it is long enough to be compacted ' * 3}"} for word in ("one", "two", "three")
    ]
    model = scripted_flags(*replies)
    assert convo("chat", "--chain", "-n", "mine", "one", *model).exit == 0
    assert convo("chat", "--from", "mine", "two").exit == 0
    assert convo("compact", "mine").exit == 0
    gateway = serve(f"sqlite:{home / DATABASE}")
    for file_format, heading in (
        ("markdown", "## 5. compaction of items 2, 4"),
        ("html", "5 · compaction of items 2, 4"),
    ):
        text = gateway.http.get(EXPORT.format("mine"), params={"format": file_format}).text
        assert (heading in text, "Answer two" in text) == (True, True)
    assert "Answer two" not in gateway.http.get(EXPORT.format("mine"), params={"format": "jsonl"}).text
