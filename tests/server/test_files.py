"""Uploaded files over HTTP: with the openai package, in requests to models, with limits, by tenant."""

import base64
import io
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

from convo.errors import RequestRefused
from convo.server.forms import parse_upload_form
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server
from tests.models.messages_events import message_events, text
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

PDF = b"%PDF-1.4 tiny"
PNG = b"\x89PNG tiny"
MEBIBYTE = 1024 * 1024

PROVIDERS = """
[providers.chat]
api = "chat"
base_url = "{url}"
[providers.native]
api = "responses"
base_url = "{url}"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[serve.files]
max_file_bytes = 65536
max_files = 3
max_total_bytes = 100000
"""


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer) -> RunningGateway:
    return serve(toml=PROVIDERS.format(url=upstream.url))


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url, api_key="any", max_retries=0) as client:
        yield client


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def upload(
    gateway: RunningGateway, content: bytes = PDF, name: str = "a.pdf", fields: Mapping[str, str] | None = None
) -> Any:
    form = {"purpose": "user_data", **(fields or {})}
    return gateway.http.post("/v1/files", files={"file": (name, content)}, data=form)


def file_message(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "see"}, *parts]}]


def test_the_openai_package_uploads_lists_downloads_and_deletes(client: openai.OpenAI) -> None:
    first = client.files.create(
        file=("ré sumé.pdf", io.BytesIO(PDF)), purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )  # fmt: skip
    second = client.files.create(file=("b.png", PNG), purpose="vision")

    assert (first.filename, first.bytes, first.purpose, first.status) == ("ré sumé.pdf", 13, "user_data", "processed")
    assert first.expires_at == first.created_at + 3600
    assert second.expires_at is None
    assert [file.id for file in client.files.list()] == [second.id, first.id]
    assert [file.id for file in client.files.list(limit=1, order="asc")] == [first.id, second.id]  # two pages
    assert [file.id for file in client.files.list(purpose="vision")] == [second.id]
    assert client.files.retrieve(first.id) == first
    download = client.files.content(first.id)
    assert download.content == PDF
    assert download.response.headers["content-type"] == "application/octet-stream"
    assert download.response.headers["content-disposition"] == "attachment; filename*=UTF-8''r%C3%A9%20sum%C3%A9.pdf"
    assert client.files.delete(first.id).deleted
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            call(first.id)


