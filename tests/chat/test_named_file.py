"""Files that the user names: complete content, or an error for an endless or unreadable file."""

import os
from pathlib import Path

import pytest

from convo.chat.files import MAX_TEXT_FILE_BYTES, read_text_file
from convo.errors import Unreadable


def read_error(name: str) -> str:
    with pytest.raises(Unreadable) as error:
        read_text_file(name)
    return error.value.message


def test_a_file_is_read_completely_and_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("\ufeffä" * 2, encoding="utf-8")
    assert read_text_file(str(path)) == "ä\ufeffä"
    path.write_bytes(b"a" * MAX_TEXT_FILE_BYTES)
    assert len(read_text_file(str(path))) == MAX_TEXT_FILE_BYTES
    path.write_bytes(b"")
    assert read_text_file(str(path)) == read_text_file(os.devnull) == ""


def test_the_output_of_a_command_is_read_through_a_pipe(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if not child:
        os.write(write_fd, b'{"customer": ')
        os.write(write_fd, b'"A1"}')
        os._exit(0)
    os.close(write_fd)
    assert read_text_file(f"/dev/fd/{read_fd}") == '{"customer": "A1"}'
    os.close(read_fd)
    assert os.waitpid(child, 0)[1] == 0


def test_an_endless_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    assert read_error("/dev/zero") == "/dev/zero is larger than 16 MB"
    assert read_error(f"{tmp_path}/pipe") == f"{tmp_path}/pipe is a pipe without a writer"
    assert read_error(str(tmp_path)) == f"{tmp_path} cannot be read: is a directory"
    assert read_error(f"{tmp_path}/none") == f"{tmp_path}/none cannot be read: no such file or directory"
    assert read_error(f"{tmp_path}/image") == f"{tmp_path}/image cannot be read: it is not UTF-8"
