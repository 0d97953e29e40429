"""Attachments: the content part for each kind of file, and the files that are refused."""

import os
from pathlib import Path

import pytest

from convo.chat.files import MAX_ATTACHMENT_BYTES, load_attachment
from convo.errors import Unreadable

IMAGES = {
    "image/png": b"\x89PNG\r\n\x1a\n rest",
    "image/jpeg": b"\xff\xd8\xff\xe0 rest",
    "image/gif": b"GIF89a rest",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP rest",
}


def write_file(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("name", ["picture", "wrong.txt"])
def test_an_image_is_known_by_its_first_bytes(kind: str, name: str, tmp_path: Path) -> None:
    part = load_attachment(write_file(tmp_path, name, IMAGES[kind]))
    assert (part["type"], part["detail"]) == ("input_image", "auto")
    assert part["image_url"].startswith(f"data:{kind};base64,")


def test_a_pdf_is_sent_as_a_file_with_its_name(tmp_path: Path) -> None:
    part = load_attachment(write_file(tmp_path, "paper.PDF", b"%PDF-1.7"))
    assert part == {
        "type": "input_file",
        "filename": "paper.PDF",
        "file_data": "data:application/pdf;base64,JVBERi0xLjc=",
    }


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.py", b"x = 1\n", "a.py:\nx = 1\n"),
        ("drawing.svg", b"<svg/>", "drawing.svg:\n<svg/>"),
        ("not.png", b"not a picture", "not.png:\nnot a picture"),
        ("empty", b"", "empty:\n"),
        ("bom.txt", b"\xef\xbb\xbfhi", "bom.txt:\nhi"),
        ("crlf.txt", b"a\r\nb", "crlf.txt:\na\r\nb"),
    ],
)
def test_a_text_file_is_sent_as_text_after_its_name(name: str, content: bytes, text: str, tmp_path: Path) -> None:
    assert load_attachment(write_file(tmp_path, name, content)) == {"type": "input_text", "text": text}


@pytest.mark.needs("linux")
def test_a_file_name_that_is_not_utf_8_is_escaped(tmp_path: Path) -> None:
    path = write_file(tmp_path, os.fsdecode(b"caf\xe9.txt"), b"hi")
    assert load_attachment(path)["text"] == "caf\\udce9.txt:\nhi"


@pytest.mark.parametrize("content", [b"caf\xe9", "hi".encode("utf-16"), b"a\0b", b"\x1f\x8b\x08"])
def test_a_file_that_is_no_image_pdf_or_text_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not UTF-8 text, an image or a PDF"):
        load_attachment(write_file(tmp_path, "x", content))


@pytest.mark.parametrize(("path", "reason"), [("nope", "no such file"), (".", "is a folder"), ("a" * 300, "too long")])
def test_an_unreadable_file_is_refused(path: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        load_attachment(path)


def test_a_tilde_is_expanded_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_file(tmp_path, "notes", b"hi")
    assert load_attachment("~/notes")["text"] == "notes:\nhi"


def test_a_file_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(MAX_ATTACHMENT_BYTES + 1)
    with pytest.raises(Unreadable, match="is larger than 50 MB"):
        load_attachment(str(tmp_path / "huge"))


@pytest.mark.needs("linux")
def test_an_endless_device_is_refused() -> None:
    with pytest.raises(Unreadable, match="is larger than 50 MB"):
        load_attachment("/dev/zero")


@pytest.mark.needs("posix")
def test_a_pipe_can_be_attached() -> None:
    """Shells pass such a pipe for -a <(git diff)."""
    reading, writing = os.pipe()
    os.write(writing, b"+ a line\n")
    os.close(writing)
    try:
        assert load_attachment(f"/dev/fd/{reading}")["text"].endswith(":\n+ a line\n")
    finally:
        os.close(reading)
