"""Size limits of files, and the errors of files that cannot be read or written."""

import os
from pathlib import Path

import pytest

from convo.chat.files import load_attachment, load_text_format, read_text_file, write_atomic
from convo.chat.item_file import ReplayFile
from convo.errors import StoreFault, StoreReadOnly, Unreadable
from convo.history.items import user_message

MB = 1024 * 1024


def sparse_file(path: Path, size: int) -> str:
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def test_an_attachment_may_have_50_mb(tmp_path: Path) -> None:
    """The content is checked after the size, and zero bytes are no text."""
    with pytest.raises(Unreadable, match=r"is not UTF-8 text, an image or a PDF$") as at_limit:
        load_attachment(sparse_file(tmp_path / "a", 50 * MB))
    with pytest.raises(Unreadable, match=r"is larger than 50 MB$") as above_limit:
        load_attachment(sparse_file(tmp_path / "a", 50 * MB + 1))

    assert at_limit.value.hint == "attach UTF-8 text, a PDF, or a PNG, JPEG, GIF or WebP image"
    assert above_limit.value.hint == "attach a smaller file"


def test_a_text_file_may_have_16_mb(tmp_path: Path) -> None:
    assert len(read_text_file(sparse_file(tmp_path / "a", 16 * MB))) == 16 * MB
    with pytest.raises(Unreadable, match=r"a is larger than 16 MB$"):
        read_text_file(sparse_file(tmp_path / "a", 16 * MB + 1))


@pytest.mark.parametrize("content", [b"", b"a", b"gr\xc3\xb6\xc3\x9fe\n", b"\xef\xbb\xbfhi"])
def test_a_text_file_is_read_from_its_first_byte_to_its_last(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert read_text_file(str(tmp_path / "a")) == content.decode("utf-8-sig")


def test_a_text_file_in_the_home_folder_can_be_named_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_text("hi")
    (tmp_path / "s.json").write_text("{}")
    assert read_text_file("~/a") == "hi"
    assert load_text_format("~/s.json")["format"]["name"] == "s"


def test_a_pipe_without_a_writer_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match=r"pipe is a pipe without a writer$"):
        read_text_file(str(tmp_path / "pipe"))


def test_a_folder_cannot_be_attached(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        load_attachment(str(tmp_path))
    assert caught.value.hint == "attach a file from this folder"


@pytest.mark.parametrize(
    ("content", "is_image"),
    [
        (b"GIF87a rest", True),
        (b"GIF88a rest", False),
        (b"RIFF1234WEBP", True),
        (b"RIFF1234WAVE", False),
        (b"RIFX1234WEBP", False),
        (b"RIFF123WEBP", False),
    ],
)
def test_only_the_signature_of_an_image_makes_one(tmp_path: Path, content: bytes, is_image: bool) -> None:
    (tmp_path / "a").write_bytes(content)
    assert (load_attachment(str(tmp_path / "a"))["type"] == "input_image") is is_image


# -- replay files ----------------------------------------------------------------------------------

REPLAY_HINT = 'use a list of items, such as [{"role": "user", "content": "hi"}]'


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ('{"id": 1}', "has neither a type nor a role"),
        ('{"type": "message", "content": "a"}', "is a message without a role"),
        ('{"role": "user"}', "is a message without content"),
        ('{"role": "user", "content": 7}', "is a message without content"),
    ],
)
def test_an_invalid_item_of_a_replay_file_is_named_by_its_number(tmp_path: Path, item: str, problem: str) -> None:
    path = tmp_path / "talk.json"
    path.write_text(f'[{{"role": "user", "content": []}}, {{"type": "odd"}}, {item}]')

    with pytest.raises(Unreadable) as caught:
        ReplayFile(path).read_valid()

    assert caught.value.message == f"{path}: item 3 {problem}"
    assert caught.value.hint == REPLAY_HINT


def test_a_pipe_is_no_replay_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for refuse in (ReplayFile(tmp_path / "pipe").read, ReplayFile(tmp_path / "pipe").check_writable):
        with pytest.raises(Unreadable, match=r"pipe is a pipe or a device, not a replay file$"):
            refuse()


def test_a_file_that_cannot_be_written_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()

    with pytest.raises(StoreFault, match=r"folder cannot be written: is a directory$") as caught:
        write_atomic(target, "text")

    assert type(caught.value) is StoreFault
    assert caught.value.hint == "choose another file"
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_is_replaced_with_the_requested_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o644)

    write_atomic(path, "new", mode=0o600)

    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        write_atomic(pipe, "text")
        assert os.read(descriptor, 10) == b"text"
    finally:
        os.close(descriptor)


def test_a_replay_file_in_a_file_is_no_replay_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[]")
    with pytest.raises((Unreadable, StoreReadOnly), match=r"is not a folder, so talk.json cannot be written there$"):
        ReplayFile(tmp_path / "a" / "talk.json").check_writable()


def test_a_file_changes_also_when_its_size_and_time_stay(tmp_path: Path) -> None:
    file = ReplayFile(tmp_path / "talk.json")
    file.write([user_message("a")])
    before = file.path.stat()
    other = tmp_path / "other.json"
    other.write_text(file.path.read_text())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file.path)

    assert file.is_changed()
    assert file.read() == [user_message("a")]
    assert not file.is_changed()