def test_a_chat_model_receives_the_content_of_files_also_on_a_later_turn(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    pdf, png = (upload(gateway, *args).json()["id"] for args in ((PDF, "a.pdf"), (PNG, "b.png")))
    parts = ({"type": "input_file", "file_id": pdf}, {"type": "input_image", "file_id": png, "detail": "low"})
    for _ in range(2):
        upstream.stream(delta(content="Seen."), finish("stop"))

    answer = gateway.create_response({"model": "chat/any", "input": file_message(*parts)})
    assert "x-convo-ignored" not in answer.headers
    first = answer.json()
    gateway.create_response({"model": "chat/any", "previous_response_id": first["id"], "input": "And?"})

    for request in upstream.requests:
        assert request.json["messages"][0]["content"][1:] == [
            {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
            {"type": "image_url", "image_url": {"url": data_url("image/png", PNG), "detail": "low"}},
        ]
    items = gateway.http.get(f"/v1/responses/{first['id']}/input_items").json()["data"]
    assert items[0]["content"][1:] == [*parts]  # the history keeps the ids


def test_a_claude_model_receives_a_document_and_refuses_other_files_by_name(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    pdf, archive = (upload(gateway, PDF, name).json()["id"] for name in ("a.pdf", "a.zip"))
    upstream.stream(*message_events(text(0, "Seen.")), end=b"")

    answer = gateway.create_response(
        {"model": "claude/any", "input": file_message({"type": "input_file", "file_id": pdf})}
    )
    assert (answer.is_success, answer.headers.get("x-convo-ignored")) == (True, None)
    refused = gateway.create_response(
        {"model": "claude/any", "input": file_message({"type": "input_file", "file_id": archive})}
    )

    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(PDF).decode()}
    assert upstream.requests[0].json["messages"][0]["content"][1] == {
        "type": "document", "source": source, "title": "a.pdf",
    }  # fmt: skip
    assert (refused.status_code, len(upstream.requests)) == (400, 1)
    assert "input_file parts" in refused.json()["error"]["message"]


def test_a_native_server_receives_the_content_and_the_ids_that_only_it_may_know(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    pdf = upload(gateway).json()["id"]
    upstream.refuse(400, {"error": {"message": "Reached.", "code": "reached"}})
    theirs = {"type": "input_file", "file_id": "file-theirs"}

    answer = gateway.create_response(
        {"model": "native/any", "input": file_message({"type": "input_file", "file_id": pdf}, theirs)}
    )
    assert answer.json()["error"]["code"] == "reached"

    assert upstream.requests[0].json["input"][0]["content"][1:] == [
        {"type": "input_file", "filename": "a.pdf", "file_data": data_url("application/pdf", PDF)},
        theirs,
    ]


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({"type": "input_file", "file_id": "file-none"}, "file_not_found", "input[0].content[1].file_id"),
        ({"type": "input_image", "file_id": "PDF"}, "invalid_image", "input[0].content[1]"),
    ],
)
def test_a_part_without_a_usable_file_is_refused_before_the_model_is_called(
    gateway: RunningGateway, upstream: ChatServer, part: dict[str, Any], code: str, param: str
) -> None:
    pdf = upload(gateway).json()["id"]
    answer = gateway.create_response(
        {"model": "chat/any", "input": file_message({**part, "file_id": part["file_id"].replace("PDF", pdf)})}
    )

    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"]) == (400, code, param)
    assert upstream.requests == []


def test_sizes_and_counts_are_limited_and_removing_a_file_makes_room(gateway: RunningGateway) -> None:
    def code(answer: Any) -> tuple[int, object]:
        return answer.status_code, answer.json().get("error", {}).get("code")

    assert code(upload(gateway, bytes(65_537))) == (413, "file_too_large")
    assert code(upload(gateway, bytes(MEBIBYTE))) == (413, "request_too_large")
    first = upload(gateway, bytes(65_536))
    assert first.is_success
    assert code(upload(gateway, bytes(40_000))) == (400, "file_quota_exceeded")
    assert upload(gateway, b"1").is_success
    assert upload(gateway, b"2").is_success
    assert code(upload(gateway, b"3")) == (400, "file_quota_exceeded")
    gateway.http.delete(f"/v1/files/{first.json()['id']}")
    assert upload(gateway, bytes(40_000)).is_success


BOUNDARY = b"--b\r\n"
FILE_PART = b'content-disposition: form-data; name="file"; filename="x"\r\n\r\nx\r\n'
PURPOSE_PART = b'content-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_form", None),
        (BOUNDARY + FILE_PART, "invalid_form", None),  # cut off
        (BOUNDARY + PURPOSE_PART + b"--b--\r\n", "missing_required_parameter", "file"),
        (BOUNDARY + FILE_PART + b"--b--\r\n", "missing_required_parameter", "purpose"),
        ((BOUNDARY + FILE_PART) * 2 + b"--b--\r\n", "invalid_value", "file"),
        ((BOUNDARY + PURPOSE_PART) * 2 + b"--b--\r\n", "invalid_value", "purpose"),
        (BOUNDARY + PURPOSE_PART.replace(b"purpose", b"model") + b"--b--\r\n", "unknown_parameter", "model"),
        (BOUNDARY + PURPOSE_PART.replace(b"user_data", b"x" * 2000) + b"--b--\r\n", "invalid_form", None),
        (BOUNDARY + b"x: " + b"y" * 20_000, "invalid_form", None),
        (BOUNDARY + b"x: y\r\n\r\n\r\n--b--\r\n", "invalid_form", None),
    ],
)
def test_an_invalid_form_is_refused(gateway: RunningGateway, body: bytes, code: str, param: str | None) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = gateway.http.post("/v1/files", content=body, headers=headers)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "anything"}, "purpose"),
        ({"expires_after[anchor]": "created_at"}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "last_used", "expires_after[seconds]": "3600"}, "expires_after[anchor]"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"}, "expires_after.seconds"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "1e9"}, "expires_after[seconds]"),
    ],
)
def test_an_invalid_field_is_refused_by_name(gateway: RunningGateway, fields: dict[str, str], param: str) -> None:
    answer = upload(gateway, fields=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert gateway.http.get("/v1/files").json()["data"] == []


def test_json_instead_of_a_form_is_refused(gateway: RunningGateway) -> None:
    answer = gateway.http.post("/v1/files", json={"purpose": "user_data"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_content_type")


def test_an_invalid_form_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's, which keep a warning from stderr
    with pytest.raises(RequestRefused):
        parse_upload_form(
            b"multipart/form-data; boundary=b", b"--b\r\nContent-Disposition\r: form-data\r\n\r\nx\r\n--b--\r\n"
        )
    assert capsys.readouterr() == ("", "")
